"""Average precision of detected boxes, as COCO defines it: equal to pycocotools' COCOeval, without its data sets.

Covered: precision and recall by class, IoU threshold, range of areas and limit of detections. A class without truth has
neither and is no part of a mean. Not covered: crowds, masks and truth that is to be ignored.

Without confidences AP is another figure. All detections are then equally sure and stand in the order in which they were
given: image by image, and in the detector's order within one. `Precision.confidence` says which of the two it is.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from editloupe.stats.bootstrap import Floats

Bools: TypeAlias = npt.NDArray[np.bool_]
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
LIMITS: Final = (1, 10, 100)
"""The surest detections of an image and class that count."""
ONE_CLASS: Final = ""
"""The class of every box where classes are not told apart."""


@dataclass(frozen=True, kw_only=True)
class Boxes:
    """What was detected in one image, and what is there."""

    found: Sequence[Box4]
    """Detected boxes in the detector's order."""
    truth: Sequence[Box4]
    confidences: Sequence[float] | None = None
    """One for each detected box, higher is surer; None for a detector that gives none."""
    found_classes: Sequence[Hashable] | None = None
    """One for each detected box; None where classes are not told apart."""
    truth_classes: Sequence[Hashable] | None = None
    """One for each true box; None where classes are not told apart."""

    def without_classes(self) -> Boxes:
        """Return the same with all boxes of one class, in the same order."""
        return Boxes(found=self.found, truth=self.truth, confidences=self.confidences)

    def without_confidences(self) -> Boxes:
        """Return the same with all detections equally sure."""
        return Boxes(found=self.found, truth=self.truth, found_classes=self.found_classes, truth_classes=self.truth_classes)


@dataclass(frozen=True, kw_only=True)
class Precision:
    """Precision and recall of a detector over some images."""

    precision: Floats
    """IoU × recall × class × area × limit, 0 to 1; NaN for a class without truth of these areas."""
    recalls: Floats
    """IoU × class × area × limit, the highest recall, 0 to 1; NaN as above."""
    truths: npt.NDArray[np.intp]
    """class × area: how many true boxes there are."""
    ious: tuple[float, ...]
    classes: tuple[Hashable, ...]
    """Those of the truth, in order of appearance."""
    areas: tuple[str, ...]
    limits: tuple[int, ...]
    confidence: Literal["given", "none"]
    """given: detections are sorted by confidence.   none: they stand in the detector's order."""

    def ap(
        self, *, iou: float | None = None, area: str = "all", limit: int | None = None, of: Hashable | None = None
    ) -> float | None:
        """Return average precision, 0 to 1 (higher is better): the mean over recalls, thresholds and classes.

        iou: one threshold; None for all.   area: a name of `areas`.   limit: None for the largest.
        of: one class; None for the mean of all.   None where there is no truth of that class and area.
        """
        found = self.precision[:, :, :, self.areas.index(area), self._limit(limit)]
        return _mean(found[self._iou(iou)][:, :, self._class(of)])

    def ar(self, *, area: str = "all", limit: int | None = None, of: Hashable | None = None) -> float | None:
        """Return average recall, 0 to 1 (higher is better): the mean over thresholds and classes. Arguments as in `ap`."""
        found = self.recalls[:, :, self.areas.index(area), self._limit(limit)]
        return _mean(found[:, self._class(of)])

    def _limit(self, limit: int | None) -> int:
        return self.limits.index(max(self.limits) if limit is None else limit)

    def _iou(self, iou: float | None) -> slice:
        if iou is None:
            return slice(None)
        place = next((i for i, known in enumerate(self.ious) if abs(known - iou) < 1e-9), None)
        if place is None:
            raise ValueError(f"no precision at IoU {iou}; there is at {', '.join(f'{known:g}' for known in self.ious)}")
        return slice(place, place + 1)

    def _class(self, of: Hashable | None) -> list[int]:
        return [i for i, known in enumerate(self.classes) if of is None or known == of]


