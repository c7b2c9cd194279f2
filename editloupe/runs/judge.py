"""The public Python door: `Judge("baseline").judge(sample)`."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from editloupe.backends import langsmith as traces
from editloupe.backends.base import LMM
from editloupe.backends.function import Chat, as_lmm
from editloupe.chat import Reply, Sampling
from editloupe.config import DEFAULT_PATIENCE_S, Answers, RunConfig, ToolProtocolChoice
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError
from editloupe.findings import PENDING, Finding
from editloupe.runs.execute import default_concurrency, rejected_findings
from editloupe.runs.executors import at_once
from editloupe.runs.judges import Entry
from editloupe.runs.pool import pool_of
from editloupe.runs.schedule import Schedule
from editloupe.runs.setup import open_setup, settled_tools, weights_of
from editloupe.runs.store import RunStore
from editloupe.runs.worker import Worker, tool_cache_of
from editloupe.tasks import Task
from editloupe.tools.base import Tool
from editloupe.tools.cache import ToolCache
from editloupe.tools.function import as_tool
from editloupe.values import Json, Sample


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far a judge is."""

    done: int
    """Samples that have ended."""
    known: int | None
    """Samples in all; None for an iterator."""
    failed: Mapping[str, int]
    """Status → findings so far without an answer."""
    seconds: float
    """Since the beginning."""


