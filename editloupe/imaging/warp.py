"""Lays an edited image onto its source, so that what lies outside the edit can be compared pixel by pixel."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.data.memory import Memory
from editloupe.imaging.align import WORKING_PIXELS, luma, resize
from editloupe.imaging.masked import Kept, outside, share
from editloupe.imaging.register import Floats
from editloupe.values import Json

How: TypeAlias = Literal["none", "sift"]
"""none: brought to the source's size alone.   sift: SIFT keypoints, FLANN, a similarity by least median of squares."""

_RATIO: Final = 0.7
"""A match counts if its distance is below this share of the second best."""
_LEAST_MATCHES: Final = 4
_LEAST_INLIERS: Final = 10
_SURE_INLIERS: Final = 40
"""Unrelated pictures share a few chance matches, and some similarity fits those. Few have to explain more."""
_FEW_MUST_FALL_TO: Final = 0.8
_MUST_FALL_TO: Final = 0.99
"""Interpolation alone smooths noise away, and so lowers a difference a little."""
_MOST_ZOOM: Final = 3.0
_LEAST_SHARE: Final = 0.25
"""Of the pixels outside the edit, that the moved picture must cover."""
_KEPT_BYTES: Final = 2**27
"""Most bytes of the alignments that are remembered."""
_Points: TypeAlias = tuple[Sequence[Any], Any]
"""SIFT's keypoints and their descriptors, N×128 float32; None in place of these if there are no keypoints."""


@dataclass(frozen=True, kw_only=True)
class Aligned:
    """An edited image in the frame of its source, and how it came there."""

    image: RGB
    """H×W×3 uint8, of the source's size."""
    valid: Kept
    """H×W: where the edited image shows something. All of it if no motion was undone."""
    how: How
    matrix: Floats | None = None
    """2×3: pixel (x, y) of the source is at matrix · (x, y, 1) of the edited image as decoded, centers at integers. None if
    no motion was found."""
    matches: int | None = None
    """Pairs of keypoints; None where none are sought."""
    inliers: int | None = None
    """Matches that the matrix explains."""
    before: float | None = None
    """Mean squared difference in levels of 0 to 255 outside the mask, where both can be seen, without the motion."""
    after: float | None = None
    """The same after the motion was undone."""
    accepted: bool = False
    """Whether the motion was undone in `image`."""
    why: str = ""
    """Why it was not."""
    resized: tuple[int, int] | None = None
    """(width, height) of the edited image, if it is not the source's."""

    @property
    def text(self) -> str:
        """What a reader of a value must know; "" if the images were compared as they are."""
        said = [] if self.resized is None else [f"the edited image has {self.resized[0]}×{self.resized[1]} px"]
        if self.how != "none" and self.accepted:
            fall = "" if self.before is None else f", mean squared difference {self.before:.4g} → {self.after:.4g}"
            said.append(f"aligned by {self.how}{fall}")
        elif self.how != "none":
            said.append(f"not aligned by {self.how}: {self.why}")
        return "; ".join(said)

    def to_json(self) -> dict[str, Json]:
        """Return everything but the pixels."""
        return {
            "how": self.how,
            "accepted": self.accepted,
            "why": self.why,
            "matrix": None if self.matrix is None else [[float(v) for v in row] for row in self.matrix],
            "matches": self.matches,
            "inliers": self.inliers,
            "residual_before": self.before,
            "residual_after": self.after,
            "valid": share(self.valid),
            "edited_size": None if self.resized is None else list(self.resized),
            "opencv": cv2.__version__,
        }


def aligned(
    source: RGB, edited: RGB, mask: NDArray[np.uint8] | None, how: How, *, dilate: bool = True, official: bool = False
) -> Aligned:
    """Return the edited image in the frame of the source.

    source, edited: H×W×3 uint8 RGB, any sizes.   mask: of the edit, as `masked.outside` takes it; None for no mask.
    A motion is searched for outside the mask, and undone only if the difference outside the mask falls. Otherwise the
    edited image is only resized, and `why` says so. Equal calls share their work.
    official: as GIE-Bench's published scripts: keypoints of the whole images, a motion that was found is always undone,
    beyond the border the picture is reflected, and all of it counts as valid.
    """
    height, width = source.shape[:2]
    size = None if source.shape == edited.shape else (edited.shape[1], edited.shape[0])
    whole = np.ones((height, width), dtype=np.bool_)
    still = Aligned(image=resize(edited, width=width, height=height), valid=whole, how=how, resized=size)
    if how == "none":
        return still

    def found() -> Aligned:
        kept = whole if mask is None else outside(mask, (height, width), dilate)
        return _read_only(_as_published(still, source, edited) if official else _found(still, source, edited, kept))

    return _shared((how, dilate, official, *map(_digest, (source, edited, mask))), found)