def precision(
    images: Sequence[Boxes],
    *,
    ious: Sequence[float] = IOUS,
    areas: Mapping[str, tuple[float, float]] = AREAS,
    limits: Sequence[int] = LIMITS,
) -> Precision:
    """Return precision and recall of detected boxes over images.

    A detection takes the true box of its class that it overlaps most, of those that no surer one has taken, if their IoU
    reaches the threshold. True boxes outside a range of areas neither count nor punish a detection that takes one, nor does
    an unmatched detection outside it.
    Equal confidences stay in the order of images and, within one, in the detector's.
    Raises ValueError for boxes, confidences and classes of unequal number, for a value that is not finite, an inverted box,
    and for images of which some have confidences or classes and others none.
    """
    arrays = [_checked(image, f"image {number}") for number, image in enumerate(images, start=1)]
    confidence = _alike([image.confidences is not None for image in images if len(image.found)], "confidences")
    _alike([image.found_classes is not None for image in images if len(image.found)]
           + [image.truth_classes is not None for image in images if len(image.truth)], "classes")  # fmt: skip
    order = tuple(sorted(set(limits)))
    classes = tuple(dict.fromkeys(of for one in arrays for of in one.truth_classes))
    shape = len(ious), len(classes), len(areas), len(order)
    curves, recalls = np.full((shape[0], len(RECALLS), *shape[1:]), np.nan), np.full(shape, np.nan)
    truths = np.zeros((len(classes), len(areas)), np.intp)
    ranges = np.array([*areas.values()], dtype=float).reshape(-1, 2)
    thresholds = np.minimum(np.array(ious, dtype=float), 1 - 1e-10)
    for k, of in enumerate(classes):
        matched = [_matched(own, thresholds, ranges, order[-1]) for one in arrays if (own := one.of(of)) is not None]
        truths[k] = np.sum([one.counted for one in matched], axis=0)
        for m, limit in enumerate(order):
            sure = np.concatenate([one.confidences[:limit] for one in matched])
            by = np.argsort(-sure, kind="stable")
            hit, ignored = (
                np.concatenate([part[:, :, :limit] for part in parts], axis=2)[:, :, by]
                for parts in ([one.taken >= 0 for one in matched], [one.ignored for one in matched])
            )
            for a in np.flatnonzero(truths[k]):
                curves[:, :, k, a, m], recalls[:, k, a, m] = _curve(hit[a], ignored[a], int(truths[k, a]))
    return Precision(
        precision=curves,
        recalls=recalls,
        truths=truths,
        ious=tuple(ious),
        classes=classes,
        areas=tuple(areas),
        limits=order,
        confidence="given" if confidence else "none",
    )


def matches(image: Boxes, *, iou: float = 0.5) -> list[int | None]:
    """Return for each detected box the place of the true box that it takes, None where it takes none.

    Surer detections choose first; those without confidences in the detector's order. A box takes one of its own class.
    Raises ValueError as `precision`.
    """
    one = _checked(image, "the image")
    found: list[int | None] = [None] * len(image.found)
    for of in dict.fromkeys(one.truth_classes):
        own = one.of(of)
        if own is None:
            continue
        taken = _matched(own, np.array([min(iou, 1 - 1e-10)]), np.array([AREAS["all"]]), len(found)).taken[0, 0]
        places = [i for i, known in enumerate(one.found_classes) if known == of]
        theirs = [i for i, known in enumerate(one.truth_classes) if known == of]
        for place, truth in zip(own.order, taken, strict=True):
            found[places[place]] = theirs[truth] if truth >= 0 else None
    return found


def iou(one: Floats, other: Floats) -> Floats:
    """Return the intersection over union of every box of n×4 with every box of m×4, n×m in 0 to 1; 0 for an empty box."""
    low, high = np.maximum(one[:, None, :2], other[None, :, :2]), np.minimum(one[:, None, 2:], other[None, :, 2:])
    both = np.clip(high - low, 0, None).prod(axis=2)
    union = _areas(one)[:, None] + _areas(other)[None, :] - both
    return np.asarray(np.divide(both, union, out=np.zeros_like(both), where=both > 0))


@dataclass(frozen=True, kw_only=True)
class _Image:
    """Boxes of one image as arrays."""

    found: Floats
    truth: Floats
    confidences: Floats
    found_classes: Sequence[Hashable]
    truth_classes: Sequence[Hashable]

    def of(self, name: Hashable) -> _Class | None:
        """Return what is of one class; None for nothing."""
        found, truth = (
            np.fromiter((known == name for known in classes), dtype=bool, count=len(classes))
            for classes in (self.found_classes, self.truth_classes)
        )
        if not found.any() and not truth.any():
            return None
        return _Class(
            found=self.found[found],
            truth=self.truth[truth],
            confidences=self.confidences[found],
            order=np.argsort(-self.confidences[found], kind="stable"),
        )


@dataclass(frozen=True, kw_only=True)
class _Class:
    """Boxes of one image and class."""

    found: Floats
    truth: Floats
    confidences: Floats
    order: npt.NDArray[np.intp]
    """Places of the detected boxes, surest first."""


@dataclass(frozen=True, kw_only=True)
class _Matched:
    """Which detections of one image and class take which true box; the detections from the surest on."""

    confidences: Floats
    taken: npt.NDArray[np.intp]
    """area × IoU × detection: the place of the true box, −1 for none."""
    ignored: Bools
    """area × IoU × detection: whether it neither counts nor punishes."""
    counted: npt.NDArray[np.intp]
    """area: how many true boxes count."""


