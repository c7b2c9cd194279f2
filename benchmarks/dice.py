"""How well the detector without words, `difference_regions`, finds what real edits changed, and what it says happened.

    pip install scikit-image
    python -m benchmarks.dice --data EDITS             # a folder of the real edits that looks/places.json knows
    python -m benchmarks.dice --data EDITS --verbose   # also a line for each pair
    python -m benchmarks.dice --data EDITS --write     # and put the tables into benchmarks/README.md

Truth: places that one person marked by eye (benchmarks/looks/README.md), on 59 of 83 pairs; one further pair is unchanged,
and whatever is found in it is wrong. The other 23 changed as a whole and are counted apart.

- **AP50**, **AP**: average precision without classes, at IoU 0.5 and over 0.50:0.05:0.95, by `editloupe.stats.detection`.
- **AP50 of 2**: the same of the two surest boxes of each pair. Each box is a question to a judge.
- **found**: marked places of which some box overlaps one half or more (IoU).
- **unwanted**: share of the image that lies in found boxes and in no marked place, mean over the 60 pairs.
- **boxes**: found in the 60 pairs.

Beside the detector stand two common ways, the boxes of the absolute difference and of the SSIM map (benchmarks/localize),
with their thresholds as they are; their confidence is the sum of the difference in a box for each px of the image.

The op: of boxes that overlap a marked place by 0.3 or more, in pairs whose edit adds, removes or changes one thing. A pair
of one size counts twice, the second time with its images swapped, so that ADD and REMOVE are as frequent. Drawn scenes of
known op stand beside it; `held_out` and the renderings set none of the rule's thresholds.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import cv2
import numpy as np

from benchmarks import scenes
from benchmarks.localize import renderings
from benchmarks.localize.peers import absolute_difference, ssim_map
from benchmarks.looks.__main__ import Pair, mask, read
from benchmarks.pages import put
from editloupe.data.images import RGB, ImageStore
from editloupe.measures.base import run_measure
from editloupe.stats.detection import ImageBoxes, Precision, matches
from editloupe.values import Box

OPS = ("ADD", "EDIT", "REMOVE")
SWAPPED = {"ADD": "REMOVE", "EDIT": "EDIT", "REMOVE": "ADD"}
OVERLAP = 0.3
FEW = 2
BINS = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9, 1.0)


@dataclass(frozen=True, kw_only=True)
class Found:
    """One box in px of the source."""

    box: Box
    confidence: float
    op: str = ""


Way = Callable[[RGB, RGB], list[Found]]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A pair of images whose edit has a known op, at known places in px of the source."""

    group: str
    images: tuple[RGB, RGB]
    op: str
    places: Sequence[Box]


def by_detector(source: RGB, edited: RGB) -> list[Found]:
    data = cast(Any, run_measure("difference_regions", {}, {"source": source, "edited": edited})).data
    height, width = source.shape[:2]
    return [
        Found(box=Box.from_thousandths(one["box"], width=width, height=height), confidence=one["confidence"], op=one["op"])
        for one in data["differences"]
    ]


def by_peer(find: Callable[[RGB, RGB], Sequence[tuple[Box, float]]]) -> Way:
    def way(source: RGB, edited: RGB) -> list[Found]:
        px = source.shape[0] * source.shape[1]
        return [Found(box=box, confidence=weight / px) for box, weight in find(source, edited)]

    return way


WAYS: Mapping[str, Way] = {
    "difference_regions": by_detector,
    "absolute difference": by_peer(absolute_difference),
    "SSIM map": by_peer(ssim_map),
}


def marks(pair: Pair) -> list[Box]:
    """Return the marked places in px of the source."""
    return [Box.from_thousandths(list(m), width=pair.refs[0].width, height=pair.refs[0].height) for m in pair.marks]


def boxes(pair: Pair, found: Sequence[Found]) -> ImageBoxes:
    truth = [list(box) for box in marks(pair)]
    return ImageBoxes(found=[list(f.box) for f in found], truth=truth, confidences=[f.confidence for f in found])


