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
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.data.run_file import read_run_file
from editloupe.errors import ConfigError, ContextTooLong, NotRecorded, Rejected, ReplayMiss, TraceError
from editloupe.findings import JudgeSpec
from editloupe.traces.cassette import Cassette
from editloupe.traces.events import ModelCall, ModelFailure
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


def recorded_traits(judge: Mapping[str, Json], *, held: bool, logprobs: bool = False, where: str = "") -> Traits:
    """Return the traits under which the same judge is asked the same requests, as far as its identity and replies say.

    held: whether a reply was held to a schema.   logprobs: whether one holds its tokens.   where: the run's name.
    """
    recorded = parse_uri(str(judge.get("backend")))
    return Traits(
        describes=f"what {recorded} answered{where and f' in {where}, from its traces'}",
        is_lmm=recorded.provider not in NOT_LMMS,
        live=False,
        native_tools=judge.get("tool_protocol") == "native",
        tool_result_images=True,
        constrains_schema=held,
        gives_logprobs=logprobs,
        bare_replies=bool(judge.get("bare_replies")),
        image_tokens=image_tokens_of(recorded.model),
        max_image_side=max_image_side(recorded),
    )


class Unasked:
    """Stands in for a recorded judge where all is recorded: it has the recorded traits and gives no answers."""

    def __init__(self, judge: JudgeSpec, *, held: bool) -> None:
        self.uri, self.endpoint, self.version = judge.backend, judge.endpoint, judge.backend_version
        self.traits = recorded_traits(judge.to_json(), held=held)

    def complete(self, request: Request, images: ImageStore) -> Reply:
        raise ReplayMiss(f"{self.uri} is not asked in a replay")


class RecordedLMM:
    """One judge's recorded answers. Thread-safe: nothing is written, and nothing is asked live.

    A request that was asked several times (repeats of a task) gets the first answer each time. A recorded failure without
    a later answer fails again, with its message, and is not tried again.
    """

    endpoint, version = "in process", ""

    def __init__(self, folder: Path, judge_id: str, judge: Mapping[str, Json]) -> None:
        self._folder = folder
        self._answers: dict[str, tuple[ModelCall | ModelFailure, Path]] = {}
        """Request → its first answer, else its first failure; and the trace."""
        self._problems: list[str] = []
        for path in sorted((folder / "traces" / judge_id).glob("*/*.jsonl")):
            if ".aside-" not in path.name:
                self._read(path)
        if not self._answers:
            raise ConfigError(f"{folder}: judge {judge_id} has no recorded answer{self._unread()}; judge with it first")
        events = [event for _, (event, _) in sorted(self._answers.items())]
        calls = [event for event in events if isinstance(event, ModelCall)]
        held, logprobs = any(call.held for call in calls), any(call.reply.get("tokens") for call in calls)
        self.traits = recorded_traits(judge, held=held, logprobs=logprobs, where=folder.name)
        content: list[Json] = [
            [e.request_key, e.reply, []] if isinstance(e, ModelCall) else [e.request_key, None, [e.error, e.message]]
            for e in events
        ]
        recorded = parse_uri(str(judge.get("backend")))
        # The recorded judge's backend, with a digest of all its answers: what the folder is called is no part.
        params = {**recorded.params, "run": digest(content)[:12]}
        self.uri = str(BackendURI(provider="recorded", model=str(replace(recorded, params={})), params=params))

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return the recorded answer. Raises NotRecorded where there is none, else the recorded failure."""
        found = self._answers.get(request.key())
        if found is None:
            raise NotRecorded(
                f"{self._folder} holds no answer to this request{self._unread()}; images, prompt, tools and sampling must "
                "be those of the recording"
            )
        event, path = found
        where = f"{path.relative_to(self._folder)}, call {event.ordinal + 1}"
        if isinstance(event, ModelFailure):
            error = ContextTooLong if event.error == "ContextTooLong" else Rejected
            raise error(f"recorded in {where}: {event.error}: {event.message}")
        return replace(event.content, sent={**event.content.sent, "recorded_in": where})

    def _read(self, path: Path) -> None:
        """Take in a trace."""
        try:
            trace = read_trace(path)
            cassette = Cassette.of(trace.events)
        except (TraceError, ReplayMiss) as error:
            self._problems.append(f"{path.name}: {error}")
            return
        self._problems += trace.problems
        events: list[ModelCall | ModelFailure] = [*cassette.models, *cassette.failures.values()]
        for event in events:
            known = self._answers.get(event.request_key)
            if known is None or (isinstance(event, ModelCall) and isinstance(known[0], ModelFailure)):
                self._answers[event.request_key] = event, path

    def _unread(self) -> str:
        return f" ({self._problems[0]})" if self._problems else ""
