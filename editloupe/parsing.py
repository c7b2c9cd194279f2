"""Parse a free-text answer to one of several options, or to a status. Nothing is ever guessed.

The answer and the options are compared after folding (`fold`), without marks of the model's server, formatting and a
statement of confidence. Accepted are, in this order:

1. the whole answer is an option;
2. the whole answer is an alias of exactly one option;
3. a JSON object whose key is one of `ANSWER_KEYS` and whose value is read like an answer; its other keys are not read;
4. a line of the answer holds an option and nothing but decoration: the words of `DECORATION`, a list mark, and numbers
   that agree with the option. No prose stands before that line. Prose after it may explain, as long as it names no other
   option and negates none. Prose on the same line stands behind a dash, colon, full stop or bracket, has at least three
   words, and holds no negation and no doubt.

Two different options anywhere in the answer are "contradictory". So is a number that is another option's value. All else
is "off_menu": an option inside a sentence ("I lean towards X", "not X"), a question ("X?"), a number alone (unless it is
an alias), an option that does not exist. `CANNOT_JUDGE` is read like an option and gives "abstained".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from editloupe.errors import ReplyError
from editloupe.values import distinct_keys, parse_json

CANNOT_JUDGE: Final = "Cannot Judge"
"""The words with which a judge abstains. No option may be called so."""

DECORATION: Final = frozenset(
    {"the", "my", "i", "is", "as", "it", "this", "edit", "for", "in", "label", "labels", "score", "answer", "final",
     "result", "verdict", "rating", "grade", "level", "category", "class", "evaluation", "assessment", "judgement",
     "judgment", "decision", "conclusion", "choose", "select", "pick", "assign", "therefore", "thus", "hence", "so",
     "overall", "=", ">", "→", "✅", "✔", "✓", "☑", "👉", "标签", "答案", "最终答案", "结论", "ラベル"}
)  # fmt: skip
"""Words that may stand around an option without changing what is said. A closed list: "not" and "almost" are out."""

ANSWER_KEYS: Final = frozenset(
    ("answer", "final answer", "label", "final label", "verdict", "rating", "category", "choice", "decision", "result")
)
"""Keys, folded, under which a JSON object holds the answer."""

_OF = frozenset({"of", "out"})
_POINTS = frozenset({"point", "points", "pts"})
# "t" is what folding leaves of "isn't"; "than" stands for "rather than" and "worse than".
_NEGATION = frozenset(
    {"not", "no", "never", "non", "nor", "neither", "without", "cannot", "t", "than", "≠", "~", "¬",
     "nicht", "kein", "keine", "keineswegs", "ne", "pas", "niet", "geen", "inte", "ikke", "não", "не", "нет"}
)  # fmt: skip
_DOUBT = frozenset(
    {"maybe", "perhaps", "possibly", "probably", "almost", "nearly", "hardly", "but", "however", "although", "though",
     "except", "unless", "if", "would", "could", "might", "should", "wait", "actually", "instead", "rather", "unsure",
     "uncertain", "unclear", "unlikely", "doubt", "guess", "guessing", "hard", "depends", "disagree", "ignore", "false",
     "untrue", "incorrect", "mistaken", "opposite", "far", "zero", "none", "nothing", "lacking", "fail", "fails", "failed",
     "misses", "missed", "barely", "excluded", "ruled", "says",
     "say", "said", "claims", "claim", "claimed", "caption", "according"}
)  # fmt: skip
"""Words with which a reason beside a label takes it back, doubts it or quotes it."""
_TAKEN_BACK = frozenset({"back", "kidding", "example"})
"""Words with which a short line after a label takes it back."""
_RETRACTS = re.compile(
    r"^(?:scratch|wait|nope|nein|non|falsch|faux|неверно|correction)\b"
    r"|\b(?:this|that|it|label|answer|verdict) (?:is|was) (?:\w+ )?(?:wrong|incorrect|false|mistaken|invalid)\b"
    r"|\bretract|\bguess(?:ing)?\b|\btake (?:it|that|this) back\b"
)
_RETRACTED = frozenset(
    {"wrong", "incorrect", "false", "rejected", "retracted", "это неверно", "错误", "错了", "間違い", "違います",
     "틀렸습니다", "❌"}
)  # fmt: skip
"""Whole lines that take the label before them back. "Incorrect color." behind a low label is its reason."""
_IS_WRONG = re.compile(r"\b(?:is|was|be|seems|looks)(?: \w+)? wrong\b")
_PREDICATE = frozenset({"is", "was", "are", "does", "can", "will", "has", "had", "seems"})
"""Words that begin a sentence whose subject is the label, and no reason for it."""
_UNPARTED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Kana, Chinese characters and Hangul, which stand beside words of other scripts without a blank."""
_BESIDE = re.compile(rf"(?<=[{_UNPARTED}])(?=[^\s{_UNPARTED}])|(?<=[^\s{_UNPARTED}])(?=[{_UNPARTED}])")
_NEGATED_IN_A_WORD = re.compile("[不没非未无]|ない|ません|아니|않|없")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SHOWN = 120

