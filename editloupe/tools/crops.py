"""Crops as tools show them: enlarged where they are small, reduced where they are large, the plain one kept.

DLEBench enhances every crop of Zoom-In and Difference with Real-ESRGAN (section 4.2). Here a crop is enlarged where its
shorter side is under 256 px: by a learned upscaler only where one is named and the device is a GPU, else by Lanczos.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final, Self

from editloupe import models
from editloupe.data.images import RGB
from editloupe.imaging import render
from editloupe.imaging.align import resize
from editloupe.models.detect.base import Detector
from editloupe.models.devices import open_device
from editloupe.models.upscale.base import Lanczos, Upscaler
from editloupe.tools.base import ToolContext
from editloupe.tools.settings import ToolSettings
from editloupe.tools.tolerance import LEARNED, RESAMPLED, Tolerance
from editloupe.values import Box, ImageRef, Json, View

LONG_SIDE: Final = 2048
"""px; a crop with a longer side is reduced to this."""


class ModelTool:
    """A tool with models inside, which are part of its version."""

    repeatable: ClassVar[bool] = True
    computes: ClassVar[bool] = True
    revision: ClassVar[str]
    """Of the tool itself. It changes with anything that changes the tool's observations."""

    def __init__(self, *models: Detector | Upscaler) -> None:
        self._models = models

    @property
    def version(self) -> str:
        return "; ".join([self.revision, *(model.version for model in self._models)])

    @property
    def tolerance(self) -> Tolerance:
        """How far an observation may be from a recorded one."""
        return LEARNED

    def prepare(self) -> None:
        """Load the models now. Raises ConfigError."""
        for model in self._models:
            models.prepare(model)

    def describe(self) -> tuple[str, ...]:
        """Return each model with what it was loaded for."""
        return tuple(map(models.describe, self._models))


class CropTool(ModelTool):
    """A tool that shows crops, which an upscaler enlarges."""

    def __init__(self, upscaler: Upscaler | None = None, *models: Detector) -> None:
        self.upscaler: Upscaler = Lanczos() if upscaler is None else upscaler
        super().__init__(*models, self.upscaler)

    @classmethod
    def open(cls, settings: ToolSettings) -> Self:
        """Return the tool with the upscaler for small crops. Raises ConfigError."""
        return cls(open_crop_upscaler(settings))

    @property
    def tolerance(self) -> Tolerance:
        """How far an observation may be from a recorded one."""
        return LEARNED if self.upscaler.learned else RESAMPLED


def open_crop_upscaler(settings: ToolSettings) -> Upscaler:
    """Return the upscaler for crops that a tool enlarges unasked: the named one on a GPU, Lanczos on a CPU.

    On a CPU a learned upscaler takes many seconds a crop. `enhancer` uses it all the same, since the model asks.
    Raises ConfigError as `models.get` does.
    """
    upscaler = models.get("upscale", settings.upscaler, device=settings.device)
    return Lanczos() if upscaler.learned and open_device(settings.device).name == "cpu" else upscaler


def enlarge(upscaler: Upscaler, rgb: RGB, *, width: int, height: int) -> RGB:
    """Return H×W×3 uint8 RGB at another size in px.

    Where it grows, a learned upscaler makes the first ×4. The rest is resampled.
    """
    if upscaler.learned and (width > rgb.shape[1] or height > rgb.shape[0]):
        rgb = upscaler(rgb, 4)
    return resize(rgb, width=width, height=height)


def describe_enlargement(upscaler: Upscaler) -> str:
    """Return words for the model: what enlarged a picture, and what that means for a verdict."""
    if upscaler.learned:
        return f"by {upscaler.name}, a learned upscaler that may invent detail"
    return f"by {upscaler.name}, which adds no detail"


@dataclass(frozen=True, kw_only=True)
class ShownCrop:
    """A crop that is ready to be shown."""

    view: View
    """What the LMM sees."""
    kept: tuple[View, ...]
    """The plain crop, where a learned upscaler changed it; else ()."""
    scale: float
    """Shown px for each px of the image."""
    how: str
    """What was done, in words: "enlarged ×4 to 512×400 px by Lanczos, which adds no detail"."""
    by: Mapping[str, Json]
    """For `Observation.data`: the upscaler's version, device and precision, where a network enlarged; else empty."""


def show_crop(
    context: ToolContext, image: ImageRef, region: Box, upscaler: Upscaler, *, params: Mapping[str, Json] | None = None
) -> ShownCrop:
    """Cut `region` (whole px inside the image) and bring it to a size to look at. A small region is enlarged.

    params: noted in the view beside the scale.
    """
    plain = render.crop(context.images.array(image), region)
    scale = render.display_scale(region.width, region.height, long_side=LONG_SIDE)
    width, height = max(1, round(scale * region.width)), max(1, round(scale * region.height))
    made = enlarge(upscaler, plain, width=width, height=height)
    by_network = upscaler.learned and scale > 1
    noted = {**(params or {}), "scale": round(scale, 4), **({"upscaler": upscaler.name} if by_network else {})}
    how = "shown at full resolution"
    if scale > 1:
        how = f"enlarged ×{scale:.0f} to {width}×{height} px {describe_enlargement(upscaler)}"
    elif scale < 1:
        how = f"reduced to {width}×{height} px; choose a smaller bbox for full resolution"
    return ShownCrop(
        view=add_view(context, made, image, region, "crop", noted),
        kept=(add_view(context, plain, image, region, "crop"),) if by_network else (),
        scale=scale,
        how=how,
        by={"upscaler": upscaler.version, **models.computed(upscaler)} if by_network else {},
    )


def add_view(
    context: ToolContext, picture: RGB, origin: ImageRef, region: Box, op: str, params: Mapping[str, Json] | None = None
) -> View:
    """Keep a picture that shows `region` of `origin` (px) and return its view."""
    image = context.images.add_array(picture)
    window = Box.whole(width=image.width, height=image.height)
    return View(image=image, origin=origin, region=region, window=window, op=op, params=params or {})
