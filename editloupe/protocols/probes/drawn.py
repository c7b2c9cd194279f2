"""Draws scenes from numbers: a ground, many things, one of them the target at a given share of the image. Deterministic.

Kinds, grounds and the way of drawing are none of those of `benchmarks/drawing.py`, on which the pixel baseline's rules were
made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias, TypeVar

import cv2
import numpy as np

from editloupe.baseline.naming import to_lab
from editloupe.data.images import RGB
from editloupe.errors import DataError
from editloupe.protocols.probes.colours import Mask, told_apart
from editloupe.protocols.probes.grounds import FLAT, GROUNDS, SHELVES, Field, noise, shelves, waves
from editloupe.protocols.probes.scene import Scene, Thing
from editloupe.protocols.probes.sprites import COLOURS, KINDS, VIVID, Pose, Sprite, covered, extent, filling, sprite

_T = TypeVar("_T")

LookAlikes: TypeAlias = Literal["none", "other colour", "same colour", "both"]
"""Which other things of the target's noun a scene has."""

TOLERANCE: Final = 0.1
"""How far the target's share is from the one asked for at most, as a part of that."""
LEAST_PX: Final = 64
"""A target of fewer pixels shows nothing that people could agree on."""
LEAST_OTHERS: Final = 4
"""Other things of a scene, at least: for several collateral changes, and some that stay."""
_SMALL: Final = 0.0025
"""Share of the image below which a target has an outline that tells what it is, and a colour that no other thing has."""
_NAMED_BY_NOUN: Final = 0.0009
"""Share of the image from which a target without look-alikes may be named without its colour."""
_APART: Final = 28.0
"""ΔE (CIE76) between a thing's colour and the ground around it, at least."""
_LEFT_OF: Final = 0.22
"""How far apart things are that are told apart by their place, as a share of the image's side."""
_LAB: Final = {name: to_lab(np.array([[rgb]], np.uint8))[0, 0] for name, rgb in COLOURS.items()}
_SHADOW: Final = (0.05, 0.07)
"""Where a thing's shadow falls, in parts of its side to the right and downwards."""


def drawn_scene(
    seed: int,
    *,
    area: float,
    size: tuple[int, int] = (1024, 768),
    ground: str | None = None,
    look_alikes: LookAlikes | None = None,
) -> Scene:
    """Return the scene of a seed; equal arguments give equal pixels.

    area: share of the image that the target's mask covers, 0.0005 to 0.1; met within `TOLERANCE`.   size: width and height
    in px.   ground, look_alikes: drawn by the seed unless given. `clean` of the scene draws it without a thing, exactly.
    Raises DataError for a share that the size has no room for, or an unknown ground.
    """
    width, height = size
    if not 0.0004 <= area <= 0.12:
        raise DataError(
            f"a drawn target covers 0.0004 to 0.12 of the image; got {area}; use one of the shares 0.0005 to 0.1"
        )
    if area * width * height < LEAST_PX:
        least = LEAST_PX / area
        raise DataError(
            f"a target of {area:.2%} of {width}×{height} px has {area * width * height:.0f} px; it needs {LEAST_PX}; "
            f"use images of at least {least / 1e6:.2f} megapixels, or a larger share"
        )
    if ground is not None and ground not in GROUNDS:
        raise DataError(f"unknown ground {ground!r} of a drawn scene; known: {', '.join(GROUNDS)}")
    for attempt in range(20):
        rng = np.random.default_rng([seed, round(area * 1e6), width, height, attempt])
        made = _Set(rng, width, height, area, ground=ground, look_alikes=look_alikes)
        if made.arranged():
            return made.scene(f"drawn-{made.ground}-{seed}-{area * 100:g}-{width}x{height}")
    raise DataError(
        f"no room for a target of {area:.2%} and {LEAST_OTHERS} other things in {width}×{height} px; "
        "use an aspect between 1:2 and 2:1, or a smaller share"
    )


