"""A text-only question to another role, whose structured answer says what the judge is asked."""

from pydantic import BaseModel

from editloupe.answers import YES_NO, RecordOf
from editloupe.protocols.base import BaseProtocol
from editloupe.scores import Interval, Metric, Score
from editloupe.tasks import About, Ask, Recipe


class Objects(BaseModel):
    objects: list[str]


class ObjectsKept(BaseProtocol):
    name = "objects"
    roles = {"judge": "looks at the edit", "parser": "reads the instruction"}
    metrics = (Metric(id="kept", domain=Interval(low=0, high=1)),)

    def plan(self, group, known):
        for sample in group:
            about, prompt = About.of(sample), f"Which objects does this name? {sample.instruction}"
            yield Ask(protocol=self.name, metric="objects", about=about, role="parser", prompt=prompt,
                      answer=RecordOf.model(Objects), budget=self.budget)  # fmt: skip
            for name in self._objects(sample, known):
                yield Ask(
                    protocol=self.name,
                    metric="kept",
                    about=About.of(sample, part=name),
                    prompt=f"Is the {name} there?",
                    views=(Recipe(alias="Edited Image", origin=sample.edited),) if sample.edited else (),
                    answer=YES_NO,
                    budget=self.budget,
                    rests_on=(known.finding("objects", sample).task_id,),
                    blocked=None if sample.edited else ("missing_output", "there is no edited image"),
                )

    def _objects(self, sample, known):
        answer = known.answer("objects", sample)
        return () if answer is None else tuple(dict.fromkeys(answer.data["objects"]))

    def score(self, group, known):
        for sample in group:
            names = self._objects(sample, known)
            found = [known.finding("kept", About.of(sample, part=name)) for name in names]
            failed = [f for f in found if f is None or f.answer is None]
            if not found:
                yield self.missing("kept", sample, known, question="objects")
            elif failed:
                missing = failed[0].status if failed[0] else "not judged yet"
                yield Score(sample_id=sample.id, editor=sample.editor, metric="kept", value=None, missing=missing)
            else:
                value = sum(f.label == "yes" for f in found) / len(found)
                findings = tuple(f.task_id for f in found)
                yield Score(sample_id=sample.id, editor=sample.editor, metric="kept", value=value, findings=findings)
