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
from typing import NamedTuple, TypeAlias

from editloupe.answers import _unfenced as unfenced
from editloupe.answers import fold
from editloupe.chat import MalformedCall, Reply, ToolCall
from editloupe.values import Json, canonical_json, check_nesting

THINKING = "Start Thinking"
TOOL_CALL = "tool_call"
FINAL_ANSWER = "Start Final Answer"

_OWN = (
    "think",
    "thinking",
    "thought",
    "thoughts",
    "reasoning",
    "reflection",
    "scratchpad",
    "seed:think",
    "|beginofthought|",
)
_KINDS = dict.fromkeys((*_OWN, "|endofthought|"), "own") | {
    **dict.fromkeys(("startthinking", "endthinking"), "thinking"),
    **dict.fromkeys(("startfinalanswer", "endfinalanswer", "finalanswer"), "answer"),
    **dict.fromkeys(("|channel|", "|message|", "|start|", "|end|", "|return|", "|call|"), "channel"),
    "toolcall": "call",
}
"""Name of a tag, without slash, case, blanks and underscores → what it parts."""
_MARK = re.compile(r"<([^<>]{1,40})>|\[(/?THINK)\]|◁(/?think)▷")
_FENCE = re.compile(r"```[a-zA-Z_]{0,20}\n?")
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‟": '"', "‘": "'", "’": "'"})
_TURN_ENDS = re.compile(r"<\|(?:end|return|call|start)\|>")

_SPECIAL = re.compile(r"<[|｜][^<>|｜]{1,40}[|｜]>|</s>|<(?:eos|end_of_turn)>")
"""What a server leaves of its model's own tokens."""
_SPECIAL_END = re.compile(rf"(?:{_SPECIAL.pattern})\Z")
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
    pieces, at = [], 0
    for tag in tags_in(text):
        pieces += [text[at : tag.start], "‹", text[tag.start + 1 : tag.end - 1], "›"]
        at = tag.end
    return "".join([*pieces, text[at:]])


def one_line(text: str) -> str:
    """Return a text from outside on one line, without our tags, as it may stand inside a question."""
    return neutralise(" ".join(text.split()))


def parse_reply(reply: Reply, *, turn: int, native: bool = False) -> Parsed:
    """Parse one reply. Calls that the adapter found stand first. `turn` numbers the calls.

    native: tools are called through the provider's own tool calling; a call in the text is then a malformed one.
    """
    own, blocks = _parts(reply.text)
    thoughts = [reply.reasoning, *own]
    calls, malformed = list(reply.tool_calls), list(reply.malformed_calls)
    answers: list[str] = []
    plain: list[str] = []
    tagged = False
    for kind, body, closed in blocks:
        if kind in ("thinking", "own"):
            thoughts.append(body)
        elif kind == "answer":
            tagged = True
            # Half an answer may be another label: "Good" of "Good with flaws".
            if closed or reply.finish != "length":
                answers.append(_bare(body))
        elif kind == "plain":
            plain.append(body)
        else:
            for found in _calls_in(body, cut=not closed):
                if isinstance(found, MalformedCall):
                    malformed.append(found)
                elif native:
                    # The server's own parser leaves calls in the text where the reply did not end.
                    malformed.append(MalformedCall(raw=body.strip(), error=CUT if reply.finish == "length" else AS_TEXT))
                else:
                    calls.append(ToolCall(id=f"call_{turn}_{len(calls) + 1}", name=found[0], arguments=found[1]))
    given = [answer for answer in answers if answer]
    whole = not tagged and not calls and not malformed
    if whole and reply.finish != "length":
        given = [answer for answer in [_bare("".join(plain))] if answer]
    elif not any(map(str.strip, thoughts)):
        thoughts += plain
    return Parsed(
        thought="\n".join(thought.strip() for thought in thoughts if thought.strip()),
        calls=tuple(calls),
        malformed=tuple(malformed),
        answer=given[-1] if given else None,
        tagged=tagged and bool(given),
        contradictory=len(set(given)) > 1 and len(set(map(fold, set(given)))) > 1,
    )


def parse_bare(reply: Reply, *, last_line: bool) -> Parsed:
    """Parse the reply of a model that was trained to answer alone, without our tags.

    last_line: the answer is the last line, and the lines before it are the thought. Such a reply has none where it was cut
    off. Else the whole text is the answer, also where it was cut off.
    """
    own, blocks = _parts(reply.text)
    thoughts = [reply.reasoning, *own, *(body for kind, body, _ in blocks if kind == "own")]
    answer = "\n".join(body for kind, body, _ in blocks if kind == "plain").strip()
    if last_line:
        before, _, answer = answer.rpartition("\n")
        thoughts.append(before)
        answer = "" if reply.finish == "length" else answer.strip()
    thought = "\n".join(thought.strip() for thought in thoughts if thought.strip())
    return Parsed(thought=thought, calls=(), malformed=(), answer=answer or None)


def _bare(text: str) -> str:
    """Return an answer out of its code fence, without special tokens before and behind it."""
    for _ in range(4):
        text = text.strip()
        head, tail = _SPECIAL.match(text), _SPECIAL_END.search(text, max(0, len(text) - 50))
        text = text[head.end() if head else 0 : tail.start() if tail else len(text)]
    return unfenced(text)


_Block: TypeAlias = tuple[str, str, bool]


