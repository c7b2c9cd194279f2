"""LPIPS, the perceptual distance of Zhang et al. (CVPR 2018), version 0.1, from a file of its weights.

The file is what the authors' package saves: `torch.save(lpips.LPIPS(net="alex").state_dict(), FILE)`, or net="vgg". Both
networks and the five heads are in it; which network it is, its tensors tell.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MissingExtra, ModelAbsent
from editloupe.models.batching import LoadedModel, Network, fitting
from editloupe.models.devices import Device, check_device, import_torch
from editloupe.models.weights import digest_of, find_file, load_tensors

SMALLEST_SIDE: Final = 64
"""px; AlexNet and VGG reduce an image by sixteen and more."""

# Layers as torchvision numbers them, in the five parts after which features are compared: "c" (channels in, out, kernel,
# stride, padding), "r" a ReLU, "p" (kernel, stride) a maximum.
_ALEX: Final[Sequence[Sequence[tuple[Any, ...]]]] = (
    (("c", 3, 64, 11, 4, 2), ("r",)),
    (("p", 3, 2), ("c", 64, 192, 5, 1, 2), ("r",)),
    (("p", 3, 2), ("c", 192, 384, 3, 1, 1), ("r",)),
    (("c", 384, 256, 3, 1, 1), ("r",)),
    (("c", 256, 256, 3, 1, 1), ("r",)),
)


def _vgg() -> Sequence[Sequence[tuple[Any, ...]]]:
    parts, before = [], 3
    for number, (width, convolutions) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))):
        part: list[tuple[Any, ...]] = [("p", 2, 2)] if number else []
        for _ in range(convolutions):
            part += [("c", before, width, 3, 1, 1), ("r",)]
            before = width
        parts.append(part)
    return parts


_NETWORKS: Final = {"alex": _ALEX, "vgg": _vgg()}
_SHIFT, _SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)


@dataclass(frozen=True, kw_only=True)
class _Perceptual(LoadedModel):
    """The five parts of the network, and the heads that weigh their channels."""

    heads: Sequence[Any]
    """Five tensors, 1×C×1×1."""


@dataclass(frozen=True, kw_only=True)
class _Item:
    """Two images on their way through the batcher."""

    images: NDArray[np.float32]
    """2×3×H×W, normalised."""
    kept: NDArray[np.float32] | None
    """H×W, 0 or 1; None for all."""


class LPIPS(Network[_Item, float, _Perceptual]):
    """The distance of two images of one size; 0 for equal ones. Called from several threads."""

    def __init__(self, file: Path, *, device: str = "auto", max_batch: int | None = None) -> None:
        self.file = file
        self.name = f"LPIPS ({file.name})"
        self.version = f"lpips 0.1 {file.name} sha256:{digest_of([file])}"
        super().__init__(
            "LPIPS",
            device,
            key=lambda item: (item.images.shape, item.kept is None),
            max_batch=max_batch,
            gpu_batch=8,
        )

    def __call__(self, first: RGB, second: RGB, kept: NDArray[np.bool_] | None = None) -> float:
        """Return the distance.

        first, second: H×W×3 uint8 RGB, the same size, at least 64 px a side.
        kept: H×W, which pixels count: features are weighed by the share of kept pixels around them. None for all.
        Raises ToolError where the two do not fit into memory.
        """
        images = np.stack([first, second]).astype(np.float32).transpose(0, 3, 1, 2) / 127.5 - 1
        shift, scale = (np.array(values, dtype=np.float32).reshape(3, 1, 1) for values in (_SHIFT, _SCALE))
        weights = None if kept is None else kept.astype(np.float32)
        return self._batcher(_Item(images=(images - shift) / scale, kept=weights))

    def _run(self, items: list[_Item]) -> list[float]:
        torch, loaded = import_torch(), self._ready()
        name, half = loaded.device.name, loaded.device.half
        images = torch.from_numpy(np.stack([item.images for item in items], axis=1)).to(name)
        kept = None
        if items[0].kept is not None:
            kept = torch.from_numpy(np.stack([item.kept for item in items if item.kept is not None]))[:, None].to(name)

        def forward() -> list[float]:
            total = torch.zeros(len(items), dtype=torch.float32, device=name)
            values = images.flatten(0, 1)
            with torch.inference_mode():
                for part, head in zip(loaded.model, loaded.heads, strict=True):
                    with torch.autocast(name.partition(":")[0], torch.float16, enabled=half):
                        values = part(values)
                    unit = values.float()
                    unit = unit / (unit.square().sum(1, keepdim=True).sqrt() + 1e-10)
                    first, second = unit.unflatten(0, (2, len(items)))
                    distance = ((first - second).square() * head).sum(1, keepdim=True)
                    if kept is None:
                        total += distance.mean((1, 2, 3))
                    else:
                        share = torch.nn.functional.adaptive_avg_pool2d(kept, distance.shape[-2:])
                        total += (distance * share).sum((1, 2, 3)) / share.sum((1, 2, 3))
            return [float(value) for value in total.cpu()]

        return fitting(forward)

    def _load(self, device: Device) -> _Perceptual:
        torch = import_torch()
        tensors = load_tensors(self.file)
        try:
            return _built(torch, tensors, device)
        except (KeyError, RuntimeError) as error:
            problem = " ".join(str(error).split())[:300]
            raise ConfigError(
                f"lpips {str(self.file)!r}: is not what lpips.LPIPS(net='alex') or net='vgg' saves ({problem})"
            ) from error


def _built(torch: Any, tensors: Mapping[str, Any], device: Device) -> _Perceptual:
    """Return the network with these tensors. Raises KeyError for one that lacks, RuntimeError for one of another shape."""
    network = "alex" if tensors["net.slice1.0.weight"].shape[-1] == 11 else "vgg"
    number, parts, nn = itertools.count(), [], torch.nn
    for place, layers in enumerate(_NETWORKS[network], start=1):
        made = []
        for kind, *how in layers:
            index = next(number)
            if kind == "c":
                layer = nn.Conv2d(how[0], how[1], how[2], stride=how[3], padding=how[4])
                key = f"net.slice{place}.{index}"
                layer.load_state_dict({name: tensors[f"{key}.{name}"] for name in ("weight", "bias")})
                made.append(layer)
            else:
                made.append(nn.ReLU() if kind == "r" else nn.MaxPool2d(*how))
        parts.append(nn.Sequential(*made))
    model = nn.ModuleList(parts).eval().requires_grad_(False).float().to(device.name)
    heads = [tensors[f"lin{i}.model.1.weight"].float().to(device.name) for i in range(len(parts))]
    for head, layers in zip(heads, _NETWORKS[network], strict=True):
        width = next(how[1] for kind, *how in reversed(layers) if kind == "c")
        if tuple(head.shape) != (1, width, 1, 1):
            raise RuntimeError(f"a head has the shape {tuple(head.shape)}, expected {(1, width, 1, 1)}")
    return _Perceptual(model=model, device=device, heads=heads)


def open_lpips(name: str | None, device: str) -> LPIPS:
    """Return LPIPS with the weights in a file, found and not yet loaded.

    Raises ModelAbsent where no file is named or the extra is not installed.
    Raises ConfigError where the named file or the device cannot be had. MissingExtra is such an error.
    """
    if find_spec("torch") is None:
        if name is not None:
            raise MissingExtra(f"LPIPS {name!r}", "vision")
        raise ModelAbsent("it needs LPIPS: pip install 'editloupe[vision]', and a file of its weights")
    if name is None:
        raise ModelAbsent("it needs a file of LPIPS weights; name one by --lpips or EDITLOUPE_LPIPS (docs/measures.md)")
    check_device(device)
    return _shared(find_file(name, "lpips").resolve(), device)


@cache
def _shared(file: Path, device: str) -> LPIPS:
    return LPIPS(file, device=device)
