"""Renderings without noise, in which one object is edited and the light around it follows. A function of the seed.

As a program: how tight the box of the object is.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final

import cv2
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from benchmarks.localize.scenes import around
from benchmarks.pages import table
from editloupe.data.images import RGB
from editloupe.imaging.differences import localize
from editloupe.values import Box

_Picture = NDArray[np.float32]

SIDE: Final = (800, 600)
"""px."""
KINDS: Final = ("recolored, bounce", "added, bounce", "removed, bounce", "added, shadow", "removed, shadow")
"""What is done to the object, and what around it follows."""
_FINER: Final = 2
"""Pictures are drawn at twice their size and reduced, so that edges are as smooth as a renderer's."""
_VISIBLE: Final = 2


@dataclass(frozen=True, kw_only=True)
class Rendering:
    """before, after: H×W×3 uint8 RGB.   box: the edited object, px.   lit: box of what its light or shadow changed, px."""

    before: RGB
    after: RGB
    box: Box
    lit: Box


@dataclass(frozen=True, kw_only=True)
class _Thing:
    """mask: H×W float32, 0..1.   shade: H×W float32, 0..1.3.   x, y, size: its center and its side, px."""

    mask: _Picture
    shade: _Picture
    x: float
    y: float
    size: float


def draw(seed: int, kind: str) -> Rendering:
    """Return a wall, a floor and four shaded things, of which one is edited.

    Its bounce light or its shadow has 3 to 30 % of the edit's own strength, over 2 to 5 times its size.
    """
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    ground = _ground(rng)
    for _ in range(3):
        ground = _put(ground, _thing(rng), _color(rng))
    thing, colors = _thing(rng), [_color(rng), _color(rng)]
    while np.abs(colors[0] - colors[1]).max() < 80:
        colors[1] = _color(rng)
    edit, light = kind.split(", ")
    share, reach = float(rng.uniform(0.03, 0.3)), float(rng.uniform(2, 5))
    lit = _bounce(thing, reach) if light == "bounce" else _shadow(thing, reach, rng)
    there = {"recolored": (True, True), "added": (False, True), "removed": (True, False)}[edit]
    pictures = []
    for color, present in zip(colors, there, strict=True):
        # Bounce light takes on the object's color; a shadow takes light away.
        tint = share * (color - 128) if light == "bounce" else -share * ground
        under = ground + tint * lit[..., None] if present else ground
        pictures.append(_reduced(_put(under, thing, color) if present else under))
    before, after = pictures
    object_alone = cv2.resize(thing.mask, SIDE, interpolation=cv2.INTER_AREA) > 0.5
    changed = np.abs(after.astype(int) - before).max(axis=2) >= _VISIBLE
    return Rendering(before=before, after=after, box=around(object_alone), lit=around(changed))


@cache
def _grid() -> Sequence[_Picture]:
    width, height = (_FINER * side for side in SIDE)
    y, x = np.mgrid[0:height, 0:width].astype(np.float32)
    return x, y


def _ground(rng: Generator) -> _Picture:
    """Return H×W×3: a wall that grows darker to one side, and a lighter floor below it."""
    x, y = _grid()
    horizon = rng.uniform(0.35, 0.6) * y.shape[0]
    wall, floor = (rng.uniform(90, 200) + rng.uniform(-15, 15, 3) for _ in range(2))
    slope = 1 + rng.uniform(-0.2, 0.2) * (x / x.shape[1] - 0.5) + rng.uniform(-0.2, 0.2) * (y / y.shape[0] - 0.5)
    below = np.clip((y - horizon) / 4 + 0.5, 0, 1)[..., None]
    return np.asarray(slope[..., None] * (wall * (1 - below) + floor * below), dtype=np.float32)


def _color(rng: Generator) -> _Picture:
    return np.asarray(rng.uniform(20, 240, 3), dtype=np.float32)


def _thing(rng: Generator) -> _Thing:
    """Return a ball, or a block with a lighter face, of 5 to 20 % of the picture's height."""
    x, y = _grid()
    size = float(rng.uniform(0.05, 0.2)) * y.shape[0]
    cx, cy = float(rng.uniform(0.15, 0.85)) * x.shape[1], float(rng.uniform(0.4, 0.8)) * y.shape[0]
    u, v = (x - cx) / (size / 2), (y - cy) / (size / 2)
    if rng.random() < 0.5:
        height = np.sqrt(np.clip(1 - u * u - v * v, 0, 1))
        mask = np.clip((1 - np.sqrt(u * u + v * v)) * size / 2 + 0.5, 0, 1)
        shade = 0.3 + 0.8 * np.clip(-0.5 * u - 0.6 * v + 0.6 * height, 0, 1.2)
    else:
        mask = np.clip((1 - np.maximum(np.abs(u), np.abs(v))) * size / 2 + 0.5, 0, 1)
        shade = np.where(u < rng.uniform(-0.3, 0.3), 1.0, 0.6) + 0.1 * v
    return _Thing(mask=np.asarray(mask, np.float32), shade=np.asarray(shade, np.float32), x=cx, y=cy, size=size)


def _put(ground: _Picture, thing: _Thing, color: _Picture) -> _Picture:
    share = thing.mask[..., None]
    return np.asarray(ground * (1 - share) + thing.shade[..., None] * color * share, dtype=np.float32)


def _bounce(thing: _Thing, reach: float) -> _Picture:
    """Return H×W, 0..1: light that fades around the thing's foot, `reach` times its size wide."""
    x, y = _grid()
    sigma = reach * thing.size / 4
    square = ((x - thing.x) / sigma) ** 2 + ((y - thing.y - 0.3 * thing.size) / sigma) ** 2
    return np.asarray(np.exp(-square / 2), dtype=np.float32)


def _shadow(thing: _Thing, reach: float, rng: Generator) -> _Picture:
    """Return H×W, 0..1: a soft ellipse to one side of the thing's foot."""
    soft = np.zeros_like(thing.mask)
    way = float(rng.choice([-1, 1]))
    center = (round(thing.x + way * 0.3 * reach * thing.size), round(thing.y + 0.4 * thing.size))
    cv2.ellipse(soft, center, (round(0.45 * reach * thing.size), round(0.35 * thing.size)), 0, 0, 360, 1.0, -1)
    return np.asarray(cv2.GaussianBlur(soft, (0, 0), float(rng.uniform(0.08, 0.25)) * thing.size), dtype=np.float32)


def _reduced(picture: _Picture) -> RGB:
    small = cv2.resize(picture, SIDE, interpolation=cv2.INTER_AREA)
    return np.clip(np.rint(small), 0, 255).astype(np.uint8)


def report(n: int) -> str:
    """Return, for each kind, how often the first box is the object's, its area over the object's, and the boxes a pair."""
    rows = []
    for kind in KINDS:
        tight, ratios, boxes = list[bool](), list[float](), 0
        for seed in range(n):
            scene = draw(seed, kind)
            found = localize(scene.before, scene.after).regions
            tight.append(bool(found) and found[0].box.iou(scene.box) >= 0.5)
            ratios += [r.box.area / scene.box.area for r in found[:1]]
            boxes += len(found)
        ratio = f"{np.median(ratios):.1f}" if ratios else "–"
        rows.append((kind, f"{np.mean(tight):.2f}", ratio, f"{boxes / n:.1f}"))
    return table(("edit", "first box tight", "its area over the object's, median", "boxes a pair"), rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=20, help="pairs for each kind of edit (20)")
    print(report(parser.parse_args().n))


if __name__ == "__main__":
    main()
