"""Pictures drawn for tests."""

from __future__ import annotations

import io

import numpy as np
from PIL import Image

from editloupe.data.images import RGB


def textured(width: int, height: int, *, seed: int = 1) -> RGB:
    """Smooth random texture: noise of an eighth of the size, enlarged."""
    noise = np.random.default_rng(seed).integers(30, 220, (height // 8, width // 8, 3), dtype=np.uint8)
    return np.asarray(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


def with_square(rgb: RGB, box: tuple[int, int, int, int], color: tuple[int, int, int] = (250, 20, 20)) -> RGB:
    x0, y0, x1, y1 = box
    changed = rgb.copy()
    changed[y0:y1, x0:x1] = color
    return changed


def jpeg(rgb: RGB, quality: int) -> RGB:
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, format="JPEG", quality=quality)
    return np.asarray(Image.open(buffer))
