"""EdiVal-Bench as it is downloaded: the CSV file of its instructions, the base images beside it, and outputs of editors.

A line of the file holds an image after one turn, with all turns before it; the lines of an image are a chain. In the mode
multipass, where each turn edits what the turn before gave, a chain becomes one sample, INDEX. In the mode singlepass each
prompt becomes one, INDEX.cN, which asks for the first N instructions at once. `chain.read_chain` reads what they hold.
"""

from __future__ import annotations

import ast
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain as joined
from pathlib import Path
from typing import Final, TypeAlias, get_args

from editloupe.data.folders import ImageFile, RowError, open_folder, plain_stem
from editloupe.data.loaders.base import DataSet
from editloupe.data.loaders.layout import RowShape
from editloupe.data.loaders.mapped import Mapped, Rows
from editloupe.data.rows import DataRow, RejectedRow, Row
from editloupe.data.tables import TableLine, shown
from editloupe.errors import DataError, SampleError
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
MODES: Final[tuple[Mode, ...]] = get_args(Mode)

_EDITS: Final = (TYPES, SENTENCES, BRACKETED)
_POOLS: Final = (UNCHANGED, AVAILABLE, EVER)


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


class EdiValData(Mapped):
    """The lines as chains, and as prompts where an editor has outputs of the mode singlepass."""

    def needed(self, shape: RowShape, data: DataSet) -> tuple[str, ...]:
        return ()

    def read(self, tables: Sequence[Rows], data: DataSet, notes: list[str]) -> list[Row]:
        if len(tables) != 1:
            names = ", ".join(rows.table.file.name for rows in tables)
            raise DataError(
                f"{data.root}: several .csv files with its columns: {names}; give the path of the one that is meant"
            )
        (rows,) = tables
        if lacking := [name for name in COLUMNS if name not in rows.table.columns]:
            seen, listed = ", ".join(rows.table.columns), ", ".join(COLUMNS)
            raise SampleError(
                f"lacks the column {', '.join(lacking)}; expected {listed}; found {seen}", file=rows.table.file
            )
        chains, strays = _chains(rows.table.lines)
        lengths = Counter(map(len, chains.values()))
        spread = ", ".join(f"{number} of {turns} turns" for turns, number in sorted(lengths.items()))
        notes.append(f"{len(rows.table.lines)} lines about {len(chains)} images: {spread or 'none'}")
        sources = _sources(rows)
        found = [*_rows(chains, sources, "multipass"), *(_rows(chains, sources, "singlepass") if data.edited else ())]
        return [*strays, *found]

    def attached(self, rows: Sequence[Row], shape: RowShape, data: DataSet, notes: list[str]) -> Sequence[Row]:
        if not data.edited:
            return rows
        out: list[Row] = []
        for editor, path in data.edited.items():
            folder = open_folder(path, data.store, what=f"the outputs of editor {editor!r}")
            modes = [mode for mode in MODES if folder.own(mode).is_dir()]
            modes = modes or ["singlepass" if path.absolute().name == "singlepass" else "multipass"]
            its = [row for row in rows if not row.names or row.names[MODE] in modes]
            out += super().attached(its, shape, replace(data, edited={editor: path}), notes)
        return out


EDIVAL: Final = EdiValData(Path(__file__).with_name("edival.toml"))


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


Sources: TypeAlias = Callable[[str], ImageFile]
"""Index → its base image, not opened. Raises RowError: none, or several."""


def _sources(rows: Rows) -> Sources:
    folder, names = rows.images, dict[str, list[str]]()
    places = rows.shape.folders["source"]
    for name in joined.from_iterable(folder.images(place) for place in places if folder.own(place).is_dir()):
        names.setdefault(plain_stem(name), []).append(name)

    def image(index: str) -> ImageFile:
        stem = f"{index}_input_raw"
        found = names.get(stem, [])
        if len(found) > 1:
            several = f"several files could be the base image of image {index}: {', '.join(found)}"
            raise RowError("no_match", f"{folder.root}: {several}; remove all but one", path=folder.root / found[0])
        if not found:
            where = " or ".join(f"{name}/" for name in places if name)
            what = f"image {index}: no base image {stem}.jpg or {stem}.png in {folder.root} or its sub-folder {where}"
            raise RowError("missing_file", f"{what}; put it there", path=folder.root / f"{stem}.jpg")
        return ImageFile(folder=folder, name=found[0])

    return image


def _rows(chains: Mapping[str, _Chain], sources: Sources, mode: Mode) -> Iterator[Row]:
    """Yield the rows of a mode, without outputs."""
    for index, chain in chains.items():
        for turns in [max(chain)] if mode == "multipass" else sorted(chain):
            row = _row(index, chain, turns, sources, mode)
            names = {MODE: mode, "image": index, **({} if mode == "multipass" else {"turn": str(turns)})}
            yield replace(row, id=index if mode == "multipass" else f"{index}.c{turns}", names=names)


def _row(index: str, chain: _Chain, turns: int, sources: Sources, mode: Mode) -> Row:
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
        source = sources(index)
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