def _parts(text: str) -> tuple[list[str], list[_Block]]:
    """Return the thoughts of harmony's channels and those before a lone closing tag, and the blocks of the other text."""
    thoughts: list[str] = []
    if "<|channel|>" in text:
        first, *channels = text.split("<|channel|>")
        said = [first]
        for channel in channels:
            header, _, body = channel.partition("<|message|>")
            body, *behind = _TURN_ENDS.split(body, maxsplit=1)
            (said if header.split()[:1] == ["final"] else thoughts).append(body)
            said += [piece for piece in behind if piece.strip() not in ("assistant", "<|start|>assistant")]
        text = "".join(said).removeprefix("<|start|>assistant")
    tags = [tag for tag in islice(tags_in(text), _MOST_TAGS + 1) if tag.kind != "channel"]
    if len(tags) > _MOST_TAGS:
        return [*thoughts, text], []
    inside, lone = False, 0
    for number, tag in enumerate(tags, start=1):
        if tag.kind == "own":
            lone = number if tag.closes and not inside else lone
            inside = not tag.closes
    if lone:
        thoughts += [body for _, body, _ in _blocks(text, tags[:lone], 0, tags[lone - 1].start)]
    return thoughts, _blocks(text, tags[lone:], tags[lone - 1].end if lone else 0, len(text))


def _blocks(text: str, tags: list[Tag], begun: int, over: int) -> list[_Block]:
    """Return the text from `begun` to `over` as (kind, body, closed) blocks: "own", "thinking", "call", "answer", and
    "plain" for text outside.

    A tag inside a closed block is text. An open block ends where another begins, but for a model's own thought.
    """
    # Whether each tag is followed by a closing one of its kind before another of its kind opens.
    follows: list[bool] = [False] * len(tags)
    closing: dict[str, bool] = {}
    for index in reversed(range(len(tags))):
        follows[index] = closing.get(tags[index].kind, False)
        closing[tags[index].kind] = tags[index].closes
    blocks: list[_Block] = []
    state, whole, slipped = "plain", True, False

    def end(at: int, *, closed: bool) -> None:
        if text[begun:at].strip() or state != "plain":
            blocks.append((state, text[begun:at], closed))

    for tag, closed in zip(tags, follows, strict=True):
        if state == tag.kind and (tag.closes or state != "own"):
            end(tag.start, closed=True)
            slipped = not tag.closes and state == "answer"
        elif state == "plain" and tag.closes and slipped and tag.kind == "answer":
            # The opening tag before was no slip: its own answer ends here.
            blocks.append(("answer", text[begun : tag.start], True))
            slipped = False
        elif not tag.closes and tag.kind != state and (state == "plain" or (not whole and state != "own")):
            end(tag.start, closed=state == "plain")
            state, begun, whole = tag.kind, tag.end, closed
            continue
        else:
            continue
        state, begun = "plain", tag.end
    end(over, closed=state == "plain")
    return blocks


def _calls_in(block: str, *, cut: bool) -> Iterator[tuple[str, Mapping[str, Json]] | MalformedCall]:
    """Yield the JSON objects of one <tool_call> block. A block that was cut off is not repaired: half a box is no box."""
    if len(block) > _LONGEST_CALL:
        yield MalformedCall(
            raw=block[:1000], error=f"the <tool_call> block has {len(block):,} characters, too many to read"
        )
        return
    body = _FENCE.sub("", block).strip()
    if not body:
        yield MalformedCall(raw=block, error="the <tool_call> block is empty")
        return
    try:
        check_nesting(body)
    except ValueError as error:
        yield MalformedCall(raw=block[:1000], error=f"in the <tool_call> block {error}")
        return
    values = _strict(body)
    if values is None and cut:
        yield MalformedCall(raw=block, error="the <tool_call> block is cut off before its end")
        return
    if values is None:
        values = _repaired(body)
    if not values:
        yield MalformedCall(raw=block, error="the <tool_call> block holds no JSON object")
    for value in values:
        yield _as_call(value)


def _repaired(body: str) -> list[Json]:
    # Most replies need no repair.
    import json_repair

    found: Json = json_repair.loads(body.translate(_QUOTES))
    return [value for value in (found if isinstance(found, list) else [found]) if isinstance(value, Mapping)]


def _strict(body: str) -> list[Json] | None:
    """Return JSON values that follow one another (a list counts as its items); None if the text is anything else."""
    decoder = json.JSONDecoder()
    values: list[Json] = []
    at = 0
    while at < len(body):
        try:
            value, at = decoder.raw_decode(body, at)
        except ValueError:
            return None
        values.extend(value if isinstance(value, list) else [value])
        while at < len(body) and body[at] in " \t\r\n,;":
            at += 1
    return values


def _as_call(value: Json) -> tuple[str, Mapping[str, Json]] | MalformedCall:
    raw = json.dumps(value, ensure_ascii=False)
    if not isinstance(value, Mapping):
        return MalformedCall(raw=raw, error=f"a call must be a JSON object, found {raw[:80]}")
    name = value.get("name")
    if not isinstance(name, str) or not name.strip():
        return MalformedCall(raw=raw, error='a call needs "name", the name of a tool')
    arguments = value.get("parameters", value.get("arguments", {}))
    if not isinstance(arguments, Mapping):
        return MalformedCall(raw=raw, error=f'"parameters" of {name!r} must be a JSON object, found {arguments!r}'[:300])
    try:
        canonical_json(arguments)
    except ValueError:
        return MalformedCall(raw=raw, error=f'"parameters" of {name!r} hold a number that is not finite')
    return name.strip(), arguments
