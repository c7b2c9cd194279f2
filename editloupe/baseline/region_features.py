"""Measures two images: each changed region closely, and the picture as a whole.

`ImagePair` works on the aligned copies (`imaging.align`); boxes handed in and out are px of the original image.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Final, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.baseline.naming import Lab, shares, to_lab
from editloupe.data.images import RGB
from editloupe.imaging.differences import Differences, localize
from editloupe.values import Box

Mask: TypeAlias = NDArray[np.bool_]

_LARGEST_SIDE: Final = 112
"""px; a larger region is measured on a smaller copy. Shapes and colours survive that, and time does not grow."""
_RING_SAMPLES: Final = 160
_CELLS: Final = 16
"""Rows and columns into which the picture as a whole is cut."""
_BINS: Final = 64
_EDGE_ENERGY: Final = 2.0
"""Mean square of the edge strength, ΔE per px on the half thumbnail, above which a cell has edges at all."""
_SAME_SIDES: Final = 0.25
"""Cosine between the gradients of a cell, over all its pixels and channels, below which its edges have other sides: -1 in a
negative, about -0.4 where red, green and blue changed places."""


@dataclass(frozen=True, kw_only=True)
class RegionFeatures:
    """One changed region, measured in both images."""

    box: Box
    """In px of the original image."""
    before: dict[str, float]
    """Share 0..1 of the object's changed pixels by colour name, in the original image."""
    after: dict[str, float]
    """The same in the edited image."""
    size_before: float
    """Pixels that stand out from the surroundings in the original image, as a share of the box."""
    size_after: float
    """The same in the edited image."""
    outline: float
    """How well the two silhouettes cover each other, 0..1."""
    edges: float
    """Correlation of edge strength, -1..1."""
    shift: float
    """Distance of the two median colours, ΔE in Lab."""
    steady: float
    """Median ΔE, pixel by pixel, of what stands out in both images; infinite where nothing does."""
    sharpness: float
    """Edge steepness for its contrast, after ÷ before."""
    detail: float
    """Fine structure inside the object, after ÷ before."""
    inner: float
    """Correlation of the structure inside the object, -1..1."""
    around: dict[str, float]
    """Share 0..1 of the pixels around it by colour name, in the original image."""
    form_before: str
    """Outline in the original image: "round", "square", "triangle", "star" or "other"."""
    form_after: str
    """The same in the edited image."""

    @property
    def vanished(self) -> bool:
        """True if something stood out here before and nearly nothing does now."""
        return self.size_before >= 0.12 and self.size_after < 0.3 * self.size_before

    @property
    def appeared(self) -> bool:
        """True if something stands out here now and nearly nothing did before."""
        return self.size_after >= 0.12 and self.size_before < 0.3 * self.size_after


@dataclass(frozen=True, kw_only=True)
class ImageFeatures:
    """The two pictures as wholes, without what masks hide: shares are of the rest. Cells are those of a 16×16 grid."""

    changed: float
    """Share of the picture that differs clearly, 0..1."""
    structure: float
    """Correlation of the edge maps, -1..1. On a plain ground a few things decide it: one that goes takes it to 0."""
    redrawn: float
    """Share of the cells that have edges in either image and not the same ones: how far across the picture they differ."""
    inverted: float
    """Share of the cells that have the same edges in both, with other sides: light and dark, or colours, changed places."""
    palette: float
    """Overlap of the colour histograms, 0..1."""
    texture: float
    """Share of the cells whose structure of a few px grew or fell fourfold."""
    colour: float
    """Share of the cells whose mean colour moved by ΔE 12."""
    compared_px: float
    """Area that no mask hides, in px² of the aligned copies."""


