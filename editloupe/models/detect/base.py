"""What an object detector is and what it returns. No torch here."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.errors import PhraseError, did_you_mean
from editloupe.values import Box

FAMILIES: Final = {"grounding-dino": "GroundingDINO", "mm-grounding-dino": "MM-GroundingDINO"}
"""`model_type` in a model's config.json → the name that the LMM reads."""


@dataclass(frozen=True, kw_only=True)
class Detection:
    """One box that a detector found."""

    box: Box
    """In px of the image."""
    score: float
    """0 to 1; higher is surer."""
    label: str = ""
    """The words that the box matched; "" where the detector does not say."""


@dataclass(frozen=True, kw_only=True)
class DetectionResult:
    """What a detector found in one image."""

    detections: tuple[Detection, ...]
    """Boxes of any overlap, inside the image, best first."""
    width: int
    """Width in px at which the network saw the image."""
    height: int
    """Height in px at which the network saw the image."""


class Detector(Protocol):
    """Finds a phrase in images. The same input gives the same output. It is called from several threads."""

    name: str
    """What the LMM and the trace call it."""
    version: str
    """Its part of a judge's identity: model, revision or digest, thresholds."""
    threshold: float
    """Least score of a box, 0 to 1."""

    @property
    def side_px(self) -> int:
        """A square part of an image with this side is seen without being reduced."""

    def __call__(
        self,
        images: Sequence[RGB],
        phrase: str,
        *,
        box_threshold: float | None = None,
        text_threshold: float | None = None,
    ) -> list[DetectionResult]:
        """Return one result for each H×W×3 uint8 RGB image.

        phrase: lower case, without a full stop at its end.
        box_threshold: a box scores above it, 0 to 1; None takes `threshold`.
        text_threshold: a word of a label scores above it, 0 to 1; None takes the detector's own. A detector whose boxes
        name no words leaves it aside.
        Raises PhraseError where the phrase is too long for the model, and ToolError where an image is too narrow or does
        not fit into memory.
        """


def word_number(phrase: str, words: Sequence[str], detector: str) -> int:
    """Return the place of a phrase among the words of a detector that knows no others, from 0.

    words: in lower case.   Raises PhraseError, which says what it knows.
    """
    if phrase in words:
        return list(words).index(phrase)
    known = ", ".join(words[:40]) + (", …" if len(words) > 40 else "")
    near = did_you_mean(phrase, words)
    raise PhraseError(f"{detector} does not know {phrase!r}; {near}it knows {len(words)} words only: {known}")


def suppress(detections: Sequence[Detection], *, iou: float = 0.5, inside: float = 0.85) -> tuple[Detection, ...]:
    """Return the detections without duplicates (non-maximum suppression), best first.

    iou: two boxes that overlap more than this count as one.
    inside: so do two boxes where one holds this share of the other and is at most four times as large. Such boxes come
    from objects that a tile's border cuts.
    """
    ordered = sorted(detections, key=lambda d: (-d.score, *d.box))
    corners = np.array([tuple(d.box) for d in ordered], dtype=float).reshape(-1, 4)
    left = np.ones(len(ordered), dtype=bool)
    for number in range(len(ordered)):
        if left[number]:
            left[number + 1 :] &= ~_same(corners[number], corners[number + 1 :], iou, inside)
    return tuple(found for found, is_left in zip(ordered, left, strict=True) if is_left)


def in_image(rows: Iterable[tuple[Sequence[float], float, str]], size: tuple[int, int]) -> tuple[Detection, ...]:
    """Return a network's corners in px, score and label of each box as detections inside the image, best first.

    size: (height, width) of the image in px.
    """
    found = (
        Detection(box=box, score=score, label=label)
        for corners, score, label in rows
        if (box := clean_box(corners, width=size[1], height=size[0])) is not None
    )
    return tuple(sorted(found, key=lambda d: (-d.score, *d.box)))


def clean_box(corners: Sequence[float], *, width: int, height: int) -> Box | None:
    """Return a network's corners in px as a box inside the image.

    Return None where a corner is no finite number, or less than 1 px is left.
    """
    if not all(math.isfinite(v) for v in corners):
        return None
    x0, y0, x1, y1 = max(corners[0], 0.0), max(corners[1], 0.0), min(corners[2], width), min(corners[3], height)
    return Box(x0, y0, x1, y1) if x1 - x0 >= 1 and y1 - y0 >= 1 else None


def _same(box: NDArray[np.float64], others: NDArray[np.float64], iou: float, inside: float) -> NDArray[np.bool_]:
    """Return for each of N×4 other boxes whether it counts as the same as this one, x0, y0, x1, y1 in px."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = (high - low).clip(0).prod(1)
    area, areas = (box[2:] - box[:2]).prod(), (others[:, 2:] - others[:, :2]).prod(1)
    small, large = np.minimum(area, areas), np.maximum(area, areas)
    same = (common / (area + areas - common) > iou) | ((common > inside * small) & (large <= 4 * small))
    return np.asarray(same, dtype=bool)
