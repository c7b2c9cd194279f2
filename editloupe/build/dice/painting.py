"""What is done to photographs of which a few objects shall differ: these are removed, recoloured or replaced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Final

import cv2
import numpy as np

from editloupe.data.coco import Mask
from editloupe.data.images import RGB
from editloupe.models.inpaint.base import Inpainter, within
from editloupe.protocols.dice.differences import Op
from editloupe.values import Box

COLOURS: Final[Mapping[str, tuple[float, float]]] = {
    "red": (68, 48),
    "orange": (38, 62),
    "yellow": (-6, 72),
    "green": (-52, 42),
    "turquoise": (-40, -8),
    "blue": (14, -62),
    "purple": (56, -46),
    "pink": (54, -6),
}
"""Name → a* and b* of CIELAB."""
_FARTHER: Final = 40.0
"""Least distance in a* and b* between an object's mean colour and its new one."""
_LIGHTEST: Final = 75.0
_DARKEST: Final = 30.0
"""L* between which a colour can be told; lighter and darker objects are brought there."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One object that differs, and how it is made to."""

    category: int
    mask: Mask
    """H×W."""
    op: Op
    colour: bool = True
    """Of an EDIT: whether it is recoloured, else replaced."""
    target: str = ""
    """Of a replacement: what comes in its place."""

    @property
    def box(self) -> Box:
        """The box of its mask, in px."""
        return box_of(self.mask)


@dataclass(kw_only=True)
class Edited:
    """A pair of images, and what differs between them."""

    source: RGB
    edited: RGB
    how: list[str] = field(default_factory=list)
    """How each chosen object came to differ."""


def box_of(mask: Mask) -> Box:
    """Return the smallest box around the True pixels, in px. Raises ValueError where there is none."""
    ys, xs = np.nonzero(mask.any(axis=1))[0], np.nonzero(mask.any(axis=0))[0]
    if not len(ys):
        raise ValueError("the mask is empty")
    return Box(int(xs[0]), int(ys[0]), int(xs[-1]) + 1, int(ys[-1]) + 1)


def choose(
    masks: Sequence[Mask], by: Random, *, most: int, least_area: float, most_overlap: float
) -> tuple[list[int], int]:
    """Return the places of the masks that are taken, in the order of the draw, and how many are large enough.

    least_area: of a mask, as a share of the image.
    most_overlap: of two masks, as a share of the smaller one. The paper does not say of what its 5 % are a share.
    """
    large = [place for place, mask in enumerate(masks) if mask.mean() >= least_area]
    taken: list[int] = []
    for place in by.sample(large, len(large)):
        mask = masks[place]
        shares = ((mask & masks[other]).sum() / min(mask.sum(), masks[other].sum()) for other in taken)
        if len(taken) < most and all(share <= most_overlap for share in shares):
            taken.append(place)
    return taken, len(large)


def recoloured(rgb: RGB, mask: Mask, by: Random) -> tuple[RGB, str]:
    """Return an image with the masked object in another colour, and that colour's name. Texture and shade stay.

    The colour is drawn from `COLOURS`, far enough from the object's own. Its edge is soft towards the inside: no pixel
    outside the mask changes.
    """
    lab = np.asarray(cv2.cvtColor(rgb.astype(np.float32) / 255, cv2.COLOR_RGB2LAB), np.float32)
    mean = lab[mask].mean(axis=0)
    name = by.choice([n for n, (a, b) in COLOURS.items() if np.hypot(a - mean[1], b - mean[2]) >= _FARTHER])
    painted = lab.copy()
    # A white or black object has no colour that could be told: its lightness moves to where there is one.
    painted[..., 0] = np.clip(lab[..., 0] + np.clip(mean[0], _DARKEST, _LIGHTEST) - mean[0], 0, 100)
    for channel, value in zip((1, 2), COLOURS[name], strict=True):
        painted[..., channel] = value + (lab[..., channel] - mean[channel]) * 0.4
    edge = max(1.0, float(np.sqrt(mask.sum())) / 40)
    # From the middle of a pixel, so that the outermost ones change a little.
    depth = cv2.distanceTransform(np.pad(mask, 1).astype(np.uint8), cv2.DIST_L2, 3)[1:-1, 1:-1]
    alpha = np.clip(depth / (edge + 1), 0, 1)[..., None]
    shown = cv2.cvtColor(painted, cv2.COLOR_LAB2RGB)
    mixed = rgb.astype(np.float32) * (1 - alpha) + np.clip(shown, 0, 1) * 255 * alpha
    return within(rgb, np.rint(np.clip(mixed, 0, 255)).astype(np.uint8), mask), name


def edited_pair(
    rgb: RGB, chosen: Sequence[Chosen], by: Random, *, remover: Inpainter, replacer: Inpainter | None, grow: int
) -> Edited:
    """Return the pair: the source lacks ADD objects, the edited image lacks REMOVE objects and has EDIT objects changed.

    grow: px by which a part that is inpainted is larger than the object, so that none of its border stays; other chosen
    objects are spared. Raises ToolError as the inpainters do.
    """
    everything = np.zeros(rgb.shape[:2], np.bool_)
    for one in chosen:
        everything |= one.mask

    def grown(mask: Mask) -> Mask:
        side = 2 * grow + 1
        wider = cv2.dilate(mask.astype(np.uint8), cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))).astype(bool)
        return mask | (wider & ~everything)

    def without(op: Op) -> RGB:
        gone = np.zeros(rgb.shape[:2], np.bool_)
        for one in chosen:
            if one.op == op:
                gone |= grown(one.mask)
        return remover(rgb, gone, seed=by.randrange(2**31)) if gone.any() else rgb.copy()

    made = Edited(source=without("ADD"), edited=without("REMOVE"))
    for one in chosen:
        if one.op != "EDIT":
            made.how.append(f"removed by {remover.name} from the {'source' if one.op == 'ADD' else 'edited image'}")
        elif one.colour or replacer is None:
            made.edited, colour = recoloured(made.edited, one.mask, by)
            made.how.append(f"coloured {colour}")
        else:
            made.edited = replacer(made.edited, grown(one.mask), one.target, seed=by.randrange(2**31))
            made.how.append(f"replaced by {one.target!r} with {replacer.name}")
    return made
