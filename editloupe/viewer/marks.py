"""The boxes that a page draws on an image, and where their names stand."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from typing import Final

from editloupe.values import Box, ImageRef


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A box in px of one image: a target, a crop's place, evidence, or a place that an answer gives."""

    kind: str
    image: ImageRef
    box: Box
    name: str
    id: str = ""
    verdict: str = ""
    """Id of the verdict that it belongs to; "" for a target."""
    step: str = ""
    """Id of the step that it belongs to."""
    item: int = 0
    """Of a place that an answer gives, its number from 1."""
    told: str = ""
    """What was said of that item, one of `listed.SIGNS`; "" where nothing is asked about it."""
    sign: str = ""
    row: int = 0
    """Lines by which its name stands lower, so that it does not cover that of a mark whose box begins at the same place."""


_NAME_SHARES: Final = (0.14, 0.05)
"""Width and height of a mark's name, at most, as shares of its image in a small window."""


def named_apart(marks: Iterable[Mark]) -> list[Mark]:
    """Return marks with their `row`: names of one verdict's crops and evidence whose boxes begin close together."""
    found: list[Mark] = []
    before: dict[tuple[str, str], list[Mark]] = {}
    for mark in marks:
        own = before.setdefault((mark.verdict, mark.kind), [])
        if mark.kind in ("crop", "evidence"):
            taken = {other.row for other in own if other.name != mark.name and _meet(mark, other)}
            mark = replace(mark, row=next(n for n in count() if n not in taken))
            own.append(mark)
        found.append(mark)
    return found


def _meet(one: Mark, other: Mark) -> bool:
    """Whether the names of two marks would cover each other on one line."""
    places = zip(_corner(one), _corner(other), _NAME_SHARES, strict=True)
    return all(abs(a - b) < most for a, b, most in places)


def _corner(mark: Mark) -> tuple[float, float]:
    """The top left corner of its box, as shares of the image."""
    return mark.box.x0 / mark.image.width, mark.box.y0 / mark.image.height
