"""Annotations as COCO and LVIS have them: what is read, and what is named as unusable."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.data.coco import CocoAnnotation, mask_of, read_coco
from editloupe.errors import DataError
from editloupe.values import Box, Json

IMAGE = {"id": 1, "file_name": "a.png", "width": 6, "height": 4}
OBJECT = {"id": 9, "image_id": 1, "category_id": 7, "bbox": [1, 1, 3, 2]}
CATEGORY = {"id": 7, "name": "street_sign"}


def file(tmp_path: Path, **lists: Any) -> Path:
    path = tmp_path / "annotations.json"
    path.write_text(json.dumps({"images": [IMAGE], "annotations": [OBJECT], "categories": [CATEGORY], **lists}))
    return path


def mask(segmentation: Json, *, width: int = 6, height: int = 4) -> Any:
    made = CocoAnnotation(id="1", category=1, box=Box(0, 0, 1, 1), segmentation=segmentation)
    return mask_of(made, width=width, height=height)


def test_boxes_become_corners_and_names_words(tmp_path: Path) -> None:
    found = read_coco(file(tmp_path))
    assert found.categories == {7: "street sign"} and not found.faults
    (image,) = found.images
    assert [(one.category, one.box) for one in image.annotations] == [(7, Box(1, 1, 4, 3))]
    assert image.categories == {7}


def test_lvis_says_what_is_absent_and_what_is_not_all_annotated(tmp_path: Path) -> None:
    entry = {
        "id": 1, "width": 6, "height": 4, "coco_url": "http://images.cocodataset.org/val2017/000000000001.jpg",
        "neg_category_ids": [3], "not_exhaustive_category_ids": [5],
    }  # fmt: skip
    (image,) = read_coco(file(tmp_path, images=[entry])).images
    assert (image.name, image.absent, image.not_exhaustive) == ("val2017/000000000001.jpg", {3}, {5})
    assert image.categories == {5, 7}


def test_what_cannot_be_used_is_named_and_the_rest_stays(tmp_path: Path) -> None:
    objects: list[tuple[dict[str, Any], str]] = [
        ({"image_id": 2}, "unknown_image"),
        ({"category_id": 8}, "unknown_category"),
        ({"bbox": [1, 1, 30, 2]}, "box"),
        ({"bbox": [1, 1, 0, 2]}, "box"),
        ({"bbox": [1, 1, 2]}, "box"),
        ({"bbox": [1, 1, "2", 2]}, "box"),
        ({"bbox": None}, "box"),
    ]
    found = read_coco(file(tmp_path, annotations=[*({**OBJECT, "id": 4, **changed} for changed, _ in objects), OBJECT]))
    assert [(fault.what, fault.why) for fault in found.faults] == [("annotation 4", why) for _, why in objects]
    assert len(found.images[0].annotations) == 1
    images: list[tuple[Any, str]] = [
        ({"id": 2, "file_name": "b.png"}, "no_size"),
        ({"id": 2, "width": 6, "height": 4}, "no_file_name"),
        ({"id": 1, "file_name": "b.png", "width": 6, "height": 4}, "duplicate_id"),
        ({"file_name": "b.png", "width": 6, "height": 4}, "no_id"),
        ("b.png", "no_id"),
        ({"id": 2, "file_name": "b.png", "width": 6, "height": 4, "neg_category_ids": "3"}, "category_lists"),
    ]
    found = read_coco(file(tmp_path, images=[IMAGE, *(entry for entry, _ in images)]))
    assert [fault.why for fault in found.faults] == [why for _, why in images] and len(found.images) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is no JSON"),
        ("[]", "an object with images"),
        ('{"images": [], "annotations": [], "categories": []}', "expected a list 'images' with at least one entry"),
        (
            '{"images": [1], "annotations": [1], "categories": [{"id": "x"}]}',
            "expected categories with a number of their own as id",
        ),
        ("\xff", "is no JSON"),
    ],
)
def test_a_file_that_is_something_else_is_refused(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(DataError, match=said):
        read_coco(path)


def test_a_polygon_holds_the_pixels_whose_middle_lies_inside() -> None:
    # Columns 1 to 3, rows 1 and 2 of 4 rows and 6 columns.
    wanted = np.zeros((4, 6), bool)
    wanted[1:3, 1:4] = True
    assert np.array_equal(mask([[1, 1, 4, 1, 4, 3, 1, 3]]), wanted)
    # Two parts, one of them partly outside.
    wanted[0, 5] = True
    assert np.array_equal(mask([[1, 1, 4, 1, 4, 3, 1, 3], [5, -9, 99, -9, 99, 1, 5, 1]]), wanted)
    # A triangle over the left half of a 4×4 square: a middle (x+.5, y+.5) is inside where x + y + 1 < 4.
    triangle = mask([[0, 0, 4, 0, 0, 4]], width=4, height=4)
    assert [row.sum() for row in triangle] == [3, 2, 1, 0]


def test_runs_go_column_by_column_and_begin_with_zeros() -> None:
    # 5 zeros, 2 ones, 17 zeros of 24: column 1 (pixels 4 to 7), rows 1 and 2.
    wanted = np.zeros((4, 6), bool)
    wanted[1:3, 1] = True
    assert np.array_equal(mask({"size": [4, 6], "counts": [5, 2, 17]}), wanted)


@pytest.mark.parametrize(
    ("segmentation", "said"),
    [
        ({"size": [6, 4], "counts": [24]}, r"its size \[height, width\] is .* the image's \[4, 6\]"),
        ({"counts": [24]}, "its size"),
        ({"size": [4, 6], "counts": [5, 2]}, "add up to 7 px; the image has 24"),
        ({"size": [4, 6], "counts": [25, -1]}, "whole numbers"),
        ({"size": [4, 6], "counts": [2**70]}, "add up to 1,180,591,620,717,411,303,424 px"),
        ({"size": [4, 6], "counts": [2**63 - 1, 2**63 - 1, 26]}, "add up to 18,446,744,073,709,551,640 px"),
        ({"size": [4, 6], "counts": "52a0"}, "COCO's compressed text"),
        ([[1, 2, 3, 4]], "at least three points"),
        ([[1, 2, 3, 4, 5]], "at least three points"),
        ([[1, 2, 3, None, 5, 6]], "at least three points"),
        ("1,2,3", "expected polygons as"),
    ],
)
def test_a_malformed_segmentation_says_what_is_wrong(segmentation: Json, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        mask(segmentation)
