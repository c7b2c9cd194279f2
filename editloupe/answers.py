"""What an answer may be, how it is asked for, and how it is read. Frozen values, no I/O.

An `Answer` is what a judge said. An `AnswerSpec` travels with every question: it prints the instructions that the model
reads, parses the model's text, and gives a JSON Schema to backends that can hold a reply to one. Parsing never guesses: a
text that does not say the answer raises ReplyError with the status of the finding.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, Field, TypeAdapter

from editloupe.chat import Token
from editloupe.errors import ConfigError, ReplyError
from editloupe.labelled import BOX, CONFIDENCE, Entry, Words, label_shares, read_entries
from editloupe.parsing import (
    CANNOT_JUDGE,
    DECORATION,
    REASON_KEYS,
    SERVER_MARKS,
    fold,
    parse_choice,
    unwrapped,
    with_reason,
    without_name,
)
from editloupe.prose import explains
from editloupe.values import (
    Box,
    Json,
    Serialisable,
    canonical_json,
    check_nesting,
    distinct_keys,
    finite,
    is_empty,
    parse_json,
)


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
    confidence: _MaybeConfidence = None
    kind: Literal["label"] = "label"

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Number(Serialisable):
    """A finite number. An infinite measure is a status, not a number."""

    value: float
    confidence: _MaybeConfidence = None
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
    confidence: _MaybeConfidence = None
    kind: Literal["choice"] = "choice"
    value: ClassVar[None] = None

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, kw_only=True)
class Text(Serialisable):
    """Free text."""

    text: str
    confidence: _MaybeConfidence = None
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
    confidence: _MaybeConfidence = None
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


@dataclass(frozen=True, kw_only=True)
class LabelRule(Serialisable):
    """One allowed label."""

    name: str
    value: float
    aliases: tuple[str, ...] = ()
    """Other spellings that mean this label and no other."""


def _distinct(what: str, words: Sequence[tuple[str, str]], *, least: int) -> None:
    """Raise ConfigError for too few words, an empty word, and two words of different options that fold to the same."""
    if len(words) < least:
        raise ConfigError(f"expected at least {least} answers to choose from, found {len(words)}")
    seen: dict[str, str] = {}
    for word, owner in words:
        folded = fold(word)
        if not folded:
            raise ConfigError(f"{what} {word!r} holds no letter, digit or symbol that an answer could be matched by")
        if seen.setdefault(folded, owner) != owner:
            raise ConfigError(f"{what} {word!r} of {owner!r} reads the same as {seen[folded]!r}; answers must differ")
        if word == owner and [w for w, _ in words].count(word) > 1:
            raise ConfigError(f"{what} {word!r} stands twice; answers must differ")


class _Spec(Serialisable):
    """What the answer specs share: the words of the prompts, and the form for backends that can constrain."""

    @property
    def noun(self) -> str:
        """What prompts call the answer."""
        return "answer"

    @property
    def ask(self) -> str:
        """What the final answer must hold, as a phrase of a prompt."""
        raise NotImplementedError

    def instructions(self) -> str:
        """Return the sentence that says what may be answered."""
        raise NotImplementedError

    def choices(self) -> tuple[str, ...] | None:
        """Return the only texts that are an answer; None where the answer is free."""
        return None

    def json_schema(self) -> dict[str, Json]:
        """Return the JSON Schema of an answer."""
        return {"enum": list(self.choices() or ())}


class _Menu(_Spec):
    """A spec whose answers are listed."""

    @property
    def ask(self) -> str:
        return f"one of the {self.noun}s below, spelled as it is here,"

    def instructions(self) -> str:
        return f"The {self.noun}s: {', '.join(self.choices())}."

    def choices(self) -> tuple[str, ...]:
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Labels(_Menu):
    """Ordered labels with values (DLEBench)."""

    labels: tuple[LabelRule, ...]
    """Best first, as the prompt lists them."""
    kind: Literal["labels"] = "labels"
    noun: ClassVar[str] = "label"

    def __post_init__(self) -> None:
        _distinct("a label", [(rule.name, rule.name) for rule in self.labels], least=2)

    def parse(self, text: str) -> Label:
        """Return the one label that the text names. Raises ReplyError."""
        values = {rule.name: rule.value for rule in self.labels}
        name = parse_choice(text, [(rule.name, rule.aliases) for rule in self.labels], values=values)
        return Label(name=name, value=values[name])

    def choices(self) -> tuple[str, ...]:
        return tuple(rule.name for rule in self.labels)


_NUMBER: Final = re.compile(r"[-+]?\d+(?:\.\d+)?")
_DASH: Final = re.compile("[\u2010-\u2013\u2212]")
"""Hyphens, figure dash, en dash and minus sign."""
_MINUS: Final = re.compile(r"(?:^|(?<=[:=(*]))\s*-\s+(?=\.?\d)")
_UNCLEAR: Final = re.compile(r"(?:[—―]|-\s*-|\s-\s)\s*\.?\d")
_POINT: Final = re.compile(r"(?<![\w.])\.(?=\d)")
_UNSURE: Final = re.compile(r"[?؟]|\d[*_`)]*\s*[-+!](?!\s*[\w.])")
_OBJECT: Final = re.compile(r"\{\s*[\"'}]")
"""Where a JSON object begins."""
_AROUND: Final = frozenset(
    {
        "the",
        "my",
        "i",
        "give",
        "is",
        "as",
        "score",
        "answer",
        "final",
        "result",
        "rating",
        "grade",
        "=",
        "points",
        "pts",
        "评分",
    }
)
"""Words that may stand around a number without changing it."""


@dataclass(frozen=True, kw_only=True)
class Scale(_Spec):
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
    def _number_asked(self) -> str:
        return f"{'whole ' if self.whole else ''}number from {self.low:g} to {self.high:g}"

    def instructions(self) -> str:
        if not self.reason:
            return f"The answer is {self.ask}."
        form = f'{{"score": <{self._number_asked}>, "reason": "<one or two sentences>"}}'
        return f"The answer is one JSON object of this form: {form}"

    def parse(self, text: str) -> Number:
        """Return the number that the text says: alone, as "7/10" and "7 of 10", or before its reason. Raises ReplyError.

        Where a reason is asked for, the number may also stand in a JSON object, as `score`, with nothing but a reason.
        """
        try:
            said = _scored(text)[0] if self.reason and _OBJECT.search(text) else text
            return Number(value=self._with_reason(self._plain(unwrapped(said))))
        except ReplyError as error:
            if error.status == "abstained":
                raise
            found = f"; found {text.strip()[:120]!r}" if text.strip() else ""
            raise ReplyError(error.status, f"{error}; expected {self.ask}{found}") from None

    def reason_in(self, text: str) -> str:
        """Return the reason that an answer's JSON object gives; "" where there is none, or no answer."""
        with suppress(ReplyError):
            return _scored(text)[1] if self.reason and _OBJECT.search(text) else ""
        return ""

    def _with_reason(self, text: str) -> float:
        try:
            return self._number(text)
        except ReplyError as whole:
            first, _, rest = text.strip().partition("\n")
            if rest.strip() and not explains(fold(rest), raw=rest, best=False):
                raise
            for said, reason in ((first, ""), *with_reason(first)):
                if not reason or explains(fold(reason), raw=reason, best=False, beside=True):
                    with suppress(ReplyError):
                        return self._number(said)
            raise whole from None

    def _number(self, text: str) -> float:
        folded = re.sub(r"(?<=\d)\s*(?:/|of|out of)\s*(?=\d)", " / ", fold(text.replace("/", " of ")))
        words = folded.split()
        if not words:
            raise ReplyError("unparsed", "the answer is empty")
        _check_judged(folded)
        numbers = [Decimal(w) for w in words if _NUMBER.fullmatch(w)]
        if len(words) >= 3 and words[-2] == "/" and numbers and numbers[-1] == Decimal(self.high):
            words, numbers = words[:-2], numbers[:-1]
        if len(set(numbers)) > 1:
            raise ReplyError("contradictory", "the answer holds several numbers")
        if not numbers or any(not _NUMBER.fullmatch(w) and w not in _AROUND for w in words):
            raise ReplyError("off_menu", "the answer is not one number alone")
        (value,) = set(numbers)
        if not Decimal(self.low) <= value <= Decimal(self.high) or (self.whole and value != value.to_integral_value()):
            raise ReplyError("off_menu", f"{value:g} is off the scale")
        return float(value) or 0.0  # never -0

    def _plain(self, text: str) -> str:
        """Return the text with every minus as "-3" and every fraction as "0.5". Raises ReplyError for signs that folding
        would drop although they change the number."""
        if any(unicodedata.decomposition(c).startswith(("<super>", "<sub>", "<fraction>")) for c in text):
            raise ReplyError("unparsed", "the answer holds a raised or lowered sign")
        text = _DASH.sub("-", unicodedata.normalize("NFKC", text))
        if _UNSURE.search(text):
            raise ReplyError("unparsed", "the answer holds a sign behind the number that may change it")
        if "‰" in text or ("%" in text and (self.low, self.high) != (0, 100)):
            raise ReplyError("unparsed", "the answer is a share")
        # A dash behind a word may be a minus or part two clauses: where there are negative numbers, that is not guessed.
        text = _MINUS.sub("-", text)
        if self.low < 0 and _UNCLEAR.search(text):
            raise ReplyError("unparsed", "the answer holds a dash that may be a minus")
        return _POINT.sub("0.", text)

    def choices(self) -> tuple[str, ...] | None:
        """Return the whole numbers of a short whole scale; None where there are too many to list."""
        if not self.whole or self.reason or self.high - self.low > 100:
            return None
        return tuple(str(n) for n in range(math.ceil(self.low), math.floor(self.high) + 1))

    def json_schema(self) -> dict[str, Json]:
        number: dict[str, Json] = {"type": "integer" if self.whole else "number", "minimum": self.low, "maximum": self.high}
        if not self.reason:
            return number
        properties: dict[str, Json] = {"score": number, "reason": {"type": "string"}}
        return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@dataclass(frozen=True, kw_only=True)
