"""What a request differs in from the nearest one that is recorded: the words of every replay miss."""

from __future__ import annotations

import json
from collections.abc import Container
from itertools import zip_longest

from editloupe.backends.payload import one_line
from editloupe.chat import Message, Request, message_hash
from editloupe.traces.events import Header, ModelCall
from editloupe.traces.read import Trace
from editloupe.values import digest


def shared_with(known: Container[str], request: Request) -> tuple[int, str]:
    """Return how many first messages of a request are among the known hashes, and the hash of the last of them."""
    hashes = _chain(request)
    return next(((n, hashes[n - 1]) for n in range(len(hashes), 0, -1) if hashes[n - 1] in known), (0, ""))


def difference(trace: Trace, request: Request, shared: int) -> str:
    """Return the first field in which a request differs from a trace whose first `shared` messages are its own."""
    recorded = trace.messages()
    if shared < len(request.messages):
        now = request.messages[shared]
        if shared >= len(recorded):
            return f"message {shared + 1} ({now.role}): the recording ends before it"
        return f"message {shared + 1}: {message_difference(recorded[shared], now)}"
    heads = {event.head: event for event in trace.events if isinstance(event, ModelCall)}
    call = heads.get(_chain(request)[-1])
    if call is None:
        return f"its length: nothing was asked after message {len(request.messages)}"
    return _settings_difference(trace.header, call, request)


def message_difference(recorded: Message, now: Message, *, was: str = "recorded", is_: str = "now") -> str:
    """Return the first field in which two messages differ: "FIELD: recorded …, now …".

    was, is_: what the two are called.
    """
    for name, old, new in (
        ("role", recorded.role, now.role),
        ("tool_call_id", recorded.tool_call_id, now.tool_call_id),
        ("tool_calls", [c.to_json() for c in recorded.tool_calls], [c.to_json() for c in now.tool_calls]),
        ("images", [p.to_json() for p in recorded.images], [p.to_json() for p in now.images]),
    ):
        if old != new:
            return f"{name}: {was} {short(old)}, {is_} {short(new)}"
    if recorded.text != now.text:
        pairs = enumerate(zip_longest(recorded.text, now.text))
        at = next(n for n, (old, new) in pairs if old != new)
        return f"text, from character {at + 1}: {was} {_around(recorded.text, at)}, {is_} {_around(now.text, at)}"
    return "the parts' order" if recorded.parts != now.parts else "carry"


def _settings_difference(header: Header, call: ModelCall, request: Request) -> str:
    native = header.judge.get("tool_protocol") == "native"
    was = {str(t["name"]): str(t["schema"]) for t in header.tools} if native else {}
    now = {tool.name: digest(tool.to_json()) for tool in request.tools}
    if changed := [name for name in sorted(was.keys() | now.keys()) if was.get(name) != now.get(name)]:
        return f"tools, their descriptions or arguments: {', '.join(changed)}"
    sampling, sampled = header.judge.get("sampling"), request.sampling.to_json()
    if sampling != sampled:
        return f"sampling: recorded {short(sampling)}, now {short(sampled)}"
    if call.held != (request.answer_schema is not None):
        return f"whether the answer is held to a schema: recorded {call.held}, now {not call.held}"
    return f"whether tools may be called (now {request.calls_allowed})"


def _chain(request: Request) -> list[str]:
    """Return the hash of each message, as a trace has it."""
    hashes: list[str] = []
    for message in request.messages:
        hashes.append(message_hash(message, hashes[-1] if hashes else None))
    return hashes


def _around(text: str, at: int) -> str:
    return repr(("…" if at > 20 else "") + text[max(0, at - 20) : at + 40] + ("…" if len(text) > at + 40 else ""))


def short(value: object) -> str:
    """Return JSON, cut to a line."""
    return one_line(json.dumps(value, ensure_ascii=False), 160)
