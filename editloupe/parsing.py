"""Parse a free-text answer to one of several options, or to a status. Nothing is ever guessed.

The answer and the options are compared after folding (`fold`), without marks of the model's server, formatting and a
statement of confidence. Accepted are, in this order:

1. the whole answer is an option;
2. the whole answer is an alias of exactly one option;
3. a JSON object whose key is one of `ANSWER_KEYS` and whose value is read like an answer; its other keys are not read;
4. a line of the answer holds an option and nothing but decoration: the words of `DECORATION`, a list mark, and numbers
   that agree with the option. No prose stands before that line. Prose behind it, on the same line behind a mark or a
   "because", or on later lines, must explain it (`prose.explains`).

Two different options anywhere in the answer are "contradictory". So is a number that is another option's value. All else
is "off_menu": an option inside a sentence ("I lean towards X", "not X"), a question ("X?"), a number alone (unless it is
an alias), an option that does not exist, an option beside prose that may take it back. Of "no" and of one letter only what
cannot be an article counts: "A." and "Option A", but neither "a level" nor "No answer". `CANNOT_JUDGE` is read like an
option and gives "abstained".
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Final

from editloupe.errors import ReplyError
from editloupe.prose import explains, negates
from editloupe.values import distinct_keys, parse_json

CANNOT_JUDGE: Final = "Cannot Judge"
"""The words with which a judge abstains. No option may be called so."""

DECORATION: Final = frozenset(
    word
    for words in (
        "the my i we is as it its this edit for in will with here overall therefore thus hence so = > → ✅ ✔ ✓ ☑ 👉",
        "🎉 🏆 ★ ⭐ 👍 🟢 label labels score answer final result verdict rating grade level category class classification",
        "evaluation assessment judgement judgment decision conclusion choice option output choose select pick assign rate",
        "rated classified classify qualifies give go selected chosen correct appropriate best highest",
        "标签 标签是 标签为 答案 答案是 最终答案 最终答案是 最终标签 回答 结论 结论是 评级 判定 我选择",
        "結論 評価 最終回答 ラベル ラベルは です 레이블 답변 판정 최종 답 정답은 입니다",
        "das die der ist lautet antwort endgültige ergebnis urteil bewertung la es est è etiqueta respuesta veredicto",
        "resultado étiquette réponse finale risposta etichetta resposta rótulo ответ итог метка вердикт cevap odpowiedź",
        "etykieta svar antwoord nhãn",
    )
    for word in words.split()
)
"""Words that may stand around an option without changing what is said. A closed list: "not" and "almost" are out."""

ANSWER_KEYS: Final = frozenset(
    ("answer", "final answer", "label", "final label", "verdict", "rating", "category", "choice", "decision", "result")
)
"""Keys, folded, under which a JSON object holds the answer."""

REASON_KEYS: Final = frozenset(
    ("reason", "reasoning", "explanation", "justification", "rationale", "why", "comment", "comments", "note", "notes",
     "thought", "thoughts", "thinking", "analysis")
)  # fmt: skip
"""Keys, folded, under which a JSON object says why."""

_BESIDE_KEYS = REASON_KEYS | {"confidence", "score", "value"}
"""Keys, folded, that a JSON object may have beside the answer. Any other may say that the answer does not hold."""
_OF = frozenset({"of", "out"})
_POINTS = frozenset({"point", "points", "pts"})
_UNPARTED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Kana, Chinese characters and Hangul, which stand beside words of other scripts without a blank."""
_BESIDE = re.compile(rf"(?<=[{_UNPARTED}])(?=[^\s{_UNPARTED}])|(?<=[^\s{_UNPARTED}])(?=[{_UNPARTED}])")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_SHOWN = 120
_MOST_DECORATION = 8

