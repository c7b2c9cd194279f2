"""Measures that go wrong, and a protocol of one of them."""

from typing import Literal

import numpy as np

from editloupe.answers import Number
from editloupe.errors import MeasureError
from editloupe.measures.base import Args
from editloupe.protocols.base import BaseProtocol, Options
from editloupe.scores import Metric, Real, Score
from editloupe.tasks import About, Measure


class WrongArgs(Args):
    what: str


class Wrong:
    name, version, Args, needs = "toy-wrong", "1", WrongArgs, ()

    def __call__(self, args, images, models):
        match args.what:
            case "float":
                return 7.0
            case "float32":
                return np.float32(7)
            case "status":
                raise MeasureError("it hurts", status="broken")
            case "ok":
                raise MeasureError("it hurts", status="ok")
            case "number of float32":
                return Number(value=np.float32(7))
        return Number(value=7.0)


class Unopened(Wrong):
    name = "toy-unopened"

    def __init__(self):
        raise TypeError("no weights file")


class WrongOptions(Options):
    what: Literal["float", "float32", "status", "ok", "number of float32", "unopened"] = "float"


class WrongMeasure(BaseProtocol):
    name = "wrong"
    Options = WrongOptions
    roles = {}
    metrics = (Metric(id="number", domain=Real()),)

    def plan(self, group, known):
        what = self.options.what
        name = "toy-unopened" if what == "unopened" else "toy-wrong"
        for sample in group:
            about = About.of(sample)
            # Of three samples one goes wrong.
            given = what if sample.id == "b" else "nothing"
            yield Measure(protocol=self.name, metric="number", about=about, measure=name, args={"what": given})

    def score(self, group, known):
        for sample in group:
            answer = known.answer("number", sample)
            if answer is None:
                yield self.missing("number", sample, known)
            else:
                yield Score(sample_id=sample.id, editor=sample.editor, metric="number", value=answer.value)
