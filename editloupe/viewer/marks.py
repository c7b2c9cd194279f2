"""The boxes that a page draws on an image, and the place that a sample's page is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from editloupe.values import Box, ImageRef, Sample

SMALL: Final = 0.01
"""Share of the image below which a page opens zoomed to its place."""


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


@dataclass(frozen=True, kw_only=True)
class Home:
    """The place that a sample's page is about."""

    box: tuple[float, float, float, float]
    """Shares of the image, 0 to 1: x0, y0, x1, y1."""
    name: str
    opens: bool
    """Whether it is so small that the page opens there."""


def targets(edit: Sample | None) -> list[Mark]:
    """Return the targets' boxes on source and edited image. A box not given for the edited image is scaled."""
    found: list[Mark] = []
    for number, target in enumerate(() if edit is None else edit.targets, start=1):
        assert edit is not None
        name = target.name or ("Target" if len(edit.targets) == 1 else f"Target {number}")
        source = target.boxes.get("source")
        if source is not None:
            found.append(Mark(kind="target", image=edit.source, box=source, name=name))
        if edit.edited is None or edit.edited == edit.source:
            continue
        edited = target.boxes.get("edited")
        if edited is None and source is not None:
            sx, sy = edit.edited.width / edit.source.width, edit.edited.height / edit.source.height
            edited, name = source.scaled(sx, sy), f"{name} (box of the source)"
        if edited is not None:
            found.append(Mark(kind="target", image=edit.edited, box=edited, name=name))
    return found


def home(edit: Sample | None, marks: Sequence[Mark]) -> Home | None:
    """Return where the targets are, else the places that the first answer with any names; None where nothing is known."""
    if edit is None:
        return None
    shown = [m for m in marks if m.image in (edit.source, edit.edited)]
    found = [m for m in shown if m.kind == "target" and m.image == edit.source]
    name = "the target" if len(found) == 1 else "the targets"
    if not found:
        named = [m for m in shown if m.kind in ("evidence", "found")]
        found = [m for m in named if m.verdict == named[0].verdict]
        name = "what the answer names"
    if not found:
        return None
    boxes = [m.box.scaled(1 / m.image.width, 1 / m.image.height) for m in found]
    x0, y0 = min(b.x0 for b in boxes), min(b.y0 for b in boxes)
    x1, y1 = max(b.x1 for b in boxes), max(b.y1 for b in boxes)
    return Home(box=(x0, y0, x1, y1), name=name, opens=(x1 - x0) * (y1 - y0) < SMALL)
