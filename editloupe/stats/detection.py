"""Average precision of detected boxes by COCO's rules: equal to pycocotools' COCOeval, without its data sets.

Covered: precision by class, IoU threshold and range of areas, of the 100 surest detections of an image and class. A class
without truth has none and is no part of a mean. Not covered: crowds, masks and truth that is to be ignored. Without
confidences AP is another figure: all detections are equally sure, in the order of images and, within one, of the detector.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, TypeAlias

import numpy as np

from editloupe.stats.bootstrap import Floats

Box4: TypeAlias = Sequence[float]
"""[x0, y0, x1, y1] in px; an empty box is allowed and overlaps nothing."""

IOUS: Final = tuple(float(iou) for iou in np.linspace(0.5, 0.95, 10))
"""IoU thresholds over which AP is the mean."""
RECALLS: Final[Floats] = np.linspace(0.0, 1.0, 101)
"""Recalls at which precision is read."""
AREAS: Final[Mapping[str, tuple[float, float]]] = MappingProxyType(
    {"all": (0, 1e10), "small": (0, 32**2), "medium": (32**2, 96**2), "large": (96**2, 1e10)}
)
"""Name → least and largest area of a box in square px, both included."""
_LIMIT: Final = 100
"""The surest detections of an image and class that count."""


@dataclass(frozen=True, kw_only=True)
class ImageBoxes:
    """What was detected in one image, and what is there.

    Raises ValueError for confidences or classes of another number than boxes, for what is not finite, and inverted boxes.
    """

    found: Sequence[Box4]
    """Detected boxes in the detector's order."""
    truth: Sequence[Box4]
    confidences: Sequence[float] | None = None
    """One for each detected box, higher is surer; None for a detector that gives none."""
    found_classes: Sequence[Hashable] | None = None
    """One for each detected box; None where classes are not told apart."""
    truth_classes: Sequence[Hashable] | None = None
    """One for each true box; None where classes are not told apart."""

    def __post_init__(self) -> None:
        for box in (*self.found, *self.truth):
            if len(box) != 4 or not np.isfinite(box).all() or box[2] < box[0] or box[3] < box[1]:
                raise ValueError(f"expected finite numbers [x0, y0, x1, y1] with x0 ≤ x1 and y0 ≤ y1, found {[*box]}")
        given = (self.confidences, self.found), (self.found_classes, self.found), (self.truth_classes, self.truth)
        for values, boxes in given:
            if values is not None and len(values) != len(boxes):
                raise ValueError(f"expected a confidence or class for each of {len(boxes)} boxes, found {len(values)}")
        if self.confidences is not None and not np.isfinite(self.confidences).all():
            raise ValueError(f"expected finite confidences, found {[*self.confidences]}")

    def without_classes(self) -> ImageBoxes:
        """Return the same with all boxes of one class."""
        return replace(self, found_classes=None, truth_classes=None)

    def without_confidences(self) -> ImageBoxes:
        """Return the same with all detections equally sure."""
        return replace(self, confidences=None)

    def of(self, name: Hashable) -> tuple[list[int], list[int]]:
        """Return the places of the detected boxes of one class, surest first, and of the true ones."""
        sure = [1.0] * len(self.found) if self.confidences is None else self.confidences
        found = [i for i in range(len(self.found)) if self.found_classes is None or self.found_classes[i] == name]
        truth = [i for i in range(len(self.truth)) if self.truth_classes is None or self.truth_classes[i] == name]
        return sorted(found, key=lambda i: -sure[i]), truth

    @property
    def classes(self) -> list[Hashable]:
        """Those of the truth, in order of appearance; "" where they are not told apart."""
        return list(dict.fromkeys([""] * len(self.truth) if self.truth_classes is None else self.truth_classes))


def average_precision(
    images: Sequence[ImageBoxes], *, iou: float | None = None, area: str = "all", of: Hashable | None = None
) -> float | None:
    """Return average precision, 0 to 1 (higher is better): the mean over recalls, thresholds and classes.

    A detection takes the true box of its class that it overlaps most, of those that no surer one has taken, if their IoU
    reaches the threshold. True boxes outside a range of areas neither count nor punish a detection that takes one, nor does
    an unmatched detection outside it.
    iou: one threshold; None for all of `IOUS`.   area: of `AREAS`.   of: one class; None for the mean of all.
    None where there is no truth of that class and area.
    """
    classes = dict.fromkeys(name for image in images for name in image.classes if of in (None, name))
    found = [_curve(images, one, t, area) for one in classes for t in ((iou,) if iou else IOUS)]
    known = [curve.mean() for curve in found if curve is not None]
    return float(np.mean(known)) if known else None


def _curve(images: Sequence[ImageBoxes], of: Hashable, least: float, area: str) -> Floats | None:
    """Precision at `RECALLS` of one class and threshold; None without truth."""
    truths, sure, hits = 0, list[float](), list[bool]()
    for image in images:
        found, truth = image.of(of)
        inside = [_inside(image.truth[i], area) for i in truth]
        truths += sum(inside)
        for place, taken in zip(found, _taken(image, found[:_LIMIT], truth, least, inside), strict=False):
            if inside[taken] if taken is not None else _inside(image.found[place], area):
                sure.append(1.0 if image.confidences is None else image.confidences[place])
                hits.append(taken is not None)
    if not truths:
        return None
    right = np.array(hits, dtype=float)[np.argsort(-np.array(sure), kind="stable")] if hits else np.zeros(0)
    reached = np.cumsum(right) / truths
    # The best precision at this recall or a higher one.
    best = np.maximum.accumulate((np.cumsum(right) / np.arange(1, len(right) + 1))[::-1])[::-1]
    return np.append(best, 0.0)[np.searchsorted(reached, RECALLS, side="left")]


def _taken(
    image: ImageBoxes, found: Sequence[int], truth: Sequence[int], least: float, inside: Sequence[bool]
) -> list[int | None]:
    """Which of the true boxes each detection takes, surest first: one that counts before any that does not."""
    free, taken = set(range(len(truth))), list[int | None]()
    for place in found:
        overlaps = {j: overlap(image.found[place], image.truth[truth[j]]) for j in free}
        close = [j for j in free if overlaps[j] >= min(least, 1 - 1e-10)]
        # Of equal overlaps the last.
        best = max(close, key=lambda j: (inside[j], overlaps[j], j), default=None)
        free.discard(-1 if best is None else best)
        taken.append(best)
    return taken


def overlap(one: Box4, other: Box4) -> float:
    """Return the intersection over union of two boxes, 0 to 1; 0 for an empty box."""
    width, height = min(one[2], other[2]) - max(one[0], other[0]), min(one[3], other[3]) - max(one[1], other[1])
    both = max(0.0, width) * max(0.0, height)
    return both / (_area(one) + _area(other) - both) if both else 0.0


def _area(box: Box4) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _inside(box: Box4, area: str) -> bool:
    return AREAS[area][0] <= _area(box) <= AREAS[area][1]
