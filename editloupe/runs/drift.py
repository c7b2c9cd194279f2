"""Is an observation still what it was? A recorded one and one made again, compared by the tool's own tolerance."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from editloupe.data.images import RGB, ImageStore
from editloupe.errors import ImageError
from editloupe.findings import Observation
from editloupe.tools.tolerance import Tolerance
from editloupe.values import Box, Json

Verdict: TypeAlias = Literal["identical", "within", "drift", "not compared"]

_TEXT_SHOWN = 60


@dataclass(frozen=True, kw_only=True)
class Compared:
    """One observation against its recording.

    step: as `editloupe show` numbers them.   max_abs, psnr_db: the worst over the pictures that were compared; None where
    no picture differs.   iou: the least over the boxes.   text: share of characters that differ.
    told: what exceeds the tolerance, or why nothing was compared, one line each.
    """

    step: int
    tool: str
    verdict: Verdict
    tolerance: Tolerance
    max_abs: int | None = None
    psnr_db: float | None = None
    iou: float = 1.0
    text: float = 0.0
    told: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        """A PSNR is null where no picture differs."""
        return {
            "step": self.step,
            "tool": self.tool,
            "verdict": self.verdict,
            "max_abs": self.max_abs,
            "psnr_db": None if self.psnr_db is None else round(self.psnr_db, 2),
            "iou": round(self.iou, 4),
            "text": round(self.text, 4),
            "tolerance": self.tolerance.to_json(),
            "told": list(self.told),
        }


def compare(
    recorded: Observation, now: Observation, *, step: int, tool: str, tolerance: Tolerance, images: ImageStore
) -> Compared:
    """What the model is shown: text, pictures and boxes; `data` that names versions and devices does not count.

    images: holds the pictures of both. A recorded picture whose bytes are gone is "not compared".
    """
    if _shown(recorded) == _shown(now):
        return Compared(step=step, tool=tool, verdict="identical", tolerance=tolerance)
    if recorded.error != now.error or len(recorded.images) != len(now.images):
        return Compared(step=step, tool=tool, verdict="drift", tolerance=tolerance, told=(_otherwise(recorded, now),))
    told: list[str] = []
    before, after = list(boxes(recorded)), list(boxes(now))
    iou = min((a.iou(b) for a, b in zip(before, after, strict=False)), default=1.0)
    if len(before) != len(after):
        iou = 0.0
        told.append(f"boxes: {len(before)} recorded, {len(after)} now")
    elif iou < tolerance.iou:
        a, b = min(zip(before, after, strict=True), key=lambda pair: pair[0].iou(pair[1]))
        told.append(f"box: IoU {iou:.3f} of {tolerance.iou:g}: recorded {_px(a)}, now {_px(b)}")
    max_abs: int | None = None
    psnr: float | None = None
    # Where a box has moved, the pictures show other places.
    for number, (old, new) in enumerate(zip(recorded.images, now.images, strict=True), start=1):
        if old == new or before != after:
            continue
        try:
            difference, decibels = _pixels(images.array(old), images.array(new))
        except ImageError as error:
            return Compared(step=step, tool=tool, verdict="not compared", tolerance=tolerance, told=(str(error),))
        max_abs, psnr = max(max_abs or 0, difference), min(math.inf if psnr is None else psnr, decibels)
        if difference > tolerance.max_abs or decibels < tolerance.psnr_db:
            wanted = f"at most {tolerance.max_abs}, at least {tolerance.psnr_db:g} dB"
            told.append(f"picture {number}: differs by up to {difference} of 255, PSNR {decibels:.1f} dB ({wanted})")
    share = _text_share(recorded.text, now.text)
    if share > tolerance.text:
        told.append(f"text: {share:.1%} differs, {tolerance.text:.0%} may: {_first_difference(recorded.text, now.text)}")
    return Compared(
        step=step,
        tool=tool,
        verdict="drift" if told else "within",
        tolerance=tolerance,
        max_abs=max_abs,
        psnr_db=None if psnr is None or math.isinf(psnr) else psnr,
        iou=iou,
        text=share,
        told=tuple(told),
    )


def boxes(observation: Observation) -> Iterator[Box]:
    """Every box that an observation speaks of, in a fixed order: of its views, then of its data."""
    for view in observation.views:
        yield view.region
        yield from _boxes_in(dict(view.params))
    yield from _boxes_in(dict(observation.data))


def _boxes_in(value: Json, key: str = "") -> Iterator[Box]:
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from _boxes_in(inner, name)
    elif isinstance(value, list | tuple):
        numbers = [v for v in value if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(value) == 4 == len(numbers) and (key.startswith("box") or key == "region"):
            x0, y0, x1, y1 = map(float, numbers)
            if x1 > x0 and y1 > y0:
                yield Box(x0, y0, x1, y1)
        else:
            for inner in value:
                yield from _boxes_in(inner, key)


def _shown(observation: Observation) -> tuple[object, ...]:
    return observation.text, observation.views, observation.error


def _otherwise(recorded: Observation, now: Observation) -> str:
    if recorded.error != now.error:
        words = {True: "an error", False: "an observation"}
        return f"recorded {words[recorded.error]}, now {words[now.error]}: {_cut(now.text)!r}"
    return f"pictures: {len(recorded.images)} recorded, {len(now.images)} now"


def _pixels(before: RGB, after: RGB) -> tuple[int, float]:
    """Largest difference of a channel, and PSNR in dB; pictures of different sizes have nothing in common."""
    if before.shape != after.shape:
        return 255, 0.0
    difference = np.abs(before.astype(np.int16) - after.astype(np.int16))
    error = float(np.mean(np.square(difference, dtype=np.float64)))
    return int(difference.max(initial=0)), math.inf if error == 0 else 10 * math.log10(255**2 / error)


def _text_share(before: str, after: str) -> float:
    if before == after:
        return 0.0
    # Words rather than characters are matched, which is faster by far; their lengths weigh.
    old, new = before.split(), after.split()
    same = sum(
        sum(map(len, old[block.a : block.a + block.size]))
        for block in difflib.SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    )
    longest = max(sum(map(len, old)), sum(map(len, new)))
    return 1.0 if longest == 0 else 1.0 - same / longest


def _first_difference(before: str, after: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), min(len(before), len(after)))
    start = max(0, at - 20)
    return f"recorded {_cut(before[start:])!r}, now {_cut(after[start:])!r}"


def _cut(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= _TEXT_SHOWN else flat[: _TEXT_SHOWN - 1] + "…"


def _px(box: Box) -> str:
    return f"[{', '.join(f'{round(v, 1):g}' for v in box)}]"
