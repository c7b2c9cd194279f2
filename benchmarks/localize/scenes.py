"""Edits in known places of a photograph. A function of the random generator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import cv2
import numpy as np
from numpy.random import Generator

from editloupe.data.images import RGB
from editloupe.values import Box

ORDINARY = (0.001, 0.04)
SMALL = (0.0003, 0.003)
LARGE = (0.2, 0.45)
"""Shares of the picture that an edit takes up."""
VISIBLE = 6
"""Levels by which a pixel differs visibly."""
_GAP = 0.06
"""Share of the shorter side that lies between two edits at least."""
_LEAST_SIDE = 12
_TRIES = 60

Edit = Callable[[RGB, Generator], RGB]
"""Returns a patch of H×W×3 uint8 as it is edited."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A picture before and after its edits."""

    before: RGB
    after: RGB
    boxes: tuple[Box, ...] = ()
    """What differs between them, in px of both."""


def edited(
    photo: RGB,
    rng: Generator,
    *,
    edits: int,
    kinds: tuple[Edit, ...] | None = None,
    area: tuple[float, float] = ORDINARY,
    contrast: tuple[float, float] | None = None,
    within: Box | None = None,
) -> Scene:
    """Return a photograph with so many edits at most.

    area: shares of the picture between which each lies.   contrast: mean difference in levels between which each is
    brought; None leaves it as it is.   within: where edits may lie, in px.
    """
    height, width = photo.shape[:2]
    place, gap = within or Box.whole(width=width, height=height), _GAP * min(photo.shape[:2])
    after, boxes = photo.copy(), list[Box]()
    for _ in range(_TRIES):
        if len(boxes) == edits:
            break
        size = float(np.exp(rng.uniform(*np.log(area)))) * width * height
        w = max(_LEAST_SIDE, round((size * np.exp(rng.uniform(-0.5, 0.5))) ** 0.5))
        h = max(_LEAST_SIDE, round(size / w))
        room_x, room_y = int(place.width) - w - 8, int(place.height) - h - 8
        if min(room_x, room_y) < 1:
            continue
        x, y = int(place.x0) + 4 + int(rng.integers(room_x)), int(place.y0) + 4 + int(rng.integers(room_y))
        if any(Box(x - gap, y - gap, x + w + gap, y + h + gap).intersection(b) for b in boxes):
            continue
        box = _edit(photo, after, (x, y, w, h), (kinds or KINDS)[int(rng.integers(len(kinds or KINDS)))], rng, contrast)
        if box is not None:
            boxes.append(box)
    return Scene(before=photo, after=after, boxes=tuple(boxes))


def _edit(
    photo: RGB,
    after: RGB,
    at: tuple[int, int, int, int],
    edit: Edit,
    rng: Generator,
    contrast: tuple[float, float] | None,
) -> Box | None:
    """Edit a place of `after`, and return the box of what differs; None where hardly anything does, and nothing is done."""
    x, y, w, h = at
    here = (slice(y, y + h), slice(x, x + w))
    made = edit(photo[here], rng).astype(np.float32)
    difference = made - photo[here]
    changed = np.abs(difference).max(axis=2) > VISIBLE
    if changed.mean() < 0.15:
        return None
    if contrast is not None:
        difference *= float(rng.uniform(*contrast)) / float(np.abs(difference).max(axis=2)[changed].mean())
        # What is left of the rim lies under one level.
        changed &= np.abs(difference).max(axis=2) > 1
    made = np.clip(np.rint(photo[here] + difference), 0, 255)
    after[here] = made.astype(np.uint8)
    return around(changed).shifted(x, y)


def around(mask: np.ndarray) -> Box:
    """Return the box of the True pixels, of which there is one at least."""
    ys, xs = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    return Box(xs[0], ys[0], xs[-1] + 1, ys[-1] + 1)


