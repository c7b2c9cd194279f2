"""Boxes as data sets write them, read into pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, cast

from editloupe.data.tables import shown
from editloupe.values import Box, Json, check_extent, finite, parse_json

BoxOrder: TypeAlias = Literal["xyxy", "xywh", "yxyx"]
BoxScale: TypeAlias = Literal["px", "unit", "thousandths"]

FORMATS: Final[Mapping[str, tuple[BoxOrder, BoxScale]]] = {
    "xyxy": ("xyxy", "px"),
    "xywh": ("xywh", "px"),
    "unit": ("xyxy", "unit"),
    "xywh_unit": ("xywh", "unit"),
    "thousandths": ("xyxy", "thousandths"),
    "xywh_thousandths": ("xywh", "thousandths"),
    "yxyx_thousandths": ("yxyx", "thousandths"),
}
"""What `bbox_format` may say: corners unless xywh, px unless unit (0..1) or thousandths (0..1000), x first unless yxyx."""
_KEYS: Final[Mapping[BoxOrder, Sequence[str]]] = {
    "xywh": ("x y w h", "x y width height", "left top width height"),
    "xyxy": ("x0 y0 x1 y1", "x1 y1 x2 y2", "xmin ymin xmax ymax", "x_min y_min x_max y_max", "left top right bottom"),
}
"""Keys of an object that is a box, by what they tell of its order."""

ROUNDING_PX: Final = 2.0
"""How far a box may reach beyond the image before it counts as wrong: annotation tools round."""


@dataclass(frozen=True, kw_only=True)
class Quad:
    """Four numbers as they were written; `order` is known only where their form tells it (an object's keys)."""

    values: tuple[float, float, float, float]
    order: BoxOrder | None = None


def known_format(name: str) -> str:
    """Return the name of a format of boxes. Raises ValueError for another name."""
    if name not in FORMATS:
        raise ValueError(f"expected one of {', '.join(FORMATS)}")
    return name


def read_quads(value: Json) -> tuple[Quad, ...]:
    """Parse one box or several.

    Taken are `[a, b, c, d]`, a list of those, "a,b,c,d" (several with ";"), `[[a, b], [c, d]]`, an object with x, y, w, h
    or the names of the corners, and any of these as JSON text. None, "" and [] are no box.

    Raises ValueError, which says what was found.
    """
    if value is None:
        return ()
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, Mapping):
        return (_from_object(value),)
    if not isinstance(value, Sequence):
        raise ValueError(f"expected a box [a, b, c, d], found {shown(value)}")
    if not value:
        return ()
    if all(isinstance(v, int | float) for v in value):
        return (_quad(value),)
    if len(value) == 2 and all(_is_point(v) for v in value):
        corners = [number for point in cast("Sequence[Sequence[Json]]", value) for number in point]
        return (_quad(corners, "xyxy"),)
    quads: list[Quad] = []
    for part in value:
        found = read_quads(part)
        if len(found) != 1:
            raise ValueError(f"expected a list of boxes [[a, b, c, d], …], found {shown(part)} in it")
        quads += found
    return tuple(quads)


def to_px(quad: Quad, bbox_format: str, *, width: int, height: int) -> Box:
    """Return the box in px of the image, unclipped. Raises ValueError: inverted or empty, out of scale."""
    order, scale = FORMATS[bbox_format]
    a, b, c, d = quad.values
    order = quad.order or order
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


def _from_text(text: str) -> tuple[Quad, ...]:
    text = text.strip()
    if not text:
        return ()
    if text[0] in "[{":
        try:
            found = parse_json(text)
            check_extent(found)
        except ValueError as error:
            raise ValueError(f'expected a box as JSON or as "a,b,c,d", found {shown(text)}') from error
        return read_quads(found)
    try:
        boxes = [[float(v) for v in part.replace(",", " ").split()] for part in text.split(";") if part.strip()]
    except ValueError as error:
        raise ValueError(f'expected four numbers "a,b,c,d", found {shown(text)}') from error
    return tuple(map(_quad, boxes))


def _from_object(value: Mapping[str, Json]) -> Quad:
    lowered = {str(k).lower(): v for k, v in value.items()}
    for order, spellings in _KEYS.items():
        for names in map(str.split, spellings):
            if all(name in lowered for name in names):
                return _quad([lowered[name] for name in names], order)
    raise ValueError(
        f"expected a box with the keys x, y, w, h or x0, y0, x1, y1 (or xmin, ymin, xmax, ymax), "
        f"found the keys {', '.join(map(str, value)) or 'none'}"
    )


def _quad(values: Sequence[Json], order: BoxOrder | None = None) -> Quad:
    if len(values) != 4:
        raise ValueError(f"expected four numbers, found {len(values)}: {shown(list(values))}")
    numbers = []
    for value in values:
        number = finite(value)
        if number is None:
            raise ValueError(f"expected four finite numbers, found {shown(value)} among them")
        numbers.append(number)
    a, b, c, d = numbers
    return Quad(values=(a, b, c, d), order=order)


def _is_point(value: Json) -> bool:
    numbers = value if isinstance(value, Sequence) and not isinstance(value, str) else ()
    return len(numbers) == 2 and all(isinstance(v, int | float) and not isinstance(v, bool) for v in numbers)
