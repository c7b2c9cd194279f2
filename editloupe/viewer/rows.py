"""The sample table of a run: one small row a sample, for a page's script to filter, sort and page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from editloupe.data.human import value_on
from editloupe.findings import Finding
from editloupe.imaging.targets import relative_area
from editloupe.reports.escape import safe
from editloupe.reports.fragments import tone
from editloupe.scores import Metric, MetricSet
from editloupe.values import Sample
from editloupe.viewer.index import Entry
from editloupe.viewer.pictures import Pictures, same_region, target_region

_INSTRUCTION = 300


def row(entry: Entry, rubric: MetricSet, pictures: Pictures, judges: Mapping[str, str]) -> dict[str, Any]:
    """One row as JSON.

    area: of the targets, % of the source, None where no box is known.   labels: by criterion, one a finding.
    spread: the largest distance between judges or repeats on one criterion; human: the same between a person and a judge;
    both 0..100, None where there are no two to compare.
    """
    sample = entry.sample
    findings = {c.id: [f for f in entry.findings if f.metric == c.id] for c in rubric.metrics}
    many = len(judges) > 1
    return {
        "slug": entry.slug,
        "id": safe(entry.id),
        "editor": safe(entry.editor),
        "text": safe(" ".join((sample.instruction if sample else _reason(entry)).split())[:_INSTRUCTION]),
        "type": safe(_edit_type(entry)),
        "area": None if sample is None else target_area(sample),
        "thumbs": [] if sample is None else list(thumbs(sample, pictures)),
        "labels": {c: [_label(f, rubric, judges if many else {}) for f in found] for c, found in findings.items()},
        "spread": _most(spread(found, rubric.metric(c)) for c, found in findings.items()),
        "human": _most(human_gap(sample, found, rubric.metric(c)) for c, found in findings.items()),
        "turns": sum(f.turns for f in entry.findings),
        "running": len(entry.open),
    }


def target_area(sample: Sample) -> float | None:
    """The targets' share of the source image, in %; None where no box is known."""
    share = relative_area(sample)
    return None if share is None else round(100 * share, 3)


def human_values(sample: Sample | None, criterion: Metric) -> dict[str, tuple[str, float | None]]:
    """Return what people said of one metric: rater → (their words, the value on the metric's scale if it has one)."""
    ratings = {} if sample is None else sample.human.get(criterion.id, {})
    return {rater: (str(given), value_on(criterion, given)) for rater, given in ratings.items()}


def spread(findings: list[Finding], criterion: Metric) -> float | None:
    """How far judges and repeats lie apart on one criterion, 0..100; None with fewer than two verdicts."""
    values = [criterion.normalise(f.value) for f in findings if f.value is not None]
    return round(max(values) - min(values), 2) if len(values) > 1 else None


def human_gap(sample: Sample | None, findings: list[Finding], criterion: Metric) -> float | None:
    """The largest distance between a person's label and a judge's, 0..100; None where either is missing."""
    people = [v for _, v in human_values(sample, criterion).values() if v is not None]
    judged = [f.value for f in findings if f.value is not None]
    gaps = [abs(criterion.normalise(a) - criterion.normalise(b)) for a in people for b in judged]
    return round(max(gaps), 2) if gaps else None


def finding_tone(finding: Finding, rubric: MetricSet) -> str:
    """The colour class of a verdict."""
    known = {c.id: c for c in rubric.metrics}
    if finding.value is None or finding.metric not in known:
        return tone(None)
    return tone(known[finding.metric].normalise(finding.value))


def answered(finding: Finding) -> str:
    """A judged finding's answer in a word: its label, its number, else that there is one."""
    if finding.label is not None:
        return finding.label
    return "answered" if finding.value is None else f"{finding.value:g}"


def _label(finding: Finding, rubric: MetricSet, judges: Mapping[str, str]) -> dict[str, Any]:
    told = {"tone": finding_tone(finding, rubric), "status": finding.status, "value": finding.value}
    words = answered(finding) if finding.status == "ok" else f"({finding.status})"
    by = judges.get(finding.judge_id, "")
    return told | {"name": safe(words)} | ({"by": safe(by)} if by else {})


def thumbs(sample: Sample, pictures: Pictures) -> Iterator[str]:
    """The names of a sample's thumbnails: the source's, then the edited image's, as far as their bytes were kept."""
    region = target_region(sample)
    name = pictures.thumb_name(sample.source, region)
    if name:
        yield name
    if sample.edited is not None:
        name = pictures.thumb_name(sample.edited, same_region(region, sample.source, sample.edited))
        if name:
            yield name


def _edit_type(entry: Entry) -> str | None:
    found = entry.sample.edit_type if entry.sample else (entry.rejected or {}).get("edit_type")
    return None if found is None else str(found)


def _reason(entry: Entry) -> str:
    told = entry.rejected.get("message") if entry.rejected else None
    return str(told or "this sample could not be read")


def _most(values: Iterator[float | None]) -> float | None:
    return max((v for v in values if v is not None), default=None)