class ImagePair:
    """Two images side by side, brought to one size, place and tone.

    masks_1, masks_2: boxes painted over in the original and in the edited image, in px of each.
    profiles, turns: as `localize` takes them.
    """

    def __init__(
        self,
        original: RGB,
        edited: RGB,
        masks_1: Sequence[Box] = (),
        masks_2: Sequence[Box] = (),
        *,
        turns: bool = False,
    ) -> None:
        self.found: Differences = localize(original, edited, masks_1=masks_1, masks_2=masks_2, turns=turns)
        alignment = self.found.alignment
        self._first = self.found.tone.applied(alignment.first)
        # What stands under a mask was filled in each copy by itself, and is no difference.
        self._second = np.where(alignment.masked[..., None], np.rint(self._first).astype(np.uint8), alignment.second)

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the original image, px."""
        return self.found.alignment.size_1

    def features(self, box: Box) -> RegionFeatures:
        """Return the features of one region. box: px of the original image."""
        return _measured(self._patch(box))

    def connected(self, a: Box, b: Box) -> bool:
        """Return True if one thing, in either image, reaches from box a to box b. a, b: px of the original image."""
        patch = self._patch(a.union(b))
        for mask in patch.standing_out:
            _, pieces = cv2.connectedComponents(_grown(mask | patch.changed, 1).astype(np.uint8), connectivity=8)
            if np.intersect1d(pieces[patch.inside(a)], pieces[patch.inside(b)]).any():
                return True
        return False

    def _patch(self, box: Box) -> _Patch:
        height, width = self._second.shape[:2]
        sx, sy = self.found.alignment.scale
        inner = _at_least(box.scaled(sx, sy), 4.0).clipped(width=width, height=height)
        margin = max(8.0, 0.4 * max(inner.width, inner.height))
        outer = Box(inner.x0 - margin, inner.y0 - margin, inner.x1 + margin, inner.y1 + margin)
        x0, y0, x1, y1 = outer.clipped(width=width, height=height).ints()
        scale = min(1.0, _LARGEST_SIDE / max(x1 - x0, y1 - y0))
        return _Patch(
            before=_prepared(to_lab(self._first[y0:y1, x0:x1]), scale),
            after=_prepared(to_lab(self._second[y0:y1, x0:x1]), scale),
            changed=_scaled(self.found.changed[y0:y1, x0:x1].astype(np.float32), scale) >= 0.5,
            box=box,
            frame=(sx * scale, sy * scale, x0 * scale, y0 * scale),
        )

    @cached_property
    def whole(self) -> ImageFeatures:
        labs = [to_lab(image) for image in (self._first, self._second.astype(np.float32))]
        # At no more than 256 px a side.
        scale = min(1.0, 256 / max(labs[0].shape[:2]))
        first, second = (_prepared(lab, scale) for lab in labs)
        edges = [_edge_strength(lab) for lab in (first, second)]
        shown = _scaled(self.found.alignment.masked.astype(np.float32), scale) == 0
        compared = 1 - self.found.masked_share
        # What a mask hides is alike in both copies: it adds to no share.
        share = 1 / compared if compared else 0.0
        redrawn, inverted = _changed_edges(first, second)
        texture, colour = _changed_cells(*labs)
        return ImageFeatures(
            changed=min(1.0, share * self.found.changed_share),
            structure=_correlation(*(edge[shown] for edge in edges)) if shown.any() else 1.0,
            redrawn=min(1.0, share * redrawn),
            inverted=min(1.0, share * inverted),
            palette=max(0.0, 1 - share * (1 - _palette_overlap(first, second))),
            texture=min(1.0, share * texture),
            colour=min(1.0, share * colour),
            compared_px=self.found.compared_px,
        )


@dataclass(frozen=True, kw_only=True)
class _Patch:
    """One region with its surroundings in both images, h×w px of its own. box: the region in px of the original image."""

    before: Lab
    after: Lab
    changed: Mask
    box: Box
    frame: tuple[float, float, float, float]
    """Scale and origin: (x, y) of the original image is (x · frame[0] - frame[2], y · frame[1] - frame[3]) here."""

    def inside(self, box: Box) -> Mask:
        """Return the pixels of a box given in px of the original image; at least one."""
        sx, sy, ox, oy = self.frame
        mask = np.zeros(self.changed.shape, bool)
        x0, y0, x1, y1 = _at_least(box.scaled(sx, sy).shifted(-ox, -oy), 2.0).ints()
        mask[max(0, y0) : max(1, y1), max(0, x0) : max(1, x1)] = True
        return mask

    @cached_property
    def near(self) -> Mask:
        return _grown(self.inside(self.box), 2)

    @cached_property
    def standing_out(self) -> tuple[Mask, Mask]:
        """What differs from the surroundings, in the original and in the edited image."""
        ring = ~self.near & ~self.changed
        if ring.sum() < 24:
            ring = np.ones(ring.shape, bool) if self.near.all() else ~self.near
        pixels = np.concatenate([self.before[ring], self.after[ring]])
        samples = pixels[:: max(1, len(pixels) // _RING_SAMPLES)]
        return _standing_out(self.before, samples, self.near), _standing_out(self.after, samples, self.near)


def _measured(patch: _Patch) -> RegionFeatures:
    before, after, changed = patch.before, patch.after, patch.changed
    inside, near = patch.inside(patch.box), patch.near
    a, b = patch.standing_out
    union = a | b
    touched = _grown(changed, 1)
    core_a, core_b = _core(a & touched), _core(b & touched)
    fallback = changed & inside if (changed & inside).any() else inside
    pixels_a, pixels_b = before[core_a if core_a.any() else fallback], after[core_b if core_b.any() else fallback]
    edges_a, edges_b = _edge_strength(before), _edge_strength(after)
    around = _grown(union if union.any() else inside, 2)
    interior, both = _shrunk(a & b, 2), _core(a & b)
    area = max(1, int(inside.sum()))
    return RegionFeatures(
        box=patch.box,
        before=shares(pixels_a),
        after=shares(pixels_b),
        size_before=float((a & touched).sum()) / area,
        size_after=float((b & touched).sum()) / area,
        outline=_cover(a, b),
        edges=_correlation(edges_a[around], edges_b[around]),
        shift=float(np.linalg.norm(np.median(pixels_a, axis=0) - np.median(pixels_b, axis=0))),
        steady=float(np.median(np.linalg.norm(before[both] - after[both], axis=1))) if both.any() else float("inf"),
        sharpness=_ratio(_steepness(after, b, edges_b), _steepness(before, a, edges_a)),
        detail=_ratio(_mean(edges_b, interior), _mean(edges_a, interior)),
        inner=_correlation(edges_a[interior], edges_b[interior]) if interior.sum() >= 24 else 1.0,
        around=shares(before[_grown(inside, 4) & ~near]),
        form_before=_form(a),
        form_after=_form(b),
    )


# What stands out from its surroundings ---------------------------------------------------------------------------------


def _standing_out(lab: Lab, samples: Lab, near: Mask) -> Mask:
    """Return the pixels near the region whose colour is rare around it. Specks are dropped."""
    between = _distances(samples, samples)
    rank = max(1, len(samples) // 25)
    # The surroundings' own spread sets the tolerance: a carpet allows more than a wall.
    tolerance = float(np.percentile(np.sort(between, axis=1)[:, rank], 90))
    tolerance = min(max(7.0, 1.3 * tolerance), 20.0)
    like = (_distances(lab[near], samples) < tolerance).mean(axis=1)
    out = np.zeros(lab.shape[:2], np.uint8)
    out[near] = like < 0.02
    _, labels, stats, _ = cv2.connectedComponentsWithStats(out, connectivity=8)
    areas = stats[:, cv2.CC_STAT_AREA]
    keep = areas >= max(6, 0.04 * int(areas[1:].max(initial=0)))
    keep[0] = False
    kept: Mask = keep[labels]
    return kept


def _distances(a: Lab, b: Lab) -> NDArray[np.float32]:
    """Return N×M Euclidean distances, ΔE76."""
    squares = (a**2).sum(axis=1)[:, None] + (b**2).sum(axis=1)[None] - 2 * a @ b.T
    return np.asarray(np.sqrt(np.maximum(squares, 0)), np.float32)


def _cover(a: Mask, b: Mask) -> float:
    """Return how well two silhouettes cover each other, 0..1, within 1 px at the rim; 1 where both are empty."""
    if not a.any() or not b.any():
        return float(a.any() == b.any())
    wide_a, wide_b = _grown(a, 1), _grown(b, 1)
    return float(min((a & wide_b).sum() / a.sum(), (b & wide_a).sum() / b.sum()))


def _form(mask: Mask) -> str:
    """Return the outline's name, by its area against its hull, its tightest rectangle and its circle."""
    contours, _ = cv2.findContours(_grown(mask, 1).astype(np.uint8), cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_NONE)
    if not contours:
        return "other"
    contour = max(contours, key=cv2.contourArea)
    area = float(cv2.contourArea(contour))
    if area < 40:
        return "other"
    _, radius = cv2.minEnclosingCircle(contour)
    _, (width, height), _ = cv2.minAreaRect(contour)
    solidity = area / float(cv2.contourArea(cv2.convexHull(contour)))
    in_circle, in_box = area / (np.pi * radius**2), area / max(1.0, width * height)
    if solidity < 0.78:
        return "star"
    if in_circle > 0.8:
        return "round"
    if in_box > 0.84 and solidity > 0.9:
        return "square"
    return "triangle" if in_circle < 0.6 and in_box < 0.68 else "other"


