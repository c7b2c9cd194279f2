"""The lock of a run folder: one process writes at a time, any number may read."""

from __future__ import annotations

import fcntl
import time
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from editloupe import files
from editloupe.errors import ConfigError

LOCK: Final = "run.lock"
_TRIES: Final = 10
_PAUSE_S: Final = 0.02
"""Between two tries: whoever asks whether a run is being written holds its lock for a moment."""


def take(folder: Path) -> BinaryIO:
    """Lock a run folder for this process until the file is closed. A killed process leaves no lock behind.

    Raises OSError, and ConfigError where another process has it.
    """
    lock = files.append(folder / LOCK, below=folder, lock=True)
    try:
        for _ in range(_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return lock
            time.sleep(_PAUSE_S)
    except BaseException:
        lock.close()
        raise
    lock.close()
    raise ConfigError(f"{folder} is being written by another process; wait for it or choose another --out")


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
