"""The number of a scale is read as it is said, or not at all; every case worked by hand."""

from __future__ import annotations

import pytest

from editloupe.answers import Scale
from editloupe.errors import ReplyError

TEN, HUNDRED, SIGNED = Scale(low=0, high=10), Scale(low=0, high=100), Scale(low=-5, high=5)


@pytest.mark.parametrize(
    ("scale", "text", "value"),
    [
        (TEN, ".5", 0.5),
        (TEN, "**.5**", 0.5),
        (TEN, "...5", 5),
        (TEN, "Score. 5", 5),
        (TEN, "Score - 8", 8),
        (TEN, "7/10", 7),
        (SIGNED, "-3", -3),
        (SIGNED, "–3", -3),
        (SIGNED, "−3", -3),
        (SIGNED, "‑3", -3),
        (SIGNED, "- 3", -3),
        (SIGNED, "Score: − 3", -3),
        (SIGNED, "**– 3**", -3),
        (SIGNED, "(−.5)", -0.5),
        (SIGNED, "3", 3),
        (HUNDRED, "85%", 85),
        (HUNDRED, "85 %", 85),
    ],
)
def test_a_number_is_read_as_it_is_said(scale: Scale, text: str, value: float) -> None:
    assert scale.parse(text).value == value


@pytest.mark.parametrize(
    ("scale", "text", "status"),
    [
        (TEN, "5%", "unparsed"),
        (TEN, "5 %", "unparsed"),
        (Scale(low=0, high=1), ".5%", "unparsed"),
        (HUNDRED, "5‰", "unparsed"),
        (HUNDRED, "8²", "unparsed"),
        (HUNDRED, "8₂", "unparsed"),
        (HUNDRED, "8½", "unparsed"),
        (SIGNED, "Score – 3", "unparsed"),
        (SIGNED, "—3", "unparsed"),
        (SIGNED, "--3", "unparsed"),
        (TEN, "–8", "off_menu"),
        (TEN, "- 8", "off_menu"),
    ],
)
def test_a_number_that_is_not_plain_is_none(scale: Scale, text: str, status: str) -> None:
    with pytest.raises(ReplyError) as raised:
        scale.parse(text)
    assert raised.value.status == status
