"""Tables of rows (JSON Lines, CSV, JSON, Parquet, Arrow) as numbered lines, the broken ones among them."""

from __future__ import annotations

import codecs
import csv
import datetime
import decimal
import io
import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from editloupe.errors import SampleError
from editloupe.files import open_plain, read_bytes
from editloupe.values import Json, check_extent, distinct_keys, parse_json

if TYPE_CHECKING:
    import polars

ENDINGS: Final = (".jsonl", ".csv", ".tsv", ".parquet")
_HEAD: Final = 1_000_000
"""Bytes in which the columns of a text file are looked for."""


@dataclass(frozen=True, kw_only=True)
class TableLine:
    """One row of a table."""

    number: int
    """From 1: the line where the row begins in a text file, the place of the row in another one."""
    values: Mapping[str, Json]
    """By column; empty where `fault` says what is wrong with the line."""
    fault: str | None = None
    key: str = ""
    """In a JSON file: the key of the row in an object, its place in a list."""
    paths: Mapping[str, str] = field(default_factory=dict)
    """Column that holds images → the path that is written beside the row's."""


@dataclass(frozen=True, kw_only=True)
class MetadataTable:
    """A metadata file."""

    file: Path
    columns: tuple[str, ...]
    """Every name that occurs."""
    lines: tuple[TableLine, ...]
    text_only: bool = False
    """Whether each value is text (CSV), so that numbers must be read from it."""


def read_table(file: Path, *, but: Collection[str] = (), prepared: Callable[[str], str] = str) -> MetadataTable:
    """Read the whole file, by its ending. A broken line is kept with its fault; blank lines are left out.

    but: columns of a Parquet or Arrow file that are not read, such as those with images (`data.embedded`).
    prepared: makes the text of a JSON file easier to read.
    Raises SampleError where nothing in the file can be used (not UTF-8, no header, no rows).
    """
    try:
        table = _of_frame(file, but) if _is_frame(file) else _of_text(file, read_bytes(file), prepared)
    except OSError as error:
        raise SampleError(f"cannot be read: {error.strerror or error}", file=file) from error
    if not table.lines:
        raise SampleError("holds no rows; expected one row for each edit", file=file)
    return table


def columns_of(file: Path) -> tuple[str, ...]:
    """Return the columns of a table, read off its beginning; () where it has none or cannot be read."""
    try:
        if _is_frame(file):
            return tuple(schema_of(file))
        with open_plain(file) as opened:
            head = opened.read(_HEAD)
        return _of_text(file, head[: head.rfind(b"\n") + 1] if len(head) == _HEAD else head).columns
    except (OSError, SampleError):
        return ()


def _is_frame(file: Path) -> bool:
    return file.suffix.lower() in (".parquet", ".arrow")


def _of_text(file: Path, data: bytes, prepared: Callable[[str], str] = str) -> MetadataTable:
    ending = file.suffix.lower()
    if ending in (".csv", ".tsv"):
        return _of_csv(file, _text(file, data))
    lines = _json_rows(file, prepared(_text(file, data))) if ending == ".json" else _json_lines(data)
    return MetadataTable(file=file, columns=tuple(dict.fromkeys(n for line in lines for n in line.values)), lines=lines)


