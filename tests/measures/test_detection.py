"""The measure `detections`: what a detector sees in one pass over one image, recorded for rules."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import MeasureError, ModelAbsent, PhraseError, ToolError
from editloupe.measures.base import measured
from editloupe.models.detect.base import Detection, DetectionResult
from editloupe.values import Box

IMAGE: RGB = np.zeros((100, 200, 3), np.uint8)


@dataclass
class Seer:
    """Gives the same boxes for any phrase, or raises."""

    detections: Sequence[Detection] = ()
    error: Exception | None = None
    asked: list[tuple[str, Any, int]] = field(default_factory=list)
    name: str = "Seer"
    version: str = "seer 1"
    threshold: float = 0.3
    side_px: int = 32

    def __call__(self, images: Sequence[RGB], phrase: str, **thresholds: Any) -> list[DetectionResult]:
        self.asked.append((phrase, thresholds, len(images)))
        if self.error is not None:
            raise self.error
        boxes = tuple(
            Detection(box=d.box.clipped(width=rgb.shape[1], height=rgb.shape[0]), score=d.score, label=d.label)
            for rgb in images
            for d in self.detections
        )
        return [DetectionResult(detections=boxes, width=160, height=80)] * len(images)


@dataclass
class Door:
    detector: Any

    def get(self, kind: str, name: str | None = None) -> Any:
        assert kind == "detect"
        if isinstance(self.detector, Exception):
            raise self.detector
        return self.detector


def test_every_box_of_one_pass_is_recorded_in_thousandths():
    # Two boxes that overlap by more than 0.5 stay two: rules have duplicates of their own.
    cups = [Detection(box=Box(20, 10, 60, 50), score=0.9, label="cup"), Detection(box=Box(22, 10, 60, 50), score=0.26)]
    seer = Seer(detections=cups)
    found = measured("detections", {"phrase": "Red  Cup."}, {"image": IMAGE}, Door(seer))  # type: ignore[arg-type]
    assert found.answer.to_json()["data"] == {
        "phrase": "Red  Cup.",
        "detections": [
            {"box": [100, 100, 300, 500], "score": 0.9, "label": "cup"},
            {"box": [110, 100, 300, 500], "score": 0.26, "label": ""},
        ],
    }
    assert seer.asked == [("red cup", {"box_threshold": 0.25, "text_threshold": 0.25}, 1)]
    assert found.data == {"detector": "seer 1", "seen_px": [160, 80]}
    # Nothing seen is an answer, and a small image is not divided.
    seer = Seer()
    found = measured("detections", {"phrase": "cup", "box_threshold": 0.4}, {"image": IMAGE}, Door(seer))  # type: ignore[arg-type]
    assert found.answer.to_json()["data"] == {"phrase": "cup", "detections": []}
    assert seer.asked == [("cup", {"box_threshold": 0.4, "text_threshold": 0.25}, 1)]


@pytest.mark.parametrize(
    ("detector", "args", "images", "status", "said"),
    [
        (Seer(error=PhraseError("too many tokens")), {"phrase": "cup"}, 1, "input_error", "too many tokens"),
        (Seer(error=ToolError("out of memory")), {"phrase": "cup"}, 1, "tool_failed", "out of memory"),
        (ModelAbsent("no weights here"), {"phrase": "cup"}, 1, "not_defined", "no weights here"),
        (Seer(), {"phrase": " . "}, 1, "input_error", "there is nothing to look for"),
        (Seer(), {"phrase": "x" * 201}, 1, "input_error", "argument phrase"),
        (Seer(), {"phrase": "cup", "box_threshold": 2}, 1, "input_error", "argument box_threshold"),
        (Seer(), {"phrase": "cup"}, 2, "input_error", "expected one image, found 2"),
    ],
)
def test_a_search_that_fails_has_a_status(detector: Any, args: dict[str, Any], images: int, status: str, said: str):
    pictures = {str(i): IMAGE for i in range(images)}
    with pytest.raises(MeasureError, match=said) as caught:
        measured("detections", args, pictures, Door(detector))  # type: ignore[arg-type]
    assert caught.value.status == status
