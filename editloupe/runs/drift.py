"""Compare a recorded observation with a new one, within the tool's own tolerance."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import partial
from typing import Annotated, Literal, TypeAlias

import numpy as np
from pydantic import PlainSerializer

from editloupe.data.images import RGB, ImageStore
from editloupe.errors import ImageError
from editloupe.findings import Observation
from editloupe.tools.tolerance import Tolerance
from editloupe.traces.cassette import first_difference, short
from editloupe.values import Box, Json, Serializable

Verdict: TypeAlias = Literal["identical", "within", "drift", "not compared"]


@dataclass(frozen=True, kw_only=True)
class ObservationDrift(Serializable):
    """A new observation against the recorded one."""

    step: int
    """Step as `editloupe show` numbers it."""
    tool: str
    verdict: Verdict
    max_abs: int | None = None
    """Largest difference of a channel over the compared images, 0 to 255; None if no image differs."""
    psnr_db: float | None = None
    """Lowest PSNR over the compared images, in dB; None if no image differs."""
    iou: float = 1.0
    """Lowest IoU over the boxes, 0 to 1."""
    text: float = 0.0
    """Share of the text that differs, 0 to 1."""
    tolerance: Annotated[Tolerance, PlainSerializer(Tolerance.to_json)]
    told: tuple[str, ...] = ()
    """What exceeds the tolerance, or why nothing was compared, one line each."""


def compare(
    recorded: Observation, now: Observation, *, step: int, tool: str, tolerance: Tolerance, images: ImageStore
) -> ObservationDrift:
    """Compare what the model is shown: text, images and boxes. `data` about versions and devices does not count.

    images: holds the images of both. If the bytes of a recorded image are gone, the verdict is "not compared".
    """
    found = partial(ObservationDrift, step=step, tool=tool, tolerance=tolerance)
    if (recorded.text, recorded.views, recorded.error) == (now.text, now.views, now.error):
        return found(verdict="identical")
    before, after = list(_boxes(recorded)), list(_boxes(now))
    kinds = [
        {"an error": one.error, "pictures": len(one.images), "boxes": len(boxes)}
        for one, boxes in ((recorded, before), (now, after))
    ]
    if otherwise := first_difference(*kinds):
        return found(verdict="drift", told=(f"{otherwise}; it says {short(now.text)}",))
    reasons: list[str] = []
    # If a box has moved, the images show different places and are not compared.
    pictures = zip(recorded.images, now.images, strict=True) if before == after else ()
    differing: list[tuple[int, float]] = []
    for number, (old, new) in enumerate(pictures, start=1):
        if old != new:
            try:
                most, psnr = _pixels(images.array(old), images.array(new))
            except ImageError as error:
                return found(verdict="not compared", told=(str(error),))
            differing.append((most, psnr))
            if most > tolerance.max_abs or psnr < tolerance.psnr_db:
                wanted = f"at most {tolerance.max_abs}, at least {tolerance.psnr_db:g} dB"
                reasons.append(f"picture {number}: differs by up to {most} of 255, PSNR {psnr:.1f} dB ({wanted})")
    ious = [one.iou(other) for one, other in zip(before, after, strict=True)]
    if (iou := min(ious, default=1.0)) < tolerance.iou:
        worst = (tuple(round(edge, 1) for edge in boxes[ious.index(iou)]) for boxes in (before, after))
        reasons.append("box: IoU {:.3f} of {:g}: recorded {}, now {}".format(iou, tolerance.iou, *worst))
    if (share := _text_share(recorded.text, now.text)) > tolerance.text:
        where = first_difference(recorded.text, now.text)
        reasons.append(f"text: {share:.1%} differs, {tolerance.text:.0%} may: {where}")
    return found(
        verdict="drift" if reasons else "within",
        max_abs=max((most for most, _ in differing), default=None),
        psnr_db=min((round(psnr, 2) for _, psnr in differing if math.isfinite(psnr)), default=None),
        iou=round(iou, 4),
        text=round(share, 4),
        told=tuple(reasons),
    )


def _boxes(observation: Observation) -> Iterator[Box]:
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
        numbers = [float(v) for v in value if isinstance(v, int | float) and not isinstance(v, bool)]
        if len(value) == 4 == len(numbers) and (key.startswith("box") or key == "region"):
            if numbers[2] > numbers[0] and numbers[3] > numbers[1]:
                yield Box(*numbers)
        else:
            for inner in value:
                yield from _boxes_in(inner, key)


def _pixels(before: RGB, after: RGB) -> tuple[int, float]:
    """Return the largest difference of a channel and the PSNR in dB; (255, 0) for images of different sizes."""
    if before.shape != after.shape:
        return 255, 0.0
    difference = np.abs(before.astype(np.int16) - after.astype(np.int16))
    error = float(np.mean(np.square(difference, dtype=np.float64)))
    return int(difference.max(initial=0)), math.inf if error == 0 else 10 * math.log10(255**2 / error)


def _text_share(before: str, after: str) -> float:
    """Return the share of two texts that differs, 0 to 1: of their words, weighted by length."""
    old, new = before.split(), after.split()
    blocks = SequenceMatcher(None, old, new, autojunk=False).get_matching_blocks()
    same = sum(len(word) for block in blocks for word in old[block.a : block.a + block.size])
    longest = max(sum(map(len, old)), sum(map(len, new)))
    return 1.0 - same / longest if longest else float(before != after)
