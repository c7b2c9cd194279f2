"""Read a run for exports: its findings with their traces, as requests, replies and tool calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from editloupe.backends.base import NOT_LMMS, parse_uri
from editloupe.backends.prices import Prices
from editloupe.chat import ImagePart, Message, Reply, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, TraceError
from editloupe.findings import Finding
from editloupe.runs.lineage import read_whole
from editloupe.runs.store import RunStore
from editloupe.traces.events import Event, Header, MessageEvent, ModelCall, ModelFailure, ToolResult
from editloupe.traces.read import Trace
from editloupe.values import ImageRef, Sample

_MALFORMED = (KeyError, TypeError, ValueError, AssertionError, AttributeError, ConfigError)


@dataclass(kw_only=True)
class Exchange:
    """One request to the model and what came of it."""

    event: ModelCall | ModelFailure
    messages: tuple[Message, ...]
    """The whole conversation that was sent."""
    reply: Reply | None
    """None if the endpoint failed."""
    results: list[ToolResult] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class Episode:
    """A finding with its trace."""

    finding: Finding
    trace: Trace
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
        return self.finding.role != "measure" and self.provider not in NOT_LMMS

    @property
    def ended(self) -> str:
        """When the last event was recorded."""
        return max(event.time for event in self.trace.events)


@dataclass
class Source:
    """A run to be exported, and which part of it."""

    folder: Path
    judge: str | None = None
    """A name, an id, or its beginning; None for all."""
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
        """Those that count, in the order of the samples."""
        return [finding for finding in self.store.current() if finding.judge_id in self.backends]

    def sample(self, finding: Finding) -> Sample | None:
        return self.store.samples.get(finding.about.key)

    def instruction(self, finding: Finding) -> str | None:
        """Return what a finding is about; None where the run has no such sample, or the sample no such turn."""
        sample = self.sample(finding)
        return None if sample is None or finding.turn > len(sample.turns) else sample.asked(finding.turn)

    def cost(self, backend: str | None, usage: Usage) -> float | None:
        """Return USD by a judge's URI; None if no price is known or nothing was counted."""
        return None if backend is None or usage == Usage() else self.prices.of_uri(backend, usage)

    def episodes(self) -> Iterator[Episode]:
        """Yield the findings that have a trace. Unreadable ones are problems."""
        for finding in self.findings:
            if finding.trace is not None and (episode := self.episode(finding)) is not None:
                yield episode

    def episode(self, finding: Finding) -> Episode | None:
        """Return a finding with its trace; None for an unreadable one, which becomes a problem."""
        name = finding.trace
        assert name is not None, "what was never asked has no trace"
        try:
            path = self.folder / name
            if not path.resolve().is_relative_to(self.folder.resolve()):
                raise TraceError(f"{name} lies outside the run folder; left out")
            trace = read_whole(self.folder, path)
            episode = Episode(finding=finding, trace=trace, exchanges=tuple(_exchanges(trace.events)))
        except TraceError as error:
            self.problems.append(str(error))
            return None
        except _MALFORMED as error:
            self.problems.append(f"{name}: not of the expected shape ({error!r}), left out")
            return None
        self.problems += trace.problems
        return episode

    @cached_property
    def image_path(self) -> Callable[[ImageRef], Path | None]:
        """Return the file of an image in the run folder; None if it is not there."""
        return cache(ImageStore(self.folder / "blobs").path)


def lost(part: ImagePart) -> str:
    """Return the text that stands for an image whose bytes are not in the run folder."""
    return f"[{part.alias}: image {part.image.sha256} is not in the run folder]"


def _exchanges(events: Iterable[Event]) -> list[Exchange]:
    # Each message's hash → the conversation up to it.
    known: dict[str | None, tuple[Message, ...]] = {None: ()}
    head: str | None = None
    found: list[Exchange] = []
    for event in events:
        match event:
            case MessageEvent():
                head = event.hash
                known[head] = (*known.get(event.parent, ()), event.content)
            case ModelCall():
                found.append(Exchange(event=event, messages=known.get(event.head, ()), reply=event.content))
            case ModelFailure():
                found.append(Exchange(event=event, messages=known.get(head, ()), reply=None))
            case ToolResult() if found:
                found[-1].results.append(event)
    return found
