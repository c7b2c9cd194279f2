"""Text from models, instructions and files, made fit to be shown: no markup, and nothing that can steer a terminal."""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.text import Text

# Also behind what spreadsheets pass over on import; full-width signs are read as signs by some.
_FORMULA = re.compile(r"""[\s\x00-\x20\ufeff\u200b"'`]*[-=+@\uff0d\uff1d\uff0b\uff20]|["'`]*[\t\r\n]""")
_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_DIRECTIONS = r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
"""Controls of the direction of writing: by these a text can show its parts in another order than it has."""
_CONTROL = re.compile(rf"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff{_DIRECTIONS}]")
_UNSEEN_IN_JSON = re.compile(rf"[\x7f-\x9f{_DIRECTIONS}]")


def safe(text: str) -> str:
    r"""`text` with control characters as their pictures (␛), those of the writing direction as escapes (\u202e).

    Half surrogate pairs become �; newlines and tabs stay.
    """
    return _CONTROL.sub(_shown, text)


def _shown(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number < 0x20:
        return chr(0x2400 + number)
    return "\ufffd" if number < 0xA0 or 0xD800 <= number <= 0xDFFF else f"\\u{number:04x}"


def safe_json(text: str) -> str:
    """JSON in which control characters are escapes, also those that JSON may hold as they are. It says the same."""
    return _UNSEEN_IN_JSON.sub(lambda m: f"\\u{ord(m[0]):04x}", text)


def csv_cell(text: str) -> str:
    """`text` behind an apostrophe if a spreadsheet would take it for a formula; a number stays a number."""
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def from_csv_cell(cell: str) -> str:
    """Return the text of which `csv_cell` made this."""
    return cell[1:] if cell[:1] == "'" and csv_cell(cell[1:]) == cell else cell


def markdown_row(cells: Iterable[str]) -> str:
    """Return a row of a Markdown table: each cell on one line, bars in it escaped."""
    return "| " + " | ".join(" ".join(safe(cell).split()).replace("|", "\\|") for cell in cells) + " |"


def plain(text: str, style: str = "") -> Text:
    """Text as it stands, without control characters and without markup."""
    return Text(safe(text), style=style)
