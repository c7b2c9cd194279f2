"""Multiple choice with options that differ from sample to sample, and a known answer."""

from editloupe.answers import OneOf
from editloupe.protocols.base import BaseProtocol
from editloupe.scores import Binary, Metric, Score
from editloupe.tasks import About, Ask, Recipe


class MultipleChoice(BaseProtocol):
    name = "choice"
    metrics = (Metric(id="accuracy", domain=Binary()),)

    def plan(self, group, known):
        for sample in group:
            options = tuple(sample.extra["options"])
            edited = sample.edited
            yield Ask(
                protocol=self.name,
                metric="accuracy",
                about=About.of(sample),
                prompt=f"{sample.extra['question']} Options: {', '.join(options)}",
                views=() if edited is None else (Recipe(alias="Edited Image", origin=edited),),
                answer=OneOf(options=options, abstain="cannot tell" if "cannot tell" in options else None),
                budget=self.budget,
                blocked=("missing_output", "there is no edited image") if edited is None else None,
            )

    def score(self, group, known):
        for sample in group:
            finding = known.finding("accuracy", sample)
            if finding is None or finding.answer is None:
                yield self.missing("accuracy", sample, known)
                continue
            yield Score(
                sample_id=sample.id,
                editor=sample.editor,
                metric="accuracy",
                value=float(finding.answer.name == sample.extra["answer"]),
                label=finding.answer.name,
                findings=(finding.task_id,),
            )
