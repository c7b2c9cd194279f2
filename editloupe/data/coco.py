"""Annotations of objects in images, as COCO and LVIS have them: one JSON file beside a folder of images.

A box is [x, y, width, height] in px. A segmentation is a list of polygons, or a run-length encoding with the counts as
numbers or as COCO's compressed text. What cannot be used is named with its reason, and the rest goes on.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Final
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from editloupe import files
from editloupe.data.boxes import Quad, inside, to_px
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
    faults: tuple[Fault, ...] = field(default=())


def read_coco(file: Path) -> Annotated:
    """Read a file of annotations.

    Raises DataError where it cannot be read, is no JSON, or lacks images, annotations or categories.
    """
    # Larger than a table of ours may be: LVIS has more than a million objects.
    data = _read(file)
    listed = {name: data.get(name) for name in ("images", "annotations", "categories")}
    for name, values in listed.items():
        if not isinstance(values, list):
            found = "none" if values is None else shown(values)
            raise DataError(f"{file}: expected a list {name!r}, as COCO and LVIS have it; found {found}")
        if not values:
            raise DataError(f"{file}: the list {name!r} is empty")
    categories = _categories(listed["categories"] or (), file)
    faults: list[Fault] = []
    entries: dict[str, Mapping[str, Any]] = {}
    for place, entry in enumerate(listed["images"] or (), start=1):
        id_ = _id(entry, "id")
        if id_ is None or id_ in entries:
            why = "no_id" if id_ is None else "duplicate_id"
            faults.append(Fault(what=f"image {id_ or f'number {place}'}", why=why, detail=shown(entry)))
            continue
        entries[id_] = entry
    objects: dict[str, list[CocoAnnotation]] = {id_: [] for id_ in entries}
    for place, entry in enumerate(listed["annotations"] or (), start=1):
        try:
            of, made = _annotation(entry, entries, categories, place)
        except _UnusableAnnotation as error:
            what = _id(entry, "id") or f"number {place}"
            faults.append(Fault(what=f"annotation {what}", why=error.why, detail=str(error)))
            continue
        objects[of].append(made)
    images = []
    for id_, entry in entries.items():
        try:
            images.append(_image(entry, id_, tuple(objects[id_])))
        except _UnusableAnnotation as error:
            faults.append(Fault(what=f"image {id_}", why=error.why, detail=str(error)))
    return Annotated(images=tuple(images), categories=categories, faults=tuple(faults))


def mask_of(annotation: CocoAnnotation, *, width: int, height: int) -> Mask | None:
    """Return the pixels of an object, height×width bool; None where the file gives a box alone.

    A pixel belongs to a polygon if its middle lies inside (even-odd rule). Raises ValueError for a segmentation that is
    malformed, or of another size than the image.
    """
    given = annotation.segmentation
    if isinstance(given, Mapping):
        return _runs(given, width=width, height=height)
    if given is None or given == []:
        return None
    if not isinstance(given, list | tuple):
        raise ValueError(f"expected a segmentation as polygons or as an object with size and counts, found {shown(given)}")
    filled = np.zeros((height, width), np.bool_)
    for polygon in given:
        numbers = [finite(v) for v in polygon] if isinstance(polygon, list | tuple) else []
        if len(numbers) < 6 or len(numbers) % 2 or None in numbers:
            raise ValueError(f"expected a polygon as [x, y, x, y, …] of at least three points, found {shown(polygon)}")
        filled |= _polygon(np.asarray(numbers, np.float64).reshape(-1, 2), width=width, height=height)
    return filled


class _UnusableAnnotation(Exception):
    def __init__(self, why: str, detail: str) -> None:
        self.why = why
        super().__init__(detail)


def _read(file: Path) -> Mapping[str, Any]:
    import json

    try:
        data = json.loads(files.read_bytes(file))
    except FileNotFoundError:
        raise DataError(f"{file}: no such file; expected annotations as COCO or LVIS have them (JSON)") from None
    except IsADirectoryError:
        raise DataError(f"{file}: is a folder; expected annotations (JSON); --set images=… names the folder") from None
    except OSError as error:
        raise DataError(f"{file}: cannot be read: {error.strerror or error}") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{file}: is no JSON ({error}); expected annotations as COCO or LVIS have them") from error
    if not isinstance(data, dict):
        raise DataError(f"{file}: expected an object with images, annotations and categories; found {shown(data)}")
    return data


def _categories(listed: Sequence[Any], file: Path) -> dict[int, str]:
    found: dict[int, str] = {}
    for entry in listed:
        number, name = (entry.get("id"), entry.get("name")) if isinstance(entry, Mapping) else (None, None)
        if not isinstance(number, int) or isinstance(number, bool) or not isinstance(name, str) or not name.strip():
            raise DataError(f"{file}: expected categories with a number as id and a name; found {shown(entry)}")
        if number in found:
            raise DataError(f"{file}: two categories have the id {number}: {found[number]!r} and {name!r}")
        found[number] = " ".join(name.replace("_", " ").split())
    return found


def _id(entry: Any, name: str) -> str | None:
    value = entry.get(name) if isinstance(entry, Mapping) else None
    return str(value) if isinstance(value, int | str) and not isinstance(value, bool) and str(value).strip() else None


def _annotation(
    entry: Any, images: Mapping[str, Mapping[str, Any]], categories: Mapping[int, str], place: int
) -> tuple[str, CocoAnnotation]:
    """Return (id of its image, the annotation). Raises _UnusableAnnotation."""
    of = _id(entry, "image_id")
    if of is None or of not in images:
        raise _UnusableAnnotation("unknown_image", f"no image has the id {of!r}")
    category = entry.get("category_id")
    if not isinstance(category, int) or category not in categories:
        raise _UnusableAnnotation("unknown_category", f"no category has this id: {shown(category)}")
    width, height = _size(images[of])
    numbers = entry.get("bbox")
    values = [finite(v) for v in numbers] if isinstance(numbers, list | tuple) else []
    if len(values) != 4 or None in values:
        raise _UnusableAnnotation("box", f"expected bbox as [x, y, width, height] in px, found {shown(numbers)}")
    a, b, c, d = (v or 0.0 for v in values)
    try:
        box = inside(to_px(Quad(values=(a, b, c, d)), "xywh", width=width, height=height), width=width, height=height)
    except ValueError as error:
        raise _UnusableAnnotation("box", str(error)) from error
    return of, CocoAnnotation(
        id=_id(entry, "id") or f"number {place}",
        category=category,
        box=box,
        segmentation=entry.get("segmentation"),
        crowd=bool(entry.get("iscrowd")),
    )


def _size(entry: Mapping[str, Any]) -> tuple[int, int]:
    """Return (width, height) in px. Raises _UnusableAnnotation."""
    width, height = entry.get("width"), entry.get("height")
    for side in (width, height):
        if not isinstance(side, int) or isinstance(side, bool) or not 0 < side < _MOST:
            raise _UnusableAnnotation(
                "no_size", f"expected the image's width and height in px, found {shown(width)} and {shown(height)}"
            )
    assert isinstance(width, int) and isinstance(height, int)
    return width, height


def _image(entry: Mapping[str, Any], id_: str, annotations: tuple[CocoAnnotation, ...]) -> AnnotatedImage:
    """Return an image of the file. Raises _UnusableAnnotation."""
    width, height = _size(entry)
    name = entry.get("file_name")
    if not name and isinstance(entry.get("coco_url"), str):
        # LVIS names COCO's files by their addresses: …/val2017/000000397133.jpg.
        name = "/".join(PurePosixPath(urlsplit(entry["coco_url"]).path).parts[-2:])
    if not isinstance(name, str) or not name.strip():
        raise _UnusableAnnotation("no_file_name", "expected file_name, or coco_url as LVIS has it")
    return AnnotatedImage(
        id=id_,
        name=name,
        width=width,
        height=height,
        annotations=annotations,
        absent=frozenset(_numbers(entry.get("neg_category_ids"))),
        not_exhaustive=frozenset(_numbers(entry.get("not_exhaustive_category_ids"))),
    )


def _numbers(value: Any) -> Iterator[int]:
    if value is None:
        return
    if not isinstance(value, list) or any(not isinstance(one, int) for one in value):
        raise _UnusableAnnotation("category_lists", f"expected a list of category ids, found {shown(value)}")
    yield from value


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
    if isinstance(counts, str):
        counts = _decompressed(counts)
    numbers = counts if isinstance(counts, list | tuple) else []
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in numbers):
        raise ValueError("its counts are no whole numbers from 0")
    # Of Python's numbers: a damaged count may be larger than an array holds.
    if (total := sum(numbers)) != width * height:
        raise ValueError(f"its counts add up to {total:,} px; the image has {width * height:,}")
    flat = np.repeat(np.arange(len(numbers)) % 2 == 1, numbers)
    return flat.reshape((height, width), order="F")


def _decompressed(text: str) -> list[int]:
    """Return the counts that COCO's text stands for: groups of 5 bits, the lowest first.

    From the fourth on, what is written is the difference to the count two before.
    """
    counts: list[int] = []
    at = 0
    while at < len(text):
        value = shift = 0
        while True:
            if at >= len(text) or not 48 <= ord(text[at]) < 112 or shift > 60:
                raise ValueError("its counts are no run-length text of COCO")
            bits = ord(text[at]) - 48
            value |= (bits & 31) << shift
            shift, at = shift + 5, at + 1
            if not bits & 32:
                break
        if bits & 16:
            value -= 1 << shift
        counts.append(value + counts[-2] if len(counts) > 2 else value)
    return counts
