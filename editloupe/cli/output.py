"""Where words go: results to standard output, progress and remarks to standard error."""

from __future__ import annotations

import re
import sys
from functools import cache

from rich.console import Console
from rich.text import Text

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


@cache
def out() -> Console:
    """Standard output; wide enough for a table when it is no terminal."""
    return Console(width=None if sys.stdout.isatty() else 110, highlight=False, soft_wrap=False)


@cache
def err() -> Console:
    return Console(stderr=True, highlight=False)


def safe(text: str) -> str:
    """Text from models, instructions and files without control characters, so that none of it can steer a terminal."""
    return _CONTROL.sub(lambda m: chr(0x2400 + ord(m[0])) if ord(m[0]) < 0x20 else "\ufffd", text)


def plain(text: str, style: str = "") -> Text:
    """Text as it stands: no markup, no control characters."""
    return Text(safe(text), style=style)


def fail(message: str) -> None:
    """One error, on standard error, unstyled where it is no terminal."""
    err().print("error:", style="bold red", end=" ")
    err().print(safe(message), markup=False, soft_wrap=True)


def note(message: str) -> None:
    err().print(safe(message), markup=False, soft_wrap=True)
