"""Photographs whose targets are known by masks; crops give the targets their shares of the picture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

import cv2
import numpy as np

from editloupe.build.base import LeftOut, leaving_out
from editloupe.build.paint import Mask, color_of, part_of
from editloupe.build.shown import plain_name, target_name
from editloupe.data.folders import RowError
from editloupe.data.image_lists import load_images
from editloupe.data.images import RGB, ImageStore
from editloupe.data.rows import DataRow
from editloupe.errors import DataError, ImageError
from editloupe.replies import one_line
from editloupe.values import ImageRef, Sample, digest

Window: TypeAlias = tuple[int, int, int, int]
"""x0, y0, x1 and y1 in px of a photograph, the end exclusive."""

_COLUMNS: Final = "each row needs target_name and mask_file_name, white on the target (docs/trial.md)"
_TOLERANCE: Final = 0.15
"""How far a target's share may be from the one that it was to have, as a share of that."""
_LEAST_PX: Final = 8
"""px of a target's shorter side, at least."""
_LEAST_SIDE: Final = 128
"""px of a crop's shorter side, below which it is no picture of a place any more."""
_MARGIN: Final = 0.04
"""Least space between the target and the border of a crop, as a share of the crop's side."""
_TRIES: Final = 200
_MOST: Final = 0.6
"""Share of its photograph that a target covers at most: more is a background."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """An object of a scene."""

    name: str
    """How an instruction names it, such as "red mug". Unique in the scene."""
    noun: str
    """What it is, such as "mug". A look-alike has the target's noun."""
    mask: Mask
    """H×W, of the whole scene's size; True on the thing."""
    color: str
    """Name of its color; "" for a thing that has none that people would agree on."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A crop of a photograph, its target, and the other things in it: what makers of probes work on."""

    image: RGB
    """H×W×3 uint8."""
    target: Thing
    others: tuple[Thing, ...] = ()
    """What collateral changes may touch; none of them overlaps the target."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Cut:
    """A target of a photograph."""

    id: str
    """Of its row."""
    photo: ImageRef
    name: str
    noun: str
    box: Window
    """Of its mask."""
    part: Mask
    """Its mask inside that box: those of many large photographs fit into memory."""

    @property
    def share(self) -> float:
        """Share of its photograph that it covers."""
        return float(self.part.sum() / (self.photo.width * self.photo.height))

    @property
    def scene(self) -> str:
        """Name of its photograph."""
        return self.photo.path.stem if self.photo.path is not None else self.photo.sha256[:12]


@dataclass(frozen=True, kw_only=True)
class Photographs:
    """What a path holds."""

    cuts: tuple[Cut, ...]
    lost: tuple[tuple[str, LeftOut], ...]
    """(id of the row, why it has no target)."""
    store: ImageStore

    def beside(self, cut: Cut) -> list[Cut]:
        """Return the other targets of a target's photograph."""
        return [one for one in self.cuts if one is not cut and one.photo.sha256 == cut.photo.sha256]


def read_photographs(path: Path) -> Photographs:
    """Return the targets of an ImageFolder. Raises DataError where there are no images or no metadata."""
    store = ImageStore()
    loaded = load_images(path, store, checked=_checked)
    if not loaded.samples and all(row.line is None for row in loaded.rejected):
        raise DataError(f"{path} holds images without a metadata.jsonl; expected an ImageFolder: {_COLUMNS}")
    cuts, lost = list[Cut](), [(row.id, LeftOut(row.kind, row.message, at="read")) for row in loaded.rejected]
    for sample in loaded.samples:
        try:
            cuts.append(_cut(sample, store))
        except LeftOut as error:
            lost.append((sample.id, error.kept("mask")))
    called = Counter((cut.photo.sha256, name) for cut in cuts for name in {cut.name.casefold(), cut.noun.casefold()})
    several = [cut for cut in cuts if called[cut.photo.sha256, cut.name.casefold()] > 1]
    for cut in several:
        why = f"another target of its photograph is called {cut.name!r} too; give each a name that tells it apart"
        lost.append((cut.id, LeftOut("name_of_several", why, at="mask")))
    return Photographs(cuts=tuple(cut for cut in cuts if cut not in several), lost=tuple(lost), store=store)


def crop_of(cut: Cut, *, area: float, longest: int) -> Window:
    """Return a window of a photograph in which the target has about this share. Raises LeftOut. No pixel is read.

    longest: px of the picture's longer side at most.   The same arguments give the same window.
    """

    def lost(why: str, detail: str) -> LeftOut:
        return LeftOut(why, f"at {100 * area:g} % {detail}, or leave this share out of --set areas=…", at="area")

    if area * (1 + _TOLERANCE) < cut.share:
        covers = f"it would need more around it: it covers {100 * cut.share:.3g} % of its photograph"
        raise lost("too_large_for_an_area_share", f"{covers}; take one that shows more")
    window = _window(cut, area, Random(digest(["crop", cut.id, cut.photo.sha256, area, longest])))
    if window is None:
        raise lost("no_crop", "it is too near the border, or too long; take a photograph with more around it")
    size, scale = _size(window, longest)
    short = min(cut.box[2] - cut.box[0], cut.box[3] - cut.box[1]) * scale
    if short < _LEAST_PX or min(size) < _LEAST_SIDE:
        told = f"the target is {short:.0f} px and the picture {size[0]}×{size[1]} px"
        least = f"expected {_LEAST_PX} px and {_LEAST_SIDE} px at least on the shorter sides"
        raise lost("too_small_for_an_area_share", f"{told}; {least}; take a larger photograph")
    return window


