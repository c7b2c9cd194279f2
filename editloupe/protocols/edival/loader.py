"""EdiVal-Bench as it is downloaded: the CSV file of its instructions, the base images beside it, and outputs of editors.

A line of the file holds an image after one turn, with all turns before it; the lines of an image are a chain. In the mode
multipass, where each turn edits what the turn before gave, a chain becomes one sample, INDEX. In the mode singlepass each
prompt becomes one, INDEX.cN, which asks for the first N instructions at once. `chain.read_chain` reads what they hold.
"""

from __future__ import annotations

import ast
import csv
import re
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain as joined
from pathlib import Path
from typing import Final, TypeAlias, get_args

from editloupe.data.folders import Folder, ImageFile, RowError, open_folder, plain_stem
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import DataSet
from editloupe.data.rows import DataRow, Loaded, RejectedRow, Row, assemble, rejected
from editloupe.data.tables import TableLine, read_table, shown
from editloupe.errors import ConfigError, DataError, SampleError
from editloupe.files import open_plain
from editloupe.protocols.edival.chain import (
    AVAILABLE,
    BACKGROUND,
    BRACKETED,
    EVER,
    MODE,
    SENTENCES,
    TYPES,
    UNCHANGED,
    Mode,
)
from editloupe.protocols.edival.instructions import bare, parse_edit
from editloupe.values import Json, in_one

INDEX: Final = "image_index"
TURN: Final = "turns"
COLUMNS: Final = (INDEX, TURN, TYPES, SENTENCES, BRACKETED, BACKGROUND, UNCHANGED, AVAILABLE, EVER)
LAYOUT: Final = (
    f"a .csv file with the columns {', '.join(COLUMNS[:3])}, … beside base images INDEX_input_raw.jpg (outputs given with "
    "--edited)"
)
IMAGE_FOLDERS: Final = ("", "input_images_resize_512", "images")
"""Where base images are looked for, below the folder of the file."""
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

_EDITS: Final = (TYPES, SENTENCES, BRACKETED)
_POOLS: Final = (UNCHANGED, AVAILABLE, EVER)
_NAMES: Final = "{multipass,singlepass}/INDEX_input_raw_turn_N.png"
_SOME: Final = 10


@dataclass(frozen=True, kw_only=True)
class _Line:
    """One line of the file: an image after a turn."""

    number: int
    edits: Mapping[str, Sequence[str]]
    """By column, an item for each turn up to this one."""
    pools: Mapping[str, Sequence[str]]
    background_kept: bool


_Chain: TypeAlias = Mapping[int, _Line | RejectedRow]
"""The lines of an image by turn."""


def matches(data: DataSet) -> bool:
    """Return whether the file is there, or was named."""
    return bool(_files(data.root) if data.metadata is None else _has_columns(data.metadata))


def load(data: DataSet) -> Loaded:
    """Load each chain once for each editor and mode. A turn whose output is not there has `Turn.edited` None.

    Raises ConfigError: no outputs given. DataError, SampleError: no file, or not one, with the columns; an editor's folder
    in which nothing fits.
    """
    root = Folder(data.root, data.store)
    file = root.own((data.metadata or _the_file(data.root)).name)
    table = read_table(file)
    if lacking := [name for name in COLUMNS if table.columns and name not in table.columns]:
        seen = ", ".join(table.columns)
        raise SampleError(f"lacks the column {', '.join(lacking)}; expected {', '.join(COLUMNS)}; found {seen}", file=file)
    if data.outputs and not data.edited:
        raise ConfigError(
            f"{data.root}: EdiVal-Bench holds no edited images; give each editor's outputs with --edited NAME=FOLDER, "
            f"where they lie as {_NAMES}"
        )
    chains, strays = _chains(table.lines)
    lengths = Counter(map(len, chains.values()))
    spread = ", ".join(f"{number} of {turns} turns" for turns, number in sorted(lengths.items()))
    notes = [f"{len(table.lines)} lines about {len(chains)} images: {spread or 'none'}"]
    sources = _Sources.of(root)
    rows: list[Row] = [] if data.edited else [*strays, *_rows(chains, sources, "multipass")]
    for editor, path in data.edited.items():
        rows += [replace(row, editor=editor) for row in strays]
        for outputs in _outputs(editor, path, data.store, chains):
            rows += outputs.attached(list(_rows(chains, sources, outputs.mode)), notes)
    return assemble(rows, format="edival", dataset="EdiVal-Bench", metadata=file, notes=notes)


