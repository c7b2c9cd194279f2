"""CLIP of an image and a text: cosines worked out by hand, and what has no value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.measures.base import measured
from tests.measures.test_consistency import flat

WORDS = {"red": (1, 0, 0), "green": (0, 2, 0), "blue": (0, 0, 3)}


class Colors:
    """CLIP whose vectors are colors, of images and of words."""

    def get(self, kind: str) -> Any:
        return {"clip": self.images, "clip_text": self.texts}[kind]

    def images(self, images: Sequence[RGB], patches: Sequence[Any]) -> list[Any]:
        assert patches == [None] * len(images)
        return [image.mean((0, 1)).astype(np.float32) for image in images]

    def texts(self, texts: Sequence[str]) -> list[Any]:
        return [np.array(WORDS[text], np.float32) for text in texts]


def similarity(text: str, door: Any = None, **images: RGB) -> float | None:
    return measured("clip_text_similarity", {"text": text}, images, door or Colors()).answer.value


def test_the_cosine_of_image_and_text() -> None:
    # The lengths of the vectors do not count: (200, 0, 0) and (1, 0, 0), then (80, 80, 0) and (0, 2, 0).
    assert similarity("red", edited=flat(200, 0, 0)) == pytest.approx(1.0)
    assert similarity("green", edited=flat(80, 80, 0)) == pytest.approx(0.70711, abs=1e-5)
    assert similarity("blue", edited=flat(80, 80, 0)) == pytest.approx(0.0)
    # The source does not count.
    assert similarity("red", edited=flat(200, 0, 0), source=flat(0, 9, 0)) == pytest.approx(1.0)


def test_what_has_no_value() -> None:
    for text, images, status, message in (
        (" ", {"edited": flat(9, 9, 9)}, "input_error", "the text is empty"),
        ("red", {"source": flat(9, 9, 9)}, "input_error", "expected a picture called edited, found source"),
        ("red", {"edited": flat(0, 0, 0)}, "not_defined", "without a direction"),
    ):
        with pytest.raises(MeasureError, match=message) as raised:
            similarity(text, **images)
        assert raised.value.status == status
