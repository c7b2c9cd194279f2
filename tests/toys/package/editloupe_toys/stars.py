"""Two scores from 0 to 10 and their geometric mean."""

import math

from editloupe.answers import Scale
from editloupe.protocols.base import BaseProtocol, Options
from editloupe.scores import Interval, Metric, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import About, Ask, Recipe

TEN = Interval(low=0, high=10)
ASPECTS = {"follows": "How well does the edit follow the instruction?", "keeps": "How well is the rest kept?"}


class StarsOptions(Options):
    polite: bool = False
    """Say please."""


class Stars(BaseProtocol):
    name = "stars"
    Options = StarsOptions
    metrics = (*(Metric(id=aspect, domain=TEN) for aspect in ASPECTS), Metric(id="overall", short="O", domain=TEN))
    tables = (TableSpec(title="Stars", metrics=("overall",), cell="mean"),)

    def plan(self, group, known):
        for sample in group:
            for aspect, question in ASPECTS.items():
                edited, please = sample.edited, "Please answer. " if self.options.polite else ""
                yield Ask(
                    protocol=self.name,
                    metric=aspect,
                    about=About.of(sample),
                    prompt=f"{please}{question}\nInstruction: {sample.instruction}",
                    views=() if edited is None else (Recipe(alias="Edited Image", origin=edited),),
                    answer=Scale(low=0, high=10),
                    budget=self.budget,
                    blocked=("missing_output", "there is no edited image") if edited is None else None,
                )

    def score(self, group, known):
        for sample in group:
            found = {aspect: known.finding(aspect, sample) for aspect in ASPECTS}
            for aspect, finding in found.items():
                yield self._score(sample, aspect, [finding]) or self.missing(aspect, sample, known)
            failed = next((aspect for aspect, f in found.items() if f is None or f.answer is None), None)
            whole = self._score(sample, "overall", list(found.values()))
            yield whole or self.missing("overall", sample, known, question=failed)

    def _score(self, sample, metric, findings):
        if any(f is None or f.answer is None for f in findings):
            return None
        value = math.prod(f.value for f in findings) ** (1 / len(findings))
        ids = tuple(f.task_id for f in findings)
        return Score(sample_id=sample.id, editor=sample.editor, metric=metric, value=value, findings=ids)
