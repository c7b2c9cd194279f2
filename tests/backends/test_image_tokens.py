"""The published formulas for the tokens of an image, at their published examples and where rounding bites."""

from __future__ import annotations

import pytest

from editloupe.backends.base import open_backend
from editloupe.backends.image_tokens import image_tokens_of

FORMULAS = [
    # To 768×768: four tiles, 85 + 4·170. To 1024×2048, then 768×1536: six. Both are the guide's own examples.
    ("gpt-4o", (1024, 1024), 765), ("gpt-4.1-2025-04-14", (2048, 4096), 1105),
    # A small one is not enlarged: one tile.
    ("openai/gpt-4.1", (300, 200), 255), ("gpt-4o-mini", (300, 200), 2833 + 5667),
    # 32·32 patches; 57·75 are more than 1536. 1024·1.62 = 1658.9, 1536·1.62 = 2488.3.
    ("gpt-4.1-mini", (1024, 1024), 1659), ("gpt-4.1-mini", (1800, 2400), 2489), ("o4-mini", (32, 33), 4),
    # Tiles of 540 / 1.5 = 360 px: 3·2 (the guide's example); of at most 768 px: 6·4; of at least 256 px: 3·2.
    ("gemini-2.5-pro", (384, 384), 258), ("gemini-2.5-flash", (960, 540), 1548),
    ("gemini-2.0-flash", (4032, 3024), 24 * 258), ("google/gemini-2.0-flash", (600, 300), 6 * 258),
    ("gemini-3-pro-preview", (100, 100), 1120),
    # 1024 / 28 = 36.6 and 768 / 28 = 27.4: 37·27, and two marks. 24 Mpx to 12.8: 156.8 and 104.5 squares, rounded down.
    ("Qwen/Qwen2.5-VL-7B-Instruct", (1024, 768), 37 * 27 + 2), ("Qwen/Qwen2.5-VL-7B-Instruct", (6000, 4000), 156 * 104 + 2),
    # 64×64 px is enlarged to 65,536 px: 8·8.
    ("Qwen/Qwen3-VL-8B-Instruct", (1024, 768), 32 * 24 + 2), ("Qwen/Qwen3-VL-30B-A3B-Instruct", (64, 64), 8 * 8 + 2),
]  # fmt: skip


def test_the_tokens_of_an_image_by_its_models_formula(monkeypatch: pytest.MonkeyPatch) -> None:
    for model, size, tokens in FORMULAS:
        rule = image_tokens_of(model)
        assert rule is not None and rule.count(*size) == tokens, model
    for model in ("gpt-9", "gpt-4o-audio-preview", "gemini-9-pro", "Qwen/Qwen2-7B", "llava", ""):
        assert image_tokens_of(model) is None
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    for uri, tokens in (("openai/gpt-4.1?env=none", 765), ("vllm/Qwen/Qwen3-VL-8B-Instruct", 770)):
        rule = open_backend(uri).traits.image_tokens
        assert rule is not None and rule.count(1024, 768) == tokens
    assert open_backend("baseline").traits.image_tokens is None
