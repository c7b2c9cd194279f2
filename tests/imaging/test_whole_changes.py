"""What happened to the whole picture is named, and only where it is true."""

from __future__ import annotations

from collections.abc import Callable

import cv2
import numpy as np
import pytest

from editloupe.data.images import RGB
from editloupe.imaging.differences import localize
from tests.imaging.drawn import jpeg, textured, with_square

SEPIA = np.array([[0.393, 0.769, 0.189], [0.349, 0.686, 0.168], [0.272, 0.534, 0.131]])


def grey(rgb: RGB) -> RGB:
    return np.asarray(cv2.cvtColor(cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB), dtype=np.uint8)


def sepia(rgb: RGB) -> RGB:
    return np.clip(rgb @ SEPIA.T, 0, 255).astype(np.uint8)


def filtered(rgb: RGB) -> RGB:
    """As through an orange glass: more than the tone may undo."""
    return (rgb * np.array([1.0, 0.6, 0.2])).astype(np.uint8)


@pytest.mark.parametrize(
    ("pair", "expected"),
    [
        (lambda p: (p, grey(p)), ("grey",)),
        (lambda p: (p, jpeg(grey(p), 80)), ("grey",)),
        (lambda p: (grey(p), p), ("coloured",)),
        (lambda p: (p, sepia(p)), ("tinted",)),
        (lambda p: (p, filtered(p)), ("tinted",)),
        (lambda p: (p, textured(480, 360, seed=9)), ("unrelated",)),
        (lambda p: (p, grey(p[:, ::-1])), ("mirrored", "grey")),
        (lambda p: (p, p[::-1]), ("flipped",)),
        (lambda p: (p, np.rot90(p)), ("turned",)),
    ],
    ids=["grey", "grey jpeg", "coloured", "sepia", "filter", "unrelated", "mirrored and grey", "upside down", "turned"],
)
def test_a_change_of_the_whole_is_named(pair: Callable[[RGB], tuple[RGB, RGB]], expected: tuple[str, ...]) -> None:
    first, second = (np.ascontiguousarray(p) for p in pair(textured(480, 360)))
    found = localize(first, second)
    assert found.whole_changes == expected
    assert found.widespread


@pytest.mark.parametrize(
    "pair",
    [
        lambda p: (p, with_square(p, (40, 40, 440, 320))),
        lambda p: (p, 255 - p),
        lambda p: (p, np.clip(p + 30.0, 0, 255).astype(np.uint8)),
        lambda p: (grey(p), grey(textured(480, 360) // 2 + 60)),
        lambda p: (p, np.roll(p, (12, 20), (0, 1))),
        lambda p: (sepia(p), np.clip(sepia(p) * 0.8, 0, 255).astype(np.uint8)),
        lambda p: (p, jpeg(p, 20)),
        lambda p: (p, np.full_like(p, 255)),
        lambda p: (np.full_like(p, 255), p),
        lambda p: (np.full_like(p, (200, 30, 30)), np.full_like(p, (30, 30, 200))),
    ],
    ids=[
        "a large edit",
        "negative",
        "brighter",
        "grey before",
        "moved",
        "sepia before",
        "compressed",
        "emptied",
        "filled",
        "one colour",
    ],
)
def test_what_is_no_such_change_has_no_name(pair: Callable[[RGB], tuple[RGB, RGB]]) -> None:
    assert localize(*pair(textured(480, 360))).whole_changes == ()


def test_a_picture_too_small_for_a_turn_to_be_sought_is_not_called_unrelated() -> None:
    picture = textured(248, 248)[::8, ::8]
    found = localize(picture, np.ascontiguousarray(np.rot90(picture)))
    assert found.regenerated and found.whole_changes == ()


@pytest.mark.parametrize("value", [0, 255])
def test_a_picture_that_was_emptied_has_no_other_tone(value: int) -> None:
    picture = textured(480, 360)
    found = localize(picture, np.full_like(picture, value))
    assert found.tone.neutral and found.tone_most == 0
    assert found.regenerated
