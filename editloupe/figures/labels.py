"""Tables of labels that people bring: what the user says of their columns, and what a cell says."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from editloupe.data.tables import MetadataTable, read_table, shown
from editloupe.errors import ConfigError, SampleError
from editloupe.figures.escape import from_csv_cell
from editloupe.values import Json


def column_names(text: str | None, option: str) -> dict[str, str]:
    """Return "item=image_id,if@anna=anna_if" as role, or criterion[@rater], → column. Raises ConfigError."""
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in (text or "").split(","))):
        role, _, column = (word.strip() for word in part.partition("="))
        if not role or not column or role in found:
            raise ConfigError(
                f"{option} {part!r}: expected ROLE=COLUMN, such as item=image_id, or CRITERION[@RATER]=COLUMN, each once"
            )
        found[role] = column
    return found


def read_labels(file: Path) -> MetadataTable:
    """Read a table that must have columns. Raises SampleError if no line of it can be read."""
    table = read_table(file)
    if not table.columns:
        line = table.lines[0]
        raise SampleError(
            f"{line.fault or 'holds no values'}; expected CSV (.csv, .tsv), JSON Lines or Parquet, by the file's ending",
            file=file,
            line=line.number,
        )
    if not table.text_only:
        return table
    # The table may be one that editloupe wrote.
    lines = (
        replace(line, values={from_csv_cell(name): from_csv_cell(str(value)) for name, value in line.values.items()})
        for line in table.lines
    )
    return replace(table, columns=tuple(map(from_csv_cell, table.columns)), lines=tuple(lines))


def as_rating(value: Json) -> float | str | None:
    """Return a finite number, or text; None for an empty cell and what tables write for nothing. Raises ValueError."""
    if value is None or (isinstance(value, str) and value.strip().casefold() in ("", "nan", "null", "na", "n/a")):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError(f"expected a label or a number, found {shown(value)}")
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return str(value).strip()
    if not math.isfinite(number):
        raise ValueError(f"expected a label or a finite number, found {shown(value)}")
    return number


def text_of(value: Json) -> str | None:
    """Return a name; a whole number is one too, however it is written (12 and 12.0)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None or isinstance(value, bool) else str(value).strip() or None
