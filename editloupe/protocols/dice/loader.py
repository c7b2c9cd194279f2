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

_NAMES: Final = {
    "op": ("op", "operation", "command"),
    "object": ("object", "subject", "complete_difference"),
    "box": ("box", "bbox", "bounding_box"),
}
"""Our name → the columns that hold it, the published detector's last."""
_KEPT: Final = ("coherent", "confidence")
_OWN: Final = frozenset((*(name for names in _NAMES.values() for name in names), *_KEPT))


class DiceData(Mapped):
    """The rows, those of one edit as one."""

    def tables(self, layout: Layout, shape: RowShape, files: Sequence[Path], data: DataSet) -> Iterator[Rows]:
        for rows in super().tables(layout, shape, files, data):
            yield replace(rows, table=replace(rows.table, lines=tuple(_edits(rows))))


DICE: Final = DiceData(Path(__file__).with_name("dice.toml"))


def _edits(rows: Rows) -> Iterator[TableLine]:
    """Yield a line for each edit, with its differences under our names."""
    columns = ("id", "editor", *(name for names in rows.roles.values() for name in names))
    found: dict[str, TableLine] = {}
    differences: dict[str, list[Json]] = {}
    for line in rows.table.lines:
        row, whole = line.values, DIFFERENCES in line.values
        alone = not whole and any(name in row for name in _NAMES["op"])
        key = repr([row.get(name) for name in columns]) if alone else str(line.number)
        found.setdefault(key, line if whole else replace(line, values={n: v for n, v in row.items() if n not in _OWN}))
        listed = [row] if alone else row.get(DIFFERENCES)
        if isinstance(listed, list):
            differences.setdefault(key, []).extend(_difference(one) if isinstance(one, Mapping) else one for one in listed)
    for key, line in found.items():
        listed = differences.get(key)
        yield line if listed is None else replace(line, values={**line.values, DIFFERENCES: listed})


def _difference(item: Mapping[str, Json]) -> dict[str, Json]:
    """Return a difference under our names. The published detector writes "ADD: lamp" for an object."""
    found = {name: next((item[one] for one in names if one in item), None) for name, names in _NAMES.items()}
    words = found["object"]
    if isinstance(words, str) and words.partition(":")[0].strip() == found["op"]:
        found["object"] = words.partition(":")[2].strip()
    return found | {name: item[name] for name in _KEPT if name in item}
