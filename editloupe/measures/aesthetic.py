"""How an image pleases, by a head over CLIP: half of UnicEdit's quality filter (paper, E)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MeasureError
from editloupe.measures import base
from editloupe.scores import Metric, Real


class Aesthetic(base.BaseMeasure):
    """The score that an aesthetic head gives to CLIP's vector of an image, of two to the edited one (higher is better)."""

    name = "aesthetic"
    needs = ("aesthetic", "clip")
    Args = base.Args
    metric = Metric(id="aesthetic", name="Aesthetics", domain=Real(), source="E")

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> base.Measured:
        """Return the score. Raises MeasureError where the head does not fit to CLIP, and ModelAbsent without weights."""
        rgb = images["edited"] if "edited" in images else base.only(images)
        head, encoder = models.get("aesthetic"), models.get("clip")
        try:
            score = head(encoder([rgb], [None])[0])
        except ConfigError as error:
            raise MeasureError(str(error), status="input_error") from error
        return base.Measured(answer=Number(value=score), reason=f"{head.name} over {encoder.name}")
