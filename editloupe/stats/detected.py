"""Tables of detected boxes: average precision with and without confidences.

Boxes are rows of the frame of scores with the columns `x0`, `y0`, `x1`, `y1`, fractions of an image of `width` × `height`
px, and for detected ones `confidence` and `confidence_source`, None for a detector that gives none. No I/O.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editloupe.stats.detection import ImageBoxes, average_precision
from editloupe.stats.pivot import Rows
from editloupe.stats.table import Cell, Column, Row, Table, label_columns, words


@dataclass(frozen=True, kw_only=True)
class SeenImage:
    """What was detected in one image, and what is there."""

    found: Rows
    truth: Rows
    found_class: str
    """The column with the class of a detected box."""
    truth_class: str
    """The column with the class of a true box."""

    def boxes(self) -> ImageBoxes:
        """Return the boxes in px, without confidences where one of them is not known."""

        def px(row: Mapping[str, Any]) -> tuple[float, ...]:
            width, height = row["width"], row["height"]
            return row["x0"] * width, row["y0"] * height, row["x1"] * width, row["y1"] * height

        sure = [row["confidence"] for row in self.found if _sure(row)]
        return ImageBoxes(
            found=[px(row) for row in self.found],
            truth=[px(row) for row in self.truth],
            confidences=sure if len(sure) == len(self.found) else None,
            found_classes=[row[self.found_class] for row in self.found],
            truth_classes=[row[self.truth_class] for row in self.truth],
        )


@dataclass(frozen=True, kw_only=True)
class Average:
    """One column of average precision."""

    title: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    """Of `average_precision`."""
    keys: Mapping[str, str]
    """What the figure is, for files."""
    by_class: bool = True
    """Whether a box counts only where its class is right."""


def precision_table(
    name: str, title: str, images: Sequence[SeenImage], figures: Sequence[Average], *, asked: int, caption: str
) -> Table:
    """Return average precision × 100: a line by confidence, where every detection has one of one source, and one without.

    images: those whose detections are known.   asked: how many images there are.
    """
    boxes = [image.boxes() for image in images]
    rows = [row for image in images for row in image.found]
    lacking, areas = sum(not _sure(row) for row in rows), sum(len(one.truth) for one in boxes)
    counts = (
        Cell(value=f"{len(boxes)}/{asked}", name="", more={"judged": len(boxes), "asked": asked}),
        Cell(value=len(rows), name="differences"),
        Cell(value=areas, name="areas"),
    )
    lines = {"none": _averages([one.without_confidences() for one in boxes], figures)}
    if sources := list(dict.fromkeys(str(row.get("confidence_source") or "not named") for row in rows if _sure(row))):
        why = f"{lacking} of {len(rows)} differences have none" if lacking else "they have several sources"
        missing = [Cell(name="ap", why="" if place else why) for place in range(len(figures))]
        own = missing if lacking or len(sources) > 1 else _averages(boxes, figures)
        lines = {" and ".join(sources): own, **lines}
    counted = (Column(title=head, keys={"figure": "counts"}) for head in ("Images", "Differences", "Areas"))
    return Table(
        name=name,
        title=title,
        columns=(
            *label_columns("Confidence"),
            *counted,
            *(Column(title=figure.title, keys=figure.keys) for figure in figures),
        ),
        rows=tuple(Row(cells=(words(line), *counts, *cells), keys={"confidence": line}) for line, cells in lines.items()),
        at_once=8,
        caption=caption,
    )


def _averages(boxes: Sequence[ImageBoxes], figures: Sequence[Average]) -> list[Cell]:
    alike = [one.without_classes() for one in boxes]
    values = [average_precision(boxes if figure.by_class else alike, **figure.arguments) for figure in figures]
    return [
        Cell(value=None if v is None else 100 * v, name="ap", digits=1, why="no such area" if v is None else "")
        for v in values
    ]


def _sure(row: Mapping[str, Any]) -> bool:
    return row.get("confidence") is not None
