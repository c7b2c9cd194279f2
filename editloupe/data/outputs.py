"""Which file in an editor's folder belongs to which row: by name, and never by guess."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Final, TypeAlias

from pydantic import BaseModel, BeforeValidator, ConfigDict, field_validator

from editloupe.data.folders import ImageFile, RowError, open_folder
from editloupe.data.images import ImageStore
from editloupe.data.rows import DataRow, Row, rejected
from editloupe.errors import ConfigError, DataError

PARTS: Final = ("id", "source", "path", "edited", "reference", "edit_type", "index", "turn")
"""What a pattern may hold: the id, the stems of the row's own files, the path of the source without ending, the edit type,
the row's place from 0, and the turn from 1. A layout's patterns may also hold columns of its rows."""
_OF_A_TURN: Final = ("{edited}", "{turn}")
"""Parts that a row has for each of its turns."""
_PART: Final = re.compile(r"\{([^{}]*)\}")
_SHOWN: Final = 5


def _texts(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


Texts: TypeAlias = Annotated[tuple[str, ...], BeforeValidator(_texts)]
"""Texts in a mapping file, where one stands without a list."""


class FileNames(BaseModel):
    """How the files of an editor are called, without ending: the section [outputs] of a mapping file."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    names: Texts = ("{id}",)
    """"{id}", "results/{source}", …; one of them holds for a whole folder."""
    first: str = ""
    """Of the output of turn 1, where that is called otherwise."""
    copies: str = ""
    """Ending of the stems of source images that lie beside the outputs, and are left out."""
    blanks: bool = False
    """Whether a blank and an underscore are the same."""
    where: str = ""
    """The same in words, for messages."""

    @field_validator("names")
    @classmethod
    def _have_parts(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for pattern in names:
            if not _PART.search(pattern) or re.search("[{}]", _PART.sub("", pattern)):
                raise ValueError(f"{pattern!r} needs a part in braces, such as {{id}}")
        return names

    def plain(self, file: str) -> str:
        """Return a path without ending, so that equal names compare equal."""
        name = unicodedata.normalize("NFC", file)
        return name.replace(" ", "_") if self.blanks else name

    def of(self, row: Row, index: int, pattern: str) -> list[str | None]:
        """Return a name for the output of each turn; None for a turn that lacks a part of it, [] for a rejected row."""
        if not isinstance(row, DataRow):
            return []
        files = {"source": row.source, "reference": row.reference}
        parts: dict[str, str | None] = {role: file.stem for role, file in files.items() if file is not None}
        path = unended(row.source.name.replace("\\", "/"))
        parts |= {"path": path, "edit_type": row.edit_type, "index": str(index), "id": row.id}
        found = []
        for turn, file in enumerate(row.edited, start=1):
            its = {**parts, "turn": str(turn), **row.names, **({} if file is None else {"edited": file.stem})}
            one = self.first if self.first and its["turn"] == "1" else pattern
            told_apart = len(row.edited) == 1 or any(part in pattern for part in _OF_A_TURN)
            found.append(self._filled(one if told_apart else f"{one}_turn_{turn}", its))
        return found

    def _filled(self, pattern: str, parts: Mapping[str, str | None]) -> str | None:
        """Return a name; None where a part of it is not known."""
        if any(parts.get(part) is None for part in _PART.findall(pattern)):
            return None
        return self.plain(_PART.sub(lambda match: parts[match[1]] or "", pattern))


def with_outputs(
    rows: Sequence[Row], editors: Mapping[str, Path], *, store: ImageStore, names: FileNames, notes: list[str]
) -> list[Row]:
    """Return each named row once for each editor, with the file of which `names` gives the path as `edited`.

    editors: folder by the editor's name.   notes: added to.
    The names of a row of several turns end in "_turn_1", "_turn_2" and so on, unless the pattern has {edited} or {turn}.
    A turn without a file gets None. Raises DataError where a folder has no image or none that fits, ConfigError
    where two patterns point at different files or a pattern has an unknown part.
    """
    known = {*PARTS, *(name for row in rows for name in row.names)}
    for pattern in names.names:
        if rows and (unknown := [part for part in _PART.findall(pattern) if part not in known]):
            listed = ", ".join(f"{{{part}}}" for part in (*PARTS, *sorted(known.difference(PARTS))))
            raise ConfigError(f"file name pattern {pattern!r}: unknown part {{{unknown[0]}}}; expected {listed}")
    found = [_of_editor(rows, editor, path, store, names) for editor, path in editors.items()]
    notes.extend(note for _, note in found)
    return [row for its, _ in found for row in its]


def _of_editor(rows: Sequence[Row], editor: str, path: Path, store: ImageStore, names: FileNames) -> tuple[list[Row], str]:
    """Return the rows with the outputs of an editor, and a note on what belongs to no row."""
    folder = open_folder(path, store, what=f"the outputs of editor {editor!r}" if editor else "edited images")
    files = [f for f in folder.images(deep=True) if not (names.copies and unended(f).endswith(names.copies))]
    if not files:
        raise DataError(f"{path}: holds no image; expected the outputs of editor {editor!r}")
    by_name: dict[str, list[str]] = {}
    for file in files:
        by_name.setdefault(names.plain(unended(file)), []).append(file)
    pattern, wanted = _best(rows, names, by_name, path)
    out: list[Row] = []
    for row, its in zip(rows, wanted, strict=True):
        found = [by_name.get(name or "", []) for name in its]
        row = replace(row, editor=editor)
        if several := next((one for one in found if len(one) > 1), None):
            message = f"{path}: several files could be the output: {', '.join(several)}; remove all but one"
            row = rejected(row, RowError("no_match", message, path=path / several[0]))
        elif isinstance(row, DataRow):
            row = replace(row, edited=tuple(ImageFile(folder=folder, name=one[0]) if one else None for one in found))
        out.append(row)
    given = Counter(name for its in wanted for name in its)
    left = [file for name, its in by_name.items() if name not in given for file in its]
    listed = f" ({', '.join(left[:_SHOWN])}{', …' if len(left) > _SHOWN else ''})" if left else ""
    missing = sum(count for name, count in given.items() if name not in by_name)
    who = f"editor {editor!r}" if editor else "edited images"
    return out, f"{who}: files in {path} named {pattern}; {missing} missing, {len(left)} belong to no row{listed}"


def _best(
    rows: Sequence[Row], names: FileNames, by_name: Mapping[str, list[str]], path: Path
) -> tuple[str, list[list[str | None]]]:
    """Return the pattern that finds most files, and the names that it gives to the turns of each row."""
    if not any(isinstance(row, DataRow) for row in rows):
        return names.names[0], [[] for _ in rows]  # each row says why it is rejected
    tried: list[tuple[str, list[list[str | None]]]] = []
    repeated, expected = [], dict[str, None]()
    for pattern in names.names:
        wanted = [names.of(row, index, pattern) for index, row in enumerate(rows)]
        given = [name for its in wanted for name in its if name is not None]
        expected |= dict.fromkeys(given[:3])
        # The same output for two rows would judge an edit by another one's instruction.
        if len(set(given)) < len(given):
            repeated.append(pattern)
        elif any(name in by_name for name in given):
            tried.append((pattern, wanted))
    if not tried:
        raise DataError(_no_match(path, names, by_name, expected, repeated))
    best, chosen = max(tried, key=lambda one: sum(name in by_name for its in one[1] for name in its))
    for pattern, wanted in tried:
        for ours, theirs in zip(chain.from_iterable(chosen), chain.from_iterable(wanted), strict=True):
            if ours != theirs and ours in by_name and theirs in by_name:
                raise ConfigError(
                    f"{path}: ambiguous names: {best} gives {ours!r} and {pattern} gives {theirs!r} for the same row, and "
                    "both files are there; rename them, or state one pattern in the mapping file ([outputs] names)"
                )
    return best, chosen


def _no_match(
    path: Path, names: FileNames, by_name: Mapping[str, object], expected: Mapping[str, object], repeated: Sequence[str]
) -> str:
    """Return why no image of a folder fits."""
    saw, wanted = (
        ", ".join(map(repr, list(these)[:_SHOWN])) + (", …" if len(these) > _SHOWN else "") for these in (by_name, expected)
    )
    reason = f" ({', '.join(repeated)} would give several rows the same file)" if repeated else ""
    where = f" ({names.where})" if names.where else ""
    return (
        f"{path}: no image there belongs to any row{reason}; saw {saw}, expected names such as {wanted} with any image "
        f"ending{where}; each editor has a folder of its own, --edited NAME=FOLDER"
    )


def unended(file: str) -> str:
    """Return a path without its ending."""
    path = PurePosixPath(file)
    return (path.parent / path.stem).as_posix()
