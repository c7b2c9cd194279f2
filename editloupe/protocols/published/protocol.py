"""Scores of a benchmark's own judge, as its result files have them. Nothing is asked: `editloupe import` reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeAlias

from editloupe.errors import ConfigError
from editloupe.protocols.base import BaseProtocol, Group, Known, Options
from editloupe.scores import Interval, Metric, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import Budget, Task
from editloupe.values import Sample

Benchmark: TypeAlias = Literal["gedit", "imgedit", "kris"]

_OF_FIVE: Final = Interval(low=1, high=5)
_OF_TEN: Final = Interval(low=0, high=10)
METRICS: Final[Mapping[Benchmark, tuple[Metric, ...]]] = {
    "gedit": (
        Metric(id="semantic_consistency", name="Semantic consistency", short="SC", domain=_OF_TEN),
        Metric(id="perceptual_quality", name="Perceptual quality", short="PQ", domain=_OF_TEN),
        Metric(id="overall", name="Overall", short="O", domain=_OF_TEN),
    ),
    "imgedit": (Metric(id="overall", name="Mean of three aspects", short="Overall", domain=_OF_FIVE),),
    "kris": (
        Metric(id="consistency", name="Visual consistency", short="VC", domain=_OF_FIVE, concerns="surroundings"),
        Metric(id="quality", name="Visual quality", short="VQ", domain=_OF_FIVE),
        Metric(id="instruction", name="Instruction following", short="IF", domain=_OF_FIVE, concerns="target"),
        Metric(id="knowledge", name="Knowledge plausibility", short="KP", domain=_OF_FIVE),
    ),
}
GEDIT_OVERALL: Final = ("semantic_consistency", "perceptual_quality")
"""What GEdit-Bench's overall score is the geometric mean of."""


class PublishedOptions(Options):
    """Whose scores they are."""

    benchmark: Benchmark = "gedit"
    """gedit, imgedit or kris."""


class PublishedScores(BaseProtocol):
    """One score for each edit and metric, from its finding."""

    name = "published"
    Options = PublishedOptions
    roles: ClassVar[Mapping[str, str]] = {}
    of_some = frozenset({"knowledge"})

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, budget=budget)
        self.metrics = METRICS[self.options.benchmark]
        # The means of two editors are never one.
        self.tables = (
            TableSpec(title="Scores as imported", overall=False),
            TableSpec(title="Scores by edit type", rows="edit_type", apart=True, overall=False),
        )

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise ConfigError: there is nothing to ask."""
        raise ConfigError(
            "the protocol 'published' asks nothing; it holds scores that editloupe import has read from files"
        )

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return no task."""
        return ()

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return the imported number of each metric. GEdit-Bench's overall is √(SC · PQ)."""
        for sample in group:
            dims = {"edit_type": sample.edit_type, "language": sample.extra.get("instruction_language")}
            kept = {name: dim for name, dim in dims.items() if isinstance(dim, str)}
            for metric in self.metrics:
                made = GEDIT_OVERALL if (self.options.benchmark, metric.id) == ("gedit", "overall") else (metric.id,)
                found = [known.finding(name, sample) for name in made]
                if metric.id in self.of_some and found == [None]:
                    continue
                values = [one.answer.value for one in found if one is not None and one.answer is not None]
                numbers = [value for value in values if value is not None]
                if len(numbers) < len(made):
                    lacking = next(n for n, f in zip(made, found, strict=True) if f is None or f.answer is None)
                    yield self.missing(metric.id, sample, known, question=lacking, dims=kept)
                    continue
                yield Score(
                    sample_id=sample.id,
                    editor=sample.editor,
                    metric=metric.id,
                    value=numbers[0] if len(made) == 1 else math.sqrt(math.prod(numbers)),
                    findings=tuple(one.task_id for one in found if one is not None),
                    dims=kept,
                )
