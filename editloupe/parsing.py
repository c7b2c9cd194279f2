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
    menu = _Menu.of(options, values or {})
    whole = fold(text)
    if not whole:
        raise ReplyError("unparsed", f"the answer is empty; {menu.wanted}")
    if whole in menu.phrases:
        return _given(menu.phrases[whole])

    lines = [line for line in map(menu.read, text.splitlines()) if line.tokens]
    named = {name: None for line in lines for name in line.named}
    shown = _shorten(text)
    if len(named) > 1:
        raise ReplyError("contradictory", f"the answer names {_listed(list(named))}; {menu.wanted}; found {shown}")
    if not named:
        raise ReplyError("off_menu", f"the answer is none of the labels; {menu.wanted}; found {shown}")
    (name,) = named

    head = next((line for line in lines if line.named or not line.plain), None)
    if head is None or not head.plain:
        raise ReplyError(
            "off_menu",
            f"the answer speaks of {name!r} without giving it alone on its first line; {menu.wanted}; found {shown}",
        )
    if any(line.named and not line.plain and not _NEGATION.isdisjoint(line.rest) for line in lines):
        raise ReplyError("off_menu", f"the answer gives {name!r} and then negates it; {menu.wanted}; found {shown}")
    menu.check_numbers(name, [line.numbers for line in lines if line.plain and line.numbers], shown)
    return _given(name)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One folded line of an answer."""

    tokens: tuple[str, ...]
    """Its words."""
    named: tuple[str, ...]
    """Names of the options in it."""
    rest: tuple[str, ...]
    """Its words without the options."""
    numbers: tuple[float, ...]
    """The numbers in `rest`."""
    plain: bool
    """Whether nothing but decoration stands around the options."""


@dataclass(frozen=True, kw_only=True)
class _Menu:
    """The options made ready for reading."""

    names: tuple[str, ...]
    """As they were given."""
    values: Mapping[str, float]
    """Empty where the options have no numbers."""
    phrases: dict[str, str]
    """Folded name or unique alias to the option's name."""

    @classmethod
    def of(cls, options: Sequence[tuple[str, tuple[str, ...]]], values: Mapping[str, float]) -> _Menu:
        aliases = _unambiguous((alias, name) for name, its in options for alias in its)
        names = _unambiguous((name, name) for name, _ in options)
        return cls(
            names=tuple(dict.fromkeys(name for name, _ in options)),
            values=values,
            phrases={**aliases, **names, fold(CANNOT_JUDGE): CANNOT_JUDGE},
        )

    @property
    def wanted(self) -> str:
        return f"expected one of {', '.join(self.names)}"

    def read(self, line: str) -> _Line:
        tokens = tuple(fold(_LINE_MARK.sub("", line)).split())
        spans = self._spans(tokens)
        covered = {i for start, end, _ in spans for i in range(start, end)}
        rest = tuple(token for i, token in enumerate(tokens) if i not in covered)
        numbers = tuple(float(token) for token in rest if _NUMBER.fullmatch(token))
        words = [token for token in rest if not _NUMBER.fullmatch(token)]
        # "3 of 4" is a number with its scale; "of" without two numbers is prose.
        plain = all(word in DECORATION or (word in _OF and len(numbers) == 2) for word in words)
        return _Line(
            tokens=tokens,
            named=tuple(dict.fromkeys(name for _, _, name in spans)),
            rest=rest,
            numbers=numbers,
            plain=plain,
        )

    def _spans(self, tokens: Sequence[str]) -> list[tuple[int, int, str]]:
        """Return (start, end, option) of every phrase in the tokens, without those that lie inside a longer one."""
        found = [
            (start, start + size, name)
            for phrase, name in self.phrases.items()
            for words in [phrase.split()]
            for size in [len(words)]
            for start in range(len(tokens) - size + 1)
            if list(tokens[start : start + size]) == words
        ]
        return [
            (start, end, name)
            for start, end, name in found
            if not any(s <= start and end <= e and e - s > end - start for s, e, _ in found)
        ]

    def check_numbers(self, name: str, groups: Sequence[tuple[float, ...]], shown: str) -> None:
        """Check that each number is the option's value, alone ("Score 3") or with the top of the scale ("3 of 4")."""
        if not groups:
            return
        if name == CANNOT_JUDGE:
            raise ReplyError(
                "contradictory", f"the answer gives {name!r} together with a number; {self.wanted}; found {shown}"
            )
        if name not in self.values:
            raise ReplyError(
                "off_menu",
                f"the answer gives {name!r}, which has no value, with the number {groups[0][0]:g}; found {shown}",
            )
        value, top = self.values[name], max(self.values.values())
        for group in groups:
            if group in ((value,), (value, top)):
                continue
            others = set(self.values.values()) - {value}
            status = "contradictory" if group[0] in others else "off_menu"
            raise ReplyError(
                status, f"the answer gives {name!r}, whose value is {value:g}, with the number {group[0]:g}; found {shown}"
            )


def _given(name: str) -> str:
    if name == CANNOT_JUDGE:
        raise ReplyError("abstained", f"the judge answered {CANNOT_JUDGE!r}")
    return name


def _unambiguous(meanings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return folded phrase to option, for the phrases that mean one option only."""
    found: dict[str, set[str]] = {}
    for phrase, name in meanings:
        found.setdefault(fold(phrase), set()).add(name)
    return {phrase: names.pop() for phrase, names in found.items() if phrase and len(names) == 1}


def _folded(char: str) -> str:
    """Return a character of the folded text: itself, a space, or a word of its own for a symbol."""
    if char in _KEPT:
        return _KEPT[char]
    kind = unicodedata.category(char)[0]
    if kind in "LNM":
        return char
    return f" {char} " if kind == "S" and char not in _MARKUP else " "


def _listed(names: Sequence[str]) -> str:
    return " and ".join(repr(name) for name in names)


def _shorten(text: str) -> str:
    flat = " ".join(text.split())
    return repr(flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…")
