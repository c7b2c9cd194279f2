"""UnicBench and UnicEdit-10M as they are downloaded. `unicbench.toml` says where their rows and images lie.

A row of UnicBench becomes one sample a language: `KEY.en`, `KEY.cn`. Several rows of UnicEdit-10M may have one key, so that
an id has a digest of the edit too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

from editloupe.data.folders import RowError
from editloupe.data.loaders.layout import path_part
from editloupe.data.loaders.mapped import Mapped, Rows
from editloupe.data.rows import DataRow, Row, rejected
from editloupe.data.tables import TableLine, shown
from editloupe.values import Json


class UnicData(Mapped):
    """The rows, with ids."""

    def values(self, raw: Mapping[str, Json], line: TableLine, rows: Rows, language: str) -> dict[str, Json]:
        key = raw["key"]
        if not isinstance(key, str):
            raise RowError("row", f"key 'key': expected text, found {shown(key)}; give the row another key")
        path_part(key, "key")
        found = super().values(raw, line, rows, language)
        found = {k: v for k, v in found.items() if v is not None or k == "instruction"}
        for name in ("task", "subtask"):
            if not isinstance(value := found.get(name), str) or not value.strip():
                raise RowError("row", f"key {key!r}: {name!r}: expected its name, found {shown(value)}")
        return found if language else {**found, "language": "en"}

    def row(self, line: TableLine, rows: Rows, language: str = "") -> Row:
        row = super().row(line, rows, language)
        if not isinstance(row, DataRow):
            key = line.values.get("key")
            id_ = row.id or (f"{key}.{language}" if isinstance(key, str) and language else "")
            return replace(row, id=id_ if line.fault is None else f"line-{line.number}.{language}")
        if language or row.edited[0] is None:
            return row
        try:
            return replace(row, id=f"{line.values['key']}-{row.edited[0].image().sha256[:12]}")
        except RowError as error:
            return rejected(row, error)


UNICBENCH: Final = UnicData(Path(__file__).with_name("unicbench.toml"))
