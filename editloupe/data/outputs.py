"""Which file in an editor's folder belongs to which row: by name, and never by guess."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import Final

from editloupe.data.folders import ImageFile, RowError, open_folder
from editloupe.data.images import ImageStore
from editloupe.data.rows import DataRow, RejectedRow, Row, rejected
from editloupe.errors import ConfigError, DataError

PARTS: Final = ("id", "source", "path", "edited", "reference", "edit_type", "index")
"""What a pattern may hold: the id, the stems of the row's own files, the path of the source without ending, the edit type,
the row's place from 0."""


@dataclass(frozen=True, kw_only=True)
class Matched:
    """Rows with their outputs, one for each row and editor."""

    rows: tuple[Row, ...]
    left: Mapping[str, tuple[str, ...]]
    """By editor, the files that belong to no row."""
    notes: tuple[str, ...]


def with_outputs(
    rows: Sequence[Row], editors: Mapping[str, Path], *, store: ImageStore, patterns: Sequence[str]
) -> Matched:
    """Return each named row once for each editor, with the file whose path (without ending) a pattern gives as `edited`.

    editors: folder by the editor's name.   patterns: "{id}", "results/{source}", …; one pattern holds for a whole folder.
    A row without a file gets `edited=None`. Raises DataError where a folder has no image or none that fits, ConfigError
    where two patterns point at different files or a pattern is malformed.
    """
    for pattern in patterns:
        _check(pattern)
    out: list[Row] = []
    left: dict[str, tuple[str, ...]] = {}
    notes = []
    for editor, path in editors.items():
        folder = open_folder(path, store, what=f"the outputs of editor {editor!r}" if editor else "edited images")
        files = folder.images(deep=True)
        if not files:
            raise DataError(f"{path}: holds no image; expected the outputs of editor {editor!r}")
        by_name: dict[str, list[str]] = {}
        for file in files:
            by_name.setdefault(_plain(file), []).append(file)
        pattern, names = _best(rows, patterns, by_name, path)
        used: set[str] = set()
        for index, (row, name) in enumerate(zip(rows, names, strict=True)):
            found = by_name.get(name, []) if name is not None else []
            used.update(found)
            if isinstance(row, RejectedRow):
                # The row is rejected, and its output still belongs to it.
                used.update(file for its in _names(pattern, row, index) for file in by_name.get(its, []))
                out.append(replace(row, editor=editor))
            elif len(found) > 1:
                message = f"{path}: several files could be the output: {', '.join(found)}; remove all but one"
                out.append(rejected(replace(row, editor=editor), RowError("no_match", message, path=path / found[0])))
            else:
                edited = ImageFile(folder=folder, name=found[0]) if found else None
                out.append(replace(row, editor=editor, edited=edited))
        left[editor] = tuple(file for file in files if file not in used)
        missing = sum(isinstance(r, DataRow) for r in rows) - sum(n in by_name for n in names if n is not None)
        who = f"editor {editor!r}" if editor else "edited images"
        notes.append(f"{who}: files in {path} named {pattern}; {missing} missing, {len(left[editor])} belong to no row")
    return Matched(rows=tuple(out), left=left, notes=tuple(notes))


def _check(pattern: str) -> None:
    try:
        parts = [name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None]
    except ValueError as error:
        raise ConfigError(f"file name pattern {pattern!r}: {error}") from error
    if unknown := [name for name in parts if name not in PARTS]:
        known = ", ".join(f"{{{part}}}" for part in PARTS)
        raise ConfigError(f"file name pattern {pattern!r}: unknown part {{{unknown[0]}}}; expected {known}")
    if not parts:
        raise ConfigError(f"file name pattern {pattern!r} names the same file for every row; expected {{id}} or the like")


def _best(
    rows: Sequence[Row], patterns: Sequence[str], by_name: Mapping[str, list[str]], path: Path
) -> tuple[str, list[str | None]]:
    """Return the pattern that finds most files, and the name that it gives to each row."""
    tried: list[tuple[str, list[str | None]]] = []
    repeated = []
    for pattern in patterns:
        names = [_name(pattern, row, index) for index, row in enumerate(rows)]
        given = [name for name in names if name is not None]
        # The same output for two rows would judge an edit by another one's instruction.
        if len(set(given)) < len(given):
            repeated.append(pattern)
        elif any(name in by_name for name in given):
            tried.append((pattern, names))
    if not any(isinstance(row, DataRow) for row in rows):
        return patterns[0], [None] * len(rows)  # all are broken, and each says how
    if not tried:
        expected = [n for p in patterns for i, r in enumerate(rows[:3]) if (n := _name(p, r, i)) is not None]
        reason = f" ({', '.join(repeated)} would give several rows the same file)" if repeated else ""
        raise DataError(
            f"{path}: no image there belongs to any row{reason}; saw {_some(by_name)}, expected names such as "
            f"{_some(dict.fromkeys(expected))} with any image ending"
        )
    best, chosen = max(tried, key=lambda one: sum(name in by_name for name in one[1]))
    for pattern, names in tried:
        for ours, theirs in zip(chosen, names, strict=True):
            if ours != theirs and ours in by_name and theirs in by_name:
                raise ConfigError(
                    f"{path}: ambiguous names: {best} gives {ours!r} and {pattern} gives {theirs!r} for the same row, and "
                    "both files are there; rename them, or state one pattern in the mapping file ([edited] names)"
                )
    return best, chosen


def _name(pattern: str, row: Row, index: int) -> str | None:
    """Return the name; None where the row is rejected, or lacks a part of it."""
    return None if isinstance(row, RejectedRow) else next(iter(_names(pattern, row, index)), None)


def _names(pattern: str, row: Row, index: int) -> list[str]:
    """Return what a row's output may be called. For a rejected one also where a stem of its files would be its id."""
    if isinstance(row, RejectedRow):
        stems, ids = dict(row.stems), [row.id, *row.stems.values()]
    else:
        files = {"source": row.source, "edited": row.edited, "reference": row.reference}
        stems, ids = {role: file.stem for role, file in files.items() if file is not None}, [row.id]
        stems["path"] = _plain(row.source.name.replace("\\", "/"))
    parts = {"edit_type": row.edit_type, "index": str(index), **stems}
    needed = {name for _, name, _, _ in string.Formatter().parse(pattern) if name is not None} - {"id"}
    if any(parts.get(name) is None for name in needed):
        return []
    return [unicodedata.normalize("NFC", pattern.format_map({**parts, "id": id})) for id in ids if id]


def _plain(file: str) -> str:
    return unicodedata.normalize("NFC", PurePosixPath(file).with_suffix("").as_posix())


def _some(names: Mapping[str, object]) -> str:
    shown = [repr(name) for name in list(names)[:5]]
    return ", ".join(shown) + (", …" if len(names) > 5 else "")
