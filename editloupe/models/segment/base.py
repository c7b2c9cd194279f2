"""What a segmenter is and what it returns. No torch here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.values import Box

Mask: TypeAlias = NDArray[np.bool_]
"""H×W bool, in px of the image: True for what belongs to the object."""

FAMILIES: Final = {"sam": "SAM"}
"""`model_type` in a model's config.json → the name that a reader sees."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Segmentation:
    """The object in one box."""

    mask: Mask
    """May be empty, and may reach beyond the box."""
    score: float
    """The IoU with the true mask that the network expects, about 0 to 1; higher is surer."""


class Segmenter(Protocol):
    """Finds the object that a box encloses. The same input gives the same output. It is called from several threads."""

    name: str
    """What messages call it."""
    version: str
    """Model, and revision or digest. It changes with the weights."""

    def __call__(self, rgb: RGB, boxes: Sequence[Box]) -> list[Segmentation]:
        """Return one segmentation for each box.

        rgb: H×W×3 uint8.   boxes: in px of the image, inside it; [] gives [].
        Raises ToolError where the image does not fit into memory.
        """
