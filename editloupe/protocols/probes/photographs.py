"""Photographs whose targets are known by masks, or by boxes in which they are cut out; crops give them their shares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.baseline.naming import leading, share_of, to_lab
from editloupe.build.base import Lost
from editloupe.data.folders import RowError
from editloupe.data.image_lists import load_images
from editloupe.data.images import RGB, ImageStore
from editloupe.data.rows import DataRow
from editloupe.errors import ImageError
from editloupe.protocols.probes.colours import Mask, colour_of, part_of, shares_of
from editloupe.protocols.probes.scene import Scene, Thing
from editloupe.replies import one_line
from editloupe.values import Box, ImageRef, Json, Sample, digest

Window: TypeAlias = tuple[int, int, int, int]
"""x0, y0, x1 and y1 in px of a photograph, the end exclusive."""

TOLERANCE: Final = 0.15
"""How far a target's share may be from the one that it was to have, as a share of that."""
_LEAST_SIDE: Final = 128
"""px of a crop's shorter side, below which it is no picture of a place any more."""
_MARGIN: Final = 0.04
"""Least space between the target and the border of a crop, as a share of the crop's side."""
_ASPECTS: Final = (4 / 3, 3 / 2, 1.0, 3 / 4)
"""Width ÷ height of crops, beside that of the photograph."""
_TRIES: Final = 200
_GRABCUT_PX: Final = 320
"""px of the longest side at which a thing is cut out of its box."""
_GRABCUT_STEPS: Final = 5
_OF_BOX: Final = (0.25, 0.985)
"""Share of its box that what was cut out covers, at least and at most."""
_MAIN: Final = 0.85
"""Share of what was cut out that is one piece."""
_SAME: Final = 0.88
"""Overlap (IoU) of what is cut out of the image and of a softer copy of it."""
_SOLID: Final = 0.74
"""Share of its convex hull that what was cut out covers, at least."""
_WHOLE: Final = 0.9
"""The same, from which nothing of the thing can be missing at its side."""
_ALIKE: Final = 0.85
"""Share of what was cut out that has its leading colour, from which nothing of the ground is in it for certain."""
_LIT: Final = 30.0
"""Lightness (CIELAB) of what was cut out, in the median, below which its shadow could be a part of it."""
_GAP: Final = 0.15
"""Space between what was cut out and a side of its box at most, as a share of that side's length: boxes fit things."""
_HOLE: Final = 0.02
"""Share of a thing up to which a hole in it is filled, if it does not show the ground."""
_CONTRAST: Final = 11.0
"""ΔE between what was cut out and the ring around it, in the median."""
_EDGE: Final = 3.0
"""ΔE across the edge of a given mask, in the median, below which the picture has no edge there."""
_MOST: Final = 0.6
"""Share of its photograph that a mask covers at most: more is a background."""
_INSIDE: Final = 0.5
"""Share of a mask that lies in the box that is given with it."""


@dataclass(frozen=True, kw_only=True)
class Cut:
    """A target of a photograph."""

    id: str
    """Of its row."""
    photo: ImageRef
    name: str
    noun: str
    box: tuple[int, int, int, int]
    """x0, y0, x1 and y1 of its mask, in px of its photograph."""
    certain: bool = True
    """Whether its mask is that of the whole thing, and of nothing else."""
    part: Mask
    """Its mask inside that box: those of many large photographs fit into memory."""

    @classmethod
    def of(cls, id_: str, photo: ImageRef, mask: Mask, *, name: str, noun: str, certain: bool = True) -> Cut:
        """Return the target of an H×W mask. Raises ValueError for an empty one."""
        where = rows, columns = part_of(mask, 0)
        box = columns.start, rows.start, columns.stop, rows.stop
        return cls(id=id_, photo=photo, name=name, noun=noun, certain=certain, box=box, part=mask[where].copy())

    @property
    def share(self) -> float:
        """Share of its photograph that it covers."""
        return float(self.part.sum() / (self.photo.width * self.photo.height))

    def mask(self, window: Window) -> Mask:
        """Return its mask in a window of its photograph."""
        x0, y0, x1, y1 = window
        left, top, right, bottom = self.box
        whole = np.zeros((y1 - y0, x1 - x0), np.bool_)
        u, v, w, z = max(x0, left), max(y0, top), min(x1, right), min(y1, bottom)
        if u < w and v < z:
            whole[v - y0 : z - y0, u - x0 : w - x0] = self.part[v - top : z - top, u - left : w - left]
        return whole

    def to_json(self) -> dict[str, Json]:
        """Return what names it: two cuts of the same JSON give the same scenes."""
        packed = np.packbits(self.part).tobytes().hex()
        named: dict[str, Json] = {"id": self.id, "photo": self.photo.sha256, "name": self.name, "noun": self.noun}
        return {**named, "certain": self.certain, "mask": digest([list(self.box), packed])}


