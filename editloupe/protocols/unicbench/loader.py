"""UnicBench and UnicEdit-10M as they are downloaded: `test_data.jsonl` beside its images, or Parquet that holds them.

A row of UnicBench has an instruction in English and one in Chinese. It becomes one sample a language: `KEY.en`, `KEY.cn`.
Its outputs lie where the official scripts write them: `Subtask_With_Underscores/en|cn/KEY.png`. A row of UnicEdit-10M
holds the edit too, and becomes one sample. Several of its rows may have one key, so its id has a digest of the edit too.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Final

from editloupe.data.embedded import EmbeddedImages
from editloupe.data.folders import Folder, ImageFile, RowError, open_folder
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import DataSet
from editloupe.data.rows import OWN_COLUMNS, DataRow, Loaded, RejectedRow, Row, assemble, named, read_row, rejected
from editloupe.data.tables import TableLine, parquet_columns, read_table, shown
from editloupe.errors import ConfigError, DataError, SampleError
from editloupe.protocols.unicbench.terms import LANGUAGES, REASONING, points_in
from editloupe.values import Json, Sample

LAYOUT: Final = "test_data.jsonl with its images, or .parquet files that hold them (outputs given with --edited)"
FILE: Final = "test_data.jsonl"

_UNICBENCH: Final[Mapping[str, str]] = {"task": "task", "subtask": "subtask", "en": "en", "cn": "cn", "source": "image"}
_UNICEDIT: Final[Mapping[str, str]] = {
    "task": "edit_task",
    "subtask": "edit_subtask",
    "en": "prompt_en",
    "cn": "prompt_cn",
    "source": "src_image",
    "edited": "edit_image",
}
"""What we call a column → what the data calls it."""
_FOREIGN: Final = OWN_COLUMNS | {"model", "language"}
_PART_OF_A_PATH: Final = re.compile(r"[^/\\\0]+")
_SHARDS: Final = ("", "data")
"""Folders below the one that is named, where Parquet files are looked for."""


@dataclass(frozen=True, kw_only=True)
class _File:
    """One file of rows, opened."""

    path: Path
    lines: tuple[TableLine, ...]
    names: Mapping[str, str]
    source: Folder
    edited: Folder | None = None
    """Where the edits lie in the rows."""
    inside: bool
    """Whether the images lie in the rows, by number."""


def matches(data: DataSet) -> bool:
    """Return whether the rows are there, or a file of them was named."""
    if data.metadata is not None and data.metadata.suffix.lower() != ".parquet":
        return data.metadata.name == FILE
    if data.metadata is None and (data.root / FILE).is_file():
        return True
    files = [data.metadata] if data.metadata is not None else _shards(data.root)
    return any(_columns_of(file) for file in files[:1])


def load(data: DataSet) -> Loaded:
    """Load each row once for each language and editor. An output that is not there leaves `Turn.edited` None.

    Raises ConfigError: no outputs given for UnicBench, or given for UnicEdit-10M. DataError, SampleError: no rows, or an
    editor's folder in which nothing fits.
    """
    files = _opened(data)
    own = any(file.edited is not None for file in files)
    if own and data.edited:
        raise ConfigError(f"{data.root}: UnicEdit-10M has its edits in its rows; leave --edited out")
    if not own and data.outputs and not data.edited:
        raise ConfigError(
            f"{data.root}: UnicBench holds no edited images; give each editor's outputs with --edited NAME=FOLDER, where "
            "they lie as Subtask_With_Underscores/en|cn/KEY.png"
        )
    notes = list(_counts(files))
    outputs = {editor: Outputs.of(editor, path, data.store) for editor, path in data.edited.items()}
    languages = _languages(files, outputs, notes)
    of_files = [[row for line in file.lines for row in _rows(line, file, languages)] for file in files]
    unique = named(list(chain.from_iterable(of_files)))
    editions = [found.attached(unique, languages, notes) for found in outputs.values()] or [unique]
    samples: list[Sample] = []
    refused: list[RejectedRow] = []
    at = 0
    for file, its in zip(files, of_files, strict=True):
        rows = [row for edition in editions for row in edition[at : at + len(its)]]
        at += len(its)
        part = assemble(rows, format="unicbench", dataset="UnicEdit-10M" if own else "UnicBench", metadata=file.path)
        samples += map(_with_points, part.samples)
        refused += part.rejected
    return Loaded(format="unicbench", samples=tuple(samples), rejected=tuple(refused), notes=tuple(notes))


def _shards(root: Path) -> list[Path]:
    """Return the Parquet files of a folder, or of its sub-folder `data`."""
    found = (sorted((root / name).glob("*.parquet")) for name in _SHARDS)
    return next((files for files in found if files), [])


def _columns_of(file: Path) -> Mapping[str, str] | None:
    """Return what the columns of a Parquet file are called; None for a file of another shape."""
    try:
        columns = set(parquet_columns(file))
    except SampleError:
        return None
    known = ({"key", names["subtask"], names["source"], names.get("edited", "key")} for names in (_UNICBENCH, _UNICEDIT))
    return next((n for n, needed in zip((_UNICBENCH, _UNICEDIT), known, strict=True) if needed <= columns), None)


def _opened(data: DataSet) -> list[_File]:
    folder = Folder(data.root, data.store)
    if data.metadata is None and not (data.root / FILE).is_file():
        paths = [folder.own(file.relative_to(data.root).as_posix()) for file in _shards(data.root)]
    else:
        paths = [folder.own(data.metadata.name if data.metadata else FILE)]
    if not paths:
        raise DataError(f"{data.root}: no {FILE} and no .parquet file; expected {LAYOUT}")
    files = []
    for path in paths:
        names = None
        if path.suffix.lower() == ".parquet" and (names := _columns_of(path)) is None:
            seen = ", ".join(parquet_columns(path))
            expected = " or of ".join(", ".join(("key", *one.values())) for one in (_UNICBENCH, _UNICEDIT))
            raise SampleError(f"expected the columns {expected}; found {seen}", file=path)
        images = {} if names is None else {n: names[n] for n in ("source", "edited") if n in names}
        table = read_table(path, but=tuple(images.values()))
        names = names or _UNICBENCH
        needed = ("key", names["task"], names["subtask"])
        if table.columns and (lacking := [name for name in needed if name not in table.columns]):
            seen = ", ".join(table.columns)
            raise SampleError(f"no row has the key {lacking[0]!r}; expected rows of UnicBench; saw {seen}", file=path)
        inside = {name: EmbeddedImages(path, column, data.store) for name, column in images.items()}
        files.append(
            _File(
                path=path,
                lines=table.lines,
                names=names,
                source=inside.get("source", folder),
                edited=inside.get("edited"),
                inside=bool(inside),
            )
        )
    if len({file.edited is None for file in files}) > 1:
        raise DataError(f"{data.root}: files of UnicBench and of UnicEdit-10M lie together; give one of them")
    return files


def _counts(files: Sequence[_File]) -> Iterator[str]:
    lines = [(line, file.names) for file in files for line in file.lines if line.fault is None]
    subtasks = Counter(str(line.values.get(names["subtask"])) for line, names in lines)
    sizes = sorted(set(subtasks.values()))
    each = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}" if sizes else "none"
    reasoning = sum(line.values.get(names["task"]) == REASONING for line, names in lines)
    points = sum(bool(line.values.get("reasoning_points")) for line, _ in lines)
    yield f"{len(lines)} rows in {len(subtasks)} subtasks, {each} in each; {points} with reasoning points"
    if reasoning != points and not any(file.edited for file in files):
        yield f"{reasoning} rows are of the task {REASONING}, and {points} have reasoning points"


def _languages(files: Sequence[_File], outputs: Mapping[str, Outputs], notes: list[str]) -> tuple[str, ...]:
    """Return the languages to load: those in which there are instructions and, for some editor, outputs."""
    lines = [line.values.keys() for file in files for line in file.lines]
    written = tuple(name for name in LANGUAGES if any(files[0].names[name] in keys for keys in lines))
    if not written:
        keys = " or ".join(repr(files[0].names[name]) for name in LANGUAGES)
        raise SampleError(f"no row has the key {keys}; expected an instruction in each row", file=files[0].path)
    if files[0].edited is not None:
        # One edit, whose instruction is written twice.
        return written[:1]
    notes += [f"no row has an instruction in {name!r}" for name in LANGUAGES if name not in written]
    loaded = tuple(n for n in written if not outputs or any(n in found.languages for found in outputs.values()))
    if not loaded:
        for found in outputs.values():
            found.refuse(f"no folder {' or '.join(map(repr, written))} below a subtask")
    notes += [f"no editor has a folder {n!r}: its samples are not loaded" for n in written if n not in loaded]
    return loaded


def _rows(line: TableLine, file: _File, languages: Sequence[str]) -> Iterator[Row]:
    """Yield the line as a row for each language, without outputs of editors."""
    for language in languages:
        if line.fault is not None:
            name = f"line-{line.number}" + (f".{language}" if len(languages) > 1 else "")
            yield RejectedRow(line=line.number, id=name, message=line.fault)
            continue
        row = read_row(replace(line, values=_columns(line, file, language)), folder=file.source, text_only=False)
        key = line.values.get("key")
        if isinstance(row, RejectedRow):
            yield replace(row, message=f"key {key!r}: {_in_its_words(row.message, file, language)}")
            continue
        try:
            yield _checked(row, key, file, language)
        except RowError as error:
            yield rejected(row, error)


def _columns(line: TableLine, file: _File, language: str) -> dict[str, Json]:
    """Return a line's values under the names that a row is read by."""
    values, names = line.values, file.names
    own = {name: key for name, key in names.items() if name in ("task", "subtask", "source", "edited")}
    rest = {
        (f"data.{key}" if key in _FOREIGN else key): value
        for key, value in values.items()
        if key not in (*own.values(), names[language], "image_path", "reasoning_points")
    }
    if file.edited is None:  # the other instruction belongs to the other sample
        rest = {key: value for key, value in rest.items() if key not in LANGUAGES}
    points = values.get("reasoning_points")
    key = values.get("key")
    return {
        **rest,
        **{name: values.get(own[name]) for name in ("task", "subtask")},
        "language": language,
        **({} if points is None else {"reasoning_points": points}),
        "id": f"{key}.{language}" if isinstance(key, str) and key and file.edited is None else None,
        "source_file_name": str(line.number) if file.inside else values.get("image_path"),
        "instruction": values.get(names[language]),
        "edit_type": values.get(own["subtask"]),
    }


