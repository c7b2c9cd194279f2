"""Parse a reply into thought, tool calls and answer: the text protocol of DLEBench (Tables 7 to 14).

Only the model's own messages are read. The parser accepts code fences, typographic quotes, single quotes, text around the
blocks and closing tags without their slash, which the paper's own examples have. What stands in `<think>…</think>`, as many
models write it, is a thought: no tag in it counts. No tag in a comment or in the JSON of a call counts either. An answer
that is quoted inside a sentence, shown as an example, or gone back on behind its tags is none. The parser never makes up a
call or a label.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import json_repair

from editloupe.chat import MalformedCall, Reply, ToolCall
from editloupe.parsing import DECORATION, fold, unwrapped
from editloupe.prose import explains
from editloupe.tags import TAGS, closes, with_think_tags
from editloupe.values import Json, canonical_json, check_nesting


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """The parts of a reply."""

    thought: str
    calls: tuple[ToolCall, ...]
    malformed: tuple[MalformedCall, ...]
    """What looks like a call and cannot be read."""
    answer: str | None
    """Text between the answer tags, several joined by newlines. Without tags: what stands behind "Final Answer:" on the
    last line; else None."""
    unused: str = ""
    """Why text between answer tags is no answer, for example because it is quoted; "" where there is none."""


_FENCE = re.compile(r"```[a-zA-Z_]*\n?|```")
_ANSWER_FENCE = re.compile(r"```(?:[a-zA-Z_]*[ \t]*(?=[\n{\[]))?")
"""Around an answer. A word behind it is a language only before a line's end or JSON: it may be the answer's first."""
_FINAL = re.compile(
    r"^[#>*_\s]*(?:the )?final answer(?: is)?[*_\s]*(?:[:：=]|\s-\s)?[*_\s]*$"
    r"|^[#>*_\s]*(?:(?:the )?final answer(?: is)?[*_\s]*(?:[:：=]|\s-\s)|the final answer is\b)(.*)$",
    re.IGNORECASE,
)
_DECISION = re.compile(r"^[*_#>\s]*(?:decision|(?:final )?answer)[*_\s]*[:：][*_\s]*", re.IGNORECASE)
_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_CLOSING = frozenset({"", "done", "end", "finished", "end of answer"})
"""What may stand behind the answer tags and says nothing."""
_QUOTING = frozenset(
    {"not", "never", "example", "form", "format", "template", "if", "would", "say", "says", "said", "read", "reads",
     "wrote", "writes", "write", "user", "sign", "caption", "instruction", "instead"}
)  # fmt: skip
"""Words of a line that introduces an example or somebody else's words."""
_QUOTES = str.maketrans({"“": '"', "”": '"', "„": '"', "‟": '"', "‘": "'", "’": "'"})


AS_TEXT = "the call stands in the text, where nobody reads it: call the tool through your tool calling interface"
CUT = "the reply was cut off at its token limit before the call was complete: think shorter, then call"


