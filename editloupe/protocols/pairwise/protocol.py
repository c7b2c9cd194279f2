"""Which of two edits of one source and instruction is better: every pair, in both orders, by each criterion of a rubric.

Judges favor a position, so each pair is asked twice with the places exchanged. Only what is said both times counts.
A sample's score is the share of its pairs that it wins; a tie counts half. `editloupe rank` makes rankings of them.

Reproduced: no paper.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import permutations
from typing import Any, Final, Literal

from editloupe.answers import LabelRule, Labels
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.prompts import render
from editloupe.protocols.base import (
    Group,
    Known,
    NoValue,
    RubricOptions,
    RubricProtocol,
    groups,
    score_of,
    whole,
)
from editloupe.replies import one_line
from editloupe.rubrics import Criterion
from editloupe.scores import NOT_JUDGED, Interval, Metric, Score
from editloupe.tasks import About, Ask, Budget, Task
from editloupe.values import Sample

PROMPT: Final = "pairwise/compare"
FIRST: Final = "Edit A"
SECOND: Final = "Edit B"
TIE: Final = "Tie"

ANSWER: Final = Labels(
    labels=(
        LabelRule(name=FIRST, value=1.0),
        LabelRule(name=SECOND, value=-1.0),
        LabelRule(name=TIE, value=0.0, aliases=("Draw",)),
    )
)

MOST_EDITS: Final = 24
"""Of one group: their pairs, in both orders, are 552 questions a criterion."""


class PairwiseOptions(RubricOptions):
    """What a run may set."""

    mode: Literal["tool", "plain"] = "tool"
    """tool: an agent with tools. plain: one look."""


class Pairwise(RubricProtocol):
    """Every pair of edits of one source and instruction, in both orders."""

    name = "pairwise"
    Options = PairwiseOptions

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        self.metrics = [Metric(id=c.id, name=c.name, short=c.short, domain=Interval(low=0, high=1)) for c in self.criteria]

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise ConfigError if a group has too many outputs to compare each two."""
        for group in groups(samples):
            there = [sample for sample in group if sample.edited is not None]
            if len(there) > MOST_EDITS:
                raise ConfigError(
                    f"{len(there)} edits of one source and instruction: pairwise takes at most {MOST_EDITS} "
                    f"({len(there) * (len(there) - 1)} questions a criterion here); rank them by scores, without --pairwise"
                )

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return both orders of every pair of outputs that there are."""
        there = [sample for sample in group if sample.edited is not None]
        return [self._task(*pair, criterion) for pair in permutations(there, 2) for criterion in self.criteria]

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return the share of pairs that each sample wins. A sample with an open pair has no score."""
        there = [sample for sample in group if sample.edited is not None]
        for sample in group:
            others = [other for other in there if other is not sample] if sample in there else []
            for criterion in self.criteria:
                pairs = [pair(known, criterion.id, sample, other) for other in others]
                found = [finding for both in pairs for finding in both]
                points = [_points(*both) for both in pairs]
                missing = None
                if sample.edited is None:
                    missing = "missing_output"
                elif not others:
                    missing = "not_defined"
                elif None in points:
                    open_ = next(f for f in found if f is None or f.status != "ok")
                    missing = NOT_JUDGED if open_ is None else open_.status
                won = NoValue(missing) if missing else sum(one or 0.0 for one in points) / len(points)
                ids = tuple(finding.task_id for finding in found if finding is not None)
                yield score_of(criterion.id, sample, won, findings=ids)

    def _task(self, first: Sample, second: Sample, criterion: Criterion) -> Ask:
        assert first.edited is not None and second.edited is not None
        images = {**first.originals, FIRST: first.edited, SECOND: second.edited}
        prompt = render(PROMPT, criterion=criterion, instruction=one_line(first.instruction), images=list(images))
        return self.question(criterion.id, About.pair(first, second), prompt, ANSWER, whole(images))


def pair(known: Known, metric: str, first: Sample, second: Sample) -> tuple[Finding | None, Finding | None]:
    """Return the findings of both orders, the one with `first` as Edit A first."""
    return known.finding(metric, About.pair(first, second)), known.finding(metric, About.pair(second, first))


def _points(ab: Finding | None, ba: Finding | None) -> float | None:
    """Return 1 if the first wins in both orders, 0 if it loses in both, 0.5 otherwise; None while one is open."""
    if ab is None or ba is None or ab.value is None or ba.value is None:
        return None
    # Shown as Edit B, a win has the value -1.
    return {2.0: 1.0, -2.0: 0.0}.get(ab.value - ba.value, 0.5)
