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
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import BaseModel, Field, TypeAdapter

from editloupe.chat import Token
from editloupe.errors import ConfigError, ReplyError
from editloupe.values import Box, Json, Serialisable, canonical_json, distinct_keys, finite, is_empty, parse_json

if TYPE_CHECKING:
    import jsonschema

CANNOT_JUDGE: Final = "Cannot Judge"
"""The words with which a judge abstains. No option may be called so."""
AROUND: Final = " \t\r\n[](){}*-,;:\"'“”„‘’`"
"""What may stand around a label and says nothing."""
BOX: Final = "box"
CONFIDENCE: Final = "confidence"
"""Keys of a labelled box that no question renames."""


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


# Reading


LONGEST: Final = 20_000
"""Characters of a plain answer. A longer one is none: it is not folded."""
LONGEST_JSON: Final = 100_000
"""Characters of an answer in JSON, or of a list of boxes."""
_FORMS: Final = ("answer", "label", "verdict", "rating", "score", "decision", "result", "choice")
_FORM: Final = frozenset(word for form in _FORMS for word in (form, f"final {form}"))
"""What a prefix may say, folded: it names only the form of what follows."""
_SHOWN: Final = 120
_HYPHEN = re.compile(r"(?<=[^\W\d_])-(?=[^\W\d_])")
_DOT = re.compile(r"(?<!\d)\.|\.(?!\d)")
_POINT = re.compile(r"(?<![\w.])\.(?=\d)")
_PLUS = re.compile(r"(?<![\w+])\++(?=\d)")
_EXCLAIMED = re.compile(r"(?<=.)!(?!\w)")
_SIGN = re.compile("[-=]>|[:：=→]")
"""What may part a prefix from the answer."""
_ELEMENT = re.compile(r"</?([a-zA-Z]{1,20})>|\\(?:boxed|text[a-z]{0,2})(?=[{])")
_RULE = re.compile("---+|===+")
"""Markdown's mark of a heading above."""
_LANGUAGE = re.compile(r"\A[a-zA-Z]{0,20} ?(?=[\r\n{\[])")
_NUMBER = re.compile(r"(-?\d+(?:\.\d+)?)(?: ?/ ?(\d+(?:\.\d+)?))?")
_DASHES: Final = dict.fromkeys("\u2010\u2012\u2013\u2212", "-")
_GREEK_QUESTION: Final = "\u037e"
_SEPARATORS: Final = ("-", "—")
"""What may part a number from the name of the same option."""


def fold(text: str) -> str:
    """Return a text as it is compared: without case, Markdown's emphasis, code and heading marks, quotes, brackets and
    `. , : ; !`, with one space between words.

    Hyphens inside words and underscores are spaces. A minus, a point between digits and a plus behind a word stay, and so
    does every other sign (?, ≠, ~, ²): they change what is said. `fold(fold(x)) == fold(x)`.
    """
    # Options are folded again with every reply.
    return _fold_known(text) if len(text) <= _SHOWN else _fold(text)


def _fold(text: str) -> str:
    text = text.replace("[ ]", "☐")  # an unticked box
    text = text.translate({ord(char): _folded(char) for char in set(text)})
    text = unicodedata.normalize("NFC", text).replace("!=", "≠")
    text = _DOT.sub(" ", _POINT.sub("0.", _HYPHEN.sub(" ", text)))
    # Before a word it negates.
    text = " ".join(_EXCLAIMED.sub(" ", " ".join(_PLUS.sub("", text).split())).split())
    # Around the whole they are brackets; elsewhere they compare: "A>B".
    return text.strip("<> ") if text.startswith("<") and text.endswith(">") else text


_fold_known = lru_cache(maxsize=4096)(_fold)


@lru_cache(maxsize=4096)
def _folded(char: str) -> str:
    """Return what is left of a character: nothing of an invisible one, a space of a dropped one."""
    if unicodedata.category(char) in ("Cf", "Co", "Cs") or "\ufe00" <= char <= "\ufe0f":
        return ""
    if unicodedata.decomposition(char).startswith(("<super>", "<sub>", "<fraction>")):
        return char  # 8² is not 82
    if char == _GREEK_QUESTION:
        return "?"
    plain = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", char).casefold())
    dropped = "\"'`´*_#,:;。、"
    return "".join(
        " " if c in dropped or unicodedata.category(c) in ("Ps", "Pe", "Pi", "Pf") else _DASHES.get(c, c) for c in plain
    )


