"""Metadata files (JSON Lines, CSV, Parquet) as numbered lines, the broken ones among them."""

from __future__ import annotations

import codecs
import csv
import datetime
import decimal
import io
import json
import math
import mmap
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from editloupe.data import arrow, parquet
from editloupe.errors import SampleError
from editloupe.files import open_plain, read_bytes
from editloupe.values import MAX_NESTING, Json, check_extent, distinct_keys, parse_json

if TYPE_CHECKING:
    import polars

ENDINGS: Final = (".jsonl", ".csv", ".parquet")


@dataclass(frozen=True, kw_only=True)
class TableLine:
    """One row of a table."""

    number: int
    """From 1: the line where the row begins in a text file, the row itself in a Parquet file."""
    values: Mapping[str, Json]
    """By column; empty where `fault` says what is wrong with the line."""
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class MetadataTable:
    """A metadata file."""

    file: Path
    columns: tuple[str, ...]
    """Every name that occurs."""
    lines: tuple[TableLine, ...]
    text_only: bool
    """Whether each value is text (CSV), so that numbers must be read from it."""


def read_table(file: Path, *, but: Collection[str] = ()) -> MetadataTable:
    """Read the whole file, by its ending. A broken line is kept with its fault; blank lines are left out.

    but: columns of a Parquet file that are not read, such as those with images (`data.embedded`).
    Raises SampleError where nothing in the file can be used (not UTF-8, no header, no rows).
    """
    ending = file.suffix.lower()
    try:
        if ending == ".parquet":
            table = _read_parquet(file, but)
        else:
            table = (_read_csv if ending in (".csv", ".tsv") else _read_jsonl)(file)
    except OSError as error:
        raise SampleError(f"cannot be read: {error.strerror or error}", file=file) from error
    if not table.lines:
        raise SampleError("holds no rows; expected one row for each edit", file=file)
    return table


def _read_jsonl(file: Path) -> MetadataTable:
    raw_lines = read_bytes(file).removeprefix(codecs.BOM_UTF8).splitlines()
    lines = [_json_line(number, raw) for number, raw in enumerate(raw_lines, start=1) if raw.strip()]
    columns = dict.fromkeys(name for line in lines for name in line.values)
    return MetadataTable(file=file, columns=tuple(columns), lines=tuple(lines), text_only=False)


def _json_line(number: int, raw: bytes) -> TableLine:
    try:
        values = parse_json(
            raw.decode("utf-8"), parse_constant=_refuse, parse_float=_finite, object_pairs_hook=distinct_keys
        )
        if b"\\u" in raw:
            # A lone surrogate ("\ud800") is read but could never be written again.
            json.dumps(values, ensure_ascii=False).encode("utf-8")
        check_extent(values)
    except UnicodeDecodeError as error:
        fault = f"is not UTF-8 (byte {error.start + 1}); save the file as UTF-8"
    except UnicodeEncodeError:
        fault = "holds half of a surrogate pair, which is no character"
    except json.JSONDecodeError as error:
        fault = f"is broken JSON: {error.msg} at column {error.colno}; expected one object on the line"
    except ValueError as error:
        fault = str(error)
    else:
        if isinstance(values, dict):
            return TableLine(number=number, values=values)
        fault = f"expected one JSON object {{…}}, found {shown(values)}"
    return TableLine(number=number, values={}, fault=fault)


def _refuse(constant: str) -> float:
    raise ValueError(f"holds {constant}, which is not a JSON number; leave the key out or write null")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"holds the number {text[:60]}, which is too large")
    return value


def _read_csv(file: Path) -> MetadataTable:
    raw = read_bytes(file)
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise SampleError("is not UTF-8; save the file as UTF-8 (CSV UTF-8)", file=file, line=line) from error
    first = next(iter(text.splitlines()), "")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True)
    rows = _csv_rows(reader)
    header = next(rows, None)
    if header is None:
        raise SampleError("is empty; expected a header line with the names of the columns", file=file)
    columns = tuple(name.strip() for name in header[1])
    if header[2] is not None or len(set(columns)) < len(columns):
        wrong = header[2] or f"the header names a column twice: {', '.join(columns)}"
        raise SampleError(wrong, file=file, line=1)
    lines = []
    for number, cells, fault in rows:
        if fault is None and len(cells) != len(columns):
            fault = f"has {len(cells)} fields where the header has {len(columns)}; put text with commas in quotes"
        values: Mapping[str, Json] = {} if fault else dict(zip(columns, cells, strict=True))
        lines.append(TableLine(number=number, values=values, fault=fault))
    return MetadataTable(file=file, columns=columns, lines=tuple(lines), text_only=True)