def _has_columns(file: Path) -> bool:
    try:
        with open_plain(file) as opened:
            header = opened.readline(10_000).decode("utf-8-sig")
    except (OSError, ValueError):
        return False
    return any(set(COLUMNS) <= {name.strip() for name in next(csv.reader([header], delimiter=d), [])} for d in ",;\t")


def _files(root: Path) -> list[Path]:
    return [file for file in sorted(root.glob("*.csv")) if _has_columns(file)]


def _the_file(root: Path) -> Path:
    found, every = _files(root), sorted(root.glob("*.csv"))
    if not found and len(every) == 1:
        return every[0]  # it is told which column it lacks
    if len(found) != 1:
        names = ", ".join(file.name for file in found or every)
        what = "several .csv files with its columns" if found else "no .csv file with its columns"
        then = "give the path of the one that is meant" if found else f"expected {', '.join(COLUMNS)}"
        raise DataError(f"{root}: {what}: found {names or 'none'}; {then}")
    return found[0]


def _chains(lines: Sequence[TableLine]) -> tuple[dict[str, _Chain], list[RejectedRow]]:
    """Return the chains by image, and the lines that belong to none."""
    chains: dict[str, dict[int, _Line | RejectedRow]] = {}
    strays: list[RejectedRow] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a backslash in a text, which is read as it stands
        for line in lines:
            index, turn = (_whole(line, name) for name in (INDEX, TURN))
            if line.fault is not None or index is None or not turn:
                name, least = (INDEX, 0) if index is None else (TURN, 1)
                found = f"column {name!r}: expected a whole number from {least} on, found {shown(line.values.get(name))}"
                strays.append(RejectedRow(line=line.number, id=f"line-{line.number}", message=line.fault or found))
                continue
            known = chains.setdefault(str(index), {})
            if (first := known.get(turn)) is not None:
                number = first.number if isinstance(first, _Line) else first.line
                message = f"image {index}, turn {turn} is on line {number} too; the first is kept, take out one of them"
                id_ = f"{index}#line-{line.number}"
                strays.append(RejectedRow(line=line.number, id=id_, kind="duplicate_id", message=message))
                continue
            try:
                known[turn] = _line(line, turn)
            except (RowError, DataError) as error:
                known[turn] = RejectedRow(line=line.number, message=f"image {index}, turn {turn}: {error}")
    return dict(chains), strays


def _whole(line: TableLine, column: str) -> int | None:
    value = line.values.get(column)
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value.strip()) else None


def _line(line: TableLine, turn: int) -> _Line:
    """Read a line. Raises RowError, and DataError for an edit that is none of the benchmark's."""
    edits = {name: _texts(line, name) for name in _EDITS}
    if lengths := {name: len(found) for name, found in edits.items() if len(found) != turn}:
        found = ", ".join(f"{number} in {name!r}" for name, number in lengths.items())
        raise RowError("row", f"expected a list of {turn}, one item for each turn so far; found {found}")
    parse_edit(*(edits[name][-1] for name in (TYPES, BRACKETED, SENTENCES)))
    kept = {"true": True, "false": False}.get(str(line.values[BACKGROUND]).strip().lower())
    if kept is None:
        raise RowError("row", f"column {BACKGROUND!r}: expected True or False, found {shown(line.values[BACKGROUND])}")
    pools = {name: _texts(line, name) for name in _POOLS}
    return _Line(number=line.number, edits=edits, pools=pools, background_kept=kept)