def unwanted(pair: Pair, found: Sequence[Found]) -> float:
    """Return the share 0..1 of the image that lies in found boxes and in no marked place."""
    width, height = pair.refs[0].width, pair.refs[0].height
    return float((mask([f.box for f in found], width, height) & ~mask(pair.marks, 1000, 1000)).mean())


def on_a_place(pair: Pair, box: Box) -> bool:
    """Return whether more than half of a box lies in one marked place."""
    return any((c := box.intersection(m)) is not None and c.area > 0.5 * box.area for m in marks(pair))


def places(pairs: Sequence[Pair], found: Mapping[str, Mapping[str, list[Found]]]) -> str:
    lines = [f"| way | AP50 | AP50 of {FEW} | AP | found | unwanted | boxes |", "|---" + "|---:" * 6 + "|"]
    total = sum(len(pair.marks) for pair in pairs)
    for way, by_pair in found.items():
        images = [boxes(pair, by_pair[pair.id]) for pair in pairs]
        measured = Precision(images=images)
        hit = sum(place is not None for image in images for place in matches(image))
        area = statistics.mean(unwanted(pair, by_pair[pair.id]) for pair in pairs)
        lines.append(
            f"| {way} | {100 * (measured.ap(iou=0.5) or 0):.1f} | {100 * (measured.ap(iou=0.5, limit=FEW) or 0):.1f} "
            f"| {100 * (measured.ap() or 0):.1f} | {hit} of {total} "
            f"| {100 * area:.1f} % | {sum(len(image.found) for image in images)} |"
        )
    return "\n".join(lines)


def calibration(pairs: Sequence[Pair], found: Mapping[str, list[Found]]) -> str:
    lines = ["| confidence | boxes | on a marked place |", "|---|---:|---:|"]
    for low, high in pairwise(BINS):
        own = [
            on_a_place(pair, f.box)
            for pair in pairs
            for f in found[pair.id]
            if low <= f.confidence < high or (high == 1.0 and f.confidence == 1.0)
        ]
        share = f"{100 * statistics.mean(own):.0f} %" if own else "–"
        lines.append(f"| {low:g} to {high:g} | {len(own)} | {share} |")
    return "\n".join(lines)


def real_cases(pairs: Sequence[Pair], data: Path) -> Iterator[Case]:
    rows = map(json.loads, (data / "metadata.jsonl").read_text(encoding="utf-8").splitlines())
    kinds = {row["id"]: row["edit_type_alt"] if row["edit_type"] == "change_count" else row["edit_type"] for row in rows}
    for pair in pairs:
        # A move adds here and removes there.
        op = {"add": "ADD", "remove": "REMOVE", "other": ""}.get(kinds[pair.id], "EDIT")
        if op and pair.marks:
            yield Case(group="real edits", images=pair.images, op=op, places=marks(pair))


