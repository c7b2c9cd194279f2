"""Which of two edits of one source and instruction is better: every pair, in both orders, by each criterion of a rubric.

Judges favour a position, so each pair is asked twice, with the edits' places exchanged, and only what is said both times
counts (`editloupe.reports.ranking`).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from typing import Final

from editloupe.answers import LabelRule, Labels
from editloupe.errors import ConfigError
from editloupe.prompts import render
from editloupe.prompts.tags import neutralise
from editloupe.reports.summary import Summary
from editloupe.protocols.base import Done, Group
from editloupe.rubrics.model import Criterion
from editloupe.scores import Score
from editloupe.tasks import Ask, Budget, Recipe, Task
from editloupe.values import Sample

TEMPLATE: Final = "dlebench/pairwise"
FIRST: Final = "Edit A"
SECOND: Final = "Edit B"
TIE: Final = "Tie"

GRAMMAR: Final = Labels(
    labels=(
        LabelRule(name=FIRST, value=1.0),
        LabelRule(name=SECOND, value=-1.0),
        LabelRule(name=TIE, value=0.0, aliases=("Draw",)),
    )
)

MOST_EDITS: Final = 24
"""Of one group: their pairs, in both orders, are 552 questions a criterion."""


def pair_id(first: Sample, second: Sample) -> str:
    """By which a finding says what it compares; `first` was shown as Edit A."""
    return f"{first.key} | {second.key}"


class Pairwise:
    """The protocol. criteria: asked one by one.   tools: offered where there are any."""

    name = "dlebench-pairwise"

    def __init__(self, criteria: Sequence[Criterion], *, mode: str, tools: Sequence[str], budget: Budget) -> None:
        self.criteria, self.mode, self.budget = tuple(criteria), mode, budget
        self.tools = () if mode == "plain" else tuple(tools)

    def check(self, samples: Sequence[Sample]) -> None:
        """Nothing is needed of a sample."""

    def plan(self, group: Group, done: Done) -> list[Task]:
        """Both orders of every pair of outputs that there are. Raises ConfigError where these are too many."""
        there = [sample for sample in group if sample.edited is not None]
        if len(there) > MOST_EDITS:
            raise ConfigError(
                f"{len(there)} edits of one source and instruction: pairwise takes at most {MOST_EDITS} "
                f"({len(there) * (len(there) - 1)} questions a criterion here); rank them by scores, without --pairwise"
            )
        tasks = [self._task(*pair, criterion) for pair in permutations(there, 2) for criterion in self.criteria]
        return [task for task in tasks if task.id not in done]

    def score(self, group: Group, done: Done) -> list[Score]:
        """A comparison gives no sample a score of its own."""
        return []

    def summarise(self, scores: Sequence[Score]) -> list[Summary]:
        """Nothing to sum up."""
        return []

    def _task(self, first: Sample, second: Sample, criterion: Criterion) -> Ask:
        assert first.edited is not None and second.edited is not None
        images = {"Original Image": first.source, FIRST: first.edited, SECOND: second.edited}
        prompt = render(
            TEMPLATE,
            criterion=criterion,
            instruction=neutralise(" ".join(first.instruction.split())),
            images=list(images),
        )
        return Ask(
            protocol=self.name,
            mode=self.mode,
            sample_id=pair_id(first, second),
            editor="",
            criterion=criterion.id,
            prompt=prompt,
            views=tuple(Recipe(alias=alias, origin=image) for alias, image in images.items()),
            tools=self.tools,
            grammar=GRAMMAR,
            budget=self.budget,
        )
