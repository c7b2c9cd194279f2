"""One number one way: the same rows, in any order, give the same figures and intervals in every command and page."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.viewer.numbers import Numbers
from editloupe.viewer.reader import RunReader
from tests.build.probe_runs import full_set, run_of, said
from tests.figures.runs import IF, LEVELS, VC, Row, finding, sample, write_run

Program = Callable[..., tuple[int, str, str]]
TYPES = ("color", "removal", "count")


def edits(count: int = 24) -> list[Row]:
    """Edits of three types by two editors; three of them share a source image."""
    return [
        sample(f"s{i:02}", source=f"image {i // 3}", editor=("alpha", "beta")[i % 2], edit_type=TYPES[i % 3])
        for i in range(count)
    ]


def run(folder: Path, order: int) -> Path:
    """Two judges' run, its rows in an order of its own; 0: as they come."""
    draw, rows = random.Random(7), edits()
    names = ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency")
    judges = {
        name: [
            finding(row, "(refused)" if draw.random() < 0.1 else labels[draw.randrange(4)], criterion=metric)
            for row in rows
            for metric, labels in ((IF, list(LEVELS.values())), (VC, names))
        ]
        for name in ("strict", "mild")
    }
    if order:
        shuffle = random.Random(order).shuffle
        shuffle(rows)
        for findings in judges.values():
            shuffle(findings)
    return write_run(folder, rows, judges)


def figures(folder: Path, editloupe: Program) -> dict[str, tuple[Any, ...]]:
    """Who says it and of what → value, ends of the interval, judged and asked, of the judge "strict" over all samples."""

    def told(*words: str | Path) -> Any:
        code, out, err = editloupe(*words)
        assert code in (0, 100), err
        return json.loads(out)

    found: dict[str, tuple[Any, ...]] = {}
    report = told("report", folder, "--format", "json")
    (strict,) = (judge for judge in report["judges"] if judge["judge"].startswith("strict"))
    for table in strict["tables"].values():
        for one in table["records"]:
            # All edits of an editor: the column of the type tables.
            if one.get("edit_type") == "mean of all samples":
                about = f"report {one['metric']} {one['editor']}"
                found[about] = tuple(one[name] for name in ("mean", "low", "high", "judged", "asked"))
    for one in told("compare", folder, "--format", "json")["summaries"]:
        if one["judge"].startswith("strict"):
            mean = one["mean"]
            found[f"compare {one['criterion']}"] = tuple(mean[n] for n in ("value", "low", "high", "judged", "asked"))
    (gated,) = told("gate", folder, "--judge", "strict", "--require", "mean(if)>=1", "--format", "json")["checked"]
    found["gate"] = (gated["value"],)
    reader = RunReader(folder)
    (judge,) = (one for one in Numbers().overview(reader) if one["judge"] in str(strict["judge_id"]))
    for row in judge["rows"]:
        for cell in row["cells"]:
            found[f"viewer {cell['metric']} {row['name']}".strip()] = tuple(
                cell[n] for n in ("value", "low", "high", "judged", "asked")
            )
    return found


def test_every_command_and_page_has_the_same_number_and_interval_in_any_order(tmp_path: Path, editloupe: Program) -> None:
    first = figures(run(tmp_path / "first", 0), editloupe)
    for metric in (IF, VC):
        assert first[f"compare {metric}"] == first[f"viewer {metric}"]
        for editor in ("alpha", "beta"):
            value, low, _, judged, asked = first[f"report {metric} {editor}"]
            # The page has the interval of all editors together alone.
            assert (value, None, None, judged, asked) == first[f"viewer {metric} {editor}"] and low is not None
        assert None not in first[f"compare {metric}"]
    assert first["gate"] == first[f"compare {IF}"][:1]
    for order in (1, 2):
        assert figures(run(tmp_path / f"shuffled-{order}", order), editloupe) == first


def test_a_trial_is_the_same_in_any_order(tmp_path: Path, editloupe: Program) -> None:
    rows = full_set(3)
    findings = [f for i, row in enumerate(rows) for f in said(row, "(refused)" if i % 10 == 0 else "")]
    told = []
    for order in range(2):
        if order:
            random.Random(order).shuffle(rows)
            random.Random(order).shuffle(findings)
        code, out, err = editloupe("trial", run_of(tmp_path / str(order), {"j": findings}, rows), "--format", "json")
        assert code == 0, err
        told.append(json.loads(out)["tables"])
    assert told[0] == told[1]


def test_agreement_with_people_is_the_same_in_any_order(tmp_path: Path, editloupe: Program) -> None:
    draw = random.Random(3)
    rows = [f"s{i:02},{('alpha', 'beta')[i % 2]},{r},{draw.randrange(1, 5)}\n" for i in range(24) for r in ("ann", "ben")]
    told = []
    for order in range(2):
        if order:
            random.Random(order).shuffle(rows)
        human = tmp_path / f"human{order}.csv"
        human.write_text("sample,editor,rater,if\n" + "".join(rows))
        code, out, err = editloupe("compare", run(tmp_path / str(order), order), "--human", human, "--format", "json")
        assert code == 0, err
        found = json.loads(out)
        told.append(
            {
                one["judge"]: (one["all"], {g["name"]: g for g in one["by"]["edit_type"]}, one["averages"]["figures"])
                for one in found["human_agreement"]
            }
        )
    assert told[0] == told[1]


@pytest.mark.parametrize(
    "given", [["(refused)"] * 3, ["Flawless Execution"] * 3, ["Flawless Execution"]], ids=["failed", "equal", "one"]
)
def test_all_failed_all_equal_and_one_sample_are_told_without_nan(
    given: list[str], tmp_path: Path, editloupe: Program
) -> None:
    rows = edits(len(given))
    judges = {n: [finding(row, label) for row, label in zip(rows, given, strict=True)] for n in ("a", "b")}
    folder = write_run(tmp_path / "run", rows, judges)
    for command in ("report", "compare"):
        for form in ("table", "json", "md"):
            code, out, err = editloupe(command, folder, "--format", form)
            assert code == 0 and "nan" not in out.replace("Perfect", "").lower().split(), err
            assert "NaN" not in out and "Infinity" not in out and "Traceback" not in err
    code, out, _ = editloupe("gate", folder, "--require", "mean(if)>=1", "--format", "json")
    assert code == (2 if given[0].startswith("(") else 0)
