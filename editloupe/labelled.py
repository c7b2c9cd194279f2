"""Read a list of labelled boxes in a model's text, and how probable its labels were. No I/O; nothing is guessed.

Two forms are read, here with the label ADD, the name "cat" and the keys of `Words`:

    {"LIST": [{"LABEL": "ADD", "NAME": "cat", "box": [10, 20, 30, 40]}]}     or the list alone, or its objects
    ADD: cat, [0.1, 0.2, 0.3, 0.4]                                           one a line, or strings in a list

What cannot be read is an entry with a reason, and loses none of the others. An entry inside a sentence is none. Prose may
introduce the entries or explain them (`prose.explains`); what may take them back is refused.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, pairwise
from typing import Final

from editloupe.chat import Token
from editloupe.errors import ReplyError
from editloupe.parsing import DECORATION, SERVER_MARKS, fold
from editloupe.prose import explains
from editloupe.values import Json, check_nesting, distinct_keys

BOX: Final = "box"
CONFIDENCE: Final = "confidence"
"""Keys of an entry that no question renames."""

CUT: Final = "it is cut off"
_QUOTES = "\"'“”„‘’`"
_FENCE = re.compile(r"```(?:[a-zA-Z_]*[ \t]*(?=[\n{\[]))?")
_OBJECT = re.compile(r"\{\s*[\"'}]")
_JSON = re.compile(r"\[(?=\s*\{)|\{")
_NUMBER = re.compile(r"[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?")
_BRACKETS = re.compile(r"\[([^\[\]]*)\]")
_BESIDE_LABEL = f" \t\r\n[](){{}}*:,{_QUOTES}"
_EMPTY = re.compile(rf"[\s{_QUOTES}]*\[\s*\][\s{_QUOTES}.]*")
_NO_CHANGE = re.compile(r"(?:there (?:is|are) )?no ?(?:change|difference)s?(?: (?:found|detected|nothing|none))?")
"""As it is folded."""
_BOX_NAME = re.compile(rf"\bBOUNDING[_ ]BOX[{_QUOTES}]?\s*:\s*$", re.IGNORECASE)
_INTRODUCES: Final = DECORATION | frozenset(
    word
    for words in (
        "json list boxes box bounding coordinates entries elements objects object changes change changed differences",
        "difference differ differs detected found see between two both images image pictures original edited source",
        "first second are following these there which have",
    )
    for word in words.split()
)
"""Words, folded, of a line that introduces the entries and says nothing else. "Example", "form" and "if" are out."""


@dataclass(frozen=True, kw_only=True)
class Words:
    """The words of one question."""

    labels: tuple[str, ...]
    list_key: str
    label_key: str
    name_key: str
    none: str
    """What says that the list is empty, beside "no change" and "no difference"."""

    @cached_property
    def label(self) -> str:
        """A pattern of the labels, in any case."""
        return "(?i:" + "|".join(re.escape(label) for label in sorted(self.labels, key=len, reverse=True)) + ")"

    @cached_property
    def head(self) -> str:
        """A pattern of what stands before the colon of an entry: a label, or a word in its place."""
        return rf"(?:{self.label}\b|(?!(?i:BOUNDING_BOX)\b)[^\W\d_]\w*+)"

    def is_nothing(self, text: str) -> bool:
        """Return whether a text says that the list is empty, and nothing else."""
        folded = fold(text)
        return bool(_EMPTY.fullmatch(text) or _NO_CHANGE.fullmatch(folded)) or (folded != "" and folded == fold(self.none))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry as it was written. Nothing of it is checked."""

    text: str
    at: int | None = None
    """Where its label begins in the answer; None where that is not known."""
    label: Json = None
    name: Json = ""
    box: Json = None
    confidence: Json = None
    why: str = ""
    """Why it is no entry at all; "" for one whose parts can be checked."""