@dataclass(frozen=True, kw_only=True)
class Photographs:
    """What a path holds."""

    cuts: tuple[Cut, ...]
    lost: tuple[tuple[str, Lost], ...]
    """(id of the row, why it has no target)."""
    read: int
    """Rows."""
    store: ImageStore
    notes: tuple[str, ...] = ()


def read_photographs(
    path: Path, *, store: ImageStore, stopped: Callable[[], bool], tell: Callable[[str], None]
) -> Photographs | None:
    """Return the targets of an ImageFolder; None where it was stopped before. Raises as `list_images`."""
    loaded = load_images(path, store, checked=_checked)
    cuts, lost = list[Cut](), [(row.id, Lost(stage="read", why=row.kind, detail=row.message)) for row in loaded.rejected]
    for number, sample in enumerate(loaded.samples, start=1):
        if stopped():
            return None
        tell(f"Target {number:,} of {len(loaded.samples):,}")
        found = _cut(sample, store)
        if isinstance(found, Lost):
            lost.append((sample.id, found))
        elif same := next((one for one in cuts if _one_thing(one, found)), None):
            lost.append(
                (sample.id, Lost(stage="mask", why="again", detail=f"its mask is that of {same.id!r}; one is enough"))
            )
        else:
            cuts.append(found)
    for cut in _ambiguous(cuts):
        cuts.remove(cut)
        why = f"another target of its photograph is {cut.noun!r} too, so that {cut.name!r} could be either"
        detail = f"{why}; give each a name that tells it apart, such as 'red {cut.noun}'"
        lost.append((cut.id, Lost(stage="mask", why="name_of_several", detail=detail)))
    return Photographs(
        cuts=tuple(cuts),
        lost=tuple(lost),
        read=len(loaded.samples) + len(loaded.rejected),
        store=store,
        notes=loaded.notes,
    )


def crop_of(cut: Cut, beside: Sequence[Cut], *, area: float, longest: int, least: int) -> Window | Lost:
    """Return a window of a photograph in which the target has about this share; or why there is none. No pixel is read.

    beside: its other targets; none of them is cut through.   longest: px of the picture's longer side at most.
    least: px of the target's shorter side at least. The same arguments give the same window.
    """
    shown = f"{100 * area:g} %"
    if area * (1 + TOLERANCE) < cut.share:
        why = f"covers {100 * cut.share:.3g} % of its photograph, and no crop gives it less; take one that shows more"
        return Lost(
            stage="area", why="too_large_for_an_area_share", detail=f"{why} around it, or leave {shown} out of --areas"
        )
    by = Random(digest(["crop", cut.id, cut.photo.sha256, area, longest]))
    window = _window(cut, beside, area, by)
    if isinstance(window, Lost):
        return window
    size, scale = _size(window, longest)
    short = min(cut.box[2] - cut.box[0], cut.box[3] - cut.box[1]) * scale
    if short < least or min(size) < _LEAST_SIDE:
        told = f"the target is {short:.1f} px" if short < least else f"the picture would be {size[0]}×{size[1]} px"
        wanted = f"{least} px on its shorter side (--least)" if short < least else f"{_LEAST_SIDE} px a side"
        why = f"at {shown} {told}; expected at least {wanted}; take a larger photograph, or leave this share out of --areas"
        return Lost(stage="area", why="too_small_for_an_area_share", detail=why)
    return window


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
        certain=cut.certain,
        area=area,
    )


