"""Edits of one's own: a table beside the images that it names, two folders of equal names, rows that hold their images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.data.embedded import image_columns, row_files
from editloupe.data.folders import Folder, ImageFile, RowError, open_folder, plain_stem
from editloupe.data.loaders.base import DataSet
from editloupe.data.loaders.layout import Layout, RowShape, chosen
from editloupe.data.loaders.mapped import Mapped, Rows, roles_of
from editloupe.data.outputs import with_outputs
from editloupe.data.rows import DataRow, RejectedRow, Row
from editloupe.data.tables import ENDINGS, TableLine, columns_of
from editloupe.errors import DataError, SampleError
from editloupe.values import Json

METADATA: Final = tuple(f"metadata{ending}" for ending in ENDINGS)
_HERE: Final = Path(__file__).parent


class OwnTable(Mapped):
    """A table of any name and any columns, beside any folders of images."""

    def layout(self, data: DataSet) -> Layout:
        found = super().layout(data)
        if (data.edited or not data.outputs) and "edited" not in data.columns and "edited" in found.columns:
            # Where outputs lie elsewhere, a column that is merely called "edited" need not hold images.
            return found.model_copy(update={"columns": {**found.columns, "edited": found.columns["edited"][:1]}})
        return found

    def found(self, layout: Layout, data: DataSet) -> tuple[RowShape, list[Path]]:
        # A table that fits by its name only is told which column it lacks.
        files = self._files(layout, data) or self._tables(layout, data)
        if not files:
            raise DataError(f"{data.root}: no table of edits; expected {layout.looks}")
        if len(files) > 1:
            said = "; ".join(f"{file.name} with the columns {', '.join(columns_of(file)) or 'none'}" for file in files)
            raise DataError(
                f"{data.root}: several tables could be the data: {said}. Give the path of the one that is meant, or "
                "name its columns with --columns"
            )
        return layout, [Folder(data.root, data.store).own(files[0].name)]

    def _tables(self, shape: RowShape, data: DataSet) -> list[Path]:
        """Return the tables that may be meant: the one that is named, those of the usual names, or all."""
        if data.metadata is not None:
            return [data.metadata] if data.metadata.suffix.lower() in ENDINGS else []
        usual = [file for name in shape.files if (file := data.root / name).is_file()]
        every = [file for file in sorted(data.root.iterdir()) if file.suffix.lower() in ENDINGS and file.is_file()]
        return usual or [file for file in every if not file.name.startswith(".")]

    def _files(self, shape: RowShape, data: DataSet) -> list[Path]:
        """Return the tables that are meant by their name, or that have the columns."""
        return [f for f in self._tables(shape, data) if f.name in shape.files or self._fits(f, shape, data)]

    def _fits(self, file: Path, shape: RowShape, data: DataSet) -> bool:
        holding = image_columns(file)[0] if file.suffix.lower() == ".parquet" and columns_of(file) else ()
        columns = [name for name in columns_of(file) if name not in holding]
        try:
            return bool(columns) and bool(roles_of(shape, file, columns, data, needed=self.needed(shape, data)))
        except SampleError:
            return data.metadata is not None and not holding


class PairFolders(OwnTable):
    """Images in source/ and edited/, matched by stem, which is the id."""

    def layout(self, data: DataSet) -> Layout:
        found = super().layout(data)
        if "source" in data.columns and "id" not in data.columns:
            found = found.model_copy(update={"columns": {**found.columns, "id": found.columns["source"]}})
        columns = {role: names for role, names in found.columns.items() if role not in ("source", "edited")}
        return found.model_copy(update={"columns": columns})

    def matches(self, data: DataSet) -> bool:
        if data.metadata is not None or not (data.root / "source").is_dir() or IMAGEFOLDER.matches(data):
            return False
        there = (data.root / "edited").is_dir()
        return there or ((bool(data.edited) or not data.outputs) and super().matches(data))

    def needed(self, shape: RowShape, data: DataSet) -> tuple[str, ...]:
        return ("id", "instruction")

    def found(self, layout: Layout, data: DataSet) -> tuple[RowShape, list[Path]]:
        needed = ("source",) if data.edited or not data.outputs else ("source", "edited")
        for folder in (Folder(data.root, data.store).own(name) for name in needed):
            if not folder.is_dir():
                raise DataError(f"{folder}: no such folder; expected images: {layout.looks}")
        if not self._tables(layout, data):
            raise DataError(f"{data.root}: found no table of instructions; expected one of {', '.join(layout.files)}")
        return super().found(layout, data)

    def _tables(self, shape: RowShape, data: DataSet) -> list[Path]:
        return [file for file in super()._tables(shape, data) if file.name not in METADATA]

    def read(self, tables: Sequence[Rows], data: DataSet, notes: list[str]) -> list[Row]:
        (rows,) = tables
        before, references = (_stems(rows.images, name) for name in ("source", "reference"))
        if not before:
            raise DataError(f"{data.root / 'source'}: holds no image; expected the images before the edit")
        found = [_paired(row, before, references) for row in self.rows(rows)]
        given = {row.id for row in found}
        for stem in [one for one in before if one not in given]:
            file = data.root / before[stem][0].name
            message = f"{file}: no instruction for {stem!r} in {rows.table.file.name}; add a row for it"
            found.append(RejectedRow(id=stem, kind="no_instruction", message=message, file=file))
        return found

    def values(self, raw: Mapping[str, Json], line: TableLine, rows: Rows, language: str) -> dict[str, Json]:
        # The editor is the one whose folder the output lies in.
        given = {f"data.{k}" if k in ("editor", "model") else k: v for k, v in line.values.items()}
        found = super().values(raw, replace(line, values=given), rows, language)
        name = found.get("id")
        stem = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
        if not isinstance(stem, str) or not stem.strip():
            column = rows.roles.get("id", ("id",))[0]
            raise RowError("row", f"column {column!r}: expected the stem of an image in source/, found {name!r}")
        return {**found, "id": stem, "source_file_name": f"source/{stem}"}

    def attached(self, rows: Sequence[Row], shape: RowShape, data: DataSet, notes: list[str]) -> Sequence[Row]:
        own = data.root / "edited"
        editors: Mapping[str, Path] = data.edited or ({"": own} if data.outputs or own.is_dir() else {})
        for path in editors.values():
            outputs = open_folder(path, data.store, what="edited images")
            if not outputs.images() and outputs.images(deep=True):
                names = sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
                raise DataError(
                    f"{path}: holds folders ({', '.join(names[:5])}) but no images; give one folder for each editor: "
                    f"--edited {names[0]}={path / names[0]}"
                )
        return with_outputs(rows, editors, store=data.store, names=shape.outputs, notes=notes) if editors else rows


def _stems(folder: Folder, below: str) -> dict[str, list[ImageFile]]:
    """Return the images in a sub-folder by stem."""
    stems: dict[str, list[ImageFile]] = {}
    for name in sorted(folder.images(below)) if (folder.root / below).is_dir() else ():
        stems.setdefault(plain_stem(name), []).append(ImageFile(folder=folder, name=name))
    return stems


def _paired(row: Row, before: Mapping[str, list[ImageFile]], references: Mapping[str, list[ImageFile]]) -> Row:
    """Return a row with the files of its stem, which becomes its id."""
    # Either "cat" or "cat.png" may be written; a stem may itself hold a point.
    stem = plain_stem(f"{row.id}.x") if plain_stem(f"{row.id}.x") in before else plain_stem(row.id)
    row = replace(row, id=stem)
    if not isinstance(row, DataRow):
        return row
    files, others = before.get(stem, []), references.get(stem, [])
    if len(files) == 1 and len(others) < 2:
        return replace(row, source=files[0], reference=others[0] if others else row.reference)
    folder = row.source.folder.root / "source"
    message = f"{folder}: no image has the stem {stem!r}"
    if several := next((found for found in (files, others) if len(found) > 1), None):
        message = f"several files have the stem {stem!r}: {', '.join(file.name for file in several)}; keep one"
    return RejectedRow(id=row.id, line=row.line, edit_type=row.edit_type, kind="no_match", message=message, file=folder)


class Inside(Mapped):
    """Rows that hold their images."""

    def matches(self, data: DataSet) -> bool:
        if data.metadata is None and (data.root / "dataset_dict.json").is_file():
            return True
        try:
            files = row_files(data)
            return bool(files) and chosen(self.layout(data).columns["source"], image_columns(files[0])[0]) is not None
        except (SampleError, DataError):
            return False


IMAGEFOLDER: Final = OwnTable(_HERE / "imagefolder.toml")
PAIRS: Final = PairFolders(_HERE / "pairs.toml")
DATASETS: Final = Inside(_HERE / "datasets.toml")
