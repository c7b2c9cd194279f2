"""Finds a segmenter's weights and opens it: a folder, the local Hugging Face cache, the hub. No torch here."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Final

from editloupe.errors import MissingExtra, ModelAbsent
from editloupe.models.devices import check_device
from editloupe.models.hub import Kind, Weights
from editloupe.models.segment.base import FAMILIES, Segmenter

DEFAULT_SEGMENTER: Final = "facebook/sam-vit-base"
"""GIE-Bench's own."""
DEFAULT_REVISION: Final = "70c1a07f894ebb5b307fd9eaaee97b9dfc16068f"

_KIND: Final = Kind(name="segmenter", families=FAMILIES, default=DEFAULT_SEGMENTER, revision=DEFAULT_REVISION)


def open_segmenter(name: str | None, device: str) -> Segmenter:
    """Return the segmenter of that name, found and not yet loaded. None takes DEFAULT_SEGMENTER from the local cache.

    name: a folder that transformers saved, or a hub id (owner/name or owner/name@revision): SAM or SAM 2.
    Raises ModelAbsent where no name is given and the default is not in the local cache, or the extra is not installed.
    Raises ConfigError where the named segmenter or the device cannot be had. MissingExtra is such an error.
    """
    missing = [package for package in ("torch", "transformers") if find_spec(package) is None]
    if missing and name is not None:
        raise MissingExtra(f"Segmenter {name!r}", "vision")
    if missing:
        raise ModelAbsent("it needs a segmenter: pip install 'editloupe[vision]', and weights")
    check_device(device)
    found = _KIND.cached_default() if name is None else _KIND.find(name)
    if found is None:
        raise ModelAbsent(
            f"it needs a segmenter, and {DEFAULT_SEGMENTER} is not in the local Hugging Face cache; name a hub id or a "
            "folder by --segmenter or EDITLOUPE_SEGMENTER"
        )
    return _shared(found, device)


@cache
def _shared(weights: Weights, device: str) -> Segmenter:
    from editloupe.models.segment.transformers import TransformersSegmenter

    return TransformersSegmenter(weights, device=device)
