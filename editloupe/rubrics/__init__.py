"""Rubrics: what is judged, in which order one looks, and which labels or which numbers one may give.

A rubric is a TOML file, built in or the user's own (docs/rubrics.md). `load_rubric` reads it strictly: a rubric with a
mistake would judge a whole folder by something that its author did not mean.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema
from pydantic_core import ErrorDetails, PydanticKnownError

from editloupe import plugins
from editloupe.answers import CANNOT_JUDGE, LabelRule, Labels, Scale, fold
from editloupe.errors import ConfigError, did_you_mean
from editloupe.files import read_toml
from editloupe.replies import tags_in
from editloupe.values import Json, digest, is_empty

_HERE: Final = Path(__file__).parent
_ID: Final = r"^[A-Za-z][A-Za-z0-9_-]*$"
Concerns: TypeAlias = Literal["target", "surroundings"]


def _one_line(text: str) -> str:
    """Return a text on one line: how a file wraps its lines must not change the digest."""
    return " ".join(text.split())


def _not_empty(text: str) -> str:
    if not text:
        raise ValueError("must not be empty")
    return text


_Line = Annotated[str, Strict(), AfterValidator(_one_line)]
_Text = Annotated[str, Strict(), Field(min_length=1), AfterValidator(_one_line), AfterValidator(_not_empty)]
_Id = Annotated[str, Strict(), Field(pattern=_ID)]


class _Model(BaseModel):
    """A part of a rubric: value, file format and JSON schema at once. The docstrings of the fields are in the schema."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Citation(_Model):
    """Where the rubric comes from. Every field may be empty."""

    paper: _Line = ""
    """Title of the publication."""
    url: _Line = ""
    """Where it can be read."""
    parts: tuple[_Text, ...] = ()
    """Tables and sections that the rubric follows."""
    note: _Line = ""
    """Anything else on the origin."""


class Level(_Model):
    """One label of a criterion."""

    name: _Text
    """The label, in the words that the judge gives back."""
    value: Annotated[float, Strict()]
    """The label's place on the scale; a higher value is better."""
    description: _Text
    """When this label applies."""
    aliases: tuple[_Text, ...] = ()
    """Other spellings that mean this label and no other; case and punctuation do not matter."""


class NumberScale(_Model):
    """The numbers that may be given, in place of labels."""

    low: Annotated[float, Strict()]
    """The lowest number."""
    high: Annotated[float, Strict()]
    """The highest number, which is the best."""
    whole: Annotated[bool, Strict()] = False
    """Whether only whole numbers are accepted."""


class Penalty(_Model):
    """What a fault costs on a scale."""

    name: _Text
    """The fault, in a few words."""
    low: Annotated[float, Strict()]
    """What is subtracted at least, as a positive number."""
    high: Annotated[float, Strict()]
    """What is subtracted at most."""
    text: _Text
    """When it is subtracted."""


class Criterion(_Model):
    """One question with its labels, or with the scale of its numbers."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [{"required": ["levels"]}, {"required": ["scale"]}]})

    id: SkipJsonSchema[_Id]
    """In a file, the name of the criterion's table: [criteria.<id>]."""
    name: _Text
    """The criterion's full name, as the judge reads it."""
    short: _Text
    """Its name in tables, such as IF."""
    question: _Text
    """What is asked, in one or a few sentences."""
    inspection: tuple[_Text, ...] = ()
    """The steps of the inspection, in order."""
    notes: tuple[_Text, ...] = ()
    """Special cases."""
    concerns: Concerns | None = None
    """What the question is about: target or surroundings. The oracle mode shows nothing else."""
    levels: Annotated[tuple[Level, ...], Field(min_length=2, exclude_if=is_empty)] = ()
    """The labels, from worst to best; none where there is a scale."""
    scale: Annotated[NumberScale | None, Field(exclude_if=is_empty)] = None
    """The numbers, for a criterion without labels. A judge gives one with a short reason."""
    penalties: Annotated[tuple[Penalty, ...], Field(exclude_if=is_empty)] = ()
    """What faults cost on the scale, as the judge reads it. The judge does the sum."""

    @model_validator(mode="after")
    def _labels_or_numbers(self) -> Criterion:
        if bool(self.levels) == (self.scale is not None):
            found = "both" if self.levels else "neither"
            raise ValueError(f"expected levels (labels) or a scale (numbers), found {found}")
        if self.penalties and self.scale is None:
            raise ValueError("penalties are subtracted on a scale, and this criterion has levels")
        return self

    @property
    def lowest(self) -> Level:
        return self.levels[0]

    @property
    def highest(self) -> Level:
        return self.levels[-1]

    def normalize(self, value: float) -> float:
        """Return a value of this criterion's scale on 0..100 (higher is better). A mean of values may be given as well."""
        scale = self.scale
        low, high = (self.lowest.value, self.highest.value) if scale is None else (scale.low, scale.high)
        return (value - low) / (high - low) * 100

    @property
    def labels(self) -> tuple[LabelRule, ...]:
        """The labels as an answer may give them, best first."""
        return tuple(LabelRule(name=one.name, value=one.value, aliases=one.aliases) for one in reversed(self.levels))

    def answer(self) -> Labels | Scale:
        """Return what counts as an answer: one of the labels, or a number of the scale with its reason."""
        return self._answer

    @cached_property
    def _answer(self) -> Labels | Scale:
        if self.scale is None:
            return Labels(labels=self.labels)
        return Scale(low=self.scale.low, high=self.scale.high, whole=self.scale.whole, reason=True)


