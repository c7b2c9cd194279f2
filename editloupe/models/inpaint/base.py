"""What an inpainter is, and the one without weights. No torch here."""

from __future__ import annotations

from typing import Final, Literal, Protocol, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB

Mask: TypeAlias = NDArray[np.bool_]
"""H×W, True where an image is filled."""
Method: TypeAlias = Literal["telea", "ns"]

_RADIUS_PX: Final = 5
"""How far OpenCV looks around a pixel that it fills."""
_CV2: Final = {"telea": cv2.INPAINT_TELEA, "ns": cv2.INPAINT_NS}


class Inpainter(Protocol):
    """Fills a part of an image. The same input gives the same output."""

    name: str
    """For messages."""
    version: str
    """Changes with the weights and with how they are used."""
    takes_words: bool
    """Whether it can put in what words describe. Else it only continues what surrounds the part."""

    def __call__(self, rgb: RGB, mask: Mask, words: str = "", *, seed: int = 0) -> RGB:
        """Return H×W×3 uint8 RGB, filled anew where the mask is True. Every other pixel is the image's own.

        rgb: H×W×3 uint8.   mask: H×W bool; all False returns the image as it is.
        words: what is to be there; "" for the background alone. Raises ValueError for words to one that takes none.
        seed: of what is drawn at random; one that draws nothing leaves it aside.
        Raises ToolError where the image does not fit into memory.
        """


class OpenCVInpainter:
    """Continues the surroundings into the part (cv2.inpaint). Large parts become smooth; no weights, no words.

    method: "telea" (Telea 2004, fast marching) or "ns" (Bertalmio 2001, Navier-Stokes).
    """

    takes_words = False

    def __init__(self, method: Method = "telea") -> None:
        self._method = _CV2[method]
        self.name = f"OpenCV ({method})"
        self.version = f"opencv {method} radius {_RADIUS_PX}"

    def __call__(self, rgb: RGB, mask: Mask, words: str = "", *, seed: int = 0) -> RGB:
        if words:
            raise ValueError(f"{self.name} takes no words, found {words!r}; leave them out, or use diffusers:MODEL")
        if not mask.any():
            return rgb.copy()
        filled = cv2.inpaint(np.ascontiguousarray(rgb), mask.astype(np.uint8), _RADIUS_PX, self._method)
        return within(rgb, np.asarray(filled, np.uint8), mask)


def within(rgb: RGB, filled: RGB, mask: Mask) -> RGB:
    """Return the filled pixels where the mask is True, the image's own elsewhere."""
    return np.where(mask[..., None], filled, rgb)
