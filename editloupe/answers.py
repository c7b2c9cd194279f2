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
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from operator import not_
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, Field, GetCoreSchemaHandler, TypeAdapter
from pydantic_core import CoreSchema, core_schema

from editloupe import plugins
from editloupe.chat import Token
from editloupe.errors import ConfigError, ReplyError
from editloupe.values import Box, Json, Serializable, canonical_json, distinct_keys, finite, not_finite, parse_json

CANNOT_JUDGE: Final = "Cannot Judge"
"""The words with which a judge abstains. No option may be called so."""


@dataclass(frozen=True, kw_only=True)
class Confidence:
    """How sure the judge is of its answer."""

    value: float
    """0 to 1, higher is surer."""
    source: Literal["logprob", "detector", "asked"]
    """Where the value comes from: token probabilities, a detector's score, or the model's own words."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Label(Serializable):
    """One label of an ordered scale."""

    name: str
    value: float
    """On the scale of the metric."""
    kind: Literal["label"] = "label"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Number(Serializable):
    """A finite number. An infinite measure is a status, not a number."""

    value: float
    kind: Literal["number"] = "number"

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a number must be finite, found {self.value!r}; an infinite measure is counted apart")

    def __str__(self) -> str:
        return f"{self.value:g}"


@dataclass(frozen=True, kw_only=True)
class Choice(Serializable):
    """One of the offered options."""

    name: str
    kind: Literal["choice"] = "choice"
    value: ClassVar[None] = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Text(Serializable):
    """Free text."""

    text: str
    kind: Literal["text"] = "text"
    value: ClassVar[None] = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True)
class Boxes(Serializable):
    """Places in one image."""

    boxes: tuple[Box, ...]
    """In thousandths (0 to 1000) of the image's width and height, [x0, y0, x1, y1]."""
    confidence: Annotated[Confidence | None, Field(exclude_if=not_)] = None
    kind: Literal["boxes"] = "boxes"
    value: ClassVar[None] = None

    def __str__(self) -> str:
        return "; ".join(", ".join(f"{v:g}" for v in box) for box in self.boxes) or "no box"


@dataclass(frozen=True, kw_only=True)
class Record(Serializable):
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


LONGEST: Final = 20_000
"""Characters of a plain answer. A longer one is none: it is not folded."""
LONGEST_JSON: Final = 100_000
"""Characters of an answer in JSON, or of a list of boxes."""
_FORMS: Final = ("answer", "label", "verdict", "rating", "score", "decision", "result", "choice")
"""What may stand beside an answer, also behind "final": it names only its form."""
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
    return _fold(text) if len(text) <= _SHOWN else _fold.__wrapped__(text)


@lru_cache(maxsize=4096)
def _fold(text: str) -> str:
    text = text.replace("[ ]", "☐")  # an unticked box
    text = text.translate({ord(char): _folded(char) for char in set(text)})
    text = unicodedata.normalize("NFC", unicodedata.normalize("NFD", text).casefold())
    return " ".join(_POINT.sub(" ", _HYPHEN.sub(" ", text)).split()).rstrip("! ")


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


def checked(text: str, longest: int = LONGEST) -> str:
    """Return the text out of its fence. Raises ReplyError for one that is too long, or says that it cannot judge."""
    if len(text) > longest:
        raise ReplyError("unparsed", f"the answer has {len(text):,} characters, more than {longest:,}")
    text = unfenced(text)
    if len(text) <= _SHOWN and fold(text) == fold(CANNOT_JUDGE):
        raise ReplyError("abstained", f"the judge answered {CANNOT_JUDGE!r}")
    return text


def read_json(text: str) -> Json:
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
        found = read_json(text) if text.startswith("{") else {}
    except ReplyError as error:
        if error.status == "contradictory":
            raise
        return {}
    return found if isinstance(found, dict) else {}


def answer_of(found: Mapping[str, Json], *keys: str) -> Json:
    """Return the answer of a JSON object: the value of the one of `keys` that it has, beside at most a reason."""
    given = [key for key in found if key in keys]
    if len(given) != 1 or not found.keys() <= {"reason", *keys}:
        listed = ", ".join(found)[:_SHOWN] or "none"
        raise ReplyError("off_menu", f"the answer's JSON has the keys {listed}, not reason and {' or '.join(keys)}")
    answer = found[given[0]]
    return checked(answer) if isinstance(answer, str) else answer


