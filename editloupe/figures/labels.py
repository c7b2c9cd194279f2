"""Tables of labels that people bring: which column holds what, and what a cell says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


def find_roles(
    table: MetadataTable, columns: Mapping[str, str], option: str, known: Mapping[str, Sequence[str]], needed: str
) -> tuple[dict[str, str], dict[str, str]]:
    """Return role → column, and what the user named that is no role → column. The user's names come before the usual ones.

    known: role → usual names, the likeliest first.   needed: a role that must be there.
    Raises ConfigError for a column that is not there.
    """
    for role, column in columns.items():
        if column not in table.columns:
            there = ", ".join(table.columns)
            raise ConfigError(f"{option} {role}={column}: {table.file} has no column {column!r}; it has {there}")
    roles = {role: column for role, column in columns.items() if role in known}
    named = {role: column for role, column in columns.items() if role not in known}
    folded = {name.strip().casefold().replace(" ", "_").replace("-", "_"): name for name in reversed(table.columns)}
    for role, names in known.items():
        taken = {*columns.values(), *roles.values()}
        found = next((folded[n] for n in names if n in folded and folded[n] not in taken), None)
        if role not in roles and found is not None:
            roles[role] = found
    if needed not in roles:
        raise ConfigError(
            f"{table.file}: no column names the {needed}; expected one of {', '.join(known[needed])}; "
            f"found {', '.join(table.columns)}; or say which: {option} {needed}=COLUMN"
        )
    return roles, named


def as_rating(value: Json) -> float | str | None:
    """Return a finite number, or text; None for an empty cell. Raises ValueError."""
    if is_blank(value):
        return None
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise ValueError(f"expected a label or a number, found {shown(value)}")
    if (number := number_of(value)) is not None:
        return number
    text = str(value).strip()
    if isinstance(value, float) or text.casefold().lstrip("+-") in ("inf", "infinity"):
        raise ValueError(f"expected a label or a finite number, found {shown(value)}")
    return text


def is_blank(value: Json) -> bool:
    """Return whether a cell holds nothing, or what tables write for nothing."""
    return value is None or (isinstance(value, str) and value.strip().casefold() in ("", "nan", "null", "na", "n/a"))


def number_of(value: Json) -> float | None:
    """Return the finite number that a cell holds; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def text_of(value: Json) -> str | None:
    """Return a name; a whole number is one too, however it is written (12 and 12.0)."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return None if value is None or isinstance(value, bool) else str(value).strip() or None


def lines_named(numbers: Sequence[int]) -> str:
    """Return "line 4", or "3 lines (4, 9, 12)"."""
    first = ", ".join(map(str, numbers[:5])) + (", …" if len(numbers) > 5 else "")
    return f"line {first}" if len(numbers) == 1 else f"{len(numbers)} lines ({first})"
