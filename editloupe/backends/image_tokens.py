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
    return next((rule for pattern, rule in _RULES if re.fullmatch(pattern, plain) or re.fullmatch(pattern, name)), None)


def _cells(length: float, side: int) -> int:
    """Count how many of `side` cover a length, with a tolerance for lengths that went through a division."""
    return max(1, math.ceil(length / side - 1e-9))


# Formulas are partial functions of the module, which are pickled by name.


def _tiles(base: int, tile: int, width: int, height: int) -> int:
    """Reduce to a square of 2048 px, then to a shorter side of 768 px, and count tiles of 512 px."""
    scale = min(1.0, 2048 / max(width, height))
    scale *= min(1.0, 768 / (min(width, height) * scale))
    return base + tile * _cells(width * scale, 512) * _cells(height * scale, 512)


def _patches(factor: float, width: int, height: int) -> int:
    """Count patches of 32 px, at most 1536: a larger image is scaled down until no more cover it."""
    return math.ceil(min(1536, _cells(width, 32) * _cells(height, 32)) * factor - 1e-9)


def _gemini_tiles(width: int, height: int) -> int:
    """Count one tile up to 384 px a side; else tiles of the shorter side / 1.5, kept between 256 and 768 px."""
    side = 384 if max(width, height) <= 384 else min(768, max(256, math.floor(min(width, height) / 1.5)))
    return 258 * _cells(width, side) * _cells(height, side)


def _gemini_3(width: int, height: int) -> int:
    """Return the most that its default resolution takes; small pictures may take fewer."""
    return 1120


def _squares(side: int, least: int, width: int, height: int) -> int:
    """Count Qwen-VL's tokens: one a square of `side` px within a budget of px, one before and one after.

    least: px of the smallest side, by the models' own preprocessor_config.json; a server may be started with another.
    """
    across, down = round(width / side), round(height / side)
    scale = math.sqrt(width * height) / side
    if across * down > 16384:
        across, down = (max(1, math.floor(128 * length / scale / side)) for length in (width, height))
    elif across * down * side**2 < least**2:
        across, down = (math.ceil(least / side * length / scale / side) for length in (width, height))
    return across * down + 2


def _by(rule: str, count: Callable[..., int], *given: float) -> ImageTokens:
    return ImageTokens(rule=rule.format(*given), count=partial(count, *given))


_TILES: Final = "{} and {} for each tile of 512 px"
_PATCHES: Final = "{} for each patch of 32 px, at most 1536 patches"
_SQUARES: Final = "1 for each {} px square"
_RULES: Final = (
    # OpenAI, "Images and vision", detail "high", which is what it takes where a request does not say.
    (r"gpt-4o|gpt-4\.1|gpt-4\.5-preview", _by(_TILES, _tiles, 85, 170)),
    (r"gpt-4o-mini", _by(_TILES, _tiles, 2833, 5667)),
    (r"gpt-5(-chat-latest)?", _by(_TILES, _tiles, 70, 140)),
    (r"o1(-pro)?|o3", _by(_TILES, _tiles, 75, 150)),
    (r"(gpt-4\.1|gpt-5|gpt-5\.4)-mini", _by(_PATCHES, _patches, 1.62)),
    (r"(gpt-4\.1|gpt-5|gpt-5\.4)-nano", _by(_PATCHES, _patches, 2.46)),
    (r"o4-mini", _by(_PATCHES, _patches, 1.72)),
    (r"gemini-2\.\d.*", _by("258 for each tile", _gemini_tiles)),
    (r"gemini-3\b.*", _by("1120 for each image", _gemini_3)),
    (r".*qwen2([._]5)?[-_]vl.*", _by(_SQUARES, _squares, 28, 56)),
    (r".*qwen3[-_]vl.*", _by(_SQUARES, _squares, 32, 256)),
)
BY_AREA: Final = _by(f"{_SQUARES}, since no formula is known", _squares, 28, 56)
"""Stands in for a model's formula where only the ratio of sizes counts."""