class Judge:
    """A backbone with a protocol, ready to judge samples one by one or many at once."""

    def __init__(
        self,
        backend: str | LMM | Callable[[Chat], str | Reply] = "baseline",
        *,
        protocol: str = "dlebench",
        mode: str | None = None,
        rubric: Any = None,
        criteria: str | Sequence[str] | None = None,
        prompt: str | Path | None = None,
        options: Mapping[str, Json] | None = None,
        roles: Mapping[str, str | LMM | Callable[[Chat], str | Reply]] | None = None,
        max_turns: int = 6,
        tools: Sequence[str | Tool | Callable[..., Any]] | None = None,
        sampling: Sampling | None = None,
        tool_protocol: ToolProtocolChoice = "text",
        answers: Answers = "auto",
        remind_answers: bool = True,
        ablate: str | Sequence[str] = (),
        out: str | Path | None = None,
        patience: float = DEFAULT_PATIENCE_S,
        processes: int | None = None,
        langsmith: bool = False,
    ) -> None:
        """Open a judge.

        backend: a URI ("baseline" is the pixel baseline, "openai/MODEL"), an LMM of your own, or a function of the messages
        that returns the reply's text (`backends.function.FunctionLMM`).
        protocol: which questions are asked (`editloupe protocols`).
        mode, rubric, criteria, prompt: options of the protocol with names of their own; None for its defaults. A rubric
        is a name, a file, a Rubric, or a mapping with what a rubric's file holds.
        options: further options of the protocol.   roles: backends for the protocol's other roles.
        max_turns: turns with tool calls.   tools: names, functions with `@tool`, Tool objects; None for the five
        built-in ones.
        tool_protocol: "text" (the paper's tags, the same for every backend), "native" or "auto".
        answers: "auto", "schema" or "tags": how answers are asked for (docs/judges.md).
        remind_answers: whether an unusable answer gets a reminder, as an unusable reply does.
        ablate: "black-crops" shows black pictures in place of what tools show (docs/tools.md).
        out: a run folder, which `editloupe show` opens and a later Judge continues; None keeps nothing. With `out`, close
        the judge, or use it in a `with` block.
        patience: seconds for which an endpoint that answers nobody is waited for; 0 waits for nothing.
        processes: how many tools and measures compute in; None and 1 are threads of this one (docs/scale.md). With them,
        close the judge, or use it in a `with` block.
        langsmith: whether LangGraph sends traces of the loop to LangSmith; without it none are sent, whatever the
        environment says.

        Raises ConfigError for anything in these that cannot work, RunMismatch for a run folder of other settings.
        """
        if backend is None:
            # Such as an environment variable that is not set: who says nothing gets the pixel baseline, not who says None.
            raise ConfigError(
                "Judge(None): expected provider/model, such as openai/gpt-4.1, or an LMM; leave it out for the baseline"
            )
        chosen = [criteria] if isinstance(criteria, str) else criteria
        rubric = rubric.to_json() if hasattr(rubric, "to_json") else rubric
        given = {
            "mode": mode,
            "rubric": rubric,
            "criteria": None if chosen is None else tuple(chosen),
            "prompt": None if prompt is None else str(prompt),
        }
        named = {name: value for name, value in given.items() if value is not None}
        sent = sampling or Sampling()
        asked = as_lmm(backend)
        own = {made.name: made for made in (as_tool(one) for one in tools or () if not isinstance(one, str))}
        names = None if tools is None else tuple(one if isinstance(one, str) else as_tool(one).name for one in tools)
        judge: dict[str, Any] = {
            # A protocol that asks no model takes no backend.
            "backend": None if isinstance(asked, str) and asked == "baseline" else asked,
            "temperature": sent.temperature,
            "top_p": sent.top_p,
            "seed": sent.seed,
            "reply_tokens": sent.max_tokens,
            "tool_protocol": tool_protocol,
            "answers": answers,
            "remind_answers": remind_answers,
        }
        config = RunConfig.make(
            protocol=protocol,
            option={**(options or {}), **named},
            judge=judge,
            role={role: {"backend": as_lmm(one)} for role, one in (roles or {}).items()},
            max_turns=max_turns,
            tools=names,
            ablate=ablate,
            patience=float(patience),
            processes=processes,
            langsmith=langsmith,
        )
        self._setup = open_setup(config, own_tools=tuple(own.values()))
        self._pool = pool_of(config)
        self._stop = threading.Event()
        self._settled = False
        self._lock = threading.Lock()
        self._busy: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._store: RunStore | None = None
        self._cache: ToolCache | None = None
        if out is not None:
            self._cache = ToolCache(tool_cache_of(Path(out)), device=weights_of(config).device)
            nothing = Loaded(format="python", samples=(), rejected=())
            self._store = RunStore.begin(Path(out), self._setup.spec, self._setup.entries(), nothing)

    @property
    def id(self) -> str:
        """The judge id: equal for judges whose verdicts are comparable."""
        return self._setup.judge.id

    def judge(self, sample: Sample) -> list[Finding]:
        """Return one finding a question, in the order of the protocol.

        A failure is a finding with a status, that of the backend included. Raises ConfigError for what is no Sample.
        """
        if not isinstance(sample, Sample):
            raise ConfigError(
                f"expected a Sample, found {type(sample).__module__}.{type(sample).__qualname__}; make one with "
                "Sample.from_images(source, edited, instruction)"
            )
        store = self._store
        self._settle()
        if store is not None:
            with self._lock:
                store.add_samples(Loaded(format="python", samples=(sample,), rejected=()))
        worker = Worker(
            setup=self._setup,
            # Of its own for each sample, so that a long-lived judge does not keep every crop.
            images=ImageStore(None if store is None else store.blobs),
            run=None if store is None else store.folder,
            stop=self._stop,
            samples={sample.key: sample},
            cache=self._cache,
            pool=self._pool,
        )
        schedule = Schedule(self._setup.protocol, [sample], self._setup.repeats, lambda task, repeat: None)
        while (place := schedule.next()) is not None:
            task = place.task
            schedule.arrived(worker.run_task(task) if store is None else self._recorded(store, worker, task))
        return [*schedule.findings, *schedule.problems()]

    async def ajudge(self, sample: Sample) -> list[Finding]:
        """Judge a sample in a thread of its own, and return as `judge`. Other coroutines go on meanwhile."""
        return await asyncio.to_thread(self.judge, sample)

    def stream(
        self,
        samples: Iterable[Sample],
        *,
        concurrency: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> Iterator[tuple[Sample, list[Finding]]]:
        """Judge many samples at once, and yield each with its findings as soon as it has ended, in any order.

        samples: read as they are needed, so that they may be many. Of what `load_samples` returns, the rows that cannot
        be judged are counted in the run folder, if there is one.   concurrency: samples under way at a time.
        progress: called in this thread with each sample that has ended.
        Whoever stops reading stops the rest: what is under way ends, and nothing new is begun.
        """
        for _, sample, findings in self._each(samples, concurrency, progress):
            yield sample, findings

    def _each(
        self, samples: Iterable[Sample], concurrency: int | None, progress: Callable[[Progress], None] | None
    ) -> Iterator[tuple[int, Sample, list[Finding]]]:
        """Yield (place, sample, findings) of each sample that has ended."""
        waiting, began = iter(enumerate(samples)), time.monotonic()
        known = len(samples) if isinstance(samples, Sequence | Loaded) else None
        if self._store is not None and isinstance(samples, Sequence | Loaded):
            if not isinstance(samples, Loaded):
                samples = Loaded(format="python", samples=tuple(samples), rejected=())
            # All at once and before any thread starts, so that the run lists them in their order.
            with self._lock:
                self._store.add_samples(samples)
                for finding in rejected_findings(self._setup, samples.rejected):
                    if self._store.latest(finding) != finding:
                        self._store.add_finding(finding, by=Entry(judge=self._setup.judge))
        ended = at_once(
            lambda job: (*job, self.judge(job[1])),
            lambda: next(waiting, None),
            width=concurrency or default_concurrency(self._setup),
            stop=self._stop,
        )
        failed: Counter[str] = Counter()
        try:
            for done, (place, sample, findings) in enumerate(ended, start=1):
                failed.update(finding.status for finding in findings if finding.status != "ok")
                if progress is not None:
                    progress(Progress(done=done, known=known, failed=dict(failed), seconds=time.monotonic() - began))
                yield place, sample, findings
        finally:
            # Ctrl-C has set it to end all waits; the judge can be used again.
            self._stop.clear()

    async def astream(
        self, samples: Iterable[Sample], *, concurrency: int | None = None
    ) -> AsyncIterator[tuple[Sample, list[Finding]]]:
        """Judge many samples at once, as `stream`, without holding up other coroutines."""
        stream, end = self.stream(samples, concurrency=concurrency), object()
        try:
            while (found := await asyncio.to_thread(next, stream, end)) is not end:
                yield cast("tuple[Sample, list[Finding]]", found)
        finally:
            await asyncio.to_thread(stream.close)  # type: ignore[attr-defined]

    def judge_all(
        self,
        samples: Iterable[Sample],
        *,
        concurrency: int | None = None,
        progress: Callable[[Progress], None] | None = None,
    ) -> list[list[Finding]]:
        """Judge many samples at once, as `stream`. Results come in the order of the samples."""
        found = sorted(
            self._each(samples if isinstance(samples, Loaded) else list(samples), concurrency, progress),
            key=lambda one: one[0],
        )
        return [findings for _, _, findings in found]

    def close(self) -> None:
        """Give the run folder back, end processes, and wait a while until traces for LangSmith are sent."""
        if self._pool is not None:
            self._pool.close()
        if self._setup.config.langsmith:
            traces.flush()
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _settle(self) -> None:
        """Settle how tools are called, before the first question."""
        with self._lock:
            if not self._settled:
                self._setup = settled_tools(self._setup)
                self._settled = True

    def _recorded(self, store: RunStore, worker: Worker, task: Task) -> Finding:
        """Return the finding of a task in the run folder: the one that stands, or a new one."""
        judge = self._setup.judge_of(task)
        with self._lock:
            busy = self._busy[task.id]
        with busy:
            known = store.findings.get((task.id, judge.id, 0))
            if known is not None and known.status not in PENDING:
                return known
            finding = worker.run_task(task)
            with self._lock:
                store.add_finding(finding, by=Entry(judge=judge, role=task.role))
            return finding
