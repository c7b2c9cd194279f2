"""Finds an image encoder's weights and opens it: a folder, the local Hugging Face cache, the hub. No torch here."""

from __future__ import annotations

from functools import cache
from typing import Final

from editloupe.models.features.base import CLIP_FAMILIES, DINO_FAMILIES, FAMILIES, Features, TextFeatures
from editloupe.models.hub import Kind, Weights

DEFAULT_CLIP: Final = "openai/clip-vit-base-patch32"
"""GIE-Bench's own."""
CLIP_REVISION: Final = "3d74acf9a28c67741b2f4f2ea7635f0aaf6f0268"
DEFAULT_DINO: Final = "facebook/dinov2-with-registers-base"
DINO_REVISION: Final = "a1d738ccfa7ae170945f210395d99dde8adb1805"

_CLIP: Final = Kind(
    name="CLIP", need="CLIP", option="clip", families=CLIP_FAMILIES, default=DEFAULT_CLIP, revision=CLIP_REVISION
)
_CLIP_TEXT: Final = Kind(
    name="CLIP with a text part",
    need="CLIP",
    option="clip",
    families={"clip": "CLIP"},
    default=DEFAULT_CLIP,
    revision=CLIP_REVISION,
)
_DINO: Final = Kind(
    name="DINO", need="DINO", option="dino", families=DINO_FAMILIES, default=DEFAULT_DINO, revision=DINO_REVISION
)
_ANY: Final = Kind(
    name="image encoder",
    need="an image encoder",
    option="clip",
    families=FAMILIES,
    default=DEFAULT_CLIP,
    revision=CLIP_REVISION,
)


def open_features(name: str | None, device: str) -> Features:
    """Return the image encoder of that name, found and not yet loaded. None takes DEFAULT_CLIP from the local cache.

    name: a folder that transformers saved, or a hub id (owner/name or owner/name@revision): CLIP, DINOv2 or DINOv3.
    Raises as `Kind.wanted`.
    """
    return _shared(_ANY.wanted(name, device), device)


def open_clip(name: str | None, device: str) -> Features:
    """Return CLIP. Raises as `open_features`, and ConfigError for weights of another family."""
    return _shared(_CLIP.wanted(name, device), device)


def open_clip_text(name: str | None, device: str) -> TextFeatures:
    """Return CLIP's text encoder. Raises as `open_clip`, also for weights of the image part alone."""
    return _shared_text(_CLIP_TEXT.wanted(name, device), device)


def open_dino(name: str | None, device: str) -> Features:
    """Return DINOv2 or DINOv3; None takes DEFAULT_DINO from the local cache. Raises as `open_clip`."""
    return _shared(_DINO.wanted(name, device), device)


@cache
def _shared(weights: Weights, device: str) -> Features:
    from editloupe.models.features.transformers import TransformersFeatures

    return TransformersFeatures(weights, device=device)


@cache
def _shared_text(weights: Weights, device: str) -> TextFeatures:
    from editloupe.models.features.text import ClipTexts

    return ClipTexts(weights, device=device)