def read_entries(text: str, words: Words) -> list[Entry]:
    """Return the entries as they are written; [] where the text says that there is none.

    Raises ReplyError: unparsed (no entry, and no word that there is none), contradictory (both, or two lists), off_menu
    (prose that may take the entries back).
    """
    text = _blanked(text, words)
    try:
        check_nesting(text)
    except ValueError as error:
        raise ReplyError("unparsed", f"the answer cannot be read: {error}") from error
    found, nothing, prose = (_of_json if _OBJECT.search(text) else _of_lines)(text, words)
    if found and nothing:
        raise ReplyError("contradictory", f"the answer holds entries and says that there is none ({words.none!r})")
    if not found and not nothing:
        raise ReplyError("unparsed", "the answer holds no entry, and does not say that there is none")
    for line in prose:
        said = fold(line)
        if not _INTRODUCES.issuperset(said.split()) and not explains(said, raw=line, best=False):
            raise ReplyError("off_menu", "the entries stand beside words that may take them back")
    return found


def _blanked(text: str, words: Words) -> str:
    """Return the text with blanks in place of marks, fences and an echo of the question: places stay what they are."""

    def blank(match: re.Match[str]) -> str:
        return " " * len(match[0])

    text = _FENCE.sub(blank, SERVER_MARKS.sub(blank, text))
    begins = rf"[\[{{{_QUOTES}]|{words.label}\b|(?i:no ?change)|{re.escape(words.none)}|\Z"
    return re.sub(rf"\A.*(?<!\S)Assistant:\s*(?={begins})", blank, text, flags=re.DOTALL)


# Lines


def _of_lines(text: str, words: Words) -> tuple[list[Entry], bool, list[str]]:
    """Return (entries, whether it says that there is none, what else is said)."""
    marks = rf"[\s\[\](){{}}{_QUOTES}*_>•\-–]*"
    entry = re.compile(rf"{marks}(?:\d{{1,3}}[.)]\s{marks})?(?P<label>{words.head})[\s*_{_QUOTES}]*:(?P<rest>.*)")
    known = re.compile(words.label)
    found: list[Entry] = []
    nothing, prose = False, []
    pieces = list(_pieces(text, words))
    for number, (begin, end) in enumerate(pieces):
        piece = text[begin:end]
        match = entry.match(piece)
        if words.is_nothing(piece):
            nothing = True
        elif match is None:
            prose.append(piece)
        else:
            one = _of_line(piece, match, begin, last=number == len(pieces) - 1)
            if known.fullmatch(match["label"]) or (isinstance(one.box, list) and len(one.box) > 1):
                found.append(one)
            else:
                prose.append(piece)
    return found, nothing, prose


def _pieces(text: str, words: Words) -> Iterator[tuple[int, int]]:
    """Yield where the lines of a text, and the entries of one line, begin and end."""
    cut = re.compile(
        rf"(?<=\])[\s,;|{_QUOTES}]*(?=(?:{words.head})\s*:)|(?<=[{_QUOTES}])\s*[,;]\s*[{_QUOTES}]\s*(?=(?:{words.head})\s*:)"
    )
    introduced = re.compile(rf"([^:\n]{{1,80}}):[\s\[(*{_QUOTES}]*(?={words.label}\b[\s*_{_QUOTES}]*:)")
    for line in re.finditer(r"[^\r\n]+", text):
        if line[0].isspace():
            continue
        at = line.start()
        intro = introduced.match(line[0])
        if intro and _INTRODUCES.issuperset(fold(intro[1]).split()) and not re.fullmatch(words.label, intro[1].strip()):
            at += intro.end()
        for gap in cut.finditer(text, at, line.end()):
            yield at, gap.start()
            at = gap.end()
        yield at, line.end()


