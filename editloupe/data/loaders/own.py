"""Edits of one's own: a table beside the images that it names, two folders of equal names, rows that hold their images."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.data.embedded import image_columns, row_files
from editloupe.data.folders import Folder, ImageFile, RowError, open_folder, plain_stem
from editloupe.data.loaders.base import DataSet
from editloupe.data.loaders.layout import Layout, RowShape, chosen
from editloupe.data.loaders.mapped import Mapped, Rows, roles_of
from editloupe.data.outputs import FileNames, with_outputs
from editloupe.data.rows import DataRow, RejectedRow, Row, named, rejected
from editloupe.data.tables import ENDINGS, MetadataTable, TableLine, columns_of
from editloupe.errors import DataError, SampleError
from editloupe.files import read_bytes
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

    def matches(self, data: DataSet) -> bool:
        layout = self.layout(data)
        return bool(self._fitting(layout, data))

    def check_edits(self, shape: RowShape, data: DataSet) -> None:
        """Outputs of editors take the place of the rows' own."""

    def found(self, layout: Layout, data: DataSet) -> tuple[RowShape, list[Path]]:
        files = self._fitting(layout, data)
        if not files and (tables := self._tables(layout, data)):
            if len(tables) > 1:
                said = "; ".join(f"{file.name}: {', '.join(columns_of(file)) or 'none'}" for file in tables)
                raise DataError(
                    f"{data.root}: no table has the columns that are asked for; the columns are, by table: {said}. Name "
                    "them with --columns, or give the path of the table that is meant"
                )
            files = tables  # it is told which column it lacks
        if not files:
            raise DataError(f"{data.root}: no table of edits; expected {self.LAYOUT}")
        if len(files) > 1:
            names = ", ".join(file.name for file in files)
            raise DataError(
                f"{data.root}: several tables could be the data: {names}; give the path of the one that is meant"
            )
        return layout, [Folder(data.root, data.store).own(files[0].name)]

    def _tables(self, layout: Layout, data: DataSet) -> list[Path]:
        """Return the tables that may be meant: the one that is named, those of the usual names, or all."""
        if data.metadata is not None:
            return [data.metadata] if data.metadata.suffix.lower() in ENDINGS else []
        usual = [file for name in layout.files if (file := data.root / name).is_file()]
        every = [file for file in sorted(data.root.iterdir()) if file.suffix.lower() in ENDINGS and file.is_file()]
        return usual or [file for file in every if not file.name.startswith(".")]

    def _fitting(self, layout: Layout, data: DataSet) -> list[Path]:
        """Return the tables that are meant by their name, or that have the columns."""
        return [f for f in self._tables(layout, data) if f.name in layout.files or self._fits(f, layout, data)]

    def _fits(self, file: Path, layout: Layout, data: DataSet) -> bool:
        holding = image_columns(file)[0] if file.suffix.lower() == ".parquet" and columns_of(file) else ()
        columns = [name for name in columns_of(file) if name not in holding]
        try:
            return bool(columns) and bool(roles_of(layout, file, columns, data, needed=self.needed(layout, data)))
        except SampleError:
            # A file that the user named is told what it lacks.
            return data.metadata is not None and not holding


