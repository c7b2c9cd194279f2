"""Answers from the traces of a run: the same questions again, without a model, a network or a key.

recorded/RUN               the folder of a run with one judge
recorded/RUN?judge=ID      the judge's id, or its beginning, where the run holds several

A request is answered where the run holds the very same one: messages, images by their digests, tools, sampling, schema.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from editloupe.backends.base import NOT_LMMS, BackendURI, Traits, check_parameters, parse_uri
from editloupe.backends.endpoint import max_image_side
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.backends.request_diff import difference, shared_with
from editloupe.chat import Message, Reply, Request
from editloupe.data.images import ImageStore
from editloupe.data.run_file import read_run_file
from editloupe.errors import ConfigError, ContextTooLong, NotRecorded, Rejected, TraceError
from editloupe.tasks import task_from_json
from editloupe.traces.events import MessageEvent, ModelCall, ModelFailure
from editloupe.traces.read import read_trace
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
