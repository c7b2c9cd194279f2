"""A picture with things in it, of which one is the target: what makers of probes work on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB


@dataclass(frozen=True, kw_only=True)
class Thing:
    """An object of a scene."""

    name: str
    """How an instruction names it, such as "red mug". Unique in the scene."""
    noun: str
    """What it is, such as "mug". A look-alike has the target's noun."""
    mask: NDArray[np.bool_]
    """H×W, of the whole scene's size; True on the thing."""
    colour: str
    """Name of its colour; "" for a thing that has none that people would agree on."""


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A picture, its target, and the other things in it."""

    id: str
    """Unique among the scenes of a set."""
    image: RGB
    """H×W×3 uint8."""
    target: Thing
    others: tuple[Thing, ...] = ()
    """What collateral changes may touch; none of them overlaps the target."""
    clean: Callable[[Thing], RGB] | None = None
    """Returns the image without a thing, exactly, as for a drawn scene. None: inpainting has to do."""
    certain: bool = True
    """Whether the target's mask is that of the whole thing and of nothing else. One cut out of a box may not be."""
    area: float
    """Share of the image that the target was to have, one of `data.probes.AREAS`."""

    @property
    def area_found(self) -> float:
        """Share of the image that the target's mask covers."""
        return float(self.target.mask.mean())