def _size(window: Window, longest: int) -> tuple[tuple[int, int], float]:
    """Return width and height of the picture of a window, and its scale, at most 1."""
    w, h = window[2] - window[0], window[3] - window[1]
    scale = min(1.0, longest / max(w, h))
    return (max(1, round(w * scale)), max(1, round(h * scale))), scale


def _thing(cut: Cut, image: RGB, window: Window) -> Thing:
    part, (height, width) = cut.mask(window), image.shape[:2]
    if part.shape != (height, width):
        part = cv2.resize(part.astype(np.float32), (width, height), interpolation=cv2.INTER_AREA) >= 0.5
    mask = np.ascontiguousarray(part)
    return Thing(name=cut.name, noun=cut.noun, mask=mask, colour=colour_of(image, mask) if mask.any() else "")


def _holds(outer: Window, inner: Window) -> bool:
    return outer[0] <= inner[0] and outer[1] <= inner[1] and outer[2] >= inner[2] and outer[3] >= inner[3]


def _meets(first: Window, second: Window) -> bool:
    return first[0] < second[2] and second[0] < first[2] and first[1] < second[3] and second[1] < first[3]


def _window(cut: Cut, beside: Sequence[Cut], area: float, by: Random) -> Window | Lost:
    """Return a window in which the target has this share and nothing else is cut through.

    Of those that were drawn, the one with most other things is taken, the first of several.
    """
    width, height = cut.photo.width, cut.photo.height
    box, mass = cut.box, int(cut.part.sum())
    across, down = box[2] - box[0], box[3] - box[1]
    others = [one.box for one in beside]
    found: list[Window] = []
    fits = False
    for number in range(_TRIES):
        aspect = width / height if number % 2 == 0 else by.choice(_ASPECTS)
        share = area * by.uniform(1 - TOLERANCE * 0.7, 1 + TOLERANCE * 0.7)
        # The whole photograph, where the target has in it what it is to have.
        if cut.share > share:
            share = cut.share
        w, h = round((mass / share * aspect) ** 0.5), round((mass / share / aspect) ** 0.5)
        if w > width or h > height:
            # As wide, or as high, as the photograph is; the other side follows.
            w, h = (width, round(mass / share / width)) if w > width else (round(mass / share / height), height)
        w, h = min(w, width), min(h, height)
        if abs(mass / (w * h) / area - 1) > TOLERANCE or not 0.4 <= w / h <= 2.5:
            continue
        mx, my = (max(2, round(_MARGIN * side)) for side in (w, h))
        left = max(0, box[2] + mx - w), min(width - w, box[0] - mx)
        top = max(0, box[3] + my - h), min(height - h, box[1] - my)
        if across + 2 * mx > w or down + 2 * my > h or left[0] > left[1] or top[0] > top[1]:
            continue
        fits = True
        x, y = by.randint(*left), by.randint(*top)
        window = x, y, x + w, y + h
        if all(_holds(window, one) or not _meets(window, one) for one in others):
            found.append(window)
    if found:
        return max(found, key=lambda window: sum(_holds(window, one) for one in others))
    shown = f"{100 * area:g} %"
    if fits:
        why = f"every crop that gives it {shown} cuts through another target; leave this share out, or give fewer targets"
        return Lost(stage="area", why="cuts_through_others", detail=why)
    why = f"no crop gives it {shown}: it is {across}×{down} px, and near the border or too long"
    return Lost(stage="area", why="no_crop", detail=f"{why}; take a photograph with more around it")


def _checked(row: DataRow) -> DataRow:
    """Return a row that names its target and says where it is. Raises RowError."""
    if not (row.target_name or str(row.extra.get("target_name") or "")).strip():
        raise RowError(
            "row", "column 'target_name' is empty; expected what instructions call the target, such as 'red mug'"
        )
    if not row.quads and not row.masks:
        raise RowError("box", "there is neither a mask (mask_file_name) nor a box (bbox); expected one of them")
    if len(row.quads) > 1 and not row.masks:
        raise RowError("box", f"there are {len(row.quads)} boxes; expected one target a row, so give each a row of its own")
    return row


