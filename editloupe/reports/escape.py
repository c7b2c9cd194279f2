"""Text from models, instructions and files, made fit to be shown: no markup, and nothing that can steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.text import Text

# Also behind what spreadsheets pass over on import; full-width signs are read as signs by some.
_FORMULA = re.compile(r"""[\s\x00-\x20\ufeff\u200b"'`]*[-=+@\uff0d\uff1d\uff0b\uff20]|["'`]*[\t\r\n]""")
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


def safe(text: str) -> str:
    """`text` with control characters as their pictures (␛) and half surrogate pairs as �; newlines and tabs stay."""
    return _CONTROL.sub(lambda m: chr(0x2400 + ord(m[0])) if ord(m[0]) < 0x20 else "\ufffd", text)


def csv_cell(text: str) -> str:
    """`text` behind an apostrophe if a spreadsheet would take it for a formula; a number stays a number."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def from_csv_cell(cell: str) -> str:
    """The text of which `csv_cell` made this."""
    return cell[1:] if cell[:1] == "'" and csv_cell(cell[1:]) == cell else cell


def markdown_row(cells: Iterable[str]) -> str:
    """A row of a Markdown table: each cell on one line, bars in it escaped."""
    return "| " + " | ".join(" ".join(safe(cell).split()).replace("|", "\\|") for cell in cells) + " |"


def plain(text: str, style: str = "") -> Text:
    """Text as it stands, without control characters and without markup."""
    return Text(safe(text), style=style)
