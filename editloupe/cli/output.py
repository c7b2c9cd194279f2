"""Where words go: results to standard output, progress and remarks to standard error."""

from __future__ import annotations

import os
import re
import sys
from functools import cache

from rich.console import Console

from editloupe.reports.plain import plain, safe

__all__ = ["err", "fail", "note", "out", "plain", "safe", "slug"]


@cache
def out() -> Console:
    """Standard output; wide enough for a table when it is no terminal."""
    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else 110
    return Console(width=width, highlight=False, soft_wrap=False)


@cache
def err() -> Console:
    return Console(stderr=True, highlight=False)


def fail(message: str) -> None:
    """One error, on standard error, unstyled where it is no terminal."""
    err().print("error:", style="bold red", end=" ")
    err().print(safe(message), markup=False, soft_wrap=True)


def note(message: str) -> None:
    err().print(safe(message), markup=False, soft_wrap=True)


def slug(text: str) -> str:
    """Return a text as part of a file's name."""
    return re.sub(r"[^\w.]+", "-", text).strip("-")
