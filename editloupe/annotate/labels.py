"""What people said of a run as one long table, as `compare --human` reads it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from editloupe import files
from editloupe.errors import ConfigError, StorageError
from editloupe.figures.render import records_csv
from editloupe.runs.store import RunStore
from editloupe.values import Json

COLUMNS: Final = ("item", "editor", "turn", "part", "rater", "criterion", "label", "reason", "time")


def write_labels(folder: Path, path: Path) -> int:
    """Write a row for each answer that people gave, as CSV, and return how many there are. Skipped questions have none.

    Raises ConfigError where nobody has answered, StorageError.
    """
    rows: list[dict[str, Json]] = []
    for given in RunStore.read(folder).people.values():
        finding = given.finding
        # An answer that is none of its metric's, such as "Edit A is better", is no label of it.
        said = given.rating if given.rating is not None or finding.answer is None else str(finding.answer)
        if said is not None:
            about = finding.sample_id, finding.editor, finding.turn, finding.part, given.rater, finding.metric
            rows.append(dict(zip(COLUMNS, (*about, said, finding.reason, given.time), strict=True)))
    if not rows:
        raise ConfigError(f"{folder}: nobody has answered a question yet; editloupe annotate {folder} asks them")
    try:
        files.write_whole(path, records_csv(rows, COLUMNS).encode("utf-8", "replace"))
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error
    return len(rows)
