"""Parse a reply into thought, tool calls and answer: the text protocol of DLEBench (Tables 7 to 14).

- Thought that the server or the model marks is thought: `Reply.reasoning`, `<think>` and its like, harmony's channels. A
  thought without its closing tag goes on to the end; before a closing tag without an opening one, all is thought.
- The answer is what stands between the one last pair of answer tags. Two pairs that differ contradict each other. Without
  tags and without calls, the whole reply is the answer. What stands outside the tags is thought and changes nothing.
- A block also ends at an opening tag of its own kind, as in the paper's own examples. A tag inside a closed block is text.

Whether an answer says anything is the spec's to tell (`answers`). Everything takes time linear in the reply's length.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

from editloupe.answers import fold, unfenced
from editloupe.chat import MalformedCall, Reply, ToolCall
from editloupe.values import Json, check_nesting, not_finite

THINKING = "Start Thinking"
TOOL_CALL = "tool_call"
FINAL_ANSWER = "Start Final Answer"

_OWN = "think thinking thought thoughts reasoning reflection scratchpad seed:think |beginofthought| |endofthought|"
_KINDS = dict.fromkeys(_OWN.split(), "own") | {
    **dict.fromkeys(("startthinking", "endthinking"), "thinking"),
    **dict.fromkeys(("startfinalanswer", "endfinalanswer", "finalanswer"), "answer"),
    **dict.fromkeys(("|channel|", "|message|", "|start|", "|end|", "|return|", "|call|"), "channel"),
    "toolcall": "call",
}
"""Name of a tag, without slash, case, blanks and underscores → what it parts."""
_MARK = re.compile(r"<([^<>]{5,40})>|\[(/?THINK)\]|◁(/?think)▷")
_CHANNEL = re.compile(
    r"(?:<\|start\|>assistant)?<\|channel\|>\s*+(\w*+)[^<]*+(?:<\|constrain\|>[^<]*+)?<\|message\|>"
    r"([^<]*+(?:<(?!\|(?:end|return|call|start|channel)\|>)[^<]*+)*+)(?:<\|(?:end|return|call)\|>)?"
)
"""A message of harmony: its channel, whatever else its header says, and its text. Nothing is tried twice, so that a reply
that loops takes linear time."""
_FENCE = re.compile(r"```[a-zA-Z_]{0,20}\n?")
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‟": '"', "‘": "'", "’": "'"})
_MOST_TAGS = 10_000
"""A reply with more of them loops: it is all thought."""
_LONGEST_CALL = 20_000

AS_TEXT = "the call stands in the text, where nobody reads it: call the tool through your tool calling interface"
CUT = "the reply was cut off at its token limit before the call was complete: think shorter, then call"


class Tag(NamedTuple):
    """A tag of the text protocol, or a mark of a model's own thought, in any spelling that the parser accepts."""

    kind: str
    """"own" (a model's own thought), "thinking", "call", "answer", or "channel"."""
    closes: bool
    """Whether it is written as a closing tag: `</…>` or `<End …>`."""
    start: int
    end: int


