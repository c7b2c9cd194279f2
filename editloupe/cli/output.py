"""Where words go: results to standard output, progress and remarks to standard error."""

from __future__ import annotations

import sys
from functools import cache

from rich.console import Console


@cache
def out() -> Console:
    """Standard output; wide enough for a table when it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 110, highlight=False, soft_wrap=False)


@cache
def err() -> Console:
    return Console(stderr=True, highlight=False)


def fail(message: str) -> None:
    """One error, on standard error, unstyled where it is no terminal."""
    err().print("error:", style="bold red", end=" ")
    err().print(message, markup=False, soft_wrap=True)


def note(message: str) -> None:
    err().print(message, markup=False, soft_wrap=True)
