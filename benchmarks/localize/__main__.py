"""Ours beside three common ways of finding where two images differ: accuracy and time in one run."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import cv2
import numpy as np

from benchmarks.localize.peers import Found, absolute_difference, sift_and_difference, ssim_map
from benchmarks.localize.scenes import NUISANCES, delivered, draw
from benchmarks.pages import put
from editloupe.data.images import RGB, ImagePolicy, ImageStore, decode
from editloupe.imaging.differences import localize
from editloupe.tools.base import ToolContext
from editloupe.tools.localize_differences import LocalizeDifferences
from editloupe.values import Box, View


@dataclass
class Tally:
    """All pairs of one nuisance and one method."""

    hits: list[tuple[float, bool]] = field(default_factory=list)
    asked: int = 0
    false: list[int] = field(default_factory=list)

    @property
    def ap50(self) -> float:
        """Area under the precision envelope over recall."""
        if not self.hits or not self.asked:
            return 0.0
        right = np.cumsum([hit for _, hit in sorted(self.hits, key=lambda h: -h[0])])
        precision = np.maximum.accumulate((right / np.arange(1, len(right) + 1))[::-1])[::-1]
        return float((np.diff(right / self.asked, prepend=0.0) * precision).sum())


def ours(first: RGB, second: RGB) -> Found:
    return [(r.box, r.strength) for r in localize(first, second).regions]


def whole_call(first: bytes, second: bytes) -> None:
    """Call the tool as an agent does, from the files' bytes to the observation. Text is not read."""
    images, tool = ImageStore(), LocalizeDifferences()
    views = {name: View.whole(images.add_bytes(data)) for name, data in (("first", first), ("second", second))}
    args = tool.Args(comparison_image_1="first", comparison_image_2="second")
    for view in tool(args, ToolContext(images=images, views=views)).views:
        images.encoded(view.image, ImagePolicy())


def ssim_of_files(first: bytes, second: bytes) -> None:
    ssim_map(*(decode(data, name="a picture")[0] for data in (first, second)))


METHODS: Mapping[str, Callable[[RGB, RGB], Found]] = {
    "ours": ours,
    "absdiff": absolute_difference,
    "SSIM": ssim_map,
    "SIFT": sift_and_difference,
}
"""What is measured on decoded pictures."""

FROM_FILES: Mapping[str, Callable[[bytes, bytes], None]] = {"whole call": whole_call, "SSIM with decoding": ssim_of_files}
"""What is measured on the bytes of two JPEG files."""


def measure(n: int, seed: int, methods: Sequence[str]) -> dict[tuple[str, str], Tally]:
    tallies = {(nuisance, method): Tally() for nuisance in NUISANCES for method in methods}
    for index in range(n):
        scene = draw(1000 * seed + index, edits=0 if index % 5 == 4 else 1 + index % 3)
        for nuisance in NUISANCES:
            second = delivered(scene.after, nuisance, 1000 * seed + index)
            for method in methods:
                tally = tallies[nuisance, method]
                found = METHODS[method](scene.before, second)
                tally.asked += len(scene.boxes)
                tally.hits += _matched(found, scene.boxes)
                if not scene.boxes:
                    tally.false.append(len(found))
    return tallies


def _matched(found: Found, boxes: Sequence[Box]) -> list[tuple[float, bool]]:
    free, hits = list(boxes), list[tuple[float, bool]]()
    for box, strength in sorted(found, key=lambda f: -f[1]):
        best = max(free, key=lambda b: _iou(box, b), default=None)
        hit = best is not None and _iou(box, best) >= 0.5
        if hit and best is not None:
            free.remove(best)
        hits.append((strength, hit))
    return hits


def _iou(a: Box, b: Box) -> float:
    common = a.intersection(b)
    return 0.0 if common is None else common.area / (a.area + b.area - common.area)


def report(tallies: Mapping[tuple[str, str], Tally], methods: Sequence[str]) -> str:
    """AP50 and false boxes by nuisance, and their means, as a Markdown table."""
    lines = ["| nuisance | " + " | ".join(f"{m}: AP50, false" for m in methods) + " |", "|---" * (len(methods) + 1) + "|"]
    for nuisance in NUISANCES:
        row = [tallies[nuisance, m] for m in methods]
        lines.append(f"| {nuisance} | " + " | ".join(f"{t.ap50:.2f}, {np.mean(t.false or [0]):.2g}" for t in row) + " |")
    means = [[tallies[nuisance, m] for nuisance in NUISANCES] for m in methods]
    cells = [f"{np.mean([t.ap50 for t in ts]):.2f}, {np.mean([f for t in ts for f in t.false] or [0]):.2g}" for ts in means]
    return "\n".join([*lines, "| **mean** | " + " | ".join(cells) + " |"])


def times(megapixels: Sequence[float], methods: Sequence[str], *, pairs: int = 3) -> str:
    """Median CPU time of a pair on one thread, and its ratio to the SSIM map's, as a Markdown table.

    Each is measured three times a pair, and nine times at a megapixel, where a run's chance weighs more.

    From files, it is the ratio to the SSIM map with the decoding that it needs.
    """
    taken: dict[tuple[float, str], list[float]] = {}
    for size in megapixels:
        for index in range(pairs):
            scene = draw(index, edits=2)
            second = delivered(scene.after, "all", index)
            factor = (size * 1e6 / (scene.before.shape[0] * scene.before.shape[1])) ** 0.5
            large = [cv2.resize(v, None, fx=factor, fy=factor) for v in (scene.before, second)]
            coded = [cv2.imencode(".jpg", v[..., ::-1])[1].tobytes() for v in large]
            calls = {m: partial(METHODS[m], *large) for m in methods}
            calls |= {m: partial(way, *coded) for m, way in FROM_FILES.items()}
            for method in [*calls] * max(3, round(9 / size)):
                start = time.process_time()
                calls[method]()
                taken.setdefault((size, method), []).append(time.process_time() - start)
    columns = [*methods, *FROM_FILES]
    lines = ["| megapixels | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    for size in megapixels:
        typical = {m: float(np.median(taken[size, m])) for m in columns}
        ratio = {m: typical[m] / typical["SSIM with decoding" if m in FROM_FILES else "SSIM"] for m in columns}
        lines.append(f"| {size:g} | " + " | ".join(f"{1000 * typical[m]:.0f} ms ({ratio[m]:.2f})" for m in columns) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-n", type=int, default=20, help="pairs for each nuisance (20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--megapixels", default="1,4,12", help="sizes at which time is measured (1,4,12)")
    parser.add_argument("--write", action="store_true", help="put the tables into docs/tools.md")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    methods = args.methods.split(",")
    accuracy = report(measure(args.n, args.seed, methods), methods)
    print(accuracy, flush=True)
    speed = times([float(m) for m in args.megapixels.split(",")], [*dict.fromkeys([*methods, "SSIM"])])
    print(f"\n{speed}")
    if args.write:
        put("tools.md", "measured localize", f"{args.n} pairs for each nuisance.\n\n{accuracy}\n\n{speed}")


if __name__ == "__main__":
    main()
