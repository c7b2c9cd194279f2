"""Finds a segmenter's weights and opens it: a folder, the local Hugging Face cache, the hub. No torch here."""

from __future__ import annotations

from functools import cache
from typing import Final

from editloupe.models.hub import Kind, Weights
from editloupe.models.segment.base import FAMILIES, Segmenter

DEFAULT_SEGMENTER: Final = "facebook/sam-vit-base"
"""GIE-Bench's own."""
DEFAULT_REVISION: Final = "70c1a07f894ebb5b307fd9eaaee97b9dfc16068f"

_KIND: Final = Kind(
    name="segmenter",
    need="a segmenter",
    option="segmenter",
    families=FAMILIES,
    default=DEFAULT_SEGMENTER,
    revision=DEFAULT_REVISION,
)


def open_segmenter(name: str | None, device: str) -> Segmenter:
    """Return the segmenter of that name, found and not yet loaded. None takes DEFAULT_SEGMENTER from the local cache.

    name: a folder that transformers saved, or a hub id (owner/name or owner/name@revision): SAM or SAM 2.
    Raises as `Kind.wanted`.
    """
    return _shared(_KIND.wanted(name, device), device)


@cache
def _shared(weights: Weights, device: str) -> Segmenter:
    from editloupe.models.segment.transformers import TransformersSegmenter

    return TransformersSegmenter(weights, device=device)
