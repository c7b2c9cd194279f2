"""Target objects by name, box and share of the image: rows for programs, and the boxes beside the data.

All is made of the scores of the protocol `targets`. What is written beside the data is what the mode oracle needs.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field

from editloupe.data.folders import Folder, RowError
from editloupe.data.images import ImageStore
from editloupe.data.loaders.base import BoxFile
from editloupe.data.rows import DataRow, read_row
from editloupe.data.tables import read_table
from editloupe.errors import DataError
from editloupe.figures import render
from editloupe.protocols.base import groups
from editloupe.runs.outcome import Outcome
from editloupe.runs.setup import Setup
from editloupe.scores import NOT_JUDGED, Score
from editloupe.values import Box, Json, Sample, Serializable, in_one

LIMITS: Final = (0.001, 0.01, 0.1)
"""Shares of the image under which targets are counted."""

QUANTILES: Final = (0.25, 0.5, 0.75)

_COLUMNS: Final = (
    "item", "instruction", "phrase", "phrase_by", "x0", "y0", "x1", "y1", "area_ratio", "how", "score",
    "detections", "status", "reason",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TargetRow(Serializable):
    """One target of one edit. Samples of several editors that share source and instruction count once."""

    item: str
    """The sample's id."""
    instruction: str = ""
    phrase: str | None = None
    """The object's name; "image" for the whole image."""
    phrase_by: str = ""
    """Who named it."""
    box: Box | None = None
    """In px of the source image."""
    area_ratio: float | None = None
    """Area of the box ÷ area of the image, above 0 up to 1; None exactly if the status is not "ok"."""
    how: str = ""
    """"boxes" of the data, "detector" or "whole image"; "" where nothing is known."""
    score: float | None = None
    """The detector's score of the box."""
    detections: int | None = None
    """How many boxes the detector found; None where no detector was asked."""
    status: str = "ok"
    reason: str = ""
    source: Annotated[str, Field(exclude=True)] = ""
    """SHA-256 of the source image."""


def by_rules(setup: Setup) -> bool:
    """Return whether the baseline named the objects, which is no language model."""
    return setup.judge.backend == "baseline"


@dataclass(frozen=True, kw_only=True)
class TargetTable:
    """The targets of one data set under a name."""

    name: str
    rows: tuple[TargetRow, ...]
    """Every target in the order of the data, then the rows that could not be read."""

    @classmethod
    def of(cls, name: str, outcome: Outcome) -> TargetTable:
        """Return the targets of a run of the protocol `targets`."""
        firsts = {group[0].key: group[0] for group in groups(outcome.loaded.samples)}
        rows = [_row(firsts[score.key], score, outcome.setup) for score in outcome.scores if score.key in firsts]
        seen = {row.item for row in rows}
        rejected = {row.id: row.message for row in outcome.loaded.rejected if row.id not in seen}
        rows += [TargetRow(item=id_, status="input_error", reason=why) for id_, why in rejected.items()]
        return cls(name=name, rows=tuple(rows))

    @property
    def known(self) -> tuple[float, ...]:
        """Area ratios that are known."""
        return tuple(row.area_ratio for row in self.rows if row.area_ratio is not None)

    @property
    def unknown(self) -> dict[str, int]:
        """Targets of unknown area by status, the most frequent first."""
        return dict(Counter(row.status for row in self.rows if row.area_ratio is None).most_common())

    @property
    def how(self) -> dict[str, int]:
        """Known areas by where they come from."""
        return dict(Counter(row.how for row in self.rows if row.area_ratio is not None).most_common())

    def to_json(self, *, notes: Sequence[str] = ()) -> dict[str, Json]:
        """Return a summary, in which a figure that rests on nothing is null, and every target."""
        known = self.known
        return {
            "notes": list(notes),
            "data_set": self.name,
            "known": len(known),
            "how": {**self.how},
            "unknown": {**self.unknown},
            "quantiles": {f"{q:g}": v for q, v in zip(QUANTILES, quantiles(known), strict=True)},
            "under": {f"{limit:g}": under(known, limit) for limit in LIMITS},
            "targets": [row.to_json() for row in self.rows],
        }

    def csv(self) -> str:
        """Return every target as a line; its box in px, empty where unknown."""
        corners = ("x0", "y0", "x1", "y1")
        lines = [{**row.to_json(), **dict(zip(corners, row.box or (), strict=False))} for row in self.rows]
        return render.records_csv([{name: line.get(name) for name in _COLUMNS} for line in lines], _COLUMNS)