class _Block(NamedTuple):
    """A piece of a reply: between two tags, or outside of them ("plain")."""

    kind: str
    text: str
    closed: bool


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The parts of a reply."""

    thought: str
    calls: tuple[ToolCall, ...]
    malformed: tuple[MalformedCall, ...]
    """What looks like a call and cannot be read."""
    answer: str | None
    """The text of the last pair of answer tags; without tags and calls the whole reply. None for nothing."""
    tagged: bool = False
    """Whether the answer stands between answer tags."""
    contradictory: bool = False
    """Whether another pair of answer tags holds another answer."""


def tags_in(text: str) -> Iterator[Tag]:
    """Yield the tags of a text, in any spelling that the parser accepts."""
    for mark in _MARK.finditer(text):
        if (known := _known(mark[0])) is not None:
            yield Tag(*known, *mark.span())


@lru_cache(maxsize=4096)
def _known(mark: str) -> tuple[str, bool] | None:
    """Return the kind of a tag, and whether it closes; None for what is no tag of ours."""
    written = "".join(mark[1:-1].casefold().replace("_", "").split())
    name = written.lstrip("/\\")
    kind = _KINDS.get(name)
    return None if kind is None else (kind, name != written or name.startswith(("end", "|endof")))


def neutralise(text: str) -> str:
    """Return text from outside (instructions, captions, file names, text in images) without our tags.

    Their brackets become ‹ ›: a reader still sees the text, and the parser finds no tag.
    """
    return _MARK.sub(lambda mark: mark[0] if _known(mark[0]) is None else f"‹{mark[0][1:-1]}›", text)


def one_line(text: str) -> str:
    """Return a text from outside on one line, without our tags, as it may stand inside a question."""
    return neutralise(" ".join(text.split()))


def parse_reply(reply: Reply, *, turn: int, native: bool = False) -> Parsed:
    """Parse one reply. Calls that the adapter found stand first. `turn` numbers the calls.

    native: tools are called through the provider's own tool calling; a call in the text is then a malformed one.
    """
    thoughts, blocks = _parts(reply)
    calls, malformed = list(reply.tool_calls), list(reply.malformed_calls)
    cut = reply.finish == "length"
    for block, found in ((one, call) for one in blocks if one.kind == "call" for call in _calls_in(one)):
        if isinstance(found, MalformedCall):
            malformed.append(found)
        elif native:
            # The server's own parser leaves calls in the text where the reply did not end.
            malformed.append(MalformedCall(raw=block.text.strip(), error=CUT if cut else AS_TEXT))
        else:
            calls.append(ToolCall(id=f"call_{turn}_{len(calls) + 1}", name=found[0], arguments=found[1]))
    plain = "".join(block.text for block in blocks if block.kind == "plain")
    tagged = any(block.kind == "answer" for block in blocks)
    # Half an answer may be another label: "Good" of "Good with flaws".
    answers = [block.text for block in blocks if block.kind == "answer" and (block.closed or not cut)]
    if not (tagged or calls or malformed or cut):
        answers = [plain]
    elif not thoughts:
        thoughts = [plain]
    given = [answer for answer in map(unfenced, answers) if answer]
    return Parsed(
        thought="\n".join(thoughts).strip(),
        calls=tuple(calls),
        malformed=tuple(malformed),
        answer=given[-1] if given else None,
        tagged=tagged and bool(given),
        contradictory=len({*given}) > 1 and len({*map(fold, {*given})}) > 1,
    )


def parse_bare(reply: Reply, *, last_line: bool) -> Parsed:
    """Parse the reply of a model that was trained to answer alone, without our tags.

    last_line: the answer is the last line, and the lines before it are the thought. Such a reply has none where it was cut
    off. Else the whole text is the answer, also where it was cut off.
    """
    thoughts, blocks = _parts(reply)
    answer = "\n".join(block.text for block in blocks if block.kind == "plain").strip()
    if last_line:
        before, _, answer = answer.rpartition("\n")
        thoughts.append(before.strip())
        answer = "" if reply.finish == "length" else answer.strip()
    return Parsed(thought="\n".join(thoughts).strip(), calls=(), malformed=(), answer=answer or None)


def _is_object(text: str) -> bool:
    """Return whether a text is one JSON object, in a code fence or not."""
    text = unfenced(text)
    try:
        return text.startswith("{") and isinstance(json.loads(text, strict=False), dict)
    except (ValueError, RecursionError):
        return False


def _parts(reply: Reply) -> tuple[list[str], list[_Block]]:
    """Return the thoughts of a reply, and its other blocks.

    A block also ends where another begins, but for a model's own thought. A tag inside a closed block is text, and so is
    one in a reply that is a JSON object as a whole.
    """
    thoughts = [reply.reasoning]

    def said(message: re.Match[str]) -> str:
        if message[1] == "final":
            return message[2]
        thoughts.append(message[2])
        return ""

    text = _CHANNEL.sub(said, reply.text)
    found = () if _is_object(text) else tags_in(text)
    tags = [tag for tag in islice(found, _MOST_TAGS + 1) if tag.kind != "channel"]
    blocks: list[_Block] = []
    state, begun, whole = "plain", 0, False
    # For each tag, the last one first: whether a closing one of its kind comes before another of its kind opens.
    followed: list[bool] = []
    closing: dict[str, bool] = {}
    for tag in reversed(tags):
        followed.append(closing.get(tag.kind, False))
        closing[tag.kind] = tag.closes
    for tag in tags:
        ends = followed.pop()
        same = tag.kind == state
        alone = tag.kind == "own" and tag.closes and not same
        if not alone and ((state == "own" and not (same and tag.closes)) or (not same and (tag.closes or whole))):
            continue
        blocks.append(_Block(state, text[begun : tag.start], closed=same or state == "plain"))
        if alone:
            # Nobody opened this thought: all before is thought.
            thoughts += [block.text for block in blocks]
            blocks.clear()
        opens = not tag.closes and (not same or ends)
        state, begun, whole = (tag.kind, tag.end, ends) if opens else ("plain", tag.end, False)
    blocks.append(_Block(state, text[begun:], closed=state == "plain"))
    if len(tags) > _MOST_TAGS:
        thoughts, blocks = [*thoughts, text], []
    thoughts += [block.text for block in blocks if block.kind in ("own", "thinking")]
    return [thought.strip() for thought in thoughts if thought.strip()], [b for b in blocks if b.text.strip() or b.closed]


def _calls_in(block: _Block) -> Iterator[tuple[str, Mapping[str, Json]] | MalformedCall]:
    """Yield the calls of one <tool_call> block, and what is none. One that was cut off is not repaired."""
    try:
        values = _values(block)
    except ValueError as error:
        yield MalformedCall(raw=block.text[:1000], error=f"the <tool_call> block {error}")
        return
    for value in values:
        try:
            yield _call(value)
        except ValueError as error:
            yield MalformedCall(raw=json.dumps(value, ensure_ascii=False), error=str(error)[:300])


def _values(block: _Block) -> list[Json]:
    """Return the JSON values of a block that follow one another; a list counts as its items. Raises ValueError."""
    if len(block.text) > _LONGEST_CALL:
        raise ValueError(f"has {len(block.text):,} characters, too many to read")
    body = _FENCE.sub("", block.text).strip()
    if not body:
        raise ValueError("is empty")
    check_nesting(body)
    values: list[Json] = []
    at = 0
    try:
        while at < len(body):
            value, at = json.JSONDecoder().raw_decode(body, at)
            values += value if isinstance(value, list) else [value]
            at = len(body) - len(body[at:].lstrip(" \t\r\n,;"))
    except ValueError:
        if not block.closed:
            raise ValueError("is cut off before its end") from None
        # Most replies need no repair.
        import json_repair

        found: Json = json_repair.loads(body.translate(_QUOTES))
        values = [value for value in (found if isinstance(found, list) else [found]) if isinstance(value, Mapping)]
    if not values:
        raise ValueError("holds no JSON object")
    return values


def _call(value: Json) -> tuple[str, Mapping[str, Json]]:
    """Return the name and the arguments of a call. Raises ValueError, which says what is wrong."""
    if not isinstance(value, Mapping):
        raise ValueError(f"a call must be a JSON object, found {json.dumps(value, ensure_ascii=False)[:80]}")
    name, arguments = value.get("name"), value.get("parameters", value.get("arguments", {}))
    if not isinstance(name, str) or not name.strip():
        raise ValueError('a call needs "name", the name of a tool')
    if not isinstance(arguments, Mapping):
        raise ValueError(f'"parameters" of {name!r} must be a JSON object, found {arguments!r}')
    if where := not_finite(arguments):
        raise ValueError(f'"parameters" of {name!r}: {where} is not finite')
    return name.strip(), arguments