class OneOf(_Menu):
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
        _distinct("an option", [(option, option) for option in self.options], least=2)
        unknown = [name for name in (*self.aliases, *([self.abstain] if self.abstain else [])) if name not in self.options]
        if unknown:
            raise ConfigError(f"{unknown[0]!r} is none of the options {', '.join(map(repr, self.options))}")
        if self.marks and len(self.marks) != len(self.options):
            raise ConfigError(f"expected a mark for each of the {len(self.options)} options, found {len(self.marks)}")
        phrases = self._phrases()
        _distinct("an alias", [(a, name) for name, others in phrases for a in (name, *others)], least=2)

    def parse(self, text: str) -> Choice:
        """Return the one option that the text names. Raises ReplyError; the abstain option is `abstained`."""
        name = parse_choice(text, self._phrases())
        if name == self.abstain:
            raise ReplyError("abstained", f"the judge answered {name!r}")
        return Choice(name=name)

    def choices(self) -> tuple[str, ...]:
        """Return the marks, which hold no comma and are short; without marks the options."""
        return self.marks or self.options

    def _phrases(self) -> list[tuple[str, tuple[str, ...]]]:
        marks = dict(zip(self.options, self.marks, strict=False))
        return [(name, (*self.aliases.get(name, ()), *filter(None, [marks.get(name)]))) for name in self.options]


