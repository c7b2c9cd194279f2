"""How well `localize_differences` finds what was edited: by class, without one stage after another, and in which time."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import cv2
import numpy as np

from benchmarks.localize.ablations import STAGES, without
from benchmarks.localize.classes import CLASSES, Class, draw
from benchmarks.localize.peers import ssim_map
from benchmarks.localize.scenes import Scene
from benchmarks.pages import table
from editloupe.data.images import ImagePolicy, ImageStore, decode
from editloupe.imaging.differences import Differences, localize
from editloupe.tools.base import ToolContext
from editloupe.tools.localize_differences import LocalizeDifferences
from editloupe.values import Box, View

IOU = 0.5


@dataclass
class Tally:
    """All pairs of one class."""

    hits: list[tuple[float, bool]] = field(default_factory=list)
    """Of each box that was returned: its strength, and whether it is an edit's."""
    asked: int = 0
    false: list[int] = field(default_factory=list)
    """Boxes of each pair without an edit."""
    words: list[bool] = field(default_factory=list)
    """Of each pair: whether something false was said about the whole picture."""

    @property
    def ap50(self) -> float:
        """Area under the precision envelope over recall."""
        if not self.hits or not self.asked:
            return 0.0
        right = np.cumsum([hit for _, hit in sorted(self.hits, key=lambda h: -h[0])])
        precision = np.maximum.accumulate((right / np.arange(1, len(right) + 1))[::-1])[::-1]
        return float((np.diff(right / self.asked, prepend=0.0) * precision).sum())

    @property
    def cells(self) -> tuple[float, float, float]:
        """AP50, false boxes a pair, and the share of pairs with false words."""
        return self.ap50, float(np.mean(self.false or [0])), float(np.mean(self.words or [False]))


def measure(
    n: int, seed: int, names: Sequence[str], shared: Path | None, stages: Sequence[str]
) -> dict[str, dict[str, Tally]]:
    """Return the tallies of n pairs of each class without each of these stages; "" takes none out."""
    tallies = {stage: {name: Tally() for name in names} for stage in stages}
    for name in names:
        for index in range(n):
            scene = draw(name, seed, index, shared)
            for stage in stages:
                with without(stage):
                    _count(tallies[stage][name], CLASSES[name], scene, localize(scene.before, scene.after))
    return tallies


def _count(tally: Tally, kind: Class, scene: Scene, found: Differences) -> None:
    claims = {"regenerated": found.regenerated, "drawn again": found.drifted, "stretched": found.alignment.stretched}
    tally.words.append(any(made and claim not in kind.true for claim, made in claims.items()))
    if not kind.counts:
        return
    tally.asked += len(scene.boxes)
    tally.hits += _matched([(r.box, r.strength) for r in found.regions], scene.boxes)
    if not scene.boxes:
        tally.false.append(len(found.regions))


def _matched(found: Sequence[tuple[Box, float]], boxes: Sequence[Box]) -> list[tuple[float, bool]]:
    free, hits = list(boxes), list[tuple[float, bool]]()
    for box, strength in sorted(found, key=lambda f: -f[1]):
        best = max(free, key=box.iou, default=None)
        hit = best is not None and box.iou(best) >= IOU
        if hit and best is not None:
            free.remove(best)
        hits.append((strength, hit))
    return hits


def by_class(tallies: Mapping[str, Tally]) -> str:
    """Return a Markdown table of the classes and their mean."""
    rows = []
    for name, tally in tallies.items():
        ap50, false, words = tally.cells
        shown = (f"{ap50:.2f}", f"{false:.2g}") if CLASSES[name].counts else ("–", "–")
        rows.append((name, *shown, f"{100 * words:.0f} %"))
    return table(("class", "AP50", "false", "words"), [*rows, ("**mean**", *_means(tallies))])


def _means(tallies: Mapping[str, Tally]) -> tuple[str, str, str]:
    counted = [tally.cells for name, tally in tallies.items() if CLASSES[name].counts]
    words = float(np.mean([tally.cells[2] for tally in tallies.values()]))
    return f"{np.mean([c[0] for c in counted]):.3f}", f"{np.mean([c[1] for c in counted]):.2g}", f"{100 * words:.1f} %"


