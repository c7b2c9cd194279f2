"""What an answer may be, how it is asked for, and how it is read. Frozen values, no I/O.

An `Answer` is what a judge said. An `AnswerSpec` travels with every question: it prints the instructions that the model
reads, parses the model's text, and gives a JSON Schema to backends that can hold a reply to one.

A text is read in two forms only: a JSON object with the keys of `json_schema` and no others, or the plain form that the
instructions ask for. An option or a number is compared after folding (`fold`), alone. Whatever else stands beside it makes
the text `off_menu`; nothing is guessed.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from itertools import accumulate
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, Field, TypeAdapter

from editloupe.chat import Token
from editloupe.errors import ConfigError, ReplyError
from editloupe.values import (
    Box,
    Json,
    Serialisable,
    canonical_json,
    distinct_keys,
    finite,
    is_empty,
    not_finite,
    parse_json,
)

if TYPE_CHECKING:
    import jsonschema

CANNOT_JUDGE: Final = "Cannot Judge"
"""The words with which a judge abstains. No option may be called so."""


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """How sure the judge is of its answer."""

    value: float
    """0 to 1, higher is surer."""
    source: Literal["logprob", "detector", "asked"]
    """Where the value comes from: token probabilities, a detector's score, or the model's own words."""


_MaybeConfidence = Annotated[Confidence | None, Field(exclude_if=is_empty)]


@dataclass(frozen=True, kw_only=True)
class Label(Serialisable):
    """One label of an ordered scale."""

    name: str
    value: float
    """On the scale of the metric."""
    kind: Literal["label"] = "label"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Number(Serialisable):
    """A finite number. An infinite measure is a status, not a number."""

    value: float
    kind: Literal["number"] = "number"

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a number must be finite, found {self.value!r}; an infinite measure is counted apart")

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True, kw_only=True)
class Choice(Serialisable):
    """One of the offered options."""

    name: str
    kind: Literal["choice"] = "choice"
    value: ClassVar[None] = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Text(Serialisable):
    """Free text."""

    text: str
    kind: Literal["text"] = "text"
    value: ClassVar[None] = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class Boxes(Serialisable):
    """Places in one image."""

    boxes: tuple[Box, ...]
    """In thousandths (0 to 1000) of the image's width and height, [x0, y0, x1, y1]."""
    confidence: _MaybeConfidence = None
    kind: Literal["boxes"] = "boxes"
    value: ClassVar[None] = None

    def __str__(self) -> str:
        return "; ".join(", ".join(f"{v:g}" for v in box) for box in self.boxes) or "no box"


@dataclass(frozen=True, kw_only=True)
class Record(Serialisable):
    """A JSON value of the schema that was asked for."""

    data: Json
    kind: Literal["record"] = "record"
    value: ClassVar[None] = None

    def __str__(self) -> str:
        return canonical_json(self.data)


Answer: TypeAlias = Annotated[Label | Number | Choice | Text | Boxes | Record, Field(discriminator="kind")]
"""Tagged by `kind`. `value` is the number of a Label or a Number, and None for the others."""

_ANSWER: Final[TypeAdapter[Label | Number | Choice | Text | Boxes | Record]] = TypeAdapter(Answer)


def answer_from_json(data: object) -> Label | Number | Choice | Text | Boxes | Record:
    """Return the answer that `to_json` wrote. Raises ValueError for data of another shape."""
    return _ANSWER.validate_python(data)


# Reading


LONGEST: Final = 20_000
"""Characters of a plain answer. A longer one is none: it is not folded."""
LONGEST_JSON: Final = 100_000
"""Characters of an answer in JSON, or of a list of boxes."""
_FORMS: Final = ("answer", "label", "verdict", "rating", "score", "decision", "result", "choice")
_FORM: Final = frozenset(word for form in _FORMS for word in (form, f"final {form}"))
"""What may stand beside an answer, folded: it names only its form."""
_SHOWN: Final = 120
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_POINT = re.compile(r"\.(?!\d)")
_LANGUAGE = re.compile(r"\A[a-zA-Z]{0,20} ?(?=[\r\n{\[])")
_NUMBER = re.compile(r"([-+]?\d+(?:\.\d+)?)(?: ?/ ?(\d+(?:\.\d+)?))?")
_MARKUP = re.compile(r"<[|｜][^<>|｜]{1,40}[|｜]>|</[\w ]{1,40}>|<([\w ]{1,40})>|\\(?:boxed|text[a-z]{0,2})(?=[{])")
"""Special tokens of models, the marks of an element, and LaTeX's boxes."""
_PARTED = re.compile(r"(?:^|(?<= ))(?:-|—|[-=]?>|=|→|\||•) (?=\S)")
"""A sign before an option or a number: of a list, or of what parts them."""
_ALIKE: Final = str.maketrans(dict.fromkeys("\u2010\u2011\u2012\u2013\u2212", "-") | {"\u037e": "?"})
"""Dashes, and the Greek question mark, which Unicode takes for a semicolon."""