def _texts(line: TableLine, column: str) -> list[str]:
    """Return a list of texts, written as in Python. Nothing in it is run. Raises RowError."""
    cell = line.values[column]
    try:
        found = ast.literal_eval(cell.strip()) if isinstance(cell, str) else None
        if isinstance(found, list) and all(isinstance(text, str) for text in found):
            "".join(found).encode("utf-8")  # half a surrogate pair could not be written again
            return found
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    raise RowError("row", f"column {column!r}: expected a list of texts such as ['a', 'b'], found {shown(cell)}")


@dataclass(frozen=True, kw_only=True)
class _Sources:
    """The base images, looked for but not opened."""

    folder: Folder
    names: Mapping[str, Sequence[str]]
    """Stem → the files of that name."""

    @classmethod
    def of(cls, folder: Folder) -> _Sources:
        return cls(folder=folder, names=_by_stem(folder, [p for p in IMAGE_FOLDERS if folder.own(p).is_dir()]))

    def image(self, index: str) -> ImageFile:
        """Return the base image of an index. Raises RowError: none, or several."""
        stem = f"{index}_input_raw"
        found = _one(self.folder, self.names.get(stem, ()), f"the base image of image {index}")
        if found is None:
            places = " or ".join(f"{name}/" for name in IMAGE_FOLDERS[1:])
            what = f"image {index}: no base image {stem}.jpg or {stem}.png in {self.folder.root} or its sub-folder {places}"
            raise RowError("missing_file", f"{what}; put it there", path=self.folder.root / f"{stem}.jpg")
        return found


def _by_stem(folder: Folder, places: Sequence[str]) -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name in joined.from_iterable(map(folder.images, places)):
        names.setdefault(plain_stem(name), []).append(name)
    return names


def _one(folder: Folder, names: Sequence[str], what: str) -> ImageFile | None:
    """Return the only file, None where there is none. Raises RowError where there are several."""
    if len(names) > 1:
        message = f"{folder.root}: several files could be {what}: {', '.join(names)}; remove all but one"
        raise RowError("no_match", message, path=folder.root / names[0])
    return ImageFile(folder=folder, name=names[0]) if names else None


def _rows(chains: Mapping[str, _Chain], sources: _Sources, mode: Mode) -> Iterator[Row]:
    """Yield the rows of a mode, without outputs."""
    for index, chain in chains.items():
        for turns in [max(chain)] if mode == "multipass" else sorted(chain):
            row = _row(index, chain, turns, sources, mode)
            yield replace(row, id=index if mode == "multipass" else f"{index}.c{turns}")


def _row(index: str, chain: _Chain, turns: int, sources: _Sources, mode: Mode) -> Row:
    """Return the first turns of a chain as a row without an id."""
    lines: list[_Line] = []
    for turn in range(1, turns + 1):
        line = chain.get(turn)
        if isinstance(line, RejectedRow):
            return line
        if line is None:
            last = chain[turns]
            number = last.number if isinstance(last, _Line) else last.line
            what = f"there is a line for turn {turns} and none for turn {turn}; expected one for each turn from 1 on"
            return RejectedRow(line=number, message=f"image {index}: {what}")
        if lines and (others := [name for name in _EDITS if list(line.edits[name][:-1]) != list(lines[-1].edits[name])]):
            before = f"what it holds in turn {turn - 1}, on line {lines[-1].number}"
            what = f"column {others[0]!r} does not begin with {before}; expected the same and one item more"
            return RejectedRow(line=line.number, message=f"image {index}, turn {turn}: {what}")
        lines.append(line)
    try:
        source = sources.image(index)
    except RowError as error:
        return RejectedRow(line=lines[0].number, kind=error.kind, message=str(error), file=error.path)
    last = lines[-1]
    asked = [bare(sentence) for sentence in last.edits[SENTENCES]]
    extra: dict[str, Json] = {
        MODE: mode,
        **{name: list(last.edits[name]) for name in (TYPES, BRACKETED)},
        # In multipass these are the turns' own.
        **({} if mode == "multipass" else {SENTENCES: list(asked)}),
        BACKGROUND: [line.background_kept for line in lines],
        **{name: [list(line.pools[name]) for line in lines] for name in _POOLS},
    }
    instructions = tuple(asked) if mode == "multipass" else (in_one(asked),)
    edited = (None,) * len(instructions)
    return DataRow(line=last.number, source=source, edited=edited, instructions=instructions, extra=extra)


