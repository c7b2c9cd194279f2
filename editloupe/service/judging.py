"""Judge the edits of requests in threads, each finding into one run folder."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, Interrupted, SampleError
from editloupe.findings import Finding
from editloupe.protocols.base import scored
from editloupe.protocols.repeats import Repeats
from editloupe.rewards import Reward
from editloupe.runs.run import Driver
from editloupe.runs.schedule import Schedule, ScheduledTask, repeatable
from editloupe.runs.setup import Setup
from editloupe.runs.store import RunStore
from editloupe.scores import MetricSet, Score
from editloupe.service.edits import SentEdit, Sources, sample_of
from editloupe.values import Json

_TOLD: Final = ("metric", "turn", "part", "value", "label", "missing")
"""What the answer says of a score."""

RECENT_S: Final = 60.0
"""A trace that ended this long before the last line of findings.jsonl, or later, may have no line there."""


class Busy(Exception):
    """More edits than there are places. The client asks again later."""


class Service:
    """Judges edits with one setup.

    on_finding: called with each new finding.
    """

    def __init__(
        self,
        setup: Setup,
        out: Path,
        *,
        sources: Sources,
        concurrency: int,
        waiting: int,
        timeout_s: float,
        reward: str | None = None,
    ) -> None:
        """Open the run folder `out`. Raises ConfigError, RunMismatch and StorageError as `RunStore.begin` does.

        concurrency: edits at once.   waiting: edits beside them.   timeout_s: of an edit, with
        its wait.   reward: an expression over metrics; None for their mean.
        """
        self.setup, self.sources, self.timeout_s = setup, sources, timeout_s
        self._reward = reward
        self._graded((), set(setup.metrics))
        self.capacity, self.taken = concurrency + waiting, 0
        """Edits that may be judged or wait at once, and those that do."""
        self.on_finding: Callable[[Finding], None] = lambda _: None
        self.running = 0
        """Edits that a thread works on."""
        self._store = _open_store(setup, out)
        self._folder = str(out.resolve())
        self._driver = Driver(setup, self._store, forgets=True)
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="judge")

    @contextmanager
    def places(self, count: int) -> Iterator[None]:
        """Take places for edits. Raises Busy where there are too few."""
        if self.taken + count > self.capacity:
            raise Busy(f"{self.taken} of {self.capacity} places for edits are taken, and {count} more are asked for")
        self.taken += count
        try:
            yield
        finally:
            self.taken -= count

    async def judge(self, edit: SentEdit) -> dict[str, Json]:
        """Return the verdict on one edit. A question that failed is a finding with its status.

        Raises DataError for what cannot be judged, TimeoutError, Interrupted once the service is closed, StorageError.
        """
        stop = threading.Event()
        job = asyncio.get_running_loop().run_in_executor(self._pool, self._judged, edit, stop)
        try:
            return await asyncio.wait_for(job, self.timeout_s)
        finally:
            # What nobody waits for any more ends with its next step; the same question goes on from there.
            stop.set()

    def close(self) -> int:
        """Close the run folder. Return how many edits a thread still works on: what they had is in their traces."""
        self._driver.stop.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._driver.close()
        return self.running

    def _judged(self, edit: SentEdit, stop: threading.Event) -> dict[str, Json]:
        self.running += 1
        try:
            return self._verdict(edit, stop)
        finally:
            self.running -= 1

    def _verdict(self, edit: SentEdit, stop: threading.Event) -> dict[str, Json]:
        # A store of its own for each edit, so that its pictures leave memory with it.
        images = ImageStore(self._store.blobs, max_pixels=self.sources.max_pixels)
        protocol, sample = self.setup.protocol, sample_of(edit, self.sources, images)
        protocol.check([sample])
        asked = self._asked(edit)
        self._driver.add(Loaded(format="http", samples=(sample,), rejected=()))
        schedule = Schedule(protocol, [sample], Repeats(), lambda task, repeat: None)
        worker = self._driver.worker([sample], images, stop)
        found: list[tuple[Finding, bool]] = []
        while (place := schedule.next()) is not None:
            if place.task.metric in self.setup.metrics and place.task.metric not in asked:
                continue
            if stop.is_set() or self._driver.stop.is_set():
                raise Interrupted("the service shut down before the verdict was there; what is recorded is kept")
            own = ScheduledTask(task=place.task, repeat=edit.repeat if repeatable(place.task) else 0)
            finding, reused = self._driver.found(own, worker)
            found.append((finding, reused))
            if not reused:
                self.on_finding(finding)
            # The schedule knows one repeat; which one it is, only the request knows.
            schedule.arrived(replace(finding, repeat=0))
        found = [*((f, False) for f in schedule.problems() if f.metric in asked), *found]
        scores = [s for s in scored(protocol, [sample], [f for f, _ in found]) if s.metric in asked]
        return {
            "id": edit.id,
            "sample": sample.id,
            "judge": self.setup.judge.id,
            "reward": self._graded(scores, asked),
            "scores": [{name: getattr(score, name) for name in _TOLD} for score in scores],
            "findings": [self._told(f, reused) for f, reused in found],
        }

    def _told(self, finding: Finding, reused: bool) -> dict[str, Json]:
        """A finding without what it says of this machine. A fault of ours is recorded with lines of our code."""
        reason = "editloupe itself failed; its trace says how" if finding.ending == "fault" else finding.reason
        told = {**finding.to_json(), "role": finding.role, "reused": reused}
        return {**told, "reason": reason.replace(self._folder, "the run folder")}

    def _graded(self, scores: Sequence[Score], asked: set[str]) -> Json:
        """Return the reward of these scores, 0 to 100. Raises ConfigError for an expression that cannot be read."""
        # An expression may name what this edit was not asked about, which then has no value.
        metrics = [metric for metric in self.setup.protocol.metrics if self._reward or metric.id in asked]
        found = Reward(metrics, self._reward).of(scores)
        each: Any = found["scores"]
        return {
            "value": _percent(found["value"]),
            "why": found["why"],
            "scores": {metric: _percent(value) for metric, value in each.items()},
        }

    def _asked(self, edit: SentEdit) -> set[str]:
        protocol = self.setup.protocol
        known = MetricSet(id=protocol.name, metrics=tuple(protocol.metrics))
        try:
            return {known.metric(name).id for name in edit.criteria} or set(self.setup.metrics)
        except ConfigError as error:
            raise SampleError(f"criteria: {error}") from error


def _percent(value: Any) -> float | None:
    return None if value is None else 100 * value


def _open_store(setup: Setup, out: Path) -> RunStore:
    written = out / "findings.jsonl"
    since = written.stat().st_mtime - RECENT_S if written.exists() else 0.0
    store = RunStore.begin(out, setup.spec, setup.entries(), Loaded(format="http", samples=(), rejected=()))
    # A service that was killed has traces that ended, and no line yet for their findings.
    store.add_findings([one for one in store.findings_from_traces(since=since) if one.key not in store.findings])
    # A finding is looked up by its trace: a service that runs for weeks must not keep all of them in memory.
    store.forget()
    return store
