"""Where the square of each turn is, and that it was not there before: answers that are known, and give boxes."""

from editloupe.answers import Boxes, Record
from editloupe.protocols.base import BaseProtocol
from editloupe.scores import Metric, Real, Score
from editloupe.tasks import About, Measure, Recipe
from editloupe.values import Box


class Places(BaseProtocol):
    name = "places"
    roles = {}
    metrics = (Metric(id="squares", domain=Real()),)

    def plan(self, group, known):
        for sample in group:
            before = sample.source
            for number, turn in enumerate(sample.turns, 1):
                # A square of 8 px on a picture of 64×32 px, in thousandths.
                box = [125 * number, 0, 125 * number + 125, 250]
                seen = Record(data={"phrase": "square", "detections": [{"box": box, "score": 0.9, "label": "square"}]})
                about = About.of(sample, turn=number)
                yield self._known("squares", about, "after", turn.edited, seen)
                yield self._known("before", about, "before", before, Boxes(boxes=(Box(0, 500, 500, 1000),)))
                before = turn.edited

    def _known(self, metric, about, alias, image, answer):
        return Measure(
            protocol=self.name,
            metric=metric,
            about=about,
            # The square of a turn is known without a picture.
            views=(Recipe(alias=alias, origin=image),) if alias == "before" else (),
            measure="key",
            args={"answer": answer.to_json()},
        )

    def score(self, group, known):
        for sample in group:
            for number in range(1, len(sample.turns) + 1):
                finding = known.finding("squares", About.of(sample, turn=number))
                count = float(len(finding.answer.data["detections"]))
                yield Score(
                    sample_id=sample.id, editor=sample.editor, turn=number, metric="squares", value=count,
                    findings=(finding.task_id,),
                )  # fmt: skip
