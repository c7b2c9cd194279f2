"""Edits with their differences in one JSON list, as people annotate them or as the published detector writes them.

A row has the two images, the instruction and either `differences`, a list of objects, or one difference of its own: then
the rows of one edit make one sample. A row with neither is an edit of which nobody said what changed.
Paths count from the file's folder. `given_boxes` says how boxes are written.

    [{"id": "7", "source": "a.png", "edited": "b.png", "prompt": "remove the cat",
      "differences": [{"op": "REMOVE", "object": "cat", "box": [0.1, 0.2, 0.3, 0.4], "coherent": true}]}]
    [{"original_path": "a.png", "edited_path": "b.png", "gt_prompt": "remove the cat",
      "operation": "REMOVE", "complete_difference": "REMOVE: cat", "bbox": [0.1, 0.2, 0.3, 0.4], "confidence": 0.9}]
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from editloupe.data.folders import Folder
from editloupe.data.loaders.base import DataSet
from editloupe.data.rows import Loaded, Row, assemble, named, read_row
from editloupe.data.tables import TableLine, shown
from editloupe.errors import SampleError
from editloupe.files import read_bytes
from editloupe.protocols.dice.differences import DIFFERENCES
from editloupe.values import Json, check_extent, parse_json

LAYOUT: Final = "differences.json: a JSON list of edits with their differences"
ENDINGS: Final = (".json",)
FILES: Final = ("differences.json", "predicted_differences.json")

_COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "source_file_name": ("source", "original", "original_path"),
    "edited_file_name": ("edited", "edited_path"),
    "instruction": ("prompt", "gt_prompt", "edit_prompt"),
}
"""Column → other names of it."""
_OPS: Final = ("op", "operation", "command")
_BOXES: Final = ("box", "bbox", "bounding_box")
_OBJECTS: Final = ("object", "subject", "complete_difference")
_OWN: Final = (*_OPS, *_BOXES, *_OBJECTS, "coherent", "confidence")


def matches(data: DataSet) -> bool:
    """Return whether such a file is there, or was named."""
    return _file(data) is not None


def load(data: DataSet) -> Loaded:
    """Load a sample an edit. Raises SampleError for a file that is no such list."""
    file = _file(data)
    assert file is not None
    rows: dict[str, TableLine] = {}
    for number, values in enumerate(_rows(file), start=1):
        line = _line(number, values)
        edit = [str(line.values.get(name)) for name in ("id", "editor", *_COLUMNS)]
        key = repr(edit) if _is_one_difference(values) else str(number)
        if key in rows:
            before, more = (one.values[DIFFERENCES] for one in (rows[key], line))
            assert isinstance(before, list) and isinstance(more, list)
            line = TableLine(number=rows[key].number, values={**rows[key].values, DIFFERENCES: [*before, *more]})
        rows[key] = line
    folder = Folder(file.parent, data.store)
    read: list[Row] = [read_row(line, folder=folder, text_only=False) for line in rows.values()]
    return assemble(named(read), format="dice", dataset="", metadata=file)


def _file(data: DataSet) -> Path | None:
    if data.metadata is not None:
        return data.metadata if data.metadata.name in FILES else None
    return next((path for name in FILES if (path := data.root / name).is_file()), None)


def _rows(file: Path) -> list[Mapping[str, Json]]:
    try:
        listed = parse_json(read_bytes(file).decode("utf-8-sig"))
        check_extent(listed)
    except (OSError, ValueError) as error:
        raise SampleError(f"cannot be read as JSON: {error}", file=file) from error
    if not isinstance(listed, list) or not listed:
        raise SampleError(f"expected a JSON list with a row for each edit, found {shown(listed)}", file=file)
    for number, row in enumerate(listed, start=1):
        if not isinstance(row, Mapping):
            raise SampleError(f"row {number}: expected an object, found {shown(row)}", file=file)
    return listed


def _line(number: int, row: Mapping[str, Json]) -> TableLine:
    """Return a row under the names of docs/data.md."""
    values = {name: value for name, value in row.items() if DIFFERENCES in row or name not in _OWN}
    for column, others in _COLUMNS.items():
        if column not in values and (name := next((name for name in others if name in values), None)):
            values[column] = values.pop(name)
    listed = row.get(DIFFERENCES)
    if _is_one_difference(row):
        listed = [row]
    if isinstance(listed, list):
        values[DIFFERENCES] = [_difference(one) if isinstance(one, Mapping) else one for one in listed]
    return TableLine(number=number, values=values)


def _is_one_difference(row: Mapping[str, Json]) -> bool:
    return DIFFERENCES not in row and any(name in row for name in _OPS)


def _difference(item: Mapping[str, Json]) -> dict[str, Json]:
    """Return a difference under our names."""
    found: dict[str, Json] = {}
    for name, others in (("op", _OPS), ("object", _OBJECTS), ("box", _BOXES)):
        found[name] = next((item[other] for other in others if other in item), None)
    words = found["object"]
    if isinstance(words, str) and words.partition(":")[0].strip() == found["op"]:
        found["object"] = words.partition(":")[2].strip()
    return found | {name: item[name] for name in ("coherent", "confidence") if name in item}
