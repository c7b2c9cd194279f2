"""The one reader of data sets: rows and images as a mapping file (`editloupe.data.loaders.layout`) says where they lie.

A layout that a mapping alone cannot say is a subclass, which reads rows or finishes samples in a way of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import ClassVar, Final

from editloupe.data import embedded
from editloupe.data.embedded import RowImages, image_columns, row_files
from editloupe.data.folders import Folder, RowError, plain_stem
from editloupe.data.loaders.base import DataSet
from editloupe.data.loaders.layout import (
    FOLDER,
    IMAGES,
    KEY,
    ROLES,
    Layout,
    RowShape,
    chosen,
    names_in,
    path_part,
    value_of,
)  # fmt: skip
from editloupe.data.outputs import PARTS, unended, with_outputs
from editloupe.data.rows import OWN_COLUMNS, DataRow, Loaded, RejectedRow, Row, assemble, named, rating_notes, read_row
from editloupe.data.tables import MetadataTable, TableLine, columns_of, read_table, shown
from editloupe.errors import ConfigError, DataError, SampleError, did_you_mean
from editloupe.values import Json

LISTS: Final = {"source": "source_file_names", "edited": "edited_file_names", "instruction": "instructions"}
"""Role → the column of several of them, where a row has a list."""
_FOREIGN: Final = OWN_COLUMNS | {"model"}


@dataclass(frozen=True, kw_only=True)
class Rows:
    """One file of rows, with what its columns are."""

    table: MetadataTable
    shape: RowShape
    roles: Mapping[str, tuple[str, ...]]
    """Role → its name in the rows; `instructions` may have several."""
    images: Folder
    """From which the names of images count."""
    beside: str = ""
    """The file's folder below that."""
    languages: tuple[str, ...] = ()

    @cached_property
    def asked(self) -> frozenset[str]:
        """What the patterns of outputs ask of a row."""
        outputs = self.shape.outputs
        return frozenset(name for one in (*outputs.names, outputs.first) if "{" in one for name in names_in(one))


