"""Answers from the traces of a run: the same questions again, without a model, a network or a key.

recorded/RUN               the folder of a run with one judge
recorded/RUN?judge=ID      the judge's id, or its beginning, where the run holds several

A request is answered where the run holds the very same one: messages, images by their digests, tools, sampling, schema.
"""

from __future__ import annotations

import json
from collections.abc import Container, Mapping
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path

from editloupe.backends.base import NOT_LMMS, BackendURI, Traits, check_parameters, parse_uri
from editloupe.backends.endpoint import max_image_side
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.backends.payload import one_line
from editloupe.chat import Message, Reply, Request, message_hash
from editloupe.data.images import ImageStore
from editloupe.data.run_file import read_run_file
from editloupe.errors import ConfigError, ContextTooLong, NotRecorded, Rejected, TraceError
from editloupe.tasks import task_from_json
from editloupe.traces.events import Header, MessageEvent, ModelCall, ModelFailure
from editloupe.traces.read import Trace, read_trace
from editloupe.values import Json, digest


def open_backend(uri: BackendURI) -> RecordedLMM:
    """Open `recorded/RUN`. Raises ConfigError: no run folder, several judges and none named, nothing recorded."""
    if not uri.model:
        raise ConfigError("recorded needs a run folder: recorded/runs/first")
    check_parameters(uri, ("judge",))
    folder, wanted = Path(uri.model), uri.params.get("judge", "")
    listed = read_run_file(folder).get("judges")
    judges = {id_: judge for id_, judge in listed.items() if isinstance(judge, dict)} if isinstance(listed, dict) else {}
    found = [id_ for id_ in judges if id_.startswith(wanted)]
    if len(found) != 1:
        named = "; ".join(f"{id_} ({judge.get('backend')})" for id_, judge in judges.items()) or "none"
        whose = f" whose id begins with {wanted!r}" if wanted else ""
        raise ConfigError(f"{folder}: expected one judge{whose}, found {len(found)}; name one with ?judge=ID: {named}")
    return RecordedLMM(folder, found[0], judges[found[0]])


class RecordedLMM:
    """One judge's recorded answers. Thread-safe: nothing is written, and nothing is asked live.

    A request that was asked several times (repeats of a task) gets the first answer each time. A recorded failure without
    a later answer fails again, with its message, and is not tried again.
    """

    endpoint, version = "in process", ""

    def __init__(self, folder: Path, judge_id: str, judge: Mapping[str, Json]) -> None:
        self._folder = folder
        self._answers: dict[str, tuple[ModelCall | ModelFailure, str]] = {}
        """Request → its first answer, else its first failure; its trace and the number of the call."""
        self._traces: dict[str, Path] = {}
        """Hash of a message, or `_images` of a first one → the first trace that holds it, for the words of a miss."""
        problems: list[str] = []
        for path in sorted((folder / "traces" / judge_id).glob("*/*.jsonl")):
            problems += self._read(path) if ".aside-" not in path.name else []
        if not self._answers:
            more = f" ({problems[0]})" if problems else ""
            raise ConfigError(f"{folder}: judge {judge_id} has no recorded answer{more}; judge with it first")
        recorded = parse_uri(str(judge.get("backend")))
        events = {key: event for key, (event, _) in sorted(self._answers.items())}
        answered = {key: event for key, event in events.items() if isinstance(event, ModelCall)}
        failed = {key: [event.error, event.message] for key, event in events.items() if isinstance(event, ModelFailure)}
        content: list[Json] = [[k, answered[k].reply if k in answered else None, failed.get(k, [])] for k in events]
        name = recorded.provider + (f"/{recorded.model}" if recorded.model else "")
        params = {**recorded.params, "run": digest(content)[:12]}
        # The recorded judge's backend, with a digest of all its answers: what the folder is called is no part.
        self.uri = str(BackendURI(provider="recorded", model=name, params=params))
        self.traits = Traits(
            describes=f"what {recorded} answered in {folder.name}, from its traces",
            is_lmm=recorded.provider not in NOT_LMMS,
            live=False,
            native_tools=judge.get("tool_protocol") == "native",
            tool_result_images=True,
            constrains_schema=any(call.held for call in answered.values()),
            gives_logprobs=any(call.reply.get("tokens") for call in answered.values()),
            image_tokens=image_tokens_of(recorded.model),
            max_image_side=max_image_side(recorded),
        )

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return the recorded answer. Raises NotRecorded where there is none, else the recorded failure."""
        found = self._answers.get(request.key())
        if found is None:
            raise NotRecorded(f"{self._folder} holds no answer to this request{self._nearest(request)}")
        event, where = found
        if isinstance(event, ModelFailure):
            error = ContextTooLong if event.error == "ContextTooLong" else Rejected
            raise error(f"recorded in {where}: {event.error}: {event.message}")
        return replace(event.content, sent={**event.content.sent, "recorded_in": where})

    def _read(self, path: Path) -> tuple[str, ...]:
        """Take in a trace. Return what could not be read."""
        try:
            trace = read_trace(path)
        except TraceError as error:
            return (str(error),)
        for event in trace.events:
            if isinstance(event, MessageEvent):
                self._traces.setdefault(event.hash, path)
                if event.parent is None:
                    self._traces.setdefault(_images(event.content), path)
            elif isinstance(event, ModelCall | ModelFailure):
                known = self._answers.get(event.request_key)
                if known is None or (isinstance(event, ModelCall) and isinstance(known[0], ModelFailure)):
                    where = f"{path.relative_to(self._folder)}, call {event.ordinal + 1}"
                    self._answers[event.request_key] = event, where
        return trace.problems

    def _nearest(self, request: Request) -> str:
        """Return which recording is the nearest to a request, and where the two differ."""
        shared, last = shared_with(self._traces, request)
        path = self._traces.get(last or _images(request.messages[0]))
        if path is None:
            return ": none of its conversations begins with these images"
        trace = read_trace(path)
        asked = task_from_json(trace.header.task)
        nearest = f"; the nearest is {path.relative_to(self._folder)} ({asked.about}, {asked.metric})"
        return f"{nearest}, and differs in {difference(trace, request, shared)}"


def _images(message: Message) -> str:
    return "images " + " ".join(part.image.sha256 for part in message.images)


# What a request differs in from a recording: the words of every replay miss


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