def parse_reply(
    reply: Reply, *, turn: int, native: bool = False, choices: tuple[str, ...] | None = None, whole: bool = False
) -> Parsed:
    """Parse one reply. Calls that the adapter found stand first. `turn` numbers the calls.

    native: tools are called through the provider's own tool calling; a call in the text is then a malformed one.
    choices: what the reply was held to; one of them alone, without tags, is then the answer. A backend that writes the
    tags all the same is read as ever.
    whole: the reply was held to a JSON Schema; a text without tags is then the answer.
    """
    bare = reply.text.strip()
    alone = bare in (choices or ()) or (whole and bool(bare) and TAGS.search(bare) is None)
    if alone and reply.finish != "length":
        # Cut at the token limit it may be the beginning of another one.
        return Parsed(thought=reply.reasoning.strip(), calls=(), malformed=(), answer=bare)
    own, text = _own_thoughts(_COMMENT.sub(_without_tags, with_think_tags(reply.text)))
    thoughts = [reply.reasoning.strip(), *own]
    calls, malformed = list(reply.tool_calls), list(reply.malformed_calls)
    answers: list[str] = []
    blocks = _blocks(text)
    for kind, body, closed in blocks:
        if kind == "thinking":
            thoughts.append(body.strip())
        elif kind == "answer" and (closed or reply.finish != "length"):
            # Half an answer may be another label: "Good" of "Good with flaws".
            # A line's end, so that what stands before and behind it does not become one word.
            answers.append(_ANSWER_FENCE.sub("\n", body).strip())
        elif kind == "call":
            for found in _calls_in(body, cut=not closed):
                if isinstance(found, MalformedCall):
                    malformed.append(found)
                elif native and reply.finish == "length":
                    # The server's own parser leaves calls in the text where the reply did not end.
                    malformed.append(MalformedCall(raw=body.strip(), error=CUT))
                elif native:
                    malformed.append(MalformedCall(raw=body.strip(), error=AS_TEXT))
                else:
                    calls.append(ToolCall(id=f"call_{turn}_{len(calls) + 1}", name=found[0], arguments=found[1]))
    given = [a for a in answers if a]
    if reply.finish != "length" and all(kind != "call" for kind, _, _ in blocks):
        given += _named_answers(blocks, beside_tags=bool(answers))
    unused = _unused(blocks) if answers and len({fold(a) for a in given}) == 1 else ""
    if unused:
        given = []
    if not any(thoughts):
        thoughts = [body.strip() for kind, body, _ in blocks if kind == "plain"]
    return Parsed(
        thought="\n".join(t for t in thoughts if t),
        calls=tuple(calls),
        malformed=tuple(malformed),
        answer="\n".join(given) if given else None,
        unused=unused,
    )


def parse_bare(reply: Reply, *, last_line: bool) -> Parsed:
    """Parse the reply of a model that answers alone, without our tags.

    last_line: the answer is the last line, behind "Decision:" where that stands, and the lines before it are the thought.
    Such a reply has none where it was cut off. Else the whole text is the answer.
    """
    own, text = _own_thoughts(with_think_tags(reply.text))
    lines = [line.strip() for line in text.strip().splitlines()]
    before: list[str] = []
    if last_line:
        before, lines = lines[:-1], [] if reply.finish == "length" else lines[-1:]
    answer = _DECISION.sub("", "\n".join(lines)).strip() if last_line else "\n".join(lines)
    thoughts = [reply.reasoning.strip(), *own, "\n".join(before).strip()]
    return Parsed(thought="\n".join(t for t in thoughts if t), calls=(), malformed=(), answer=answer or None)


def _own_thoughts(text: str) -> tuple[list[str], str]:
    """Return the thoughts in the model's own tags, and the text without them.

    Without its opening tag a thought begins with the text; without its closing tag it goes on to the end. In a block of the
    protocol that is closed, such a tag is text.
    """
    thoughts: list[str] = []
    rest, begun, inside, block = "", 0, False, 0
    tags = list(TAGS.finditer(text))
    for index, tag in enumerate(tags):
        if tag.start() < block:
            continue
        if not tag["own"]:
            if not inside and not closes(tag):
                block = next((t.start() for t in tags[index + 1 :] if t.lastgroup == tag.lastgroup), 0)
            continue
        if inside and not closes(tag):
            continue
        part, begun = text[begun : tag.start()], tag.end()
        if not closes(tag):
            rest += part
        else:
            thoughts.append(part if inside else rest + part)
            rest = rest if inside else ""
        inside = not closes(tag)
    if inside:
        thoughts.append(text[begun:])
    else:
        rest += text[begun:]
    return [thought.strip() for thought in thoughts], rest


def _without_tags(comment: re.Match[str]) -> str:
    return " " if TAGS.search(comment[0]) else comment[0]


