"""A protocol of two measures and no model."""

import numpy as np

from editloupe.answers import Number
from editloupe.errors import MeasureError
from editloupe.measures.base import Args
from editloupe.protocols.base import BaseProtocol
from editloupe.scores import Interval, Metric, Real, Score
from editloupe.tasks import About, Measure, Recipe


class ShareArgs(Args):
    above: int = 0
    """A pixel counts if a channel differs by more than this."""


class ChangedShare:
    """Share of pixels that differ, 0 to 1."""

    name, version, Args, needs = "toy-share", "1", ShareArgs, ()

    def __call__(self, args, images, models):
        if len(images) != 2:
            raise MeasureError(f"expected two images, found {len(images)}")
        before, after = images.values()
        if before.shape != after.shape:
            raise MeasureError("the images differ in size")
        differs = np.abs(before.astype(int) - after.astype(int)).max(axis=2) > args.above
        return Number(value=float(differs.mean()))


class MeanColor:
    """Mean of the edited image's red channel, 0 to 255. Not defined without a red pixel."""

    name, version, Args, needs = "toy-red", "2", Args, ()

    def __call__(self, args, images, models):
        if not images or not (red := list(images.values())[-1][..., 0]).any():
            raise MeasureError("no red")
        return Number(value=float(red.mean()))


class Pixels(BaseProtocol):
    name = "pixels"
    roles = {}
    metrics = (
        Metric(id="share", domain=Interval(low=0, high=1), better="lower"),
        Metric(id="red", domain=Real(), unit="of 255"),
    )

    def plan(self, group, known):
        for sample in group:
            views = [Recipe(alias="Original Image", origin=sample.source)]
            views += [Recipe(alias="Edited Image", origin=sample.edited)] if sample.edited else []
            blocked = None if sample.edited else ("missing_output", "there is no edited image")
            place = {"protocol": self.name, "about": About.of(sample), "views": tuple(views), "blocked": blocked}
            yield Measure(metric="share", measure="toy-share", args={"above": 8}, **place)
            yield Measure(metric="red", measure="toy-red", **place)

    def score(self, group, known):
        for sample in group:
            for metric in ("share", "red"):
                answer = known.answer(metric, sample)
                if answer is None:
                    yield self.missing(metric, sample, known)
                else:
                    yield Score(sample_id=sample.id, editor=sample.editor, metric=metric, value=answer.value)