def _window(cut: Cut, area: float, by: Random) -> Window | None:
    """Return a window that gives a target this share, with some space around it; None where none of many fits."""
    width, height = cut.photo.width, cut.photo.height
    x0, y0, x1, y1 = cut.box
    mass = int(cut.part.sum())
    for number in range(_TRIES):
        aspect = width / height if number % 2 == 0 else by.choice((4 / 3, 3 / 2, 1.0, 3 / 4))
        # The whole photograph, where the target has in it what it is to have.
        share = max(cut.share, area * by.uniform(1 - _TOLERANCE * 0.7, 1 + _TOLERANCE * 0.7))
        w = min(width, round((mass / share * aspect) ** 0.5))
        h = min(height, round(mass / share / w))
        w = min(width, round(mass / share / h))
        mx, my = (max(2, round(_MARGIN * side)) for side in (w, h))
        left, right = max(0, x1 + mx - w), min(width - w, x0 - mx)
        top, bottom = max(0, y1 + my - h), min(height - h, y0 - my)
        if left <= right and top <= bottom and abs(mass / (w * h) / area - 1) <= _TOLERANCE and 0.4 <= w / h <= 2.5:
            x, y = by.randint(left, right), by.randint(top, bottom)
            return x, y, x + w, y + h
    return None


def scene_of(cut: Cut, rgb: RGB, beside: Sequence[Cut], window: Window, *, longest: int) -> Scene:
    """Return a window of a photograph as a scene.   rgb: the photograph.   beside: its other targets."""
    x0, y0, x1, y1 = window
    size, scale = _size(window, longest)
    image = np.ascontiguousarray(rgb[y0:y1, x0:x1])
    if scale < 1:
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    target = _thing(cut, image, window)
    inside = [one for one in beside if x0 <= one.box[0] and y0 <= one.box[1] and one.box[2] <= x1 and one.box[3] <= y1]
    others = [_thing(one, image, window) for one in inside]
    free = tuple(one for one in others if one.mask.any() and not (one.mask & target.mask).any())
    return Scene(image=image, target=target, others=free)


def _size(window: Window, longest: int) -> tuple[tuple[int, int], float]:
    """Return width and height of the picture of a window, and its scale, at most 1."""
    w, h = window[2] - window[0], window[3] - window[1]
    scale = min(1.0, longest / max(w, h))
    return (max(1, round(w * scale)), max(1, round(h * scale))), scale


def _thing(cut: Cut, image: RGB, window: Window) -> Thing:
    (x0, y0, x1, y1), (height, width) = window, image.shape[:2]
    part = np.zeros((cut.photo.height, cut.photo.width), np.float32)
    part[cut.box[1] : cut.box[3], cut.box[0] : cut.box[2]] = cut.part
    resized = cv2.resize(part[y0:y1, x0:x1], (width, height), interpolation=cv2.INTER_AREA)
    mask = np.ascontiguousarray(resized >= 0.5)
    return Thing(name=cut.name, noun=cut.noun, mask=mask, color=color_of(image, mask) if mask.any() else "")


def _checked(row: DataRow) -> DataRow:
    """Return a row that names its target and says where it is. Raises RowError."""
    if not (row.target_name or str(row.extra.get("target_name") or "")).strip():
        raise RowError("row", f"column 'target_name' is empty; expected what instructions call the target; {_COLUMNS}")
    if not row.masks:
        raise RowError("row", f"there is no mask; {_COLUMNS}; `editloupe build masks` makes it of a box or the name")
    return row


def _cut(sample: Sample, store: ImageStore) -> Cut:
    """Return the target of a row. Raises LeftOut."""
    name = one_line(target_name(sample))
    with leaving_out("unreadable_image", ImageError):
        rgb, picture = store.array(sample.source), store.array(sample.masks["edit"])
    if picture.shape != rgb.shape:
        sizes = f"is {picture.shape[1]}×{picture.shape[0]} px, its image {rgb.shape[1]}×{rgb.shape[0]} px"
        raise LeftOut("mask_of_another_size", f"the mask {sizes}; make it from the image as it is")
    mask = np.asarray(picture.max(axis=2) >= 128, np.bool_)
    if not 0 < mask.mean() <= _MOST:
        covers = f"the mask covers {100 * mask.mean():.0f} % of the image; expected white on the target alone"
        raise LeftOut("full_mask" if mask.any() else "empty_mask", covers)
    rows, columns = part_of(mask, 0)
    return Cut(
        id=sample.id,
        photo=sample.source,
        # Instructions put an article.
        name=name if plain_name(name) == name.casefold() else plain_name(name),
        noun=one_line(str(sample.extra.get("noun") or name.rpartition(" ")[2])),
        box=(columns.start, rows.start, columns.stop, rows.stop),
        part=mask[rows, columns].copy(),
    )
