"""How many tokens an image costs, by the formulas that the makers of the models publish; for estimates, not for bills.

What a model really counted is in `Usage.image_tokens` of each reply, where its provider tells.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final


@dataclass(frozen=True, kw_only=True)
class ImageTokens:
    """A published formula."""

    rule: str
    """In words, for reports."""
    count: Callable[[int, int], int] = field(repr=False, compare=False)
    """(width, height) in px as sent → tokens."""

    def __reduce__(self) -> tuple[Any, ...]:
        """Return how a formula is pickled: a published one by its rule, since its function has no name."""
        return _of_rule, (self.rule, None if _published().get(self.rule) is self else self.count)


def image_tokens_of(model: str) -> ImageTokens | None:
    """Return a model's formula by its name, whoever serves it ("Qwen/Qwen3-VL-8B-Instruct"); None where none is known."""
    name = model.strip().casefold()
    plain = re.sub(r"-\d{4}-\d{2}-\d{2}$", "", re.split(r"[/:]", name)[-1])
    return next((rule for pattern, rule in _RULES if re.fullmatch(pattern, plain) or re.fullmatch(pattern, name)), None)


def _published() -> dict[str, ImageTokens]:
    return {one.rule: one for one in (*(formula for _, formula in _RULES), BY_AREA)}


def _of_rule(rule: str, count: Callable[[int, int], int] | None) -> ImageTokens:
    return _published()[rule] if count is None else ImageTokens(rule=rule, count=count)


def _cells(length: float, side: int) -> int:
    """Count how many of `side` cover a length, with a tolerance for lengths that went through a division."""
    return max(1, math.ceil(length / side - 1e-9))


def _by_tiles(base: int, tile: int) -> ImageTokens:
    """Reduce to a square of 2048 px, then to a shorter side of 768 px, and count tiles of 512 px."""

    def count(width: int, height: int) -> int:
        scale = min(1.0, 2048 / max(width, height))
        scale *= min(1.0, 768 / (min(width, height) * scale))
        return base + tile * _cells(width * scale, 512) * _cells(height * scale, 512)

    return ImageTokens(rule=f"{base} and {tile} for each tile of 512 px", count=count)


def _by_patches(factor: float) -> ImageTokens:
    """Count patches of 32 px, at most 1536: a larger image is scaled down until no more cover it."""
    rule = f"{factor:g} for each patch of 32 px, at most 1536 patches"
    return ImageTokens(rule=rule, count=lambda w, h: math.ceil(min(1536, _cells(w, 32) * _cells(h, 32)) * factor - 1e-9))


def _gemini_tiles(width: int, height: int) -> int:
    """Count one tile up to 384 px a side; else tiles of the shorter side / 1.5, kept between 256 and 768 px."""
    side = 384 if max(width, height) <= 384 else min(768, max(256, math.floor(min(width, height) / 1.5)))
    return 258 * _cells(width, side) * _cells(height, side)


def _by_squares(side: int, least: int, why: str = "") -> ImageTokens:
    """Count Qwen-VL's tokens: one a square of `side` px within a budget of px, one before and one after.

    least: px of the smallest side, by the models' own preprocessor_config.json; a server may be started with another.
    """

    def count(width: int, height: int) -> int:
        across, down = round(width / side), round(height / side)
        scale = math.sqrt(width * height) / side
        if across * down > 16384:
            across, down = (max(1, math.floor(128 * length / scale / side)) for length in (width, height))
        elif across * down * side**2 < least**2:
            across, down = (math.ceil(least / side * length / scale / side) for length in (width, height))
        return across * down + 2

    return ImageTokens(rule=f"1 for each {side} px square{why}", count=count)


_RULES: Final = (
    # OpenAI, "Images and vision", detail "high", which is what it takes where a request does not say.
    (r"gpt-4o|gpt-4\.1|gpt-4\.5-preview", _by_tiles(85, 170)),
    (r"gpt-4o-mini", _by_tiles(2833, 5667)),
    (r"gpt-5(-chat-latest)?", _by_tiles(70, 140)),
    (r"o1(-pro)?|o3", _by_tiles(75, 150)),
    (r"(gpt-4\.1|gpt-5|gpt-5\.4)-mini", _by_patches(1.62)),
    (r"(gpt-4\.1|gpt-5|gpt-5\.4)-nano", _by_patches(2.46)),
    (r"o4-mini", _by_patches(1.72)),
    (r"gemini-2\.\d.*", ImageTokens(rule="258 for each tile", count=_gemini_tiles)),
    # The most that its default resolution takes; small pictures may take fewer.
    (r"gemini-3\b.*", ImageTokens(rule="1120 for each image", count=lambda width, height: 1120)),
    (r".*qwen2([._]5)?[-_]vl.*", _by_squares(28, 56)),
    (r".*qwen3[-_]vl.*", _by_squares(32, 256)),
)
BY_AREA: Final = _by_squares(28, 56, ", since no formula is known")
"""Stands in for a model's formula where only the ratio of sizes counts."""