def _csv_rows(reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str], str | None]]:
    """Yield (line where the row begins, cells, fault) of each row that is not blank."""
    while True:
        number = int(getattr(reader, "line_num", 0)) + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            yield number, [], f"is broken CSV: {error}; put text with quotes in quotes and double those inside"
            continue
        if any(cell.strip() for cell in cells):
            yield number, cells, None


def parquet_columns(file: Path) -> tuple[str, ...]:
    """Return the columns of a Parquet file, read off its footer. Raises SampleError: no such file, or nested too deep."""
    import polars

    try:
        with open_plain(file) as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            # The reader crashes on columns that are nested deeper.
            if parquet.depth(data) > MAX_NESTING:
                raise ValueError(f"its columns are nested in more than {MAX_NESTING} levels")
        return tuple(polars.read_parquet_schema(file))
    except OSError as error:
        raise SampleError(f"cannot be read: {error.strerror or error}", file=file) from error
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, ValueError) as error:
        raise SampleError(f"is not a Parquet file that can be read: {error}", file=file) from error


def _read_parquet(file: Path, but: Collection[str]) -> MetadataTable:
    import polars

    refused = (polars.exceptions.PolarsError, polars.exceptions.PanicException, ValueError, OverflowError)
    columns = [column for column in parquet_columns(file) if column not in but]
    try:
        frame = polars.read_parquet(file, columns=columns, glob=False, hive_partitioning=False)
    except refused as error:
        raise SampleError(f"is not a Parquet file that can be read: {error}", file=file) from error
    return table_of(frame, file)


def read_arrow(file: Path, *, rows: int | None = None) -> polars.DataFrame:
    """Read an Arrow file in the streaming format, which `datasets` writes. rows: as many at most; 0 for the columns alone.

    Raises SampleError.
    """
    import polars

    try:
        with open_plain(file) as opened:
            with mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
                # The reader does not end on columns that are nested deeper.
                if arrow.depth(data) > MAX_NESTING:
                    raise ValueError(f"its columns are nested in more than {MAX_NESTING} levels")
            return polars.read_ipc_stream(opened, n_rows=rows)
    except OSError as error:
        raise SampleError(f"cannot be read: {error.strerror or error}", file=file) from error
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, ValueError) as error:
        raise SampleError(f"is not an Arrow stream that can be read: {error}", file=file) from error


def table_of(frame: polars.DataFrame, file: Path) -> MetadataTable:
    """Return the rows of a frame as a table. A row with a value that Python does not have is a fault."""
    import polars

    # A value that Python does not have, such as a date after the year 9999, makes polars panic.
    refused = (polars.exceptions.PolarsError, polars.exceptions.PanicException, ValueError, OverflowError)
    try:
        rows: Iterator[dict[str, Any] | str] = iter(list(frame.iter_rows(named=True)))
    except refused:
        rows = (_parquet_row(frame, number, refused) for number in range(frame.height))
    lines = tuple(
        TableLine(number=number, values={}, fault=row)
        if isinstance(row, str)
        else TableLine(number=number, values={column: _as_json(value) for column, value in row.items()})
        for number, row in enumerate(rows, start=1)
    )
    return MetadataTable(file=file, columns=tuple(frame.columns), lines=lines, text_only=False)


def _parquet_row(frame: polars.DataFrame, number: int, refused: tuple[type[BaseException], ...]) -> dict[str, Any] | str:
    """Return a row, from 0, or what is wrong with it."""
    try:
        return frame.row(number, named=True)
    except refused as error:
        return f"holds a value that cannot be read: {error}"


def _as_json(value: object) -> Json:
    """Return a Parquet value as JSON. NaN stays, so that the reader of the column can refuse or drop it."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): _as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(v) for v in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return float(value)
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    return str(value)


def shown(value: object) -> str:
    """Return a value as it stands in a message: what kind it is, and its beginning."""
    if value is None:
        return "null"
    text = repr(value)
    text = text if len(text) <= 60 else text[:57] + "…"
    if isinstance(value, bool):
        return text.lower()
    kind = {str: "text", int: "the number", float: "the number", list: "the list", dict: "the object"}.get(type(value), "")
    return f"{kind} {text}".strip()
