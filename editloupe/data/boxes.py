"""Boxes as data sets write them, read into pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, Literal, TypeAlias

from editloupe.data.tables import shown
from editloupe.values import Box, Json, check_extent, finite, parse_json

FORMATS: Final[Mapping[str, tuple[Literal["xyxy", "xywh", "yxyx"], Literal["px", "unit", "thousandths"]]]] = {
    "xyxy": ("xyxy", "px"),
    "xywh": ("xywh", "px"),
    "unit": ("xyxy", "unit"),
    "xywh_unit": ("xywh", "unit"),
    "thousandths": ("xyxy", "thousandths"),
    "xywh_thousandths": ("xywh", "thousandths"),
    "yxyx_thousandths": ("yxyx", "thousandths"),
}
"""What `bbox_format` may say: corners unless xywh, px unless unit (0..1) or thousandths (0..1000), x first unless yxyx."""
ROUNDING_PX: Final = 2.0
"""How far a box may reach beyond the image before it counts as wrong: annotation tools round."""
Quad: TypeAlias = tuple[float, float, float, float]
"""Four numbers as they were written."""


def read_quads(value: Json) -> tuple[Quad, ...]:
    """Parse a box `[a, b, c, d]` or a list of boxes, which may be written as JSON text, the brackets of one left out.

    None, "" and [] are no box. Raises ValueError, which says what was found.
    """
    if isinstance(value, str):
        text = value.strip()
        try:
            value = parse_json(text if text.startswith("[") else f"[{text}]")
            check_extent(value)
        except ValueError as error:
            raise ValueError(f"expected a box [a, b, c, d], found {shown(text)}") from error
    if value is None or value == []:
        return ()
    if not isinstance(value, Sequence):
        raise ValueError(f"expected a box [a, b, c, d], found {shown(value)}")
    return tuple(map(_quad, value if isinstance(value[0], list | tuple) else [value]))


def _quad(values: Json) -> Quad:
    numbers = [finite(value) for value in values] if isinstance(values, list | tuple) else []
    if len(numbers) != 4 or None in numbers:
        raise ValueError(f"expected four finite numbers [a, b, c, d], found {shown(values)}")
    a, b, c, d = numbers
    return a, b, c, d  # type: ignore[return-value]


def to_px(quad: Quad, bbox_format: str, *, width: int, height: int) -> Box:
    """Return the box in px of the image, unclipped. Raises ValueError: inverted or empty, out of scale."""
    order, scale = FORMATS[bbox_format]
    a, b, c, d = quad
    if order == "xywh":
        c, d = a + c, b + d
    elif order == "yxyx":
        a, b, c, d = b, a, d, c
    sides = {"px": (1.0, 1.0), "unit": (float(width), float(height)), "thousandths": (width / 1000, height / 1000)}
    return Box(a, b, c, d).scaled(*sides[scale])


def inside(box: Box, *, width: int, height: int) -> Box:
    """Return the box, cut at the border where it reaches at most `ROUNDING_PX` beyond it.

    Raises ValueError where it reaches further: then it is the wrong box or the wrong convention.
    """
    beyond = max(-box.x0, -box.y0, box.x1 - width, box.y1 - height)
    if beyond > ROUNDING_PX:
        corners = ", ".join(f"{v:g}" for v in box)
        raise ValueError(f"box [{corners}] px reaches outside the image of {width}×{height} px")
    return box.clipped(width=width, height=height)
