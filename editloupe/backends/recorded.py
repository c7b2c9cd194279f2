"""Answers from the traces of a run: the same questions again, without a model, a network or a key.

recorded/RUN               the folder of a run with one judge
recorded/RUN?judge=ID      the judge's id, or its beginning, where the run holds several

A request is answered where the run holds the very same one: messages, images by their digests, tools, sampling, schema.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

from editloupe.backends.base import NOT_LMMS, BackendURI, Traits, check_parameters, parse_uri
from editloupe.backends.endpoint import max_image_side
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.backends.request_diff import chain, difference
from editloupe.chat import Message, Reply, Request
from editloupe.data.images import ImageStore
from editloupe.data.run_file import read_run_file
from editloupe.errors import ConfigError, ContextTooLong, NotRecorded, Rejected, TraceError
from editloupe.tasks import task_from_json
from editloupe.traces.events import MessageEvent, ModelCall, ModelFailure
from editloupe.traces.read import held, read_trace
from editloupe.values import Json, digest

Recorded: TypeAlias = tuple[ModelCall | ModelFailure, str]
"""The first answer to a request, else the first failure; its trace and the number of the call."""


def open_backend(uri: BackendURI) -> RecordedLMM:
    """Open `recorded/RUN`. Raises ConfigError: no run folder, several judges and none named, nothing recorded."""
    if not uri.model:
        raise ConfigError("recorded needs a run folder: recorded/runs/first")
    check_parameters(uri, ("judge",))
    folder = Path(uri.model)
    return RecordedLMM(folder, *_chosen(folder, uri.params.get("judge")))


class RecordedLMM:
    """One judge's recorded answers. Thread-safe: nothing is written, and nothing is asked live.

    A request that was asked several times (repeats of a task) gets the first answer each time. A recorded failure without
    a later answer fails again, with its message, and is not tried again.
    """

    endpoint, version = "in process", ""

    def __init__(self, folder: Path, judge_id: str, judge: Mapping[str, Json]) -> None:
        self._folder = folder
        self._answers: dict[str, Recorded] = {}
        # For the words of a miss: which trace holds a message, and which one begins with these images.
        self._holders: dict[str, Path] = {}
        self._openings: dict[tuple[str, ...], Path] = {}
        self._held = self._with_tokens = False
        problems = self._read(
            path for path in sorted((folder / "traces" / judge_id).glob("*/*.jsonl")) if ".aside-" not in path.name
        )
        if not self._answers:
            more = f" ({problems[0]})" if problems else ""
            raise ConfigError(f"{folder}: judge {judge_id} has no recorded answer{more}; judge with it first")
        recorded = parse_uri(str(judge.get("backend")))
        content: list[Json] = [
            [key, event.reply, []] if isinstance(event, ModelCall) else [key, None, [event.error, event.message]]
            for key, event in sorted((key, event) for key, (event, _) in self._answers.items())
        ]
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
            constrains_schema=self._held,
            gives_logprobs=self._with_tokens,
            image_tokens=image_tokens_of(recorded.model),
            max_image_side=max_image_side(recorded),
        )

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return the recorded answer. Raises NotRecorded where there is none, else the recorded failure."""
        found = self._answers.get(request.key())
        if found is None:
            raise NotRecorded(self._missing(request))
        event, where = found
        if isinstance(event, ModelFailure):
            error = ContextTooLong if event.error == "ContextTooLong" else Rejected
            raise error(f"recorded in {where}: {event.error}: {event.message}")
        return replace(event.content, sent={**event.content.sent, "recorded_in": where})

    def _read(self, paths: Iterable[Path]) -> list[str]:
        """Take in the traces; returns what could not be read."""
        problems: list[str] = []
        for path in paths:
            try:
                trace = read_trace(path)
            except TraceError as error:
                problems.append(str(error))
                continue
            problems += trace.problems
            self._held |= held(trace.events)
            for event in trace.events:
                if isinstance(event, MessageEvent):
                    self._holders.setdefault(event.hash, path)
                    if event.parent is None:
                        self._openings.setdefault(_images(event.content), path)
                elif isinstance(event, ModelCall | ModelFailure):
                    self._with_tokens |= isinstance(event, ModelCall) and bool(event.reply.get("tokens"))
                    known = self._answers.get(event.request_key)
                    if known is None or (isinstance(event, ModelCall) and isinstance(known[0], ModelFailure)):
                        where = f"{path.relative_to(self._folder)}, call {event.ordinal + 1}"
                        self._answers[event.request_key] = event, where
        return problems

    def _missing(self, request: Request) -> str:
        """Return what a miss says: the nearest recording, and where the request differs from it."""
        head = f"{self._folder} holds no answer to this request"
        hashes = chain(request.messages)
        shared = next((i for i in range(len(hashes), 0, -1) if hashes[i - 1] in self._holders), 0)
        if shared:
            path = self._holders[hashes[shared - 1]]
        elif _images(request.messages[0]) in self._openings:
            path = self._openings[_images(request.messages[0])]
        else:
            return f"{head}: none of its conversations begins with these images"
        trace = read_trace(path)
        asked = task_from_json(trace.header.task)
        nearest = f"{head}; the nearest is {path.relative_to(self._folder)} ({asked.about}, {asked.metric})"
        return f"{nearest}, and differs in {difference(trace, request, shared)}"


def _images(message: Message) -> tuple[str, ...]:
    return tuple(part.image.sha256 for part in message.images)


def _chosen(folder: Path, wanted: str | None) -> tuple[str, Mapping[str, Json]]:
    """Return the judge of a run whose id begins as wanted, and its id. Raises ConfigError where it is not one."""
    listed = read_run_file(folder).get("judges")
    judges = {id_: judge for id_, judge in listed.items() if isinstance(judge, dict)} if isinstance(listed, dict) else {}
    found = [id_ for id_ in judges if id_.startswith(wanted or "")]
    if len(found) == 1:
        return found[0], judges[found[0]]
    named = "; ".join(f"{id_} ({judge.get('backend')})" for id_, judge in judges.items()) or "none"
    whose = f" whose id begins with {wanted!r}" if wanted else ""
    raise ConfigError(f"{folder}: expected one judge{whose}, found {len(found)}; name one with ?judge=ID: {named}")
