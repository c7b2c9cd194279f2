"""From the words of an answer to one label of a rubric, or to a status. Never a guess (DESIGN.md section 3).

What is accepted, in this order, after folding (`fold`):

1. the whole answer is a label;
2. the whole answer is an alias that belongs to one label only;
3. the answer has a line that holds a label and nothing but decoration (`DECORATION`, numbers that agree with the label),
   and no prose stands before it. Prose on later lines may explain, if it names no other label and negates none.

Two different labels anywhere in the answer are "contradictory", and so is a number that is another label's value. All
the rest is "off_menu": a label inside a sentence ("I lean towards X", "not X"), a number alone (unless an alias says
so), a label that does not exist. `CANNOT_JUDGE` is read like a label and gives "abstained".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from editloupe.errors import ReplyError
from editloupe.records import Grammar, Label, LabelRule

CANNOT_JUDGE: Final = "Cannot Judge"
"""The words by which a judge may say that it cannot; no rubric may use them as a label."""

DECORATION: Final = frozenset(
    {"the", "my", "is", "as", "label", "labels", "score", "answer", "final", "result", "verdict", "rating", "grade",
     "level", "category", "class", "evaluation", "assessment", "judgement", "judgment", "decision", "conclusion", "=", "→"}
)  # fmt: skip
"""Words that may stand around a label without changing what is said. Closed on purpose: "not" and "almost" are out."""

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
    """The text as it is compared: NFKC and casefolded, one space between words, without punctuation and Markdown.

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


def parse_label(answer_text: str, grammar: Grammar) -> Label:
    """The one label that the answer names.

    Raises ReplyError with the status "unparsed" (nothing to read), "off_menu", "contradictory" or "abstained".
    """
    menu = _Menu.of(grammar)
    whole = fold(answer_text)
    if not whole:
        raise ReplyError("unparsed", f"the answer is empty; {menu.wanted}")
    if whole in menu.phrases:
        return menu.take(menu.phrases[whole])

    lines = [line for line in map(menu.read, answer_text.splitlines()) if line.tokens]
    named = {name: None for line in lines for name in line.named}
    shown = _shorten(answer_text)
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
    return menu.take(name)


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One folded line. named: labels in it.   rest: its words without them.   plain: nothing but decoration around."""

    tokens: tuple[str, ...]
    named: tuple[str, ...]
    rest: tuple[str, ...]
    numbers: tuple[float, ...]
    plain: bool


@dataclass(frozen=True, kw_only=True)
class _Menu:
    """A grammar made ready for reading. phrases: folded label or unique alias to the label's name."""

    rules: dict[str, LabelRule]
    phrases: dict[str, str]

    @classmethod
    def of(cls, grammar: Grammar) -> _Menu:
        rules = {rule.name: rule for rule in grammar.labels}
        aliases = _unambiguous((alias, rule.name) for rule in grammar.labels for alias in rule.aliases)
        names = _unambiguous((name, name) for name in rules)
        return cls(rules=rules, phrases={**aliases, **names, fold(CANNOT_JUDGE): CANNOT_JUDGE})

    @property
    def wanted(self) -> str:
        return f"expected one of {', '.join(self.rules)}"

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
        """(start, end, label) of every phrase in the tokens, without those that lie inside a longer one."""
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
        """A number beside the label must be its value, alone ("Score 3") or with the top of the scale ("3 of 4")."""
        if not groups:
            return
        if name == CANNOT_JUDGE:
            raise ReplyError(
                "contradictory", f"the answer gives {name!r} together with a number; {self.wanted}; found {shown}"
            )
        value, top = self.rules[name].value, max(rule.value for rule in self.rules.values())
        for group in groups:
            if group in ((value,), (value, top)):
                continue
            others = {rule.value for rule in self.rules.values()} - {value}
            status = "contradictory" if group[0] in others else "off_menu"
            raise ReplyError(
                status, f"the answer gives {name!r}, whose value is {value:g}, with the number {group[0]:g}; found {shown}"
            )

    def take(self, name: str) -> Label:
        if name == CANNOT_JUDGE:
            raise ReplyError("abstained", f"the judge answered {CANNOT_JUDGE!r}")
        return Label(name=name, value=self.rules[name].value)


def _unambiguous(meanings: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Folded phrase to label, for the phrases that mean one label only."""
    labels: dict[str, set[str]] = {}
    for phrase, name in meanings:
        labels.setdefault(fold(phrase), set()).add(name)
    return {phrase: names.pop() for phrase, names in labels.items() if phrase and len(names) == 1}


def _folded(char: str) -> str:
    """One character of the folded text: itself, a space, or a word of its own for a symbol."""
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