def squared_difference(first: RGB, second: RGB, kept: Kept | None = None) -> float:
    """Return the mean squared difference over pixels and channels, in squared levels of 0 to 255.

    first, second: H×W×3 uint8, the same size.   kept: H×W, which pixels count, at least one; None for all.
    """
    count = first.shape[0] * first.shape[1] if kept is None else np.count_nonzero(kept)
    mask = None if kept is None else kept.view(np.uint8)
    return float(cv2.norm(first, second, cv2.NORM_L2SQR, mask)) / (3 * count)


def _found(still: Aligned, source: RGB, edited: RGB, kept: Kept) -> Aligned:
    """Return an edited image as a motion of what is kept lays it onto its source; `still` where none is to be believed."""
    height, width = source.shape[:2]
    # Sought in copies of at most about a megapixel, and undone in the image itself; one much larger than the source is
    # reduced first, so that it does not alias.
    first = luma(_shrunk(source, WORKING_PIXELS))
    fine, second = _shrunk(edited, width * height), luma(_shrunk(edited, first.size))
    motion = _sought(first, second, outside(np.where(kept, 0, 255).astype(np.uint8), first.shape, dilate=False))
    result = replace(still, matches=motion.matches, inliers=motion.inliers, why=motion.why)
    if motion.matrix is None:
        return result
    # From the source's pixels to those of the copies, and on to those of the image that is warped.
    matrix = _carried(motion.matrix, _scale(source, first), _scale(fine, second))
    result = replace(result, matrix=_carried(motion.matrix, _scale(source, first), _scale(edited, second)))
    if motion.why:
        return result
    flags = cv2.INTER_CUBIC | cv2.WARP_INVERSE_MAP
    moved = cv2.warpAffine(fine, matrix, (width, height), flags=flags, borderMode=cv2.BORDER_REPLICATE)
    image, valid = np.asarray(moved, dtype=np.uint8), _valid(matrix, source.shape, fine.shape)
    both = kept & valid
    if np.count_nonzero(both) < max(1.0, _LEAST_SHARE * np.count_nonzero(kept)):
        return replace(result, why="the motion found leaves too little of the source in view")
    before, after = squared_difference(source, still.image, both), squared_difference(source, image, both)
    result = replace(result, before=before, after=after)
    if after >= before * (_MUST_FALL_TO if motion.distinct >= _SURE_INLIERS else _FEW_MUST_FALL_TO):
        return replace(result, why="the motion found does not lower the difference outside the mask enough")
    return replace(result, image=image, valid=valid, accepted=True)


def _as_published(still: Aligned, source: RGB, edited: RGB) -> Aligned:
    """Return what GIE-Bench's scripts make of an edited image."""
    height, width = source.shape[:2]
    motion = _sought(luma(source), luma(edited), None)
    if motion.forward is None:
        return replace(still, matches=motion.matches, why=motion.why)
    flags, border = cv2.INTER_LINEAR, cv2.BORDER_REFLECT
    moved = cv2.warpAffine(edited, motion.forward, (width, height), flags=flags, borderMode=border)
    image = np.asarray(moved, dtype=np.uint8)
    before, after = squared_difference(source, still.image), squared_difference(source, image)
    known = replace(still, matrix=motion.matrix, matches=motion.matches, inliers=motion.inliers)
    return replace(known, image=image, before=before, after=after, accepted=True)


@dataclass(frozen=True, kw_only=True)
class _Motion:
    """What was found between two gray pictures."""

    matrix: Floats | None = None
    """2×3, from the first to the second."""
    forward: Floats | None = None
    """2×3, from the second to the first, as it was estimated."""
    matches: int = 0
    inliers: int | None = None
    distinct: int = 0
    """Keypoints of the second picture among the inliers."""
    why: str = ""
    """Why it is none, or not to be believed."""