YES_NO: Final = OneOf(options=("yes", "no"))
"""The two options of a yes-or-no question (EdiVal, DICE)."""


@dataclass(frozen=True, kw_only=True)
class FreeText(_Spec):
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

    def parse(self, text: str) -> Text:
        """Return the text, white space folded.

        Raises ReplyError for an empty or overlong one, for the dots that hold its place in prompts, and for "Cannot Judge".
        """
        fenced = _FENCED.match(text)
        said = " ".join((fenced[1] if fenced else SERVER_MARKS.sub(" ", text)).split())
        if not fold(said):
            raise ReplyError("unparsed", "the answer is empty; expected some words")
        _check_judged(said)
        count = len(said.split())
        if self.max_words is not None and count > self.max_words:
            raise ReplyError("off_menu", f"the answer has {count} words; expected at most {self.max_words}; found {said!r}")
        return Text(text=said)

    def json_schema(self) -> dict[str, Json]:
        return {"type": "string"}


@dataclass(frozen=True, kw_only=True)
class BoxList(_Spec):
    """Boxes in thousandths (0 to 1000) of one image, [x0, y0, x1, y1]."""

    kind: Literal["box_list"] = "box_list"
    noun: ClassVar[str] = "list of boxes"
    ask: ClassVar[str] = "a JSON list of boxes"

    def instructions(self) -> str:
        return (
            "The answer is a JSON list of boxes, each four whole numbers [x0, y0, x1, y1] in thousandths (0 to 1000) of "
            "the image's width and height, the origin at the top left; [] where there is none."
        )

    def parse(self, text: str) -> Boxes:
        """Return the boxes.

        Raises ReplyError for text that is no such list, for a box that is empty or outside, and for "Cannot Judge".
        """
        data = _json_in(text, self.ask)
        if not isinstance(data, list):
            raise ReplyError("off_menu", f"expected {self.ask}, found {type(data).__name__}")
        boxes = []
        for item in data:
            numbers = isinstance(item, list) and len(item) == 4 and all(type(v) in (int, float) for v in item)
            if not numbers or not all(0 <= v <= 1000 for v in item):
                raise ReplyError("off_menu", f"expected four numbers from 0 to 1000 a box, found {item!r}")
            try:
                boxes.append(Box(*item))
            except ValueError as error:
                raise ReplyError("off_menu", str(error)) from error
        return Boxes(boxes=tuple(boxes))

    def json_schema(self) -> dict[str, Json]:
        box: dict[str, Json] = {"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4}
        return {"type": "array", "items": box}


BOX_RULE: Final = (
    "A box is four whole numbers [x0, y0, x1, y1] in thousandths (0 to 1000) of the width and height of the image "
    "{image!r}, the origin at the top left."
)
"""How the boxes of an answer are written; a backend renders it in its model's own convention (`backends.boxes`)."""
_SOURCE: Final = "confidence_source"
_DROPPED: Final = "dropped"


@dataclass(frozen=True, kw_only=True)
class LabelledBoxes(_Spec):
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
    boxes in fractions from 0 to 1 (DICE, 3.2). Either form is read, with the numbers of this one."""
    none: str = "none"
    """The words for an empty list, in the lines form."""
    asks_confidence: bool = False
    """Whether each entry says how sure the judge is; json only."""
    wants_logprobs: bool = False
    """Whether an entry's confidence is p(label) / Σ p(labels) at its label's first token, where the backend tells
    probabilities."""
    kind: Literal["labelled_boxes"] = "labelled_boxes"

    def __post_init__(self) -> None:
        _distinct("a label", [(label, label) for label in self.labels], least=1)
        for what, keys in (
            ("label_key and name_key", (self.label_key, self.name_key, BOX, CONFIDENCE)),
            ("list_key", (self.list_key, _SOURCE, _DROPPED)),
        ):
            if len(set(keys)) < len(keys) or not all(keys):
                raise ConfigError(f"{what}: expected keys that differ, also from the fixed ones, found {', '.join(keys)}")
        if self.asks_confidence and self.form == "lines":
            raise ConfigError('the form "lines" has no place for a confidence; use form="json", or asks_confidence=False')
        if self.asks_confidence and self.wants_logprobs:
            raise ConfigError("a confidence has one source: asks_confidence or wants_logprobs, not both")

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

    def parse(self, text: str, *, confidences: Sequence[float | None] = ()) -> Record:
        """Return the boxes. An entry that cannot be read is dropped, and does not lose the others.

        confidences: those of the entries as they are written, as `shares` returns them.
        Raises ReplyError: unparsed (no entry that can be read, and no word that there is none), contradictory (both),
        off_menu (words beside the entries that may take them back), abstained.
        """
        _check_judged(text)
        entries = read_entries(text, self._words)
        told = confidences if len(confidences) == len(entries) else [None] * len(entries)
        listed: list[Json] = []
        dropped: list[dict[str, Json]] = []
        seen: set[str] = set()
        for entry, share in zip(entries, told, strict=True):
            try:
                item = self._item(entry)
                if (key := canonical_json(item)) in seen:
                    raise ValueError("it stands there twice")
                seen.add(key)
            except ValueError as error:
                dropped.append({"entry": entry.text[:200], "why": str(error)})
                continue
            sure = share if self.wants_logprobs else self._asked(entry)
            listed.append(item if sure is None else {**item, CONFIDENCE: sure})
        if entries and not listed:
            raise ReplyError(
                "unparsed", f"none of the {len(entries)} entries can be read; of the first: {dropped[0]['why']}"
            )
        known = any(isinstance(item, Mapping) and CONFIDENCE in item for item in listed)
        data: dict[str, Json] = {
            self.list_key: listed,
            _SOURCE: None if not known else "logprob" if self.wants_logprobs else "asked",
        }
        return Record(data={**data, _DROPPED: dropped} if dropped else data)

    def shares(self, text: str, tokens: Sequence[Token]) -> list[float | None]:
        """Return p(label) / Σ p(labels) of each entry of an answer as it is written; [] where nothing is known.

        tokens: those of the reply that holds the answer.
        """
        if not self.wants_logprobs or not tokens:
            return []
        try:
            return label_shares(text, read_entries(text, self._words), tokens, self.labels)
        except ReplyError:
            return []

    def json_schema(self) -> dict[str, Json]:
        if self.form == "lines":
            return {"type": "array", "items": {"type": "string"}}
        box: dict[str, Json] = {"type": "array", "items": {"type": "number"}, "minItems": 4, "maxItems": 4}
        sure: dict[str, Json] = {CONFIDENCE: {"type": "number", "minimum": 0, "maximum": 1}}
        properties: dict[str, Json] = {
            self.label_key: {"type": "string", "enum": list(self.labels)},
            self.name_key: {"type": "string"},
            BOX: box,
            **(sure if self.asks_confidence else {}),
        }
        entry: dict[str, Json] = _closed(properties)
        return _closed({self.list_key: {"type": "array", "items": entry}})

    @property
    def _words(self) -> Words:
        return Words(
            labels=self.labels,
            list_key=self.list_key,
            label_key=self.label_key,
            name_key=self.name_key,
            none=self.none,
        )

    def _item(self, entry: Entry) -> dict[str, Json]:
        """Return an entry as the answer has it, without its confidence. Raises ValueError, which says what is wrong."""
        if entry.why:
            raise ValueError(entry.why)
        said = entry.label.strip().casefold() if isinstance(entry.label, str) else ""
        label = next((one for one in self.labels if one.casefold() == said), None)
        if label is None:
            raise ValueError(f"its label is none of {', '.join(self.labels)}")
        if not isinstance(entry.name, str):
            raise ValueError("its name is no text")
        name = " ".join(entry.name.split())
        return {self.label_key: label, self.name_key: name, BOX: _box(entry.box, fractions=self.form == "lines")}

    def _asked(self, entry: Entry) -> float | None:
        """Return how sure the judge says it is; None where that is no number from 0 to 1."""
        sure = finite(entry.confidence) if self.asks_confidence else None
        return sure if sure is not None and 0 <= sure <= 1 else None


def _closed(properties: dict[str, Json]) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def _box(written: Json, *, fractions: bool) -> list[Json]:
    """Return a box in thousandths. Raises ValueError for what is none, or is written in other units."""
    if not isinstance(written, list):
        raise ValueError("it has no box" if written is None else "its box is no list of four numbers")
    numbers = [number for value in written if (number := finite(value)) is not None]
    if len(written) != 4:
        raise ValueError(f"its box has {len(written)} numbers, not four")
    if len(numbers) != 4:
        raise ValueError("its box holds what is no finite number")
    if fractions and max(numbers) > 1:
        raise ValueError("its box has a number above 1, and is no fraction")
    if not fractions and all(-1 <= number <= 1 for number in numbers):
        raise ValueError("its box is written in fractions")
    if min(numbers) < 0 or (not fractions and max(numbers) > 1000):
        raise ValueError("its box reaches out of the image")
    x0, y0, x1, y1 = box = [round(number * 1000 if fractions else number, 3) for number in numbers]
    if x0 >= x1 or y0 >= y1:
        raise ValueError("its box is empty, or its corners are swapped")
    return [int(number) if number.is_integer() else number for number in box]


@dataclass(frozen=True, kw_only=True)
class RecordOf(_Spec):
    """A JSON object of a schema, such as EdiVal's objects. `RecordOf.model(Model)` takes a pydantic model."""

    schema: Mapping[str, Json]
    """JSON Schema (draft 2020-12)."""
    kind: Literal["record_of"] = "record_of"
    noun: ClassVar[str] = "JSON object"
    ask: ClassVar[str] = "one JSON object of the schema below"

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

    def parse(self, text: str) -> Record:
        """Return the object.

        Raises ReplyError for text that is no JSON, for JSON that the schema refuses, and for "Cannot Judge".
        Raises ConfigError for a schema that names another one or itself without end.
        """
        import jsonschema
        from referencing import Registry
        from referencing.exceptions import Unresolvable

        data = _json_in(text, "one JSON object")
        # The default one opens files and addresses that a schema names.
        registry: Registry[Any] = Registry()
        validator = jsonschema.Draft202012Validator(dict(self.schema), registry=registry)
        try:
            problem = next(iter(validator.iter_errors(data)), None)
        except (Unresolvable, RecursionError, re.error) as error:
            raise ConfigError(f"the schema of a record cannot be used, and nothing is fetched for it: {error}") from error
        if problem is not None:
            raise ReplyError(
                "off_menu", f"the JSON does not fit the schema at {problem.json_path}: {problem.message[:300]}"
            )
        return Record(data=data)

    def json_schema(self) -> dict[str, Json]:
        return dict(self.schema)


AnswerSpec: TypeAlias = Annotated[
    Labels | Scale | OneOf | FreeText | BoxList | LabelledBoxes | RecordOf,
    Field(discriminator="kind"),
]
"""What a question may be answered with; tagged by `kind`, so that a task's JSON says how its answer is read."""


def read_answer(spec: AnswerSpec, text: str, metric: str, *, confidences: Sequence[float | None] = ()) -> Answer:
    """Return what a text answers to a question of a metric, which it may name ("IF: …"). Raises as `spec.parse`.

    confidences: what `confidences_in` returns for the same text.
    """
    said = _unnamed(spec, text, metric)
    return spec.parse(said, confidences=confidences) if isinstance(spec, LabelledBoxes) else spec.parse(said)


def confidences_in(spec: AnswerSpec, text: str, metric: str, tokens: Sequence[Token]) -> list[float | None]:
    """Return how sure the judge is of each entry of an answer, by the tokens of its reply; [] where that is not known."""
    return spec.shares(_unnamed(spec, text, metric), tokens) if isinstance(spec, LabelledBoxes) else []


def reason_in(spec: AnswerSpec, text: str, metric: str) -> str:
    """Return the reason that stands in an answer itself, which `read_answer` leaves aside; "" where there is none."""
    return spec.reason_in(_unnamed(spec, text, metric)) if isinstance(spec, Scale) else ""


def _unnamed(spec: AnswerSpec, text: str, metric: str) -> str:
    in_json = isinstance(spec, Labels | OneOf) or (isinstance(spec, Scale) and not spec.reason)
    return without_name(text, metric, in_json=in_json)


_FENCED: Final = re.compile(r"^\s*```[a-zA-Z]*\s*\n(.*?)\s*```\s*$", re.DOTALL)


def _scored(text: str) -> tuple[str, str]:
    """Return the score, as text, and the reason of the JSON objects of a text.

    Only decoration stands before them, and prose behind them explains. A reason may hold line breaks as they are. Raises
    ReplyError for any other text, for an object with other keys or the same one twice, and for two scores.
    """
    text = re.sub(r"```\w*", " ", SERVER_MARKS.sub(" ", text))
    decoder = json.JSONDecoder(
        object_pairs_hook=distinct_keys, parse_constant=_not_finite, parse_float=_finite, strict=False
    )
    found: list[dict[str, Any]] = []
    outside, at = [""], 0
    try:
        check_nesting(text)
        while (begin := text.find("{", at)) >= 0:
            value, end = decoder.raw_decode(text, begin)
            outside[-1] += text[at:begin]
            outside.append("")
            found.append(distinct_keys([(fold(key), its) for key, its in value.items()]))
            at = end
    except ValueError as error:
        raise ReplyError("unparsed", f"the answer is not JSON ({error})") from error
    outside[-1] += text[at:]
    for one in found:
        if unknown := [key for key in one if key != "score" and key not in REASON_KEYS]:
            raise ReplyError("off_menu", f"the answer's JSON object has the key {unknown[0][:60]!r}")
        if type(one.get("score")) not in (str, int, float):
            raise ReplyError("off_menu", "the answer's JSON object has no number as its score")
    if len({one["score"] for one in found}) > 1:
        raise ReplyError("contradictory", "the answer holds several scores")
    before, *behind = outside
    said = [part for part in behind if fold(part)]
    meant = DECORATION.union(("json",)).issuperset(fold(before).split()) and not _UNSURE.search(" ".join(outside))
    if not meant or not all(explains(fold(part), raw=part, best=False) for part in said):
        raise ReplyError("off_menu", "the answer's JSON object stands beside words that may take it back")
    reasons = [its for key, its in found[0].items() if key != "score" and its is not None]
    texts = [its if isinstance(its, str) else json.dumps(its, ensure_ascii=False) for its in reasons]
    return str(found[0]["score"]), "\n".join(" ".join(one.split()) for one in texts)


def _check_judged(text: str) -> None:
    """Raise ReplyError if a judge says that it cannot judge, and nothing else."""
    if fold(text) == fold(CANNOT_JUDGE):
        raise ReplyError("abstained", f"the judge answered {CANNOT_JUDGE!r}")


def _json_in(text: str, expected: str) -> Json:
    """Return the JSON value that is the whole text, a Markdown fence around it aside. Raises ReplyError."""
    fenced = _FENCED.match(text)
    body = (fenced[1] if fenced else text).strip()
    if not body:
        raise ReplyError("unparsed", f"the answer is empty; expected {expected}")
    _check_judged(body)
    try:
        value: Json = parse_json(body, parse_constant=_not_finite, parse_float=_finite)
    except ValueError as error:
        raise ReplyError(
            "unparsed", f"the answer is not JSON ({error}); expected {expected}; found {body[:120]!r}"
        ) from error
    return value


def _finite(word: str) -> float:
    value = float(word)
    return value if math.isfinite(value) else _not_finite(word)


def _not_finite(word: str) -> float:
    raise ValueError(f"{word} is no JSON number")