def by_stage(n: int, seed: int, names: Sequence[str], shared: Path | None) -> str:
    """Return a Markdown table of what taking each stage out does, and in which class most."""
    whole, *others = measure(n, seed, names, shared, ("", *STAGES)).values()
    rows = [("(nothing)", *_means(whole), "")]
    for stage, left in zip(STAGES, others, strict=True):
        losses = sorted(((whole[name].ap50 - left[name].ap50, name) for name in names), reverse=True)[:3]
        lost = ", ".join(f"{name} −{loss:.2f}" for loss, name in losses if loss >= 0.01)
        rows.append((stage, *_means(left), lost))
    return table(("without", "AP50", "false", "words", "most lost in"), rows)


def whole_call(first: bytes, second: bytes) -> None:
    """Call the tool as an agent does, from the files' bytes to the pictures as they are sent."""
    images, tool = ImageStore(), LocalizeDifferences()
    views = {name: View.whole(images.add_bytes(data)) for name, data in (("first", first), ("second", second))}
    args = tool.Args(comparison_image_1="first", comparison_image_2="second")
    for view in tool(args, ToolContext(images=images, views=views)).views:
        images.encoded(view.image, ImagePolicy())


def ssim_of_files(first: bytes, second: bytes) -> None:
    """Compute the SSIM map with the decoding that it needs."""
    ssim_map(*(decode(data, name="a picture")[0] for data in (first, second)))


def times(megapixels: Sequence[float], shared: Path | None, *, pairs: int = 3) -> str:
    """Return a Markdown table of the median CPU time of a pair, and its ratio to the SSIM map's.

    Each is measured three times a pair, and nine times at a megapixel, where a run's chance weighs more.
    """
    taken: dict[tuple[float, str], list[float]] = {}
    for size in megapixels:
        for index in range(pairs):
            scene = draw("autoencoder", 0, index, shared)
            factor = (size * 1e6 / (scene.before.shape[0] * scene.before.shape[1])) ** 0.5
            first, second = (cv2.resize(v, None, fx=factor, fy=factor) for v in (scene.before, scene.after))
            coded = [cv2.imencode(".jpg", v[..., ::-1])[1].tobytes() for v in (first, second)]
            calls: dict[str, Callable[[], object]] = {
                "localize": partial(localize, first, second),
                "SSIM": partial(ssim_map, first, second),
                "whole call": partial(whole_call, *coded),
                "SSIM with decoding": partial(ssim_of_files, *coded),
            }
            for name in [*calls] * max(3, round(9 / size)):
                start = time.process_time()
                calls[name]()
                taken.setdefault((size, name), []).append(time.process_time() - start)
    names = ("localize", "SSIM", "whole call", "SSIM with decoding")
    rows = []
    for size in megapixels:
        typical = [float(np.median(taken[size, name])) for name in names]
        ratios = [typical[0] / typical[1], 1.0, typical[2] / typical[3], 1.0]
        rows.append((f"{size:g}", *(f"{1000 * t:.0f} ms ({r:.2f})" for t, r in zip(typical, ratios, strict=True))))
    return table(("megapixels", *names), rows)


def main() -> None:
    """Print the tables that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("classes", "stages", "times"), nargs="?", default="classes")
    parser.add_argument("-n", type=int, default=20, help="pairs for each class (20)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--shared", type=Path, help="a folder whose source/ holds further photographs")
    parser.add_argument("--only", default="", help="classes whose names hold this")
    parser.add_argument("--without", default="", choices=("", *STAGES), help="a stage to take out")
    args = parser.parse_args()
    cv2.setNumThreads(1)
    names = [name for name in CLASSES if args.only in name]
    if args.what == "classes":
        print(by_class(measure(args.n, args.seed, names, args.shared, [args.without])[args.without]))
    elif args.what == "stages":
        print(by_stage(args.n, args.seed, names, args.shared))
    else:
        print(times((1, 4, 12), args.shared))


if __name__ == "__main__":
    main()
