"""What a model of preference is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from editloupe.data.images import RGB


@dataclass(frozen=True, kw_only=True)
class Preferred:
    """How much people would like an image, as a distribution."""

    mean: float
    """Higher is better. Of HPSv3 mostly -5 to 10."""
    sigma: float
    """Standard deviation, in the unit of the mean."""


class Preference(Protocol):
    """Scores images. The same image and prompt give the same score. It is called from several threads."""

    name: str
    """For messages."""
    version: str
    """Its part of a judge's identity."""

    def __call__(self, rgb: RGB, prompt: str) -> Preferred:
        """Return the score of an image as an answer to a prompt.

        rgb: H×W×3 uint8.   prompt: what the image was asked for; "" for the image alone.
        Raises Unavailable where it does not answer, and ToolError where its answer cannot be used.
        """