@dataclass(frozen=True, kw_only=True)
class _Outputs:
    """One editor's outputs in one mode."""

    editor: str
    mode: Mode
    folder: Folder
    place: str
    """Sub-folder of the mode; "" for the folder itself."""
    names: Mapping[str, Sequence[str]]
    """Stem → the files of that name."""
    strange: int
    """Images that belong to no chain."""

    def attached(self, rows: Sequence[Row], notes: list[str]) -> list[Row]:
        """Return the rows of the mode with these outputs, and tell what is missing."""
        out: list[Row] = []
        for row in rows:
            row = replace(row, editor=self.editor)
            if isinstance(row, DataRow):
                try:
                    row = replace(row, edited=tuple(self._of(row)))
                except RowError as error:
                    row = rejected(row, error)
            out.append(row)
        found = [row for row in out if isinstance(row, DataRow)]
        gaps = [row for row in found if None in row.edited]
        missing = sum(edited is None for row in gaps for edited in row.edited)
        who = f"editor {self.editor!r}, {self.mode}"
        noun = "chains" if self.mode == "multipass" else "prompts"
        what = f"{len(found) - len(gaps)} of {len(found)} {noun} have all outputs"
        where = self.folder.root / self.place
        notes.append(f"{who}: outputs in {where}; {what}, {missing} missing, {self.strange} images belong to no chain")
        if behind := [row.id for row in gaps if any(row.edited[row.edited.index(None) :])]:
            listed = ", ".join(behind[:_SOME]) + (", …" if len(behind) > _SOME else "")
            notes.append(f"{who}: chains with an output after a turn without one: {len(behind)} ({listed})")
        return out

    def _of(self, row: DataRow) -> Iterator[ImageFile | None]:
        """Yield the output of each turn. Raises RowError where several files could be it."""
        index, _, prompt = row.id.partition(".c")
        for turn in [int(prompt)] if prompt else range(1, len(row.edited) + 1):
            names = self.names.get(f"{index}_input_raw_turn_{turn}", ())
            yield _one(self.folder, names, f"the output of image {index}, turn {turn}")


def _outputs(editor: str, path: Path, store: ImageStore, chains: Mapping[str, _Chain]) -> list[_Outputs]:
    """Return an editor's outputs by mode. Raises DataError: no such folder, or none of its images belongs to a chain."""
    folder = open_folder(path, store, what=f"the outputs of editor {editor!r}")
    places: dict[Mode, str] = {mode: mode for mode in MODES if folder.own(mode).is_dir()}
    if not places:
        places = {"singlepass" if path.absolute().name == "singlepass" else "multipass": ""}
    turns = {f"{index}_input_raw_turn_{turn}" for index, chain in chains.items() for turn in chain}
    # The official scripts put a copy of the base image beside the outputs.
    known = turns | {f"{index}_input_raw" for index in chains}
    found = []
    for mode, place in places.items():
        names = _by_stem(folder, [place])
        strange = sum(len(files) for stem, files in names.items() if stem not in known)
        found.append(_Outputs(editor=editor, mode=mode, folder=folder, place=place, names=names, strange=strange))
    if turns and not any(turns & one.names.keys() for one in found):
        seen = sorted(p.name + "/" * p.is_dir() for p in path.iterdir() if not p.name.startswith("."))
        listed = ", ".join(seen[:5]) + (", …" if len(seen) > 5 else "")
        inner = next((p.parent for p in sorted(path.glob("*/*")) if p.name in MODES and p.is_dir()), None)
        advice = f"; give one folder for each editor: --edited {inner.name}={inner}" if inner else ""
        raise DataError(
            f"{path}: no image there belongs to any chain; expected the outputs of editor {editor!r} as {_NAMES}; saw "
            f"{listed or 'nothing'}{advice}"
        )
    return found