def unfenced(text: str) -> str:
    """Return a text out of the one code fence that encloses it."""
    text = text.strip()
    mark = text[:3]
    if len(text) < 6 or mark not in ("```", "~~~") or not text.endswith(mark) or mark in text[3:-3]:
        return text
    return _LANGUAGE.sub("", text[3:-3], count=1).strip()


def _names_form(said: str, metric: str) -> bool:
    """Return whether a prefix or key names only the form of what follows, or the metric: its id or its capitals ("IF")."""
    if len(said) > _SHOWN:
        return False
    initials = "".join(word[0] for word in re.split(r"[\W_]+", metric) if word).upper()
    whole = fold(said).removeprefix("- ")
    rest = fold(re.sub(rf"\b{initials}\b", " ", said) if len(initials) > 1 else said).removeprefix("- ")
    rest = f"{rest} ".removeprefix(f"{fold(metric)} ").strip()
    return rest in _FORM or (rest == "" and whole != "")


def _without_prefix(line: str, metric: str) -> str:
    sign = _SIGN.search(line, 0, _SHOWN)
    return line[sign.end() :] if sign and _names_form(line[: sign.start()], metric) else line


def _plain(text: str, metric: str) -> str:
    """Return what an option or a number is said to be: a text without the prefixes of its lines, or the values of a JSON
    object whose keys name only the form, beside a reason."""
    text = _checked(text)
    if (found := _object(text)) is None:
        unboxed = _ELEMENT.sub(lambda mark: " " if (mark[1] or "answer").casefold() in _FORMS else mark[0], text)
        return "\n".join(
            _without_prefix(line, metric) for line in unboxed.splitlines() if not _RULE.fullmatch(line.strip())
        )
    values = [value for key, value in found.items() if key != "reason"]
    if unknown := [key for key in found if key != "reason" and not _names_form(key, metric)]:
        raise ReplyError("off_menu", f"the answer's JSON object has the key {unknown[0][:60]!r}")
    if not values or not all(type(value) in (str, int, float) for value in values):
        raise ReplyError("off_menu", "the answer's JSON object holds neither a text nor a number as its answer")
    for value in values:
        _checked(str(value))
    return "\n".join(f"{Decimal(repr(value)):f}" if isinstance(value, float) else str(value) for value in values)


