"""Parse a free-text answer to one of several options, or to a status. Nothing is ever guessed.

The answer and the options are compared after folding (`fold`). Accepted are, in this order:

1. the whole answer is an option;
2. the whole answer is an alias of exactly one option;
3. a line of the answer holds an option and nothing but decoration: the words of `DECORATION`, and numbers that agree
   with the option. No prose stands before that line. Prose after it may explain, as long as it names no other option and
   negates none.

Two different options anywhere in the answer are "contradictory". So is a number that is another option's value. All else
is "off_menu": an option inside a sentence ("I lean towards X", "not X"), a number alone (unless it is an alias), an
option that does not exist. `CANNOT_JUDGE` is read like an option and gives "abstained".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from editloupe.errors import ReplyError

CANNOT_JUDGE: Final = "Cannot Judge"
"""The words with which a judge abstains. No option may be called so."""

DECORATION: Final = frozenset(
    {"the", "my", "is", "as", "label", "labels", "score", "answer", "final", "result", "verdict", "rating", "grade",
     "level", "category", "class", "evaluation", "assessment", "judgement", "judgment", "decision", "conclusion", "=", "→"}
)  # fmt: skip
"""Words that may stand around an option without changing what is said. A closed list: "not" and "almost" are out."""

_OF = frozenset({"of", "out"})
# "t" is what folding leaves of "isn't"; "than" stands for "rather than" and "worse than".
_NEGATION = frozenset({"not", "no", "never", "non", "nor", "neither", "without", "cannot", "t", "than", "≠", "~", "¬"})
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SHOWN = 120

# In and beside words some signs carry meaning and are kept: -1 is not 1, 3.5 is not 35, A+ and A- are not A.
_SIGN = re.compile(r"(?<!\w)-(?=\d)")
_PLUS = re.compile(r"(?<!\w)\+(?=\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_GRADE = re.compile(r"(?<=\w)\+(?!\w)|(?<=\b[^\W\d])-(?!\w)")
_BRACKETED = re.compile(r"<([^<>]*)>")
_LINE_MARK = re.compile(r"^[ \t]*(?:>+|```\w*[ \t]*$)")
_KEPT = {"\ue000": "-", "\ue001": ".", "\ue002": "+", "\ue003": "-"}
_MARKUP = frozenset("`^|")


def fold(text: str) -> str:
    """Return the text as it is compared: NFKC and casefolded, one space between words, no punctuation, no Markdown.

    Hyphens and underscores become spaces. A minus before a number, a point between digits and a plus or minus after a
    grade ("A-") stay, and so do symbols (≠, ★, ~): they change what is said. `fold(fold(x)) == fold(x)`.
    """
    # Invisible characters go first, so that they cannot keep a letter and its accent apart; private-use characters go
    # with them, because some serve as place-holders below.
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Co", "Cs"))
    text = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    text = text.replace("−", "-").replace("!=", "≠").replace("_", " ")
    pairs = 1
    while pairs:
        text, pairs = _BRACKETED.subn(r" \1 ", text)
    text = _SIGN.sub("\ue000", _PLUS.sub("", text))
    text = _POINT.sub("\ue001", text)
    text = _GRADE.sub(lambda m: "\ue002" if m.group() == "+" else "\ue003", text)
    return " ".join("".join(map(_folded, text)).split())


def parse_choice(
    text: str, options: Sequence[tuple[str, tuple[str, ...]]], values: Mapping[str, float] | None = None
) -> str:
    """Return the name of the one option that the answer gives.

    options: name and aliases of each option, in the order in which messages list them.
    values: the number of each option, where they have one. A number beside an option must be that option's value.

    Raises ReplyError with the status "unparsed" (nothing to read), "off_menu", "contradictory" or "abstained".
    """
    phrases, values = _phrases(options), values or {}
    expected = f"expected one of {', '.join(dict.fromkeys(name for name, _ in options))}"
    flat = " ".join(text.split())
    shown = repr(flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…")

    def refused(status: str, problem: str) -> ReplyError:
        return ReplyError(status, f"{problem}; {expected}; found {shown}")

    whole = fold(text)
    if not whole:
        raise ReplyError("unparsed", f"the answer is empty; {expected}")
    if whole in phrases:
        return _given(phrases[whole])

    lines = [line for line in (_Line.read(line, phrases) for line in text.splitlines()) if line.named or line.rest]
    named = list(dict.fromkeys(name for line in lines for name in line.named))
    if len(named) > 1:
        raise refused("contradictory", f"the answer names {' and '.join(map(repr, named))}")
    if not named:
        raise refused("off_menu", "the answer is none of the labels")
    (name,) = named
    head = next((line for line in lines if line.named or not line.plain), None)
    if head is None or not head.plain:
        raise refused("off_menu", f"the answer speaks of {name!r} without giving it alone on its first line")
    if any(line.named and not line.plain and not _NEGATION.isdisjoint(line.rest) for line in lines):
        raise refused("off_menu", f"the answer gives {name!r} and then negates it")

    # Each number is the option's value, alone ("Score 3") or with the top of the scale ("3 of 4").
    numbers = [line.numbers for line in lines if line.plain and line.numbers]
    if numbers and name == CANNOT_JUDGE:
        raise refused("contradictory", f"the answer gives {name!r} together with a number")
    if numbers and name not in values:
        raise refused("off_menu", f"the answer gives {name!r}, which has no value, with the number {numbers[0][0]:g}")
    for group in numbers:
        value, known = values[name], set(values.values())
        if group not in ((value,), (value, max(known))):
            status = "contradictory" if group[0] in known - {value} else "off_menu"
            raise refused(status, f"the answer gives {name!r}, whose value is {value:g}, with the number {group[0]:g}")
    return _given(name)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One folded line of an answer."""

    named: tuple[str, ...]
    """Names of the options in it."""
    rest: tuple[str, ...]
    """Its words without the options."""

    @classmethod
    def read(cls, line: str, phrases: Mapping[str, str]) -> _Line:
        tokens = fold(_LINE_MARK.sub("", line)).split()
        found = [
            (start, start + len(words), name)
            for words, name in ((phrase.split(), name) for phrase, name in phrases.items())
            for start in range(len(tokens) - len(words) + 1)
            if tokens[start : start + len(words)] == words
        ]
        # What lies inside a longer phrase is not meant.
        spans = [
            (start, end, name)
            for start, end, name in found
            if not any(s <= start and end <= e and e - s > end - start for s, e, _ in found)
        ]
        covered = {i for start, end, _ in spans for i in range(start, end)}
        return cls(
            named=tuple(dict.fromkeys(name for _, _, name in spans)),
            rest=tuple(token for i, token in enumerate(tokens) if i not in covered),
        )

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers in `rest`."""
        return tuple(float(token) for token in self.rest if _NUMBER.fullmatch(token))

    @property
    def plain(self) -> bool:
        """Whether nothing but decoration stands around the options."""
        words = [token for token in self.rest if not _NUMBER.fullmatch(token)]
        # "3 of 4" is a number with its scale; "of" without two numbers is prose.
        return all(word in DECORATION or (word in _OF and len(self.numbers) == 2) for word in words)


def _given(name: str) -> str:
    if name == CANNOT_JUDGE:
        raise ReplyError("abstained", f"the judge answered {CANNOT_JUDGE!r}")
    return name


def _phrases(options: Iterable[tuple[str, tuple[str, ...]]]) -> dict[str, str]:
    """Return folded name or alias → option, for those that mean one option only. Names go before aliases."""
    found: dict[str, str] = {}
    for meanings in ([(alias, name) for name, its in options for alias in its], [(name, name) for name, _ in options]):
        owners: dict[str, set[str]] = {}
        for phrase, name in meanings:
            owners.setdefault(fold(phrase), set()).add(name)
        found |= {phrase: names.pop() for phrase, names in owners.items() if phrase and len(names) == 1}
    return {**found, fold(CANNOT_JUDGE): CANNOT_JUDGE}


def _folded(char: str) -> str:
    """Return a character of the folded text: itself, a space, or a word of its own for a symbol."""
    if char in _KEPT:
        return _KEPT[char]
    kind = unicodedata.category(char)[0]
    if kind in "LNM":
        return char
    return f" {char} " if kind == "S" and char not in _MARKUP else " "