def _of_tables(criteria: object) -> object:
    """Give each table of a file, [criteria.<id>], its id. A list is refused, so that a file has one way to say it."""
    if isinstance(criteria, Mapping):
        return tuple({**c, "id": key} if isinstance(c, Mapping) else c for key, c in criteria.items())
    if isinstance(criteria, tuple):
        return criteria
    raise PydanticKnownError("dict_type")


class Rubric(_Model):
    """A rubric for judging image edits: a set of criteria with its origin."""

    id: _Id
    """Short name: letters, digits, _ and -."""
    title: _Text
    """Name in words."""
    source: Citation = Citation()
    """Where the rubric comes from."""
    criteria: Annotated[
        tuple[Criterion, ...],
        Field(min_length=1),
        BeforeValidator(_of_tables, json_schema_input_type=Annotated[dict[_Id, Criterion], Field(min_length=1)]),
        # Loading refuses other ids; without this an editor would not.
        Field(json_schema_extra={"additionalProperties": False}),
    ]
    """One table for each criterion, [criteria.<id>]; ids consist of letters, digits, _ and -."""

    @property
    def digest(self) -> str:
        """SHA-256 of the content: comments, line breaks and `3` or `3.0` make no difference."""
        return digest(self.to_json())

    def criterion(self, id_or_short: str) -> Criterion:
        """Return the criterion with this id or short name, whatever the case. Raises ConfigError, which lists the known."""
        wanted = id_or_short.casefold()
        for criterion in self.criteria:
            if wanted in (criterion.id.casefold(), criterion.short.casefold()):
                return criterion
        known = ", ".join(f"{c.id} ({c.short})" for c in self.criteria)
        raise ConfigError(f"rubric {self.id!r} has no criterion {id_or_short!r}; it has: {known}")

    def to_json(self) -> dict[str, Json]:
        """Return the rubric as a run records it: the criteria are a list, each with its id."""
        return self.model_dump(mode="json")

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Rubric:
        """Parse what `to_json` returns. Raises ConfigError where the data are not of that shape."""
        criteria = data.get("criteria")
        try:
            return cls.model_validate({**data, "criteria": tuple(criteria) if isinstance(criteria, list) else criteria})
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"])) or "its content"
            raise ConfigError(f"rubric {str(data.get('id'))!r}: {where}: {first['msg'].lower()}") from error


def builtin_rubrics() -> tuple[str, ...]:
    """Return the names of the rubrics of this folder, and of those that other packages' protocols bring."""
    names = {*(path.stem for path in _HERE.glob("*.toml")), *plugins.names("protocols")}
    return tuple(sorted(name for name in names if _found(name) is not None))


def rubric_path(name: str) -> Path:
    """Return the file of a built-in rubric. Raises ConfigError for an unknown name."""
    found = _found(name)
    if found is None:
        known = builtin_rubrics()
        raise ConfigError(
            f"unknown rubric {name!r}; {did_you_mean(name, known)}built in: {', '.join(known)}; "
            "a rubric of your own is given by the path of its .toml file"
        )
    return found


def _found(name: str) -> Path | None:
    """Return the file of the rubric of this name, None for none. A stranger's lies beside its protocol's module.

    Of several protocols in one folder it is that of the one named as the folder, else of the first by name.
    """
    names = plugins.names("protocols")
    if re.fullmatch(r"\w+", name) and (own := _HERE / f"{name}.toml").is_file():
        return own
    folder = plugins.folder("protocols", name) if name in names else None
    if folder is None or not (folder / "rubric.toml").is_file():
        return None
    beside = [other for other in names if plugins.folder("protocols", other) == folder]
    return folder / "rubric.toml" if name == (folder.name if folder.name in beside else min(beside)) else None


