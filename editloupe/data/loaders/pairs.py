"""A bare pair of folders, `source/` and `edited/`, matched by stem, with the instructions in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.data.folders import Folder, ImageFile, RowError, open_folder, plain_stem
from editloupe.data.loaders.base import DataSet
from editloupe.data.outputs import with_outputs
from editloupe.data.rows import Loaded, RejectedRow, Row, assemble, named, rating_notes, read_row, rejected
from editloupe.data.tables import MetadataTable, TableLine, read_table
from editloupe.errors import DataError, SampleError
from editloupe.files import read_bytes
from editloupe.values import Json

LAYOUT: Final = "source/ and edited/ (or outputs given with --edited) with instructions.csv, .jsonl or .txt"

NAME_COLUMNS: Final = ("name", "stem", "file_name", "image", "id")
"""The column that says which image a row of the instructions belongs to: the first of these that there is."""
_INSTRUCTIONS: Final = ("instructions.csv", "instructions.jsonl", "instructions.txt")


def matches(data: DataSet) -> bool:
    """Return whether the two folders are there, and no file was named instead of them."""
    if data.metadata is not None or not (data.root / "source").is_dir():
        return False
    return (data.root / "edited").is_dir() or ((bool(data.edited) or not data.outputs) and bool(_instructions(data.root)))


def load(data: DataSet) -> Loaded:
    """Load one sample for each image in `source/`, its stem being the id. With `data.edited`, once for each editor.

    Raises DataError and SampleError where a folder or the instructions cannot be used.
    """
    root = data.root
    folder = Folder(root, data.store)
    before = _stems(folder, "source")
    references = _stems(folder, "reference") if (root / "reference").is_dir() else {}
    if not before:
        raise DataError(f"{root / 'source'}: holds no image; expected the images before the edit")
    editors: Mapping[str, Path] = data.edited or {"": folder.own("edited")}
    if not (data.outputs or data.edited or (root / "edited").is_dir()):
        editors = {}
    for path in editors.values():
        outputs = open_folder(path, data.store, what="edited images")
        if not outputs.images() and outputs.images(deep=True):
            names = sorted(p.name for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
            raise DataError(
                f"{path}: holds folders ({', '.join(names[:5])}) but no images; give one folder for each editor: "
                f"--edited {names[0]}={path / names[0]}"
            )
    table = _table(folder, before)
    rows = [_row(line, folder, before, references, text_only=table.text_only) for line in table.lines]
    given = {row.id for row in rows}
    for stem, sources in before.items():
        if stem not in given:
            message = f"{root / sources[0]}: no instruction for {stem!r} in {table.file.name}; add a row for it"
            rows.append(RejectedRow(id=stem, kind="no_instruction", message=message, file=root / sources[0]))
    matched = with_outputs(named(rows), editors, store=data.store, patterns=("{id}",))
    final = list(matched.rows if editors else named(rows))
    for editor, files in matched.left.items():
        for file in files:
            path = editors[editor] / file
            if (stem := plain_stem(file)) not in before:
                message = f"{path}: no image in source/ has the stem {stem!r}; rename one of the two"
                final.append(RejectedRow(id=stem, editor=editor, kind="no_match", message=message, file=path))
    return assemble(
        named(final),
        format="pairs",
        dataset=root.resolve().name,
        metadata=table.file,
        notes=(*rating_notes(table.columns), *matched.notes),
    )


def _instructions(root: Path) -> list[Path]:
    return [file for name in _INSTRUCTIONS if (file := root / name).is_file()]


def _stems(folder: Folder, name: str) -> dict[str, list[str]]:
    """Return file names (relative to the root) by stem."""
    if not folder.own(name).is_dir():
        raise DataError(f"{folder.root / name}: no such folder; expected {LAYOUT}")
    stems: dict[str, list[str]] = {}
    for file in folder.images(name):
        stems.setdefault(plain_stem(file), []).append(file)
    return stems


def _table(folder: Folder, before: Mapping[str, Sequence[str]]) -> MetadataTable:
    found = _instructions(folder.root)
    if len(found) != 1:
        seen = f"found {', '.join(f.name for f in found)}; keep one" if found else "found none of them"
        raise DataError(f"{folder.root}: expected the instructions in one of {', '.join(_INSTRUCTIONS)}; {seen}")
    file = folder.own(found[0].name)
    if file.suffix == ".txt":
        return _text_table(file, before)
    table = read_table(file)
    if table.columns and ("instruction" not in table.columns or not _name_column(table.columns)):
        raise SampleError(
            f"expected the column instruction and one of {', '.join(NAME_COLUMNS)}; found {', '.join(table.columns)}",
            file=file,
        )
    return table


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


def _name_column(columns: Sequence[str]) -> str | None:
    return next((name for name in NAME_COLUMNS if name in columns), None)


def _row(
    line: TableLine,
    folder: Folder,
    before: Mapping[str, Sequence[str]],
    references: Mapping[str, Sequence[str]],
    *,
    text_only: bool,
) -> Row:
    column = _name_column(tuple(line.values))
    given = None if column is None else line.values[column]
    stem = str(given) if isinstance(given, int) and not isinstance(given, bool) else given
    fault = line.fault
    if fault is None and column is None:
        fault = f"expected one of the columns {', '.join(NAME_COLUMNS)}"
    if fault is not None or not isinstance(stem, str) or not stem.strip():
        fault = fault or f"column {column!r}: expected the stem of an image in source/, found {given!r}"
        return RejectedRow(line=line.number, message=fault)
    # Either "cat" or "cat.png" may be written; a stem may itself hold a point.
    id = plain_stem(f"{stem}.x") if plain_stem(f"{stem}.x") in before else plain_stem(stem)
    files = before.get(id, ())
    # The editor is the one whose folder the output lies in.
    given_editor = ("editor", "model")
    values: dict[str, Json] = {f"data.{k}" if k in given_editor else k: v for k, v in line.values.items() if k != column}
    values.update(id=id, source_file_name=files[0] if files else f"source/{id}")
    row = read_row(replace(line, values=values), folder=folder, text_only=text_only)
    if isinstance(row, RejectedRow):
        return row
    if not files:
        source = folder.root / "source"
        return rejected(row, RowError("no_match", f"{source}: no image has the stem {id!r}", path=source))
    for found in (files, references.get(id, ())):
        if len(found) > 1:
            message = f"several files have the stem {id!r}: {', '.join(found)}; keep one"
            return rejected(row, RowError("no_match", message, path=folder.root / found[0]))
    reference = references.get(id)
    return replace(row, reference=ImageFile(folder=folder, name=reference[0]) if reference else row.reference)
