"""Finds the places of a picture that may hold letters, in milliseconds.

Letters stand in rows: strokes of one tone, of about one height, on a ground that is calm beside them. Most textures lack
one of these. This is no detector of text: of the rows that it finds in photographs most hold none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Final, Self, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.align import luma
from editloupe.values import Box

# In px of a level; each next level has half the size, so that large letters become small ones.
_NARROW: Final = np.ones((9, 9), dtype=np.uint8)
"""Strokes narrower than this stand out."""
_AROUND: Final = np.ones((19, 19), dtype=np.uint8)
"""A stroke has at least half the contrast of the strongest one so near."""
_LEAST_CONTRAST: Final = 14
_LEAST_HEIGHT, _MOST_HEIGHT, _MOST_LENGTH, _LEAST_PX = 5, 28, 60, 8
_LEAST_SIDE: Final = 20
_BAND: Final = 32
"""At least _MOST_HEIGHT: what stands in a row lies in one band of so many px or in two neighbouring ones."""
_FAR: Final = 1 << 20
"""More than any coordinate."""

# A row's score, by logistic regression on 360 pictures with words that RapidOCR reads (drawn ones of 8 to 80 px and those
# of real edits) and 300 crops of real edits without. The offset is such that 99 % of the former keep their likeliest row.
_OFFSET: Final = 9.2
_OF_COUNT: Final = 1.1
"""Of each stroke, up to _COUNTED."""
_OF_BESIDE: Final = -16.5
"""Of the mean contrast beside the strokes, as a share of theirs."""
_OF_TONES: Final = -12.0
"""Of the standard deviation of the strokes' tones, as a share of their contrast."""
_OF_SPREAD: Final = -15.0
"""Of the standard deviation of grey within a stroke, as a share of their contrast."""
_OF_THICKNESS: Final = -5.0
"""Of the row's height, as a multiple of a stroke's."""
_COUNTED: Final = 6

Ints: TypeAlias = NDArray[np.intp]
Floats: TypeAlias = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class LetterRow:
    """A place that may hold letters."""

    box: Box
    """Around the strokes, in px of the picture."""
    height: float
    """Of a letter, across the row, in px of the picture."""
    score: float
    """How much it looks like letters, from 0 to about 10."""


def lettering(rgb: RGB) -> tuple[LetterRow, ...]:
    """Return the rows of a picture that may be letters, the likeliest first. Rows are horizontal or vertical.

    rgb: H×W×3 uint8. Found are letters of 5 px and more, light or dark, also turned by some 10°. One thing may be found
    more than once: as light strokes and as the dark gaps between them, and at two scales.
    """
    grounds = _grounds(luma(rgb))
    strokes = _Strokes.joined([_strokes_of(ground, which) for which, ground in enumerate(grounds)])
    found = [row for turned in (False, True) for row in _rows_of(strokes, grounds, turned=turned)]
    return tuple(sorted(found, key=lambda row: -row.score))


@dataclass(frozen=True, kw_only=True)
class _Ground:
    """A level of the picture, and how much its narrow light parts, or its narrow dark ones, stand out."""

    grey: NDArray[np.uint8]
    contrast: NDArray[np.uint8]
    scale: int
    """Px of the picture for each px of the level."""


@dataclass(frozen=True, kw_only=True)
class _Strokes:
    """Connected parts that may be letters or parts of letters: one value each, in px of their level and levels of grey."""

    x: Ints
    y: Ints
    w: Ints
    h: Ints
    px: Floats
    tone: Floats
    """Mean grey."""
    spread: Floats
    """Standard deviation of grey."""
    contrast: Floats
    ground: Ints
    """Which of the grounds."""

    @classmethod
    def joined(cls, several: list[Self]) -> Self:
        return cls(**{f.name: np.concatenate([getattr(one, f.name) for one in several]) for f in fields(cls)})

    def __getitem__(self, which: Ints | NDArray[np.bool_]) -> Self:
        return replace(self, **{f.name: getattr(self, f.name)[which] for f in fields(self)})

    @property
    def turned(self) -> Self:
        """The same with x and y exchanged, so that columns become rows."""
        return replace(self, x=self.y, y=self.x, w=self.h, h=self.w)