def with_word(photo: RGB, rng: Generator, *, same: bool) -> Scene:
    """Return a sign on the photograph, one letter of which changed, unless `same`."""
    height, width = photo.shape[:2]
    size, thick = max(0.8, min(height, width) / 500), 2
    word = "".join(rng.choice(list(_LETTERS), 6))
    at = int(rng.integers(6))
    other = word if same else word[:at] + str(rng.choice([c for c in _LETTERS if c != word[at]])) + word[at + 1 :]
    (wide, high), _ = cv2.getTextSize("M", cv2.FONT_HERSHEY_SIMPLEX, size, thick)
    x, y = int(rng.integers(8, width - 7 * wide - 8)), int(rng.integers(2 * high, height - 2 * high))
    pictures = []
    for text in (word, other):
        picture = photo.copy()
        cv2.rectangle(picture, (x - 6, y - high - 8), (x + 6 * wide + 6, y + 8), (235, 230, 220), -1)
        for i, letter in enumerate(text):
            cv2.putText(picture, letter, (x + i * wide, y), cv2.FONT_HERSHEY_SIMPLEX, size, _INK, thick, cv2.LINE_AA)
        pictures.append(picture)
    changed = np.abs(pictures[0].astype(int) - pictures[1]).max(axis=2) > VISIBLE
    return Scene(before=pictures[0], after=pictures[1], boxes=(around(changed),) if changed.any() else ())


def with_other_background(photo: RGB, other: RGB, rng: Generator) -> Scene:
    """Return the photograph with its middle kept and another one around it."""
    height, width = photo.shape[:2]
    mask = np.zeros((height, width), np.float32)
    radius = int((rng.uniform(0.1, 0.3) * height * width / np.pi) ** 0.5)
    cv2.circle(mask, (width // 2, height // 2), radius, 1.0, -1, cv2.LINE_AA)
    around = cv2.resize(other, (width, height), interpolation=cv2.INTER_AREA)
    share = mask[..., None]
    return Scene(before=photo, after=np.rint(photo * share + around * (1 - share)).astype(np.uint8))


_LETTERS = "ABEGHKMRSX3579"
_INK = (30, 30, 60)


def _blended(patch: RGB, other: RGB) -> RGB:
    """Return `other` in an ellipse that fills the patch."""
    height, width = patch.shape[:2]
    mask = np.zeros((height, width), dtype=np.uint8)
    cv2.ellipse(mask, (width // 2, height // 2), (width // 2 - 1, height // 2 - 1), 0, 0, 360, 255, -1, cv2.LINE_AA)
    share = mask[..., None] / 255
    return np.rint(patch * (1 - share) + other * share).astype(np.uint8)


def recolored(patch: RGB, rng: Generator) -> RGB:
    """Move the colors of an ellipse by 20 to 50 units of CIELAB."""
    lab = cv2.cvtColor(patch, cv2.COLOR_RGB2LAB).astype(int)
    angle = rng.uniform(0, 2 * np.pi)
    lab[..., 1:] += np.rint(rng.uniform(20, 50) * np.array([np.cos(angle), np.sin(angle)])).astype(int)
    return _blended(patch, cv2.cvtColor(np.clip(lab, 0, 255).astype(np.uint8), cv2.COLOR_LAB2RGB))


def pasted(patch: RGB, rng: Generator) -> RGB:
    """Put a mirrored, brighter or darker copy of the patch over an ellipse of it."""
    other = np.clip(patch[::-1, ::-1] * rng.uniform(0.4, 1.7, 3) + rng.uniform(-50, 50), 0, 255)
    return _blended(patch, other.astype(np.uint8))


def erased(patch: RGB, rng: Generator) -> RGB:
    """Fill the patch from its rim."""
    mask = np.zeros(patch.shape[:2], dtype=np.uint8)
    mask[2:-2, 2:-2] = 255
    filled = cv2.inpaint(patch, mask, 3, cv2.INPAINT_TELEA)
    return np.clip(np.rint(filled + rng.normal(0, 1.5, patch.shape)), 0, 255).astype(np.uint8)


def lettered(patch: RGB, rng: Generator) -> RGB:
    """Write a letter over the patch."""
    out, (height, width) = patch.copy(), patch.shape[:2]
    thick, size = max(2, min(width, height) // 8), min(width, height) / 26
    ink = (0, 0, 0) if patch.mean() > 127 else (255, 255, 255)
    letter = _LETTERS[int(rng.integers(len(_LETTERS)))]
    cv2.putText(out, letter, (thick, height - thick), cv2.FONT_HERSHEY_SIMPLEX, size, ink, thick, cv2.LINE_AA)
    return out


def painted(patch: RGB, rng: Generator) -> RGB:
    """Put an ellipse of one color over the patch."""
    return _blended(patch, np.full_like(patch, rng.integers(0, 256, 3, dtype=np.uint8)))


KINDS: tuple[Edit, ...] = (recolored, pasted, erased, lettered, painted)