def metadata_lines(path: Path) -> list[tuple[Mapping[str, Json], tuple[str, str]]]:
    """Return the metadata's rows with (source, instruction) as the samples have them."""
    folder = Folder(path.parent if path.is_file() else path, ImageStore(cache_bytes=0))
    file = path if path.is_file() else next(f for f in sorted(path.glob("metadata.*")) if f.suffix != ".md")
    lines: list[tuple[Mapping[str, Json], tuple[str, str]]] = []
    table = read_table(file)
    for line in table.lines:
        if line.fault is not None:
            raise DataError(f"{file}, line {line.number}: {line.fault}; a file with boxes needs all lines in order")
        row = read_row(line, folder=folder, text_only=table.text_only)
        place = ("", "")  # counted as input_error above, and written as it is
        with suppress(RowError):
            if isinstance(row, DataRow):
                place = (row.source.image().sha256, in_one(row.instructions))
        lines.append((line.values, place))
    return lines


def with_boxes(
    lines: Iterable[tuple[Mapping[str, Json], tuple[str, str]]], rows: Sequence[TargetRow], *, detector: str
) -> tuple[str, int]:
    """Return metadata.jsonl with the boxes that a detector found, and how many rows got one.

    lines: each row's columns, with (sha256 of its source, its instruction).   detector: its version.
    A row that has a box keeps it; one whose target is the whole image, or unknown, stays as it is.
    """
    found = _detected(rows, detector)
    out: list[Mapping[str, Json]] = []
    count = 0
    for values, key in lines:
        box = None if values.get("bbox") or values.get("bboxes") else found.get(key)
        kept = {name: value for name, value in values.items() if name not in ("bbox", "bboxes", "bbox_format")}
        out.append(values if box is None else {**kept, **box})
        count += box is not None
    return _lines(out), count


def sidecar(samples: Iterable[Sample], rows: Sequence[TargetRow], *, keys: BoxFile, detector: str) -> tuple[str, int]:
    """Return a line for each sample for which a detector found a box, and how many there are.

    keys: what the reader calls id and boxes.   detector: its version.   Samples with boxes have no line.
    """
    found, out = _detected(rows, detector), list[Mapping[str, Json]]()
    for sample in samples:
        if box := dict(found.get((sample.source.sha256, sample.instruction), {})):
            del box["target_name"]
            out.append({keys.id_key: sample.id, keys.boxes_key: box.pop("bbox"), **box})
    return _lines(out), len(out)


def _row(sample: Sample, score: Score, setup: Setup) -> TargetRow:
    judge, rules = setup.judge, by_rules(setup)
    named_by = f"rules ({judge.backend} {judge.backend_version}, not an LMM)" if rules else judge.backend
    dims: Mapping[str, Any] = score.dims
    phrase, how = dims.get("phrase"), str(dims.get("how", ""))
    corners = [dims[name] for name in ("x0", "y0", "x1", "y1") if name in dims]
    status = score.missing or "ok"
    if status == "abstained" and rules:
        status = "no_phrase"
    elif status == "not_defined":
        # Either the detector answered and found none, or there is no detector.
        status = "not_found" if dims.get("detections") == 0 else "no_detector"
    elif status == NOT_JUDGED:
        status = "not_reached"
    return TargetRow(
        item=sample.id,
        instruction=sample.instruction,
        source=sample.source.sha256,
        phrase=phrase,
        phrase_by=named_by if how != "boxes" else "the data" if phrase else "",
        box=Box(*corners) if corners else None,
        area_ratio=score.value,
        how=how,
        score=dims.get("score"),
        detections=dims.get("detections"),
        status=status,
        reason=score.reason,
    )


def _detected(rows: Sequence[TargetRow], detector: str) -> dict[tuple[str, str], Mapping[str, Json]]:
    """(source, instruction) → the columns of a box that a detector found."""
    found: dict[tuple[str, str], Mapping[str, Json]] = {}
    for row in rows:
        if row.how == "detector":
            by: Json = {"detector": detector, "score": row.score, "found": row.detections, "phrase_by": row.phrase_by}
            corners: Json = [round(v, 1) for v in row.box or ()]
            columns: dict[str, Json] = {"bbox": corners, "bbox_format": "xyxy", "bbox_by": by, "target_name": row.phrase}
            found[row.source, row.instruction] = columns
    return found


def _lines(rows: Iterable[Mapping[str, Json]]) -> str:
    return "".join(json.dumps(dict(row), ensure_ascii=False) + "\n" for row in rows)


def quantiles(values: Sequence[float]) -> list[float | None]:
    """Return the `QUANTILES` of shares; None where there are none."""
    return [float(np.quantile(values, q)) if values else None for q in QUANTILES]


def under(values: Sequence[float], limit: float) -> float | None:
    """Return how much of some shares is under a limit, 0 to 1; None where there are none."""
    return sum(v < limit for v in values) / len(values) if values else None
