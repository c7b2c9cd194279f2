"""DLEBench as it is downloaded, with the outputs of the editors to be judged in folders of their own.

What `dlebench.toml` cannot say: boxes that lie in a file of their own. How boxes are written is stated and never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.data.boxes import FORMATS
from editloupe.data.folders import Folder
from editloupe.data.loaders.base import BoxFile, DataSet
from editloupe.data.loaders.layout import Layout
from editloupe.data.loaders.mapped import Mapped, Rows
from editloupe.data.rows import DataRow, RejectedRow, Row, named, read_row
from editloupe.data.tables import MetadataTable, TableLine, read_table
from editloupe.errors import ConfigError, SampleError
from editloupe.values import Json

_SHOWN: Final = 3


class DLEBenchData(Mapped):
    """The rows, with their boxes."""

    boxes_as = None

    def layout(self, data: DataSet) -> Layout:
        found = super().layout(data)
        way = found.options["bbox_format"]
        if way and way not in FORMATS:
            raise ConfigError(f"[options] bbox_format {way!r}; expected one of {', '.join(FORMATS)}")
        return found

    def matches(self, data: DataSet) -> bool:
        return (data.root / self.layout(data).folders["source"][0]).is_dir() and super().matches(data)

    def box_file(self, fields: Path | None) -> BoxFile:
        """Return the sidecar, with the first of the keys that it may have. Raises ConfigError for a malformed mapping."""
        layout = Layout.read(self.file, fields)
        id_key, boxes_key = layout.columns["id"][0], layout.columns["bboxes"][0]
        return BoxFile(name=layout.options["sidecar"], id_key=id_key, boxes_key=boxes_key)

    def notes(self, tables: Sequence[Rows]) -> Iterable[str]:
        (rows,) = tables
        if rows.table.columns:
            yield "keys: " + ", ".join(f"{role} = {name}" for role, (name, *_) in rows.roles.items())
        yield from super().notes(tables)

    def row(self, line: TableLine, rows: Rows, language: str = "") -> Row:
        row = super().row(line, rows, language)
        if isinstance(row, RejectedRow):
            return row
        stems = (None if row.reference is None else row.reference.stem, row.source.stem)
        return replace(row, editor="", hints=tuple(stem for stem in stems if stem))

    def read(self, tables: Sequence[Rows], data: DataSet, notes: list[str]) -> list[Row]:
        (rows,) = tables
        # Named first: the ids of rows that state none are those by which the sidecar may know them.
        found: Sequence[Row] = named(super().read(tables, data, notes))
        sidecar = rows.shape.options["sidecar"]
        if (data.root / sidecar).is_file():
            found = _with_sidecar(found, read_table(Folder(data.root, data.store).own(sidecar)), rows, notes)
        return _with_format(found, rows.shape.options["bbox_format"], notes)


DLEBENCH: Final = DLEBenchData(Path(__file__).with_name("dlebench.toml"))


def _with_sidecar(found: Sequence[Row], table: MetadataTable, rows: Rows, notes: list[str]) -> list[Row]:
    """Add boxes from the sidecar to rows without, by id, one or more lines each. Raises SampleError: a broken line."""
    beside: dict[str, DataRow] = {}
    for line in table.lines:
        own = {role: _first(line, rows.shape.columns[role]) for role in ("id", "bboxes", "bbox_format")}
        values = {"source_file_name": "none", "instruction": "none", **own}
        row = read_row(replace(line, values=values), folder=rows.images, text_only=False, bbox_format=None)
        if isinstance(row, RejectedRow):
            raise SampleError(row.message, file=table.file, line=line.number)
        if not row.id:
            raise SampleError("names no row; expected its id", file=table.file, line=line.number)
        before = beside.get(row.id, row)
        beside[row.id] = row if before is row else replace(before, quads=(*before.quads, *row.quads))
    out: list[Row] = []
    for row in found:
        its = beside.get(row.id) if isinstance(row, DataRow) and not row.quads else None
        if isinstance(row, DataRow) and its is not None:
            # Boxes of the reference are written as the row says, or as is stated for all.
            way = row.bbox_format if row.role_quads else its.bbox_format or row.bbox_format
            row = replace(row, quads=its.quads, bbox_format=way)
        out.append(row)
    filled = sum(row is not before for row, before in zip(out, found, strict=True))
    notes.append(f"{table.file.name}: boxes for {filled} rows")
    return out


def _first(line: TableLine, keys: Sequence[str]) -> Json:
    return next((line.values[key] for key in keys if line.values.get(key) is not None), None)


def _with_format(rows: Sequence[Row], way: str, notes: list[str]) -> list[Row]:
    """Return the rows with how their boxes are written, as stated for all where a row does not say it.

    Raises ConfigError for boxes of which nothing says it.
    """
    with_boxes = [row for row in rows if isinstance(row, DataRow) and (row.quads or row.role_quads)]
    if not with_boxes:
        notes.append("no row has a box; the oracle-guided mode needs them")
    if bare := [row for row in with_boxes if not (row.bbox_format or way)]:
        seen = [list(quad) for row in bare for quad in row.quads][:_SHOWN]
        raise ConfigError(
            f"{len(bare)} rows have boxes, such as {', '.join(map(str, seen))}, and nothing says how they are written; "
            f'state it in a mapping file (--fields): layout = "dlebench", [options] bbox_format = "xyxy" (one of '
            f"{', '.join(FORMATS)})"
        )
    return [replace(row, bbox_format=row.bbox_format or way) if isinstance(row, DataRow) else row for row in rows]
