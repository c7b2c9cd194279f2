"""Average precision: equal to pycocotools on random sets, worked by hand on small ones, and what it refuses."""

from __future__ import annotations

import contextlib
import io
import math
from typing import Any

import numpy as np
import pytest

from editloupe.stats.detection import AREAS, ImageBoxes, average_precision

TRUTH = (0.0, 0.0, 100.0, 100.0)


def drawn(rng: np.random.Generator) -> list[ImageBoxes]:
    """A random set: empty images, ties, near and far boxes, tiny and empty ones, sizes at the bounds of the areas."""
    classes, many = rng.integers(1, 4), rng.random() < 0.05
    levels = int(rng.choice([1, 3, 1000]))
    whole = rng.random() < 0.8
    images = []
    for _ in range(rng.integers(1, 6)):
        truth = _boxes(rng, int(rng.integers(0, 7)), whole)
        copies = truth[rng.integers(0, len(truth), rng.integers(0, 8))] if len(truth) else truth
        moved = copies + (rng.integers(-12, 13, copies.shape) if whole else rng.normal(0, 6, copies.shape))
        moved[:, 2:] = np.maximum(moved[:, :2], moved[:, 2:])
        moved = np.where(rng.random((len(moved), 1)) < 0.3, copies, moved)
        found = np.concatenate([moved, _boxes(rng, int(rng.integers(90, 120) if many else rng.integers(0, 6)), whole)])
        rng.shuffle(found)
        images.append(
            ImageBoxes(
                found=found.tolist(),
                truth=truth.tolist(),
                confidences=(rng.integers(0, levels, len(found)) / levels).tolist(),
                found_classes=rng.integers(0, classes, len(found)).tolist(),
                truth_classes=rng.integers(0, classes, len(truth)).tolist(),
            )
        )
    return images


def _boxes(rng: np.random.Generator, count: int, whole: bool) -> np.ndarray[Any, Any]:
    corners = rng.integers(0, 60, (count, 2)) * 4.0
    sides = rng.choice([0, 1, 8, 31, 32, 33, 64, 96, 97, 150], (count, 2)).astype(float)
    if not whole:
        corners, sides = corners + rng.random((count, 2)), sides * rng.random((count, 2))
    return np.concatenate([corners, corners + sides], axis=1)


def coco(images: list[ImageBoxes]) -> Any:
    """What pycocotools says of these images; its classes are those of ours in the order of numbers."""
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval

    known = sorted({of for image in images for of in image.truth_classes or [0] * len(image.truth)})
    ids = {of: number for number, of in enumerate(known, start=1)}
    truth, found = [], []
    for number, image in enumerate(images, start=1):
        for box, of in zip(image.truth, image.truth_classes or [0] * len(image.truth), strict=True):
            one = {"image_id": number, "category_id": ids[of], "bbox": _sides(box), "area": _sides(box)[2] * _sides(box)[3]}
            truth.append({**one, "id": len(truth) + 1, "iscrowd": 0})
        classes, sure = image.found_classes or [0] * len(image.found), image.confidences or [1.0] * len(image.found)
        for box, of, score in zip(image.found, classes, sure, strict=True):
            if of in ids:
                found.append({"image_id": number, "category_id": ids[of], "bbox": _sides(box), "score": score})
    data = {"images": [{"id": n} for n in range(1, len(images) + 1)], "annotations": truth, "info": {}}
    data["categories"] = [{"id": number} for number in ids.values()]
    with contextlib.redirect_stdout(io.StringIO()):
        ours, theirs = COCO(), COCO()
        ours.dataset = data
        ours.createIndex()
        theirs.dataset = {**data, "annotations": []}
        theirs.createIndex()
        judged = COCOeval(ours, ours.loadRes(found) if found else theirs, "bbox")
        judged.evaluate()
        judged.accumulate()
        judged.summarize()
    return judged


def _sides(box: Any) -> list[float]:
    return [box[0], box[1], box[2] - box[0], box[3] - box[1]]


def equal(images: list[ImageBoxes], agnostic: bool) -> int:
    """Compare every figure of pycocotools with ours; return how many have a value."""
    images = [image.without_classes() for image in images] if agnostic else images
    asked: list[dict[str, Any]] = [{}, {"iou": 0.5}, {"iou": 0.75}, *({"area": area} for area in [*AREAS][1:])]
    figures = [average_precision(images, **one) for one in asked]
    assert [-1 if v is None else v for v in figures] == pytest.approx(coco(images).stats[:6].tolist(), abs=1e-9)
    return sum(v is not None for v in figures)


