"""The public Python door: `Judge("baseline").judge(sample)`."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from editloupe.backends.base import LMM
from editloupe.chat import Sampling
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError
from editloupe.findings import PENDING, Finding
from editloupe.protocols.dlebench import Mode
from editloupe.runs.execute import ThreadExecutor, Worker, default_concurrency, tool_cache_of
from editloupe.runs.sent_sizes import sent_targets
from editloupe.runs.setup import Settings, ToolProtocolChoice, device_of, open_bench
from editloupe.runs.store import RunStore
from editloupe.tasks import Budget, Task
from editloupe.tools.base import PAPER_TOOLS
from editloupe.tools.cache import ToolCache
from editloupe.values import Json, Sample


class Judge:
    """A backbone with a rubric, ready to judge samples one by one or many at once.

    backend: a URI ("baseline", "openai/MODEL") or an LMM of your own.   mode: "tool" (the agent), "oracle" (about boxes
    that are known: crops of each target, and the rest with the targets masked) or "plain" (one turn).
    rubric: "dlebench" or the path of a TOML file.   criteria: ids or short names; None for all.
    max_turns: turns with tool calls.   tools: names on offer.   tool_protocol: "text" (the paper's tags, the same for every
    backend), "native" or "auto".   options: the protocol's own (`editloupe.protocols.dlebench.Options`).
    prompt: the path of a question's template of your own (.md).
    ablate: "black-crops", "sham-differences" or both (docs/tools.md).
    out: a run folder, which `editloupe show` opens and a later Judge continues; None keeps nothing. With `out`, close the
    judge, or use it in a `with` block.

    Raises ConfigError for anything in these that cannot work, RunMismatch for a run folder of other settings.
    """

    def __init__(
        self,
        backend: str | LMM = "baseline",
        *,
        mode: Mode = "tool",
        rubric: str | Path = "dlebench",
        criteria: str | Sequence[str] | None = None,
        max_turns: int = 6,
        tools: Sequence[str] = PAPER_TOOLS,
        sampling: Sampling | None = None,
        tool_protocol: ToolProtocolChoice = "text",
        options: Mapping[str, Json] | None = None,
        prompt: str | Path | None = None,
        ablate: str | Sequence[str] = (),
        out: str | Path | None = None,
    ) -> None:
        try:
            budget = Budget(max_turns=max_turns)
        except ValueError as error:
            raise ConfigError(str(error)) from error
        chosen = (criteria,) if isinstance(criteria, str) else criteria
        settings = Settings(
            backend=backend,
            mode=mode,
            rubric=rubric,
            criteria=None if chosen is None else tuple(chosen),
            budget=budget,
            tools=tuple(tools),
            sampling=sampling or Sampling(),
            tool_protocol=tool_protocol,
            options=options or {},
            prompt=None if prompt is None else Path(prompt),
            ablate=(ablate,) if isinstance(ablate, str) else tuple(ablate),
        )
        self._bench = open_bench(settings)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._busy: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        self._store = None if out is None else RunStore.write(Path(out), self._bench.spec)
        self._cache = None if out is None else ToolCache(tool_cache_of(Path(out)), device=device_of(settings))
        if self._store is not None:
            nothing = Loaded(format="python", samples=(), rejected=())
            self._store.begin(self._bench.spec, self._bench.judge, nothing, config={}, narrowed=False)

    @property
    def id(self) -> str:
        """The judge id: equal for judges whose verdicts are comparable."""
        return self._bench.judge.id

    def judge(self, sample: Sample) -> list[Finding]:
        """One finding a criterion, in the rubric's order, and in oracle mode one a target.

        A failure is a finding with a status, never an exception.
        """
        tasks = self._bench.protocol.plan([sample], {})
        if self._store is None:
            # A store of its own for each sample, so that a long-lived judge does not keep every crop.
            worker = self._worker(sample, ImageStore())
            return [worker.run_task(task) for task in tasks]
        with self._lock:
            self._store.add_samples(Loaded(format="python", samples=(sample,), rejected=()))
        return [self._recorded(self._store, task, sample) for task in tasks]

    def judge_all(self, samples: Iterable[Sample], *, concurrency: int | None = None) -> list[list[Finding]]:
        """`judge` over many samples at once; results in the order of the samples."""
        jobs = list(samples)
        if self._store is not None:
            # All at once and before any thread starts, so that the run lists them in their order.
            with self._lock:
                self._store.add_samples(Loaded(format="python", samples=tuple(jobs), rejected=()))
        executor = ThreadExecutor(concurrency or default_concurrency(self._bench))
        results = executor.run(lambda job: (job[0], self.judge(job[1])), enumerate(jobs), stop=self._stop)
        return [findings for _, findings in sorted(results, key=lambda r: r[0])]

    def close(self) -> None:
        """Give the run folder back; without one there is nothing to do."""
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Judge:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _worker(self, sample: Sample, images: ImageStore) -> Worker:
        targets = {sample.key: sent_targets(sample, self._bench.backend.traits.image_policy)}
        return Worker(bench=self._bench, images=images, stop=self._stop, targets=targets, cache=self._cache)

    def _recorded(self, store: RunStore, task: Task, sample: Sample) -> Finding:
        """The finding of a task in the run folder: the one that stands, or a new one."""
        with self._lock:
            busy = self._busy[task.id]
        with busy:
            known = store.findings.get((task.id, self.id, 0))
            if known is not None and known.status not in PENDING:
                return known
            worker = self._worker(sample, ImageStore(store.blobs))
            path = store.trace_path(self.id, task.id, 0)
            finding = worker.run_task(task, trace=path, name=str(path.relative_to(store.folder)))
            with self._lock:
                store.add_finding(finding)
            return finding
