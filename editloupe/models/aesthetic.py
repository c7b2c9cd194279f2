"""A head that reads off CLIP's vector how an image pleases: linear layers, from a file that the user names."""

from __future__ import annotations

import re
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from editloupe.errors import ConfigError
from editloupe.models.features.base import Vector
from editloupe.models.opening import weights_file
from editloupe.models.weights import digest_of, load_tensors


class AestheticHead:
    """The linear layers of a file, one after another, with nothing in between; the last one gives one number."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.name = f"aesthetic head {file.name}"
        self.version = f"{file.name} sha256:{digest_of([file])}"

    @cached_property
    def _layers(self) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        tensors = {name: np.asarray(one.float().numpy(), np.float64) for name, one in load_tensors(self.file).items()}
        names = sorted((n for n in tensors if n.endswith("weight")), key=lambda n: [int(d) for d in re.findall(r"\d+", n)])
        shapes = [tensors[name].shape for name in names]
        # Each layer reads what the one before gives, the last gives one number.
        reads, gives = [shape[-1] for shape in shapes[1:]] + [1], [shape[0] for shape in shapes]
        if not shapes or {len(shape) for shape in shapes} != {2} or reads != gives:
            raise ConfigError(f"{self.file}: expected linear layers that end in one number, found weights of {shapes}")
        return [(tensors[n], tensors.get(f"{n.removesuffix('weight')}bias", np.zeros(1))) for n in names]

    def prepare(self) -> None:
        """Read the file. Raises ConfigError for one that holds no such layers."""
        assert self._layers

    def __call__(self, vector: Vector) -> float:
        """Return the score of a vector of CLIP, brought to length 1. Raises ConfigError for one of another size."""
        found: Any = np.asarray(vector, np.float64)
        wanted = self._layers[0][0].shape[1]
        if found.shape != (wanted,):
            raise ConfigError(
                f"{self.name} reads {wanted} numbers of CLIP, which gives {found.size}; name the CLIP that it is for"
            )
        found = found / max(float(np.linalg.norm(found)), 1e-12)
        for weight, bias in self._layers:
            found = weight @ found + bias
        return float(found[0])


@cache
def open_aesthetic(name: str | None, device: str) -> AestheticHead:
    """Return the head in a file. Raises ModelAbsent where none is named, ConfigError where the file cannot be had."""
    return AestheticHead(weights_file(name, "aesthetic", "a file with an aesthetic head"))
