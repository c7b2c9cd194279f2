"""What a person says of an edit before it goes into a data set: every kind of answer once."""

from editloupe.answers import YES_NO, BoxList, FreeText, LabelRule, Labels, RecordOf, Scale
from editloupe.protocols.base import BaseProtocol
from editloupe.scores import Binary, Metric, Score
from editloupe.tasks import About, Ask, Recipe

SIZES = Labels(
    labels=(LabelRule(name="Large", value=3), LabelRule(name="Medium", value=2), LabelRule(name="Small", value=1))
)
OBJECT = {
    "type": "object",
    "properties": {"object": {"type": "string", "minLength": 1}, "count": {"type": "integer"}},
    "required": ["object", "count"],
    "additionalProperties": False,
}
SPECS = {
    "keep": YES_NO,
    "size": SIZES,
    "quality": Scale(low=0, high=100),
    "stars": Scale(low=0, high=10, whole=True),
    "name": FreeText(max_words=3),
    "where": BoxList(),
    "listed": RecordOf(schema=OBJECT),
}


class Review(BaseProtocol):
    name = "review"
    metrics = (Metric(id="keep", name="Keep it", domain=Binary()),)

    def plan(self, group, known):
        for sample in group:
            images = {"Original Image": sample.source, "Edited Image": sample.edited}
            for metric, spec in SPECS.items():
                if metric == "name" and known.answer("keep", sample) is None:
                    continue  # only what is kept, or not, needs a name
                yield Ask(
                    protocol=self.name,
                    metric=metric,
                    about=About.of(sample),
                    prompt=f"Question: {metric}\n\n- **Large**: more than half.\n- **Small**: hardly seen.",
                    views=tuple(Recipe(alias=alias, origin=image) for alias, image in images.items() if image),
                    answer=spec,
                    budget=self.budget,
                )

    def score(self, group, known):
        for sample in group:
            finding = known.finding("keep", sample)
            if finding is None or finding.answer is None:
                yield self.missing("keep", sample, known)
            else:
                value = float(finding.answer.name == "yes")
                yield Score(
                    sample_id=sample.id, editor=sample.editor, metric="keep", value=value, findings=(finding.task_id,)
                )