def _text(file: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SampleError("is not UTF-8; save the file as UTF-8", file=file, line=line) from error


def _json_lines(data: bytes) -> tuple[TableLine, ...]:
    """Read an object a line."""
    lines = enumerate(data.removeprefix(codecs.BOM_UTF8).splitlines(), start=1)
    return tuple(_json_line(number, raw) for number, raw in lines if raw.strip())


def _json_line(number: int, raw: bytes) -> TableLine:
    try:
        values = parse_json(raw.decode(), parse_constant=_finite, parse_float=_finite, object_pairs_hook=distinct_keys)
        if b"\\u" in raw:
            # Half a surrogate pair ("\ud800") is read but could never be written again.
            json.dumps(values, ensure_ascii=False).encode("utf-8")
        check_extent(values)
        if not isinstance(values, dict):
            raise ValueError(f"expected one JSON object {{…}}, found {shown(values)}")
        return TableLine(number=number, values=values)
    except ValueError as error:
        # Of the errors of text and of JSON, the first words.
        broken = isinstance(error, UnicodeError) or hasattr(error, "colno")
        fault = f"is broken JSON or not UTF-8: {error}; expected one object on the line" if broken else str(error)
        return TableLine(number=number, values={}, fault=fault)


def _finite(text: str) -> float:
    if not math.isfinite(value := float(text)):
        raise ValueError(f"holds {text[:60]}, which is not a JSON number that can be kept; leave the key out or write null")
    return value


def _json_rows(file: Path, text: str) -> tuple[TableLine, ...]:
    """Read an object of rows by key, a list of rows, or a row a line. A row that is a list holds it as `turns`."""
    try:
        found = parse_json(text, object_pairs_hook=distinct_keys, parse_constant=_finite)
    except ValueError as error:
        lines = [line for line in text.splitlines() if line.strip()]
        if len(lines) < 2 or not all(line.lstrip().startswith("{") for line in lines):
            raise SampleError(
                f"is not JSON that can be read, or is cut off: {error}; nothing is repaired", file=file
            ) from error
        rows = _json_lines(text.encode("utf-8", "surrogatepass"))
        return tuple(replace(row, key=str(n)) for n, row in enumerate(rows, start=1))
    if not isinstance(found, dict | list):
        raise SampleError(f"expected an object or a list of rows, found {shown(found)}", file=file)
    entries = found.items() if isinstance(found, dict) else ((str(n), row) for n, row in enumerate(found, start=1))
    return tuple(_json_row(number, key, row) for number, (key, row) in enumerate(entries, start=1))


def _json_row(number: int, key: str, row: Json) -> TableLine:
    if isinstance(row, list):
        row = {"turns": row}
    if isinstance(row, dict):
        return TableLine(number=number, values=row, key=key)
    return TableLine(number=number, values={}, fault=f"expected an object, found {shown(row)}", key=key)


def _of_csv(file: Path, text: str) -> MetadataTable:
    first = next(iter(text.splitlines()), "")
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=max(",;\t", key=first.count), strict=True)
    rows = _csv_rows(reader)
    _, header, wrong = next(rows, (1, [], "is empty; expected a header line with the names of the columns"))
    columns = tuple(name.strip() for name in header)
    if wrong is None and len(set(columns)) < len(columns):
        wrong = f"the header names a column twice: {', '.join(columns)}"
    if wrong is not None:
        raise SampleError(wrong, file=file, line=1)
    lines = []
    for number, cells, fault in rows:
        if fault is None and len(cells) != len(columns):
            fault = f"has {len(cells)} fields where the header has {len(columns)}; put text with commas in quotes"
        values: Mapping[str, Json] = {} if fault else dict(zip(columns, cells, strict=True))
        lines.append(TableLine(number=number, values=values, fault=fault))
    return MetadataTable(file=file, columns=columns, lines=tuple(lines), text_only=True)


def _csv_rows(reader: Iterator[list[str]]) -> Iterator[tuple[int, Sequence[str], str | None]]:
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


def schema_of(file: Path) -> dict[str, polars.DataType]:
    """Return the columns of a Parquet or Arrow file with their types. Raises SampleError."""
    with _opened(file) as lazy:
        return dict(lazy.collect_schema())


def _of_frame(file: Path, but: Collection[str]) -> MetadataTable:
    with _opened(file) as lazy:
        frame = lazy.select([name for name in lazy.collect_schema() if name not in but]).collect()
        rows = [{column: _as_json(value) for column, value in row.items()} for row in frame.iter_rows(named=True)]
    lines = tuple(TableLine(number=number, values=values) for number, values in enumerate(rows, start=1))
    return MetadataTable(file=file, columns=tuple(frame.columns), lines=lines)


@contextmanager
def _opened(file: Path) -> Iterator[polars.LazyFrame]:
    """Yield `lazily(file)`. What polars raises meanwhile becomes SampleError."""
    import polars

    try:
        yield lazily(file)
    except OSError as error:
        raise SampleError(f"cannot be read: {error.strerror or error}", file=file) from error
    except (polars.exceptions.PolarsError, polars.exceptions.PanicException, ValueError, OverflowError) as error:
        what = "an Arrow stream" if file.suffix.lower() == ".arrow" else "a Parquet file"
        raise SampleError(f"is not {what} that can be read: {error}", file=file) from error


def lazily(file: Path) -> polars.LazyFrame:
    """Return a Parquet or Arrow file, of which polars reads what is asked for. Raises what polars raises, and OSError."""
    import polars

    with open_plain(file) as opened:
        if file.suffix.lower() == ".arrow":
            return polars.read_ipc_stream(opened).lazy()
    return polars.scan_parquet(file, glob=False, hive_partitioning=False)


def _as_json(value: object) -> Json:
    """Return a Parquet value as JSON. NaN, by which pandas writes that nothing is there, becomes null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float | decimal.Decimal):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(k): _as_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_as_json(v) for v in value]
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
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
