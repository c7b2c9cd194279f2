"""Photographs whose targets are known by masks; crops give the targets their shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

import cv2
import numpy as np

from editloupe.build.base import LeftOut
from editloupe.build.probes.colours import Mask, colour_of, mean_near, part_of
from editloupe.build.shown import target_name
from editloupe.data.folders import RowError
from editloupe.data.image_lists import load_images
from editloupe.data.images import RGB, ImageStore
from editloupe.data.rows import DataRow
from editloupe.errors import DataError, ImageError
from editloupe.imaging.color_names import to_lab
from editloupe.replies import one_line
from editloupe.values import ImageRef, Sample, digest

Window: TypeAlias = tuple[int, int, int, int]
"""x0, y0, x1 and y1 in px of a photograph, the end exclusive."""

_COLUMNS: Final = "each row needs target_name and mask_file_name, white on the target (docs/trial.md)"
_NO_MASK: Final = "`editloupe build masks` makes it of a box (bbox) or of the name by a segmenter"
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
_EDGE: Final = 3.0
"""ΔE across the edge of a mask, in the median, below which the picture has no edge there."""


@dataclass(frozen=True, kw_only=True)
class Thing:
    """An object of a scene."""

    name: str
    """How an instruction names it, such as "red mug". Unique in the scene."""
    noun: str
    """What it is, such as "mug". A look-alike has the target's noun."""
    mask: Mask
    """H×W, of the whole scene's size; True on the thing."""
    colour: str
    """Name of its colour; "" for a thing that has none that people would agree on."""


@dataclass(kw_only=True)
class Scene:
    """A crop of a photograph, its target, and the other things in it: what makers of probes work on."""

    id: str
    image: RGB
    """H×W×3 uint8."""
    target: Thing
    others: tuple[Thing, ...] = ()
    """What collateral changes may touch; none of them overlaps the target."""
    elsewhere: Callable[[Random], tuple[str, RGB] | None] = lambda _: None
    """Returns the name and the picture of another place, of this image's size; None where there is none."""


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
    def mask(self) -> Mask:
        """Its mask, of its photograph's size."""
        x0, y0, x1, y1 = self.box
        whole = np.zeros((self.photo.height, self.photo.width), np.bool_)
        whole[y0:y1, x0:x1] = self.part
        return whole


@dataclass(frozen=True, kw_only=True)
class Photographs:
    """What a path holds."""

    cuts: tuple[Cut, ...]
    lost: tuple[tuple[str, LeftOut], ...]
    """(id of the row, why it has no target)."""
    store: ImageStore
    notes: tuple[str, ...] = ()


def read_photographs(path: Path, *, stopped: Callable[[], bool], tell: Callable[[str], None]) -> Photographs | None:
    """Return the targets of an ImageFolder; None where it was stopped before. Raises as `list_images`."""
    store = ImageStore()
    loaded = load_images(path, store, checked=_checked)
    if not loaded.samples and all(row.line is None for row in loaded.rejected):
        raise DataError(f"{path} holds images without a metadata.jsonl; expected an ImageFolder: {_COLUMNS}")
    cuts, lost = list[Cut](), [(row.id, LeftOut(row.kind, row.message, at="read")) for row in loaded.rejected]
    for number, sample in enumerate(loaded.samples, start=1):
        if stopped():
            return None
        tell(f"Target {number:,} of {len(loaded.samples):,}")
        try:
            cuts.append(_cut(sample, store))
        except LeftOut as error:
            lost.append((sample.id, error.kept("mask")))
    for cut in _ambiguous(cuts):
        cuts.remove(cut)
        why = f"another target of its photograph is {cut.noun!r} too, so that {cut.name!r} could be either"
        detail = f"{why}; give each a name that tells it apart, such as 'red {cut.noun}'"
        lost.append((cut.id, LeftOut("name_of_several", detail, at="mask")))
    return Photographs(cuts=tuple(cuts), lost=tuple(lost), store=store, notes=loaded.notes)


def crop_of(cut: Cut, beside: Sequence[Cut], *, area: float, longest: int) -> Window:
    """Return a window of a photograph in which the target has about this share. Raises LeftOut. No pixel is read.

    beside: its other targets; none of them is cut through.   longest: px of the picture's longer side at most.
    The same arguments give the same window.
    """

    def lost(why: str, detail: str) -> LeftOut:
        return LeftOut(why, f"at {100 * area:g} % {detail}, or leave this share out of --set areas=…", at="area")

    if area * (1 + _TOLERANCE) < cut.share:
        covers = f"it would need more around it: it covers {100 * cut.share:.3g} % of its photograph"
        raise lost("too_large_for_an_area_share", f"{covers}; take one that shows more")
    windows = list(_windows(cut, area, Random(digest(["crop", cut.id, cut.photo.sha256, area, longest]))))
    if not windows:
        raise lost("no_crop", "it is too near the border, or too long; take a photograph with more around it")
    boxes = [one.box for one in beside]
    whole = [w for w in windows if all(_holds(w, one) or not _meets(w, one) for one in boxes)]
    if not whole:
        raise lost("cuts_through_others", "every crop cuts through another target; give fewer targets")
    window = max(whole, key=lambda w: sum(_holds(w, one) for one in boxes))
    size, scale = _size(window, longest)
    short = min(cut.box[2] - cut.box[0], cut.box[3] - cut.box[1]) * scale
    if short < _LEAST_PX or min(size) < _LEAST_SIDE:
        told = f"the target is {short:.1f} px; expected at least {_LEAST_PX} px on its shorter side"
        if short >= _LEAST_PX:
            told = f"the picture would be {size[0]}×{size[1]} px; expected at least {_LEAST_SIDE} px a side"
        raise lost("too_small_for_an_area_share", f"{told}; take a larger photograph")
    return window


