"""Which file in an editor's folder belongs to which row: by name, and never by guess."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Final

from editloupe.data.folders import ImageFile, RowError, open_folder
from editloupe.data.images import ImageStore
from editloupe.data.rows import DataRow, RejectedRow, Row, rejected
from editloupe.errors import ConfigError, DataError

PARTS: Final = ("id", "source", "path", "edited", "reference", "edit_type", "index", "output")
"""What a pattern may hold: the id, the stems of the row's own files, the path of the source without ending, the edit type,
the row's place from 0, and the path at which the benchmark's own scripts write the output of a turn."""
_OF_A_TURN: Final = ("edited", "output")
"""Parts that a row has for each of its turns."""


@dataclass(frozen=True, kw_only=True)
class Matched:
    """Rows with their outputs, one for each row and editor."""

    rows: tuple[Row, ...]
    left: Mapping[str, tuple[str, ...]]
    """By editor, the files that belong to no row."""
    notes: tuple[str, ...]


def with_outputs(
    rows: Sequence[Row], editors: Mapping[str, Path], *, store: ImageStore, patterns: Sequence[str], copies: str = ""
) -> Matched:
    """Return each named row once for each editor, with the file whose path (without ending) a pattern gives as `edited`.

    editors: folder by the editor's name.   patterns: "{id}", "results/{source}", …; one pattern holds for a whole folder.
    copies: ending of the stems of source images that lie beside the outputs, and are left out.
    The names of a row of several turns end in "_turn_1", "_turn_2" and so on, but for `{edited}` and `{output}`, of which
    each turn has its own.
    A turn without a file gets None. Raises DataError where a folder has no image or none that fits, ConfigError
    where two patterns point at different files or a pattern is malformed.
    """
    for pattern in patterns:
        _check(pattern)
    out: list[Row] = []
    left: dict[str, tuple[str, ...]] = {}
    notes = []
    for editor, path in editors.items():
        folder = open_folder(path, store, what=f"the outputs of editor {editor!r}" if editor else "edited images")
        files = tuple(f for f in folder.images(deep=True) if not (copies and _plain(f).endswith(copies)))
        if not files:
            raise DataError(f"{path}: holds no image; expected the outputs of editor {editor!r}")
        by_name: dict[str, list[str]] = {}
        for file in files:
            by_name.setdefault(_plain(file), []).append(file)
        pattern, names = _best(rows, patterns, by_name, path)
        used: set[str] = set()
        for index, (row, its) in enumerate(zip(rows, names, strict=True)):
            found = [by_name.get(name, []) if name is not None else [] for name in its]
            used.update(chain.from_iterable(found))
            if isinstance(row, RejectedRow):
                # The row is rejected, and its output still belongs to it.
                used.update(file for name in _possible(pattern, row, index) for file in by_name.get(name, []))
                out.append(replace(row, editor=editor))
            elif several := next((one for one in found if len(one) > 1), None):
                message = f"{path}: several files could be the output: {', '.join(several)}; remove all but one"
                out.append(rejected(replace(row, editor=editor), RowError("no_match", message, path=path / several[0])))
            else:
                edited = tuple(ImageFile(folder=folder, name=one[0]) if one else None for one in found)
                out.append(replace(row, editor=editor, edited=edited))
        left[editor] = tuple(file for file in files if file not in used)
        turns = sum(len(row.edited) for row in rows if isinstance(row, DataRow))
        missing = turns - sum(name in by_name for its in names for name in its)
        who = f"editor {editor!r}" if editor else "edited images"
        notes.append(f"{who}: files in {path} named {pattern}; {missing} missing, {len(left[editor])} belong to no row")
    return Matched(rows=tuple(out), left=left, notes=tuple(notes))


def _check(pattern: str) -> None:
    try:
        parts = _parts(pattern)
    except ValueError as error:
        raise ConfigError(f"file name pattern {pattern!r}: {error}") from error
    if unknown := [name for name in parts if name not in PARTS]:
        known = ", ".join(f"{{{part}}}" for part in PARTS)
        raise ConfigError(f"file name pattern {pattern!r}: unknown part {{{unknown[0]}}}; expected {known}")
    if not parts:
        raise ConfigError(f"file name pattern {pattern!r} names the same file for every row; expected {{id}} or the like")


def _best(
    rows: Sequence[Row], patterns: Sequence[str], by_name: Mapping[str, list[str]], path: Path
) -> tuple[str, list[list[str | None]]]:
    """Return the pattern that finds most files, and the names that it gives to the turns of each row."""
    tried: list[tuple[str, list[list[str | None]]]] = []
    repeated = []
    for pattern in patterns:
        names = [_names(pattern, row, index) for index, row in enumerate(rows)]
        given = [name for its in names for name in its if name is not None]
        # The same output for two rows would judge an edit by another one's instruction.
        if len(set(given)) < len(given):
            repeated.append(pattern)
        elif any(name in by_name for name in given):
            tried.append((pattern, names))
    if not any(isinstance(row, DataRow) for row in rows):
        return patterns[0], [[] for _ in rows]  # all are broken, and each says how
    if not tried:
        expected = [n for p in patterns for i, r in enumerate(rows[:3]) for n in _names(p, r, i) if n is not None]
        reason = f" ({', '.join(repeated)} would give several rows the same file)" if repeated else ""
        raise DataError(
            f"{path}: no image there belongs to any row{reason}; saw {_some(by_name)}, expected names such as "
            f"{_some(dict.fromkeys(expected))} with any image ending"
        )
    best, chosen = max(tried, key=lambda one: sum(name in by_name for its in one[1] for name in its))
    for pattern, names in tried:
        for ours, theirs in zip(chain.from_iterable(chosen), chain.from_iterable(names), strict=True):
            if ours != theirs and ours in by_name and theirs in by_name:
                raise ConfigError(
                    f"{path}: ambiguous names: {best} gives {ours!r} and {pattern} gives {theirs!r} for the same row, and "
                    "both files are there; rename them, or state one pattern in the mapping file ([edited] names)"
                )
    return best, chosen


def _names(pattern: str, row: Row, index: int) -> list[str | None]:
    """Return a name for the output of each turn; None for a turn that lacks a part of it, [] for a rejected row."""
    if isinstance(row, RejectedRow):
        return []
    files = {"source": row.source, "reference": row.reference}
    stems = {role: file.stem for role, file in files.items() if file is not None}
    stems |= {"id": row.id, "path": _plain(row.source.name.replace("\\", "/"))}
    named = len(row.edited) == 1 or any(part in _parts(pattern) for part in _OF_A_TURN)
    found = []
    for turn, file in enumerate(row.edited, start=1):
        its = stems if file is None else {**stems, "edited": file.stem}
        if row.outputs:
            its = {**its, "output": row.outputs[turn - 1]}
        found.append(_filled(pattern if named else f"{pattern}_turn_{turn}", its, row, index))
    return found


def _possible(pattern: str, row: RejectedRow, index: int) -> list[str]:
    """Return what a rejected row's output may be called: also as if a stem of its files were its id."""
    names = (_filled(pattern, {**row.stems, "id": id}, row, index) for id in (row.id, *row.stems.values()) if id)
    return [name for name in names if name is not None]


def _filled(pattern: str, stems: Mapping[str, str], row: Row, index: int) -> str | None:
    """Return a name; None where the row lacks a part of it."""
    parts = {"edit_type": row.edit_type, "index": str(index), **stems}
    if any(parts.get(name) is None for name in _parts(pattern)):
        return None
    return unicodedata.normalize("NFC", pattern.format_map(parts))


def _parts(pattern: str) -> list[str]:
    return [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]


def _plain(file: str) -> str:
    return unicodedata.normalize("NFC", PurePosixPath(file).with_suffix("").as_posix())


def _some(names: Mapping[str, object]) -> str:
    shown = [repr(name) for name in list(names)[:5]]
    return ", ".join(shown) + (", …" if len(names) > 5 else "")
