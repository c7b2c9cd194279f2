"""A checklist: one question makes it, and a second wave asks about each entry. The score is the share that holds."""

from editloupe.answers import YES_NO, FreeText
from editloupe.protocols.base import BaseProtocol, missing_output
from editloupe.scores import NOT_JUDGED, Interval, Metric, Score
from editloupe.tasks import About, Ask, Recipe


class Checklist(BaseProtocol):
    name = "checklist"
    metrics = (Metric(id="holds", domain=Interval(low=0, high=1)),)

    def plan(self, group, known):
        for sample in group:
            yield self._ask(sample, "entries", "List what must hold, with commas. (ask items)", FreeText())
            listed = known.finding("entries", sample)
            for entry in self._entries(known, sample):
                question = f"Does this hold? (ask {entry})"
                yield self._ask(sample, "entry", question, YES_NO, part=entry, rests_on=(listed.task_id,))

    def _entries(self, known, sample):
        answer = known.answer("entries", sample)
        return [] if answer is None else answer.text.split(",")

    def _ask(self, sample, metric, question, answer, *, part="", rests_on=()):
        images = {"Original Image": sample.source, **({"Edited Image": sample.edited} if sample.edited else {})}
        return Ask(
            protocol=self.name,
            metric=metric,
            about=About.of(sample, part=part),
            prompt=f"{question} {sample.instruction}",
            views=tuple(Recipe(alias=alias, origin=image) for alias, image in images.items()),
            answer=answer,
            tools=self.tools,
            budget=self.budget,
            rests_on=rests_on,
            blocked=missing_output(sample),
        )

    def score(self, group, known):
        for sample in group:
            entries = self._entries(known, sample)
            if not entries:
                yield self.missing("holds", sample, known, question="entries")
                continue
            found = [known.finding("entry", About.of(sample, part=entry)) for entry in entries]
            missing = next((NOT_JUDGED if f is None else f.status for f in found if f is None or f.status != "ok"), None)
            held = None if missing else sum(f.label == "yes" for f in found) / len(found)
            yield Score(sample_id=sample.id, editor=sample.editor, metric="holds", value=held, missing=missing)
