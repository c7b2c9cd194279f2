"""Read a run for exports: its traces as requests, replies, tool calls and findings, with their images' addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from editloupe.backends.base import NOT_LMMS, parse_uri
from editloupe.backends.prices import Prices
from editloupe.chat import ImagePart, Message, Reply, TextPart, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, TraceError
from editloupe.findings import Finding
from editloupe.runs.lineage import FORKS, Parent, read_whole
from editloupe.runs.store import RunStore
from editloupe.tasks import Task, task_from_json
from editloupe.traces.events import Event, FindingEvent, Header, MessageEvent, ModelCall, ModelFailure, ToolResult
from editloupe.traces.read import Trace
from editloupe.values import ImageRef, Json, Sample, sample_key

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MALFORMED = (KeyError, TypeError, ValueError, AssertionError, AttributeError, ConfigError)


@dataclass(kw_only=True)
class Exchange:
    """One request to the model and what came of it."""

    number: int
    """From 1, in the trace."""
    event: ModelCall | ModelFailure
    """A failed request and its repetition share the ordinal."""
    messages: tuple[Message, ...]
    """The whole conversation that was sent."""
    added: tuple[Message, ...]
    """Messages that a fork put before this request."""
    reply: Reply | None
    """None if the endpoint failed."""
    shared: bool
    """In a fork: the parent did this."""
    said: Message | None = None
    """The reply as the conversation keeps it."""
    results: list[ToolResult] = field(default_factory=list)
    after: list[Message] = field(default_factory=list)
    """Messages that followed before the next request."""

    @property
    def failure(self) -> ModelFailure | None:
        """None if the endpoint answered."""
        return self.event if isinstance(self.event, ModelFailure) else None

    @property
    def started_ns(self) -> int:
        """Unix time."""
        return self.ended_ns - (round(self.event.seconds * 1e9) if isinstance(self.event, ModelCall) else 0)

    @property
    def ended_ns(self) -> int:
        """Unix time."""
        return nanoseconds(self.event.time)


@dataclass(frozen=True, kw_only=True)
class Episode:
    """One trace."""

    name: str
    """Its path inside the run."""
    trace: Trace
    task: Task
    finding: Finding | None
    """None if it has not ended."""
    sample: Sample | None
    parent: Parent | None
    """For a fork."""
    exchanges: tuple[Exchange, ...]

    @property
    def header(self) -> Header:
        return self.trace.header

    @property
    def backend(self) -> str:
        """The judge's URI."""
        return str(self.header.judge["backend"])

    @property
    def provider(self) -> str:
        return parse_uri(self.backend).provider

    @property
    def model(self) -> str:
        """The model's name without the URI's parameters; the provider's where it has one model only."""
        return parse_uri(self.backend).model or self.provider

    @property
    def is_lmm(self) -> bool:
        return self.task.kind == "ask" and self.provider not in NOT_LMMS

    @property
    def ended_ns(self) -> int:
        """Unix time of the last event."""
        return max(nanoseconds(event.time) for event in self.trace.events)