def load_rubric(name_or_path: str | Path) -> Rubric:
    """Read a built-in rubric by its name ("dlebench"), or a user's own .toml file by path.

    Raises ConfigError for an unknown name, a file that cannot be read, or a file that breaks a rule. Each broken rule
    stands in a line of its own with file and key.
    """
    if not isinstance(name_or_path, str | Path):
        raise ConfigError(f"a rubric is a name or the path of a .toml file, found {name_or_path!r}")
    if isinstance(name_or_path, str):
        own = name_or_path.endswith(".toml") or re.search(r"[\\/]", name_or_path)
        if _found(name_or_path) is not None or not own:
            return _read(rubric_path(name_or_path), name_or_path)
    return _read(Path(name_or_path), str(name_or_path))


def schema_text() -> str:
    """Return the JSON schema of a rubric file, for editors. The committed copy is `schema.json` beside the rubrics."""
    # Taplo, the TOML language server of most editors, reads draft 7; pydantic names the shared parts "$defs", which
    # draft 7 resolves as well, since a $ref is a path into the document.
    schema = {"$schema": "http://json-schema.org/draft-07/schema#", **Rubric.model_json_schema()}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _read(path: Path, shown: str) -> Rubric:
    known = f"; built in: {', '.join(builtin_rubrics())}"
    return _checked(read_toml(path, f"rubric {shown!r}:", error=ConfigError, if_missing=known), shown)


def _checked(raw: Mapping[str, Any], shown: str) -> Rubric:
    """Return the rubric of what a file holds. Raises ConfigError, a line for each broken rule."""
    try:
        rubric = Rubric.model_validate(raw)
    except ValidationError as error:
        problems = [
            _explain(problem, _in_file(problem["loc"], raw))
            for problem in error.errors()
            # A tuple counts only its good items: it is not too short as well where one of them is at fault.
            if problem["type"] != "too_short" or problem["ctx"]["actual_length"] == len(problem["input"])
        ]
        raise ConfigError("\n".join(f"rubric {shown!r}: {problem}" for problem in problems)) from error
    problems = [
        f"criteria.{key}.id: unknown key; the id of a criterion is the name of its table"
        for key, table in raw["criteria"].items()
        if "id" in table
    ]
    problems += _clashes(rubric)
    if problems:
        raise ConfigError("\n".join(f"rubric {shown!r}: {problem}" for problem in problems))
    return rubric


def _in_file(loc: tuple[int | str, ...], raw: Mapping[str, object]) -> tuple[int | str, ...]:
    """Return the place in the file: a criterion stands there under its id, not under a number."""
    match loc, raw.get("criteria"):
        case ("criteria", int(i), *rest), {**tables}:
            return ("criteria", [*tables][i], *(rest if rest != ["id"] else ()))
    return loc


def _explain(problem: ErrorDetails, loc: Sequence[int | str]) -> str:
    """Return one complaint of pydantic in our words, behind the key that it is about; places in lists count from 0."""
    kind, found = problem["type"], problem["input"]
    where = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).removeprefix(".")
    if kind == "extra_forbidden":
        tables: dict[int, type[BaseModel]] = {1: Rubric, 2: Citation, 3: Criterion, 4: NumberScale}
        table = tables.get(len(loc), Penalty if "penalties" in loc else Level)
        known = [key for key in table.model_fields if (table, key) != (Criterion, "id")]
        return f"{where}: unknown key; {did_you_mean(str(loc[-1]), known)}known here: {', '.join(known)}"
    if kind == "missing":
        return f"{where}: is missing"
    if kind == "string_too_short" or (kind == "value_error" and not str(found).strip()):
        return f"{where}: is empty; expected text"
    if kind == "string_pattern_mismatch":
        return f"{where}: {found!r} may hold letters, digits, _ and - only, and starts with a letter"
    if kind == "too_short":
        things = "levels" if loc[-1] == "levels" else "criterion"
        return (
            f"{where}: found {problem['ctx']['actual_length']}; expected at least {problem['ctx']['min_length']} {things}"
        )
    if kind in _EXPECTED:
        text = repr(found)
        text = text if len(text) <= 60 else text[:59] + "…"
        return f"{where}: expected {_EXPECTED[kind]}, found {_TYPES.get(type(found), type(found).__name__)} {text}"
    return f"{where}: {problem['msg'].removeprefix('Value error, ')}"


