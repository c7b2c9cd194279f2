"""How many tokens an image costs, by the formulas that the makers of the models publish; for estimates, not for bills.

What a model really counted is in `Usage.image_tokens` of each reply, where its provider tells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

GEMINI_TILE: Final = 258


@dataclass(frozen=True, kw_only=True)
class ImageTokens:
    """A published formula."""

    rule: str
    """In words, for reports."""
    count: Callable[[int, int], int] = field(repr=False, compare=False)
    """(width, height) in px as sent → tokens."""


def image_tokens_of(model: str) -> ImageTokens | None:
    """Return a model's formula by its name, whoever serves it ("Qwen/Qwen3-VL-8B-Instruct"); None where none is known."""
    name = model.strip().casefold()
    plain = re.sub(r"-\d{4}-\d{2}-\d{2}$", "", re.split(r"[/:]", name)[-1])
    if plain in _TILES:
        base, tile = _TILES[plain]
        return ImageTokens(rule=f"{base} and {tile} for each tile of 512 px", count=partial(_tiles, base=base, tile=tile))
    if plain in _PATCHES:
        factor = _PATCHES[plain]
        rule = f"{factor:g} for each patch of 32 px, at most 1536 patches"
        return ImageTokens(rule=rule, count=partial(_patches, factor=factor))
    if re.match(r"gemini-2\.\d", plain):
        return ImageTokens(rule=f"{GEMINI_TILE} for each tile", count=_gemini_tiles)
    if re.match(r"gemini-3\b", plain):
        # The most that its default resolution takes; small pictures may take fewer.
        return ImageTokens(rule="1120 for each image", count=lambda width, height: 1120)
    for pattern, side, least in ((r"qwen2([._]5)?[-_]vl", 28, 56), (r"qwen3[-_]vl", 32, 256)):
        if re.search(pattern, name):
            count = partial(_squares, side=side, least=least**2, most=16384 * side**2)
            return ImageTokens(rule=f"1 for each {side} px square", count=count)
    return None


# OpenAI, "Images and vision", detail "high", which is what it takes where a request does not say.
_TILES: Final = {
    "gpt-4o": (85, 170), "gpt-4.1": (85, 170), "gpt-4.5-preview": (85, 170), "gpt-4o-mini": (2833, 5667),
    "gpt-5": (70, 140), "gpt-5-chat-latest": (70, 140), "o1": (75, 150), "o1-pro": (75, 150), "o3": (75, 150),
}  # fmt: skip
"""Model → tokens of an image, and of each of its tiles."""

# Users have measured 1.2 (mini) and 1.5 (nano) for gpt-5: what is published is the more careful figure.
_PATCHES: Final = {
    "gpt-4.1-mini": 1.62, "gpt-4.1-nano": 2.46, "o4-mini": 1.72, "gpt-5-mini": 1.62, "gpt-5-nano": 2.46,
    "gpt-5.4-mini": 1.62, "gpt-5.4-nano": 2.46,
}  # fmt: skip
"""Model → tokens of a patch."""


def _tiles(width: int, height: int, *, base: int, tile: int) -> int:
    """Reduce to a square of 2048 px, then to a shorter side of 768 px, and count tiles of 512 px."""
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    return base + tile * _cells(width * scale, 512) * _cells(height * scale, 512)


def _patches(width: int, height: int, *, factor: float) -> int:
    """Count patches of 32 px. Above 1536 the image is scaled down until no more cover it."""
    across, down = _cells(width, 32), _cells(height, 32)
    if across * down > 1536:
        scale = math.sqrt(32**2 * 1536 / (width * height))
        wide, high = width * scale / 32, height * scale / 32
        # So that one side is a whole number of patches.
        fit = min(math.floor(wide) / wide, math.floor(high) / high)
        across, down = _cells(wide * fit, 1), _cells(high * fit, 1)
    return math.ceil(across * down * factor - 1e-9)


def _gemini_tiles(width: int, height: int) -> int:
    """Count one tile up to 384 px a side; else tiles of the shorter side / 1.5, kept between 256 and 768 px."""
    if max(width, height) <= 384:
        return GEMINI_TILE
    side = min(768, max(256, math.floor(min(width, height) / 1.5)))
    return GEMINI_TILE * _cells(width, side) * _cells(height, side)


def _squares(width: int, height: int, *, side: int, least: int, most: int) -> int:
    """Count Qwen-VL's tokens: one a square of `side` px within a budget of px, one before and one after.

    least, most: px of the whole image in the models' own preprocessor_config.json; a server may be started with others.
    """
    across, down = round(width / side), round(height / side)
    if across * down * side**2 > most:
        shrink = math.sqrt(width * height / most)
        across, down = max(1, math.floor(width / shrink / side)), max(1, math.floor(height / shrink / side))
    elif across * down * side**2 < least:
        grow = math.sqrt(least / (width * height))
        across, down = math.ceil(width * grow / side), math.ceil(height * grow / side)
    return across * down + 2


def _cells(length: float, side: int) -> int:
    """Count how many of `side` cover a length, with a tolerance for lengths that went through a division."""
    return max(1, math.ceil(length / side - 1e-9))


BY_AREA: Final = ImageTokens(
    rule="1 for each 28 px square, since no formula is known",
    count=partial(_squares, side=28, least=56**2, most=16384 * 28**2),
)
"""Stands in for a model's formula where only the ratio of sizes counts."""
