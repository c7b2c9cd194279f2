"""Scores of a benchmark's own judge, as its result files have them. Nothing is asked: `editloupe import` reads them.

The metrics are those of the benchmark's mapping in `results`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal

from editloupe.errors import ConfigError
from editloupe.protocols.base import BaseProtocol, Group, Known, Options
from editloupe.protocols.published.importers import IMPORTERS
from editloupe.protocols.result_mapping import geometric
from editloupe.scores import Interval, Metric, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import Budget, Task
from editloupe.values import Sample


class PublishedOptions(Options):
    """Whose scores they are."""

    benchmark: Literal["gedit", "imgedit", "kris"] = "gedit"
    """gedit, imgedit or kris."""


class PublishedScores(BaseProtocol):
    """One score for each edit and metric, from its finding."""

    name = "published"
    Options = PublishedOptions
    roles: ClassVar[Mapping[str, str]] = {}

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, budget=budget)
        mapping = IMPORTERS[self.options.benchmark].mapping
        self._made_of: dict[str, tuple[str, ...]] = {id_: (id_,) for id_ in mapping.metrics}
        self.metrics = [
            Metric(id=id_, domain=Interval(low=rule.low, high=rule.high), **rule.shown)
            for id_, rule in mapping.metrics.items()
        ]
        if mapping.published is not None and mapping.published.overall == "geometric":
            self._made_of["overall"] = tuple(mapping.metrics)
            self.metrics.append(Metric(id="overall", name="Overall", short="O", domain=self.metrics[0].domain))
        self.of_some = frozenset(id_ for id_, rule in mapping.metrics.items() if rule.of_some)  # type: ignore[misc]
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
            for metric, made in self._made_of.items():
                if metric in self.of_some and known.finding(metric, sample) is None:
                    continue
                parts = [self.measured(name, sample, known, dims=kept) for name in made]
                if lacking := next((part for part in parts if part.value is None), None):
                    yield replace(lacking, metric=metric)
                    continue
                findings = tuple(id_ for part in parts for id_ in part.findings)
                yield replace(parts[0], metric=metric, value=geometric([part.value for part in parts]), findings=findings)
