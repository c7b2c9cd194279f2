"""Boxes of target objects beside the data, by a run of the protocol `targets`: what the mode oracle needs."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from statistics import median

from editloupe.data.folders import Folder, RowError
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import BoxFile
from editloupe.data.rows import DataRow, read_row
from editloupe.data.tables import read_table
from editloupe.errors import DataError
from editloupe.protocols.base import groups
from editloupe.runs.outcome import Outcome
from editloupe.runs.setup import Setup
from editloupe.values import Json, in_one

Place = tuple[str, str]
"""(SHA-256 of a source image, instruction), which samples of several editors share."""


def by_rules(setup: Setup) -> bool:
    """Return whether the baseline named the objects, which is no language model."""
    return setup.judge.backend == "baseline"


def summary(outcome: Outcome) -> dict[str, Json]:
    """Return how many targets there are, where known ones come from, and why others are not known.

    Samples of several editors that share source and instruction count once.
    """
    firsts = {group[0].key for group in groups(outcome.loaded.samples)}
    scores = [score for score in outcome.scores if score.key in firsts]
    rejected = {row.key for row in outcome.loaded.rejected} - {score.key for score in outcome.scores}
    shares = [score.value for score in scores if score.value is not None]
    unknown = Counter(score.missing or "" for score in scores if score.value is None)
    unknown["input_error"] += len(rejected)
    return {
        "targets": len(scores) + len(rejected),
        "how": dict(Counter(str(score.dims["how"]) for score in scores if score.value is not None).most_common()),
        "unknown": {status: count for status, count in unknown.most_common() if count},
        "median_share": median(shares) if shares else None,
    }


def found_boxes(outcome: Outcome) -> dict[Place, dict[str, Json]]:
    """Return the boxes that a detector found, as columns of the data."""
    judge, samples = outcome.setup.judge, {sample.key: sample for sample in outcome.loaded.samples}
    version = outcome.setup.models.versions(("detect",))["detect"]
    rules = f"rules ({judge.backend} {judge.backend_version}, not an LMM)"
    found: dict[Place, dict[str, Json]] = {}
    for score in outcome.scores:
        dims = score.dims
        if dims.get("how") == "detector":
            sample = samples[score.key]
            found[sample.source.sha256, sample.instruction] = {
                "bbox": [round(float(dims[name] or 0), 1) for name in ("x0", "y0", "x1", "y1")],
                "bbox_format": "xyxy",
                "bbox_by": {
                    "detector": version,
                    "score": dims.get("score"),
                    "found": dims.get("detections"),
                    "phrase_by": rules if by_rules(outcome.setup) else judge.backend,
                },
                "target_name": dims.get("phrase"),
            }
    return found


def metadata_with(path: Path, found: Mapping[Place, dict[str, Json]]) -> tuple[str, int]:
    """Return the metadata of a path with these boxes, and how many rows got one.

    A row that has a box keeps it; one whose target is the whole image, or unknown, stays as it is. Raises DataError.
    """
    folder = Folder(path.parent if path.is_file() else path, ImageStore(cache_bytes=0))
    file = path if path.is_file() else next(f for f in sorted(path.glob("metadata.*")) if f.suffix != ".md")
    rows, count, table = list[Mapping[str, Json]](), 0, read_table(file)
    for line in table.lines:
        if line.fault is not None:
            raise DataError(f"{file}, line {line.number}: {line.fault}; a file with boxes needs all lines in order")
        box = None
        with suppress(RowError):  # counted as input_error, and written as it is
            row = read_row(line, folder=folder, text_only=table.text_only)
            if isinstance(row, DataRow) and not (line.values.get("bbox") or line.values.get("bboxes")):
                box = found.get((row.source.image().sha256, in_one(row.instructions)))
        kept = {name: value for name, value in line.values.items() if name not in ("bbox", "bboxes", "bbox_format")}
        rows.append(line.values if box is None else {**kept, **box})
        count += box is not None
    return _lines(rows), count


def sidecar(outcome: Outcome, found: Mapping[Place, dict[str, Json]], keys: BoxFile) -> tuple[str, int]:
    """Return a line for each sample for which a detector found a box, and how many there are.

    keys: what the reader calls id and boxes.   Samples with boxes have no line.
    """
    rows = list[Mapping[str, Json]]()
    for sample in outcome.loaded.samples:
        if box := dict(found.get((sample.source.sha256, sample.instruction), {})):
            del box["target_name"]
            rows.append({keys.id_key: sample.id, keys.boxes_key: box.pop("bbox"), **box})
    return _lines(rows), len(rows)


def _lines(rows: Iterable[Mapping[str, Json]]) -> str:
    return "".join(json.dumps(dict(row), ensure_ascii=False) + "\n" for row in rows)
