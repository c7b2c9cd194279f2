"""GEdit-Bench: `MODEL_TASK_TYPE_LANGUAGE_vie_score.csv`, a line for each edit with `sementics_score` and `quality_score`.

For a reply that the script cannot read at the second attempt it writes a random whole number of 0 to 10, also for a
refusal. The files hold no reason, so that such a number cannot be told from a verdict: it stays, and a note says so. An
edit that was skipped, or failed in the end, has no line.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from editloupe.data.images import ImageStore
from editloupe.protocols.published.layouts import GEDIT
from editloupe.errors import DataError
from editloupe.files import read_bytes
from editloupe.protocols.imported import Imported
from editloupe.protocols.published.results import Files, ResultEntry, Said, files_below, imported, means, score
from editloupe.values import finite

_TASKS: Final = "|".join(map(re.escape, GEDIT.kinds))
_NAME: Final = re.compile(rf"(.+)_({_TASKS})(?:_(en|cn|all))?_(?:vie|gpt)_score\.csv")
_WHERE: Final = (
    "MODEL_TASK_TYPE_LANGUAGE_vie_score.csv with en, cn or all for LANGUAGE, such as bagel_style_change_en_vie_score.csv, "
    "as the official script writes them"
)
_COLUMNS: Final = {"semantic_consistency": "sementics_score", "perceptual_quality": "quality_score"}
"""Metric → its column, spelt as the script spells it."""
_NEEDED: Final = (*_COLUMNS.values(), "edited_image", "instruction_language")


def read(folder: Path, *, data: Path, edited: Mapping[str, Path], store: ImageStore) -> Imported:
    """Read the score files below a folder (`editloupe.protocols.imported.Importer`)."""
    entries: list[ResultEntry] = []
    numbers = []
    others: list[str] = []
    for file in files_below(folder, "*_score.csv", _WHERE):
        if (name := _NAME.fullmatch(file.name)) is None:
            others.append(file.name)
            continue
        for number, line in enumerate(_lines(file), start=2):
            language, task = line["instruction_language"], name[2]
            said = {metric: _score(line[column], metric) for metric, column in _COLUMNS.items()}
            entries.append(
                ResultEntry(
                    editor=name[1],
                    sample_id=f"{Path(line['edited_image']).stem}.{language}",
                    place=f"{file.name}, line {number}",
                    said=said,
                    instruction=line.get("instruction"),
                )
            )
            dims = {"language": language, "edit_type": task}
            values = {metric: finite(_float(line[column])) for metric, column in _COLUMNS.items()}
            given = [value for value in values.values() if value is not None]
            if len(given) == len(values) and min(given) >= 0:
                values["overall"] = math.sqrt(math.prod(given))
            numbers += [(name[1], dims, metric, value) for metric, value in values.items() if value is not None]
    left = ", ".join(others[:3]) + (", …" if len(others) > 3 else "")
    if not entries:
        saw = f"; saw {left}" if others else ""
        raise DataError(f"{folder}: no result file with lines; expected {_WHERE}{saw}")
    notes = [f"files of other names are not read: {len(others)}: {left}; expected {_WHERE}"] if others else []
    notes.append(
        f"{len(entries)} lines have no reason: a random number of 0 to 10, which the script writes for a reply that it "
        "cannot read, cannot be told from a verdict here"
    )
    files = Files(entries=entries, published=tuple(means(numbers)), notes=tuple(notes))
    return imported("gedit", files, folder, data=data, edited=edited, store=store)


def _lines(file: Path) -> list[dict[str, str]]:
    """Return the lines of a file by column. Raises DataError."""
    try:
        reader = csv.DictReader(io.StringIO(read_bytes(file).decode("utf-8-sig"), newline=""), strict=True)
        lines = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file}: cannot be read: {error}") from error
    columns = reader.fieldnames or []
    if lacking := [name for name in _NEEDED if name not in columns]:
        raise DataError(f"{file}: no column {lacking[0]!r}; expected {_WHERE}; found {', '.join(columns) or 'none'}")
    if any(None in line or None in line.values() for line in lines):
        raise DataError(f"{file}: a line has another number of fields than the header; was the file cut off?")
    return lines


def _score(text: str, metric: str) -> Said:
    return score(_float(text), metric, "gedit")


def _float(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text
