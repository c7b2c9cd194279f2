"""The ImageFolder convention: `metadata.jsonl`, `.csv` or `.parquet` beside the images that its rows name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.data.folders import Folder
from editloupe.data.loaders.base import DataSet
from editloupe.data.outputs import with_outputs
from editloupe.data.rows import Loaded, assemble, named, rating_notes, read_row
from editloupe.data.tables import ENDINGS, MetadataTable, read_table
from editloupe.errors import DataError, SampleError, matched

LAYOUT: Final = "metadata.jsonl, metadata.csv or metadata.parquet with source_file_name, edited_file_name and instruction"

_EDITED: Final = ("edited_file_name", "edited_file_names")
_INSTRUCTION: Final = ("instruction", "instructions")
"""Of a row of one turn, and of one of several."""
_PATTERNS: Final = ("{id}", "{edited}", "{source}")


def matches(data: DataSet) -> bool:
    """Return whether a metadata file lies in the folder."""
    return bool(_files(data.root))


def load(data: DataSet) -> Loaded:
    """Load one sample a row. With `data.edited`, each row once for each editor, whose files replace those of the row.

    Raises SampleError where the file lacks a column, DataError where it is not clear which file is meant.
    """
    root, metadata = data.root, data.metadata
    folder = Folder(root, data.store)
    if metadata is None:
        found = _files(root)
        if not found:
            raise DataError(f"{root}: no metadata file; expected {LAYOUT}")
        if len(found) > 1:
            names = ", ".join(file.name for file in found)
            raise DataError(f"{root}: several metadata files: {names}; give the path of the one that is meant")
        metadata = found[0]
    table = read_table(folder.own(metadata.name))
    _check_columns(table, with_edited=data.outputs and not data.edited)
    rows = [read_row(line, folder=folder, text_only=table.text_only) for line in table.lines]
    notes = list(rating_notes(table.columns))
    if data.edited:
        rows = [replace(row, editor="") for row in rows]
        matched = with_outputs(named(rows), data.edited, store=data.store, patterns=_PATTERNS)
        rows = list(matched.rows)
        notes.extend(matched.notes)
        if own := [name for name in _EDITED if name in table.columns]:
            verb = "names" if len(own) == 1 else "name"
            notes.append(f"{' and '.join(own)} {verb} no image here: the outputs come from the editors' own folders")
    else:
        rows = list(named(rows))
    return assemble(rows, format="imagefolder", dataset=root.resolve().name, metadata=metadata, notes=notes)


def _files(root: Path) -> list[Path]:
    return [file for ending in ENDINGS if (file := root / f"metadata{ending}").is_file()]


_USUAL: Final[Mapping[str, tuple[str, ...]]] = {
    "source_file_name": ("source", "source_image", "input", "input_image", "original", "before"),
    "edited_file_name": ("edited", "edited_image", "output", "output_image", "after"),
    "instruction": ("prompt", "edit_prompt", "edit_instruction", "text"),
}
"""Column → what others usually call it."""


def _check_columns(table: MetadataTable, *, with_edited: bool) -> None:
    columns = (("source_file_name",), *((_EDITED,) if with_edited else ()), _INSTRUCTION)
    needed = [names[0] for names in columns]
    missing = [names[0] for names in columns if not any(name in table.columns for name in names)]
    if not missing or not table.columns:
        return  # without columns every line is broken, and each will say how
    others = [name for name in table.columns if not any(name in names for names in columns)]
    usual = {name: next((own for own in _USUAL.get(name, ()) if own in others), "") for name in missing}
    # Ratings are no column of the edit itself, however much their names have in common with one.
    rest = [name for name in others if name not in usual.values() and not name.startswith("human_")]
    near = {**matched([name for name in missing if not usual[name]], rest), **{n: own for n, own in usual.items() if own}}
    hints = [f"{near[name]!r} meant as {name!r}" for name in missing if name in near]
    raise SampleError(
        f"missing column {', '.join(missing)}; expected {', '.join(needed)}; found {', '.join(table.columns)}"
        + (f" (is {', '.join(hints)}?)" if hints else "; rename or add the column"),
        file=table.file,
    )
