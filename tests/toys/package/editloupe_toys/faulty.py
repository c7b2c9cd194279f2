"""A yes-or-no question that goes wrong for sample b, in the way that an option names."""

from typing import Literal

from editloupe.answers import YES_NO, OneOf
from editloupe.protocols.base import BaseProtocol, Options
from editloupe.scores import Binary, Metric, Score
from editloupe.tasks import About, Ask, Measure, Recipe
from editloupe.values import Box


class FaultyOptions(Options):
    fault: Literal[
        "plan", "score", "twice", "forever", "chain", "role", "measure", "op", "empty", "fold", "crop", "off", "outline",
        "origin", "crossed", "misspelt",
    ] = "plan"  # fmt: skip


class Faulty(BaseProtocol):
    name = "faulty"
    Options = FaultyOptions
    metrics = (Metric(id="right", domain=Binary()),)

    def plan(self, group, known):
        for sample in group:
            if self.options.fault == "misspelt":
                yield self._ask(sample, metric="rihgt")
            elif sample.id == "b" and self.options.fault != "score":
                yield from self._wrong(sample, known)
            else:
                yield self._ask(sample)

    def _wrong(self, sample, known):
        match self.options.fault:
            case "plan":
                raise KeyError("no such column")
            case "twice":
                yield self._ask(sample)
                yield self._ask(sample)
            case "forever":
                number = 0
                while number := number + 1:
                    yield self._ask(sample, about=About.of(sample, part=str(number)))
            case "chain":
                number = 0
                while not number or known.answer("right", About.of(sample, part=str(number))):
                    number += 1
                    yield self._ask(sample, about=About.of(sample, part=str(number)))
            case "role":
                yield self._ask(sample, role="nobody")
            case "measure":
                yield Measure(protocol=self.name, metric="right", about=About.of(sample), measure="no-such-measure")
            case "op":
                yield self._ask(sample, views=(Recipe(alias="Edited Image", origin=sample.edited, op="blur"),))
            case "crop":
                yield self._ask(sample, views=(Recipe(alias="Edited Image", origin=sample.edited, op="crop"),))
            case "off":
                view = Recipe(alias="Edited Image", origin=sample.edited, op="crop", region=Box(0, 0, 999, 999))
                yield self._ask(sample, views=(view,))
            case "outline":
                params = {"boxes": [[1, 1, 9, 9]], "width": 99999}
                view = Recipe(alias="Edited Image", origin=sample.edited, op="outline", params=params)
                yield self._ask(sample, views=(view,))
            case "origin":
                yield self._ask(sample, views=(Recipe(alias="Edited Image", origin=None),))
            case "crossed":
                yield self._ask(sample, about=About.of("b"))
            case "empty":
                yield self._ask(sample, answer=OneOf(options=()))
            case "fold":
                yield self._ask(sample, answer=OneOf(options=("Yes.", "yes")))

    def _ask(self, sample, **more):
        view = Recipe(alias="Edited Image", origin=sample.edited)
        fields = {"metric": "right", "about": About.of(sample), "views": (view,), "answer": YES_NO, **more}
        return Ask(protocol=self.name, prompt=f"Is it right? {sample.instruction}", **fields)

    def score(self, group, known):
        for sample in group:
            answer = known.answer("right", sample)
            if answer is None:
                yield self.missing("right", sample, known)
                continue
            value = 1 / 0 if sample.id == "b" else float(answer.name == "yes")
            yield Score(sample_id=sample.id, editor=sample.editor, metric="right", value=value)
