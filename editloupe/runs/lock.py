"""The lock of a run folder: one process writes at a time, and others see which."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final

from editloupe import files
from editloupe.errors import ConfigError
from editloupe.values import parse_json

LOCK: Final = "run.lock"
OWNER: Final = "run.owner"
_TRIES: Final = 10
_PAUSE_S: Final = 0.02
"""Between two tries: whoever asks whether a run is being written holds its lock for a moment."""


def take(folder: Path) -> BinaryIO:
    """Lock a run folder for this process until the file is closed, and name the process there.

    A killed process leaves no lock behind. Raises OSError, and ConfigError, which names who has it.
    """
    lock = files.append(folder / LOCK, below=folder, lock=True)
    try:
        for _ in range(_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                owner = json.dumps({"process": os.getpid(), "host": socket.gethostname()}) + "\n"
                files.write_whole(folder / OWNER, owner.encode(), below=folder)
                return lock
            time.sleep(_PAUSE_S)
    except BaseException:
        lock.close()
        raise
    lock.close()
    known = _owner(folder)
    who = f"process {known['process']} on {known['host']}" if known else "another process"
    raise ConfigError(f"{folder} is being written by {who}; wait for it or choose another --out")


def give_back(lock: BinaryIO) -> None:
    """Unlock a run folder."""
    # A child process may hold the file open too.
    fcntl.flock(lock, fcntl.LOCK_UN)
    lock.close()


def is_written(folder: Path) -> bool:
    """Return whether a process writes to a run, as far as this machine's file system tells."""
    try:
        with files.open_plain(folder / LOCK) as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except BlockingIOError:
        return True
    except OSError:
        return False


def writer(folder: Path) -> int | None:
    """Return the number of the process that writes to a run; None if none does, or one of another machine."""
    owner = _owner(folder) if is_written(folder) else {}
    return owner["process"] if owner.get("host") == socket.gethostname() else None


def _owner(folder: Path) -> dict[str, Any]:
    """Return the process and the host that took the lock last; empty where that cannot be read."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        owner = parse_json(files.read_bytes(folder / OWNER))
        return {"process": int(owner["process"]), "host": str(owner["host"])}
    return {}
