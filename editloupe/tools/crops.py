"""One crop of an image as a tool shows it: enlarged where it is small, reduced where it is large, the plain one kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from editloupe.imaging import render
from editloupe.tools.base import Desk
from editloupe.tools.devices import computed
from editloupe.tools.upscalers import Upscaler, enlarge, enlarged_by
from editloupe.values import Box, ImageRef, Json, View

LONG_SIDE: Final = 2048
"""A crop that is longer is reduced to so many px."""


@dataclass(frozen=True, kw_only=True)
class ShownCrop:
    """view: what the model sees.   kept: the plain crop, where a learned upscaler changed it.   scale: shown px per px.
    how: what was done, in words ("enlarged ×4 to 512×400 px by Lanczos, which adds no detail").
    by: for `Observation.data`: "upscaler" (its version), device and precision where a network enlarged; else empty.
    """

    view: View
    kept: tuple[View, ...]
    scale: float
    how: str
    by: Mapping[str, Json]


def show_crop(
    desk: Desk, image: ImageRef, region: Box, upscaler: Upscaler, *, params: Mapping[str, Json] | None = None
) -> ShownCrop:
    """Cut `region` (whole px inside the image) and bring it to a size to look at; one under 256 px a side is enlarged."""
    plain = render.crop(desk.images.array(image), region)
    scale = render.display_scale(region.width, region.height, long_side=LONG_SIDE)
    width, height = max(1, round(scale * region.width)), max(1, round(scale * region.height))
    made = enlarge(upscaler, plain, width=width, height=height)
    by_network = upscaler.learned and scale > 1
    noted: dict[str, Json] = {**(params or {}), "scale": round(scale, 4)}
    if by_network:
        noted["upscaler"] = upscaler.name
    return ShownCrop(
        view=_view(desk.images.add_array(made), image, region, "crop", noted),
        kept=(_view(desk.images.add_array(plain), image, region, "crop", {}),) if by_network else (),
        scale=scale,
        how=_how(scale, width, height, upscaler),
        by={"upscaler": upscaler.version, **computed(upscaler)} if by_network else {},
    )


def _view(image: ImageRef, origin: ImageRef, region: Box, op: str, params: Mapping[str, Json]) -> View:
    window = Box.whole(width=image.width, height=image.height)
    return View(image=image, origin=origin, region=region, window=window, op=op, params=params)


def _how(scale: float, width: int, height: int, upscaler: Upscaler) -> str:
    if scale > 1:
        return f"enlarged ×{scale:.0f} to {width}×{height} px {enlarged_by(upscaler)}"
    if scale < 1:
        return f"reduced to {width}×{height} px; choose a smaller bbox for full resolution"
    return "shown at full resolution"
