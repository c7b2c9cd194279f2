"""The public Python door: `Judge("baseline").judge(sample)`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from editloupe.backends.base import LMM
from editloupe.chat import Sampling
from editloupe.data.images import ImageStore
from editloupe.protocols.dlebench import Mode
from editloupe.records import Budget, Finding
from editloupe.runs.execute import Worker, default_concurrency
from editloupe.runs.executors import ThreadExecutor
from editloupe.runs.spec import Bench, Settings, open_bench
from editloupe.tools.base import PAPER_TOOLS
from editloupe.values import Sample


class Judge:
    """A backbone with a rubric, ready to judge samples one by one.

    backend: a URI ("baseline", "openai/MODEL") or an LMM of your own.   mode: "tool" (the agent) or "plain" (one turn).
    rubric: "dlebench" or the path of a TOML file.   criteria: ids or short names; None for all.
    max_turns: turns with tool calls.   tools: names on offer.   out: a folder for traces and pictures; None keeps
    nothing on disk.

    Raises ConfigError for anything in these that cannot work.
    """

    def __init__(
        self,
        backend: str | LMM = "baseline",
        *,
        mode: Mode = "tool",
        rubric: str | Path = "dlebench",
        criteria: Sequence[str] | None = None,
        max_turns: int = 6,
        tools: Sequence[str] = PAPER_TOOLS,
        sampling: Sampling | None = None,
        out: str | Path | None = None,
    ) -> None:
        settings = Settings(
            backend=backend,
            mode=mode,
            rubric=rubric,
            criteria=None if criteria is None else tuple(criteria),
            budget=Budget(max_turns=max_turns),
            tools=tuple(tools),
            sampling=sampling or Sampling(),
        )
        self._bench: Bench = open_bench(settings)
        self._out = None if out is None else Path(out)
        self._images = ImageStore(None if self._out is None else self._out / "blobs")
        self._worker = Worker(bench=self._bench, images=self._images)

    @property
    def id(self) -> str:
        """The judge id: equal for judges whose verdicts are comparable."""
        return self._bench.judge.id

    def judge(self, sample: Sample) -> list[Finding]:
        """One finding a criterion, in the rubric's order. A failure is a finding with a status, never an exception."""
        findings = []
        for task in self._bench.protocol.plan([sample], {}):
            trace = None if self._out is None else self._out / "traces" / self.id / f"{task.id}.0.jsonl"
            name = None if trace is None or self._out is None else str(trace.relative_to(self._out))
            findings.append(self._worker.run_task(task, trace=trace, name=name))
        return findings

    def judge_all(self, samples: Iterable[Sample], *, concurrency: int | None = None) -> list[list[Finding]]:
        """`judge` over many samples at once; results in the order of the samples."""
        jobs = list(enumerate(samples))
        executor = ThreadExecutor(concurrency or default_concurrency(self._bench))
        results = executor.run(lambda job: (job[0], self.judge(job[1])), jobs, stop=self._worker.stop)
        return [findings for _, findings in sorted(results, key=lambda r: r[0])]