def _in_its_words(message: str, file: _File, language: str) -> str:
    for ours, theirs in (("source_file_name", "image_path"), ("edit_type", file.names["subtask"])):
        message = message.replace(f"column {ours!r}", f"key {theirs!r}")
    return message.replace("the instruction is empty", f"the instruction under {file.names[language]!r} is empty")


def _checked(row: DataRow, key: Json, file: _File, language: str) -> Row:
    """Return a row whose key can be part of a path, with its edit where that lies in the file. Raises RowError."""
    if not isinstance(key, str) or not _PART_OF_A_PATH.fullmatch(key) or key in (".", ".."):
        what = "expected text without '/' and '\\', since outputs are named by it"
        raise RowError("row", f"key 'key': {what}; found {shown(key)}; give the row another key")
    for name in ("task", "subtask"):
        if not isinstance(value := row.extra.get(name), str) or not value.strip():
            raise RowError("row", f"key {key!r}: {file.names[name]!r}: expected its name, found {shown(value)}")
    if file.edited is None:
        return row
    edited = ImageFile(folder=file.edited, name=row.source.name)
    return replace(row, id=f"{key}-{edited.image().sha256[:12]}", edited=(edited,))


def _with_points(sample: Sample) -> Sample:
    """Return a sample without reasoning points that cannot be used, and with a note where the task needs some."""
    points = sample.extra.get("reasoning_points")
    if points_in(points) or (points is None and (sample.extra["task"] != REASONING or sample.dataset != "UnicBench")):
        return sample
    then = "; reasoning accuracy cannot be asked" if sample.extra["task"] == REASONING else ""
    note = f"reasoning_points: expected a list of texts, found {shown(points)}{then}"
    extra = {name: value for name, value in sample.extra.items() if name != "reasoning_points"}
    return replace(sample, extra=extra, warnings=(*sample.warnings, note))


