"""CLIP direction: cosines worked out by hand, and pairs without a direction."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.measures.base import Models, measured, open_measure
from editloupe.testing import check_measure
from tests.imaging.drawn import textured, with_square
from tests.measures.test_consistency import flat
from tests.models.tiny_encoders import encoder_folder

TEXTS = {"red": (1, 0, 0), "green": (0, 2, 0), "blue": (0, 0, 3), "also red": (5, 0, 0), "long": ()}


class Colours:
    """CLIP whose vectors are colours, of images and of words."""

    def get(self, kind: str) -> Any:
        return {"clip": self.images, "clip_text": self.texts}[kind]

    def images(self, images: Sequence[RGB], patches: Sequence[Any]) -> list[Any]:
        assert patches == [None] * len(images)
        return [image.mean((0, 1)).astype(np.float32) for image in images]

    def texts(self, texts: Sequence[str]) -> list[Any]:
        return [np.array(TEXTS[text], np.float32) for text in texts]


def direction(source: RGB, edited: RGB, before: str, after: str, door: Any = None) -> float | None:
    args = {"source_text": before, "edited_text": after}
    return measured("clip_direction", args, {"source": source, "edited": edited}, door or Colours()).answer.value


def test_the_cosine_of_the_two_changes() -> None:
    red, green, blue = flat(200, 0, 0), flat(0, 100, 0), flat(0, 0, 9)
    assert direction(red, green, "red", "green") == pytest.approx(1.0)
    assert direction(red, green, "green", "red") == pytest.approx(-1.0)
    # (-1, 1, 0) · (-1, 0, 1) = 1, of lengths √2 and √2.
    assert direction(red, green, "red", "blue") == pytest.approx(0.5)
    assert direction(green, blue, "red", "green") == pytest.approx(-0.5)
    # The length of a vector does not count: (1, 1, 0) / √2 - (1, 0, 0) = (-0.2929, 0.7071, 0), of length 0.7654, against
    # (-1, 1, 0) / √2: 0.7071 / 0.7654.
    assert direction(red, flat(80, 80, 0), "red", "green") == pytest.approx(0.92388, abs=1e-5)


def test_without_a_change_there_is_no_direction() -> None:
    red, green = flat(200, 0, 0), flat(0, 100, 0)
    for pair, texts, what in (
        ((red, red.copy()), ("red", "green"), "images"),
        ((red, flat(100, 0, 0)), ("red", "green"), "images"),
        ((red, green), ("red", "also red"), "texts"),
    ):
        with pytest.raises(MeasureError, match=f"the two {what} have one vector") as raised:
            direction(*pair, *texts)
        assert raised.value.status == "not_defined"


def test_the_measure_keeps_the_contract() -> None:
    given = {"source_text": "red", "edited_text": "blue"}
    check_measure(open_measure("clip_direction"), args=given, models=Colours())


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
def test_by_a_real_network(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra `vision`")
    pytest.importorskip("transformers", reason="needs the extra `vision`")
    folder = str(encoder_folder(tmp_path / "clip", "clip"))
    door = Models(device="cpu", names={"clip": folder, "clip_text": folder})
    source = textured(160, 120)
    edited = with_square(source, (40, 30, 90, 80))
    there = direction(source, edited, "a cup", "a red cup", door)
    assert there is not None and -1 <= there <= 1
    assert direction(edited, source, "a cup", "a red cup", door) == pytest.approx(-there, abs=1e-5)
    with pytest.raises(MeasureError, match="CLIP reads at most 20") as raised:
        direction(source, edited, "a cup", "a cup " * 30, door)
    assert raised.value.status == "tool_failed"