def _windows(cut: Cut, area: float, by: Random) -> list[Window]:
    """Return windows that give a target this share, with some space around it: of many that are drawn, those that fit."""
    width, height = cut.photo.width, cut.photo.height
    x0, y0, x1, y1 = cut.box
    mass = int(cut.part.sum())
    found = list[Window]()
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
        fits = left <= right and top <= bottom and abs(mass / (w * h) / area - 1) <= _TOLERANCE and 0.4 <= w / h <= 2.5
        if fits:
            x, y = by.randint(left, right), by.randint(top, bottom)
            found.append((x, y, x + w, y + h))
    return found


def scene_of(cut: Cut, rgb: RGB, beside: Sequence[Cut], window: Window, *, area: float, longest: int) -> Scene:
    """Return a window of a photograph as a scene.   rgb: the photograph.   The others: as in `crop_of`."""
    x0, y0, x1, y1 = window
    size, scale = _size(window, longest)
    image = np.ascontiguousarray(rgb[y0:y1, x0:x1])
    if scale < 1:
        image = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)
    target = _thing(cut, image, window)
    others = [_thing(one, image, window) for one in beside if _holds(window, one.box)]
    return Scene(
        id=f"{cut.id}@{area:g}",
        image=image,
        target=target,
        others=tuple(one for one in others if one.mask.any() and not (one.mask & target.mask).any()),
    )


def _size(window: Window, longest: int) -> tuple[tuple[int, int], float]:
    """Return width and height of the picture of a window, and its scale, at most 1."""
    w, h = window[2] - window[0], window[3] - window[1]
    scale = min(1.0, longest / max(w, h))
    return (max(1, round(w * scale)), max(1, round(h * scale))), scale


def _thing(cut: Cut, image: RGB, window: Window) -> Thing:
    (x0, y0, x1, y1), (height, width) = window, image.shape[:2]
    part = cut.mask[y0:y1, x0:x1]
    if part.shape != (height, width):
        part = cv2.resize(part.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA) >= 0.5
    mask = np.ascontiguousarray(part)
    return Thing(name=cut.name, noun=cut.noun, mask=mask, colour=colour_of(image, mask) if mask.any() else "")


def _holds(outer: Window, inner: Window) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and outer[2] >= inner[2] and outer[3] >= inner[3]


def _meets(first: Window, second: Window) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def _checked(row: DataRow) -> DataRow:
    """Return a row that names its target and says where it is. Raises RowError."""
    if not (row.target_name or str(row.extra.get("target_name") or "")).strip():
        raise RowError("row", f"column 'target_name' is empty; expected what instructions call the target; {_COLUMNS}")
    if not row.masks:
        raise RowError("row", f"there is no mask; {_COLUMNS}; {_NO_MASK}")
    return row


def _cut(sample: Sample, store: ImageStore) -> Cut:
    """Return the target of a row. Raises LeftOut."""
    name = one_line(target_name(sample))
    # Instructions put an article.
    first, _, rest = name.partition(" ")
    name = rest if rest and first.lower() in ("the", "a", "an") else name
    try:
        mask = _mask(store.array(sample.source), store.array(sample.masks["edit"]))
    except ImageError as error:
        raise LeftOut("unreadable_image", str(error)) from error
    where = rows, columns = part_of(mask, 0)
    return Cut(
        id=sample.id,
        photo=sample.source,
        name=name,
        noun=one_line(str(sample.extra.get("noun") or name.rpartition(" ")[2])),
        box=(columns.start, rows.start, columns.stop, rows.stop),
        part=mask[where].copy(),
    )


def _mask(rgb: RGB, picture: RGB) -> Mask:
    """Return a mask that was given. Raises LeftOut for what is wrong with it."""
    if picture.shape != rgb.shape:
        sizes = f"is {picture.shape[1]}×{picture.shape[0]} px, its image {rgb.shape[1]}×{rgb.shape[0]} px"
        raise LeftOut("mask_of_another_size", f"the mask {sizes}; make it from the image as it is")
    mask = np.asarray(picture.max(axis=2) >= 128, np.bool_)
    if not mask.any():
        raise LeftOut("empty_mask", "the mask is black throughout; expected white on the target")
    if (share := mask.mean()) > _MOST:
        raise LeftOut("full_mask", f"the mask covers {100 * share:.0f} % of the image; expected white on the target alone")
    if (edge := _edge(rgb, mask)) < _EDGE:
        told = f"the mask has no edge in the image (ΔE {edge:.1f} across it, in the median; expected {_EDGE:g})"
        raise LeftOut("mask_without_an_edge", f"{told}: it misses the object, or belongs to another image")
    return mask


def _edge(rgb: RGB, mask: Mask) -> float:
    """Return the median ΔE between the two sides of a mask's edge, each a few px from it."""
    where = part_of(mask, 8)
    lab, inside = to_lab(rgb[where]), mask[where].astype(np.uint8)
    kernel = np.ones((3, 3), np.uint8)
    inner, outer = cv2.erode(inside, kernel, borderValue=0), 1 - cv2.dilate(inside, kernel)
    rim = (cv2.dilate(inside, kernel) > 0) & (inner == 0)
    sides = [mean_near(lab, side.astype(np.float32)) for side in (inner if inner.any() else inside, outer)]
    return float(np.median(np.linalg.norm(sides[0] - sides[1], axis=2)[rim]))


def _ambiguous(cuts: Sequence[Cut]) -> list[Cut]:
    """Return the targets that an instruction could not tell from others of their photograph: "mug" where two are mugs."""
    called = Counter((cut.photo.sha256, name.casefold()) for cut in cuts for name in {cut.name, cut.noun})
    return [cut for cut in cuts if called[cut.photo.sha256, cut.name.casefold()] > 1]