class Mapped:
    """The loader that a mapping file makes. Its name is the format, and the file has it for a stem."""

    boxes_as: ClassVar[str | None] = "xyxy"
    """How boxes are written where a row does not say it; None where it has to be stated."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.format = file.stem

    @property
    def ENDINGS(self) -> tuple[str, ...]:  # noqa: N802 - as a loader that is a module names it
        shapes = _read(self.file).each()
        own = [Path(name).suffix for shape in shapes for name in shape.files]
        return tuple(dict.fromkeys((*own, *(embedded.ENDINGS if any(shape.inside for shape in shapes) else ()))))

    def layout(self, data: DataSet) -> Layout:
        """Return the mapping, with what the user lays over it. Raises ConfigError."""
        return Layout.read(self.file, data.fields, data.columns) if data.fields or data.columns else _read(self.file)

    def matches(self, data: DataSet) -> bool:
        """Return whether files with one of the known names or with the known columns are there, or were named."""
        try:
            return any(self._files(shape, data) for shape in self.layout(data).each())
        except (SampleError, DataError):
            return False

    def load(self, data: DataSet) -> Loaded:
        """Load each row once for each language and editor. An output that is not there leaves `Turn.edited` None.

        Raises SampleError and DataError for files of another shape, ConfigError where no outputs are given.
        """
        layout = self.layout(data)
        shape, files = self.found(layout, data)
        self._check_edits(shape, data)
        tables = list(self.tables(layout, shape, files, data))
        notes = [*self.notes(tables)]
        rows = self.attached(named(self.read(tables, data, notes)), shape, data, notes)
        place = files[0] if len(files) == 1 else data.root
        dataset = shape.title or data.root.resolve().name
        loaded = assemble(rows, format=self.format, dataset=dataset, metadata=place, notes=notes)
        return self.completed(loaded, tables, data)

    def found(self, layout: Layout, data: DataSet) -> tuple[RowShape, list[Path]]:
        """Return the way in which the rows come, and their files. Raises DataError where there are none."""
        shapes = layout.each()
        for shape in shapes:
            if files := self._files(shape, data):
                return shape, files
        if data.metadata is not None:
            for shape in shapes:  # a file of another name that the user says to have this layout
                if not shape.inside and data.metadata.suffix.lower() in {Path(name).suffix for name in shape.files}:
                    return shape, [Folder(data.root, data.store).own(data.metadata.name)]
        rows = row_files(data)
        columns = columns_of(rows[0]) if rows else ()
        seen = f"; found rows with the columns {', '.join(columns)}" if columns else ""
        raise DataError(f"{data.root}: expected {layout.title or 'edits'}: {layout.looks}{seen}")

    def _files(self, shape: RowShape, data: DataSet) -> list[Path]:
        """Return the files of rows of a shape; [] where they are not there."""
        if shape.inside:
            files = row_files(data)
            return files if files and {*shape.needs} <= {*columns_of(files[0])} else []
        root = Folder(data.root, data.store)
        for name in shape.files:
            named_one = data.metadata is None or data.metadata.match(name) or data.metadata.name == Path(name).name
            found = sorted(data.root.glob(name)) if data.metadata is None else [data.metadata] * named_one
            # Files that only a pattern finds are the layout's by their columns.
            their = [f for f in found if f.is_file() and ("*" not in name or {*shape.needs} <= {*columns_of(f)})]
            if their:
                return [root.own(file.relative_to(data.root).as_posix()) for file in their]
        return []

    def _check_edits(self, shape: RowShape, data: DataSet) -> None:
        """Raise ConfigError where public data without edits has no outputs beside it, or data with edits has some."""
        own = "edited" in shape.columns
        if shape.title and own and data.edited:
            raise ConfigError(f"{data.root}: {shape.title} has its edits in its rows; leave --edited out")
        if shape.title and not own and data.outputs and not data.edited:
            raise ConfigError(
                f"{data.root}: {shape.title} holds no edited images; give each editor's outputs with --edited NAME=FOLDER, "
                f"where they lie as {shape.outputs.where}"
            )

    def needed(self, shape: RowShape, data: DataSet) -> tuple[str, ...]:
        """Return the roles that the columns must have."""
        edited = ("edited",) if "edited" in shape.columns and data.outputs and not data.edited else ()
        return ("source", *edited, *(() if shape.languages else ("instruction",)))

    def tables(self, layout: Layout, shape: RowShape, files: Sequence[Path], data: DataSet) -> Iterator[Rows]:
        """Yield the files of rows, read but for images inside. Raises SampleError and DataError."""
        root, before = Folder(data.root, data.store), 0
        images = RowImages(data.root, data.store) if shape.inside else root
        for file in files:
            if isinstance(images, RowImages):
                rows = self._inside(file, shape, images, before, data)
            else:
                table = read_table(file, prepared=self.prepared)
                roles = roles_of(shape, file, table.columns, data, needed=self.needed(shape, data))
                beside = file.parent.resolve().relative_to(data.root.resolve()).as_posix()
                rows = Rows(table=table, shape=shape, roles=roles, images=root, beside=beside.strip("."))
            spoken = tuple(name for name, column in shape.languages.items() if column in rows.table.columns)
            if shape.languages and not spoken and rows.table.columns:
                keys = " or ".join(map(repr, shape.languages.values()))
                raise SampleError(f"no row has the key {keys}; expected an instruction in each row", file=file)
            lines = tuple(replace(line, number=before + line.number) for line in rows.table.lines)
            yield replace(rows, languages=spoken, table=replace(rows.table, lines=lines))
            before += len(lines)

    def _inside(self, file: Path, shape: RowShape, images: RowImages, before: int, data: DataSet) -> Rows:
        holding, plain = image_columns(file)
        roles = roles_of(shape, file, plain, data, needed=self.needed(shape, data), images=holding)
        inside = [names[0] for role, names in roles.items() if role in IMAGES and names[0] in holding]
        table = images.read(file, inside, but=holding, before=before)
        return Rows(table=table, shape=shape, roles=roles, images=images)

    def prepared(self, text: str) -> str:
        """Return the text of a JSON file in a form that is easier to read."""
        return text

    def read(self, tables: Sequence[Rows], data: DataSet, notes: list[str]) -> list[Row]:
        """Return the rows of all files, without outputs of editors. notes: gets what a reader should know."""
        return [row for rows in tables for row in self.rows(rows)]

    def rows(self, rows: Rows) -> Iterator[Row]:
        """Yield the rows of a file, one a language. Raises SampleError where none is of the layout."""
        wrong: list[str] = []
        for line in rows.table.lines:
            for language in rows.languages or ("",):
                try:
                    row = self.row(line, rows, language)
                except RowError as error:
                    wrong.append(str(error))
                    row = RejectedRow(line=line.number, kind=error.kind, message=str(error))
                if isinstance(row, RejectedRow) and line.key:
                    row = replace(row, message=f"entry {line.key!r}: {row.message}")
                yield row
        if wrong and len(wrong) == len(rows.table.lines) * len(rows.languages or ("",)):
            raise SampleError(f"no row is one of this layout: {wrong[0]}", file=rows.table.file)

    def row(self, line: TableLine, rows: Rows, language: str = "") -> Row:
        """Return a line as a row. Raises RowError for one that has not what the mapping asks for."""
        if line.fault is not None:
            if line.key:
                raise RowError("row", line.fault)
            return RejectedRow(line=line.number, message=line.fault)
        raw = self.raw(line, rows, language)
        read = TableLine(number=line.number, values=self.values(raw, line, rows, language))
        called = {ROLES.get(role, role): its[0] for role, its in rows.roles.items() if "{" not in its[0]}
        called |= {"instruction": rows.shape.languages[language]} if language else {}
        row = read_row(read, folder=rows.images, text_only=rows.table.text_only, bbox_format=self.boxes_as, called=called)
        names = {one: path_part(raw[one], one) for one in rows.asked if one in raw and (one not in PARTS or one == "turn")}
        source = rows.roles.get("source", ("",))[0]
        if "path" in rows.asked and source and source not in line.paths:
            given = value_of(raw, source)
            names |= {"path": unended(given)} if isinstance(given, str) else {}
        row = replace(row, names={**row.names, **names})
        if not isinstance(row, DataRow):
            return row
        hints = [value_of(raw, hint) for hint in rows.shape.hints]
        if line.paths and not hints:
            path = line.paths.get(rows.roles.get("edited", ("",))[0], line.paths.get(source))
            hints = [plain_stem(path) if path else None, line.number]
        return replace(row, hints=(*(str(hint) for hint in hints if hint is not None), *row.hints))

    def raw(self, line: TableLine, rows: Rows, language: str) -> dict[str, Json]:
        """Return what the names of the mapping stand for in a row. Raises RowError where a needed column is absent."""
        shape = rows.shape
        if lacking := [name for name in shape.needs if name not in line.values]:
            raise RowError("row", f"has no key {lacking[0]!r}; found {', '.join(line.values) or 'none'}")
        raw: dict[str, Json] = {KEY: line.key, FOLDER: rows.table.file.resolve().parent.name, **line.values}
        raw |= {"language": language} if language else {}
        for name, pattern in shape.parts.items():
            value = value_of(raw, name)
            found = re.fullmatch(pattern, "" if value is None else str(value))
            if found is None:
                raise RowError("row", f"key {name!r}: expected text like {pattern}, found {shown(value)}")
            raw |= found.groupdict()
        return raw

    def values(self, raw: Mapping[str, Json], line: TableLine, rows: Rows, language: str) -> dict[str, Json]:
        """Return a line by the columns of docs/data.md. Raises RowError."""
        shape = rows.shape
        found: dict[str, Json] = {}
        used = {*shape.leave, *(shape.languages.values() if language else ())}
        for role, names in rows.roles.items():
            used.update(name for name in names if "{" not in name)
            value = value_of(raw, names[0])
            if len(names) > 1:
                value = [one for one in (value_of(raw, name) for name in names) if one]
            elif role in IMAGES and names[0] not in line.paths:
                value = placed(value, role, rows)
            if isinstance(value, list) and role in LISTS:
                found[LISTS[role]] = value
            elif value is not None and value != []:
                found[ROLES.get(role, role)] = value
        if len(rows.roles.get("instructions", ())) > 1 and found.get("instructions"):
            found.pop("instruction", None)
        if "id" in rows.roles and shape.needs:
            for name in names_in(rows.roles["id"][0]):
                path_part(value_of(raw, name), name)
        if language:
            found["instruction"], found["language"] = raw.get(shape.languages[language]), language
        foreign = _FOREIGN if shape.outputs.where else _FOREIGN & found.keys()
        rest = {k: v for k, v in line.values.items() if k not in used and not (v == [] and k in OWN_COLUMNS)}
        return {**{f"data.{k}" if k in foreign else k: v for k, v in rest.items()}, **found}

    def attached(self, rows: Sequence[Row], shape: RowShape, data: DataSet, notes: list[str]) -> Sequence[Row]:
        """Return named rows once for each editor, with its outputs."""
        if not data.edited:
            return rows
        bare = [replace(row, editor="") for row in rows]
        found = with_outputs(bare, data.edited, store=data.store, names=shape.outputs, notes=notes)
        return _spoken(found, notes) if shape.languages else found

    def notes(self, tables: Sequence[Rows]) -> Iterable[str]:
        """Return what a reader should know of the files."""
        return rating_notes(tuple(dict.fromkeys(name for rows in tables for name in rows.table.columns)))

    def completed(self, loaded: Loaded, tables: Sequence[Rows], data: DataSet) -> Loaded:
        """Return samples with what only the code of a layout knows."""
        return loaded


@lru_cache(maxsize=32)
def _read(file: Path) -> Layout:
    return Layout.read(file)


def roles_of(
    shape: RowShape,
    table: Path,
    columns: Sequence[str],
    data: DataSet,
    *,
    needed: Sequence[str],
    images: Sequence[str] = (),
) -> dict[str, tuple[str, ...]]:
    """Return the name of each role that the columns of a table have. images: columns that hold images.

    Raises SampleError for a column that the user names and that is not there, and for a needed role without any.
    """
    found: dict[str, tuple[str, ...]] = {}
    every = (*columns, *images)
    groups = [name for pattern in shape.parts.values() for name in re.compile(pattern).groupindex]
    beside = {KEY, FOLDER, "language", *shape.parts, *groups}
    for role, wanted in shape.columns.items():
        if role == "instructions" and len(wanted) > 1:
            its = tuple(name for name in wanted if name in columns)
        else:
            taken = {names[0] for names in found.values()} if len(wanted) > 1 else set()
            known = {*(images if role in IMAGES and images else columns), *beside}
            first = chosen([name for name in wanted if name not in taken], known)
            its = () if first is None else (first,)
        if its:
            found[role] = its
        elif role in data.columns and every:
            name = data.columns[role]
            lacking = next((one for one in names_in(name) if one not in every), name)
            what = "no column with images" if images and lacking in columns else "no column"
            near = did_you_mean(lacking, images if lacking in columns else every)
            told = f"{near}the columns are {', '.join(every)}: name one of them"
            raise SampleError(f"{what} {lacking!r}, which --columns names for {role}; {told}", file=table)
    if every and (missing := [role for role in needed if not found.keys() & {role, ROLES[role], LISTS.get(role)}]):
        looked = ", ".join(shape.columns.get(missing[0], missing[:1]))
        kind = " with images" if images and missing[0] in IMAGES else ""
        raise SampleError(
            f"no column{kind} for the {missing[0]}; looked for {looked}; the columns are {', '.join(every)}. "
            f"Say which it is: --columns {missing[0]}=COLUMN",
            file=table,
        )
    return found


def placed(value: Json, role: str, rows: Rows) -> Json:
    """Return the name of an image as it is found: in the first folder of its role that has it, else as in the first one."""
    if isinstance(value, list | tuple):
        return [placed(one, role, rows) for one in value]
    if not isinstance(value, str) or not value.strip():
        return value
    folders = rows.shape.folders.get(role, ("",))
    options = [value if not one or value.startswith(f"{one}/") else f"{one}/{value}" for one in folders]
    beside = [f"{rows.beside}/{one}" if rows.beside else one for one in options]
    return beside[0] if len(beside) == 1 else next((one for one in beside if rows.images.has(one)), beside[0])


def _spoken(rows: Sequence[Row], notes: list[str]) -> list[Row]:
    """Return the rows of languages in which some editor has an output."""

    def language(row: Row) -> str:
        return str(row.extra.get("language")) if isinstance(row, DataRow) else row.id.rpartition(".")[2]

    given = {language(row) for row in rows if isinstance(row, DataRow) and any(row.edited)}
    silent = sorted({language(row) for row in rows if isinstance(row, DataRow)} - given)
    notes.extend(f"no editor has an output in {one!r}: its samples are not loaded" for one in silent)
    return [row for row in rows if language(row) not in silent]