def _plain(text: str, metric: str) -> str:
    """Return an option or a number as it is said: alone, or in a JSON object whose keys name only the form, beside a
    reason."""
    said = []
    for key, value in _object(text).items():
        if key == "reason":
            continue
        if _split(f"{key} 0", {"0": "0"}, metric)[1]:
            raise ReplyError("off_menu", f"the answer's JSON has the key {key[:60]!r}")
        if not isinstance(value, str) and finite(value) is None:
            raise ReplyError("off_menu", "the answer's JSON holds neither a text nor a number as its answer")
        said.append(checked(value) if isinstance(value, str) else f"{Decimal(str(value)).normalize():f}")
    return "\n".join(said) or text


def _split(text: str, phrases: Mapping[str, str], metric: str) -> tuple[list[str], list[str]]:
    """Return the options that the phrases in a text mean, and the words beside them. Where words are left, markup, the
    initials of the metric ("IF") and signs that part are taken away first; of a number alone, they may be its own.

    A phrase inside a longer one does not count. One that names only the form, or the metric, stands before something.
    """
    initials = "".join(word[0] for word in metric.split("_") if word).upper()
    bare = fold(_MARKUP.sub(r" \1 ", re.sub(rf"\b{initials}\b", " ", text) if len(initials) > 1 else text))
    forms = dict.fromkeys(filter(None, (*_FORMS, *(f"final {form}" for form in _FORMS), fold(metric))), "")
    ordered = sorted({**forms, **phrases}.items(), key=lambda item: len(item[0]), reverse=True)
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


_KINDS: Final[dict[str, type[AnswerSpec]]] = {}


class AnswerSpec(Serializable):
    """What a question may be answered with: the words of the prompts, and how an answer is read.

    A spec is a frozen dataclass with a `kind`, by which a task's JSON says how its answer is read. A package brings its own
    by the entry point group `editloupe.answers`: kind → class.
    """

    kind: str
    """What a task's JSON names it by; no other spec has it."""
    _longest: ClassVar[int] = LONGEST

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            _KINDS[cls.kind] = cls

    @classmethod
    def __get_pydantic_core_schema__(cls, source: type[AnswerSpec], handler: GetCoreSchemaHandler) -> CoreSchema:
        """Return the schema by which a field of this type holds a spec of any kind."""
        if cls is not AnswerSpec:
            return handler(source)
        written = core_schema.plain_serializer_function_ser_schema(AnswerSpec.to_json)
        return core_schema.no_info_plain_validator_function(_spec, serialization=written)

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

    @property
    def top_logprobs(self) -> int | None:
        """How many alternatives at each token of the reply are asked for; None where no probability is wanted."""
        return None

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
        return closed({"reason": TEXT, self.key: self._value_schema()})

    def parse(self, text: str, metric: str = "", *, confidences: Sequence[float | None] = ()) -> Answer:
        """Return the answer that a text is. Raises ReplyError, which says what was expected and what was found.

        metric: its name may stand before a label or a number.
        confidences: those of the entries of a list as they are written, as `shares` returns them.
        """
        try:
            return self._read(checked(text, self._longest), metric, confidences)
        except ReplyError as error:
            if error.status == "abstained":
                raise
            flat = " ".join(text[: 10 * _SHOWN].split())
            found = f"; found {flat[:_SHOWN]!r}{'…' * (len(flat) > _SHOWN)}" if flat else ""
            expected = f"one of {', '.join(listed)}" if (listed := self.choices()) else self.ask.rstrip(",")
            raise ReplyError(error.status, f"{error}; expected {expected}{found}") from error.__cause__

    def shares(self, text: str, tokens: Sequence[Token]) -> list[float | None]:
        """Return how probable each entry of an answer was, by the tokens of its reply; [] where that is not known."""
        return []

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Answer:
        raise NotImplementedError

    def _value_schema(self) -> Json:
        return {**TEXT, "enum": list(self.choices() or ())}