def with_thing(rgb: RGB, noun: str, pose: Pose, *, colour: str, seed: int) -> tuple[RGB, Mask]:
    """Return an image with a drawn thing and its shadow laid over it, and H×W, where the thing is.

    colour: one of `COLOURS`.   seed: of its texture.
    """
    red, green, blue = COLOURS[colour]
    thing = sprite(noun, pose, colour=(red, green, blue), seed=seed)
    canvas = rgb.astype(np.float32)
    for drawn in (_shadow(pose.side, thing), thing):
        _paste(canvas, drawn)
    mask = np.zeros(rgb.shape[:2], np.bool_)
    rows, columns, part = _window(mask.shape, thing)
    mask[rows, columns] = thing.alpha[part] >= 0.5
    return np.clip(np.rint(canvas), 0, 255).astype(np.uint8), mask


@dataclass(frozen=True, kw_only=True)
class _Item:
    """A thing before it is drawn."""

    noun: str
    colour: str
    pose: Pose
    seed: int
    box: tuple[float, float, float, float]
    """x0, y0, x1, y1 in px."""


class _Set:
    """Arranges and draws one scene; all chance comes from one generator, asked in a fixed order."""

    def __init__(
        self, rng: np.random.Generator, width: int, height: int, area: float, *, ground: str | None, look_alikes: str | None
    ) -> None:
        self.rng, self.width, self.height, self.area = rng, width, height, area
        drawn = self._pick(GROUNDS)
        self.ground = ground or drawn
        kinds = ("none", "none", "none", "other colour", "other colour", "same colour", "both")
        chosen = self._pick(kinds)
        self.look_alikes = look_alikes or chosen
        nouns = [n for n in KINDS if (area >= _SMALL or KINDS[n].tiny) and (area < 0.05 or filling(n) >= 0.38)]
        self.noun = self._pick(nouns)
        self.side = float(np.sqrt(area * width * height / filling(self.noun)))
        self.boards: tuple[int, ...] = ()
        self.field = self._field()
        # What a colour is held against: the ground as it is lit, in 32 columns of CIELAB.
        coarse = cv2.resize(self.field, (32, max(2, 32 * height // width)), interpolation=cv2.INTER_AREA)
        self.coarse = to_lab(np.clip(coarse, 0, 255).astype(np.uint8))
        self.items: list[_Item] = []

    # The ground

    def _field(self) -> Field:
        if self.ground == SHELVES:
            most = int(self.height // (1.25 * max(self.side, 0.2 * self.height)))
            field, self.boards = shelves(self.rng, self.height, self.width, max(1, min(4, most)))
        else:
            field = FLAT[self.ground](self.rng, self.height, self.width)
        light = 1 + 0.05 * waves(self.rng, self.height, self.width, 2)
        light += np.linspace(self.rng.uniform(-0.1, 0.1), self.rng.uniform(-0.1, 0.1), self.width, dtype=np.float32)
        return np.asarray(field * light[..., None].astype(np.float32), dtype=np.float32)

    # What lies where

    def arranged(self) -> bool:
        """Whether the target, its look-alikes and enough others found their places."""
        target = self._placed(self.noun, self.side, VIVID)
        if target is None:
            return False
        self.items.append(self._true_to_area(target))
        for same in {"none": (), "other colour": (False,), "same colour": (True,), "both": (True, False)}[self.look_alikes]:
            if not self._add_look_alike(same_colour=same):
                return False
        nouns = [n for n in KINDS if n != self.noun]
        nouns = [nouns[i] for i in self.rng.permutation(len(nouns))]
        # Half of the scenes with larger targets are airy: what is added beside the target needs room.
        airy = self.area >= 0.005 and self.rng.random() < 0.5
        wanted = int(self.rng.integers(*((5, 8) if airy else (9, len(nouns)) if self.area < 0.02 else (6, 10))))
        largest = 0.26 * min(self.width, self.height)
        found = 0
        for i, noun in enumerate(nouns[:wanted]):
            # Half of them are about as large as the target, the others anything up to a quarter of the image.
            if i % 2 == 0 and self.area < 0.05:
                side = self.side * self.rng.uniform(0.85, 1.5)
            else:
                side = float(np.exp(self.rng.uniform(np.log(min(self.side, 0.4 * largest)), np.log(largest))))
            colours = [c for c in COLOURS if self.area >= _SMALL or told_apart(c, self.items[0].colour)]
            other = self._placed(noun, max(side, 14.0), colours)
            if other is not None:
                self.items.append(other)
                found += 1
        return found >= LEAST_OTHERS

    def _add_look_alike(self, *, same_colour: bool) -> bool:
        target = self.items[0]
        colours = (target.colour,) if same_colour else tuple(c for c in VIVID if told_apart(c, target.colour))
        for _ in range(12):
            other = self._placed(self.noun, self.side * self.rng.uniform(0.85, 1.15), colours)
            if other is None:
                return False
            if not same_colour or self._told_by_place(other) is not None:
                self.items.append(other)
                return True
        return False

    def _told_by_place(self, other: _Item) -> tuple[str, str] | None:
        """How the target and another thing are named by their places; None where they lie too near each other."""
        pose, twin = self.items[0].pose, other.pose
        across, down = (pose.x - twin.x) / self.width, (pose.y - twin.y) / self.height
        if max(abs(across), abs(down)) < _LEFT_OF + 0.6 * self.side / max(self.width, self.height):
            return None
        if abs(across) >= abs(down):
            return ("on the left", "on the right") if across < 0 else ("on the right", "on the left")
        return ("at the top", "at the bottom") if down < 0 else ("at the bottom", "at the top")

    def _placed(self, noun: str, side: float, colours: Sequence[str]) -> _Item | None:
        """A thing at a place where it covers no other and is seen; None where there is none."""
        for attempt in range(60):
            size = side if not self.items else side * (1 - 0.5 * attempt / 60)
            if len(self.items) and self.items[0].noun == noun:
                size = side
            item = self._dropped(noun, size)
            if item is None or not self._free(item):
                continue
            seen = [c for c in colours if self._seen(c, item)]
            if seen:
                return replace(item, colour=self._pick(seen))
        return None

    def _dropped(self, noun: str, side: float) -> _Item | None:
        mirrored = bool(self.rng.random() < 0.5)
        seed = int(self.rng.integers(2**31))
        angle = 0.0 if self.boards else float(self.rng.uniform(-0.45, 0.45))
        pose = Pose(x=0, y=0, side=side, angle=angle, mirrored=mirrored)
        x0, y0, x1, y1 = extent(noun, pose)
        edge = max(4.0, 0.01 * self.width)
        # Its shadow lies in the image as well.
        low_x, high_x = edge - x0, self.width - edge - x1 - _SHADOW[0] * side
        low_y, high_y = edge - y0, self.height - edge - y1 - _SHADOW[1] * side
        if low_x >= high_x or low_y >= high_y:
            return None
        x = float(self.rng.uniform(low_x, high_x))
        y = self._pick(self.boards) + 1.0 - y1 if self.boards else float(self.rng.uniform(low_y, high_y))
        if y < low_y:
            return None
        box = (x0 + x, y0 + y, x1 + x, y1 + y)
        return _Item(noun=noun, colour="", seed=seed, pose=replace(pose, x=x, y=y), box=box)

    def _free(self, item: _Item) -> bool:
        x0, y0, x1, y1 = item.box
        for other in self.items:
            a0, b0, a1, b1 = other.box
            gap = 4 + 0.12 * max(item.pose.side, other.pose.side)
            if x0 < a1 + gap and a0 < x1 + gap and y0 < b1 + gap and b0 < y1 + gap:
                return False
        return True

    def _seen(self, colour: str, item: _Item) -> bool:
        scale = self.coarse.shape[1] / self.width
        x0, y0, x1, y1 = (int(v * scale) for v in item.box)
        around = self.coarse[max(0, y0) : y1 + 1, max(0, x0) : x1 + 1].reshape(-1, 3).mean(axis=0)
        return bool(np.linalg.norm(around - _LAB[colour]) >= _APART)

    def _true_to_area(self, item: _Item) -> _Item:
        """The target scaled so that its mask covers the share that was asked for."""
        wanted = self.area * self.width * self.height
        pose = item.pose
        for _ in range(6):
            found = covered(item.noun, pose)
            if abs(found / wanted - 1) < 0.02:
                break
            pose = replace(pose, side=pose.side * float(np.sqrt(wanted / max(found, 1))))
        return replace(item, pose=pose, box=extent(item.noun, pose))

    # The picture

    def scene(self, name: str) -> Scene:
        sprites = [_drawn(item) for item in self.items]
        shadows = [_shadow(item.pose.side, drawn) for item, drawn in zip(self.items, sprites, strict=True)]
        speckle = noise(self.rng, self.height, self.width, 0.6) * np.float32(self.rng.uniform(1.2, 2.4))
        grain = cv2.merge([speckle, speckle, speckle])
        things = [self._thing(i, drawn) for i, drawn in enumerate(sprites)]
        names = [thing.name for thing in things]

        def drawn(without: str | None) -> RGB:
            canvas = self.field.copy()
            kept = [i for i, name in enumerate(names) if name != without]
            for i in kept:
                _paste(canvas, shadows[i])
            for i in kept:
                _paste(canvas, sprites[i])
            # Rounds and clips, in a tenth of NumPy's time.
            return np.asarray(cv2.add(canvas, grain, dtype=cv2.CV_8U), dtype=np.uint8)

        def clean(thing: Thing) -> RGB:
            if thing.name not in names:
                raise ValueError(f"scene {name!r} has no {thing.name!r}; it has {', '.join(names)}")
            return drawn(thing.name)

        return Scene(id=name, image=drawn(None), target=things[0], others=tuple(things[1:]), clean=clean, area=self.area)

    def _thing(self, index: int, drawn: Sprite) -> Thing:
        item, target = self.items[index], self.items[0]
        name = f"{item.colour} {item.noun}"
        twins = [other for other in self.items[1:] if (other.noun, other.colour) == (target.noun, target.colour)]
        if twins and (item.noun, item.colour) == (target.noun, target.colour):
            places = self._told_by_place(twins[0])
            assert places is not None
            name += f" {places[0 if index == 0 else 1]}"
        elif index == 0 and self.look_alikes == "none" and self.area >= _NAMED_BY_NOUN and target.seed % 2 == 0:
            name = item.noun
        mask = np.zeros((self.height, self.width), dtype=np.bool_)
        rows, columns, part = _window(mask.shape, drawn)
        mask[rows, columns] = drawn.alpha[part] >= 0.5
        return Thing(name=name, noun=item.noun, mask=mask, colour=item.colour)

    def _pick(self, options: Sequence[_T]) -> _T:
        return options[int(self.rng.integers(len(options)))]


def _drawn(item: _Item) -> Sprite:
    rng = np.random.default_rng(item.seed)
    red, green, blue = (float(v) for v in np.array(COLOURS[item.colour]) + rng.uniform(-7, 7, 3))
    return sprite(item.noun, item.pose, colour=(red, green, blue), seed=item.seed)


def _shadow(side: float, drawn: Sprite) -> Sprite:
    """What a thing takes of the light around it, as something black that is pasted below all things."""
    pad = int(0.12 * side) + 4
    wide = np.pad(drawn.alpha, pad)
    soft = cv2.GaussianBlur(wide, (0, 0), max(0.8, 0.035 * side))
    right, down = (round(v * side) for v in _SHADOW)
    alpha = np.asarray(soft * np.float32(0.42), dtype=np.float32)
    return Sprite(
        left=drawn.left - pad + right,
        top=drawn.top - pad + down,
        alpha=alpha,
        colours=np.full((*alpha.shape, 3), 22, np.float32),
    )


def _window(shape: tuple[int, ...], drawn: Sprite) -> tuple[slice, slice, tuple[slice, slice]]:
    """Rows and columns of a picture that a sprite covers, and its own part that lies there."""
    high, wide = drawn.alpha.shape
    top, left = max(0, drawn.top), max(0, drawn.left)
    bottom, right = max(top, min(shape[0], drawn.top + high)), max(left, min(shape[1], drawn.left + wide))
    own = (slice(top - drawn.top, bottom - drawn.top), slice(left - drawn.left, right - drawn.left))
    return slice(top, bottom), slice(left, right), own


def _paste(canvas: Field, drawn: Sprite) -> None:
    rows, columns, part = _window(canvas.shape, drawn)
    canvas[rows, columns] += drawn.alpha[part][..., None] * (drawn.colours[part] - canvas[rows, columns])
