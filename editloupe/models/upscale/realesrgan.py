"""Real-ESRGAN through its own package, realesrgan 0.3.0: `--upscaler realesrgan=FILE`, a checkpoint of an RRDBNet."""

from __future__ import annotations

import importlib
import sys
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MissingExtra, first_words
from editloupe.imaging.align import resize
from editloupe.models.batching import LoadedModel, Network
from editloupe.models.devices import Device
from editloupe.models.opening import find_file
from editloupe.models.weights import digest_of, load_tensors

TILE_PX: Final = 256
_Item: TypeAlias = tuple[RGB, int]
"""A picture, and by how much it is enlarged."""


class RealESRGAN(Network[_Item, RGB, LoadedModel]):
    """An `Upscaler`: `RealESRGANer.enhance` of the package, in tiles, fp16 on a GPU."""

    learned = True

    def __init__(self, weights: Path, device: str) -> None:
        self._weights = weights
        self.name = f"Real-ESRGAN ({weights.stem})"
        self.version = f"realesrgan {weights.stem} sha256:{digest_of([weights])}"
        super().__init__(self.name, device, key=id, gpu_batch=1)

    def __call__(self, rgb: RGB, scale: int) -> RGB:
        self._ready()
        return self._batcher((rgb, scale))

    def _load(self, device: Device) -> LoadedModel:
        from editloupe.models.upscale.rrdbnet import Shape

        where = f"upscaler realesrgan={self._weights}"
        shape = Shape.of(load_tensors(self._weights), where)
        sides = {"num_feat": shape.features, "num_block": shape.blocks, "num_grow_ch": shape.growth}
        how = {"tile": TILE_PX, "half": device.half, "device": device.name}
        try:
            network = importlib.import_module("basicsr.archs.rrdbnet_arch").RRDBNet(3, 3, scale=shape.scale, **sides)
            enhancer = _package().RealESRGANer(shape.scale, str(self._weights), model=network, **how)
        except Exception as error:
            raise ConfigError(f"{where}: cannot be loaded ({type(error).__name__}: {first_words(error)})") from error
        return LoadedModel(model=enhancer, device=device)

    def _run(self, loaded: LoadedModel, items: list[_Item]) -> list[RGB]:
        ((rgb, scale),) = items
        made = loaded.model.enhance(np.ascontiguousarray(rgb[..., ::-1]), outscale=scale)[0]
        height, width = rgb.shape[:2]
        return [resize(np.ascontiguousarray(made[..., ::-1]), width=width * scale, height=height * scale)]


def _package() -> Any:
    """Return the module `realesrgan`. Raises ImportError."""
    # basicsr 1.4.2 imports a module of torchvision by a name that torchvision 0.17 took away.
    gone = "torchvision.transforms.functional_tensor"
    sys.modules.setdefault(gone, importlib.import_module("torchvision.transforms.functional"))
    return importlib.import_module("realesrgan")


@cache
def open_upscaler(weights: str | None, device: str) -> RealESRGAN:
    """Return the upscaler of a file, not yet loaded. Raises ConfigError, MissingExtra without the package."""
    try:
        _package()
    except ImportError as error:
        raise MissingExtra("The upscaler realesrgan", "realesrgan") from error
    return RealESRGAN(find_file(weights or "", "upscaler realesrgan"), device)
