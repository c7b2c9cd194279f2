"""The public Python door: `Judge("baseline").judge(sample)`."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final, cast

from editloupe.backends import langsmith as traces
from editloupe.backends.base import LMM
from editloupe.backends.function import Chat, as_lmm
from editloupe.backends.limits import limit_of
from editloupe.backends.prices import read_prices
from editloupe.chat import Reply
from editloupe.config import RunConfig
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, Interrupted
from editloupe.findings import Finding
from editloupe.protocols.base import scored
from editloupe.runs.budget import Ledger, RunBudget
from editloupe.runs.executors import together
from editloupe.runs.outcome import Progress, reach_new
from editloupe.runs.pool import pool_of
from editloupe.runs.run import Driver, default_concurrency
from editloupe.runs.setup import open_setup, settled_tools
from editloupe.runs.store import RunStore
from editloupe.scores import Metric, Score
from editloupe.tools.base import Tool
from editloupe.tools.function import as_tool
from editloupe.values import Sample

OF_A_FOLDER: Final = (
    "path", "format", "edited", "null_edit", "fields", "columns", "limit", "sample", "executor", "ray_gpus",
    "fail_on_error", "batch", "batch_waves", "batch_file", "batch_answers",
)  # fmt: skip
"""Fields of RunConfig that say which folder the command line judges, and how it ends."""


class Judge:
    """A backbone with a protocol, ready to judge samples one by one or many at once."""

    def __init__(
        self,
        backend: str | LMM | Callable[[Chat], str | Reply] = "baseline",
        *,
        roles: Mapping[str, str | LMM | Callable[[Chat], str | Reply]] | None = None,
        tools: Sequence[str | Tool | Callable[..., Any]] | None = None,
        out: str | Path | None = None,
        **options: Any,
    ) -> None:
        """Open a judge.

        backend: a URI ("baseline" is the pixel baseline, "openai/MODEL"), an LMM of your own, or a function of the messages
        that returns the reply's text (`backends.function.FunctionLMM`).
        roles: backends for the protocol's other roles.
        tools: names, functions with `@tool`, Tool objects; None for the five built-in ones.
        out: a run folder, which `editloupe show` opens and a later Judge continues; None keeps nothing. With `out`, close
        the judge, or use it in a `with` block.
        options: the options of `editloupe judge` by the names that a config file gives them, such as protocol="dlebench",
        mode="plain", rubric, criteria=["if"], temperature, answers="tags", max_turns, repeats, max_cost, prices, device and
        detector; docs/python.md has more. With processes=N, too, close the judge. A rubric is a name, a file, a Rubric, or
        a mapping with what a rubric's file holds.

        Raises ConfigError for anything in these that cannot work, RunMismatch for a run folder of other settings, and
        Unavailable where `out` does not know the judge and its address takes no connection.
        """
        if backend is None:
            # Such as an environment variable that is not set: who says nothing gets the pixel baseline, not who says None.
            raise ConfigError(
                "Judge(None): expected provider/model, such as openai/gpt-4.1, or an LMM; leave it out for the baseline"
            )
        if foreign := next((name for name in options if name in OF_A_FOLDER), None):
            raise ConfigError(f"Judge({foreign}=…) is an option of editloupe judge alone; give samples to judge_all")
        asked = as_lmm(backend)
        own = {made.name: made for made in (as_tool(one) for one in tools or () if not isinstance(one, str))}
        if hasattr(options.get("rubric"), "to_json"):
            options["rubric"] = options["rubric"].to_json()
        if isinstance(options.get("criteria"), str):
            options["criteria"] = [options["criteria"]]
        given = {
            **options,
            # A protocol that asks no model takes no backend.
            "backend": None if isinstance(asked, str) and asked == "baseline" else asked,
            "role": {role: {"backend": as_lmm(one)} for role, one in (roles or {}).items()},
            "tools": None if tools is None else tuple(one if isinstance(one, str) else as_tool(one).name for one in tools),
        }
        (config,) = RunConfig.each_judge(given)
        self._setup = open_setup(config, own_tools=tuple(own.values()))
        self._pool = pool_of(config)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._budget, self._prices = RunBudget.of(config), read_prices(config.prices)
        self._budget.check(self._setup.backend, self._prices)
        self._ledger: Ledger | None = None
        self._driver: Driver | None = None
        self._store: RunStore | None = None
        if out is not None:
            self._store = RunStore.begin(
                Path(out), self._setup.spec, self._setup.entries(), _of_python([]), first=partial(reach_new, self._setup)
            )

    @property
    def id(self) -> str:
        """The judge id: equal for judges whose verdicts are comparable."""
        return self._setup.judge.id

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The metrics that this judge is asked for, in the protocol's order."""
        return tuple(metric for metric in self._setup.protocol.metrics if metric.id in self._setup.metrics)

    def scores(self, sample: Sample, findings: Sequence[Finding]) -> list[Score]:
        """Return the protocol's scores of a sample's findings. A score without a value says why."""
        found = scored(self._setup.protocol, [sample], findings)
        return [score for score in found if score.metric in self._setup.metrics]

    def judge(self, sample: Sample) -> list[Finding]:
        """Return one finding a question, in the order of the protocol.

        A failure is a finding with a status, that of the backend included. Raises ConfigError for what is no Sample.
        """
        if not isinstance(sample, Sample):
            raise ConfigError(
                f"expected a Sample, found {type(sample).__module__}.{type(sample).__qualname__}; make one with "
                "Sample.from_images(source, edited, instruction)"
            )
        driver = self._opened()
        driver.add(_of_python([sample]))
        return driver.judge(sample)

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
        progress: called in this thread with each sample that has ended: its `done`, of `total` where that is known, counts
        samples, its `failures` findings by status.
        Whoever stops reading stops the rest: what is under way ends, and nothing new is begun.
        Raises Interrupted behind the last sample that a used-up budget lasted for.
        """
        for _, sample, findings in self._each(samples, concurrency, progress):
            yield sample, findings

    def _each(
        self, samples: Iterable[Sample], concurrency: int | None, progress: Callable[[Progress], None] | None
    ) -> Iterator[tuple[int, Sample, list[Finding]]]:
        """Yield (place, sample, findings) of each sample that has ended."""
        waiting, total = iter(enumerate(samples)), 0
        if isinstance(samples, Sequence | Loaded):
            total = len(samples)
            # All at once and before any thread starts, so that the run lists them in their order.
            self._opened().add(samples if isinstance(samples, Loaded) else _of_python(samples))
        lost, failed = 0, Counter[str]()
        with limit_of(self._setup.backend.endpoint).fixed(self._setup.config.max_connections):
            ended = together(
                lambda job: (*job, self._within_budget(job[1])),
                lambda: next(waiting, None),
                width=concurrency or default_concurrency(self._setup),
                stop=self._stop,
            )
            try:
                for done, (place, sample, findings) in enumerate(chain.from_iterable(ended), start=1):
                    if findings is None:
                        lost += 1
                        continue
                    failed.update(finding.status for finding in findings if finding.status != "ok")
                    if progress is not None:
                        progress(Progress(done=done - lost, total=total, failures=dict(failed)))
                    yield place, sample, findings
            finally:
                # Ctrl-C has set it to end all waits; the judge can be used again.
                self._stop.clear()
        if self._ledger is not None and self._ledger.reason and (lost or next(waiting, None) is not None):
            raise Interrupted(f"the budget is used up ({self._ledger.reason}); not all samples were judged")

    def _within_budget(self, sample: Sample) -> list[Finding] | None:
        """Return the findings of a sample; None where the budget did not last for them."""
        try:
            return self.judge(sample)
        except Interrupted:
            if self._ledger is None or not self._ledger.reason:
                raise
            return None

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
        """Judge many samples at once, as `stream`. Results come in the order of the samples.

        Raises Interrupted once the budget is used up; `stream` yields what was judged before.
        """
        listed = samples if isinstance(samples, Loaded) else list(samples)
        found = {place: findings for place, _, findings in self._each(listed, concurrency, progress)}
        return [found[place] for place in sorted(found)]

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

    def _opened(self) -> Driver:
        """Return the driver. How tools are called is settled before the first question."""
        with self._lock:
            if self._driver is None:
                self._setup = settled_tools(self._setup)
                if self._budget != RunBudget():
                    # Its clock begins with the first question.
                    self._ledger = Ledger(budget=self._budget, prices=self._prices, stop=self._stop)
                self._driver = Driver(self._setup, self._store, ledger=self._ledger, stop=self._stop, pool=self._pool)
            return self._driver


def _of_python(samples: Sequence[Sample]) -> Loaded:
    return Loaded(format="python", samples=tuple(samples), rejected=())