_EXPECTED: Final = {
    "string_type": "text in quotes",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_TYPES: Final[Mapping[type, str]] = {
    str: "the text",
    bool: "the truth value",
    int: "the number",
    float: "the number",
    list: "the list",
    dict: "the table",
}


def _clashes(rubric: Rubric) -> Iterable[str]:
    """Yield what the types cannot say: names with two meanings, values out of order, labels that no answer could give."""
    criteria = rubric.criteria
    yield from _twice(((f"criteria.{c.id}", c.id) for c in criteria), "the id", str.casefold)
    yield from _twice(((f"criteria.{c.id}.name", c.name) for c in criteria), "the name", fold)
    yield from _twice(((f"criteria.{c.id}.short", c.short) for c in criteria), "the short name", str.casefold)
    for criterion in criteria:
        for other in criteria:
            if other is not criterion and criterion.short.casefold() == other.id.casefold() != other.short.casefold():
                yield f"criteria.{criterion.id}.short: {criterion.short!r} is also the id of another criterion"
        yield from _scale_clashes(f"criteria.{criterion.id}", criterion)
        where = f"criteria.{criterion.id}.levels"
        yield from _value_clashes(where, [level.value for level in criterion.levels])
        words = [
            (f"{where}[{i}].{key}", word)
            for i, level in enumerate(criterion.levels)
            for key, word in [("name", level.name), *((f"aliases[{j}]", alias) for j, alias in enumerate(level.aliases))]
        ]
        for place, word in words:
            if not fold(word):
                yield f"{place}: {word!r} holds no letter, digit or symbol that an answer could be matched by"
            elif tag := next(tags_in(word), None):
                part = word[tag.start : tag.end]
                yield f"{place}: {word!r} holds {part!r}, a tag that parts a judge's reply; choose other words"
            elif fold(word) == fold(CANNOT_JUDGE):
                yield f"{place}: {word!r} is kept for judges that cannot decide; choose other words"
        yield from _twice(((place, word) for place, word in words if fold(word)), "the label or alias", fold)


def _scale_clashes(where: str, criterion: Criterion) -> Iterable[str]:
    scale, penalties = criterion.scale, criterion.penalties
    if scale is None:
        return
    if not (math.isfinite(scale.low) and math.isfinite(scale.high) and scale.low < scale.high):
        yield f"{where}.scale: expected finite numbers, low below high; found {scale.low:g} and {scale.high:g}"
        return
    width = scale.high - scale.low
    for i, penalty in enumerate(penalties):
        if not 0 < penalty.low <= penalty.high <= width:
            yield (
                f"{where}.penalties[{i}]: expected 0 < low ≤ high ≤ {width:g}, the width of the scale; "
                f"found {penalty.low:g} and {penalty.high:g}"
            )
    yield from _twice(((f"{where}.penalties[{i}].name", one.name) for i, one in enumerate(penalties)), "the penalty", fold)


def _value_clashes(where: str, values: Sequence[float]) -> Iterable[str]:
    bad = [i for i, value in enumerate(values) if not math.isfinite(value)]
    yield from (f"{where}[{i}].value: {values[i]} is not a finite number" for i in bad)
    same = [value for i, value in enumerate(values) if i not in bad and value in values[:i]]
    yield from (f"{where}: two levels have the value {value:g}; values must differ" for value in same)
    if not bad and not same and list(values) != sorted(values):
        found = ", ".join(f"{value:g}" for value in values)
        yield f"{where}: levels must stand from worst to best, values ascending; found {found}"


def _twice(named: Iterable[tuple[str, str]], what: str, key: Callable[[str], str]) -> Iterable[str]:
    """Yield a complaint for each (place, word) whose word was there before, as `key` compares words."""
    first: dict[str, tuple[str, str]] = {}
    for place, word in named:
        where, before = first.setdefault(key(word), (place, word))
        if where != place:
            same = "" if before == word else f" (as {before!r})"
            yield f"{place}: {what} {word!r} is already used by {where}{same}; each must be unique"


def _of_any(value: Any) -> Any:
    if isinstance(value, Mapping):
        # In a file criteria are tables by id; a run records a list.
        if isinstance(value.get("criteria"), Mapping):
            return _checked(value, str(value.get("id") or "given"))
        return Rubric.from_json(value)
    return value if isinstance(value, Rubric) else load_rubric(value)


RubricOption: TypeAlias = Annotated[
    Any, Field(validate_default=True), BeforeValidator(_of_any), PlainSerializer(lambda rubric: rubric.to_json())
]
"""An option of a protocol: a rubric by name or path, or as a run recorded it. Its value is a Rubric."""
