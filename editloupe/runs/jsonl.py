"""The lines of a run's JSON Lines files as values. What is none is named, and left out."""

from __future__ import annotations

import fcntl
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import BinaryIO, Final, TypeVar

from pydantic import ValidationError

from editloupe import files
from editloupe.traces.read import complete_lines
from editloupe.values import Json, finite_json

Parsed = TypeVar("Parsed")

CUT_OFF: Final = "the last line is cut off"
_TOLD: Final = 5
"""How many damaged lines of a file are named one by one."""

_ENCODER: Final = json.JSONEncoder(ensure_ascii=False, allow_nan=False)


def values(
    name: str, file: BinaryIO, parse: Callable[[Mapping[str, Json]], Parsed], problems: list[str], *, growing: bool
) -> Iterator[Parsed]:
    """Yield the lines of a file as values, and close it.

    name: of the file, for messages.   problems: gets a message for each line that is no value.   growing: somebody writes
    just now and may be in the middle of a line, so that one that is cut off is no problem.
    """
    told, torn, bad, number = len(problems), 0, 0, 0

    def lines() -> Iterator[bytes]:
        """Yield the complete lines, and count the bytes of one that is cut off."""
        nonlocal torn
        with file:
            for line in file:
                if not line.endswith(b"\n"):
                    torn = len(line)
                    return
                yield from line.splitlines()

    for number, text in enumerate(lines(), start=1):
        try:
            data = finite_json(text)
            value = parse(data) if isinstance(data, dict) else None
            why = "not an object"
        except (KeyError, TypeError, ValueError, AssertionError) as error:
            value, why = None, _problem(error)
        if value is not None:
            yield value
            continue
        bad += 1
        if bad <= _TOLD:
            problems.append(f"{name}, line {number}: {why}, left out")
    if bad > _TOLD:
        problems.append(f"{name}: {bad - _TOLD} more lines are not of the expected shape, left out")
    if torn and not growing:
        problems.insert(told, f"{name}, line {number + 1}: {CUT_OFF} ({torn} bytes), left out")


def _problem(error: Exception) -> str:
    """Say why a line is no value."""
    match error:
        case json.JSONDecodeError() | UnicodeDecodeError():
            return "not JSON"
        case ValidationError():
            wrong = error.errors()[0]
            why = f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}"
        case KeyError() | TypeError():
            why = repr(error)
        case _:
            why = str(error)
    return f"not of the expected shape ({why})"


def line(data: Mapping[str, Json]) -> bytes:
    """Return an object as a line."""
    # Half a surrogate pair (a file name that is no UTF-8) becomes its JSON escape.
    return _ENCODER.encode(data).encode("utf-8", "backslashreplace") + b"\n"


def appended(path: Path, *, below: Path, alone: bool = False) -> BinaryIO:
    """Open a file to append lines to; a last line that is cut off goes. Raises OSError.

    below: as in `files.append`.   alone: wait until no other process that asks so has it open.
    """
    file = files.append(path, below=below)
    if alone:
        fcntl.flock(file, fcntl.LOCK_EX)
    if size := file.seek(0, 2):
        file.seek(size - 1)
        if file.read(1) != b"\n":
            file.seek(0)
            file.truncate(complete_lines(file.read())[1])
    return file


def list_of(value: Json) -> list[Json]:
    """Return a list; an empty one for anything else, as a file of strangers may hold."""
    return value if isinstance(value, list) else []


def object_of(value: Json) -> Mapping[str, Json]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}
