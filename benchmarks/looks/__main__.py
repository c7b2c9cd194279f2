"""What the tool `localize_differences` shows of real edits whose places are known: see README.md beside this file."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from benchmarks.localize.peers import Found, absolute_difference, ssim_map
from benchmarks.pages import options, show, table
from editloupe.backends.image_tokens import image_tokens_of
from editloupe.data.images import RGB, ImageStore
from editloupe.imaging.differences import localize
from editloupe.tools.base import ToolContext
from editloupe.tools.layout import Canvas, lay_out
from editloupe.tools.localize_differences import LocalizeDifferences
from editloupe.tools.settings import ToolSettings
from editloupe.values import Box, ImageRef, View

GRID = 500
"""Cells a side in which shares are counted."""
SHOWN = 0.85
SMALL = 0.15
AROUND = 30
"""Thousandths around a mark that are neither the mark nor the rest."""
CALM = 3.0
LEAST_FILLED = 1 / 30
"""Of a picture, by the region that it is about."""
MODEL = "qwen2.5-vl-7b"
PEERS: Mapping[str, Callable[[RGB, RGB], Found]] = {"absolute difference": absolute_difference, "SSIM map": ssim_map}
MOST_CROPS = 3


@dataclass(frozen=True, kw_only=True)
class Crop:
    """One picture of a place."""

    frame: Box
    """What it shows, in px of the source."""
    region: Box
    """What it is about, in px of the source."""
    scale: float
    """Shown px for each px of the source."""


@dataclass(frozen=True, kw_only=True)
class Look:
    """One pair, looked at in one way."""

    crops: Sequence[Crop]
    tokens: int
    """Of the pictures added."""
    seconds: float
    regenerated: bool = False


@dataclass(frozen=True, kw_only=True)
class Pair:
    """A source and an edited image, with the marked places."""

    id: str
    refs: tuple[ImageRef, ImageRef]
    images: tuple[RGB, RGB]
    marks: Sequence[Box]
    """In thousandths of the source."""
    store: ImageStore


def tokens(sizes: Sequence[tuple[int, int]]) -> int:
    rule = image_tokens_of(MODEL)
    assert rule is not None
    return sum(rule.count(width, height) for width, height in sizes)


def by_tool(pair: Pair) -> Look:
    tool, names = LocalizeDifferences(), ("Original Image", "Edited Image")
    views = {name: View.whole(ref) for name, ref in zip(names, pair.refs, strict=True)}
    args = tool.Args(comparison_image_1=names[0], comparison_image_2=names[1])
    start = time.process_time()
    seen = tool(args, ToolContext(images=pair.store, views=views))
    seconds = time.process_time() - start
    crops = [
        Crop(frame=view.region, region=Box(*box), scale=float(view.params["scale"]))  # type: ignore[arg-type, misc]
        for view in seen.views
        if view.params["pane"] == "left"
        for box in view.params["boxes"]  # type: ignore[union-attr]
    ]
    # A small region in the picture of the whole pair is pointed out there, and not shown.
    crops = [crop for crop in crops if crop.region.area >= LEAST_FILLED * crop.frame.area]
    sizes = [(image.width, image.height) for image in seen.images]
    return Look(crops=crops, tokens=tokens(sizes), seconds=seconds, regenerated=bool(seen.data["regenerated"]))


def by_peer(find: Callable[[RGB, RGB], Found], pair: Pair) -> Look:
    """Return a look at the strongest boxes, framed and enlarged as the tool does it, within the same budget."""
    (first, second), start = pair.refs, time.process_time()
    found = sorted(find(*pair.images), key=lambda box: -box[1])[:MOST_CROPS]
    whole = Box.whole(width=first.width, height=first.height)
    finer = max(1.0, second.width / first.width, second.height / first.height)
    canvas = Canvas(image=whole, common=whole, finer=finer, tokens=lambda *size: tokens([size]))
    budget = ToolSettings.picture_budget * tokens([(ref.width, ref.height) for ref in pair.refs])
    looks = lay_out([box for box, _ in found], canvas, budget, strong=len(found)) if found else []
    seconds = time.process_time() - start
    crops = [Crop(frame=look.frame, region=found[i][0], scale=look.scale) for look in looks for i in look.regions]
    return Look(crops=crops, tokens=tokens([look.picture for look in looks]), seconds=seconds)


def mask(boxes: Sequence[Box], width: float, height: float, *, around: float = 0) -> np.ndarray:
    """Return GRID×GRID: which cells lie in boxes, given in units of which the image has `width` × `height`."""
    inside = np.zeros((GRID, GRID), dtype=bool)
    for x0, y0, x1, y1 in boxes:
        columns = slice(max(0, round((x0 - around) * GRID / width)), round((x1 + around) * GRID / width))
        inside[max(0, round((y0 - around) * GRID / height)) : round((y1 + around) * GRID / height), columns] = True
    return inside


def shown(pair: Pair, look: Look) -> float:
    """Return the least share 0..1 of a marked place that lies in the crops."""
    covered = mask([crop.frame for crop in look.crops], pair.refs[0].width, pair.refs[0].height)
    return min(float(covered[mask([mark], 1000, 1000)].mean()) for mark in pair.marks)


def stray(pair: Pair, look: Look) -> int:
    marked = mask(pair.marks, 1000, 1000)
    width, height = pair.refs[0].width, pair.refs[0].height
    return sum(not marked[mask([crop.region.rounded_out()], width, height)].any() for crop in look.crops)


def rest(pair: Pair) -> float:
    """Return the median difference outside the marks, in levels."""
    levels = localize(*pair.images).levels
    inside = mask(pair.marks, 1000, 1000, around=AROUND).astype(np.uint8)
    outside = levels[cv2.resize(inside, levels.shape[::-1], interpolation=cv2.INTER_NEAREST) == 0]
    return float(np.median(outside)) if outside.size else float("inf")


def read(data: Path) -> list[Pair]:
    places = json.loads((Path(__file__).parent / "places.json").read_text(encoding="utf-8"))
    pairs = []
    for line in (data / "metadata.jsonl").read_text(encoding="utf-8").splitlines():
        row: dict[str, Any] = json.loads(line)
        if row["id"] in places:
            store = ImageStore()
            source, edited = (store.add_file(data / row[name]) for name in ("source_file_name", "edited_file_name"))
            marks = [Box(*box) for box in places[row["id"]]["boxes"]]
            images = (store.array(source), store.array(edited))
            pairs.append(Pair(id=row["id"], refs=(source, edited), images=images, marks=marks, store=store))
    if not pairs:
        raise SystemExit(f"{data} has none of the pairs that places.json knows")
    return pairs


def report(pairs: Sequence[Pair], *, verbose: bool) -> str:
    given = sum(tokens([(ref.width, ref.height) for ref in pair.refs]) for pair in pairs)
    marked = [pair for pair in pairs if pair.marks]
    ways = {
        "localize_differences": by_tool,
        **{name: (lambda p, find=find: by_peer(find, p)) for name, find in PEERS.items()},
    }
    rows = []
    for way, look in ways.items():
        looks = {pair.id: look(pair) for pair in pairs}
        scales = [
            crop.scale
            for pair in pairs
            for crop in looks[pair.id].crops
            if max(crop.region.width / pair.refs[0].width, crop.region.height / pair.refs[0].height) < SMALL
        ]
        shares = {pair.id: shown(pair, looks[pair.id]) for pair in marked}
        wrongly = [pair.id for pair in marked if looks[pair.id].regenerated and rest(pair) < CALM]
        if verbose:
            print(f"{way}: not shown {[id_ for id_, share in shares.items() if share < SHOWN]}; regenerated {wrongly}")
        crops = sum(len(looks[pair.id].crops) for pair in marked)
        magnified = f"×{statistics.median(scales):.1f} ({len(scales)})" if scales else "–"
        shown_of = f"{sum(share >= SHOWN for share in shares.values())} of {len(marked)}"
        strays = f"{sum(stray(pair, looks[pair.id]) for pair in marked)} of {crops}"
        spent = f"{sum(one.tokens for one in looks.values()) / given:.2f}"
        told = len(wrongly) if way == "localize_differences" else "–"
        took = f"{1000 * statistics.median(one.seconds for one in looks.values()):.0f} ms"
        rows.append((way, shown_of, strays, magnified, spent, told, took))
    rows.append(("the pair alone", f"{len(marked)} of {len(marked)}", "–", "×1.0", "0", "–", "–"))
    return table(("way", "shown", "stray", "magnification", "tokens", "regenerated", "time"), rows)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real edits, with metadata.jsonl")
    parser.add_argument("--pairs", type=int, help="only so many, the first")
    parser.add_argument("--verbose", action="store_true", help="name the pairs that are not shown")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    pairs = read(args.data)[: args.pairs]
    text = f"{len(pairs)} pairs.\n\n{report(pairs, verbose=args.verbose)}"
    show("looks", text, write=args.write, path=Path(__file__).with_name("README.md"))


if __name__ == "__main__":
    main()