# In and beside words some signs carry meaning and are kept: -1 is not 1, 3.5 is not 35, A+ and A- are not A.
_SIGN = re.compile(r"(?<!\w)-(?=\d)")
_PLUS = re.compile(r"(?<!\w)\+(?=\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_GRADE = re.compile(r"(?<=\w)\+(?!\w)|(?<=\b[^\W\d])-(?!\w)")
_BRACKETED = re.compile(r"<([^<>]*)>")
_LINE_MARK = re.compile(r"^[ \t]*(?:>+|```\w*[ \t]*$)")
_LIST_MARK = re.compile(r"^\s*(?:[-*•]\s+)?(\(?[A-Za-z]|\d{1,2})[.)]\s+")
_QUESTION_MARKS = "?？؟⸮‽⁇⁈❓\u037e"
_QUESTION = re.compile(f"[{_QUESTION_MARKS}]")
_TAKES_BACK = re.compile(rf"^[\s(]*[{_QUESTION_MARKS}]", re.MULTILINE)
_REASON = re.compile(r"\s[-–]\s|\s?—\s?|[:：]|\.\s|。|[(（]")
_CONFIDENCE = re.compile(
    r"[(,;]?\s*\bconfidence(?: level| score)?\s*(?:[:=]|is)?\s*"
    r"(?:(?!0*(?:\.0*)?(?:[%)\s]|$))\d+(?:\.\d+)?\s*%?|(?:very )?(?:high|medium|moderate|low)\b)",
    re.IGNORECASE,
)
_SERVER_MARK = r"</s>|<\|[^|<>]{1,40}\|>|<｜[^｜<>]{1,40}｜>|<(?:eos|bos|start_of_turn|end_of_turn)>"
_SERVER_MARKS = re.compile(rf"^(?:\s*(?:{_SERVER_MARK}))+|(?:(?:{_SERVER_MARK})\s*)+$")
_FORMATTING = re.compile(
    r"</?(?:b|i|u|p|em|strong|span|div|code|mark|li|h[1-6]|br|label|answer)\s*/?>|\\(?:boxed|fbox|text|textbf|textit|mathrm|mathbf)\b|\$",
    re.IGNORECASE,
)
_KEPT = {"\ue000": "-", "\ue001": ".", "\ue002": "+", "\ue003": "-"}
_MARKUP = frozenset("`^|")


def fold(text: str) -> str:
    """Return the text as it is compared: NFKC and casefolded, one space between words, no punctuation, no Markdown.

    Hyphens and underscores become spaces. A minus before a number, a point between digits and a plus or minus after a
    grade ("A-") stay, and so do symbols (≠, ★, ~): they change what is said. `fold(fold(x)) == fold(x)`.
    """
    # Invisible characters go first, so that they cannot keep a letter and its accent apart; private-use characters go
    # with them, because some serve as place-holders below.
    text = "".join(c for c in text if unicodedata.category(c) not in ("Cf", "Co", "Cs") and not "\ufe00" <= c <= "\ufe0f")
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

    wording = [phrase for name, aliases in options for phrase in (name, *aliases)]
    for pattern in (_SERVER_MARKS, _FORMATTING, _CONFIDENCE):
        # An option may hold what else is decoration: "$5", "<b>", "Which cup?".
        if not any(map(pattern.search, wording)):
            text = pattern.sub(" ", text)
    if any(map(_QUESTION.search, wording)):
        text = _QUESTION.sub(" ", text)
    text = _in_json(text)
    whole = fold(text)
    if not whole:
        raise ReplyError("unparsed", f"the answer is empty; {expected}")
    if whole in phrases and not _QUESTION.search(text):
        return _given(phrases[whole])

    lines = [part for line in text.splitlines() for part in _read(line, phrases) if part.named or part.rest]
    named = list(dict.fromkeys(name for line in lines for name in line.named))
    if len(named) > 1:
        raise refused("contradictory", f"the answer names {' and '.join(map(repr, named))}")
    if not named:
        raise refused("off_menu", "the answer is none of the labels")
    (name,) = named
    head = next((line for line in lines if line.named or not line.plain), None)
    if head is None or not head.plain:
        raise refused("off_menu", f"the answer speaks of {name!r} without giving it alone on its first line")
    if _TAKES_BACK.search(text) or any(line.takes_back for line in lines):
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
    asks: bool
    """Whether a question mark stands in it."""

    @classmethod
    def read(cls, line: str, phrases: Mapping[str, str]) -> _Line:
        tokens = _words(fold(line))
        found = [
            (start, start + len(words), name)
            for words, name in ((_words(phrase), name) for phrase, name in phrases.items())
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
            asks=_QUESTION.search(line) is not None,
        )

    @property
    def numbers(self) -> tuple[float, ...]:
        """The numbers in `rest`."""
        return tuple(float(token) for token in self.rest if _NUMBER.fullmatch(token))

    @property
    def plain(self) -> bool:
        """Whether nothing but decoration stands around the options."""
        words = [token for token in self.rest if not _NUMBER.fullmatch(token)]
        # "3 of 4" is a number with its scale and "3 points" one with its unit; else these words are prose.
        around = DECORATION | (_OF if len(self.numbers) == 2 else set()) | (_POINTS if self.numbers else set())
        return around.issuperset(words) and not self.asks

    @property
    def takes_back(self) -> bool:
        """Whether it negates a label: one that it names, or in a few words the one before it."""
        if self.named:
            return not self.plain and _negates(self.rest)
        said = " ".join(self.rest)
        if said in _RETRACTED or _RETRACTS.search(said):
            return True
        return len(self.rest) <= 6 and (self.rest[0] in _NEGATION or not _TAKEN_BACK.isdisjoint(self.rest))


def _read(line: str, phrases: Mapping[str, str]) -> list[_Line]:
    """Return a line, in two parts where it gives an option and then a reason."""
    line = _LINE_MARK.sub("", line)
    mark = _LIST_MARK.match(line)
    if mark and fold(mark[1]) not in phrases:
        line = line[mark.end() :]
    whole = _Line.read(line, phrases)
    if whole.plain or not whole.named:
        return [whole]
    for cut in _REASON.finditer(line):
        label, reason = _Line.read(line[: cut.start()], phrases), _Line.read(line[cut.end() :], phrases)
        if label.named and label.plain and _explains(reason.rest):
            return [label, reason]
    return [whole]


def without_name(text: str, metric: str) -> str:
    """Return an answer without the metric's id or its initials: "Instruction Following: X" and "IF: X" become "X"."""
    words = re.split(r"[\s_-]+", metric)
    initials = "".join(word[0].upper() for word in words if word)
    name = "(?i:" + r"[\s_-]+".join(map(re.escape, words)) + rf"(?:\s*\({initials}\))?)"
    names = f"{name}|{initials}" if len(initials) > 1 else name
    return re.sub(rf"(?m)^([\s*_#>-]*)(?:{names})(?:\s+[Ll]abel)?[\s*_]*[:=：]", r"\1", text)


def _in_json(text: str) -> str:
    """Return what a JSON object gives as the answer, with its score; the text itself if it is no such object."""
    try:
        data = parse_json(re.sub(r"^\s*```\w*|```\s*$", "", text), object_pairs_hook=distinct_keys)
    except ValueError:
        return text
    if not isinstance(data, dict):
        return text
    given = [value for key, value in data.items() if fold(key) in ANSWER_KEYS]
    if not given or not all(isinstance(value, str) for value in given):
        return text
    numbers = [data[key] for key in ("score", "value") if isinstance(data.get(key), int | float | str)]
    return "\n".join([*given, *(f"Score: {number}" for number in numbers)])


def _explains(words: Sequence[str]) -> bool:
    """Return whether words behind an option give a reason, and neither negate nor doubt it."""
    if len(words) < 3 and not any(len(word) >= 3 and not word.isascii() for word in words):
        return False
    taken_back = not _DOUBT.isdisjoint(words) or words[0] in _PREDICATE or _IS_WRONG.search(" ".join(words))
    taken_back = taken_back or _RETRACTS.search(" ".join(words))
    return not _negates(words) and not taken_back


def _negates(words: Sequence[str]) -> bool:
    return not _NEGATION.isdisjoint(words) or any(map(_NEGATED_IN_A_WORD.search, words))


def _words(folded: str) -> list[str]:
    return _BESIDE.sub(" ", folded).split()


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