@pytest.mark.parametrize("count", [40, pytest.param(1000, marks=pytest.mark.slow)])
def test_every_precision_is_that_of_pycocotools(count: int) -> None:
    pytest.importorskip("pycocotools", reason="it is in the extra `dev`")
    rng = np.random.default_rng(13)
    values = [equal(drawn(rng), agnostic) for _ in range(count) for agnostic in (False, True)]
    assert sum(value == 6 for value in values) > count / 2 and 0 in values


def ap(
    found: list[tuple[float, ...]], truth: list[tuple[float, ...]], sure: list[float] | None = None, **more: Any
) -> float | None:
    return average_precision([ImageBoxes(found=found, truth=truth, confidences=sure)], **more)


def test_worked_by_hand() -> None:
    # IoU 80 / 100: right at .50 to .80, which are 7 of 10 thresholds.
    assert ap([(0, 0, 80, 100)], [TRUTH]) == pytest.approx(0.7)
    assert ap([(0, 0, 80, 100)], [TRUTH], iou=0.75) == pytest.approx(1.0)
    assert ap([(0, 0, 80, 100)], [TRUTH], iou=0.85) == 0.0
    # Wrong, then right: precision is 1/2 at every recall. The other way round it is 1.
    far = (500.0, 500.0, 600.0, 600.0)
    assert ap([far, TRUTH], [TRUTH], [0.9, 0.1]) == pytest.approx(0.5)
    assert ap([far, TRUTH], [TRUTH], [0.1, 0.9]) == pytest.approx(1.0)
    # One of two is found: precision 1 at the recalls 0 to .50, 51 of 101.
    assert ap([TRUTH], [TRUTH, far]) == pytest.approx(51 / 101)
    # The second detection of one box is wrong, and nobody takes the other box.
    assert ap([TRUTH, TRUTH], [TRUTH, far]) == pytest.approx(51 / 101)
    # 100×100 is large; there is no small truth.
    assert [ap([TRUTH], [TRUTH], area=area) for area in ("large", "medium", "small")] == [pytest.approx(1.0), None, None]


def test_without_confidences_the_order_decides() -> None:
    far = (500.0, 500.0, 600.0, 600.0)
    image = ImageBoxes(found=[far, TRUTH], truth=[TRUTH], confidences=[0.1, 0.9])
    without = image.without_confidences()
    assert (average_precision([image]), average_precision([without])) == (pytest.approx(1.0), pytest.approx(0.5))
    # An image before another goes first: 0 right of 1, then 1 of 2.
    wrong, right = ImageBoxes(found=[far], truth=[]), ImageBoxes(found=[TRUTH], truth=[TRUTH])
    assert average_precision([wrong, right]) == pytest.approx(0.5)
    assert average_precision([right, wrong]) == pytest.approx(1.0)


def test_classes_count_alike_and_one_without_truth_does_not_count() -> None:
    image = ImageBoxes(
        found=[TRUTH, TRUTH, TRUTH],
        truth=[TRUTH, TRUTH],
        confidences=[0.9, 0.8, 0.7],
        found_classes=["ADD", "EDIT", "MOVE"],
        truth_classes=["ADD", "REMOVE"],
    )
    assert [average_precision([image], of=of) for of in ("ADD", "REMOVE", "EDIT", "MOVE")] == [
        pytest.approx(1.0),
        0.0,
        None,
        None,
    ]
    assert average_precision([image]) == pytest.approx(0.5)
    # Of one class two of the three take the two boxes, the two surest.
    assert average_precision([image.without_classes()]) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"found": [(3, 0, 1, 1)]}, r"x0 ≤ x1 and y0 ≤ y1, found \[3, 0, 1, 1\]"),
        ({"truth": [(0, 0, math.nan, 1)]}, "expected finite numbers"),
        ({"truth": [(0, 0, 1)]}, r"expected finite numbers \[x0, y0, x1, y1\]"),
        ({"found": [TRUTH], "confidences": [math.nan]}, "expected finite confidences"),
        ({"found": [TRUTH], "confidences": []}, "expected a confidence or class for each of 1 boxes, found 0"),
        ({"truth": [TRUTH], "truth_classes": []}, "for each of 1 boxes, found 0"),
    ],
)
def test_what_is_no_box_or_incomplete_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ImageBoxes(**{"found": [], "truth": [], **given})