def _spec(data: object) -> AnswerSpec:
    """Return the spec that `to_json` wrote, of any package. Raises ValueError for an unknown kind and for another shape."""
    if isinstance(data, AnswerSpec):
        return data
    kind = str(data.get("kind") if isinstance(data, Mapping) else None)
    if kind not in _KINDS and kind in plugins.names("answers"):
        plugins.load("answers", kind)  # a class that is imported is known
    if kind not in _KINDS:
        known = ", ".join(sorted({*_KINDS, *plugins.names("answers")}))
        raise ValueError(f"the kind of answer {kind!r} is none of {known}; the package that brings it is not installed")
    return _KINDS[kind].from_json(data)


TEXT: Final[dict[str, Json]] = {"type": "string"}
"""JSON Schema of a text."""


def closed(properties: dict[str, Json]) -> dict[str, Json]:
    """Return the JSON Schema of an object that has these properties and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def spellings(what: str, options: Sequence[tuple[str, Sequence[str]]], *, least: int = 2) -> dict[str, str]:
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
    top = max(values.values(), default=0)
    numbers = {f"{value:g}{of}": name for name, value in values.items() for of in ("", f"/{top:g}")}
    names, beside = _split(_plain(text, metric), {fold(CANNOT_JUDGE): CANNOT_JUDGE, **phrases}, metric)
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
class LabelRule(Serializable):
    """One allowed label."""

    name: str
    value: float
    aliases: tuple[str, ...] = ()
    """Other spellings that mean this label and no other."""


@dataclass(frozen=True, kw_only=True)
class Labels(AnswerSpec):
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
        return spellings("a label", [(rule.name, rule.aliases) for rule in self.labels])

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Label:
        values = {rule.name: rule.value for rule in self.labels}
        name = _choose(text, metric, self._phrases(), values)
        return Label(name=name, value=values[name])


@dataclass(frozen=True, kw_only=True)
class OneOf(AnswerSpec):
    """One of several options, which may differ from sample to sample (GIE-Bench)."""

    options: tuple[str, ...]
    """As the prompt lists them."""
    aliases: Annotated[Mapping[str, tuple[str, ...]], Field(exclude_if=not_)] = field(default_factory=dict)
    """Option → other spellings of it."""
    marks: Annotated[tuple[str, ...], Field(exclude_if=not_)] = ()
    """The letter under which the prompt shows each option, in their order; () for options without letters."""
    abstain: Annotated[str | None, Field(exclude_if=not_)] = None
    """The option by which a judge says that it cannot tell. Its findings are `abstained`."""
    kind: Literal["one_of"] = "one_of"

    def __post_init__(self) -> None:
        for name in (*self.aliases, *filter(None, [self.abstain])):
            if name not in self.options:
                raise ConfigError(f"{name!r} is none of the options {', '.join(map(repr, self.options))}")
        if self.marks and len(self.marks) != len(self.options):
            raise ConfigError(f"expected a mark for each of the {len(self.options)} options, found {len(self.marks)}")
        self._phrases()

    def choices(self) -> tuple[str, ...]:
        """Return the marks, which hold no comma and are short; without marks the options."""
        return self.marks or self.options

    def _phrases(self) -> dict[str, str]:
        marks = dict(zip(self.options, self.marks, strict=False))
        told = ((name, (self.aliases.get(name, ()), (marks[name],) if marks else ())) for name in self.options)
        return spellings("an option", [(name, (*others, *mark)) for name, (others, mark) in told])

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Choice:
        name = _choose(text, metric, self._phrases(), {})
        if name == self.abstain:
            raise ReplyError("abstained", f"the judge answered {name!r}")
        return Choice(name=name)


YES_NO: Final = OneOf(options=("yes", "no"))
"""The two options of a yes-or-no question (EdiVal, DICE)."""


@dataclass(frozen=True, kw_only=True)
class Scale(AnswerSpec):
    """A number from `low` to `high`, both included. A number outside is `off_menu`; nothing is clamped (UnicBench)."""

    low: float
    high: float
    whole: bool = False
    """Only whole numbers count."""
    reason: Annotated[bool, Field(exclude_if=not_)] = False
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
        return f"one {'JSON object whose score is one ' * self.reason}{self._range}"

    @property
    def key(self) -> str:
        return "score" if self.reason else "answer"

    @property
    def _range(self) -> str:
        return f"{'whole ' * self.whole}number from {self.low:g} to {self.high:g}"

    def instructions(self) -> str:
        form = f'{{"score": <{self._range}>, "reason": "<one or two sentences>"}}'
        return f"The answer is {f'one JSON object of this form: {form}' if self.reason else f'{self.ask}.'}"

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
class FreeText(AnswerSpec):
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
            answer = answer_of(found, "answer")
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
        return TEXT


BOX_RULE: Final = (
    "A box is four whole numbers [x0, y0, x1, y1] in thousandths (0 to 1000) of the width and height of the image "
    "{image!r}, the origin at the top left."
)
"""How the boxes of an answer are written; a backend renders it in its model's own convention (`backends.boxes`)."""
_COORDINATE: Final[Json] = {"type": "number", "minimum": 0, "maximum": 1000}
BOX_SCHEMA: Final[Json] = {"type": "array", "items": _COORDINATE, "minItems": 4, "maxItems": 4}