def fold(text: str) -> str:
    """Return a text as it is compared: without case, Markdown's emphasis, code and heading marks, quotes, brackets and
    `. , : ; !`, with one space between words.

    Hyphens inside words and underscores are spaces. A minus, a point before a digit and a `!` before a word stay, and so
    does every other sign (?, ≠, ~, ²): they change what is said. `fold(fold(x)) == fold(x)`.
    """
    # Options are folded again with every reply.
    return _fold_known(text) if len(text) <= _SHOWN else _fold(text)


def _fold(text: str) -> str:
    text = text.replace("[ ]", "☐")  # an unticked box
    text = text.translate({ord(char): _folded(char) for char in set(text)})
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    return " ".join(_POINT.sub(" ", _HYPHEN.sub(" ", text)).split()).rstrip("! ")


_fold_known = lru_cache(maxsize=4096)(_fold)


@lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    """Return what is left of a character: nothing of an invisible one, a space of a dropped one."""
    category = unicodedata.category(char)
    dropped = char in "\"'`´*_#,:;：；，、。…" or category in ("Ps", "Pe", "Pi", "Pf")
    return "" if category == "Cf" else " " if dropped else char.translate(_ALIKE)


def unfenced(text: str) -> str:
    """Return a text out of the one code fence that encloses it."""
    text = text.strip()
    if len(text) < 6 or not text.startswith("```") or not text.endswith("```") or "```" in text[3:-3]:
        return text
    return _LANGUAGE.sub("", text[3:-3], count=1).strip()


def _checked(text: str, longest: int = LONGEST) -> str:
    """Return the text out of its fence. Raises ReplyError for one that is too long, or says that it cannot judge."""
    if len(text) > longest:
        raise ReplyError("unparsed", f"the answer has {len(text):,} characters, more than {longest:,}")
    text = unfenced(text)
    if len(text) <= _SHOWN and fold(text) == fold(CANNOT_JUDGE):
        raise ReplyError("abstained", f"the judge answered {CANNOT_JUDGE!r}")
    return text


def _json(text: str) -> Json:
    """Return the JSON value that is the whole text. A string in it may hold line breaks. Raises ReplyError."""
    try:
        found: Json = parse_json(text, object_pairs_hook=_once, strict=False)
        if where := not_finite(found):
            raise ValueError(f"{where} is not finite")
    except ValueError as error:
        raise ReplyError("unparsed", f"the answer is not JSON ({error})" if text else "the answer is empty") from error
    return found


