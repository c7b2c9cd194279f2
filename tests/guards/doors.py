"""The doors through which the guards read runs and make tables: the one place here that knows their fields by name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from editloupe import Finding, Run, Sample
from editloupe.figures.judged import Judged
from editloupe.figures.report import tables_of
from editloupe.protocols.base import make_protocol, scored
from editloupe.scores import MetricSet, Score
from editloupe.stats.table import Table
from tests.guards.frozen import Figure

Program: TypeAlias = Callable[..., tuple[int, str, str]]
Found: TypeAlias = dict[str, dict[str, Figure]]


def labels(folder: Path) -> Found:
    """Sample, and judge of several → metric → "label = value", a value without a label, or "(status)"."""
    run = Run(folder)
    judges = run.scores()["judge"].unique().to_list()
    found: Found = {}
    for row in run.scores().to_dicts():
        about = "/".join(filter(None, (row["editor"], row["sample"])))
        name = " ".join(filter(None, (row["metric"], row["part"], f"turn {row['turn']}" if row["turn"] else "")))
        said = found.setdefault(f"{about} by {name_of(row['judge'])}" if len(judges) > 1 else about, {})
        number = row["value"] if row["label"] is None or row["value"] is None else f"{row['label']} = {row['value']:g}"
        said[name] = number if row["missing"] is None else f"({row['missing']}) {number or ''}".strip()
    return found


def name_of(judge: str) -> str:
    """The judge's name without what tells it from others, such as its mode."""
    return judge.split(",")[0]


def statuses(folder: Path) -> dict[str, int]:
    """Status → how many findings have it; a repeat is a finding of its own."""
    count: dict[str, int] = {}
    for finding in Run(folder).findings:
        count[finding.status] = count.get(finding.status, 0) + 1
    return count


def means(program: Program, *folders: Path, types: bool = True) -> Found:
    """The means of `editloupe report`, by judge, metric, edit type and editor, with what stands behind each.

    types: those of single edit types too.
    """
    code, out, err = program("report", *folders, "--format", "json")
    assert code == 0, err
    found: Found = {}
    for judge in json.loads(out)["judges"]:
        for table in judge["tables"].values():
            for row in table["records"]:
                if "mean" in row and (types or str(row.get("edit_type")).startswith("mean ")):
                    about = [name_of(judge["judge"]), row["metric"], row.get("edit_type"), row.get("editor")]
                    key = "mean | " + " | ".join(filter(None, about))
                    found[key] = {name: row[name] for name in ("mean", "judged", "asked")}
    return found


def tables(
    protocol: Any, *, samples: Sequence[Sample] = (), findings: Sequence[Finding] = (), scores: Iterable[Score] = ()
) -> dict[str, Table]:
    """The tables of a report, by name. protocol: a name, or one whose scores are given."""
    asking = make_protocol(protocol, {}) if isinstance(protocol, str) else protocol
    metrics = tuple(asking.metrics)
    judged = Judged(
        name="j",
        folder=Path("run"),
        judge_id="j",
        backend="j",
        mode="plain",
        ablations=(),
        metrics=MetricSet(id=asking.name, metrics=metrics),
        protocol=asking,
        criteria=tuple(metric.id for metric in metrics),
        samples={sample.key: sample for sample in samples},
        findings=tuple(findings),
        scores=tuple(scores) or tuple(scored(asking, samples, findings)),
    )
    return {table.name: table for table in tables_of(judged)}


def cells(made: Mapping[str, Table], *names: str) -> Found:
    """Table and row → column → the figure unrounded, for all cells that hold a number or should."""
    found: Found = {}
    for name in names:
        for row in made[name].rows:
            about = " | ".join(map(str, filter(None, (name, *row.keys.values()))))
            for column, cell in zip(made[name].columns, row.cells, strict=True):
                if isinstance(cell.value, int | float) or cell.value is None:
                    keys = [*column.keys.values(), *({cell.name} - {"", "mean", "value"})]
                    title = " ".join(map(str, keys)) if column.keys else column.title
                    assert title not in found.setdefault(about, {}), (about, title)
                    found[about][title] = cell.value
                    if cell.asked not in (None, 1):
                        found[about][f"{title} of"] = f"{cell.judged}/{cell.asked}"
    return found
