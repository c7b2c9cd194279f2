"""The classes of pairs: what was edited, how it was delivered, and which words about the whole picture are true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.random import Generator

from benchmarks.localize import deliveries as by
from benchmarks.localize.photographs import one_of, photographs, textures
from benchmarks.localize.scenes import (
    LARGE,
    SMALL,
    Scene,
    edited,
    painted,
    recolored,
    with_other_background,
    with_word,
)
from editloupe.data.images import RGB
from editloupe.values import Box

Draw = Callable[[RGB, Generator, int], Scene]
"""Returns a scene of a photograph with so many edits, delivered."""
_FAINT = (4.0, 14.0)
"""Mean difference in levels."""


@dataclass(frozen=True, kw_only=True)
class Class:
    """One kind of pair."""

    draw: Draw
    true: frozenset[str] = frozenset()
    """What may be said about the whole picture: "regenerated", "drawn again"."""
    counts: bool = True
    """False where the boxes are not known: only the words count."""
    of_textures: bool = False


def _delivered(delivery: by.Delivery, *true: str, **how: Any) -> Class:
    def draw(photo: RGB, rng: Generator, edits: int) -> Scene:
        scene = edited(photo, rng, edits=edits, **how)
        return replace(scene, after=delivery(scene.after, rng))

    return Class(draw=draw, true=frozenset(true))


def _grainy(photo: RGB, rng: Generator, edits: int) -> Scene:
    scene = edited(photo, rng, edits=edits)
    return replace(scene, before=by.noisy(scene.before, rng, 10), after=by.noisy(scene.after, rng, 10))


def _part(photo: RGB, rng: Generator, zoom: float, aspect: float) -> Box:
    """Return a part of the picture in px: what is left of it at this aspect, divided by `zoom`, anywhere."""
    height, width = photo.shape[:2]
    w, h = (side / zoom for side in (min(width, height * aspect), min(height, width / aspect)))
    x, y = rng.uniform(0, width - w), rng.uniform(0, height - h)
    return Box(x, y, x + w, y + h).rounded_out().clipped(width=width, height=height)


def _cropped(zoom: tuple[float, float], square: bool, photo: RGB, rng: Generator, edits: int) -> Scene:
    part = _part(photo, rng, float(rng.uniform(*zoom)), 1.0 if square else photo.shape[1] / photo.shape[0])
    return by.cropped(edited(photo, rng, edits=edits, within=part), part)


def _outpainted(photo: RGB, rng: Generator, edits: int) -> Scene:
    part = _part(photo, rng, float(rng.uniform(1.2, 1.8)), photo.shape[1] / photo.shape[0] * float(rng.uniform(0.7, 1.4)))
    return by.outpainted(edited(photo, rng, edits=edits, within=part), part)


def _toned_large(photo: RGB, rng: Generator, edits: int) -> Scene:
    return edited(photo, rng, edits=min(1, edits), kinds=(recolored, painted), area=LARGE)


def _word(photo: RGB, rng: Generator, edits: int) -> Scene:
    scene = with_word(photo, rng, same=not edits)
    return replace(scene, after=by.jpeg(85)(scene.after, rng))


def _background(photo: RGB, rng: Generator, edits: int) -> Scene:
    other = photo[::-1, ::-1] if edits % 2 else 255 - photo[:, ::-1]
    return with_other_background(photo, np.ascontiguousarray(other), rng)


CLASSES: Mapping[str, Class] = {
    "as it is": _delivered(by.as_is),
    "JPEG 50": _delivered(by.jpeg(50)),
    "JPEG 30": _delivered(by.jpeg(30)),
    "shift": _delivered(by.shifted),
    "turn of 1° to 6°": _delivered(by.turned),
    "mirror, quarter turn": _delivered(by.mirrored_or_turned),
    "size": _delivered(by.resized),
    "gamma 0.7 to 1.5": _delivered(by.gamma((0.7, 0.9), (1.1, 1.5))),
    "gamma 0.6, 1.7": _delivered(by.gamma((0.6, 0.65), (1.6, 1.7))),
    "gain, offset": _delivered(by.exposed),
    "saturation": _delivered(by.saturated),
    "large edit": Class(draw=_toned_large, true=frozenset({"regenerated"})),
    "crop to a square": Class(draw=partial(_cropped, (1.0, 1.0), True)),
    "zoom 1.1 to 1.4": Class(draw=partial(_cropped, (1.1, 1.4), False)),
    "zoom 1.4 to 2": Class(draw=partial(_cropped, (1.4, 2.0), False)),
    "square, zoom to 1.5": Class(draw=partial(_cropped, (1.1, 1.5), True)),
    "bars and borders": _delivered(by.with_bars),
    "outpainting": Class(draw=_outpainted),
    "grain in both": Class(draw=_grainy),
    "autoencoder": _delivered(by.decoded),
    "redrawn by 0.4 px": _delivered(by.redrawn(0.4), "drawn again"),
    "redrawn by 0.8 px": _delivered(by.redrawn(0.8), "drawn again"),
    "redrawn by 1.5 px": _delivered(by.redrawn(1.5), "drawn again", "regenerated"),
    "small": _delivered(by.jpeg(85), area=SMALL),
    "small, autoencoder": _delivered(by.decoded, area=SMALL),
    "small, redrawn": _delivered(by.redrawn(0.8), "drawn again", area=SMALL),
    "faint": _delivered(by.jpeg(85), contrast=_FAINT),
    "faint, autoencoder": _delivered(by.decoded, contrast=_FAINT),
    "one letter": Class(draw=_word),
    "repeated texture": replace(_delivered(by.shifted), of_textures=True),
    "another background": Class(draw=_background, true=frozenset({"regenerated"}), counts=False),
}


@cache
def _pictures(shared: Path | None) -> tuple[Sequence[RGB], Sequence[RGB]]:
    return photographs(shared), textures()


def draw(name: str, seed: int, index: int, shared: Path | None) -> Scene:
    """Return pair `index` of a class. Every fifth one has no edit."""
    rng = np.random.default_rng([seed, index, sum(name.encode())])
    kind, (photos, patterns) = CLASSES[name], _pictures(shared)
    photo = one_of(patterns if kind.of_textures else photos, rng)
    return kind.draw(photo, rng, 0 if index % 5 == 4 else 1 + index % 3)
