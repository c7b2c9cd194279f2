"""What a tool says of a search for a phrase: what was found, and no more."""

from __future__ import annotations

from typing import Final

from editloupe import models
from editloupe.models.detect.base import Detector
from editloupe.models.detect.search import Search
from editloupe.values import ImageRef, Json

LISTED: Final = 10
"""Boxes that are written out and drawn; the rest are counted."""


def observation_lines(result: Search, detector: Detector, *, name: str, image: ImageRef) -> list[str]:
    """Return what the LMM reads: how many were found and where, or what was searched in vain."""
    where = f"{name!r} ({image.width}×{image.height} px)"
    if not result.detections:
        return [
            f"No {result.phrase!r} found in {where}: no box reached the score {detector.threshold:.2f}. "
            f"Searched by {detector.name}: {_searched(result)}.",
            "That does not show that it is absent: small, partly hidden or unusual things are missed. Look with zoom_in at "
            "the place where it should be.",
        ]
    total = len(result.detections)
    lines = [
        f"{result.phrase!r} in {where}: {total} found with a score of {detector.threshold:.2f} or more by {detector.name}."
    ]
    if result.tiles:
        lines.append(
            f"Only on a second look: nothing in the whole image, these in tiles ({_searched(result)}). An object that a "
            "tile's border cuts may be listed in parts."
        )
    for number, found in enumerate(result.detections[:LISTED], start=1):
        box = list(found.box.to_thousandths(width=image.width, height=image.height))
        matched = f", matched {found.label!r}" if found.label and found.label != result.phrase else ""
        size = f"{found.box.width:.0f}×{found.box.height:.0f} px"
        lines.append(f"{number}: bbox {box}, {size}, score {found.score:.2f}{matched}.")
    if total > LISTED:
        lines.append(f"{total - LISTED} more with lower scores are not listed.")
    lines.append(
        "Boxes are [x0, y0, x1, y1] in thousandths of width and height. A score is the detector's opinion: a box may hold "
        "something else, one object may have two boxes, and a detector can miss some."
    )
    return lines


def facts(result: Search, detector: Detector) -> dict[str, Json]:
    """Return the same for programs: boxes in px, and which detector ("detector", versions) computed where ("device")."""
    return {
        "phrase": result.phrase,
        "found": len(result.detections),
        "detections": [
            {"box": [round(v, 2) for v in d.box], "score": round(d.score, 4), "label": d.label} for d in result.detections
        ],
        "threshold": detector.threshold,
        "detector": detector.version,
        **models.computed(detector),
        "whole": list(result.whole),
        "tiles": [list(tile.ints()) for tile in result.tiles],
        "tile_seen": None if result.tile_seen is None else list(result.tile_seen),
    }


def _searched(result: Search) -> str:
    text = f"the whole image at {result.whole[0]}×{result.whole[1]} px"
    if result.tiles and result.tile_seen is not None:
        tile, seen = result.tiles[0], result.tile_seen
        size = f"{tile.width:.0f}×{tile.height:.0f} px"
        shown = f"each at {seen[0]}×{seen[1]} px" if seen != (tile.width, tile.height) else "each at its own size"
        return f"{text}, then {len(result.tiles)} overlapping tiles of {size}, {shown}"
    return f"{text}; no tiles, since the image is too small to divide" if not result.detections else text
