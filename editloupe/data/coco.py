"""Annotations of objects in images, as COCO and LVIS have them: one JSON file beside a folder of images.

A box is [x, y, width, height] in px. A segmentation is a list of polygons, or a run-length encoding with the counts as
numbers. What cannot be used is named with its reason, and the rest goes on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from editloupe import files
from editloupe.data.boxes import inside, read_quads, to_px
from editloupe.data.tables import shown
from editloupe.errors import DataError
from editloupe.values import Box, Json, finite

Mask = NDArray[np.bool_]
"""H×W, True where the object is."""
_MOST: Final = 150_000_000
"""Most px of a mask, as of an image."""


@dataclass(frozen=True, kw_only=True)
class CocoAnnotation:
    """One object in an image."""

    id: str
    category: int
    box: Box
    """In px of the image."""
    segmentation: Json = None
    """As the file has it; None where it has none."""
    crowd: bool = False
    """Whether it stands for a crowd of such objects (COCO's `iscrowd`)."""


@dataclass(frozen=True, kw_only=True)
class AnnotatedImage:
    """One image of the file."""

    id: str
    name: str
    """File name, relative to the folder of images."""
    width: int
    height: int
    annotations: tuple[CocoAnnotation, ...]
    absent: frozenset[int] = frozenset()
    """Categories that were looked for and are not there (LVIS's `neg_category_ids`)."""
    not_exhaustive: frozenset[int] = frozenset()
    """Categories of which not every object is annotated (LVIS's `not_exhaustive_category_ids`)."""

    @property
    def categories(self) -> frozenset[int]:
        """What is annotated in it, or said to be there."""
        return self.not_exhaustive | {one.category for one in self.annotations}


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What of the file cannot be used."""

    what: str
    """ "image 7" or "annotation 12"."""
    why: str
    """For example unknown_category."""
    detail: str


@dataclass(frozen=True, kw_only=True)
class Annotated:
    """A file of annotations."""

    images: tuple[AnnotatedImage, ...]
    categories: Mapping[int, str]
    """Id → name in plain words: "street_sign" is "street sign"."""
    faults: tuple[Fault, ...] = ()


class _Unusable(Exception):
    def __init__(self, why: str, detail: str) -> None:
        self.why = why
        super().__init__(detail)


def read_coco(file: Path) -> Annotated:
    """Read a file of annotations.

    Raises DataError where it cannot be read, is no JSON, or lacks images, annotations or categories.
    """
    data = _read(file)
    categories = _categories(data["categories"], file)
    images: dict[str, AnnotatedImage] = {}
    objects: dict[str, list[CocoAnnotation]] = {}
    faults: list[Fault] = []
    for place, entry in enumerate(data["images"], start=1):
        id_ = _id(entry, "id")
        try:
            if not id_ or id_ in images:
                raise _Unusable("duplicate_id" if id_ else "no_id", shown(entry))
            images[id_], objects[id_] = _image(entry, id_), []
        except _Unusable as error:
            faults.append(Fault(what=f"image {id_ or f'number {place}'}", why=error.why, detail=str(error)))
    for place, entry in enumerate(data["annotations"], start=1):
        name, of = _id(entry, "id") or f"number {place}", _id(entry, "image_id")
        try:
            if of not in images:
                raise _Unusable("unknown_image", f"no image that can be used has the id {of!r}")
            objects[of].append(_annotation(entry, images[of], categories, name))
        except _Unusable as error:
            faults.append(Fault(what=f"annotation {name}", why=error.why, detail=str(error)))
    found = tuple(replace(image, annotations=tuple(objects[id_])) for id_, image in images.items())
    return Annotated(images=found, categories=categories, faults=tuple(faults))


def mask_of(annotation: CocoAnnotation, *, width: int, height: int) -> Mask | None:
    """Return the pixels of an object, height×width bool; None where the file gives a box alone.

    A pixel belongs to a polygon if its middle lies inside (even-odd rule). Raises ValueError for a segmentation that is
    malformed, or of another size than the image.
    """
    given = annotation.segmentation
    if isinstance(given, Mapping):
        return _runs(given, width=width, height=height)
    if not given:
        return None
    filled = np.zeros((height, width), np.bool_)
    for polygon in given if isinstance(given, list | tuple) else [given]:
        numbers = [finite(v) for v in polygon] if isinstance(polygon, list | tuple) else []
        if len(numbers) < 6 or len(numbers) % 2 or None in numbers:
            raise ValueError(f"expected polygons as [x, y, x, y, …] of at least three points, found {shown(polygon)}")
        filled |= _polygon(np.asarray(numbers, np.float64).reshape(-1, 2), width=width, height=height)
    return filled


def _read(file: Path) -> Mapping[str, list[Any]]:
    what = "expected annotations as COCO or LVIS have them (JSON)"
    try:
        # Larger than a table of ours may be: LVIS has more than a million objects.
        data = json.loads(files.read_bytes(file))
    except FileNotFoundError as error:
        raise DataError(f"{file}: no such file; {what}") from error
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{file}: is no JSON that can be read ({error}); {what}") from error
    if not isinstance(data, dict):
        raise DataError(f"{file}: {what}, an object with images, annotations and categories; found {shown(data)}")
    for name in ("images", "annotations", "categories"):
        if not isinstance(data.get(name), list) or not data[name]:
            raise DataError(f"{file}: expected a list {name!r} with at least one entry; found {shown(data.get(name))}")
    return data


def _categories(entries: list[Any], file: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in entries:
        number, name = (entry.get("id"), entry.get("name")) if isinstance(entry, Mapping) else (None, None)
        if not isinstance(number, int) or number in found or not isinstance(name, str) or not name.strip():
            raise DataError(
                f"{file}: expected categories with a number of their own as id, and a name; found {shown(entry)}"
            )
        found[number] = " ".join(name.replace("_", " ").split())
    return found


def _id(entry: Any, name: str) -> str:
    value = entry.get(name) if isinstance(entry, Mapping) else None
    return str(value).strip() if isinstance(value, int | str) else ""


def _image(entry: Mapping[str, Any], id_: str) -> AnnotatedImage:
    """Return an image of the file, without its annotations. Raises _Unusable."""
    width, height = entry.get("width"), entry.get("height")
    if not (isinstance(width, int) and isinstance(height, int) and 0 < width < _MOST and 0 < height < _MOST):
        found = f"{shown(width)} and {shown(height)}"
        raise _Unusable("no_size", f"expected the image's width and height in px, found {found}")
    # LVIS names COCO's files by their addresses: …/val2017/000000397133.jpg.
    address = PurePosixPath(urlsplit(str(entry.get("coco_url", ""))).path).parts[-2:]
    name = entry.get("file_name") or "/".join(address)
    if not isinstance(name, str) or not name.strip():
        raise _Unusable("no_file_name", "expected file_name, or coco_url as LVIS has it")
    lists = [entry.get(key) or [] for key in ("neg_category_ids", "not_exhaustive_category_ids")]
    if odd := [one for one in lists if not isinstance(one, list) or not all(isinstance(n, int) for n in one)]:
        raise _Unusable("category_lists", f"expected a list of category ids, found {shown(odd[0])}")
    absent, not_exhaustive = map(frozenset, lists)
    size: dict[str, int] = {"width": width, "height": height}
    return AnnotatedImage(id=id_, name=name, **size, annotations=(), absent=absent, not_exhaustive=not_exhaustive)


def _annotation(
    entry: Mapping[str, Any], image: AnnotatedImage, categories: Mapping[int, str], name: str
) -> CocoAnnotation:
    """Return an object of an image. Raises _Unusable."""
    category, numbers = entry.get("category_id"), entry.get("bbox")
    if not isinstance(category, int) or category not in categories:
        raise _Unusable("unknown_category", f"no category has this id: {shown(category)}")
    try:
        (quad,) = read_quads(numbers)
        box = to_px(quad, "xywh", width=image.width, height=image.height)
        box = inside(box, width=image.width, height=image.height)
    except ValueError as error:
        raise _Unusable("box", f"expected bbox as [x, y, width, height] in px, found {shown(numbers)}: {error}") from error
    crowd = bool(entry.get("iscrowd"))
    return CocoAnnotation(id=name, category=category, box=box, segmentation=entry.get("segmentation"), crowd=crowd)


def _polygon(corners: NDArray[np.float64], *, width: int, height: int) -> Mask:
    """Return the pixels whose middle lies inside a polygon.   corners: n×2, x and y in px from the image's edge."""
    turned = np.zeros((height, width + 1), np.int32)
    middles = np.arange(height) + 0.5
    for (x0, y0), (x1, y1) in zip(corners, np.roll(corners, -1, axis=0), strict=True):
        rows = np.nonzero((middles >= min(y0, y1)) & (middles < max(y0, y1)))[0]
        # From this column on, a row's pixels are on the other side of the edge.
        crossed = x0 + (middles[rows] - y0) * ((x1 - x0) / (y1 - y0)) if len(rows) else middles[:0]
        np.add.at(turned, (rows, np.clip(np.ceil(crossed - 0.5), 0, width).astype(np.int64)), 1)
    return np.asarray(np.cumsum(turned, axis=1)[:, :width] % 2 == 1)


def _runs(given: Mapping[str, Json], *, width: int, height: int) -> Mask:
    """Return the mask of a run-length encoding: runs of 0 and 1 in turn, column by column, the first of 0."""
    size, counts = given.get("size"), given.get("counts")
    if not isinstance(size, list | tuple) or list(size) != [height, width]:
        raise ValueError(f"its size [height, width] is {shown(size)}, the image's {[height, width]}")
    if not isinstance(counts, list | tuple) or not all(isinstance(n, int) and n >= 0 for n in counts):
        raise ValueError("its counts are no whole numbers from 0 (pycocotools.mask.decode reads COCO's compressed text)")
    # Of Python's numbers: a damaged count may be larger than an array holds.
    if (total := sum(counts)) != width * height:
        raise ValueError(f"its counts add up to {total:,} px; the image has {width * height:,}")
    flat = np.repeat(np.arange(len(counts)) % 2 == 1, counts)
    return flat.reshape((height, width), order="F")