def _grounds(grey: NDArray[np.uint8]) -> list[_Ground]:
    grounds, scale = [], 1
    while True:
        for operation in (cv2.MORPH_OPEN, cv2.MORPH_CLOSE):
            contrast = np.asarray(cv2.absdiff(grey, cv2.morphologyEx(grey, operation, _NARROW)), dtype=np.uint8)
            grounds.append(_Ground(grey=grey, contrast=contrast, scale=scale))
        if min(grey.shape) < 2 * _LEAST_SIDE:
            return grounds
        half = cv2.resize(grey, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
        grey, scale = np.asarray(half, dtype=np.uint8), 2 * scale


def _strokes_of(ground: _Ground, which: int) -> _Strokes:
    strongest = np.asarray(cv2.dilate(ground.contrast, _AROUND), dtype=np.uint8)
    least = np.maximum(strongest >> 1, np.uint8(_LEAST_CONTRAST))
    mask = cv2.compare(ground.contrast, least, cv2.CMP_GE)
    # 16 bits take a third of the time, where they have enough labels for any mask.
    few = ((mask.shape[0] + 1) // 2) * ((mask.shape[1] + 1) // 2) < np.iinfo(np.uint16).max
    kind = cv2.CV_16U if few else cv2.CV_32S
    count, labels, stats, _ = cv2.connectedComponentsWithStats(mask, connectivity=8, ltype=kind)
    x, y, w, h, px = stats.T.astype(np.intp)
    longer, shorter = np.maximum(w, h), np.minimum(w, h)
    kept = (longer >= _LEAST_HEIGHT) & (longer <= _MOST_LENGTH) & (shorter <= _MOST_HEIGHT) & (px >= _LEAST_PX)
    kept[0] = False  # the ground itself
    at = np.flatnonzero(mask.view(np.bool_))
    of = labels.ravel()[at]
    at, of = at[kept[of]], of[kept[of]]
    grey = ground.grey.ravel()[at].astype(np.float64)
    n = np.maximum(px, 1).astype(np.float64)
    tone = np.bincount(of, grey, count) / n
    spread = np.sqrt(np.maximum(0, np.bincount(of, grey * grey, count) / n - tone * tone))
    contrast = np.bincount(of, ground.contrast.ravel()[at], count) / n
    kept &= spread <= 0.35 * contrast + 4
    every = _Strokes(
        x=x, y=y, w=w, h=h, px=n, tone=tone, spread=spread, contrast=contrast, ground=np.full(count, which, dtype=np.intp)
    )
    return every[kept]


def _rows_of(strokes: _Strokes, grounds: list[_Ground], *, turned: bool) -> list[LetterRow]:
    s = strokes.turned if turned else strokes
    s = s[(s.h >= _LEAST_HEIGHT) & (s.h <= _MOST_HEIGHT)]
    s, one, other = _neighbours(s)
    if not one.size:
        return []
    from scipy.sparse import coo_matrix  # some 0.05 s, and most commands need none of it
    from scipy.sparse.csgraph import connected_components

    graph = coo_matrix((np.ones(one.size, dtype=np.int8), (one, other)), shape=(s.x.size, s.x.size))
    row = connected_components(graph, directed=False)[1]
    member = np.flatnonzero(np.bincount(row)[row] >= 2)
    member = member[np.argsort(row[member], kind="stable")]
    starts = np.flatnonzero(np.diff(row[member], prepend=-1))
    s, n = s[member], np.diff(starts, append=member.size)

    def mean(values: Floats | Ints) -> Floats:
        return np.add.reduceat(values.astype(np.float64), starts) / n

    x0, y0 = np.minimum.reduceat(s.x, starts), np.minimum.reduceat(s.y, starts)
    x1, y1 = np.maximum.reduceat(s.x + s.w, starts), np.maximum.reduceat(s.y + s.h, starts)
    height, contrast, tone, ground = mean(s.h), mean(s.contrast), mean(s.tone), s.ground[starts]
    tones = np.sqrt(np.maximum(0, mean(s.tone * s.tone) - tone * tone))
    pad = np.maximum(2, 0.4 * height).astype(np.intp)
    score = (
        _OFFSET
        + _OF_COUNT * np.minimum(n, _COUNTED)
        + _OF_TONES * tones / contrast
        + _OF_SPREAD * mean(s.spread) / contrast
        + _OF_THICKNESS * (y1 - y0) / height
    )
    corners = (y0 - pad, x0 - pad, y1 + pad, x1 + pad) if turned else (x0 - pad, y0 - pad, x1 + pad, y1 + pad)
    likely = score >= 0  # before what stands beside the strokes is taken off
    whole, px = _sums(grounds, ground[likely], np.stack(corners, axis=1)[likely])
    beside = (whole - (n * mean(s.contrast * s.px))[likely]) / np.maximum(1, px - (n * mean(s.px))[likely])
    score[likely] += _OF_BESIDE * beside / contrast[likely]
    found = []
    for i in np.flatnonzero(score >= 0):
        corners = (y0[i], x0[i], y1[i], x1[i]) if turned else (x0[i], y0[i], x1[i], y1[i])
        scale = grounds[ground[i]].scale
        box = Box(*(float(scale * v) for v in corners))
        found.append(LetterRow(box=box, height=float(scale * height[i]), score=float(score[i])))
    return found


def _neighbours(s: _Strokes) -> tuple[_Strokes, Ints, Ints]:
    """Return the strokes in another order, and the pairs of them that may be neighbours in a row."""
    # By ground, then by band, then by x: what may follow a stroke to the right in a band is one run.
    bands = _FAR // _BAND
    key = ((s.ground * bands + s.y // _BAND + 1) * _FAR) + s.x
    order = np.argsort(key, kind="stable")
    s, key = s[order], key[order]
    index = np.arange(key.size)
    ones, others = [], []
    for step in (-1, 0, 1):
        first = np.searchsorted(key, key + step * _FAR) if step else index + 1
        last = np.searchsorted(key, key + step * _FAR + s.w + s.h, side="right")
        count = np.maximum(0, last - first)
        one = np.repeat(index, count)
        ones.append(one)
        others.append(np.arange(one.size) - np.repeat(np.cumsum(count) - count, count) + first[one])
    a, b = np.concatenate(ones), np.concatenate(others)
    top, bottom = np.abs(s.y[a] - s.y[b]), np.abs(s.y[a] + s.h[a] - s.y[b] - s.h[b])
    high, low, gap = np.maximum(s.h[a], s.h[b]), np.minimum(s.h[a], s.h[b]), s.x[b] - s.x[a] - s.w[a]
    aligned = np.minimum(top, bottom) <= np.maximum(1, 0.2 * high)
    near = aligned & (high <= 1.8 * low) & (gap <= 0.9 * high) & (gap >= -0.3 * high)
    a, b = a[near], b[near]
    weaker, stronger = np.minimum(s.contrast[a], s.contrast[b]), np.maximum(s.contrast[a], s.contrast[b])
    alike = (np.abs(s.tone[a] - s.tone[b]) <= 0.35 * weaker + 6) & (stronger <= 1.6 * weaker)
    return s, a[alike], b[alike]


def _sums(grounds: list[_Ground], which: Ints, boxes: Ints) -> tuple[Floats, Floats]:
    """Return the sum of the contrast in each box of a ground, N×4 in px, and the number of its pixels in the ground."""
    sums, px = np.zeros(which.size), np.zeros(which.size)
    for i in np.unique(which):
        total = cv2.integral(grounds[i].contrast)
        here = which == i
        x0, x1 = np.clip(boxes[here][:, 0::2].T, 0, total.shape[1] - 1)
        y0, y1 = np.clip(boxes[here][:, 1::2].T, 0, total.shape[0] - 1)
        sums[here] = total[y1, x1] - total[y0, x1] - total[y1, x0] + total[y0, x0]
        px[here] = (x1 - x0) * (y1 - y0)
    return sums, px