# In and beside words some signs carry meaning and are kept: -1 is not 1, 3.5 is not 35, A+ and A- are not A.
_SIGN = re.compile(r"(?<!\w)-(?=\d)")
_PLUS = re.compile(r"(?<!\w)\+(?=\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_GRADE = re.compile(r"(?<=\w)\+(?!\w)|(?<=\b[^\W\d])-(?!\w)")
_SHORT_FORM = re.compile(r"(?<=\w)['’](s|ll)\b")
_DETERMINER = re.compile(r"(?<!\w)(?:[Nn][Oo]|[^\W\d_])(?=\s+(?!(?:or|and)\b)\w)|(?<=\w\s)[aeiouy](?!\w)")
_BRACKETED = re.compile(r"<([^<>]*)>")
_LINE_MARK = re.compile(r"^[ \t]*(?:>+|(?:```|~~~)\w*[ \t]*$)")
_LIST_MARK = re.compile(r"^\s*(?:[-*•]\s+)?(\(?[A-Za-z]|\d{1,2})[.)]\s+")
_QUESTION = re.compile("[?？؟⸮‽⁇⁈❓\u037e]")
_UNFINISHED = re.compile(r"(?<=[\w*`])[ \t]*[-–—]+[ \t]*$", re.MULTILINE)
_UNTICKED = re.compile(r"\[\s*\]|(?<![\w)\]}>*_`.!])!\s*(?=\w)")
"""An empty box, and a "!" in front, which negates in code."""
_REASON = re.compile(r"\s[-–|]\s|\s?—\s?|\s//\s|[:：;；,，]|\.\s|。|[(（]|\s(?=(?:because|since)\s)")
_CONFIDENCE = re.compile(
    r"[(,;\[]?\s*(?:\bwith\s+)?\b(?:confidence(?: level| score)?\s*(?:[:=]|is)?\s*"
    r"[*_]*\s*(?:(?:0?\.[1-9]\d*|1(?:\.0+)?)(?![\d.\s]*%)(?!\w)|(?:[1-9]\d|100)(?:\.\d+)?(?:\s*%|(?!\w))"
    r"|(?:(?:very )?high|medium|moderate|low)\b)"
    r"|(?:[1-9]\d|100)(?:\.\d+)?\s*%\s*confiden(?:ce|t)\b|(?:very )?high confidence\b)",
    re.IGNORECASE,
)
_SERVER_MARK = r"</s>|<\|[^|<>]{1,40}\|>|<｜[^｜<>]{1,40}｜>|<(?:eos|bos|pad|start_of_turn|end_of_turn)>|\[/?INST\]|\[END\]"
SERVER_MARKS = re.compile(rf"^(?:\s*(?:{_SERVER_MARK}))+|(?:(?:{_SERVER_MARK})\s*)+$", re.IGNORECASE)
_FORMATTING = re.compile(
    r"</?(?:b|i|u|p|em|strong|span|div|code|mark|li|h[1-6]|br|label|answer|verdict|result|score)\s*/?>|\\(?:boxed|fbox|text|textbf|textit|textsc|mathrm|mathbf)\b|\$",
    re.IGNORECASE,
)
_KEPT = {"\ue000": "-", "\ue001": ".", "\ue002": "+", "\ue003": "-"}
_MARKUP = frozenset("`^|")


def fold(text: str) -> str:
    """Return the text as it is compared: NFKC and casefolded, one space between words, no punctuation, no Markdown.

    Hyphens and underscores become spaces. A minus before a number, a point between digits and a plus or minus after a
    grade ("A-") stay, and so do symbols (≠, ★, ~): they change what is said. `fold(fold(x)) == fold(x)`.
    """
    # Labels and their parts are folded again with every reply.
    return _fold_known(text) if len(text) <= _SHORT else _fold(text)


def _fold(text: str) -> str:
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


_SHORT = 100
_fold_known = lru_cache(maxsize=4096)(_fold)


def parse_choice(
    text: str, options: Sequence[tuple[str, tuple[str, ...]]], values: Mapping[str, float] | None = None
) -> str:
    """Return the name of the one option that the answer gives.

    options: name and aliases of each option, in the order in which messages list them.
    values: the number of each option, where they have one. A number beside an option must be that option's value.

    Raises ReplyError with the status "unparsed" (nothing to read), "off_menu", "contradictory" or "abstained".
    """
    phrases, values = _phrases(options), values or {}
    top = max(values.values(), default=0.0)
    best = frozenset(name for name, _ in options if fold(name) != "no" and values.get(name, top) == top)
    expected = f"expected one of {', '.join(dict.fromkeys(name for name, _ in options))}"
    flat = " ".join(text.split())
    shown = repr(flat if len(flat) <= _SHOWN else flat[: _SHOWN - 1] + "…")

    def refused(status: str, problem: str) -> ReplyError:
        return ReplyError(status, f"{problem}; {expected}; found {shown}")

    wording = [phrase for name, aliases in options for phrase in (name, *aliases)]
    text = unwrapped(text, wording)
    whole = fold(text)
    if not whole:
        raise ReplyError("unparsed", f"the answer is empty; {expected}")
    unfinished = _UNFINISHED.search(text) and not any(map(_UNFINISHED.search, wording))
    asks = unfinished or _QUESTION.search(text) or _UNTICKED.search(text) or any(map(_raised, text))
    if whole in phrases and not asks:
        return _given(phrases[whole])

    lines = [part for line in text.splitlines() for part in _read(line, phrases, best) if part.named or part.rest]
    named = list(dict.fromkeys(name for line in lines for name in line.named))
    if len(named) > 1:
        raise refused("contradictory", f"the answer names {' and '.join(map(repr, named))}")
    if not named:
        raise refused("off_menu", "the answer is none of the labels")
    (name,) = named
    head = next((line for line in lines if line.named or not line.plain), None)
    if head is None or not head.plain:
        raise refused("off_menu", f"the answer speaks of {name!r} without giving it alone on its first line")
    if asks or not all(name == CANNOT_JUDGE or line.plain or line.explains(name, best=name in best) for line in lines):
        raise refused("off_menu", f"the answer gives {name!r} beside words that may take it back")

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


def unwrapped(text: str, wording: Iterable[str] = ()) -> str:
    """Return an answer without marks of the model's server, formatting and a statement of confidence, and out of its JSON.

    wording: the options, which may hold what else is decoration: "$5", "<b>", "Which cup?".
    """
    wording = list(wording)
    for pattern in (SERVER_MARKS, _FORMATTING, _CONFIDENCE):
        if not any(map(pattern.search, wording)):
            text = pattern.sub(" ", text)
    if any(map(_QUESTION.search, wording)):
        text = _QUESTION.sub(" ", text)
    return _in_json(text)


def with_reason(line: str) -> Iterator[tuple[str, str]]:
    """Yield each way in which a line may be an answer, of at most 300 characters, and its reason."""
    for cut in takewhile(lambda cut: cut.start() <= 300, _REASON.finditer(line)):
        yield line[: cut.start()], line[cut.end() :]


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One folded line of an answer."""

    named: tuple[str, ...]
    """Names of the options in it."""
    rest: tuple[str, ...]
    """Its words without the options."""
    raw: str
    """The line as it was written."""
    beside: bool = False
    """Whether it stands on the line of the option that it explains."""

    @classmethod
    def read(cls, line: str, phrases: Mapping[str, str], *, beside: bool = False) -> _Line:
        line = _SHORT_FORM.sub(lambda m: " is" if m[1] == "s" else " will", line)
        unmeant = _DETERMINER.sub(lambda m: ("¬" if len(m[0]) > 1 else "an") if fold(m[0]) in phrases else m[0], line)
        tokens = _words(fold(unmeant))
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
            raw=line,
            beside=beside,
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
        return len(words) <= _MOST_DECORATION and around.issuperset(words)

    def explains(self, name: str, *, best: bool) -> bool:
        """Return whether it is a reason for the option that stands before it."""
        if self.named and negates(self.rest):
            return False
        said = " ".join(self.rest)
        return explains(said, raw=self.raw, best=best, beside=self.beside, own=_words(fold(name)))


def _read(line: str, phrases: Mapping[str, str], best: frozenset[str]) -> list[_Line]:
    """Return a line, in two parts where it gives an option and then a reason."""
    line = _LINE_MARK.sub("", line)
    mark = _LIST_MARK.match(line)
    if mark and fold(mark[1]) not in phrases:
        line = line[mark.end() :]
    whole = _Line.read(line, phrases)
    if whole.plain or not whole.named:
        return [whole]
    for before, after in with_reason(line):
        label = _Line.read(before, phrases)
        if len(label.named) != 1 or not label.plain:
            continue
        reason = _Line.read(after, phrases, beside=True)
        if reason.explains(label.named[0], best=label.named[0] in best):
            return [label, reason]
    return [whole]


def without_name(text: str, metric: str, *, in_json: bool = False) -> str:
    """Return an answer without the metric's id or its initials: "Instruction Following: X" and "IF: X" become "X".

    in_json: whether it may also be the key of a JSON object, which then becomes "label".
    """
    words = re.split(r"[\s_-]+", metric)
    initials = "".join(word[0].upper() for word in words if word)
    name = "(?i:" + r"[\s_-]+".join(map(re.escape, words)) + rf"(?:\s*\({initials}\))?)"
    names = f"{name}|{initials}" if len(initials) > 1 else name
    if in_json:
        text = re.sub(rf"([\"'])(?:{names})\1\s*:", '"label":', text)
    return re.sub(rf"(?m)^((?:[^\S\n]|[*_#>-])*)(?:{names})(?:\s+[Ll]abel)?[\s*_]*[:=：]", r"\1", text)


def _in_json(text: str) -> str:
    """Return what a JSON object gives as the answer, with its score; the text itself if it is no such object."""
    try:
        data = parse_json(re.sub(r"^\s*```\w*|```\s*$", "", text), object_pairs_hook=distinct_keys)
    except ValueError:
        return text
    if not isinstance(data, dict):
        return text
    keys = {fold(key): value for key, value in data.items()}
    if len(keys) < len(data) or not keys.keys() <= ANSWER_KEYS | _BESIDE_KEYS:
        return text
    if "confidence" in keys and not re.search("[1-9a-z]", str(keys["confidence"] or "")):
        return text
    given = [value for key, value in keys.items() if key in ANSWER_KEYS]
    numbers = [keys[key] for key in ("score", "value") if key in keys]
    if not given + numbers or not all(isinstance(value, str | int | float) for value in given):
        return text
    return "\n".join([*map(str, given), *(f"Score: {number}" for number in numbers)])


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
    found[fold(CANNOT_JUDGE)] = CANNOT_JUDGE
    return {"".join(phrase.split()): name for phrase, name in found.items()} | found


def _raised(char: str) -> bool:
    """Return whether a sign is raised, lowered or a fraction: folding would drop what it says."""
    return unicodedata.decomposition(char).startswith(("<super>", "<sub>", "<fraction>"))


def _folded(char: str) -> str:
    """Return a character of the folded text: itself, a space, or a word of its own for a symbol."""
    if char in _KEPT:
        return _KEPT[char]
    kind = unicodedata.category(char)[0]
    if kind in "LNM":
        return char
    return f" {char} " if kind == "S" and char not in _MARKUP else " "