def read_box(written: Json, *, top: float) -> list[float]:
    """Return a box from 0 to `top` in thousandths. Raises ValueError for what is none, or is written in other units."""
    numbers = [number for value in written if (number := finite(value)) is not None] if isinstance(written, list) else []
    if not isinstance(written, list) or not len(written) == len(numbers) == 4:
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
class BoxList(AnswerSpec):
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
        data = read_json(text)
        listed = answer_of(data, "answer") if isinstance(data, dict) else data
        if not isinstance(listed, list):
            raise ReplyError("off_menu", "the answer's JSON is no list")
        try:
            return Boxes(boxes=tuple(Box(*read_box(item, top=1000)) for item in listed))
        except ValueError as error:
            raise ReplyError("off_menu", f"of one box, {error}") from error

    def _value_schema(self) -> Json:
        return {"type": "array", "items": BOX_SCHEMA}


@dataclass(frozen=True, kw_only=True)
class RecordOf(AnswerSpec):
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
        from jsonschema import Draft202012Validator, SchemaError

        try:
            Draft202012Validator.check_schema(dict(self.schema))
        except SchemaError as error:
            at, message = error.json_path, error.message[:300]
            raise ConfigError(f"the schema of a record is no JSON Schema at {at}: {message}") from error

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
        data, properties = read_json(text), self.schema.get("properties")
        if isinstance(data, dict) and data.keys() == {"reason", "answer"}:
            own = isinstance(properties, Mapping) and "answer" in properties and not self._problem(data)
            data = data if own else answer_of(data, "answer")
        if problem := self._problem(data):
            raise ReplyError("off_menu", f"the JSON does not fit the schema at {problem}")
        return Record(data=data)

    def _problem(self, data: Json) -> str:
        """Return where a value does not fit the schema, and why; "" where it fits."""
        from jsonschema import Draft202012Validator
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        # The default registry opens files and addresses that a schema names.
        validator = Draft202012Validator(dict(self.schema), registry=Registry())
        try:
            return next((f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(data)), "")
        except (Unresolvable, RecursionError, re.error) as error:
            raise ConfigError(f"the schema of a record cannot be used, and nothing is fetched for it: {error}") from error

    def json_schema(self) -> dict[str, Json]:
        # Under `answer` the places in the schema move down, and its `$defs` to the root.
        moved = re.sub(r'("\$ref": "#)(?!/\$defs/)', r"\1/properties/answer", json.dumps(self.schema))
        inner: dict[str, Json] = json.loads(moved)
        shared = {"$defs": inner.pop("$defs")} if "$defs" in inner else {}
        return {**closed({"reason": TEXT, "answer": inner}), **shared}


def reason_in(spec: AnswerSpec, text: str) -> str:
    """Return the reason that stands in an answer itself, beside it in its JSON object; "" where there is none."""
    try:
        found = _object(unfenced(text))
    except ReplyError:
        return ""
    # A record may have a reason of its own.
    reason = found.get("reason") if not isinstance(spec, RecordOf | FreeText) or "answer" in found else None
    return " ".join(reason.split()) if isinstance(reason, str) else ""