# Edges ------------------------------------------------------------------------------------------------------------------


def _gradient(lab: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return 2×h×w×3: the gradient across and down of each channel, per pixel."""
    return np.stack([cv2.Sobel(lab, cv2.CV_32F, dx, dy, ksize=3) / 8 for dx, dy in ((1, 0), (0, 1))])


def _edge_strength(lab: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the length of the gradient over all three channels, per pixel."""
    return _length(_gradient(lab))


def _length(gradient: NDArray[np.float32]) -> NDArray[np.float32]:
    across, down = gradient
    return np.asarray(np.sqrt((across**2 + down**2).sum(axis=2)), np.float32)


def _steepness(lab: Lab, mask: Mask, edges: NDArray[np.float32]) -> float:
    """Return the gradient at the silhouette's rim for the contrast that it spans: about one over the rim's width in px."""
    rim = _grown(mask, 2) & ~_shrunk(mask, 2)
    inside, outside = _shrunk(mask, 1), ~_grown(mask, 3)
    if not rim.any() or not inside.any() or not outside.any():
        return 0.0
    contrast = float(np.linalg.norm(np.median(lab[inside], axis=0) - np.median(lab[outside], axis=0)))
    return float(np.percentile(edges[rim], 75)) / max(8.0, contrast)


def _correlation(a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Return Pearson's r; 1 where both are flat, 0 where one is."""
    a, b = a.ravel() - a.mean(), b.ravel() - b.mean()
    norm_a, norm_b = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    if norm_a < 1e-6 and norm_b < 1e-6:
        return 1.0
    return float(a @ b) / (norm_a * norm_b) if min(norm_a, norm_b) >= 1e-6 else 0.0


def _ratio(after: float, before: float) -> float:
    return after / before if before > 1e-6 else 1.0


def _mean(values: NDArray[np.float32], mask: Mask) -> float:
    return float(values[mask].mean()) if mask.sum() >= 24 else 0.0


# The picture as a whole ---------------------------------------------------------------------------------------------------


def _changed_edges(first: Lab, second: Lab) -> tuple[float, float]:
    """Return (redrawn, inverted) of `ImageFeatures`.

    At half the size grain has faded, while outlines are as strong as they were.
    """
    gradients = [_gradient(_scaled(lab, 0.5)) for lab in (first, second)]
    edges = [_length(gradient) for gradient in gradients]
    rows, columns = (np.linspace(0, side, _CELLS + 1).round().astype(int) for side in edges[0].shape)
    redrawn = inverted = 0
    for top, bottom in pairwise(rows):
        for left, right in pairwise(columns):
            a, b = (e[top:bottom, left:right] for e in edges)
            if a.size and max(float((a**2).mean()), float((b**2).mean())) > _EDGE_ENERGY:
                same = _correlation(a, b) >= 0.5
                redrawn += not same
                u, v = (g[:, top:bottom, left:right] for g in gradients)
                inverted += same and float((u * v).sum()) < _SAME_SIDES * float((a**2).sum() * (b**2).sum()) ** 0.5
    return redrawn / _CELLS**2, inverted / _CELLS**2


def _palette_overlap(first: Lab, second: Lab) -> float:
    """Return the intersection of the two Lab histograms, 0..1, each colour spread by about ΔL 4.5 and Δa, Δb 11.

    The bins are much finer than that: with coarse ones a little grain splits a colour at a border, and on a plain ground
    that one colour is the palette.
    """
    ranges = [0, 100.1, -128, 128, -128, 128]
    spread: list[NDArray[np.floating]] = []
    for lab in (first, second):
        histogram: NDArray[np.floating] = cv2.calcHist([lab], [0, 1, 2], None, [_BINS] * 3, ranges) / lab[..., 0].size
        for axis in range(3):
            flat = np.moveaxis(histogram, axis, 0)
            rows = flat.reshape(_BINS, -1)
            blurred = cv2.GaussianBlur(rows, (1, 17), sigmaX=1.0, sigmaY=2.8, borderType=cv2.BORDER_REFLECT)
            histogram = np.moveaxis(np.asarray(blurred, np.float32).reshape(*flat.shape), 0, axis)
        spread.append(histogram)
    return float(np.minimum(*spread).sum())


def _changed_cells(first: Lab, second: Lab) -> tuple[float, float]:
    """Return (texture, colour) of `ImageFeatures`.

    Grain is smoothed away first: an editor that adds or takes grain has no other style.
    """
    colours, textures = [], []
    for lab in (first, second):
        light = lab[..., 0]
        band = (cv2.GaussianBlur(light, (0, 0), 1.2) - cv2.GaussianBlur(light, (0, 0), 4)) ** 2
        textures.append(cv2.resize(band, (_CELLS, _CELLS), interpolation=cv2.INTER_AREA) + 0.3)
        colours.append(cv2.resize(lab, (_CELLS, _CELLS), interpolation=cv2.INTER_AREA))
    ratio = np.abs(np.log(textures[0] / textures[1])) > np.log(4)
    moved = np.linalg.norm(colours[0] - colours[1], axis=2) > 12
    return float(ratio.mean()), float(moved.mean())


# Small steps --------------------------------------------------------------------------------------------------------------


def _prepared(lab: Lab, scale: float) -> Lab:
    """Return the picture scaled, its grain smoothed away."""
    return cv2.GaussianBlur(_scaled(lab, scale), (0, 0), 0.7).astype(np.float32)


def _scaled(values: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    if scale >= 1.0:
        return values
    return cv2.resize(values, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA).astype(np.float32, copy=False)


def _grown(mask: Mask, by: int) -> Mask:
    return cv2.dilate(mask.astype(np.uint8), np.ones((2 * by + 1, 2 * by + 1), np.uint8)).astype(bool)


def _shrunk(mask: Mask, by: int) -> Mask:
    return cv2.erode(mask.astype(np.uint8), np.ones((2 * by + 1, 2 * by + 1), np.uint8)).astype(bool)


def _core(mask: Mask) -> Mask:
    """Return the mask without its rim, where colours mix; the mask itself where it is all rim."""
    core = _shrunk(mask, 1)
    return core if core.sum() >= 12 else mask


def _at_least(box: Box, side: float) -> Box:
    (cx, cy), w, h = box.center, max(box.width, side), max(box.height, side)
    return Box(cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2)