def _unused(blocks: list[tuple[str, str, bool]]) -> str:
    """Return why none of the answers counts: each is quoted, or text behind the last one goes on. "" where one counts."""
    last, before = -1, ""
    for index, (kind, body, _) in enumerate(blocks):
        if kind == "answer" and not _quoted(before):
            last = index
        before = body if kind == "plain" else ""
    if last < 0:
        return "the answer tags stand inside other text, as if they were quoted"
    behind = [body for kind, body, _ in blocks[last + 1 :] if kind == "plain"]
    lines = unwrapped(TAGS.sub(" ", _FENCE.sub(" ", "\n".join(behind)))).splitlines()
    said = [words for line in lines if (words := fold(line)) not in _CLOSING]
    if not all(len(words.split()) >= 3 and explains(words) for words in said):
        return "the text behind the answer tags may take the answer back"
    return ""


def _quoted(before: str) -> bool:
    """Return whether the text before an answer makes it a quotation or an example."""
    *above, beside = TAGS.sub("\n", before).split("\n") or [""]
    if words := fold(unwrapped(_FENCE.sub(" ", beside))).split():
        return not DECORATION.issuperset(words)
    line = next((line for line in reversed(above) if fold(_FENCE.sub(" ", line))), "")
    return fold(line) != "" and line.rstrip(" *_`\t").endswith((":", "：")) and _introduces(line)


def _introduces(line: str) -> bool:
    """Return whether a line says that an example or somebody else's words follow."""
    return not _QUOTING.isdisjoint(fold(line).split())


def _named_answers(blocks: list[tuple[str, str, bool]], *, beside_tags: bool) -> list[str]:
    """Return what lines outside thoughts give as "Final Answer: …", without any tag; [] where the text behind them goes on.

    beside_tags: whether there is an answer between tags too; a heading alone is then that one's.
    """
    text = "\n".join(body for kind, body, _ in blocks if kind == "plain")
    lines = [line for line in text.splitlines() if fold(line)]
    found, last = [], len(lines)
    for number, line in enumerate(lines):
        if (match := _FINAL.match(line)) is None:
            continue
        below = lines[number + 1] if number + 1 < len(lines) and not beside_tags else ""
        answer = (match[1] or below).strip("*_ ")
        if answer and not (number and _introduces(lines[number - 1])):
            found.append(answer)
            last = number + 1 + (not match[1])
    if beside_tags:
        return found
    rest = unwrapped("\n".join(lines[last:])).splitlines()
    return found if all(explains(said, raw=line) for line in rest if (said := fold(line))) else []


def _blocks(text: str) -> list[tuple[str, str, bool]]:
    """Return the text as (kind, body, closed) blocks: "thinking", "call", "answer", and "plain" for text outside.

    A tag inside a closed thought or call is text. An open block ends where another begins.
    """
    tags = list(TAGS.finditer(text))
    blocks: list[tuple[str, str, bool]] = []
    state, begun = "plain", 0

    def end(at: int, *, closed: bool) -> None:
        if text[begun:at].strip() or state != "plain":
            blocks.append((state, text[begun:at], closed))

    for index, tag in enumerate(tags):
        kind, opening = tag.lastgroup, not closes(tag)
        if kind in (None, "own") or (state == "plain" and not opening):
            continue
        if state == kind:
            # The paper's own examples close a block with an opening tag.
            end(tag.start(), closed=True)
            state, begun = "plain", tag.end()
        elif state == "plain" or (opening and not (state in ("thinking", "call") and _closes(state, tags[index + 1 :]))):
            end(tag.start(), closed=state == "plain")
            state, begun = kind, tag.end()
    end(len(text), closed=state == "plain")
    return blocks


def _closes(kind: str, tags: list[re.Match[str]]) -> bool:
    """Return whether a later tag closes the open block before another of its kind opens."""
    return next((closes(t) for t in tags if t[kind]), False)


def _calls_in(block: str, *, cut: bool) -> Iterator[tuple[str, Mapping[str, Json]] | MalformedCall]:
    """Yield the JSON objects of one <tool_call> block. A block that was cut off is not repaired: half a box is no box."""
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
        repaired: Json = json_repair.loads(body.translate(_QUOTES))
        values = [v for v in (repaired if isinstance(repaired, list) else [repaired]) if isinstance(v, Mapping)]
    if not values:
        yield MalformedCall(raw=block, error="the <tool_call> block holds no JSON object")
    for value in values:
        yield _as_call(value)


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
