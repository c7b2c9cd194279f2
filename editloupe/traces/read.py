"""Read and verify a trace. What is damaged, changed or unknown becomes a problem; the rest stays readable."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from editloupe import files
from editloupe.chat import Message, Reply, ToolCall, Usage, message_hash
from editloupe.errors import TraceError
from editloupe.findings import Finding, Observation
from editloupe.replies import Parsed, parse_reply
from editloupe.traces.events import (
    EVENT,
    SCHEMA_VERSION,
    End,
    Event,
    FindingEvent,
    Header,
    MessageEvent,
    ModelCall,
    ModelFailure,
    Note,
    ToolResult,
)
from editloupe.values import Json, cached_property, canonical_json, digest, finite_json, notebook_html, parse_json

_LINE = 200
"""Characters of a line of a trace that is printed."""
_OLDEST = 2
"""The oldest schema that is read: that of 0.2.0."""


@dataclass(frozen=True, kw_only=True)
class Step:
    """Thought → Action → Observation as one value: what `show` and the viewer read."""

    reply: str
    """The model's own text, with its tags."""
    reasoning: str = ""
    """What the backend tells of the model's thought beside the text."""
    calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    aliases: tuple[tuple[str, ...], ...] = ()
    cached: tuple[bool, ...] = ()
    """For each call whether the answer to an equal call of the run was taken; nothing was computed then."""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    note: str = ""

    @cached_property
    def parsed(self) -> Parsed:
        """The parts of the reply: thought, calls and answer."""
        return parse_reply(Reply(text=self.reply, reasoning=self.reasoning), turn=0)

    @property
    def thought(self) -> str:
        """What the model thought, told by the backend or between the tags of its reply; "" for nothing."""
        return self.parsed.thought

    @property
    def answer(self) -> str | None:
        """The text between the answer tags; without tags and calls the whole reply. None for nothing."""
        return self.parsed.answer

    def to_json(self) -> dict[str, Json]:
        """Return the step for programs: pictures are named by their hashes."""
        return {
            "thought": self.thought,
            "reply": self.reply,
            "calls": [call.to_json() for call in self.calls],
            "observations": [
                {**observation.to_json(), "aliases": list(aliases)}
                for observation, aliases in zip(self.observations, self.aliases, strict=True)
            ],
            "usage": self.usage.to_json(),
            "seconds": self.seconds,
            "note": self.note,
        }


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The record of one task."""

    path: Path
    """The file."""
    header: Header
    events: tuple[Event, ...]
    """All events in order, the header included."""
    problems: tuple[str, ...] = ()
    """What could not be read or verified, one line each."""
    tampering: tuple[str, ...] = ()
    """Those of the problems that say that the trace was changed. A torn line or an unknown event is not among them."""

    def __str__(self) -> str:
        lines = []
        for number, step in enumerate(self.steps(), start=1):
            seen = (f"{call.name}: {made.text}" for call, made in zip(step.calls, step.observations, strict=False))
            lines += [" ".join(words.split())[:_LINE] for words in (f"{number}. {step.reasoning} {step.reply}", *seen)]
        finding = last_finding(self.events)
        return "\n".join([*lines, "no finding" if finding is None else str(finding)])

    def _repr_html_(self) -> str | None:
        return notebook_html("trace", self)

    def messages(self) -> tuple[Message, ...]:
        """Return the conversation in order."""
        return tuple(e.content for e in self.events if isinstance(e, MessageEvent))

    def steps(self) -> tuple[Step, ...]:
        """Return thought, action and observation of each model reply, with the notes written since."""
        return tuple(_steps(self.events))


def read_trace(path: Path) -> Trace:
    """Read and verify a trace file. Raises TraceError if there is no file, no header, or another version's schema."""
    try:
        data = files.read_bytes(path)
    except OSError as error:
        raise TraceError(f"{path}: the trace cannot be read: {error.strerror or error}") from error
    lines, end = complete_lines(data)
    events, problems, ends = parse_lines(lines, name=path.name)
    if end < len(data):
        problems.append(f"{path.name}: the last line is cut off ({len(data) - end} bytes), left out")
    if not events or not isinstance(events[0], Header):
        raise TraceError(f"{path}: no header in the first line; this is not a trace")
    changed = (*_broken_chain(events, path.name), *ends)
    return Trace(path=path, header=events[0], events=tuple(events), problems=(*problems, *changed), tampering=changed)


def parse_lines(lines: Sequence[bytes], *, name: str) -> tuple[list[Event], list[str], list[str]]:
    """Parse lines into events. Return them with what cannot be read, and with what was changed before an end.

    Raises TraceError for a trace of a schema that this version does not read.
    """
    events: list[Event] = []
    problems: list[str] = []
    tampering: list[str] = []
    for number, line in enumerate(lines, start=1):
        kind = ""
        try:
            data = finite_json(line)
            kind = str(data.get("kind")) if isinstance(data, dict) else "unknown"
            _check_schema(data, kind, name)
            event = EVENT.validate_python(data)
            _check_shape(event)
        except ValidationError as error:
            first = error.errors()[0]
            where = ".".join(map(str, first["loc"]))
            problem = f"{kind} event: {where}: {first['msg']}" if where else f"unknown event {kind!r}, left out"
            problems.append(f"{name}, line {number}: {problem}")
        except (KeyError, TypeError, ValueError, AssertionError, AttributeError) as error:
            problem = f"{kind} event: not of the expected shape ({error!r}), left out" if kind else f"not JSON ({error})"
            problems.append(f"{name}, line {number}: {problem}")
        else:
            if isinstance(event, End):
                tampering += _changed_before(event, events, lines[: number - 1], name=name)
            events.append(event)
    return events, problems, tampering