@dataclass(frozen=True, kw_only=True)
class Outputs:
    """One editor's folder of outputs."""

    editor: str
    folder: Folder
    files: Mapping[tuple[str, str, str], tuple[str, ...]]
    """(subtask with underscores, language, key) → the files of that name."""
    total: int
    """Images in the folder."""

    @classmethod
    def of(cls, editor: str, path: Path, store: ImageStore) -> Outputs:
        """Look through a folder. Raises DataError where it is no folder."""
        folder = open_folder(path, store, what=f"the outputs of editor {editor!r}")
        files: dict[tuple[str, str, str], tuple[str, ...]] = {}
        images = folder.images(deep=True)
        for file in images:
            parts = PurePosixPath(unicodedata.normalize("NFC", file)).with_suffix("").parts
            if len(parts) == 3 and parts[1] in LANGUAGES:
                place = _underscored(parts[0]), parts[1], parts[2]
                files[place] = (*files.get(place, ()), file)
        return cls(editor=editor, folder=folder, files=files, total=len(images))

    @property
    def languages(self) -> set[str]:
        """Those that it has outputs in."""
        return {language for _, language, _ in self.files}

    def refuse(self, what: str) -> None:
        """Raise DataError: the folder is another one than was meant."""
        root = self.folder.root
        seen = sorted(path.name + "/" * path.is_dir() for path in root.iterdir() if not path.name.startswith("."))
        listed = ", ".join(seen[:5]) + (", …" if len(seen) > 5 else "")
        inner = next((path.parent.parent for path in root.glob("*/*/*") if path.name in LANGUAGES and path.is_dir()), None)
        advice = f"; give one folder for each editor: --edited {inner.name}={inner}" if inner else ""
        raise DataError(
            f"{root}: {what}; expected the outputs of editor {self.editor!r} as Subtask_With_Underscores/en|cn/KEY.png; "
            f"saw {listed or 'nothing'}{advice}"
        )

    def output(self, subtask: str, id: str) -> ImageFile | None:
        """Return the output of a sample; None if there is none. Raises RowError: several files could be it."""
        found = self._found(subtask, id)
        if len(found) > 1:
            message = f"{self.folder.root}: several files could be the output: {', '.join(found)}; remove all but one"
            raise RowError("no_match", message, path=self.folder.root / found[0])
        return ImageFile(folder=self.folder, name=found[0]) if found else None

    def _found(self, subtask: str, id: str) -> tuple[str, ...]:
        key, _, language = unicodedata.normalize("NFC", id).rpartition(".")
        return self.files.get((_underscored(subtask), language, key), ())

    def attached(self, rows: Sequence[Row], languages: Sequence[str], notes: list[str]) -> tuple[Row, ...]:
        """Return the rows with this editor's outputs. Raises DataError where none fits."""
        out: list[Row] = []
        used: set[str] = set()
        for row in rows:
            subtask = row.edit_type or ""
            # The output of a row that is rejected is its own all the same.
            used.update(self._found(subtask, row.id))
            if isinstance(row, DataRow):
                try:
                    row = replace(row, edited=(self.output(subtask, row.id),))
                except RowError as error:
                    row = rejected(row, error)
            out.append(replace(row, editor=self.editor))
        if not used and any(isinstance(row, DataRow) for row in rows):
            self.refuse("no image there belongs to any row")
        missing = sum(isinstance(row, DataRow) and row.edited == (None,) for row in out)
        who = f"editor {self.editor!r}"
        notes.append(
            f"{who}: outputs in {self.folder.root}; {missing} missing, {self.total - len(used)} images belong to no row"
        )
        notes += [
            f"{who} has no folder {language!r}: all its outputs in that language are missing"
            for language in languages
            if language not in self.languages
        ]
        if blanks := sorted({top for name in used if " " in (top := PurePosixPath(name).parts[0])}):
            notes.append(f"{who}: folders named with blanks, not underscores, are read too: {', '.join(blanks)}")
        return tuple(out)


def _underscored(subtask: str) -> str:
    """Return a subtask as folders are named."""
    return "_".join(unicodedata.normalize("NFC", subtask).replace("_", " ").split())