def _once(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    try:
        return distinct_keys(pairs)
    except ValueError as error:
        raise ReplyError("contradictory", f"a JSON object of the answer {error}") from None


def _object(text: str) -> dict[str, Json]:
    """Return the JSON object that a text is; {} where it is none. Raises ReplyError for a key that stands twice."""
    try:
        found = _json(text) if text.startswith("{") else {}
    except ReplyError as error:
        if error.status == "contradictory":
            raise
        return {}
    return found if isinstance(found, dict) else {}


def _answer_of(found: Mapping[str, Json], *keys: str) -> Json:
    """Return the answer of a JSON object: the value of the one of `keys` that it has, beside at most a reason."""
    given = [key for key in found if key in keys]
    if len(given) != 1 or not found.keys() <= {"reason", *keys}:
        listed = ", ".join(found)[:_SHOWN] or "none"
        raise ReplyError("off_menu", f"the answer's JSON has the keys {listed}, not reason and {' or '.join(keys)}")
    answer = found[given[0]]
    return _checked(answer) if isinstance(answer, str) else answer


def _plain(text: str, metric: str) -> str:
    """Return an option or a number as it is said: alone, or in a JSON object whose keys name only the form, beside a
    reason."""
    found = _object(text)
    answers = {key: value for key, value in found.items() if key != "reason"}
    if unknown := [key for key in answers if _split(f"{key} 0", {"0": "0"}, metric)[1]]:
        raise ReplyError("off_menu", f"the answer's JSON has the key {unknown[0][:60]!r}")
    if found and not all(isinstance(value, str) or finite(value) is not None for value in answers.values()):
        raise ReplyError("off_menu", "the answer's JSON holds neither a text nor a number as its answer")
    said = [_checked(v) if isinstance(v, str) else f"{Decimal(str(v)).normalize():f}" for v in answers.values()]
    return "\n".join(said) or text


def _form(metric: str) -> dict[str, str]:
    """Return the phrases that name only the form of an answer, or its metric, folded. They mean no option."""
    return dict.fromkeys(filter(None, (*_FORM, fold(metric))), "")


def _split(text: str, phrases: Mapping[str, str], metric: str) -> tuple[list[str], list[str]]:
    """Return the options that the phrases in a text mean, and the words beside them. Where words are left, markup, the
    initials of the metric ("IF") and signs that part are taken away first; of a number alone, they may be its own.

    A phrase inside a longer one does not count. One that names only the form stands before something.
    """
    initials = "".join(word[0] for word in metric.split("_") if word).upper()
    bare = fold(_MARKUP.sub(r" \1 ", re.sub(rf"\b{initials}\b", " ", text) if len(initials) > 1 else text))
    ordered = sorted({**_form(metric), **phrases}.items(), key=lambda item: len(item[0]), reverse=True)
    for said in (fold(text), _PARTED.sub("", bare) if phrases else bare):
        # With two spaces between them, two phrases side by side share none.
        spaced, meant = f" {said.replace(' ', '  ')} ", []
        for phrase, option in ordered:
            wide = f" {phrase.replace(' ', '  ')} "
            if wide in spaced and (option or not spaced.endswith(wide)):
                meant.append(option)
                spaced = spaced.replace(wide, "\n")
        if not (beside := spaced.split()):
            break
    return [*dict.fromkeys(filter(None, meant))], beside


# Specs


_A = TypeVar("_A")


class _Spec(Serialisable, Generic[_A]):
    """What the answer specs share: the words of the prompts, and the JSON object of an answer with its reason."""

    _longest: ClassVar[int] = LONGEST

    @property
    def noun(self) -> str:
        """What prompts call the answer."""
        return "answer"

    @property
    def ask(self) -> str:
        """What the final answer must hold, as a phrase of a prompt."""
        return f"one of the {self.noun}s that are listed, spelled as it is there,"

    def instructions(self) -> str:
        """Return the sentence that says what may be answered."""
        return f"The {self.noun}s: {', '.join(self.choices() or ())}."

    @property
    def key(self) -> str:
        """The key of the answer in its JSON object, beside "reason"."""
        return "answer"

    def choices(self) -> tuple[str, ...] | None:
        """Return the only texts that are an answer; None where the answer is free."""
        return None

    @property
    def json_form(self) -> str:
        """The JSON object of an answer with dots in place of its values, as prompts show it."""
        properties: Any = self.json_schema()["properties"]
        blank = '"…"' if properties[self.key].get("type") == "string" else "…"
        return f'{{"reason": "…", "{self.key}": {blank}}}'

    def json_schema(self) -> dict[str, Json]:
        """Return the JSON Schema of an answer: an object of a reason and the answer."""
        return _closed({"reason": {"type": "string"}, self.key: self._value_schema()})

    def parse(self, text: str, metric: str = "", *, confidences: Sequence[float | None] = ()) -> _A:
        """Return the answer that a text is. Raises ReplyError, which says what was expected and what was found.

        metric: its name may stand before a label or a number.
        confidences: those of the entries of a list as they are written, as `confidences_in` returns them.
        """
        try:
            return self._read(_checked(text, self._longest), metric, confidences)
        except ReplyError as error:
            if error.status == "abstained":
                raise
            flat = " ".join(text[: 10 * _SHOWN].split())
            found = f"; found {flat[:_SHOWN]!r}{'…' * (len(flat) > _SHOWN)}" if flat else ""
            asked = ", ".join(self.choices() or ())
            expected = f"one of {asked}" if asked else self.ask.rstrip(",")
            raise ReplyError(error.status, f"{error}; expected {expected}{found}") from error.__cause__

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> _A:
        raise NotImplementedError

    def _value_schema(self) -> Json:
        return {"type": "string", "enum": list(self.choices() or ())}


def _closed(properties: dict[str, Json]) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _phrases(what: str, options: Sequence[tuple[str, Sequence[str]]], *, least: int = 2) -> dict[str, str]:
    """Return folded name or alias → its option.

    Raises ConfigError for too few options, for a word that folds to nothing, and for two options that read the same.
    """
    if len(options) < least:
        raise ConfigError(f"expected at least {least} answers to choose from, found {len(options)}")
    owners: dict[str, int] = {}
    for number, (name, aliases) in enumerate(options):
        for word in (name, *aliases):
            if not (folded := fold(word)):
                raise ConfigError(f"{what} {word!r} holds no letter, digit or symbol that an answer could be matched by")
            if (owner := owners.setdefault(folded, number)) != number:
                also = options[owner][0]
                raise ConfigError(f"{what} {word!r} of {name!r} reads the same as {also!r}; answers must differ")
    return {folded: options[number][0] for folded, number in owners.items()}


def _choose(text: str, metric: str, phrases: Mapping[str, str], values: Mapping[str, float]) -> str:
    """Return the name of the one option that a text is. Raises ReplyError.

    values: the number of each option, where they have one. Beside its name it may stand, and no other number.
    """
    text = _plain(text, metric)
    top = max(values.values(), default=0)
    numbers = {f"{value:g}{of}": name for name, value in values.items() for of in ("", f"/{top:g}")}
    names, beside = _split(text, {fold(CANNOT_JUDGE): CANNOT_JUDGE, **phrases}, metric)
    told = list(dict.fromkeys([*names, *(numbers[word] for word in beside if word in numbers)]))
    if names and len(told) > 1:
        raise ReplyError("contradictory", f"the answer names {' and '.join(map(repr, told))}")
    if not names or not numbers.keys() >= {*beside}:
        problem = f"gives {told[0]!r} beside other words" if names else "is none of the labels" if beside else "is empty"
        raise ReplyError("off_menu" if beside else "unparsed", f"the answer {problem}")
    if CANNOT_JUDGE in names:
        raise ReplyError("abstained", f"the judge answered {CANNOT_JUDGE!r}")
    return told[0]


@dataclass(frozen=True, kw_only=True)
class LabelRule(Serialisable):
    """One allowed label."""

    name: str
    value: float
    aliases: tuple[str, ...] = ()
    """Other spellings that mean this label and no other."""


@dataclass(frozen=True, kw_only=True)
class Labels(_Spec[Label]):
    """Ordered labels with values (DLEBench)."""

    labels: tuple[LabelRule, ...]
    """Best first, as the prompt lists them."""
    kind: Literal["labels"] = "labels"
    noun: ClassVar[str] = "label"

    def __post_init__(self) -> None:
        self._phrases()

    def choices(self) -> tuple[str, ...]:
        return tuple(rule.name for rule in self.labels)

    def _phrases(self) -> dict[str, str]:
        return _phrases("a label", [(rule.name, rule.aliases) for rule in self.labels])

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Label:
        values = {rule.name: rule.value for rule in self.labels}
        name = _choose(text, metric, self._phrases(), values)
        return Label(name=name, value=values[name])


@dataclass(frozen=True, kw_only=True)
class OneOf(_Spec[Choice]):
    """One of several options, which may differ from sample to sample (GIE-Bench)."""

    options: tuple[str, ...]
    """As the prompt lists them."""
    aliases: Annotated[Mapping[str, tuple[str, ...]], Field(exclude_if=is_empty)] = field(default_factory=dict)
    """Option → other spellings of it."""
    marks: Annotated[tuple[str, ...], Field(exclude_if=is_empty)] = ()
    """The letter under which the prompt shows each option, in their order; () for options without letters."""
    abstain: Annotated[str | None, Field(exclude_if=is_empty)] = None
    """The option by which a judge says that it cannot tell. Its findings are `abstained`."""
    kind: Literal["one_of"] = "one_of"

    def __post_init__(self) -> None:
        unknown = [name for name in (*self.aliases, *([self.abstain] if self.abstain else [])) if name not in self.options]
        if unknown:
            raise ConfigError(f"{unknown[0]!r} is none of the options {', '.join(map(repr, self.options))}")
        if self.marks and len(self.marks) != len(self.options):
            raise ConfigError(f"expected a mark for each of the {len(self.options)} options, found {len(self.marks)}")
        self._phrases()

    def choices(self) -> tuple[str, ...]:
        """Return the marks, which hold no comma and are short; without marks the options."""
        return self.marks or self.options

    def _phrases(self) -> dict[str, str]:
        marks = dict(zip(self.options, self.marks, strict=False))
        told = [(name, (*self.aliases.get(name, ()), *filter(None, [marks.get(name)]))) for name in self.options]
        return _phrases("an option", told)

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Choice:
        name = _choose(text, metric, self._phrases(), {})
        if name == self.abstain:
            raise ReplyError("abstained", f"the judge answered {name!r}")
        return Choice(name=name)


YES_NO: Final = OneOf(options=("yes", "no"))
"""The two options of a yes-or-no question (EdiVal, DICE)."""


@dataclass(frozen=True, kw_only=True)
class Scale(_Spec[Number]):
    """A number from `low` to `high`, both included. A number outside is `off_menu`; nothing is clamped (UnicBench)."""

    low: float
    high: float
    whole: bool = False
    """Only whole numbers count."""
    reason: Annotated[bool, Field(exclude_if=lambda asked: not asked)] = False
    """Whether the answer is one JSON object with the number and a short reason. A number alone is read as well."""
    kind: Literal["scale"] = "scale"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ConfigError(f"a scale needs finite low < high, found {self.low!r} and {self.high!r}")

    @property
    def noun(self) -> str:
        return "JSON object" if self.reason else "number"

    @property
    def ask(self) -> str:
        return f"one JSON object whose score is one {self._number_asked}" if self.reason else f"one {self._number_asked}"

    @property
    def key(self) -> str:
        return "score" if self.reason else "answer"

    @property
    def _number_asked(self) -> str:
        return f"{'whole ' if self.whole else ''}number from {self.low:g} to {self.high:g}"

    def instructions(self) -> str:
        if not self.reason:
            return f"The answer is {self.ask}."
        form = f'{{"score": <{self._number_asked}>, "reason": "<one or two sentences>"}}'
        return f"The answer is one JSON object of this form: {form}"

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Number:
        """Return the number that the text is, alone or as "7/10", or that its JSON object holds."""
        _, words = _split(_plain(text, metric), {}, metric)
        match = _NUMBER.fullmatch(" ".join(words))
        if match is None:
            several = len({word for word in words if _NUMBER.fullmatch(word)}) > 1
            problem = "holds several numbers" if several else "is not one number alone" if words else "is empty"
            raise ReplyError("contradictory" if several else "off_menu" if words else "unparsed", f"the answer {problem}")
        value, low, high = (Decimal(number) for number in (match[1], repr(self.low), repr(self.high)))
        if match[2] and Decimal(match[2]) != high:
            raise ReplyError("contradictory", f"the answer is a number of {match[2][:_SHOWN]}, not of the scale's top")
        if not low <= value <= high or (self.whole and value != value.to_integral_value()):
            raise ReplyError("off_menu", f"{match[1][:_SHOWN]} is off the scale")
        return Number(value=float(value) or 0.0)  # never -0

    def _value_schema(self) -> Json:
        return {"type": "integer" if self.whole else "number", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, kw_only=True)
class FreeText(_Spec[Text]):
    """A short text: an object's name, words that were read."""

    max_words: int | None = None
    kind: Literal["free_text"] = "free_text"

    def __post_init__(self) -> None:
        if self.max_words is not None and self.max_words < 1:
            raise ConfigError(f"max_words must be at least 1, found {self.max_words}")

    @property
    def ask(self) -> str:
        return "your answer" if self.max_words is None else f"your answer, at most {self.max_words} words,"

    def instructions(self) -> str:
        return f"The answer has at most {self.max_words} words." if self.max_words else "The answer is plain text."

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Text:
        """Return the text, white space folded. Without a letter or digit, as the dots of a prompt, it is empty."""
        found = _object(text)
        if "answer" in found and found.keys() <= {"answer", "reason"}:
            answer = _answer_of(found, "answer")
            if not isinstance(answer, str):
                raise ReplyError("off_menu", f"the answer is {canonical_json(answer)[:80]}, and no text")
            text = answer
        words = text.split()
        if not any(map(str.isalnum, text)):
            raise ReplyError("unparsed", "the answer is empty")
        if self.max_words is not None and len(words) > self.max_words:
            raise ReplyError("off_menu", f"the answer has {len(words)} words")
        return Text(text=" ".join(words))

    def _value_schema(self) -> Json:
        return {"type": "string"}


BOX: Final = "box"
CONFIDENCE: Final = "confidence"
"""Keys of a labelled box that no question renames."""
BOX_RULE: Final = (
    "A box is four whole numbers [x0, y0, x1, y1] in thousandths (0 to 1000) of the width and height of the image "
    "{image!r}, the origin at the top left."
)
"""How the boxes of an answer are written; a backend renders it in its model's own convention (`backends.boxes`)."""
_BOX_SCHEMA: Final[Json] = {
    "type": "array",
    "items": {"type": "number", "minimum": 0, "maximum": 1000},
    "minItems": 4,
    "maxItems": 4,
}


def _box(written: Json, *, top: float) -> list[float]:
    """Return a box from 0 to `top` in thousandths. Raises ValueError for what is none, or is written in other units."""
    found = [finite(value) for value in written] if isinstance(written, list) else []
    numbers = [number for number in found if number is not None]
    if len(found) != 4 or len(numbers) != 4:
        raise ValueError("its box is not four finite numbers")
    if top > 1 and all(-1 <= number <= 1 for number in numbers):
        raise ValueError("its box is written in fractions")
    if min(numbers) < 0 or max(numbers) > top:
        raise ValueError(f"its box holds a number outside of 0 to {top:g}")
    x0, y0, x1, y1 = box = [round(number * 1000 / top, 3) for number in numbers]
    if x0 >= x1 or y0 >= y1:
        raise ValueError("its box is empty, or its corners are swapped")
    return box


@dataclass(frozen=True, kw_only=True)
class BoxList(_Spec[Boxes]):
    """Boxes in thousandths (0 to 1000) of one image, [x0, y0, x1, y1]."""

    kind: Literal["box_list"] = "box_list"
    noun: ClassVar[str] = "list of boxes"
    ask: ClassVar[str] = "a JSON list of boxes, each four numbers from 0 to 1000"
    _longest: ClassVar[int] = LONGEST_JSON

    def instructions(self) -> str:
        return (
            "The answer is a JSON list of boxes, each four whole numbers [x0, y0, x1, y1] in thousandths (0 to 1000) of "
            "the image's width and height, the origin at the top left; [] where there is none."
        )

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Boxes:
        data = _json(text)
        listed = _answer_of(data, "answer") if isinstance(data, dict) else data
        if not isinstance(listed, list):
            raise ReplyError("off_menu", "the answer's JSON is no list")
        try:
            return Boxes(boxes=tuple(Box(*_box(item, top=1000)) for item in listed))
        except ValueError as error:
            raise ReplyError("off_menu", f"of one box, {error}") from error

    def _value_schema(self) -> Json:
        return {"type": "array", "items": _BOX_SCHEMA}


_SOURCE: Final = "confidence_source"
_DROPPED: Final = "dropped"
_AROUND: Final = " \t\r\n'\",*-[]"
"""What may stand around the label and the name of an entry in a line: the marks of a list."""
_FRACTION = re.compile(r"\s*-?\d*\.?\d+\s*")


@dataclass(frozen=True, kw_only=True)
class LabelledBoxes(_Spec[Record]):
    """Boxes in one image, each with one of several labels and a name: DICE's differences.

    The answer is a Record: `list_key` → a list of objects with `label_key`, `name_key`, `box` (thousandths) and, where it
    is known, `confidence` (0 to 1); `confidence_source` → "logprob", "asked" or None; `dropped` → what could not be read,
    as objects with `entry` and `why`, left out where that is nothing.
    """

    labels: tuple[str, ...]
    list_key: str
    label_key: str
    name_key: str
    image: str
    """Alias of the image whose width and height count."""
    form: Literal["json", "lines"] = "json"
    """What is asked for. json: one object, boxes in thousandths. lines: "LABEL: name, [x0, y0, x1, y1]", one entry a line,
    boxes in fractions from 0 to 1 (DICE, 3.2)."""
    none: str = "none"
    """The words for an empty list, in the lines form."""
    asks_confidence: bool = False
    """Whether each entry says how sure the judge is; json only."""
    wants_logprobs: bool = False
    """Whether an entry's confidence is p(label) / Σ p(labels) at its label's first token, where the backend tells
    probabilities."""
    kind: Literal["labelled_boxes"] = "labelled_boxes"
    _longest: ClassVar[int] = LONGEST_JSON

    def __post_init__(self) -> None:
        _phrases("a label", [(label, ()) for label in self.labels], least=1)
        keys = (self.label_key, self.name_key, BOX, CONFIDENCE)
        if len(set(keys)) < len(keys) or not all(keys) or self.list_key in ("", _SOURCE, _DROPPED):
            raise ConfigError(
                f"expected keys that differ, also from the fixed ones, found {', '.join((self.list_key, *keys))}"
            )
        if self.asks_confidence and (self.wants_logprobs or self.form == "lines"):
            raise ConfigError(
                'asks_confidence is for form="json", and a confidence has one source: no wants_logprobs beside it'
            )

    @property
    def noun(self) -> str:
        return "JSON object" if self.form == "json" else "list"

    @property
    def ask(self) -> str:
        return "one JSON object of the form below" if self.form == "json" else "the list, one entry a line,"

    @property
    def top_logprobs(self) -> int | None:
        """How many alternatives at each token tell the labels apart; None where no probability is wanted."""
        return min(20, len(self.labels) + 2) if self.wants_logprobs else None

    def instructions(self) -> str:
        labels = " or ".join(filter(None, [", ".join(self.labels[:-1]), self.labels[-1]]))
        if self.form == "lines":
            return (
                "The answer is a list, one entry a line, each of this form: LABEL: name, [x0, y0, x1, y1]\n"
                f"LABEL is {labels}. The name says in a few words what it is. The four numbers are fractions, 0 to 1, of "
                f"the width and height of the image {self.image!r}, the origin at the top left. Where there is none, the "
                f"answer is: {self.none}"
            )
        name = f'"{self.name_key}": "<what it is, in a few words>"'
        entry = f'"{self.label_key}": "<{labels}>", {name}, "{BOX}": [<four numbers>]'
        if self.asks_confidence:
            entry += f', "{CONFIDENCE}": <how sure you are, a number from 0 to 1>'
        return (
            f'The answer is one JSON object of this form: {{"{self.list_key}": [{{{entry}}}, …]}}\n'
            f"{BOX_RULE.format(image=self.image)} Where there is none, the list is empty."
        )

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Record:
        """Return the boxes. An entry that cannot be read is dropped, and does not lose the others."""
        entries = self._entries(text)
        told = confidences if len(confidences) == len(entries) else [None] * len(entries)
        listed: list[dict[str, Json]] = []
        dropped: list[dict[str, Json]] = []
        for (_, entry), share in zip(entries, told, strict=True):
            try:
                listed.append(self._item(entry, share))
            except ValueError as error:
                dropped.append({"entry": json.dumps(entry, ensure_ascii=False)[:200], "why": str(error)})
        if entries and not listed:
            raise ReplyError("unparsed", f"none of the {len(entries)} entries can be read; of one, {dropped[0]['why']}")
        known = any(CONFIDENCE in item for item in listed)
        source = None if not known else "logprob" if self.wants_logprobs else "asked"
        data: dict[str, Json] = {self.list_key: listed, _SOURCE: source}
        return Record(data={**data, _DROPPED: dropped} if dropped else data)

    def shares(self, text: str, tokens: Sequence[Token]) -> list[float | None]:
        """Return p(label) / Σ p(labels) of each entry of an answer as it is written; [] where nothing is known.

        tokens: those of the reply that holds the answer. What stands before the answer may be a draft of it, and boxes may
        be spoken in the model's own convention: labels are looked for from the end, with what stands between their boxes.
        """
        try:
            entries = self._entries(_checked(text, LONGEST_JSON)) if self.wants_logprobs and tokens else []
        except ReplyError:
            return []
        spoken = "".join(token.text for token in tokens)
        starts = list(accumulate((len(token.text) for token in tokens), initial=0))
        found: list[float | None] = []
        place = len(spoken)
        for written, entry in reversed(entries):
            if (place := spoken.rfind(written, 0, place)) < 0:
                return []
            label = entry.get(self.label_key) if isinstance(entry, Mapping) and written else None
            found.append(tokens[bisect_right(starts, place) - 1].share(str(label), self.labels) if label else None)
        return found[::-1]

    def _value_schema(self) -> Json:
        if self.form == "lines":
            return {"type": "array", "items": {"type": "string"}}
        sure: dict[str, Json] = {CONFIDENCE: {"type": "number", "minimum": 0, "maximum": 1}}
        properties: dict[str, Json] = {
            self.label_key: {"type": "string", "enum": list(self.labels)},
            self.name_key: {"type": "string"},
            BOX: _BOX_SCHEMA,
            **(sure if self.asks_confidence else {}),
        }
        return {"type": "array", "items": _closed(properties)}

    def _entries(self, text: str) -> list[tuple[str, Json]]:
        """Return each entry as it is written, from its label to its box, and its parts as an object.

        What is written is "" where it is not known. [] where the text says that there is none.
        """
        if self.form == "lines" and not text.startswith("{"):
            return self._in_lines(text)
        data = _json(text)
        listed = _answer_of(data, "answer", self.list_key) if isinstance(data, dict) else None
        if not isinstance(listed, list):
            raise ReplyError("unparsed", "the answer's JSON object holds no list")
        if self.form == "lines":
            return self._in_lines("\n".join(map(str, listed or [self.none])))
        key = re.escape(json.dumps(self.label_key, ensure_ascii=False))
        written = [part.partition("[")[0] for part in re.split(rf'{key}\s{{0,9}}:\s{{0,9}}"', text)[1:]]
        return list(zip(written if len(written) == len(listed) else [""] * len(listed), listed, strict=True))

    def _in_lines(self, text: str) -> list[tuple[str, Json]]:
        """Return the entries "LABEL: name, [x0, y0, x1, y1]". Each ends with its box or its line.

        So a Python list of such strings is read as well, which the paper's own detector writes.
        """
        found: list[tuple[str, Json]] = []
        none, nothing, others = fold(self.none).replace(" ", ""), text == "[]", []
        for piece in re.findall(r"[^\]\n]+\]*", text):
            written, opened, inside = piece.lstrip(_AROUND).partition("[")
            label, colon, name = (part.strip(_AROUND) for part in written.partition(":"))
            if fold(label).replace(" ", "") == none:
                nothing = True
            elif colon and (opened or label in self.labels):
                box: list[Json] = [float(n) if _FRACTION.fullmatch(n) else n for n in inside.rstrip("] ").split(",")]
                found.append((written, {self.label_key: label, self.name_key: name, BOX: box}))
            elif fold(written):
                others.append(written)
        if found and (others or nothing):
            both = "holds other words beside its entries" if others else f"holds entries and says {self.none!r}"
            raise ReplyError("off_menu" if others else "contradictory", f"the answer {both}")
        if not found and (others or not nothing):
            raise ReplyError("unparsed", "the answer holds no entry")
        return found

    def _item(self, entry: Json, share: float | None) -> dict[str, Json]:
        """Return an entry as the answer has it. Raises ValueError, which says what is wrong."""
        if not isinstance(entry, Mapping):
            raise ValueError("it is no JSON object")
        label, name = entry.get(self.label_key), entry.get(self.name_key) or ""
        if label not in self.labels:
            raise ValueError(f"its label is none of {', '.join(self.labels)}")
        if not isinstance(name, str):
            raise ValueError("its name is no text")
        box = _box(entry.get(BOX), top=1 if self.form == "lines" else 1000)
        listed: list[Json] = [int(number) if number.is_integer() else number for number in box]
        item: dict[str, Json] = {self.label_key: label, self.name_key: " ".join(name.split()), BOX: listed}
        sure = share if self.wants_logprobs else finite(entry.get(CONFIDENCE)) if self.asks_confidence else None
        return item if sure is None or not 0 <= sure <= 1 else {**item, CONFIDENCE: sure}


@dataclass(frozen=True, kw_only=True)
class RecordOf(_Spec[Record]):
    """A JSON object of a schema, such as EdiVal's objects. `RecordOf.model(Model)` takes a pydantic model."""

    schema: Mapping[str, Json]
    """JSON Schema (draft 2020-12)."""
    kind: Literal["record_of"] = "record_of"
    noun: ClassVar[str] = "JSON object"
    ask: ClassVar[str] = "one JSON object of the schema below"
    _longest: ClassVar[int] = LONGEST_JSON

    def __post_init__(self) -> None:
        if not self.schema:
            raise ConfigError("a record needs a JSON Schema; an empty one accepts everything")
        import jsonschema

        try:
            jsonschema.Draft202012Validator.check_schema(dict(self.schema))
        except jsonschema.SchemaError as error:
            raise ConfigError(
                f"the schema of a record is no JSON Schema at {error.json_path}: {error.message[:300]}"
            ) from error

    @classmethod
    def model(cls, model: type[BaseModel]) -> RecordOf:
        """Return the spec of a pydantic model."""
        return cls(schema=model.model_json_schema())

    def instructions(self) -> str:
        return f"The answer is one JSON object of this JSON Schema: {json.dumps(self.schema, ensure_ascii=False)}"

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Record:
        """Return the object, or the answer of an object of `json_schema`.

        Raises ConfigError for a schema that names another one or itself without end.
        """
        data = _json(text)
        wrapped = isinstance(data, dict) and data.keys() == {"reason", "answer"}
        if wrapped and not ("answer" in self.schema.get("properties", {}) and self._problem(data) is None):  # type: ignore[operator]
            data = _answer_of(data, "answer")  # type: ignore[arg-type]
        if (problem := self._problem(data)) is not None:
            at, message = problem.json_path, problem.message[:300]
            raise ReplyError("off_menu", f"the JSON does not fit the schema at {at}: {message}")
        return Record(data=data)

    def _problem(self, data: Json) -> jsonschema.ValidationError | None:
        import jsonschema
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        # The default one opens files and addresses that a schema names.
        registry: Registry[Any] = Registry()
        validator = jsonschema.Draft202012Validator(dict(self.schema), registry=registry)
        try:
            return next(iter(validator.iter_errors(data)), None)
        except (Unresolvable, RecursionError, re.error) as error:
            raise ConfigError(f"the schema of a record cannot be used, and nothing is fetched for it: {error}") from error

    def json_schema(self) -> dict[str, Json]:
        inner: Any = _moved(dict(self.schema))
        shared = {"$defs": inner.pop("$defs")} if "$defs" in inner else {}
        return {**_closed({"reason": {"type": "string"}, "answer": inner}), **shared}


def _moved(schema: Json) -> Json:
    """Return a schema as it stands under `answer`: its `$defs` move to the root, and other places in it move down."""
    if isinstance(schema, Mapping):
        ref = schema.get("$ref")
        moved: dict[str, Json] = {key: _moved(value) for key, value in schema.items()}
        if isinstance(ref, str) and ref.startswith("#") and not ref.startswith("#/$defs/"):
            moved["$ref"] = f"#/properties/answer{ref[1:]}"
        return moved
    return [_moved(item) for item in schema] if isinstance(schema, list | tuple) else schema


AnswerSpec: TypeAlias = Annotated[
    Labels | Scale | OneOf | FreeText | BoxList | LabelledBoxes | RecordOf,
    Field(discriminator="kind"),
]
"""What a question may be answered with; tagged by `kind`, so that a task's JSON says how its answer is read."""


def read_answer(spec: AnswerSpec, text: str, metric: str, *, confidences: Sequence[float | None] = ()) -> Answer:
    """Return what a text answers to a question of a metric, whose name may stand before it. Raises as `spec.parse`.

    confidences: what `confidences_in` returns for the same text.
    """
    return spec.parse(text, metric, confidences=confidences)


def confidences_in(spec: AnswerSpec, text: str, tokens: Sequence[Token]) -> list[float | None]:
    """Return how sure the judge is of each entry of an answer, by the tokens of its reply; [] where that is not known."""
    return spec.shares(text, tokens) if isinstance(spec, LabelledBoxes) else []


def reason_in(spec: AnswerSpec, text: str) -> str:
    """Return the reason that stands in an answer itself, beside it in its JSON object; "" where there is none."""
    try:
        found = _object(unfenced(text))
    except ReplyError:
        return ""
    # A record may have a reason of its own.
    reason = found.get("reason") if not isinstance(spec, RecordOf | FreeText) or "answer" in found else None
    return " ".join(reason.split()) if isinstance(reason, str) else ""
