"""How much people would like an image, by a model of preference such as HPSv3 (EdiVal-VQ)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.measures import base
from editloupe.models.preference import Preference
from editloupe.scores import Metric, Real


class HumanPreference(base.BaseMeasure):
    """The mean score that a model of preference gives to one image (higher is better). Its σ stands in the reason."""

    name = "preference"
    needs = ("preference",)
    metric = Metric(id="preference", name="Human preference", short="HPS", domain=Real(), source="2.4")

    class Args(base.Args):
        """What the image is scored as."""

        prompt: str
        """What the image was asked for; "" for the image alone."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> base.Measured:
        """Return the mean. Raises MeasureError unless there is one image that the model scores, and ModelAbsent."""
        rgb = base.only(images)
        model: Preference = models.get("preference")
        found = model(rgb, args.prompt)
        return base.Measured(answer=Number(value=found.mean), reason=f"σ {found.sigma:.4g}", data={"sigma": found.sigma})
