"""LPIPS, the perceptual distance of Zhang et al. (CVPR 2018), version 0.1, from a file of its weights.

The file is what the authors' package saves: `torch.save(lpips.LPIPS(net="alex").state_dict(), FILE)`, or net="vgg". Both
networks and the five heads are in it; which network it is, its tensors tell.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.models.batching import LoadedModel, Network
from editloupe.models.devices import Device, check_device, import_torch
from editloupe.models.opening import weights_file
from editloupe.models.weights import digest_of, load_tensors, translated

SMALLEST_SIDE: Final = 64
"""px; AlexNet and VGG reduce an image by sixteen and more."""

# The layers of five parts, after each of which features are compared: a convolution as (channels, kernel, stride, padding),
# with a ReLU behind it, or a maximum as (kernel, stride).
_ALEX: Final = (
    ((64, 11, 4, 2),), ((3, 2), (192, 5, 1, 2)), ((3, 2), (384, 3, 1, 1)), ((256, 3, 1, 1),), ((256, 3, 1, 1),),
)  # fmt: skip
_VGG: Final = (
    ((64, 3, 1, 1),) * 2,
    *(((2, 2), *((width, 3, 1, 1),) * count) for width, count in ((128, 2), (256, 3), (512, 3), (512, 3))),
)
_SHIFT, _SCALE = (
    np.array(values, np.float32).reshape(3, 1, 1) for values in ((-0.030, -0.088, -0.188), (0.458, 0.448, 0.450))
)
_Item: TypeAlias = tuple[NDArray[np.float32], NDArray[np.float32]]
"""Two images, 2×3×H×W, normalized; and which pixels count, H×W, 0 or 1."""


class LPIPS(Network[_Item, float, LoadedModel]):
    """The distance of two images of one size; 0 for equal ones. Called from several threads."""

    def __init__(self, file: Path, *, device: str = "auto") -> None:
        self.file = file
        self.name = f"LPIPS ({file.name})"
        self.version = f"lpips 0.1 {file.name} sha256:{digest_of([file])}"
        super().__init__("LPIPS", device, key=lambda item: item[0].shape, gpu_batch=8)

    def __call__(self, first: RGB, second: RGB, kept: NDArray[np.bool_] | None = None) -> float:
        """Return the distance of two images of H×W×3 uint8 RGB, at least 64 px a side.

        kept: H×W, which pixels count: features are weighed by the share of kept pixels around them. None for all.
        Raises ToolError where the two do not fit into memory.
        """
        images = np.stack([first, second]).astype(np.float32).transpose(0, 3, 1, 2) / 127.5 - 1
        counted = np.ones(first.shape[:2], np.float32) if kept is None else kept.astype(np.float32)
        return self._batcher(((images - _SHIFT) / _SCALE, counted))

    def _run(self, loaded: LoadedModel, items: list[_Item]) -> list[float]:
        torch, device = import_torch(), loaded.device
        pairs, masks = zip(*items, strict=True)
        values = torch.from_numpy(np.stack(pairs, axis=1)).to(device.name).flatten(0, 1)
        kept = torch.from_numpy(np.stack(masks))[:, None].to(device.name)
        total = torch.zeros(len(items), dtype=torch.float32, device=device.name)
        for part, head in zip(*loaded.model, strict=True):
            with device.autocast():
                values = part(values)
            unit = values.float()
            unit = unit / (unit.square().sum(1, keepdim=True).sqrt() + 1e-10)
            first, second = unit.unflatten(0, (2, len(items)))
            distance = ((first - second).square() * head).sum(1, keepdim=True)
            share = torch.nn.functional.adaptive_avg_pool2d(kept, distance.shape[-2:])
            total += (distance * share).sum((1, 2, 3)) / share.sum((1, 2, 3))
        return [float(value) for value in total.cpu()]

    def _load(self, device: Device) -> LoadedModel:
        tensors = load_tensors(self.file)
        with translated(f"lpips {str(self.file)!r}, which is not what lpips.LPIPS(net='alex') or net='vgg' saves"):
            return LoadedModel(model=_built(tensors, device.name), device=device)


def _built(tensors: Mapping[str, Any], device: str) -> tuple[Any, list[Any]]:
    """Return the five parts, and the heads that weigh their channels. Raises KeyError or RuntimeError for odd tensors."""
    nn, parts, heads, number, width = import_torch().nn, [], [], 0, 3
    network = _ALEX if tensors["net.slice1.0.weight"].shape[-1] == 11 else _VGG
    for place, layers in enumerate(network):
        made: list[Any] = []
        for layer in layers:
            if len(layer) == 2:
                made.append(nn.MaxPool2d(*layer))
                number += 1
                continue
            made += [nn.Conv2d(width, *layer), nn.ReLU()]
            # Numbered as torchvision does, through all parts.
            key = f"net.slice{place + 1}.{number}"
            made[-2].load_state_dict({name: tensors[f"{key}.{name}"] for name in ("weight", "bias")})
            number, width = number + 2, layer[0]
        parts.append(nn.Sequential(*made))
        heads.append(tensors[f"lin{place}.model.1.weight"].float().to(device))
        if tuple(heads[-1].shape) != (1, width, 1, 1):
            raise RuntimeError(f"a head has the shape {tuple(heads[-1].shape)}, expected {(1, width, 1, 1)}")
    return nn.ModuleList(parts).eval().requires_grad_(False).float().to(device), heads


@cache
def open_lpips(name: str | None, device: str) -> LPIPS:
    """Return LPIPS of a file. Raises ModelAbsent where none is named, ConfigError where file or device cannot be had."""
    file = weights_file(name, "lpips", "a file of LPIPS weights")
    check_device(device)
    return LPIPS(file, device=device)