def _sought(first: NDArray[np.uint8], second: NDArray[np.uint8], kept: Kept | None) -> _Motion:
    """Return the similarity (shift, turn, zoom) that explains most matches. kept: where keypoints of the first may lie."""
    with ThreadPoolExecutor(1) as other:
        # Most of the time goes here, and OpenCV uses one core for it.
        there_too = other.submit(_keypoints, second, None)
        points_1, told_1 = _keypoints(first, None if kept is None else kept.astype(np.uint8) * 255)
        points_2, told_2 = there_too.result()
    if told_1 is None or told_2 is None or len(points_2) < 2:
        return _Motion(why="no motion found: too few keypoints")
    # FLANN's trees are random: with the same seed equal pictures give equal matches.
    cv2.setRNGSeed(0)
    flann = cv2.FlannBasedMatcher({"algorithm": 1, "trees": 5}, {"checks": 50})
    pairs = [pair for pair in flann.knnMatch(told_1, told_2, k=2) if len(pair) == 2]
    good = [best for best, other in pairs if best.distance < _RATIO * other.distance]
    if len(good) < _LEAST_MATCHES:
        return _Motion(matches=len(good), why=f"no motion found: {len(good)} matches of keypoints")
    here = np.array([points_1[match.queryIdx].pt for match in good], dtype=np.float32).reshape(-1, 1, 2)
    there = np.array([points_2[match.trainIdx].pt for match in good], dtype=np.float32).reshape(-1, 1, 2)
    # None where the matches fit no motion, which the type of OpenCV does not say.
    forward: Any
    forward, fits = cv2.estimateAffinePartial2D(there, here, method=cv2.LMEDS)
    if forward is None:
        return _Motion(matches=len(good), why="no motion found: the matches of keypoints fit none")
    # Chance matches often lead to the same few keypoints.
    distinct = len({match.trainIdx for match, fit in zip(good, fits.ravel(), strict=True) if fit})
    zoom = math.sqrt(abs(float(np.linalg.det(forward[:, :2]))))
    why = "" if 1 / _MOST_ZOOM < zoom < _MOST_ZOOM else f"the motion found zooms {zoom:.2g} times"
    if distinct < _LEAST_INLIERS:
        why = f"only {distinct} distinct matches of keypoints fit the motion found"
    matrix = np.asarray(cv2.invertAffineTransform(forward), np.float64) if zoom > 1e-6 else None
    inliers = int(np.count_nonzero(fits))
    return _Motion(matrix=matrix, forward=forward, matches=len(good), inliers=inliers, distinct=distinct, why=why)


def _keypoints(gray: NDArray[np.uint8], where: NDArray[np.uint8] | None) -> _Points:
    sift: Any = cv2.SIFT.create()
    points, told = sift.detectAndCompute(gray, where)
    return points, told


def _shrunk(rgb: RGB, pixels: int) -> RGB:
    """Return an image reduced to about this many px, its aspect kept; the image itself if it is no larger."""
    height, width = rgb.shape[:2]
    factor = math.sqrt(pixels / (width * height))
    if factor >= 1:
        return rgb
    return resize(rgb, width=max(1, round(width * factor)), height=max(1, round(height * factor)))


def _scale(image: NDArray[np.uint8], copy: NDArray[np.uint8]) -> Floats:
    """Return the 3×3 map of an image's pixels to those of its copy. The center of pixel 0 is half a pixel from the edge."""
    sy, sx = (c / i for c, i in zip(copy.shape[:2], image.shape[:2], strict=True))
    return np.array([[sx, 0, (sx - 1) / 2], [0, sy, (sy - 1) / 2], [0, 0, 1]])


def _carried(matrix: Floats, first: Floats, second: Floats) -> Floats:
    """Return a motion between copies as one between what they are copies of.   first, second: 3×3, as `_scale` gives."""
    return np.asarray((np.linalg.inv(second) @ np.vstack([matrix, [0, 0, 1]]) @ first)[:2])


def _valid(matrix: Floats, shape: tuple[int, ...], other: tuple[int, ...]) -> Kept:
    """Return H×W: which pixels of the first picture have a place inside the second."""
    x, y = np.arange(shape[1]), np.arange(shape[0])[:, None]
    at = [row[0] * x + row[1] * y + row[2] for row in matrix]
    # Half a pixel over the border is still the outermost pixel.
    return np.asarray((at[0] > -0.5) & (at[0] < other[1] - 0.5) & (at[1] > -0.5) & (at[1] < other[0] - 0.5))


def _digest(array: NDArray[np.uint8] | None) -> str:
    if array is None:
        return ""
    return f"{array.shape} {hashlib.sha256(np.ascontiguousarray(array).data).hexdigest()}"


def _read_only(made: Aligned) -> Aligned:
    # An image that was not moved may be the caller's own array.
    image, valid = made.image if made.accepted else made.image.copy(), made.valid
    image.setflags(write=False)
    valid.setflags(write=False)
    return replace(made, image=image)


_shared: Final = Memory[Aligned](_KEPT_BYTES, lambda made: made.image.nbytes + made.valid.nbytes)
"""The alignments that were made last: the measures of one pair share them."""
