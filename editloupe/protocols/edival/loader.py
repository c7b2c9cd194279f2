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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeAlias, get_args

from editloupe.data.folders import ImageFile, RowError, open_folder
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

_Chain: TypeAlias = Mapping[int, TableLine]
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
            found = f"expected {', '.join(COLUMNS)}; found {', '.join(rows.table.columns)}"
            raise SampleError(f"lacks the column {', '.join(lacking)}; {found}", file=rows.table.file)
        chains, strays = _chains(rows.table.lines)
        lengths = Counter(map(len, chains.values()))
        spread = ", ".join(f"{number} of {turns} turns" for turns, number in sorted(lengths.items()))
        notes.append(f"{len(rows.table.lines)} lines about {len(chains)} images: {spread or 'none'}")
        modes = MODES if data.edited else MODES[:1]
        read = (_rows(index, chain, mode, rows) for mode in modes for index, chain in chains.items())
        return [*strays, *(row for of_chain in read for row in of_chain)]

    def attached(self, rows: Sequence[Row], shape: RowShape, data: DataSet, notes: list[str]) -> Sequence[Row]:
        out: list[Row] = []
        for editor, path in data.edited.items():
            folder = open_folder(path, data.store, what=f"the outputs of editor {editor!r}")
            modes = [mode for mode in MODES if folder.own(mode).is_dir()]
            modes = modes or ["singlepass" if path.absolute().name == "singlepass" else "multipass"]
            its = [row for row in rows if not row.names or row.names[MODE] in modes]
            out += super().attached(its, shape, replace(data, edited={editor: path}), notes)
        return out if data.edited else rows


EDIVAL: Final = EdiValData(Path(__file__).with_name("edival.toml"))


def _chains(lines: Sequence[TableLine]) -> tuple[dict[str, _Chain], list[RejectedRow]]:
    """Return the chains by image, and the lines that belong to none."""
    chains: dict[str, dict[int, TableLine]] = {}
    strays: list[RejectedRow] = []
    for line in lines:
        index, turn = (_whole(line, name) for name in (INDEX, TURN))
        if line.fault is not None or index is None or not turn:
            name, least = (INDEX, 0) if index is None else (TURN, 1)
            found = f"column {name!r}: expected a whole number from {least} on, found {shown(line.values.get(name))}"
            strays.append(RejectedRow(line=line.number, id=f"line-{line.number}", message=line.fault or found))
        elif (first := chains.setdefault(str(index), {}).setdefault(turn, line)) is not line:
            message = f"image {index}, turn {turn} is on line {first.number} too; the first is kept, take out one of them"
            id_ = f"{index}#line-{line.number}"
            strays.append(RejectedRow(line=line.number, id=id_, kind="duplicate_id", message=message))
    return dict(chains), strays


def _whole(line: TableLine, column: str) -> int | None:
    value = line.values.get(column)
    return int(value) if isinstance(value, str) and re.fullmatch("[0-9]{1,9}", value.strip()) else None


def _rows(index: str, chain: _Chain, mode: Mode, rows: Rows) -> Iterator[Row]:
    """Yield the rows of an image in a mode, without outputs."""
    for turns in [max(chain)] if mode == "multipass" else sorted(chain):
        id_, names = index, {MODE: mode, "image": index}
        if mode == "singlepass":
            id_, names = f"{index}.c{turns}", {**names, "turn": str(turns)}
        try:
            yield replace(_row(index, chain, turns, mode, rows), id=id_, names=names)
        except (RowError, DataError) as error:
            kind, file = (error.kind, error.path) if isinstance(error, RowError) else ("row", None)
            message = f"image {index}: {error}"
            yield RejectedRow(line=chain[turns].number, id=id_, kind=kind, message=message, file=file, names=names)


def _row(index: str, chain: _Chain, turns: int, mode: Mode, rows: Rows) -> DataRow:
    """Return the first turns of a chain as a row without an id.

    Raises RowError, and DataError for an edit that is none of the benchmark's.
    """
    if gaps := [turn for turn in range(1, turns + 1) if turn not in chain]:
        what = "expected one for each turn from 1 on"
        raise RowError("row", f"there is a line for turn {turns} and none for turn {gaps[0]}; {what}")
    edits: dict[str, list[str]] = {}
    pools: dict[str, list[Json]] = {BACKGROUND: [], **{name: [] for name in _POOLS}}
    for turn in range(1, turns + 1):
        line, before = chain[turn], edits
        edits = {name: _texts(line, name) for name in _EDITS}
        for name, found in edits.items():
            if len(found) != turn or found[:-1] != before.get(name, []):
                expected = f"expected what it holds in turn {turn - 1} and one item more, found {shown(line.values[name])}"
                raise RowError("row", f"turn {turn}, column {name!r}: {expected}")
        pools[BACKGROUND].append(_truth(line))
        for name in _POOLS:
            pools[name].append([*_texts(line, name)])
    for edit in zip(edits[TYPES], edits[BRACKETED], edits[SENTENCES], strict=True):
        parse_edit(*edit)
    asked = [bare(sentence) for sentence in edits[SENTENCES]]
    extra: dict[str, Json] = {MODE: mode, TYPES: [*edits[TYPES]], BRACKETED: [*edits[BRACKETED]]}
    # In multipass these are the turns' own.
    extra |= {SENTENCES: [*asked]} if mode == "singlepass" else {}
    instructions = tuple(asked) if mode == "multipass" else (in_one(asked),)
    return DataRow(
        line=chain[turns].number,
        source=_source(index, rows),
        edited=(None,) * len(instructions),
        instructions=instructions,
        extra={**extra, **pools},
    )


def _texts(line: TableLine, column: str) -> list[str]:
    """Return a list of texts, written as in Python. Nothing in it is run. Raises RowError."""
    cell = line.values[column]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a backslash in a text, which is read as it stands
            found = ast.literal_eval(cell.strip()) if isinstance(cell, str) else None
        if isinstance(found, list) and all(isinstance(text, str) for text in found):
            "".join(found).encode("utf-8")  # half a surrogate pair could not be written again
            return found
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        pass
    raise RowError("row", f"column {column!r}: expected a list of texts such as ['a', 'b'], found {shown(cell)}")


def _truth(line: TableLine) -> bool:
    """Return whether the background is as it was. Raises RowError."""
    kept = {"true": True, "false": False}.get(str(line.values[BACKGROUND]).strip().lower())
    if kept is None:
        raise RowError("row", f"column {BACKGROUND!r}: expected True or False, found {shown(line.values[BACKGROUND])}")
    return kept


def _source(index: str, rows: Rows) -> ImageFile:
    """Return the base image of an index, not opened. Raises RowError: none, or several."""
    folder, stem = rows.images, f"{index}_input_raw"
    options = [f"{place}/{stem}{end}".lstrip("/") for place in rows.shape.folders["source"] for end in (".jpg", ".png")]
    found = [name for name in options if folder.has(name)]
    if len(found) > 1:
        several = f"several files could be the base image: {', '.join(found)}; remove all but one"
        raise RowError("no_match", several, path=folder.root / found[0])
    if not found:
        raise RowError("missing_file", f"no base image; put it at {' or '.join(options)}", path=folder.root / options[0])
    return ImageFile(folder=folder, name=found[0])
