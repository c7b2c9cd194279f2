"""RRDBNet, the generator of ESRGAN and Real-ESRGAN, on torch alone; the keys are those of the official checkpoints.

Wang et al., "ESRGAN" (2018), section 3.1, and "Real-ESRGAN" (2021), section 3.3: residual-in-residual dense blocks
without batch norm, residual scaling 0.2; for ×2 the input is first unshuffled by 2. Import it only where torch is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from editloupe.errors import ConfigError

_RESIDUAL: Final = 0.2
_UPSAMPLED: Final = 4
"""The body ends in two doublings, whatever the scale."""


@dataclass(frozen=True, kw_only=True)
class Shape:
    """What distinguishes one RRDBNet from another."""

    scale: int = 4
    """Of the whole network: 4, 2 or 1."""
    features: int = 64
    """Channels between the blocks."""
    blocks: int = 23
    growth: int = 32
    """Channels that each convolution of a dense block adds."""

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor], where: str) -> Shape:
        """Return the shape that the official keys imply. Raises ConfigError where they are not an RRDBNet's for RGB."""
        first, dense = tensors.get("conv_first.weight"), tensors.get("body.0.rdb1.conv1.weight")
        scale = {3: 4, 12: 2, 48: 1}.get(first.shape[1]) if first is not None and first.ndim == 4 else None
        if first is None or dense is None or dense.ndim != 4 or scale is None:
            found, other = (
                ", ".join(sorted(tensors)[:3]),
                "for another network name a KIND=WEIGHTS that opens it",
            )
            raise ConfigError(f"{where}: has not the keys of an RRDBNet (Real-ESRGAN), found {found}, …; {other}")
        numbers = [int(k.split(".")[1]) for k in tensors if k.startswith("body.") and k.split(".")[1].isdigit()]
        return cls(scale=scale, features=first.shape[0], blocks=max(numbers) + 1, growth=dense.shape[0])


class DenseBlock(nn.Module):
    """Five 3×3 convolutions, each over all before it; B×features×H×W to the same."""

    def __init__(self, features: int, growth: int) -> None:
        super().__init__()
        for n in range(5):
            out = features if n == 4 else growth
            self.add_module(f"conv{n + 1}", nn.Conv2d(features + n * growth, out, 3, padding=1))

    def forward(self, x: Tensor) -> Tensor:
        seen = [x]
        for n in range(1, 5):
            seen.append(_leaky(self.get_submodule(f"conv{n}")(torch.cat(seen, dim=1))))
        return cast(Tensor, x + _RESIDUAL * self.get_submodule("conv5")(torch.cat(seen, dim=1)))


class ResidualDenseBlocks(nn.Module):
    """Three dense blocks with a residual around them."""

    def __init__(self, features: int, growth: int) -> None:
        super().__init__()
        self.rdb1 = DenseBlock(features, growth)
        self.rdb2 = DenseBlock(features, growth)
        self.rdb3 = DenseBlock(features, growth)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, x + _RESIDUAL * self.rdb3(self.rdb2(self.rdb1(x))))


class RRDBNet(nn.Module):
    """B×3×H×W, RGB 0..1, to B×3×(scale·H)×(scale·W), about 0..1 (not clamped). H and W multiples of 4 / scale."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        nf = shape.features
        self.unshuffle = _UPSAMPLED // shape.scale
        self.conv_first = nn.Conv2d(3 * self.unshuffle**2, nf, 3, padding=1)
        self.body = nn.Sequential(*(ResidualDenseBlocks(nf, shape.growth) for _ in range(shape.blocks)))
        self.conv_body = nn.Conv2d(nf, nf, 3, padding=1)
        self.conv_up1 = nn.Conv2d(nf, nf, 3, padding=1)
        self.conv_up2 = nn.Conv2d(nf, nf, 3, padding=1)
        self.conv_hr = nn.Conv2d(nf, nf, 3, padding=1)
        self.conv_last = nn.Conv2d(nf, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        if self.unshuffle > 1:
            x = functional.pixel_unshuffle(x, self.unshuffle)
        x = self.conv_first(x)
        x = x + self.conv_body(self.body(x))
        for conv in (self.conv_up1, self.conv_up2):
            x = _leaky(conv(functional.interpolate(x, scale_factor=2, mode="nearest")))
        return cast(Tensor, self.conv_last(_leaky(self.conv_hr(x))))


def _leaky(x: Tensor) -> Tensor:
    return functional.leaky_relu(x, 0.2, inplace=True)