def _check_schema(data: Json, kind: str, name: str) -> None:
    version = data.get("version") if isinstance(data, dict) and kind == "header" else None
    if isinstance(version, int) and not _OLDEST <= version <= SCHEMA_VERSION:
        cure = "update editloupe" if version > SCHEMA_VERSION else "editloupe 0.2.0 reads it"
        raise TraceError(
            f"{name}: written with trace schema {version}, this version reads {_OLDEST} to {SCHEMA_VERSION}; {cure}"
        )


def _check_shape(event: Event) -> None:
    """Parse what an event holds. Raises KeyError, TypeError, ValueError and the like if it has another shape."""
    match event:
        case MessageEvent() | ModelCall() | FindingEvent():
            _ = event.content
        case ToolResult():
            ToolCall.from_json(event.call)
            images = Observation.from_json(event.observation).images
            if len(images) != len(event.aliases):
                raise ValueError(f"{len(event.aliases)} names for {len(images)} pictures")


def _changed_before(end: End, events: Sequence[Event], lines: Sequence[bytes], *, name: str) -> Iterator[str]:
    """Yield what is not as it was when the end of a trace was written."""
    if not events or not isinstance(events[0], Header):
        return  # no trace
    if end.lines_digest is None or end.finding_digest is None:
        yield f"{name}: the digests of its end were taken away after it was recorded"
        return
    if lines_digest(lines) != end.lines_digest:
        yield f"{name}: one of the {len(lines)} lines before its end was changed after it was recorded"
    last = next((event.finding for event in reversed(events) if isinstance(event, FindingEvent)), None)
    if finding_digest(last) != end.finding_digest:
        yield f"{name}: its end is that of another finding than the one before it"


def _broken_chain(events: Sequence[Event], name: str) -> Iterator[str]:
    """Yield the problems of the message chain: a changed message, a missing parent, a reply unlike its message."""
    # The last one of a place: what was asked again was answered again.
    replies = {event.head: event for event in events if isinstance(event, ModelCall)}
    known: set[str | None] = {None}
    for event in events:
        if isinstance(event, Header) and event.parent is not None:
            # A fork's first message follows one that lies in its parent's file.
            known.add(str(event.parent.get("head")))
        if not isinstance(event, MessageEvent):
            continue
        message, place = event.content, event.hash[:12]
        if message_hash(message, event.parent) != event.hash:
            yield f"{name}: message {place} was changed after it was recorded (hash mismatch)"
        if event.parent not in known:
            yield f"{name}: message {place} follows {str(event.parent)[:12]}, which is missing"
        known.add(event.hash)
        call = replies.get(str(event.parent))
        if call is not None and not _is_reply(message, call.content):
            changed = f"{name}: model call {call.ordinal + 1} was changed after it was recorded"
            yield f"{changed}: its reply is not that of message {place} recorded from it"


def _is_reply(message: Message, reply: Reply) -> bool:
    """Return whether a message has the text and the calls of a reply. Call ids may differ: the loop makes them unique."""
    if message.role != "assistant":
        return True  # the loop asked once more without an answer in between
    calls = [(c.name, c.arguments) for c in message.tool_calls]
    return message.text == reply.text and calls in ([], [(c.name, c.arguments) for c in reply.tool_calls])


def complete_lines(data: bytes) -> tuple[list[bytes], int]:
    """Return the complete lines of a JSONL file and their length in bytes. A torn last line is left out."""
    end = data.rfind(b"\n") + 1
    return data[:end].splitlines(), end


def lines_digest(lines: Sequence[bytes]) -> str:
    """Return the SHA-256 of the first lines of a trace.

    The header of a fork counts without the path of its parent, which a merge may change.
    """
    head, *rest = lines
    try:
        header = parse_json(head)
        if parent := header.get("parent"):
            head = canonical_json({**header, "parent": {**parent, "trace": None}}).encode("utf-8", "backslashreplace")
    except (ValueError, TypeError, AttributeError):
        pass  # no header: its bytes count
    return hashlib.sha256(b"\n".join((head, *rest))).hexdigest()


def finding_digest(data: Json) -> str | None:
    """Return the digest of a finding's JSON; None if it holds a number that is not finite."""
    try:
        return digest(data)
    except (ValueError, RecursionError):
        return None


def last_finding(events: Iterable[Event]) -> Finding | None:
    """Return the last finding of a trace; None if it has none."""
    return next((event.content for event in reversed(list(events)) if isinstance(event, FindingEvent)), None)


def _steps(events: Iterable[Event]) -> Iterator[Step]:
    begun: list[tuple[ModelCall, list[ToolResult], list[str]]] = []
    results: list[ToolResult] = []
    notes: list[str] = []
    for event in events:
        match event:
            case ModelCall():
                # What failed before the first reply is told with it.
                results, notes = [], [] if begun else notes
                begun.append((event, results, notes))
            case ToolResult():
                results.append(event)
                if event.crashed is not None:
                    notes.append(f"{event.call.get('name')} crashed, which the model is not told: {event.crashed}")
            case Note() if begun:
                notes.append(event.text)
            case ModelFailure():
                notes.append(f"the backend failed: {event.error}: {event.message}")
            case FindingEvent() if event.finding.get("status") != "ok":
                notes.append(f"{event.finding.get('status')}: {event.finding.get('reason')}")
    for call, results, notes in begun:
        yield Step(
            reasoning=call.content.reasoning,
            reply=call.content.text,
            calls=tuple(ToolCall.from_json(r.call) for r in results),
            observations=tuple(Observation.from_json(r.observation) for r in results),
            aliases=tuple(tuple(r.aliases) for r in results),
            cached=tuple(r.cached for r in results),
            usage=call.content.usage,
            seconds=call.seconds + sum(r.seconds for r in results),
            note="\n".join(notes),
        )