@dataclass
class Source:
    """A run to be exported, and which part of it."""

    folder: Path
    judge: str | None = None
    """A name, an id, or its beginning; None for all."""
    samples: tuple[str, ...] = ()
    """Ids, or EDITOR/ID; () for all."""
    blob_base_url: str | None = None
    """Where `blobs/` can be reached; None for the folder's own file:// address."""
    prices: Prices = field(default_factory=Prices)
    problems: list[str] = field(default_factory=list)
    """What could not be read, filled while it is read."""

    @cached_property
    def store(self) -> RunStore:
        store = RunStore.read(self.folder)
        self.problems += store.problems
        return store

    @cached_property
    def judges(self) -> dict[str, str]:
        """The judges with the role "judge" that are exported: id → backend. Raises ConfigError for an unknown one."""
        known = self.store.judges()
        found = {id_: known[id_] for id_ in self.store.judges_called(self.judge)}
        if self.judge is not None and len(found) != 1:
            listed = "; ".join(f"{id_} {name}" for id_, name in self.store.judge_names().items()) or "none"
            raise ConfigError(f"--judge {self.judge!r} names {len(found)} of this run's judges; there are: {listed}")
        return found

    @cached_property
    def backends(self) -> dict[str, str]:
        """Everybody whose findings are exported, other roles and measures too: id → backend."""
        judges = self.store.info.get("judges")
        listed = {id_: j for id_, j in (judges if isinstance(judges, Mapping) else {}).items() if isinstance(j, Mapping)}
        roles = self.store.roles()
        return {id_: str(j.get("backend")) for id_, j in listed.items() if id_ in self.judges or roles[id_] != "judge"}

    @cached_property
    def findings(self) -> list[Finding]:
        """Those that count, in the order of the samples. Raises ConfigError for a sample that the run does not have."""
        current = [f for f in self.store.current() if f.judge_id in self.backends]
        if not self.samples:
            return current
        known = {name for key, sample in self.store.samples.items() for name in (key, sample.id)}
        known |= {name for key, row in self.store.rejected.items() for name in (key, str(row["id"]))}
        missing = [name for name in self.samples if name not in known]
        if missing:
            raise ConfigError(f"{self.folder} has no sample {', '.join(map(repr, missing))}; editloupe show lists them")
        return [f for f in current if self._asked_for(f.editor, f.sample_id)]

    def sample(self, finding: Finding) -> Sample | None:
        return self.store.samples.get(finding.about.key)

    def cost(self, backend: str | None, usage: Usage) -> float | None:
        """Return USD by a judge's URI; None if no price is known or nothing was counted."""
        return None if backend is None or usage == Usage() else self.prices.of_uri(backend, usage)

    def episodes(self, *, forks: bool = True) -> Iterator[Episode]:
        """Yield the traces of the findings, then unfinished ones, then the forks. Unreadable ones are problems."""
        listed = {f.trace: f for f in self.findings if f.trace}
        known = {f.trace for f in self.store.findings.values()}
        open_ = (
            name
            for path in sorted((self.folder / "traces").glob("*/*/*.jsonl"))
            if ".aside-" not in path.name and (name := path.relative_to(self.folder).as_posix()) not in known
        )
        made = (p.relative_to(self.folder).as_posix() for p in sorted((self.folder / FORKS).glob("*/*.jsonl")))
        for name in (*listed, *open_, *(made if forks else ())):
            episode = self.episode(name, listed.get(name))
            if episode is None:
                continue
            # A fork may have a judge of its own, which the run does not list.
            other = episode.header.judge_id not in self.backends
            if other and (self.judge is not None or episode.parent is None):
                continue
            if self._asked_for(episode.task.about.editor, episode.task.about.sample_id):
                self.problems += episode.trace.problems
                yield episode

    def episode(self, name: str, finding: Finding | None) -> Episode | None:
        """Return one trace by its path inside the run; None for an unreadable one, which becomes a problem."""
        try:
            return self._episode(name, finding)
        except TraceError as error:
            self.problems.append(str(error))
        except _MALFORMED as error:
            self.problems.append(f"{name}: not of the expected shape ({error!r}), left out")
        return None

    def image(self, ref: ImageRef) -> str | None:
        """Return where an image can be read; None if its bytes were not kept."""
        path = self.image_path(ref)
        if path is None:
            return None
        base = (self.folder / "blobs").resolve().as_uri() if self.blob_base_url is None else self.blob_base_url
        return f"{base.rstrip('/')}/{path.parent.name}/{path.name}"

    def pieces(self, message: Message) -> Iterator[tuple[str, ImageRef | None]]:
        """Yield (text, None) for a text and for an image whose bytes were not kept, (address, image) for another one."""
        for part in message.parts:
            if isinstance(part, TextPart):
                yield part.text, None
            elif (address := self.image(part.image)) is not None:
                yield address, part.image
            else:
                yield lost(part), None

    @cached_property
    def image_path(self) -> Callable[[ImageRef], Path | None]:
        """Return the file of an image in the run folder; None if it is not there."""
        return cache(ImageStore(self.folder / "blobs").path)

    def _asked_for(self, editor: str, sample_id: str) -> bool:
        return not self.samples or sample_id in self.samples or sample_key(editor, sample_id) in self.samples

    def _episode(self, name: str, finding: Finding | None) -> Episode:
        path = self.folder / name
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise TraceError(f"{name} lies outside the run folder; left out")
        trace = read_whole(self.folder, path)
        parent = Parent.of(trace.header)
        if finding is None:
            ended = [e.finding for e in trace.events if isinstance(e, FindingEvent)]
            finding = Finding.from_json(ended[-1]) if ended else None
        task = task_from_json(trace.header.task)
        return Episode(
            name=name,
            trace=trace,
            task=task,
            finding=finding,
            sample=self.store.samples.get(task.about.key),
            parent=parent,
            exchanges=tuple(_exchanges(trace.events, parent)),
        )


