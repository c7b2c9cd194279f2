"""Target objects by their share of the image: a table, rows for programs, a plot's lines, and metadata with the boxes."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from editloupe.reports.escape import plain
from editloupe.reports.plots import Shares
from editloupe.runs.targets import TargetArea
from editloupe.values import Json, Sample

LIMITS: Final = (0.001, 0.01, 0.1)
"""Shares of the image under which targets are counted."""

QUANTILES: Final = (0.25, 0.5, 0.75)

_WHY: Final[Mapping[str, str]] = {
    "no_detector": "no detector",
    "not_found": "not found by the detector",
    "no_phrase": "no rule fits the instruction",
    "unparsed": "the LMM's answer cannot be read",
    "contradictory": "the LMM named several objects",
    "refused": "the LMM refused",
    "filtered": "the LMM's answer was filtered",
    "over_budget": "the instruction is too long for the LMM",
    "backend_failed": "the LMM's endpoint failed",
    "tool_failed": "the detector failed",
    "input_error": "the row or its image cannot be read",
    "not_reached": "not reached before the search was stopped",
}

_COLUMNS: Final = (
    "data_set", "item", "instruction", "phrase", "phrase_by", "x0", "y0", "x1", "y1", "area_ratio", "how", "score",
    "detections", "status", "reason",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TargetTable:
    """The targets of one data set under a name."""

    name: str
    rows: tuple[TargetArea, ...]

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

    @property
    def shares(self) -> Shares:
        """As a line of `plots.cumulative`."""
        return Shares(name=self.name, values=self.known, unknown=len(self.rows) - len(self.known))

    def summary(self) -> dict[str, Json]:
        """For programs; a figure that rests on nothing is null."""
        known = self.known
        return {
            "data_set": self.name,
            "targets": len(self.rows),
            "known": len(known),
            "how": {**self.how},
            "unknown": {**self.unknown},
            "quantiles": {f"{q:g}": v for q, v in zip(QUANTILES, _quantiles(known), strict=True)},
            "under": {f"{limit:g}": _under(known, limit) for limit in LIMITS},
        }


def terminal(tables: Sequence[TargetTable], *, notes: Sequence[str] = ()) -> RenderableType:
    """One row a data set; below it where the areas come from and why others are unknown."""
    table = Table(title="Target objects by their share of the image", title_justify="left")
    table.add_column("Data set", overflow="fold")
    for name in ("Targets", "Known", "Q1", "Median", "Q3", *(f"<{100 * v:g} %" for v in LIMITS)):
        table.add_column(name, justify="right", no_wrap=True)
    for one in tables:
        cells = [_percent(v) for v in _quantiles(one.known)] + [_whole(_under(one.known, v)) for v in LIMITS]
        table.add_row(plain(one.name), str(len(one.rows)), str(len(one.known)), *cells)
    parts: list[RenderableType] = [*(plain(note, "yellow") for note in notes), table]
    parts.append(
        Text("Q1, Q3: quartiles; then the part of the known targets that is under so much of its image.", style="dim")
    )
    for one in tables:
        told = [f"{n} from {_source(how)}" for how, n in one.how.items()]
        told += [f"{n} unknown: {_WHY.get(status, status)}" for status, n in one.unknown.items()]
        parts.append(plain(f"{one.name}: {'; '.join(told) or 'no targets'}."))
    return Group(*parts)


def as_json(tables: Sequence[TargetTable], *, notes: Sequence[str] = ()) -> dict[str, Json]:
    """Summaries and every target."""
    items: list[Json] = [{"data_set": one.name, **row.to_json()} for one in tables for row in one.rows]
    return {"notes": list(notes), "summary": [one.summary() for one in tables], "targets": items}


def as_csv(tables: Sequence[TargetTable]) -> str:
    """Every target as a line; box in px, empty where unknown."""
    out = io.StringIO()
    writer = csv.DictWriter(out, _COLUMNS, lineterminator="\n")
    writer.writeheader()
    for one in tables:
        for row in one.rows:
            data = row.to_json()
            box = data.pop("box")
            corners = dict(zip(("x0", "y0", "x1", "y1"), box if isinstance(box, list) else [None] * 4, strict=True))
            writer.writerow({"data_set": one.name, **data, **corners})
    return out.getvalue()


def with_boxes(
    lines: Sequence[tuple[Mapping[str, Json], tuple[str, str]]], rows: Sequence[TargetArea], *, detector: str
) -> tuple[str, int]:
    """metadata.jsonl with the boxes that a detector found, and how many rows got one.

    lines: each row's columns, with (sha256 of its source, its instruction).   detector: its version.
    A row that has a box keeps it; one whose target is the whole image, or unknown, stays as it is.
    """
    found = {(r.source.sha256, r.instruction): r for r in rows if r.how == "detector" and r.source is not None}
    out, count = [], 0
    for values, key in lines:
        row = found.get(key)
        if row is None or row.box is None or values.get("bbox") or values.get("bboxes"):
            out.append(dict(values))
            continue
        kept = {name: value for name, value in values.items() if name not in ("bbox", "bboxes", "bbox_format")}
        box: list[Json] = [round(v, 1) for v in row.box]
        by: Json = _by(row, detector)
        out.append({**kept, "bbox": box, "bbox_format": "xyxy", "target_name": row.phrase, "bbox_by": by})
        count += 1
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in out), count


def sidecar(
    samples: Sequence[Sample], rows: Sequence[TargetArea], *, id_key: str, boxes_key: str, detector: str
) -> tuple[str, int]:
    """A line a sample for which a detector found a box, by its id, and how many there are; samples with boxes have none.

    id_key, boxes_key: what the reader calls them.   detector: its version.
    """
    found = {(r.source.sha256, r.instruction): r for r in rows if r.how == "detector" and r.source is not None}
    out: list[dict[str, Json]] = []
    for sample in samples:
        row = found.get((sample.source.sha256, sample.instruction))
        if row is None or row.box is None or any("source" in target.boxes for target in sample.targets):
            continue
        box: list[Json] = [round(v, 1) for v in row.box]
        out.append({id_key: sample.id, boxes_key: box, "bbox_format": "xyxy", "bbox_by": _by(row, detector)})
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in out), len(out)


def _by(row: TargetArea, detector: str) -> dict[str, Json]:
    return {"detector": detector, "score": row.score, "found": row.detections, "phrase_by": row.phrase_by}


def _quantiles(values: Sequence[float]) -> list[float | None]:
    return [float(np.quantile(values, q)) if values else None for q in QUANTILES]


def _under(values: Sequence[float], limit: float) -> float | None:
    return sum(v < limit for v in values) / len(values) if values else None


def _percent(share: float | None) -> str:
    """ "0.035 %", "12 %"; a dash where there is none."""
    if share is None:
        return "–"
    value = 100 * share
    return f"{value:.0f} %" if value >= 10 else f"{value:.1f} %" if value >= 1 else f"{value:.2g} %"


def _whole(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _source(how: str) -> str:
    return {"boxes": "the data's boxes", "detector": "the detector", "whole image": "instructions about the whole image"}[
        how
    ]
