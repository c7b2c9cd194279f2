"""run.json, the file that makes a folder a run: read, or refused with what is wrong with the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

from editloupe import files
from editloupe.errors import ConfigError
from editloupe.values import not_finite, parse_json

RUN_SCHEMA: Final = 2
NAME: Final = "run.json"

_SHOWN: Final = 5
_FILES: Final = frozenset((".json", ".jsonl", ".yaml"))
"""Endings of the files at the top of a run folder."""


def read_run_file(folder: Path) -> dict[str, Any]:
    """Return the object in a run's run.json, with the key `identity`.

    Raises ConfigError, in words of its own for each: no such folder, a file, a folder without a run, a run.json that may
    not be read, is no JSON, is another program's, holds NaN, or is of an older or a newer version.
    """
    path = folder / NAME
    try:
        info = parse_json(files.read_bytes(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(no_run(folder)) from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not JSON: {error}. {_RESTORE}") from error
    schema = info.get("schema") if isinstance(info, dict) else None
    if isinstance(schema, int) and schema > RUN_SCHEMA:
        raise ConfigError(
            f"{path} was written by a newer editloupe: run schema {schema}, and this version reads up to {RUN_SCHEMA}; "
            "update editloupe"
        )
    if not isinstance(info, dict) or not isinstance(info.get("identity"), dict):
        raise ConfigError(
            f"{path} is of no run of editloupe: expected an object with the key 'identity', as editloupe judge writes it; "
            "name another folder"
        )
    if not isinstance(schema, int) or schema < RUN_SCHEMA:
        raise ConfigError(
            f"{path} has the run schema {schema!r}, and this version reads {RUN_SCHEMA}. Runs of editloupe 0.1.0 are not "
            "read any more: judge again into another folder, or look at this one with editloupe 0.2.0"
        )
    if field := not_finite(info):
        raise ConfigError(f"{path}: {field} is no finite number, and JSON has no other. {_RESTORE}")
    return info


_RESTORE: Final = "Put a copy back if you have one; the findings of the run stand in its other files"


def no_run(folder: Path) -> str:
    """Say why a folder, or what was taken for one, has no run.json."""
    if folder.is_file():
        return f"{folder} is no run folder: it is a file"
    if not folder.is_dir():
        return f"{folder} is no run folder: there is no such folder. editloupe show FOLDER lists the runs below a folder"
    try:
        below = sorted(one.parent.name for one in folder.glob(f"*/{NAME}"))
    except OSError:
        below = []
    if not below:
        return f"{folder} is no run folder: it has no {NAME}; expected the folder that editloupe judge names with --out"
    more = f" and {len(below) - _SHOWN} more" if len(below) > _SHOWN else ""
    return f"{folder} is no run folder: it has no {NAME}. Runs in it: {', '.join(below[:_SHOWN])}{more}; name one of them"


def check_contents(folder: Path) -> None:
    """Raise ConfigError for a link, a pipe or a device in a run folder: what it leads to is not the run's.

    A run may come from anybody. Only the entries are looked at, no file is opened.
    """
    pending = [str(folder)]
    while pending:
        current = pending.pop()
        try:
            with os.scandir(current) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        if current == str(folder) and Path(entry.name).suffix in _FILES:
                            raise ConfigError(f"{entry.path} is a folder; expected a file of the run")
                        pending.append(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        kind = "a link" if entry.is_symlink() else "no plain file"
                        raise ConfigError(
                            f"{entry.path} is {kind}; a run folder holds only its own files and folders. If you trust it, "
                            "put a copy of what it stands for in its place"
                        )
        except (FileNotFoundError, NotADirectoryError):
            continue  # a run that is being written, or none
        except OSError as error:
            raise ConfigError(f"{current} cannot be read: {error.strerror or error}") from error