def nanoseconds(time: str) -> int:
    """Return a recorded time as nanoseconds of Unix time; recorded are milliseconds."""
    return (datetime.fromisoformat(time) - _EPOCH) // timedelta(microseconds=1) * 1000


def remarks(exchange: Exchange) -> str:
    """Return what was said after a reply besides observations: reminders, the last word, calls that were not run."""
    seen = {alias + ":" for result in exchange.results for alias in result.aliases}
    said = [
        text
        for message in exchange.after
        for part in message.parts
        if (text := getattr(part, "text", None)) and text not in seen and not text.startswith("Observation of ")
    ]
    return "\n".join(said)


def lost(part: ImagePart) -> str:
    """Return the text that stands for an image whose bytes are not in the run folder."""
    return f"[{part.alias}: image {part.image.sha256} is not in the run folder]"


def function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as OpenAI's chat completions define one."""
    inner = {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
    return {"type": "function", "function": inner}


def sampling(reply: Reply) -> dict[str, Json]:
    """Return the parameters that were really sent: numbers, words and switches."""
    return {name: value for name, value in reply.sent.items() if isinstance(value, bool | int | float | str)}


def _exchanges(events: Iterable[Event], parent: Parent | None) -> Iterator[Exchange]:
    # Each message's hash → the conversation up to it.
    known: dict[str | None, tuple[Message, ...]] = {None: ()}
    head: str | None = None
    exchange: Exchange | None = None
    # Behind the last message that a fork shares, until it asks: what it says itself. An observation that was edited is
    # recorded again and stays an observation.
    own: list[Message] | None = None
    for event in events:
        match event:
            case MessageEvent():
                message = event.content
                head = event.hash
                known[head] = (*known.get(event.parent, ()), message)
                if own is not None:
                    own.append(message)
                elif exchange is not None:
                    # The reply's own message stands right behind it; a refused reply has none.
                    if message.role == "assistant" and exchange.said is None and not exchange.after:
                        exchange.said = message
                    else:
                        exchange.after.append(message)
                if parent is not None and event.hash == parent.head:
                    own = []
            case ModelCall() | ModelFailure():
                if exchange is not None:
                    yield exchange
                answered = event if isinstance(event, ModelCall) else None
                # One of the requests that a fork keeps of its parent.
                shared = bool(answered and parent and answered.ordinal < parent.step)
                exchange = Exchange(
                    number=exchange.number + 1 if exchange else 1,
                    event=event,
                    messages=known.get(answered.head if answered else head, ()),
                    added=() if shared else tuple(own or ()),
                    reply=answered.content if answered else None,
                    shared=shared,
                )
                # A reply that is kept without its message may stand behind the last shared one.
                own = own if shared else None
            case ToolResult():
                own = None
                if exchange is not None:
                    exchange.results.append(event)
    if exchange is not None:
        yield exchange


def instruction_of(sample: Sample | None, turn: int) -> str | None:
    """Return the instruction that a finding is about; None where the run has no such sample, or the sample no such turn."""
    return None if sample is None or turn > len(sample.turns) else sample.asked(turn)