def _cut(sample: Sample, store: ImageStore) -> Cut | Lost:
    """Return the target of a row, or why it has none."""
    target = sample.targets[0] if sample.targets else None
    name = _plain(str((target.name if target else "") or sample.extra.get("target_name") or ""))
    boxes = [one.boxes["source"] for one in sample.targets if "source" in one.boxes]
    noun = one_line(str(sample.extra.get("noun") or name.rpartition(" ")[2]))
    try:
        rgb = store.array(sample.source)
        given = store.array(sample.masks["edit"]) if "edit" in sample.masks else None
    except ImageError as error:
        return Lost(stage="mask", why="unreadable_image", detail=str(error))
    found = _cut_out(rgb, boxes[0]) if given is None else _given(rgb, given, boxes)
    if isinstance(found, Lost):
        return found
    certain = given is not None or _sure(rgb, found)
    return Cut.of(sample.id, sample.source, found, name=name, noun=noun, certain=certain)


def _plain(name: str) -> str:
    """Return a name without the article: instructions put one."""
    text = one_line(name)
    first, _, rest = text.partition(" ")
    return rest if rest and first.lower() in ("the", "a", "an") else text


def _given(rgb: RGB, picture: RGB, boxes: Sequence[Box]) -> Mask | Lost:
    """Return a mask that was given, or what is wrong with it."""

    def lost(why: str, detail: str) -> Lost:
        return Lost(stage="mask", why=why, detail=f"the mask {detail}")

    if picture.shape != rgb.shape:
        sizes = f"is {picture.shape[1]}×{picture.shape[0]} px, its image {rgb.shape[1]}×{rgb.shape[0]} px"
        return lost("mask_of_another_size", f"{sizes}; make it from the image as it is")
    mask = picture.max(axis=2) >= 128
    if not mask.any():
        return lost("empty_mask", "is black throughout; expected white on the target")
    if mask.mean() > _MOST:
        return lost(
            "full_mask", f"covers {100 * mask.mean():.0f} % of the image; expected the target alone, white on black"
        )
    if boxes:
        inside = np.zeros_like(mask)
        for box in boxes:
            x0, y0, x1, y1 = box.rounded_out().ints()
            inside[y0:y1, x0:x1] = True
        share = float((mask & inside).sum() / mask.sum())
        if share < _INSIDE:
            told = "lies outside the box" if share == 0 else f"has {100 * share:.0f} % of itself in the box"
            return lost("mask_beside_its_box", f"{told} that is given with it; mend one of them, or leave the box out")
    edge = _edge(rgb, mask)
    if edge < _EDGE:
        told = f"has no edge in the image (ΔE {edge:.1f} across it, in the median; expected {_EDGE:g})"
        return lost("mask_without_an_edge", f"{told}: it misses the object, or belongs to another image")
    return np.asarray(mask, np.bool_)


def _edge(rgb: RGB, mask: Mask) -> float:
    """Return the median ΔE between the two sides of a mask's edge, each a few px from it."""
    where = part_of(mask, 8)
    lab, inside = to_lab(rgb[where]), mask[where].astype(np.uint8)
    size = max(1, min(3, round(float(np.sqrt(mask.sum())) / 8)))
    kernel = np.ones((2 * size + 1, 2 * size + 1), np.uint8)
    inner = (inside > 0) & (cv2.erode(inside, kernel, borderValue=0) == 0)
    outer = (inside == 0) & (cv2.dilate(inside, kernel) > 0)
    if not inner.any() or not outer.any():
        return 0.0
    # The mean colour of each side, near each place of the edge.
    means = []
    for side in (inner, outer):
        weight = cv2.blur(side.astype(np.float32), (9, 9))
        means.append(cv2.blur(lab * side[..., None], (9, 9)) / np.maximum(weight, 1e-6)[..., None])
    near = inner & (cv2.blur(outer.astype(np.float32), (9, 9)) > 0)
    return float(np.median(np.linalg.norm(means[0] - means[1], axis=2)[near])) if near.any() else 0.0


