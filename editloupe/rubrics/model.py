"""Rubrics: what is judged, in which order one looks, and which labels with which values one may give.

A rubric is a TOML file, built in or the user's own (docs/rubrics.md). `load_rubric` reads it strictly: a rubric with a
slip in it would judge a whole folder by something that its author did not mean.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from editloupe.errors import RubricError
from editloupe.parsing import CANNOT_JUDGE, fold
from editloupe.records import Grammar, LabelRule
from editloupe.values import Json, digest

_HERE: Final = Path(__file__).parent
Concerns: TypeAlias = Literal["target", "surroundings"]

_ID: Final = r"^[A-Za-z][A-Za-z0-9_-]*$"


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a rubric comes from; every field may be empty."""

    paper: str = ""
    url: str = ""
    parts: tuple[str, ...] = ()
    note: str = ""

    def to_json(self) -> dict[str, Json]:
        return {"paper": self.paper, "url": self.url, "parts": list(self.parts), "note": self.note}


@dataclass(frozen=True, kw_only=True)
class Level:
    """One label with its value on the criterion's scale (higher is better) and other spellings that mean the same."""

    name: str
    value: float
    description: str
    aliases: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {
            "name": self.name,
            "value": float(self.value),
            "description": self.description,
            "aliases": list(self.aliases),
        }


@dataclass(frozen=True, kw_only=True)
class Criterion:
    """One question with its labels.

    short: the name in tables ("IF").   inspection: steps in the order in which they are taken.
    levels: at least two, from worst to best, values ascending.   concerns: what the question is about, the edit's target
    or its surroundings; None for both. Where boxes are known, nothing else needs to be shown.
    """

    id: str
    name: str
    short: str
    question: str
    levels: tuple[Level, ...]
    inspection: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    concerns: Concerns | None = None

    @property
    def lowest(self) -> Level:
        return self.levels[0]

    @property
    def highest(self) -> Level:
        return self.levels[-1]

    def normalise(self, value: float) -> float:
        """A value of this criterion's scale on 0..100 (higher is better); a mean of values may be given as well."""
        low, high = self.lowest.value, self.highest.value
        return (value - low) / (high - low) * 100

    def grammar(self) -> Grammar:
        """What counts as an answer, from best to worst."""
        return Grammar(
            labels=tuple(
                LabelRule(name=level.name, value=float(level.value), aliases=level.aliases)
                for level in reversed(self.levels)
            )
        )

    def to_json(self) -> dict[str, Json]:
        return {
            "id": self.id,
            "name": self.name,
            "short": self.short,
            "question": self.question,
            "inspection": list(self.inspection),
            "notes": list(self.notes),
            "concerns": self.concerns,
            "levels": [level.to_json() for level in self.levels],
        }