def _of_line(piece: str, match: re.Match[str], begin: int, *, last: bool) -> Entry:
    """Return the entry of a piece. `last` is true for the end of the text, where an entry may be cut off."""
    at, rest = begin + match.start("label"), match["rest"]
    shown, label = " ".join(piece[match.start("label") :].split()), match["label"]
    boxes = list(_BRACKETS.finditer(rest))
    if not boxes:
        return Entry(text=shown, at=at, label=label, why=CUT if last else "it has no box")
    box = boxes[-1]
    behind = rest[box.end() :]
    if fold(behind) and not explains(fold(behind), raw=behind, best=False):
        return Entry(text=shown, at=at, label=label, box=_numbers(box[1]), why="words stand behind its box")
    name = _BOX_NAME.sub("", rest[: box.start()]).strip(f" \t,;:*_{_QUOTES}")
    name = re.sub(r"\\([\"'])", r"\1", name)
    return Entry(text=shown, at=at, label=label, name=name, box=_numbers(box[1]))


def _numbers(inside: str) -> list[Json]:
    """Return what stands between brackets: numbers as such, other items as their text."""
    items = [item.strip() for item in inside.split(",")] if inside.strip() else []
    return [float(item) if _NUMBER.fullmatch(item) else item for item in items]


# JSON


def _of_json(text: str, words: Words) -> tuple[list[Entry], bool, list[str]]:
    """Return (entries, whether the list is empty or said to be, what stands outside the JSON)."""
    lists: list[list[Entry]] = []
    alone: list[Entry] = []
    outside, at = [], 0
    decoder = json.JSONDecoder(object_pairs_hook=distinct_keys, strict=False)
    while (begins := _JSON.search(text, at)) is not None:
        begin = begins.start()
        outside.append(text[at:begin])
        try:
            value, at = decoder.raw_decode(text, begin)
        except ValueError:
            mended, in_list, at = _mended(text, begin, words, decoder)
            if in_list:
                lists.append(mended)
            else:
                alone += mended
            continue
        listed = value.get(words.list_key) if isinstance(value, Mapping) else value
        if isinstance(listed, list):
            lists.append([_of_item(item, words) for item in listed])
        elif isinstance(listed, str) and words.is_nothing(listed):
            lists.append([])
        elif isinstance(value, Mapping) and (words.label_key in value or BOX in value):
            alone.append(_of_item(value, words))
        else:
            outside.append(text[begin:at])
    outside.append(text[at:])
    if any(one != lists[0] for one in lists):
        raise ReplyError("contradictory", "the answer holds several lists, and they differ")
    found = [*(lists[0] if lists else []), *alone]
    lines = [line for part in outside for line in part.splitlines() if fold(line)]
    prose = [line for line in lines if not words.is_nothing(line)]
    return _placed(found, text, words), len(prose) < len(lines) or (bool(lists) and not lists[0]), prose


def _of_item(item: Json, words: Words) -> Entry:
    text = json.dumps(item, ensure_ascii=False)
    if not isinstance(item, Mapping):
        return Entry(text=text, why="it is no JSON object")
    name = item.get(words.name_key)
    return Entry(
        text=text,
        label=item.get(words.label_key),
        name="" if name is None else name,
        box=item.get(BOX),
        confidence=item.get(CONFIDENCE),
    )


def _mended(text: str, begin: int, words: Words, decoder: json.JSONDecoder) -> tuple[list[Entry], bool, int]:
    """Read JSON that is broken or cut off. Return its entries, whether they stand in a list, and where it ends.

    Each object of a list is read for itself. Without a list the object is one entry.
    """
    named = rf"{re.escape(json.dumps(words.list_key, ensure_ascii=False))}\s*:\s*\["
    listed = re.compile(r"\[" if text[begin] == "[" else rf"\{{[^{{}}]*?{named}").match(text, begin)
    at = listed.end() if listed else begin
    entries: list[Entry] = []
    while (at := _past(text, at, " \t\r\n,")) < len(text) and text[at] != "]":
        try:
            item, end = decoder.raw_decode(text, at)
            entries.append(_of_item(item, words))
        except ValueError:
            ends = [n for n in (text.find("{", at + 1), text.find("}", at + 1) + 1) if n > 0]
            end = min(ends, default=len(text))
            entries.append(Entry(text=" ".join(text[at:end].split()), why="it is not JSON" if ends else CUT))
        at = end
        if not listed:
            return entries, False, at
    if not entries and at >= len(text):
        # Only a list that ends says that there is none.
        entries = [Entry(text=" ".join(text[begin:].split()), why=CUT)]
    tail = re.compile(r"\]?\s*(?:,[^{}]*)?\}?").match(text, at)
    return entries, True, tail.end() if tail else len(text)


