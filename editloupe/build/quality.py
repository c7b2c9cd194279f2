"""A quality filter: how an edited image pleases, and how many persons a detector sees in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from editloupe.build.base import LeftOut, need
from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.measures.base import Models, measured
from editloupe.values import Json


@dataclass(frozen=True, kw_only=True)
class QualityFilter:
    """The bounds that are asked for, and the models that measure them."""

    models: Models
    least_aesthetic: float | None = None
    """Least score of the measure `aesthetic`; None asks for none."""
    most_persons: int | None = None
    """Most persons that the detector sees; None asks for none."""

    def check(self) -> None:
        """Raise ConfigError where a model is needed and there is none."""
        for kind in ("aesthetic", "clip") if self.least_aesthetic is not None else ():
            need(self.models, kind, "--set least_aesthetic=… needs the measure aesthetic: {reason}")
        if self.most_persons is not None:
            need(self.models, "detect", "--set most_persons=… needs a detector: {reason}. Name one with --detector")

    def passed(self, rgb: RGB) -> None:
        """Raise LeftOut for an image that does not pass, with the status as `failed` where a measure has no value."""
        if self.least_aesthetic is not None:
            score = self._answer("aesthetic", {}, rgb).value
            if score < self.least_aesthetic:
                raise LeftOut("low_aesthetic", f"{score:.3g}; expected {self.least_aesthetic:g} at least")
        if self.most_persons is not None:
            args: dict[str, Json] = {"phrase": "person", "box_threshold": 0.35, "text_threshold": 0.25}
            seen = len(self._answer("detections", args, rgb).data["detections"])
            if seen > self.most_persons:
                raise LeftOut("too_many_persons", f"{seen}; expected {self.most_persons} at most")

    def _answer(self, measure: str, args: dict[str, Json], rgb: RGB) -> Any:
        try:
            return measured(measure, args, {"image": rgb}, self.models).answer
        except MeasureError as error:
            raise LeftOut(error.status, str(error), failed=error.status) from error
