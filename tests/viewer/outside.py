"""A protocol for the viewer's tests: what lies outside the mask, aligned and as it is, and by the published scripts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from editloupe.protocols.base import BaseProtocol, Group, Known
from editloupe.scores import Interval, Metric, Score
from editloupe.tasks import About, Measure, Recipe, Task

HOW: Mapping[str, Mapping[str, Any]] = {
    "aligned": {"align": "sift"},
    "still": {},
    "official": {"align": "sift", "mask": "official"},
}


class Outside(BaseProtocol):
    """MSE and L1 outside the mask, in three ways."""

    name = "outside"
    roles: ClassVar[Mapping[str, str]] = {}
    metrics = tuple(Metric(id=how, domain=Interval(low=0, high=255**2), better="lower") for how in HOW)

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Any = None) -> None:
        super().__init__(options, budget=budget)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        for sample in group:
            pictures = {"source": sample.source, "edited": sample.edited, "mask": sample.masks["edit"]}
            views = tuple(Recipe(alias=alias, origin=ref) for alias, ref in pictures.items() if ref is not None)
            for how, args in HOW.items():
                about = About.of(sample)
                for measure, name in (("mse", how), ("l1", f"{how} l1")):
                    yield Measure(protocol=self.name, metric=name, about=about, measure=measure, args=args, views=views)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        for sample in group:
            for how in HOW:
                yield self.missing(how, sample, known)
