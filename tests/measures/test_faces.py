"""Face consistency: cosines worked out by hand, which faces are compared, and what has no value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.errors import MeasureError
from editloupe.measures.base import Measured, measured
from editloupe.models.faces import Face
from editloupe.values import Box

Row = tuple[tuple[float, float, float, float], Sequence[float]]
SOURCE: RGB = np.zeros((100, 200, 3), np.uint8)
EDITED: RGB = np.full((50, 100, 3), 255, np.uint8)
"""Half the size: a place is a share of the image's sides."""


class Fake:
    """An embedder that finds what it is told: boxes with vectors, in the source (dark) and in the edited image."""

    name, version = "fake", "1"

    def __init__(self, source: Sequence[Row], edited: Sequence[Row]) -> None:
        self.rows = {0: source, 255: edited}

    def __call__(self, rgb: RGB, *, score: float, side: int) -> list[Face]:
        rows = self.rows[int(rgb[0, 0, 0])]
        return [Face(box=Box(*box), score=score, vector=np.array(v, np.float32)) for box, v in rows]

    def get(self, kind: str) -> Fake:
        assert kind == "faces"
        return self


LEFT, RIGHT = (10.0, 10.0, 50.0, 50.0), (110.0, 10.0, 150.0, 50.0)
HALF_LEFT, HALF_RIGHT = (5.0, 5.0, 25.0, 25.0), (55.0, 5.0, 75.0, 25.0)


def face(source: Sequence[Row], edited: Sequence[Row], *, mask: RGB | None = None, **args: Any) -> Measured:
    images: Mapping[str, RGB] = {"source": SOURCE, "edited": EDITED, **({} if mask is None else {"mask": mask})}
    given = {"mask": "none", **args} if mask is None else args
    return measured("face", given, images, Fake(source, edited))  # type: ignore[arg-type]


def test_one_face_is_the_cosine_of_its_vectors() -> None:
    # (3, 4) · (4, 3) = 24, of lengths 5 and 5.
    for before, after, cosine in (((3, 4), (4, 3), 0.96), ((1, 0), (10, 0), 1.0), ((1, 2), (-2, -4), -1.0)):
        found = face([(LEFT, before)], [(HALF_LEFT, after)])
        assert found.answer.value == pytest.approx(cosine, abs=1e-6)
        assert found.reason == "1 of 1 face compared, matched by cosine"
        pair = {"source": list(LEFT), "edited": list(HALF_LEFT), "cosine": pytest.approx(cosine, abs=1e-6)}
        assert found.data["pairs"] == [pair]


def test_several_faces_are_matched_so_that_they_are_most_alike_together() -> None:
    # Two people change places. By cosine each is found again.
    source, edited = [(LEFT, (1, 0)), (RIGHT, (0, 1))], [(HALF_LEFT, (0, 1)), (HALF_RIGHT, (1, 0))]
    assert face(source, edited).answer.value == pytest.approx(1.0)
    # (1 + 0.6) / 2: the best sum, although (0.8, 0.6) is most like the second of the source.
    edited = [(HALF_LEFT, (1, 0)), (HALF_RIGHT, (0.8, 0.6))]
    assert face(source, edited).answer.value == pytest.approx(0.8)


def test_a_face_that_is_lost_or_new_is_said_and_is_no_number() -> None:
    two, one = [(LEFT, (1, 0)), (RIGHT, (0, 1))], [(HALF_RIGHT, (0, 3))]
    found = face(two, one)
    assert (found.answer.value, found.reason) == (
        pytest.approx(1.0),
        "1 of 2 faces compared, matched by cosine; 1 not found again",
    )
    assert found.data["faces"] == {"source": 2, "edited": 1, "matched": 1, "inside_mask": 0}
    assert face([(RIGHT, (0, 1))], [(HALF_LEFT, (1, 0)), *one]).reason.endswith("1 only in the edited image")


def undefined(source: Sequence[Row], edited: Sequence[Row], **args: Any) -> str:
    with pytest.raises(MeasureError) as raised:
        face(source, edited, **args)
    assert raised.value.status == "not_defined"
    return str(raised.value)


def test_no_face_is_no_value() -> None:
    one = [(LEFT, (1.0, 0.0))]
    assert undefined([], one) == "the source has no face with a score of 0.9 or more"
    told = undefined(one, [], face_score=0.5)
    assert told.startswith("the edited image has no face with a score of 0.5 or more, the source has 1 face: lost, or no")
    assert "not a similarity of 0" in told
    for vector in ((0.0, 0.0), (float("nan"), 1.0), (float("inf"), 1.0)):
        assert "a vector without a direction" in undefined(one, [(HALF_LEFT, vector)])