class PairFolders(OwnTable):
    """Images in source/ and edited/, matched by stem."""

    def matches(self, data: DataSet) -> bool:
        if data.metadata is not None or not (data.root / "source").is_dir() or IMAGEFOLDER.matches(data):
            return False
        layout = self.layout(data)
        there = (data.root / "edited").is_dir() or bool(data.edited) or not data.outputs
        return there and ((data.root / "edited").is_dir() or bool(self._fitting(layout, data)))

    def layout(self, data: DataSet) -> Layout:
        found = super().layout(data)
        if "source" in data.columns and "id" not in data.columns:
            found = found.model_copy(update={"columns": {**found.columns, "id": found.columns["source"]}})
        columns = {role: names for role, names in found.columns.items() if role not in ("source", "edited")}
        return found.model_copy(update={"columns": columns})

    def _tables(self, layout: Layout, data: DataSet) -> list[Path]:
        return [file for file in super()._tables(layout, data) if file.name not in METADATA]

    def found(self, layout: Layout, data: DataSet) -> tuple[RowShape, list[Path]]:
        for name, what in (("source", "the images before the edit"), ("edited", "edited images")):
            folder = data.root / name
            if name == "source" or not (data.edited or not data.outputs):
                Folder(data.root, data.store).own(name)
                if not folder.is_dir():
                    raise DataError(f"{folder}: no such folder; expected {what}: {self.LAYOUT}")
        if not self._tables(layout, data):
            raise DataError(
                f"{data.root}: expected the instructions in one of {', '.join(layout.files)}; found none of them"
            )
        return super().found(layout, data)

    def tables(self, layout: Layout, shape: RowShape, files: Sequence[Path], data: DataSet) -> Iterator[Rows]:
        folder = Folder(data.root, data.store)
        if files[0].suffix == ".txt":
            table = _text_table(files[0], _stems(folder, "source"))
            yield Rows(table=table, shape=shape, roles={"id": ("name",), "instruction": ("instruction",)}, images=folder)
            return
        yield from super().tables(layout, shape, files, data)

    def needed(self, shape: RowShape, data: DataSet) -> tuple[str, ...]:
        return ("id", "instruction")

    def read(self, tables: Sequence[Rows], data: DataSet, notes: list[str]) -> list[Row]:
        (rows,) = tables
        folder = rows.images
        before = _stems(folder, "source")
        references = _stems(folder, "reference") if (data.root / "reference").is_dir() else {}
        if not before:
            raise DataError(f"{data.root / 'source'}: holds no image; expected the images before the edit")
        found = [self._paired(row, before, references, folder) for row in self.rows(rows)]
        given = {row.id for row in found}
        for stem, sources in before.items():
            if stem not in given:
                message = (
                    f"{data.root / sources[0]}: no instruction for {stem!r} in {rows.table.file.name}; add a row for it"
                )
                found.append(RejectedRow(id=stem, kind="no_instruction", message=message, file=data.root / sources[0]))
        return found

    def values(self, raw: Mapping[str, Json], line: TableLine, place: int, rows: Rows, language: str) -> dict[str, Json]:
        # The editor is the one whose folder the output lies in.
        given = {f"data.{k}" if k in ("editor", "model") else k: v for k, v in line.values.items()}
        found = super().values(raw, replace(line, values=given), place, rows, language)
        name = found.get("id")
        stem = str(name) if isinstance(name, int) and not isinstance(name, bool) else name
        if not isinstance(stem, str) or not stem.strip():
            column = rows.roles.get("id", ("id",))[0]
            raise RowError("row", f"column {column!r}: expected the stem of an image in source/, found {name!r}")
        return {**found, "id": stem, "source_file_name": f"source/{stem}"}

    def _paired(
        self, row: Row, before: Mapping[str, list[str]], references: Mapping[str, list[str]], folder: Folder
    ) -> Row:
        """Return a row with the files of its stem, which becomes its id."""
        if not row.id:
            return row
        # Either "cat" or "cat.png" may be written; a stem may itself hold a point.
        stem = plain_stem(f"{row.id}.x") if plain_stem(f"{row.id}.x") in before else plain_stem(row.id)
        row = replace(row, id=stem)
        if not isinstance(row, DataRow):
            return row
        files, others = before.get(stem, ()), references.get(stem, ())
        if not files:
            source = folder.root / "source"
            return rejected(row, RowError("no_match", f"{source}: no image has the stem {stem!r}", path=source))
        if several := next((found for found in (files, others) if len(found) > 1), None):
            message = f"several files have the stem {stem!r}: {', '.join(several)}; keep one"
            return rejected(row, RowError("no_match", message, path=folder.root / several[0]))
        reference = ImageFile(folder=folder, name=others[0]) if others else row.reference
        return replace(row, source=ImageFile(folder=folder, name=files[0]), reference=reference)

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
        if not editors:
            return rows
        found = with_outputs(rows, editors, store=data.store, names=FileNames(patterns=shape.outputs.names))
        notes.extend(found.notes)
        before = _stems(Folder(data.root, data.store), "source")
        strays = [(editor, editors[editor] / file) for editor, files in found.left.items() for file in files]
        return named([*found.rows, *(_stray(e, path) for e, path in strays if plain_stem(path.name) not in before)])


def _stray(editor: str, path: Path) -> RejectedRow:
    stem = plain_stem(path.name)
    message = f"{path}: no image in source/ has the stem {stem!r}; rename one of the two"
    return RejectedRow(id=stem, editor=editor, kind="no_match", file=path, message=message)


def _stems(folder: Folder, name: str) -> dict[str, list[str]]:
    """Return the names of the images in a sub-folder by stem."""
    stems: dict[str, list[str]] = {}
    for file in folder.images(name):
        stems.setdefault(plain_stem(file), []).append(file)
    return stems


def _text_table(file: Path, before: Mapping[str, Sequence[str]]) -> MetadataTable:
    """Read `stem<TAB>instruction` lines, or a single line that holds for every image."""
    try:
        text = read_bytes(file).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise SampleError("is not UTF-8; save the file as UTF-8", file=file) from error
    except OSError as error:
        raise SampleError(f"cannot be read: {error.strerror or error}", file=file) from error
    given = [(number, line) for number, line in enumerate(text.splitlines(), start=1) if line.strip()]
    lines: list[TableLine] = []
    if len(given) == 1 and "\t" not in given[0][1]:
        lines = [TableLine(number=given[0][0], values={"name": stem, "instruction": given[0][1]}) for stem in before]
        given = []
    for number, line in given:
        stem, tab, instruction = line.partition("\t")
        values = {"name": stem.strip(), "instruction": instruction} if tab else {}
        fault = f"expected a file's stem, a tab and the instruction, found no tab in {line.strip()[:60]!r}"
        lines.append(TableLine(number=number, values=values, fault=None if tab else fault))
    if not lines:
        raise SampleError("is empty; expected lines of a file's stem, a tab and the instruction", file=file)
    return MetadataTable(file=file, columns=("name", "instruction"), lines=tuple(lines), text_only=True)


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

    def check_edits(self, shape: RowShape, data: DataSet) -> None:
        """Outputs of editors take the place of the rows' own."""


IMAGEFOLDER: Final = OwnTable(_HERE / "imagefolder.toml")
PAIRS: Final = PairFolders(_HERE / "pairs.toml")
DATASETS: Final = Inside(_HERE / "datasets.toml")
