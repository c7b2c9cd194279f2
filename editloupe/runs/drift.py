"""Compare a recorded observation with a new one, within the tool's own tolerance."""

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
    """A new observation against the recorded one."""

    step: int
    """Step as `editloupe show` numbers it."""
    tool: str
    verdict: Verdict
    tolerance: Tolerance
    max_abs: int | None = None
    """Largest difference of a channel over the compared images, 0 to 255; None if no image differs."""
    psnr_db: float | None = None
    """Lowest PSNR over the compared images, in dB; None if no image differs."""
    iou: float = 1.0
    """Lowest IoU over the boxes, 0 to 1."""
    text: float = 0.0
    """Share of the text that differs, 0 to 1."""
    reasons: tuple[str, ...] = ()
    """What exceeds the tolerance, or why nothing was compared, one line each."""

    def to_json(self) -> dict[str, Json]:
        """Return JSON; a PSNR is null if no image differs."""
        return {
            "step": self.step,
            "tool": self.tool,
            "verdict": self.verdict,
            "max_abs": self.max_abs,
            "psnr_db": None if self.psnr_db is None else round(self.psnr_db, 2),
            "iou": round(self.iou, 4),
            "text": round(self.text, 4),
            "tolerance": self.tolerance.to_json(),
            "told": list(self.reasons),
        }


def compare(
    recorded: Observation, now: Observation, *, step: int, tool: str, tolerance: Tolerance, images: ImageStore
) -> Compared:
    """Compare what the model is shown: text, images and boxes. `data` about versions and devices does not count.

    images: holds the images of both. If the bytes of a recorded image are gone, the verdict is "not compared".
    """
    if (recorded.text, recorded.views, recorded.error) == (now.text, now.views, now.error):
        return Compared(step=step, tool=tool, verdict="identical", tolerance=tolerance)
    if recorded.error != now.error or len(recorded.images) != len(now.images):
        return Compared(step=step, tool=tool, verdict="drift", tolerance=tolerance, reasons=(_otherwise(recorded, now),))
    reasons: list[str] = []
    before, after = list(boxes(recorded)), list(boxes(now))
    iou = min((a.iou(b) for a, b in zip(before, after, strict=False)), default=1.0)
    if len(before) != len(after):
        iou = 0.0
        reasons.append(f"boxes: {len(before)} recorded, {len(after)} now")
    elif iou < tolerance.iou:
        a, b = min(zip(before, after, strict=True), key=lambda pair: pair[0].iou(pair[1]))
        reasons.append(f"box: IoU {iou:.3f} of {tolerance.iou:g}: recorded {_px(a)}, now {_px(b)}")
    max_abs: int | None = None
    psnr: float | None = None
    # If a box has moved, the images show different places and are not compared.
    for number, (old, new) in enumerate(zip(recorded.images, now.images, strict=True), start=1):
        if old == new or before != after:
            continue
        try:
            difference, decibels = _pixels(images.array(old), images.array(new))
        except ImageError as error:
            return Compared(step=step, tool=tool, verdict="not compared", tolerance=tolerance, reasons=(str(error),))
        max_abs, psnr = max(max_abs or 0, difference), min(math.inf if psnr is None else psnr, decibels)
        if difference > tolerance.max_abs or decibels < tolerance.psnr_db:
            wanted = f"at most {tolerance.max_abs}, at least {tolerance.psnr_db:g} dB"
            reasons.append(f"picture {number}: differs by up to {difference} of 255, PSNR {decibels:.1f} dB ({wanted})")
    share = _text_share(recorded.text, now.text)
    if share > tolerance.text:
        reasons.append(f"text: {share:.1%} differs, {tolerance.text:.0%} may: {_first_difference(recorded.text, now.text)}")
    return Compared(
        step=step,
        tool=tool,
        verdict="drift" if reasons else "within",
        tolerance=tolerance,
        max_abs=max_abs,
        psnr_db=None if psnr is None or math.isinf(psnr) else psnr,
        iou=iou,
        text=share,
        reasons=tuple(reasons),
    )


def boxes(observation: Observation) -> Iterator[Box]:
    """Yield every box of an observation in a fixed order: those of its views, then those of its data."""
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


def _otherwise(recorded: Observation, now: Observation) -> str:
    if recorded.error != now.error:
        words = {True: "an error", False: "an observation"}
        return f"recorded {words[recorded.error]}, now {words[now.error]}: {_cut(now.text)!r}"
    return f"pictures: {len(recorded.images)} recorded, {len(now.images)} now"


def _pixels(before: RGB, after: RGB) -> tuple[int, float]:
    """Return the largest difference of a channel and the PSNR in dB; (255, 0) for images of different sizes."""
    if before.shape != after.shape:
        return 255, 0.0
    difference = np.abs(before.astype(np.int16) - after.astype(np.int16))
    error = float(np.mean(np.square(difference, dtype=np.float64)))
    return int(difference.max(initial=0)), math.inf if error == 0 else 10 * math.log10(255**2 / error)


def _text_share(before: str, after: str) -> float:
    if before == after:
        return 0.0
    # Words are matched, weighted by length: much faster than characters.
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