def _past(text: str, at: int, signs: str) -> int:
    while at < len(text) and text[at] in signs:
        at += 1
    return at


def _placed(entries: list[Entry], text: str, words: Words) -> list[Entry]:
    """Return the entries with the places of their labels, where each has one."""
    key = re.escape(json.dumps(words.label_key, ensure_ascii=False))
    places = [match.end() for match in re.finditer(rf'{key}\s*:\s*"\s*', text)]
    if len(places) != len(entries):
        return entries
    return [replace(entry, at=at) for entry, at in zip(entries, places, strict=True)]


# Probabilities


def label_shares(
    answer: str, entries: Sequence[Entry], tokens: Sequence[Token], labels: Sequence[str]
) -> list[float | None]:
    """Return p(label) / Σ p(labels) at the first token of each entry's label; None where that is not known.

    answer: the text in which the entries were read.   tokens: those of the reply that holds it, in their order.
    An alternative counts for the one label that its text, without blanks and quotes, begins or begins with. A label that
    no alternative stands for counts as 0. Returns [] where the tokens do not hold the answer.
    """
    begins = _spoken_at("".join(token.text for token in tokens), answer, [e.at for e in entries if e.at is not None])
    if begins is None:
        return []
    starts, places = list(accumulate((len(token.text) for token in tokens), initial=0)), iter(begins)
    return [
        None if entry.at is None else _share(tokens[bisect_right(starts, next(places)) - 1], str(entry.label), labels)
        for entry in entries
    ]


def _share(token: Token, label: str, labels: Sequence[str]) -> float | None:
    if not token.top or (_meant(token.text, labels) or "").casefold() != label.casefold():
        return None
    # The chosen one need not be among the most probable.
    chosen = () if any(text == token.text for text, _ in token.top) else ((token.text, token.logprob),)
    most = max(logprob for _, logprob in (*token.top, *chosen))
    odds = dict.fromkeys(labels, 0.0)
    for text, logprob in (*token.top, *chosen):
        if (meant := _meant(text, labels)) is not None:
            odds[meant] += math.exp(logprob - most)
    own = next(odds[one] for one in labels if one.casefold() == label.casefold())
    total = math.fsum(odds.values())
    return round(own / total, 6) if total else None


def _meant(text: str, labels: Sequence[str]) -> str | None:
    """Return the one label that a token begins, or begins with; None where it is none or more than one."""
    said = text.strip(_BESIDE_LABEL).casefold()
    found = [label for label in labels if label.casefold().startswith(said) or said.startswith(label.casefold())]
    return found[0] if said and len(found) == 1 else None


def _spoken_at(spoken: str, answer: str, places: Sequence[int]) -> list[int] | None:
    """Return where places of the answer, in their order, lie in the text as it was spoken; None where it is not there.

    What stands between brackets may differ: boxes are recorded in one convention, and spoken in the model's own.
    """
    edges = [0, *places, len(answer)]
    parts = [_any_boxes(answer[begin:end]) for begin, end in pairwise(edges)]
    # The last one: what stands before it is a draft.
    match = next(iter(deque(re.finditer("()".join(parts), spoken), maxlen=1)), None)
    return None if match is None else [match.start(number) for number in range(1, len(places) + 1)]


def _any_boxes(text: str) -> str:
    parts = re.split(r"(\[[^\[\]]*\])", text)
    return "".join(r"\[[^\[\]]*\]" if number % 2 else re.escape(part) for number, part in enumerate(parts))
