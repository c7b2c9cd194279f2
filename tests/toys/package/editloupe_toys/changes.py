"""A protocol that asks what changed, where, and how probable each answer's label was."""

from editloupe.protocols.base import BaseProtocol, Options
from editloupe.protocols.labeled_boxes import LabeledBoxes
from editloupe.scores import Metric, Real, Score
from editloupe.tasks import About, Ask, Recipe


class ChangesOptions(Options):
    form: str = "json"
    wants_logprobs: bool = True


class Changes(BaseProtocol):
    name = "changes"
    Options = ChangesOptions
    roles = {"judge": "looks at the edit"}
    metrics = (Metric(id="surest", domain=Real()),)

    def plan(self, group, known):
        for sample in group:
            views = [Recipe(alias="Original Image", origin=sample.source)]
            views += [Recipe(alias="Edited Image", origin=sample.edited)] if sample.edited else []
            yield Ask(
                protocol=self.name,
                metric="differences",
                about=About.of(sample),
                prompt="What differs?",
                views=tuple(views),
                answer=LabeledBoxes(
                    labels=("ADD", "EDIT", "REMOVE"),
                    list_key="differences",
                    label_key="op",
                    name_key="object",
                    image="Edited Image",
                    form=self.options.form,
                    none="no change",
                    wants_logprobs=self.options.wants_logprobs,
                ),
                budget=self.budget,
                blocked=None if sample.edited else ("missing_output", "there is no edited image"),
            )

    def score(self, group, known):
        for sample in group:
            answer = known.answer("differences", sample)
            sure = (
                [] if answer is None else [one["confidence"] for one in answer.data["differences"] if "confidence" in one]
            )
            if sure:
                yield Score(sample_id=sample.id, editor=sample.editor, metric="surest", value=max(sure))
            else:
                yield self.missing("surest", sample, known, question="differences")
