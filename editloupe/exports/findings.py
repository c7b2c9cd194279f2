"""Write findings as one table: a row a finding that counts, with its sample and judge beside it."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.write import json_bytes, whole
from editloupe.figures.render import records_csv
from editloupe.findings import Finding
from editloupe.values import Json

COLUMNS: Final[Mapping[str, str]] = {
    "task_id": "string",
    "judge_id": "string",
    "repeat": "int64",
    "sample_id": "string",
    "editor": "string",
    "turn": "int64",
    "part": "string",
    "metric": "string",
    "role": "string",
    "status": "string",
    "ending": "string",
    "kind": "string",
    "label": "string",
    "value": "float64",
    "reason": "string",
    "backend": "string",
    "dataset": "string",
    "edit_type": "string",
    "instruction": "string",
    "turns": "int64",
    "seconds": "float64",
    "input_tokens": "int64",
    "output_tokens": "int64",
    "image_tokens": "int64",
    "cached_tokens": "int64",
    "reasoning_tokens": "int64",
    "cost_usd": "float64",
    "answer": "string",
    "evidence": "string",
    "counts": "string",
    "trace": "string",
}
"""Column → type. `answer`, `evidence` and `counts` are JSON text. Unknown values are null."""


def write_findings(source: Source, path: Path) -> int:
    """Write the table in the form that the file's name asks for, and return its rows.

    JSONL keeps a finding as it stands in the run and adds `backend`, `dataset`, `edit_type`, `instruction`, `cost_usd`.
    Raises ConfigError for another name, StorageError.
    """
    kind = path.suffix.lower()
    if kind not in (".jsonl", ".csv", ".parquet"):
        raise ConfigError(f"--findings {path}: expected a name that ends in .jsonl, .csv or .parquet")
    rows = source.findings
    if kind == ".jsonl":
        data = b"".join(json_bytes({**f.to_json(), **_beside(source, f)}) + b"\n" for f in rows)
    elif kind == ".csv":
        data = records_csv((_row(source, f) for f in rows), list(COLUMNS)).encode("utf-8", "replace")
    else:
        data = _parquet([_row(source, f) for f in rows])
    with whole(path) as file:
        file.write(data)
    return len(rows)


def _beside(source: Source, finding: Finding) -> dict[str, Json]:
    sample = source.sample(finding)
    return {
        "backend": source.backends.get(finding.judge_id),
        "dataset": None if sample is None else sample.dataset,
        "edit_type": None if sample is None else sample.edit_type,
        "instruction": source.instruction(finding),
        "cost_usd": source.cost(source.backends.get(finding.judge_id), finding.usage),
    }


def _row(source: Source, finding: Finding) -> dict[str, Any]:
    said: dict[str, Any] = finding.to_json()
    data: dict[str, Any] = {"role": finding.role, **said, **said["usage"], **_beside(source, finding)}
    for name in ("answer", "evidence", "counts"):
        data[name] = None if data[name] is None else json.dumps(data[name], ensure_ascii=False)
    return {name: data.get(name) for name in COLUMNS}


def _parquet(rows: list[dict[str, Any]]) -> bytes:
    import polars

    types = {"string": polars.String, "int64": polars.Int64, "float64": polars.Float64}
    schema = {name: types[kind] for name, kind in COLUMNS.items()}
    buffer = io.BytesIO()
    # Half a surrogate pair is no UTF-8.
    texts = [{k: v.encode("utf-8", "replace").decode() if isinstance(v, str) else v for k, v in r.items()} for r in rows]
    polars.DataFrame(texts, schema=schema, orient="row").write_parquet(buffer)
    return buffer.getvalue()