def _shown(text: str) -> str:
    flat = " ".join(text[: 10 * _SHOWN].split())
    return repr(flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…")


def _checked(text: str, longest: int = LONGEST) -> str:
    """Return the text out of its fence. Raises ReplyError for one that is too long, or says that it cannot judge."""
    if len(text) > longest:
        raise ReplyError("unparsed", f"the answer has {len(text):,} characters; expected at most {longest:,}")
    text = unfenced(text)
    if len(text) <= _SHOWN and fold(text) == fold(CANNOT_JUDGE):
        raise ReplyError("abstained", f"the judge answered {CANNOT_JUDGE!r}")
    return text


def _json(text: str, expected: str) -> Json:
    """Return the JSON value that is the whole text. A string in it may hold line breaks. Raises ReplyError."""
    try:
        found: Json = parse_json(text, object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite, strict=False)
    except ValueError as error:
        problem = f"the answer is not JSON ({error})" if text else "the answer is empty"
        raise ReplyError("unparsed", f"{problem}; expected {expected}; found {_shown(text)}") from error
    return found


def _once(pairs: Sequence[tuple[str, Json]]) -> dict[str, Json]:
    try:
        return distinct_keys(pairs)
    except ValueError as error:
        raise ReplyError("contradictory", f"a JSON object of the answer {error}") from None


def _finite(word: str) -> float:
    if not math.isfinite(value := float(word)):
        raise ValueError(f"{word[:60]} is no JSON number")
    return value


def _object(text: str) -> dict[str, Json] | None:
    """Return the JSON object that a text is; None where it is none. Raises ReplyError for a key that stands twice."""
    try:
        found = _json(text, "") if text.startswith("{") else None
    except ReplyError as error:
        if error.status == "contradictory":
            raise
        return None
    return found if isinstance(found, dict) else None


def _answer_of(found: Mapping[str, Json], *keys: str) -> Json:
    """Return the answer of a JSON object: the value of the one of `keys` that it has, beside at most a reason."""
    given = [key for key in found if key in keys]
    if len(given) != 1 or not found.keys() <= {"reason", *keys}:
        listed = ", ".join(found)[:_SHOWN] or "none"
        raise ReplyError("off_menu", f"expected the keys reason and {' or '.join(keys)}; the answer's JSON has {listed}")
    answer = found[given[0]]
    return _checked(answer) if isinstance(answer, str) else answer


def _phrases(options: Sequence[tuple[str, Sequence[str]]]) -> dict[str, str]:
    """Return folded name or alias → option, for those that mean one option only. Names go before aliases."""
    found: dict[str, str] = {fold(CANNOT_JUDGE): CANNOT_JUDGE}
    aliases = [(alias, name) for name, its in options for alias in its]
    for meanings in (aliases, [(name, name) for name, _ in options]):
        owners: dict[str, set[str]] = {}
        for phrase, name in meanings:
            owners.setdefault(fold(phrase), set()).add(name)
        found |= {phrase: names.pop() for phrase, names in owners.items() if phrase and len(names) == 1}
    joined: dict[str, set[str]] = {}
    for phrase, name in found.items():
        if "".join(words := phrase.split()).isalpha():
            joined.setdefault("".join(words), set()).add(name)
    return {phrase: names.pop() for phrase, names in joined.items() if len(names) == 1} | found


def _choose(text: str, options: Sequence[tuple[str, Sequence[str]]], values: Mapping[str, float], metric: str) -> str:
    """Return the name of the one option that an answer is. Raises ReplyError.

    values: the number of each option, where they have one. Beside its name it may stand, and no other number.
    """
    text = _checked(text)
    expected = f"expected one of {', '.join(dict.fromkeys(name for name, _ in options))}"
    phrases, said = _phrases(options), fold(text)
    if said not in phrases:
        said = fold(_plain(text, metric))
    if not said:
        raise ReplyError("unparsed", f"the answer is empty; {expected}")
    alone = [phrases[said]] if said in phrases else _agreed(said, phrases, values)
    named = alone or _named(said, phrases)
    if len(named) > 1:
        both = " and ".join(map(repr, named))
        raise ReplyError("contradictory", f"the answer names {both}; {expected}; found {_shown(text)}")
    if not alone:
        problem = f"the answer gives {named[0]!r} beside other words" if named else "the answer is none of the labels"
        raise ReplyError("off_menu", f"{problem}; {expected}; found {_shown(text)}")
    if named[0] == CANNOT_JUDGE:
        raise ReplyError("abstained", f"the judge answered {CANNOT_JUDGE!r}")
    return named[0]


def _agreed(said: str, phrases: Mapping[str, str], values: Mapping[str, float]) -> list[str]:
    """Return the options that the parts of a folded answer mean, where it has no other part: "3 - over modification"."""
    words = said.split()
    numbers = {f"{value:g}": name for name, value in values.items()}
    top, signed = max(values.values(), default=0.0), min(values.values(), default=0.0) < 0
    numbers |= {f"{number}/{top:g}": name for number, name in numbers.items()}
    named: list[str] = []
    alone, at = True, 0
    while at < len(words) <= _SHOWN:
        ends = range(len(words), at, -1)
        end = next((end for end in ends if " ".join(words[at:end]) in phrases), None)
        if end is not None:
            named.append(phrases[" ".join(words[at:end])])
            alone, at = False, end
        elif words[at] in numbers:
            named.append(numbers[words[at]])
            at += 1
        elif at + 1 < len(words) and (
            (words[at] in _SEPARATORS and not signed) or (words[at] in _FORMS and words[at + 1] in numbers)
        ):
            at += 1
        else:
            return []
    return [] if alone else list(dict.fromkeys(named))


def _named(said: str, phrases: Mapping[str, str]) -> list[str]:
    """Return the options whose names stand somewhere in a folded answer; one inside a longer one does not count."""
    spaced, names = f" {said} ", []
    for phrase in sorted(phrases, key=len, reverse=True):
        if f" {phrase} " in spaced:
            names.append(phrases[phrase])
            spaced = spaced.replace(f" {phrase} ", " | ")
    return list(dict.fromkeys(names))


# Specs


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
    """What the answer specs share: the words of the prompts, and the JSON object of an answer with its reason."""

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

    def _value_schema(self) -> Json:
        return {"type": "string", "enum": list(self.choices() or ())}


def _closed(properties: dict[str, Json]) -> dict[str, Json]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


@dataclass(frozen=True, kw_only=True)
class Labels(_Spec):
    """Ordered labels with values (DLEBench)."""

    labels: tuple[LabelRule, ...]
    """Best first, as the prompt lists them."""
    kind: Literal["labels"] = "labels"
    noun: ClassVar[str] = "label"

    def __post_init__(self) -> None:
        _distinct("a label", [(rule.name, rule.name) for rule in self.labels], least=2)

    def parse(self, text: str, metric: str = "") -> Label:
        """Return the one label that the text names. Raises ReplyError."""
        values = {rule.name: rule.value for rule in self.labels}
        name = _choose(text, [(rule.name, rule.aliases) for rule in self.labels], values, metric)
        return Label(name=name, value=values[name])

    def choices(self) -> tuple[str, ...]:
        return tuple(rule.name for rule in self.labels)


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

    def parse(self, text: str, metric: str = "") -> Number:
        """Return the number that the text is, alone or as "7/10", or that its JSON object holds. Raises ReplyError."""
        try:
            return Number(value=self._number(fold(_plain(text, metric))))
        except ReplyError as error:
            if error.status == "abstained":
                raise
            found = f"; found {_shown(text)}" if text.strip() else ""
            raise ReplyError(error.status, f"{error}; expected {self.ask}{found}") from None

    def _number(self, said: str) -> float:
        if not said:
            raise ReplyError("unparsed", "the answer is empty")
        match = _NUMBER.fullmatch(said)
        if match is None:
            several = len({word for word in said.split() if _NUMBER.fullmatch(word)}) > 1
            status = "contradictory" if several else "off_menu"
            raise ReplyError(
                status, "the answer holds several numbers" if several else "the answer is not one number alone"
            )
        value = Decimal(match[1])
        if match[2] and Decimal(match[2]) != Decimal(repr(self.high)):
            raise ReplyError(
                "contradictory", f"the answer is a number of {match[2][:_SHOWN]}, which is not the scale's top"
            )
        in_range = Decimal(repr(self.low)) <= value <= Decimal(repr(self.high))
        if not in_range or (self.whole and value != value.to_integral_value()):
            raise ReplyError("off_menu", f"{match[1][:_SHOWN]} is off the scale")
        return float(value) or 0.0  # never -0

    def choices(self) -> tuple[str, ...] | None:
        """Return the whole numbers of a short whole scale; None where there are too many to list."""
        if not self.whole or self.reason or self.high - self.low > 100:
            return None
        return tuple(str(n) for n in range(math.ceil(self.low), math.floor(self.high) + 1))

    def _value_schema(self) -> Json:
        return {"type": "integer" if self.whole else "number", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True, kw_only=True)
class OneOf(_Spec):
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

    def parse(self, text: str, metric: str = "") -> Choice:
        """Return the one option that the text names. Raises ReplyError; the abstain option is `abstained`."""
        name = _choose(text, self._phrases(), {}, metric)
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
        said = _checked(text)
        found = _object(said)
        if found is not None and "answer" in found and found.keys() <= {"answer", "reason"}:
            said = str(_answer_of(found, "answer"))
        said = " ".join(said.split())
        if not fold(said):
            raise ReplyError("unparsed", "the answer is empty; expected some words")
        count = len(said.split())
        if self.max_words is not None and count > self.max_words:
            raise ReplyError(
                "off_menu", f"the answer has {count} words; expected at most {self.max_words}; found {_shown(said)}"
            )
        return Text(text=said)

    def _value_schema(self) -> Json:
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
        """Return the boxes. Raises ReplyError, also for a box that is empty or outside."""
        data = _json(_checked(text, LONGEST_JSON), self.ask)
        if isinstance(data, dict):
            data = _answer_of(data, "answer")
        if not isinstance(data, list):
            raise ReplyError("off_menu", f"expected {self.ask}, found {type(data).__name__}")
        try:
            return Boxes(boxes=tuple(Box(*_box(item, top=1000)) for item in data))
        except ValueError as error:
            raise ReplyError("off_menu", f"expected four numbers from 0 to 1000 a box: of one, {error}") from error

    def _value_schema(self) -> Json:
        return {"type": "array", "items": _BOX_SCHEMA}


_BOX_SCHEMA: Final[Json] = {
    "type": "array",
    "items": {"type": "number", "minimum": 0, "maximum": 1000},
    "minItems": 4,
    "maxItems": 4,
}


def _box(written: Json, *, top: float) -> list[float]:
    """Return a box from 0 to `top` in thousandths. Raises ValueError for what is none, or is written in other units."""
    if not isinstance(written, list):
        raise ValueError("it has no box" if written is None else "its box is no list of four numbers")
    numbers = [number for value in written if (number := finite(value)) is not None]
    if len(written) != 4:
        raise ValueError(f"its box has {len(written)} numbers, not four")
    if len(numbers) != 4:
        raise ValueError("its box holds what is no finite number")
    if top == 1 and max(numbers) > 1:
        raise ValueError("its box has a number above 1, and is no fraction")
    if top > 1 and all(-1 <= number <= 1 for number in numbers):
        raise ValueError("its box is written in fractions")
    if min(numbers) < 0 or max(numbers) > top:
        raise ValueError("its box reaches out of the image")
    x0, y0, x1, y1 = box = [round(number * 1000 / top, 3) for number in numbers]
    if x0 >= x1 or y0 >= y1:
        raise ValueError("its box is empty, or its corners are swapped")
    return box


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
    boxes in fractions from 0 to 1 (DICE, 3.2)."""
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
        off_menu (other words beside the entries), abstained.
        """
        entries = self._entries(text)
        told = confidences if len(confidences) == len(entries) else [None] * len(entries)
        listed: list[Json] = []
        dropped: list[dict[str, Json]] = []
        seen: set[str] = set()
        for (_, entry), share in zip(entries, told, strict=True):
            try:
                item = self._item(entry)
                if (key := canonical_json(item)) in seen:
                    raise ValueError("it stands there twice")
            except ValueError as error:
                shown = entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False)
                dropped.append({"entry": shown[:200], "why": str(error)})
                continue
            seen.add(key)
            sure = share if self.wants_logprobs else self._asked(entry)
            listed.append(item if sure is None else {**item, CONFIDENCE: sure})
        if entries and not listed:
            first = dropped[0]["why"]
            raise ReplyError("unparsed", f"none of the {len(entries)} entries can be read; of the first: {first}")
        known = any(isinstance(item, Mapping) and CONFIDENCE in item for item in listed)
        source = None if not known else "logprob" if self.wants_logprobs else "asked"
        data: dict[str, Json] = {self.list_key: listed, _SOURCE: source}
        return Record(data={**data, _DROPPED: dropped} if dropped else data)

    def shares(self, text: str, tokens: Sequence[Token]) -> list[float | None]:
        """Return p(label) / Σ p(labels) of each entry of an answer as it is written; [] where nothing is known.

        tokens: those of the reply that holds the answer. What stands before the answer may be a draft of it, and boxes may
        be spoken in the model's own convention: labels are looked for from the end, with what stands between their boxes.
        """
        try:
            entries = self._entries(text) if self.wants_logprobs and tokens else []
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
        """Return each entry as it is written: from its label to the next bracket ("" where that is not known), and its
        parts as an object. [] where the text says that there is none."""
        text = _checked(text, LONGEST_JSON)
        if self._is_nothing(text):
            return []
        if self.form == "lines" and not text.startswith("{"):
            return self._in_lines(text)
        data = _json(text, self.ask)
        listed = _answer_of(data, "answer", self.list_key) if isinstance(data, dict) else data
        if not isinstance(listed, list):
            raise ReplyError("unparsed", f"the answer's JSON holds no list; expected {self.ask}")
        if self.form == "lines" and all(isinstance(item, str) for item in listed):
            return self._in_lines("\n".join(map(str, listed))) if listed else []
        key = re.escape(json.dumps(self.label_key, ensure_ascii=False))
        begins = [match.end() for match in re.finditer(rf'{key}\s{{0,9}}:\s{{0,9}}"\s{{0,9}}', text)]
        known = len(begins) == len(listed)
        return [
            (text[begins[n] : begins[n] + _SHOWN].partition("[")[0] if known else "", item) for n, item in enumerate(listed)
        ]

    def _in_lines(self, text: str) -> list[tuple[str, Json]]:
        """Return the entries "LABEL: name, [x0, y0, x1, y1]", one a line or side by side as a list of strings."""
        known = {label.casefold() for label in self.labels}
        found: list[tuple[str, Json]] = []
        nothing = beside = False
        # A trained model repeats its question.
        lines = text.rpartition("Assistant:")[2].splitlines()
        for number, piece in ((number, piece) for line in lines for number, piece in enumerate(line.split("]"))):
            head, closed, inside = piece.rpartition("[")
            written = (head if closed else piece).lstrip(AROUND)
            if not written and not closed:
                continue
            label, _, name = (part.strip(AROUND) for part in written.partition(":"))
            empty = closed != "" and not inside.strip()
            if (empty and (not written or self._is_nothing(label))) or self._is_nothing(written):
                nothing = True
            elif ":" in written and (closed or label.casefold() in known):
                name = name.removesuffix("BOUNDING_BOX").rstrip(AROUND).replace("\\'", "'").replace('\\"', '"')
                box = {BOX: _numbers(inside)} if closed else {}
                found.append((written[:_SHOWN], {self.label_key: label, self.name_key: name, **box}))
            elif found and number > 0:
                found[-1] = ("", f"{found[-1][0]}… {piece.strip()}")
            else:
                beside = True
        if found and nothing:
            raise ReplyError("contradictory", f"the answer holds entries and says that there is none ({self.none!r})")
        if not found and not nothing:
            raise ReplyError("unparsed", "the answer holds no entry, and does not say that there is none")
        if beside:
            raise ReplyError("off_menu", "the answer holds other words beside its entries")
        return found

    def _is_nothing(self, text: str) -> bool:
        """Return whether a text says that the list is empty, and nothing else."""
        said = "".join(fold(text).split()) if len(text) <= _SHOWN else ""
        return text.strip() == "[]" or (said != "" and said == "".join(fold(self.none).split()))

    def _item(self, entry: Json) -> dict[str, Json]:
        """Return an entry as the answer has it, without its confidence. Raises ValueError, which says what is wrong."""
        if not isinstance(entry, Mapping):
            raise ValueError("other words stand behind its box" if isinstance(entry, str) else "it is no JSON object")
        said, name = entry.get(self.label_key), entry.get(self.name_key) or ""
        folded = said.strip().casefold() if isinstance(said, str) else ""
        label = next((one for one in self.labels if one.casefold() == folded), None)
        if label is None:
            raise ValueError(f"its label is none of {', '.join(self.labels)}")
        if not isinstance(name, str):
            raise ValueError("its name is no text")
        box = _box(entry.get(BOX), top=1 if self.form == "lines" else 1000)
        listed: list[Json] = [int(number) if number.is_integer() else number for number in box]
        return {self.label_key: label, self.name_key: " ".join(name.split()), BOX: listed}

    def _asked(self, entry: Json) -> float | None:
        """Return how sure the judge says it is; None where that is no number from 0 to 1."""
        sure = finite(entry.get(CONFIDENCE)) if self.asks_confidence and isinstance(entry, Mapping) else None
        return sure if sure is not None and 0 <= sure <= 1 else None


