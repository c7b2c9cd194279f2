"""Searches an image for a phrase: the whole image, then overlapping tiles."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Final

from editloupe.data.images import RGB
from editloupe.errors import PhraseError
from editloupe.imaging import render
from editloupe.imaging.geometry import spans
from editloupe.models.detect.base import Detection, DetectionResult, Detector, suppress
from editloupe.values import Box

MAX_TILES: Final = 36
MAX_PHRASE: Final = 200

_WHOLE: Final = frozenset(("image", "whole image", "entire image", "picture", "photo", "whole picture", "entire picture"))

_OVERLAP = 0.2
_NEAR = 0.01
"""A box that ends within this share of its tile's side from a border counts as cut by it."""
_LEAST_SIDE_PX = 48
"""An image under twice that a side is not tiled: a tile would show nothing that the whole image did not."""


@dataclass(frozen=True, kw_only=True)
class Search:
    """What a search found, and how it was made."""

    phrase: str
    detections: tuple[Detection, ...]
    """Best first, without duplicates."""
    whole: tuple[int, int]
    """(width, height) in px at which the network saw the whole image."""
    tiles: tuple[Box, ...] = ()
    """Tiles that were searched after the whole image gave nothing; () where there was no need or the image is too small."""
    tile_seen: tuple[int, int] | None = None
    """(width, height) in px at which the network saw the first tile; None without tiles."""


def search(detector: Detector, rgb: RGB, phrase: str) -> Search:
    """Look for a phrase in the whole image and, where nothing is found, in overlapping tiles at native resolution.

    rgb: H×W×3 uint8.
    phrase: as `cleaned` returns it.
    Raises ToolError as the detector does.
    """
    height, width = rgb.shape[:2]
    result = detector([rgb], phrase)[0]
    found, whole = suppress(result.detections), (result.width, result.height)
    tiles = () if found else tiles_of(width, height, side=detector.side_px)
    if not tiles:
        return Search(phrase=phrase, detections=found, whole=whole)
    results = detector([render.crop(rgb, tile) for tile in tiles], phrase)
    return Search(
        phrase=phrase,
        detections=_joined(tiles, results, width=width, height=height),
        whole=whole,
        tiles=tiles,
        tile_seen=(results[0].width, results[0].height),
    )


def cleaned(phrase: str) -> str:
    """Return a phrase as detectors want it: lower case, single spaces, no full stop at the end.

    Raises PhraseError where nothing is left.
    """
    text = " ".join(phrase.lower().split()).strip(" .")
    if not any(c.isalnum() for c in text):
        raise PhraseError(f"there is nothing to look for in {phrase!r}; name an object, for example 'red mug'")
    return text


def means_whole_image(phrase: str) -> bool:
    """Return True for a phrase such as "the entire image", for which nothing has to be looked for."""
    return re.sub(r"^(the|an?)\s+", "", " ".join(phrase.casefold().split()).strip(" .")) in _WHOLE


def tiles_of(width: int, height: int, *, side: int) -> tuple[Box, ...]:
    """Return overlapping tiles, row by row: at most `side` px and at most 60 % of the image's side, so that each enlarges.

    At most MAX_TILES: a very large image gets larger tiles, which the network then sees reduced.
    () where the image is under twice _LEAST_SIDE_PX in both directions.
    """
    if max(width, height) < 2 * _LEAST_SIDE_PX:
        return ()
    while True:
        sides = [min(side, max(_LEAST_SIDE_PX, -(-6 * length // 10))) for length in (height, width)]
        rows, columns = (
            spans(length, tile=tile, overlap=int(_OVERLAP * tile))
            for length, tile in zip((height, width), sides, strict=True)
        )
        if len(rows) * len(columns) <= MAX_TILES:
            return tuple(Box(x0, y0, x1, y1) for (y0, y1), (x0, x1) in product(rows, columns))
        side = -(-side * 5 // 4)


def _joined(tiles: Sequence[Box], results: Sequence[DetectionResult], *, width: int, height: int) -> tuple[Detection, ...]:
    """Return the tiles' detections in px of the image, none twice, best first.

    What a tile's border cuts is dropped where a neighbor, which overlaps, has the whole of it, whatever the scores.
    """
    entire: list[Detection] = []
    cut: list[Detection] = []
    for tile, result in zip(tiles, results, strict=True):
        for d in result.detections:
            found = Detection(box=d.box.shifted(tile.x0, tile.y0), score=d.score, label=d.label)
            (cut if _cut(found.box, tile, width=width, height=height) else entire).append(found)
    kept = suppress(entire)
    parts = [d for d in suppress(cut) if not any(_holds(whole.box, d.box) for whole in kept)]
    return suppress([*kept, *parts])


def _cut(box: Box, tile: Box, *, width: int, height: int) -> bool:
    """Return True if a box reaches a border of its tile that is not a border of the image."""
    x, y = _NEAR * tile.width, _NEAR * tile.height
    return (
        (tile.x0 > 0 and box.x0 - tile.x0 <= x)
        or (tile.y0 > 0 and box.y0 - tile.y0 <= y)
        or (tile.x1 < width and tile.x1 - box.x1 <= x)
        or (tile.y1 < height and tile.y1 - box.y1 <= y)
    )


def _holds(whole: Box, part: Box) -> bool:
    common = whole.intersection(part)
    return common is not None and common.area > 0.85 * part.area
