"""Tiny random networks, made where a test needs weights: the loading code is the one that takes real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np


def rrdbnet_tensors(
    *, scale: int = 4, features: int = 8, blocks: int = 2, growth: int = 4, seed: int = 0
) -> dict[str, Any]:
    """A state dict with the official keys, written out here and not taken from our network."""
    import torch

    random = torch.Generator().manual_seed(seed)
    tensors: dict[str, Any] = {}

    def conv(name: str, into: int, out: int) -> None:
        tensors[f"{name}.weight"] = torch.randn(out, into, 3, 3, generator=random) * (1.2 / (3 * into**0.5))
        tensors[f"{name}.bias"] = torch.randn(out, generator=random) * 0.05

    conv("conv_first", 3 * (4 // scale) ** 2, features)
    for block in range(blocks):
        for dense in (1, 2, 3):
            for n in (1, 2, 3, 4, 5):
                into, out = features + (n - 1) * growth, features if n == 5 else growth
                conv(f"body.{block}.rdb{dense}.conv{n}", into, out)
    for name in ("conv_body", "conv_up1", "conv_up2", "conv_hr"):
        conv(name, features, features)
    conv("conv_last", features, 3)
    tensors["conv_last.bias"] += 0.5  # mid gray rather than black
    return tensors


def rrdbnet_file(folder: Path, *, name: str = "tiny_x4.pth", **shape: int) -> Path:
    """The same as a checkpoint as Real-ESRGAN publishes them: pickled, under "params_ema"."""
    import torch

    path = folder / name
    torch.save({"params_ema": rrdbnet_tensors(**shape)}, path)
    return path


def noise(width: int, height: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