def drawn_cases(count: int) -> Iterator[Case]:
    for kind in renderings.KINDS:
        op = {"recoloured": "EDIT", "added": "ADD", "removed": "REMOVE"}[kind.partition(",")[0]]
        for seed in range(count // 10):
            one = renderings.draw(1000 + seed, kind)
            yield Case(group="renderings", images=(one.before, one.after), op=op, places=[one.box])
    for seed in range(count):
        scene = scenes.draw(seed, family="held_out")
        if scene.how.startswith("as asked") and "; scene" not in scene.how and scene.edit_type != "Change Count":
            op = "REMOVE" if scene.edit_type == "Removal Object" else "EDIT"
            yield Case(group="held_out", images=(scene.source, scene.edited), op=op, places=[Box(*scene.target)])


def confusion(cases: Iterator[Case]) -> str:
    counts: dict[str, Counter[tuple[str, str]]] = {}
    for case in cases:
        ways = [(case.images, case.op)]
        if case.images[0].shape == case.images[1].shape:
            ways.append(((case.images[1], case.images[0]), SWAPPED[case.op]))
        for images, op in ways:
            for f in by_detector(*images):
                if max(f.box.iou(place) for place in case.places) >= OVERLAP:
                    counts.setdefault(case.group, Counter())[op, f.op] += 1
    lines = ["| | really | said ADD | said EDIT | said REMOVE | right |", "|---|---|---:|---:|---:|---:|"]
    for group, count in counts.items():
        right = f"{sum(count[op, op] for op in OPS)} of {count.total()}"
        for op in OPS:
            said = " | ".join(str(count[op, other]) for other in OPS)
            lines.append(f"| {group if op == 'ADD' else ''} | {op} | {said} | {right if op == 'ADD' else ''} |")
    return "\n".join(lines)


def masks(data: Path) -> str:
    """Return, for pairs with a real mask, which share of each difference lies inside it."""
    lines = ["| pair | difference | in the mask, of the box | of what changed |", "|---|---|---:|---:|"]
    for line in (data / "metadata.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "mask_file_name" not in row:
            continue
        store = ImageStore()
        names = {"source": "source_file_name", "edited": "edited_file_name", "mask": "mask_file_name"}
        images = {alias: store.array(store.add_file(data / row[name])) for alias, name in names.items()}
        pair = {alias: images[alias] for alias in ("source", "edited")}
        for one in cast(Any, run_measure("difference_regions", {}, pair)).data["differences"]:
            shares = [run_measure("mask_share", {"box": one["box"], "of": of}, images).value for of in ("box", "changed")]
            box = [round(v) for v in one["box"]]
            lines.append(f"| {row['id']} | {one['op']} {box} | {shares[0]:.2f} | {shares[1]:.2f} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real edits, with metadata.jsonl")
    parser.add_argument("--pairs", type=int, help="only so many, the first")
    parser.add_argument("--scenes", type=int, default=420, help="drawn scenes of known op, and a tenth of each rendering")
    parser.add_argument("--verbose", action="store_true", help="a line for each pair")
    parser.add_argument("--write", action="store_true", help="put the tables into benchmarks/README.md")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    pairs = read(args.data)[: args.pairs]
    kinds = json.loads((Path(__file__).parent / "looks" / "places.json").read_text(encoding="utf-8"))
    placed = [pair for pair in pairs if kinds[pair.id]["kind"] != "whole"]
    whole = [pair for pair in pairs if kinds[pair.id]["kind"] == "whole"]
    found = {name: {pair.id: way(*pair.images) for pair in pairs} for name, way in WAYS.items()}
    own = found["difference_regions"]
    if args.verbose:
        for pair in pairs:
            areas = ", ".join(f"{name} {100 * unwanted(pair, found[name][pair.id]):.1f} %" for name in WAYS)
            listed = "; ".join(
                f"{f.op} {[*f.box.to_thousandths(width=pair.refs[0].width, height=pair.refs[0].height)]} {f.confidence:.2f}"
                for f in own[pair.id]
            )
            print(f"{pair.id} ({kinds[pair.id]['kind']}): outside the marks {areas}: {listed or 'nothing'}")
    covered = [float(mask([f.box for f in own[p.id]], p.refs[0].width, p.refs[0].height).mean()) for p in whole]
    apart = (
        f"Apart stand {len(whole)} pairs that changed as a whole: something is found in "
        f"{sum(bool(own[pair.id]) for pair in whole)} of them, on {100 * np.mean(covered):.0f} % of the image in the mean."
        if whole
        else ""
    )
    parts = (
        f"{len(placed)} pairs.",
        places(placed, found),
        apart,
        "What confidences are worth, on the same pairs:",
        calibration(placed, own),
        "The op:",
        confusion(iter([*real_cases(placed, args.data), *drawn_cases(args.scenes)])),
        masks(args.data),
    )
    text = "\n\n".join(part for part in parts if part)
    print(text)
    if args.write:
        put("differences", text)


if __name__ == "__main__":
    main()