def _numbers(inside: str) -> list[Json]:
    """Return what stands between brackets: numbers as such, other items as their text."""
    items = [item.strip() for item in inside[:1000].split(",")] if inside.strip() else []
    number = re.compile(r"[-+]?\d*\.?\d+(?:[eE][-+]?\d{1,3})?")
    return [float(item) if len(item) < 40 and number.fullmatch(item) else item for item in items]


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
        """Return the object, or the answer of an object of `json_schema`. Raises ReplyError.

        Raises ConfigError for a schema that names another one or itself without end.
        """
        data = _json(_checked(text, LONGEST_JSON), "one JSON object")
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
    if isinstance(spec, LabelledBoxes):
        return spec.parse(text, confidences=confidences)
    return spec.parse(text, metric) if isinstance(spec, Labels | OneOf | Scale) else spec.parse(text)


def confidences_in(spec: AnswerSpec, text: str, tokens: Sequence[Token]) -> list[float | None]:
    """Return how sure the judge is of each entry of an answer, by the tokens of its reply; [] where that is not known."""
    return spec.shares(text, tokens) if isinstance(spec, LabelledBoxes) else []


def reason_in(spec: AnswerSpec, text: str) -> str:
    """Return the reason that stands in an answer itself, beside it in its JSON object; "" where there is none."""
    try:
        found = _object(unfenced(text)) or {}
    except ReplyError:
        return ""
    # A record may have a reason of its own.
    reason = found.get("reason") if not isinstance(spec, RecordOf | FreeText) or "answer" in found else None
    told = reason if isinstance(reason, str) else "" if reason is None else json.dumps(reason, ensure_ascii=False)
    return " ".join(told.split())