@dataclass(frozen=True, kw_only=True)
class Rubric:
    """A set of criteria with its origin."""

    id: str
    title: str
    criteria: tuple[Criterion, ...]
    source: Source = Source()

    @property
    def digest(self) -> str:
        """SHA-256 of the content: comments, line breaks and `3` or `3.0` make no difference."""
        return digest(self.to_json())

    def criterion(self, id_or_short: str) -> Criterion:
        """The criterion with this id or short name, whatever the case. Raises RubricError, which lists the known."""
        wanted = id_or_short.casefold()
        for criterion in self.criteria:
            if wanted in (criterion.id.casefold(), criterion.short.casefold()):
                return criterion
        known = ", ".join(f"{c.id} ({c.short})" for c in self.criteria)
        raise RubricError(f"rubric {self.id!r} has no criterion {id_or_short!r}; it has: {known}")

    def to_json(self) -> dict[str, Json]:
        return {
            "id": self.id,
            "title": self.title,
            "source": self.source.to_json(),
            "criteria": [criterion.to_json() for criterion in self.criteria],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Rubric:
        """The inverse of `to_json`. Raises RubricError where the data are not of that shape."""
        raw = {key: value for key, value in data.items() if key != "criteria"}
        source = data.get("source")
        # What a file leaves out is empty here, and no file may state it so.
        raw["source"] = {key: value for key, value in source.items() if value} if isinstance(source, Mapping) else {}
        criteria = data.get("criteria")
        found = criteria if isinstance(criteria, list) else []
        raw["criteria"] = {
            str(c.get("id")): {key: value for key, value in c.items() if key != "id" and value is not None}
            for c in found
            if isinstance(c, Mapping)
        }
        try:
            return _rubric(_RubricFile.model_validate(raw))
        except ValidationError as error:
            raise RubricError(f"rubric {str(data.get('id'))!r} of the run: {error.errors()[0]['msg']}") from error


def builtin_rubrics() -> tuple[str, ...]:
    """Names of the rubrics that come with editloupe."""
    return tuple(sorted(path.stem for path in _HERE.glob("*.toml")))


def load_rubric(name_or_path: str | Path) -> Rubric:
    """A built-in rubric by name ("dlebench"), or a user's own .toml file by path.

    Raises RubricError: an unknown name, a file that cannot be read, or one that breaks a rule; each broken rule stands
    in a line of its own with file and key.
    """
    if isinstance(name_or_path, str):
        if name_or_path in builtin_rubrics():
            return _read(_HERE / f"{name_or_path}.toml", f"{name_or_path}.toml")
        if not name_or_path.endswith(".toml") and not re.search(r"[\\/]", name_or_path):
            raise RubricError(
                f"unknown rubric {name_or_path!r}; built in: {', '.join(builtin_rubrics())}; "
                "a rubric of your own is given by the path of its .toml file"
            )
    return _read(Path(name_or_path), str(name_or_path))


def rubric_schema() -> dict[str, Json]:
    """The JSON schema of a rubric file, for editors; the committed copy is `schema.json` beside the rubrics."""
    schema: dict[str, Json] = {"$schema": "http://json-schema.org/draft-07/schema#"}
    # Taplo, the TOML language server of most editors, reads draft 7; pydantic names the shared parts "$defs", which
    # draft 7 resolves as well, since a $ref is a path into the document.
    return schema | _RubricFile.model_json_schema()


def schema_text() -> str:
    """The bytes of schema.json."""
    return json.dumps(rubric_schema(), indent=2, ensure_ascii=False) + "\n"


def _one_line(text: str) -> str:
    """Prompts keep one line for each text, and how a file wraps its lines must not change the digest."""
    line = " ".join(text.split())
    if not line:
        raise ValueError("must not be empty")
    return line


_Text = Annotated[str, Field(min_length=1), AfterValidator(_one_line)]


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class _LevelFile(_Strict):
    """One label of a criterion."""

    model_config = ConfigDict(title="Level")

    name: Annotated[_Text, Field(description="The label, in the words that the judge gives back.")]
    value: Annotated[float, Field(description="The label's place on the scale; a higher value is better.")]
    description: Annotated[_Text, Field(description="When this label applies.")]
    aliases: Annotated[
        list[_Text],
        Field(description="Other spellings that mean this label and no other; case and punctuation do not matter."),
    ] = []


class _CriterionFile(_Strict):
    """One question with its labels."""

    model_config = ConfigDict(title="Criterion")

    name: Annotated[_Text, Field(description="The criterion's full name, as the judge reads it.")]
    short: Annotated[_Text, Field(description="Its name in tables, such as IF.")]
    question: Annotated[_Text, Field(description="What is asked, in one or a few sentences.")]
    inspection: Annotated[list[_Text], Field(description="The steps of the inspection, in order.")] = []
    notes: Annotated[list[_Text], Field(description="Special cases.")] = []
    concerns: Annotated[
        Concerns | None,
        Field(description="What the question is about: target or surroundings. The oracle mode shows nothing else."),
    ] = None
    levels: Annotated[list[_LevelFile], Field(min_length=2, description="The labels, from worst to best.")]


class _SourceFile(_Strict):
    """Where the rubric comes from."""

    model_config = ConfigDict(title="Source")

    paper: Annotated[_Text, Field(description="Title of the publication.")] = ""
    url: Annotated[_Text, Field(description="Where it can be read.")] = ""
    parts: Annotated[list[_Text], Field(description="Tables and sections that the rubric follows.")] = []
    note: Annotated[_Text, Field(description="Anything else on the origin.")] = ""


class _RubricFile(_Strict):
    """A rubric for judging image edits (editloupe)."""

    model_config = ConfigDict(title="Rubric")

    id: Annotated[str, Field(pattern=_ID, description="Short name: letters, digits, _ and -.")]
    title: Annotated[_Text, Field(description="Name in words.")]
    source: Annotated[_SourceFile, Field(default_factory=_SourceFile)]
    criteria: Annotated[
        dict[Annotated[str, Field(pattern=_ID)], _CriterionFile],
        Field(
            min_length=1,
            description="One table for each criterion, [criteria.<id>]; ids consist of letters, digits, _ and -.",
            # Loading refuses other ids; without this an editor would not.
            json_schema_extra={"additionalProperties": False},
        ),
    ]


def _read(path: Path, shown: str) -> Rubric:
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        raise RubricError(f"rubric {shown!r}: no such file; built in: {', '.join(builtin_rubrics())}") from None
    except IsADirectoryError:
        raise RubricError(f"rubric {shown!r}: is a folder; expected a .toml file") from None
    except UnicodeDecodeError as error:
        raise RubricError(f"rubric {shown!r}: is not UTF-8 (byte {error.start}); save it as UTF-8") from error
    except OSError as error:
        raise RubricError(f"rubric {shown!r}: cannot be read: {error.strerror or error}") from error
    try:
        raw = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise RubricError(f"rubric {shown!r}: is not valid TOML: {error}") from error
    try:
        file = _RubricFile.model_validate(raw)
    except ValidationError as error:
        problems = [_explain(e["type"], e["loc"], e["msg"], e.get("input"), e.get("ctx", {})) for e in error.errors()]
        raise RubricError("\n".join(f"rubric {shown!r}: {problem}" for problem in problems)) from error
    problems = [*_clashes(file)]
    if problems:
        raise RubricError("\n".join(f"rubric {shown!r}: {problem}" for problem in problems))
    return _rubric(file)


def _rubric(file: _RubricFile) -> Rubric:
    source = file.source
    return Rubric(
        id=file.id,
        title=file.title,
        source=Source(paper=source.paper, url=source.url, parts=tuple(source.parts), note=source.note),
        criteria=tuple(
            Criterion(
                id=key,
                name=c.name,
                short=c.short,
                question=c.question,
                inspection=tuple(c.inspection),
                notes=tuple(c.notes),
                concerns=c.concerns,
                levels=tuple(
                    Level(name=x.name, value=x.value, description=x.description, aliases=tuple(x.aliases)) for x in c.levels
                ),
            )
            for key, c in file.criteria.items()
        ),
    )


def _explain(kind: str, loc: Sequence[int | str], message: str, found: object, ctx: Mapping[str, object]) -> str:
    """One complaint of pydantic in our words, behind the key that it is about."""
    where, known = _where(loc), _known_keys(loc[:-1])
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(str(loc[-1]), known, n=1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f"{where}: unknown key; {hint}known here: {', '.join(known)}"
    if kind == "missing":
        return f"{where}: is missing"
    if kind == "string_too_short" or (kind == "value_error" and not str(found).strip()):
        return f"{where}: is empty; expected text"
    if kind == "string_pattern_mismatch":
        # For a key of a table pydantic adds "[key]" to the path; the key itself is already in it.
        return f"{where.removesuffix('.[key]')}: {found!r} may hold letters, digits, _ and - only, and starts with a letter"
    if kind == "too_short":
        things = "levels" if loc[-1] == "levels" else "criterion"
        return f"{where}: found {ctx['actual_length']}; expected at least {ctx['min_length']} {things}"
    expected = _EXPECTED.get(kind)
    if expected:
        return f"{where}: expected {expected}, found {_TYPES.get(type(found), type(found).__name__)} {_shorten(found)}"
    return f"{where}: {message}"


_EXPECTED: Final = {
    "string_type": "text in quotes",
    "float_type": "a number",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
}
_TYPES: Final = {
    str: "the text",
    bool: "the truth value",
    int: "the number",
    float: "the number",
    list: "the list",
    dict: "the table",
}


def _shorten(found: object) -> str:
    text = repr(found)
    return text if len(text) <= 60 else text[:59] + "…"


def _where(loc: Iterable[int | str]) -> str:
    """("criteria", "x", "levels", 1, "name") as `criteria.x.levels[1].name`; places in lists count from 0."""
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _known_keys(loc: Sequence[int | str]) -> tuple[str, ...]:
    """The keys of the table at `loc`."""
    model: type[BaseModel]
    match list(loc):
        case []:
            model = _RubricFile
        case ["source"]:
            model = _SourceFile
        case ["criteria", _]:
            model = _CriterionFile
        case _:
            model = _LevelFile
    return tuple(model.model_fields)


def _clashes(file: _RubricFile) -> Iterable[str]:
    """What the types cannot say: names that mean two things, values out of order, labels that no answer could give."""
    yield from _twice(((f"criteria.{key}", key) for key in file.criteria), "the id", str.casefold)
    yield from _twice(((f"criteria.{key}.name", c.name) for key, c in file.criteria.items()), "the name", fold)
    yield from _twice(
        ((f"criteria.{key}.short", c.short) for key, c in file.criteria.items()), "the short name", str.casefold
    )
    for key, criterion in file.criteria.items():
        for other, its in file.criteria.items():
            if other != key and criterion.short.casefold() == other.casefold() != its.short.casefold():
                yield f"criteria.{key}.short: {criterion.short!r} is also the id of another criterion"
        yield from _level_clashes(f"criteria.{key}.levels", criterion.levels)


def _level_clashes(where: str, levels: Sequence[_LevelFile]) -> Iterable[str]:
    seen: dict[float, str] = {}
    for i, level in enumerate(levels):
        if not math.isfinite(level.value):
            yield f"{where}[{i}].value: {level.value} is not a finite number"
        elif level.value in seen:
            yield f"{where}: two levels have the value {level.value:g}; values must differ"
        seen[level.value] = level.name
    values = [level.value for level in levels]
    if len(set(values)) == len(values) and all(map(math.isfinite, values)) and values != sorted(values):
        found = ", ".join(f"{v:g}" for v in values)
        yield f"{where}: levels must stand from worst to best, values ascending; found {found}"

    words = [
        (f"{where}[{i}].{key}", word)
        for i, level in enumerate(levels)
        for key, word in [("name", level.name), *((f"aliases[{j}]", alias) for j, alias in enumerate(level.aliases))]
    ]
    for place, word in words:
        if not fold(word):
            yield f"{place}: {word!r} holds no letter, digit or symbol that an answer could be matched by"
        elif fold(word) == fold(CANNOT_JUDGE):
            yield f"{place}: {word!r} is kept for judges that cannot decide; choose other words"
    yield from _twice(((place, word) for place, word in words if fold(word)), "the label or alias", fold)


def _twice(named: Iterable[tuple[str, str]], what: str, key: Callable[[str], str]) -> Iterable[str]:
    """A complaint for every (place, word) whose word was there before, case and (for labels) punctuation aside."""
    first: dict[str, tuple[str, str]] = {}
    for place, word in named:
        where, before = first.setdefault(key(word), (place, word))
        if where != place:
            same = "" if before == word else f" (as {before!r})"
            yield f"{place}: {what} {word!r} is already used by {where}{same}; each must be unique"