def _cut_out(rgb: RGB, box: Box) -> Mask | Lost:
    """Return the thing in a box, cut out by GrabCut; or why what comes out is no thing."""
    height, width = rgb.shape[:2]
    x0, y0, x1, y1 = box.rounded_out().clipped(width=width, height=height).ints()
    if min(x1 - x0, y1 - y0) < 4 or (x1 - x0) * (y1 - y0) > _MOST * width * height:
        why = f"the box is {x1 - x0}×{y1 - y0} px of {width}×{height}; expected one around a thing, or a mask"
        return Lost(stage="mask", why="unusable_box", detail=why)
    px, py = (max(6, round(0.5 * side)) for side in (x1 - x0, y1 - y0))
    left, top, right, bottom = max(0, x0 - px), max(0, y0 - py), min(width, x1 + px), min(height, y1 + py)
    part = rgb[top:bottom, left:right]
    scale = min(1.0, _GRABCUT_PX / max(part.shape[:2]))
    size = max(1, round(part.shape[1] * scale)), max(1, round(part.shape[0] * scale))
    small = np.asarray(cv2.resize(part, size, interpolation=cv2.INTER_AREA), np.uint8)
    quad = [round(v * scale) for v in (x0 - left, y0 - top, x1 - x0, y1 - y0)]
    piece = _piece(small, quad)
    if isinstance(piece, str):
        return _poor(piece)
    again = _piece(np.asarray(cv2.GaussianBlur(small, (0, 0), 1.5), np.uint8), quad)
    if isinstance(again, str):
        return _poor(f"{again} on a softer copy")
    same = float((piece & again).sum() / (piece | again).sum())
    if same < _SAME:
        return _poor(f"is another thing on a softer copy (they share {100 * same:.0f} %, expected {100 * _SAME:.0f} %)")
    inside = piece.astype(bool)
    around = cv2.dilate(piece, cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (9, 9))).astype(bool) & ~inside
    lab = to_lab(small)
    contrast = float(np.linalg.norm(np.median(lab[inside], axis=0) - np.median(lab[around], axis=0)))
    if contrast < _CONTRAST:
        return _poor(f"differs from what is around by ΔE {contrast:.0f} (expected {_CONTRAST:g})")
    smooth = cv2.GaussianBlur(piece.astype(np.float32), (0, 0), 0.8)
    mask = np.zeros((height, width), np.bool_)
    whole = (part.shape[1], part.shape[0])
    mask[top:bottom, left:right] = cv2.resize(smooth, whole, interpolation=cv2.INTER_LINEAR) >= 0.5
    return mask


def _piece(small: RGB, quad: Sequence[int]) -> NDArray[np.uint8] | str:
    """Return h×w, 1 on what GrabCut finds in a box (x, y, width and height), or why that is no thing."""
    marks = np.zeros(small.shape[:2], np.uint8)
    cv2.setRNGSeed(1)
    try:
        cv2.grabCut(small, marks, list(quad), np.zeros((1, 65)), np.zeros((1, 65)), _GRABCUT_STEPS, cv2.GC_INIT_WITH_RECT)
    except cv2.error:
        return "leaves nothing to tell it from"
    front = np.isin(marks, (cv2.GC_FGD, cv2.GC_PR_FGD)).astype(np.uint8)
    count, labels, stats, _ = cv2.connectedComponentsWithStats(front, connectivity=4)
    if count < 2:
        return "is nothing that stands out"
    largest = 1 + int(np.argmax(stats[1:, cv2.CC_STAT_AREA]))
    piece = np.asarray(labels == largest, np.uint8)
    _mend_holes(small, piece)
    share = float(piece.sum()) / max(1, quad[2] * quad[3])
    main = float(stats[largest, cv2.CC_STAT_AREA] / stats[1:, cv2.CC_STAT_AREA].sum())
    if not _OF_BOX[0] <= share <= _OF_BOX[1] or main < _MAIN:
        told = f"covers {100 * share:.0f} % of the box, {100 * main:.0f} % of it in one piece"
        return f"{told} (expected {100 * _OF_BOX[0]:.0f} to {100 * _OF_BOX[1]:.0f} % and {100 * _MAIN:.0f} %)"
    solid = _solid(piece)
    if solid < _SOLID:
        return f"is torn: {100 * solid:.0f} % of its hull (expected {100 * _SOLID:.0f} %)"
    x, y, w, h = cv2.boundingRect(piece)
    gap = max(x - quad[0], quad[0] + quad[2] - x - w, 0) / quad[2], max(y - quad[1], quad[1] + quad[3] - y - h, 0) / quad[3]
    if max(gap) > _GAP:
        return f"ends {100 * max(gap):.0f} % before a side of the box (expected at most {100 * _GAP:.0f} %)"
    return piece


