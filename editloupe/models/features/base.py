"""What an image encoder is: CLIP and DINO, behind one interface. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB

CLIP_FAMILIES: Final = {"clip": "CLIP", "clip_vision_model": "CLIP"}
DINO_FAMILIES: Final = {
    "dinov2": "DINOv2",
    "dinov2_with_registers": "DINOv2 with registers",
    "dinov3_vit": "DINOv3",
}
FAMILIES: Final = {**CLIP_FAMILIES, **DINO_FAMILIES}
"""`model_type` in a model's config.json → the encoder's name."""

Vector: TypeAlias = NDArray[np.float32]
"""D: an image, or some patches of it, as a vector."""
Patches: TypeAlias = NDArray[np.bool_]
"""rows×columns: which patches of the encoder's grid count."""
TokenGrid: TypeAlias = NDArray[np.float32]
"""rows×columns×D: one vector a patch, the upper left one first."""


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What an encoder makes of an image, token by token, after its last layer."""

    cls: Vector
    """Of the class token, which stands for the whole image."""
    registers: NDArray[np.float32]
    """R×D: of the register tokens, which show no place of the image. R is 0 for an encoder without."""
    patches: TokenGrid
    """One vector for each patch, and nothing else."""

    def with_registers(self) -> Tokens:
        """Return the tokens as EdiVal's published code takes them: registers count as the first patches.

        The grid is the most square one that holds them all. At 224 px DINOv3 has 4 registers and 14×14 patches; together
        they are 200 "patches", which makes a grid of 10×20, and none of them stands where it belongs.
        """
        every = np.concatenate([self.registers, self.patches.reshape(-1, self.patches.shape[-1])])
        sides = [rows for rows in range(1, len(every) + 1) if len(every) % rows == 0]
        rows = min(sides, key=lambda rows: abs(rows * rows / len(every) - 1))
        return Tokens(cls=self.cls, registers=self.registers[:0], patches=every.reshape(rows, len(every) // rows, -1))


class Features(Protocol):
    """Turns images into vectors. The same input gives the same vectors. It is called from several threads."""

    name: str
    """In messages, with the identity of its weights."""
    version: str
    """Its part of a judge's identity."""

    @property
    def side_px(self) -> int:
        """Side in px of the network's square input. Loads the model where that has not happened."""

    @property
    def grid(self) -> int:
        """Patches a side. Loads the model where that has not happened."""

    def __call__(self, images: Sequence[RGB], patches: Sequence[Patches | None]) -> list[Vector]:
        """Return one vector for each H×W×3 uint8 RGB image.

        patches: None for the whole image, prepared as the model's own processor does (usually its middle square). Else
        the image is squashed to the network's square, and the patches that count are averaged, at least one of them.
        Raises ToolError where one image does not fit into memory.
        """

    def tokens(self, images: Sequence[RGB]) -> list[Tokens]:
        """Return the tokens of each H×W×3 uint8 RGB image, which is squashed to the network's square as a whole.

        Raises ToolError where one image does not fit into memory.
        """
