"""What an image encoder is: CLIP and DINO, behind one interface. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
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