def _sure(rgb: RGB, mask: Mask) -> bool:
    """Return whether what was cut out of a box is a whole thing for certain, without ground or shadow.

    It has no notch, one colour, and is not so dark that its shadow could belong to it. A shoe loses its sole otherwise, and
    the ground in a ring is taken for the ring.
    """
    where = part_of(mask, 0)
    own, inside = shares_of(rgb, mask), mask[where]
    light = float(np.median(to_lab(rgb[where])[inside][:, 0]))
    return _solid(mask.astype(np.uint8)) >= _WHOLE and share_of(own, leading(own)) >= _ALIKE and light >= _LIT


def _solid(piece: NDArray[np.uint8]) -> float:
    """Return which share of its convex hull a piece and its holes cover, 0 to 1."""
    outlines, _ = cv2.findContours(piece, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    hull = float(cv2.contourArea(cv2.convexHull(np.concatenate(outlines))))
    return float(cv2.contourArea(max(outlines, key=cv2.contourArea))) / max(1.0, hull)


def _mend_holes(small: RGB, piece: NDArray[np.uint8]) -> None:
    """Open the holes of a piece in which the ground shows, as in a handle, and fill small ones that show something else."""
    outlines, _ = cv2.findContours(piece, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    whole = np.zeros_like(piece)
    cv2.drawContours(whole, outlines, -1, 1, cv2.FILLED)
    around = (cv2.dilate(whole, np.ones((9, 9), np.uint8)) > 0) & (whole == 0)
    lab = to_lab(small)
    like_ground = np.linalg.norm(lab - np.median(lab[around], axis=0), axis=2) < 0.75 * _CONTRAST
    inner = cv2.erode(whole, np.ones((5, 5), np.uint8), borderValue=0) > 0
    least = max(6, round(_HOLE / 2 * piece.sum()))
    for what in (like_ground & (whole > 0), (whole > 0) & (piece == 0)):
        count, labels, stats, _ = cv2.connectedComponentsWithStats(what.astype(np.uint8), connectivity=4)
        for one in range(1, count):
            part = labels == one
            mass = int(stats[one, cv2.CC_STAT_AREA])
            if inner[part].all() and like_ground[part].mean() > 0.5 and mass >= least:
                piece[part] = 0
            elif mass < _HOLE * piece.sum() and like_ground[part].mean() <= 0.5:
                piece[part] = 1


def _poor(detail: str) -> Lost:
    return Lost(stage="mask", why="no_clear_object", detail=f"what GrabCut finds in the box {detail}; give a mask instead")


def _ambiguous(cuts: Sequence[Cut]) -> list[Cut]:
    """Return the targets that an instruction could not tell from others of their photograph."""
    names = Counter((cut.photo.sha256, cut.name.casefold()) for cut in cuts)
    nouns = Counter((cut.photo.sha256, cut.noun.casefold()) for cut in cuts)

    def several(cut: Cut) -> bool:
        bare = cut.name.casefold() == cut.noun.casefold() and nouns[cut.photo.sha256, cut.noun.casefold()] > 1
        return bare or names[cut.photo.sha256, cut.name.casefold()] > 1

    return [cut for cut in cuts if several(cut)]


def _one_thing(first: Cut, second: Cut) -> bool:
    if first.photo.sha256 != second.photo.sha256:
        return False
    common = int((first.part & second.mask(first.box)).sum())
    return common > 0.8 * min(int(first.part.sum()), int(second.part.sum()))
