"""Write what people said of a run as one long table: a row a rating, as `compare --human` reads it."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Final

from editloupe.data.human import Rating, turn_and_metric
from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.write import json_bytes, whole
from editloupe.figures.render import records_csv
from editloupe.values import Json, sample_key

COLUMNS: Final = ("item", "editor", "turn", "part", "rater", "criterion", "label", "reason", "time")


def write_people(source: Source, path: Path) -> int:
    """Write people's ratings in the form that the file's name asks for, and return how many there are.

    They are those of the data, and those that were given while somebody looked at the run, which have a time and may have
    a reason. What people said of questions that are no metric of the run is among them.
    Raises ConfigError for another name, and where nobody has rated anything; StorageError.
    """
    kind = path.suffix.lower()
    if kind not in (".jsonl", ".csv", ".parquet"):
        raise ConfigError(f"--human {path}: expected a name that ends in .jsonl, .csv or .parquet")
    rows = _rows(source)
    if not rows:
        raise ConfigError(
            f"{source.folder}: nobody has rated anything; give labels in editloupe view, or add columns human_<criterion> "
            "to the metadata"
        )
    if kind == ".jsonl":
        data = b"".join(json_bytes(row) + b"\n" for row in rows)
    elif kind == ".csv":
        data = records_csv(rows, COLUMNS).encode("utf-8", "replace")
    else:
        import polars

        # Labels are words or numbers; one column holds both as text.
        texts = [{**row, "label": str(row["label"])} for row in rows]
        buffer = io.BytesIO()
        types = {name: polars.Int64 if name == "turn" else polars.String for name in COLUMNS}
        polars.DataFrame(texts, schema=types, orient="row").write_parquet(buffer)
        data = buffer.getvalue()
    with whole(path) as file:
        file.write(data)
    return len(rows)


def _rows(source: Source) -> list[dict[str, Json]]:
    store, metrics = source.store, source.store.metrics()
    rows: dict[tuple[object, ...], dict[str, Json]] = {}

    def put(editor: str, item: str, turn: int, part: str, metric: str, rater: str, label: Rating, *said: str) -> None:
        if not source.samples or {item, sample_key(editor, item)} & {*source.samples}:
            values = (item, editor, turn, part, rater, metric, label, *(said or ("", "")))
            rows[values[:6]] = dict(zip(COLUMNS, values, strict=True))

    for sample in store.samples.values():
        for name, by_rater in sample.human.items():
            turn, metric = turn_and_metric(name)
            for rater, rating in by_rater.items() if metric in metrics else ():
                put(sample.editor, sample.id, turn, "", metric, rater, rating)
    for given in store.people.values():
        f, said = given.finding, given.rating
        if said is None and f.answer is not None and f.metric not in metrics:
            # Texts, boxes and records of questions that are no metric, as they were said.
            said = str(f.answer)
        if said is not None:
            put(f.editor, f.sample_id, f.turn, f.part, f.metric, given.rater, said, f.reason, given.time)
    return list(rows.values())
