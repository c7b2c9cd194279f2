"""Edits of several input images: is each of them used? The score is the share that is."""

from editloupe.answers import YES_NO
from editloupe.protocols.base import BaseProtocol, missing_output
from editloupe.scores import NOT_JUDGED, Interval, Metric, Score
from editloupe.tasks import About, Ask, Recipe


class InputsUsed(BaseProtocol):
    name = "inputs"
    metrics = (Metric(id="used", domain=Interval(low=0, high=1)),)

    def plan(self, group, known):
        for sample in group:
            for number, source in enumerate(sample.sources, 1):
                views = [Recipe(alias=f"Input {number}", origin=source)]
                views += [Recipe(alias="Edited Image", origin=sample.edited)] if sample.edited else []
                yield Ask(
                    protocol=self.name,
                    metric="uses",
                    about=About.of(sample, part=f"input {number}"),
                    prompt=f"Is this input used? {sample.instruction} (ask input{number})",
                    views=tuple(views),
                    answer=YES_NO,
                    tools=self.tools,
                    budget=self.budget,
                    blocked=missing_output(sample),
                )

    def score(self, group, known):
        for sample in group:
            parts = [About.of(sample, part=f"input {number}") for number in range(1, len(sample.sources) + 1)]
            found = [known.finding("uses", about) for about in parts]
            missing = next((NOT_JUDGED if f is None else f.status for f in found if f is None or f.status != "ok"), None)
            used = None if missing else sum(f.label == "yes" for f in found) / len(found)
            yield Score(sample_id=sample.id, editor=sample.editor, metric="used", value=used, missing=missing)
