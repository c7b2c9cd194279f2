"""Edits with their differences in one JSON list, as people annotate them or as the published detector writes them.

A row has the two images, the instruction and either `differences`, a list of objects, or one difference of its own: then
the rows of one edit make one sample. A row with neither is an edit of which nobody said what changed.
`given_boxes` says how boxes are written. Which columns hold the images is said by `dice.toml`.

    [{"id": "7", "source": "a.png", "edited": "b.png", "prompt": "remove the cat",
      "differences": [{"op": "REMOVE", "object": "cat", "box": [0.1, 0.2, 0.3, 0.4], "coherent": true}]}]
    [{"original_path": "a.png", "edited_path": "b.png", "gt_prompt": "remove the cat",
      "operation": "REMOVE", "complete_difference": "REMOVE: cat", "bbox": [0.1, 0.2, 0.3, 0.4], "confidence": 0.9}]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.data.loaders.base import DataSet
from editloupe.data.loaders.layout import Layout, RowShape
from editloupe.data.loaders.mapped import Mapped, Rows
from editloupe.data.tables import TableLine
from editloupe.protocols.dice.differences import DIFFERENCES
from editloupe.values import Json

_OPS: Final = ("op", "operation", "command")
_BOXES: Final = ("box", "bbox", "bounding_box")
_OBJECTS: Final = ("object", "subject", "complete_difference")
_OWN: Final = (*_OPS, *_BOXES, *_OBJECTS, "coherent", "confidence")


class DiceData(Mapped):
    """The rows, those of one edit as one."""

    def tables(self, layout: Layout, shape: RowShape, files: Sequence[Path], data: DataSet) -> Iterator[Rows]:
        for rows in super().tables(layout, shape, files, data):
            yield replace(rows, table=replace(rows.table, lines=tuple(_edits(rows))))


DICE: Final = DiceData(Path(__file__).with_name("dice.toml"))


def _edits(rows: Rows) -> Iterator[TableLine]:
    """Yield a line for each edit, with its differences under our names."""
    found: dict[str, TableLine] = {}
    for line in rows.table.lines:
        row = line.values
        alone = DIFFERENCES not in row and any(name in row for name in _OPS)
        listed = [row] if alone else row.get(DIFFERENCES)
        values = {name: value for name, value in row.items() if DIFFERENCES in row or name not in _OWN}
        if isinstance(listed, list):
            values[DIFFERENCES] = [_difference(one) if isinstance(one, Mapping) else one for one in listed]
        names = ("id", "editor", *(name for its in rows.roles.values() for name in its))
        key = repr([row.get(name) for name in names]) if alone else str(line.number)
        before = found[key].values[DIFFERENCES] if key in found else []
        assert isinstance(before, list)
        merged = {**values, DIFFERENCES: [*before, *values[DIFFERENCES]]} if before else values  # type: ignore[misc]
        found.setdefault(key, line)
        found[key] = replace(found[key], values=merged)
    yield from found.values()


def _difference(item: Mapping[str, Json]) -> dict[str, Json]:
    """Return a difference under our names."""
    found: dict[str, Json] = {}
    for name, others in (("op", _OPS), ("object", _OBJECTS), ("box", _BOXES)):
        found[name] = next((item[other] for other in others if other in item), None)
    words = found["object"]
    if isinstance(words, str) and words.partition(":")[0].strip() == found["op"]:
        found["object"] = words.partition(":")[2].strip()
    return found | {name: item[name] for name in ("coherent", "confidence") if name in item}