def _matched(own: _Class, thresholds: Floats, ranges: Floats, limit: int) -> _Matched:
    order = own.order[:limit]
    found, truth = own.found[order], own.truth
    outside_found, outside = ((_areas(boxes) < ranges[:, :1]) | (_areas(boxes) > ranges[:, 1:]) for boxes in (found, truth))
    taken = np.full((len(ranges), len(thresholds), len(found)), -1, np.intp)
    overlaps = iou(found, truth)
    free = np.ones((len(ranges), len(thresholds), len(truth)), bool)
    near = overlaps >= thresholds.min(initial=1.0)
    a, t = np.indices((len(ranges), len(thresholds)))
    for place in np.flatnonzero(near.any(axis=1)):
        # By overlap; of equal ones the last stands first.
        close = np.flatnonzero(near[place])[::-1]
        close = close[np.argsort(-overlaps[place, close], kind="stable")]
        open_ = free[:, :, close] & (overlaps[place, close] >= thresholds[:, None])
        # One that counts goes before any that is ignored.
        worth = open_ * (1 + ~outside[:, None, close])
        best = worth.argmax(axis=2)
        hit = worth[a, t, best] > 0
        taken[:, :, place] = np.where(hit, close[best], -1)
        free[a[hit], t[hit], close[best[hit]]] = False
    matched = taken >= 0
    ignored = np.where(matched, False, outside_found[:, None, :])
    if len(truth):
        ignored |= matched & outside[a[:, :, None], np.maximum(taken, 0)]
    return _Matched(
        confidences=own.confidences[order], taken=taken, ignored=ignored, counted=(~outside).sum(axis=1).astype(np.intp)
    )


def _curve(hit: Bools, ignored: Bools, count: int) -> tuple[Floats, Floats]:
    """Return precision at `RECALLS` (IoU × recall) and the highest recall (IoU). hit, ignored: IoU × detection."""
    right, wrong = (np.cumsum(part & ~ignored, axis=1, dtype=float) for part in (hit, ~hit))
    curve = np.zeros((len(hit), len(RECALLS)))
    if not hit.shape[1]:
        return curve, np.zeros(len(hit))
    reached, at = right / count, right / (right + wrong + np.spacing(1))
    # The best precision at this recall or a higher one.
    at = np.maximum.accumulate(at[:, ::-1], axis=1)[:, ::-1]
    for row, own, best in zip(curve, reached, at, strict=True):
        places = np.searchsorted(own, RECALLS, side="left")
        inside = places < len(own)
        row[inside] = best[places[inside]]
    return curve, reached[:, -1]


def _areas(boxes: Floats) -> Floats:
    return np.asarray((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]))


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if known.size else None


def _checked(image: Boxes, where: str) -> _Image:
    found, truth = (_array(boxes, f"{where}, {what}") for boxes, what in ((image.found, "found"), (image.truth, "truth")))
    given = (
        ("confidences", image.confidences, "detected", found),
        ("classes of detected boxes", image.found_classes, "detected", found),
        ("classes of true boxes", image.truth_classes, "true", truth),
    )
    for what, values, boxes, array in given:
        if values is not None and len(values) != len(array):
            raise ValueError(f"{where}: expected {len(array)} {what}, one for each {boxes} box, found {len(values)}")
    sure = np.ones(len(found)) if image.confidences is None else np.array(image.confidences, dtype=float)
    if not np.isfinite(sure).all():
        raise ValueError(f"{where}: expected finite confidences, found {list(map(float, sure))}")
    return _Image(
        found=found,
        truth=truth,
        confidences=sure,
        found_classes=[ONE_CLASS] * len(found) if image.found_classes is None else image.found_classes,
        truth_classes=[ONE_CLASS] * len(truth) if image.truth_classes is None else image.truth_classes,
    )


def _array(boxes: Sequence[Box4], where: str) -> Floats:
    found = np.array([[*box] for box in boxes], dtype=float) if len(boxes) else np.empty((0, 4))
    if found.ndim != 2 or found.shape[1] != 4:
        raise ValueError(f"{where}: expected boxes [x0, y0, x1, y1], found an array of shape {list(found.shape)}")
    wrong = ~np.isfinite(found).all(axis=1) | (found[:, 2] < found[:, 0]) | (found[:, 3] < found[:, 1])
    if wrong.any():
        box = [float(v) for v in found[wrong][0]]
        raise ValueError(f"{where}: expected finite numbers [x0, y0, x1, y1] with x0 ≤ x1 and y0 ≤ y1, found {box}")
    return found


def _alike(given: Sequence[bool], what: str) -> bool:
    """Return whether all have it. Raises ValueError if only some have."""
    if any(given) and not all(given):
        raise ValueError(f"{sum(given)} of {len(given)} lists of boxes have {what}; expected all of them or none")
    return any(given)
