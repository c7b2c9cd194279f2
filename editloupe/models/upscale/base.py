"""What enlarges a crop: Lanczos, or a network from a file of weights.

RRDBNet (Real-ESRGAN, ESRGAN) is here, other networks are kinds of other packages. Lanczos is an upscaler of its own name,
not a stand-in for a learned one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Final, Protocol

import numpy as np

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, ToolError, first_words
from editloupe.imaging.align import resize
from editloupe.imaging.geometry import spans
from editloupe.models.batching import LoadedModel, Network
from editloupe.models.devices import Device, check_device, import_torch
from editloupe.models.opening import of_kind, weights_file
from editloupe.models.weights import digest_of, load_tensors

TILE_PX: Final = 256
OVERLAP_PX: Final = 32
"""Half of it, 16 px, is context on each side of a seam; the official inference script takes 10."""
MAX_BATCH: Final = 8
"""Tiles in a batch on a GPU."""


class Upscaler(Protocol):
    """Enlarges a picture by a whole number. The same input gives the same output. It is called from several threads."""

    name: str
    """What the LMM, the trace and the report call it."""
    version: str
    """Its part of a judge's identity; it changes with the weights."""
    learned: bool
    """Whether it may invent detail."""

    def __call__(self, rgb: RGB, scale: int) -> RGB:
        """Return H×W×3 uint8 RGB as exactly (scale·H)×(scale·W)×3."""


class Lanczos:
    """Lanczos interpolation over 8×8 px: no weights, no invented detail, slight ringing at hard edges."""

    name = "Lanczos"
    version = "Lanczos"
    learned = False

    def __call__(self, rgb: RGB, scale: int) -> RGB:
        return resize(rgb, width=rgb.shape[1] * scale, height=rgb.shape[0] * scale)


def open_upscaler(name: str | None, device: str) -> Upscaler:
    """Return the upscaler of a kind or a file of weights, found and not yet loaded. None and "lanczos" are Lanczos.

    Raises ConfigError where the model or the device cannot be had, and MissingExtra without torch.
    """
    if name is None or name.casefold() == Lanczos.name.casefold():
        return Lanczos()
    made: Upscaler | None = of_kind("upscalers", name, device)
    if made is not None:
        return made
    weights = weights_file(name, "upscaler", "a file of weights")
    check_device(device)
    return _shared(weights, digest=digest_of([weights]), device=device)


@dataclass(frozen=True, kw_only=True)
class _Upscaler(LoadedModel):
    """The module takes B×3×H×W, RGB 0..1, to B×3×(scale·H)×(scale·W)."""

    scale: int
    multiple: int
    """Both sides of its input must be multiples of this."""


class NetworkUpscaler(Network[RGB, RGB, _Upscaler]):
    """Enlarges with the network of a checkpoint, in overlapping tiles, fp16 on a GPU.

    weights: a file with the official Real-ESRGAN keys.
    digest: of that file.
    tile_px: longest side of a tile.
    It reaches a scale that the network does not have by applying the network again and reducing.
    """

    learned = True

    def __init__(self, weights: Path, *, digest: str, device: str = "auto", tile_px: int = TILE_PX) -> None:
        self.weights, self.tile_px = weights, tile_px
        self.name = weights.stem
        self.version = f"{weights.stem} sha256:{digest}"
        super().__init__(self.name, device, key=lambda tile: tile.shape, gpu_batch=MAX_BATCH)

    def __call__(self, rgb: RGB, scale: int) -> RGB:
        """Return H×W×3 uint8 RGB `scale` times as large.

        Raises ConfigError as `prepare`, and ToolError where a single tile does not fit into memory.
        """
        height, width = rgb.shape[:2]
        native = self._ready().scale
        grown, made = 1, rgb
        while grown < scale:
            made = self._once(made)
            grown *= native
        return resize(made, width=width * scale, height=height * scale)

    def _once(self, rgb: RGB) -> RGB:
        """Return the picture enlarged by the network's own scale."""
        network = self._ready()
        height, width = rgb.shape[:2]
        places = list(product(_spread(height, self.tile_px), _spread(width, self.tile_px)))
        made = self._batcher.map(_padded(rgb[y0:y1, x0:x1], network.multiple) for (_, y0, y1), (_, x0, x1) in places)
        scale = network.scale
        whole = np.empty((height * scale, width * scale, 3), dtype=np.uint8)
        for ((top, y0, y1), (left, x0, x1)), tile in zip(places, made, strict=True):
            # What lies beyond the next seam, the next tile writes over.
            part = tile[(top - y0) * scale : (y1 - y0) * scale, (left - x0) * scale : (x1 - x0) * scale]
            whole[top * scale : y1 * scale, left * scale : x1 * scale] = part
        return whole

    def _run(self, loaded: _Upscaler, items: list[RGB]) -> list[RGB]:
        torch = import_torch()
        x = torch.from_numpy(np.stack(items)).to(loaded.device.name).permute(0, 3, 1, 2)
        y = loaded.model(x.to(torch.float16 if loaded.device.half else torch.float32) / 255).float()
        if not bool(torch.isfinite(y).all()):
            raise ToolError(f"{self.name} gave values that are no numbers; look at the plain picture with zoom_in")
        return list((y.clamp(0, 1) * 255).round().to(torch.uint8).permute(0, 2, 3, 1).cpu().numpy())

    def _load(self, device: Device) -> _Upscaler:
        from editloupe.models.upscale.rrdbnet import RRDBNet, Shape

        torch = import_torch()
        tensors = load_tensors(self.weights)
        shape = Shape.of(tensors, str(self.weights))
        net = RRDBNet(shape)
        try:
            net.load_state_dict(tensors, strict=True)
        except RuntimeError as error:
            words = first_words(error)
            raise ConfigError(f"{self.weights}: looks like an RRDBNet, but its tensors do not fit: {words}") from error
        net.eval().to(device=device.name, dtype=torch.float16 if device.half else torch.float32)
        return _Upscaler(model=net, device=device, scale=shape.scale, multiple=net.unshuffle)


def _spread(length: int, most: int) -> list[tuple[int, int, int]]:
    """Return tiles (seam, start, end) of at most `most` px: as few as possible, and then as small as possible.

    Of 260 px, two tiles of 256 px would share 252 px, so that nearly all would be computed twice. Here they have 146 px.
    A seam is the middle of the overlap with the tile before.
    """
    if length <= most:
        return [(0, 0, length)]
    count = math.ceil((length - OVERLAP_PX) / (most - OVERLAP_PX))
    tiles = spans(length, tile=math.ceil((length + (count - 1) * OVERLAP_PX) / count), overlap=OVERLAP_PX)
    return [(0, *tiles[0]), *(((before[1] + start) // 2, start, end) for before, (start, end) in pairwise(tiles))]


def _padded(tile: RGB, multiple: int) -> RGB:
    """Return the tile with its edge pixels repeated to the right and below, up to sides that are multiples."""
    height, width = tile.shape[:2]
    return np.pad(tile, ((0, -height % multiple), (0, -width % multiple), (0, 0)), mode="edge")


_shared = cache(NetworkUpscaler)
