"""Show what a measure compared: which pixels counted, and how they differ after the alignment that the trace records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, get_args

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.imaging.align import resize
from editloupe.imaging.masked import Kept, outside
from editloupe.tasks import Measure, Recipe
from editloupe.traces.events import Note
from editloupe.traces.read import Trace
from editloupe.values import ImageRef, Json, digest, finite
from editloupe.viewer.pictures import Pictures

Shown: TypeAlias = Literal["compared", "difference"]
"""compared: the source, pale where it did not count.   difference: of source and aligned edited image, enlarged."""
SHOWN: Final[tuple[Shown, ...]] = get_args(Shown)
GAIN: Final = 4
"""By which a difference is enlarged, as in the mode Difference when it opens."""
_PALE: Final = 225
_HATCH: Final = (88, 104)
"""Levels of the stripes where nothing was compared; a difference of 0 is black."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """What a measure was given, and how the edited image came into the frame of the source."""

    source: ImageRef
    edited: ImageRef
    mask: ImageRef | None
    """The mask outside which was compared; None for the whole image."""
    dilate: bool
    matrix: NDArray[np.float64] | None
    """2×3: pixel (x, y) of the source is at matrix · (x, y, 1) of the edited image; None if no motion was undone."""
    reflect: bool
    """Whether what the moved picture does not cover was filled by reflection, and compared."""
    said: str
    """How the two were compared, in words."""
    facts: Mapping[str, float] = field(default_factory=dict)
    """ "inliers", "matches", "residual_before" and "residual_after" of the alignment, those there are."""

    @property
    def key(self) -> str:
        """A digest of what the pictures show: measures that compare in the same way share them."""
        refs = [None if ref is None else ref.sha256 for ref in (self.source, self.edited, self.mask)]
        matrix: Json = None if self.matrix is None else self.matrix.tolist()
        return digest([*refs, self.dilate, self.reflect, matrix])

    @classmethod
    def of(cls, task: Measure, trace: Trace) -> Compared | None:
        """Return what a measure's trace tells; None if it does not compare whole images, or does not say how."""
        views: dict[str, Recipe] = {view.alias: view for view in task.views}
        notes = (event.data for event in trace.events if isinstance(event, Note))
        data = next((data for data in notes if isinstance(data.get("alignment"), Mapping)), None)
        pair = [views.get(alias) for alias in ("source", "edited")]
        if data is None or any(view is None or view.op != "whole" for view in (*pair, *views.values())):
            return None
        found, use = data["alignment"], task.args.get("mask", "apply")
        mask = views.get("mask") if use == "apply" else None
        known = {name: finite(found.get(name)) for name in ("matches", "inliers", "residual_before", "residual_after")}
        share = finite(data.get("compared"))
        return cls(
            source=views["source"].origin,
            edited=views["edited"].origin,
            mask=None if mask is None else mask.origin,
            dilate=task.args.get("dilate") is not False,
            matrix=_matrix(found.get("matrix")) if found.get("accepted") is True else None,
            reflect=use == "official",
            said="" if share is None else f"{100 * share:.1f} % of the source",
            facts={name: value for name, value in known.items() if value is not None},
        )

    def picture(self, shown: Shown, pictures: Pictures) -> RGB | None:
        """Return one of the pictures, of the source's size; None if the run did not keep what it is made of."""
        source, edited = pictures.array(self.source), pictures.array(self.edited)
        mask = None if self.mask is None else pictures.array(self.mask)
        if source is None or edited is None or (mask is None) != (self.mask is None):
            return None
        aligned, kept = self._aligned(edited, source.shape[:2])
        if mask is not None:
            kept &= outside(mask, source.shape[:2], self.dilate)
        if shown == "compared":
            found, rest = source.copy(), source[~kept] // 6 + (_PALE - _PALE // 6)
        else:
            found = np.asarray(cv2.convertScaleAbs(cv2.absdiff(source, aligned), alpha=GAIN), dtype=np.uint8)
            y, x = (places.astype(np.int32) for places in np.nonzero(~kept))
            stripe = (x + y) // max(4, max(kept.shape) // 100) % 2 == 0
            rest = np.array(_HATCH, dtype=np.uint8)[stripe.astype(np.intp), None]
        found[~kept] = rest
        return found

    def _aligned(self, edited: RGB, size: tuple[int, int]) -> tuple[RGB, Kept]:
        """Return the edited image in the frame of the source, and where it shows something. size: (H, W)."""
        height, width = size
        whole = np.ones(size, dtype=np.bool_)
        if self.matrix is None:
            return resize(edited, width=width, height=height), whole
        border = cv2.BORDER_REFLECT if self.reflect else cv2.BORDER_REPLICATE
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        moved = cv2.warpAffine(edited, self.matrix, (width, height), flags=flags, borderMode=border)
        if not self.reflect:
            flags = cv2.INTER_NEAREST | cv2.WARP_INVERSE_MAP
            whole = cv2.warpAffine(np.ones(edited.shape[:2], np.uint8), self.matrix, (width, height), flags=flags) > 0
        return np.asarray(moved, dtype=np.uint8), np.asarray(whole, dtype=np.bool_)


def _matrix(value: Any) -> NDArray[np.float64] | None:
    """Return a 2×3 matrix of finite numbers; None for anything else, since a trace may come from anybody."""
    rows = value if isinstance(value, list) and len(value) == 2 else ()
    numbers = [finite(v) for row in rows if isinstance(row, list) and len(row) == 3 for v in row]
    return np.array(numbers, dtype=np.float64).reshape(2, 3) if len(numbers) == 6 and None not in numbers else None
