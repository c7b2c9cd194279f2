"""The published tables that are computed again, frozen as they come out (the papers' own digits stand in other tests).

Where a paper publishes means alone, `tests/protocols` has scores of single edits with these means.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from editloupe.protocols.base import BaseProtocol
from editloupe.protocols.dice import tables as dice
from editloupe.protocols.edival import tables as edival
from editloupe.scores import Binary, Interval, Metric, Real, Score
from tests.guards.doors import Found, Program, cells, tables
from tests.guards.frozen import holds
from tests.protocols import edival_published, giebench_published, unicbench_published

DATA = Path(__file__).parents[1] / "protocols"
SHARED = Path(__file__).parents[3] / "shared" / "data"
FEW = ("--format", "json", "--resamples", "100")
Row: TypeAlias = dict[str, str]


def needs(name: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(not (SHARED / name).is_dir(), reason=f"the data are not here (../shared/data/{name})")


def rows(path: Path) -> list[Row]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


# ---- DLEBench: Tables 1 and 4 ----------------------------------------------------------------------------------------


@pytest.mark.shared
@needs("paper-tables")
def test_dlebench() -> None:
    """Table 4's cells are the scores, of which Table 1's and all averages come."""
    listed = [
        row for row in rows(SHARED / "paper-tables" / "dlebench_table4_by_criterion.csv") if row["edit_type"] != "Average"
    ]
    editors = [name for name in listed[0] if name not in ("criterion", "edit_type")]
    scores = [
        Score(
            sample_id=row["edit_type"],
            editor=editor,
            dims={"edit_type": row["edit_type"]},
            metric=row["criterion"],
            value=1 + float(row[editor]) * 3 / 100,
            normalized=float(row[editor]),
        )
        for row in listed
        for editor in editors
    ]
    made = tables("dlebench", scores=scores)
    found = cells(made, *made)
    holds("dlebench", {about: figures for about, figures in found.items() if about.startswith("scores")})


# ---- UnicBench: Tables 4, 9 and 10 -----------------------------------------------------------------------------------


@pytest.mark.slow
def test_unicbench() -> None:
    made = [one for model in unicbench_published.published() for one in unicbench_published.edits(*model)]
    findings = [finding for _, of in made for finding in of]
    found = cells(tables("unicbench", samples=[sample for sample, _ in made], findings=findings), "by-editor", "by-task")
    assert sum(about.startswith("by-editor") for about in found) == 20
    holds("unicbench", found)


# ---- EdiVal: Tables 3, 8 to 14 and 17 to 19; Table 5 -----------------------------------------------------------------

UNIT = Interval(low=0, high=1)


class Edited(BaseProtocol):
    """EdiVal's tables over scores that are given."""

    name = "edival-tables"
    metrics = (
        *(Metric(id=id_, domain=Binary()) for id_ in ("instruction_following", "image_success")),
        Metric(id="content_consistency", domain=UNIT),
        *(Metric(id=id_, domain=Real() if id_ == "preference" else UNIT) for id_ in edival_published.NAMES.values()),
        Metric(id="preference_change", domain=Real()),
    )
    tables = edival.tables()


@pytest.mark.slow
@pytest.mark.parametrize("made_of", ["counted", "printed"])
def test_edival(made_of: str) -> None:
    """counted: edits that succeed or not.   printed: a score a cell, for means and for what is computed of them."""
    make = getattr(edival_published, made_of)
    modes = edival_published.MODES
    scores = (score for mode in modes for model in edival_published.models(mode) for score in make(model, mode))
    made = tables(Edited(), scores=scores)
    names = ("success", "by-type") if made_of == "counted" else ("overall", "consistency", "quality")
    holds(
        f"edival-{made_of}",
        cells(made, *(n for kind in ("multi-turn", "complex") for s in names if (n := f"{kind}-{s}") in made)),
    )


def test_edivals_agreement_with_people(tmp_path: Path, editloupe: Program) -> None:
    """Table 5, of confusion tables that give its printed figures."""
    listed = [row for row in rows(DATA / "edival_agreement.csv") if row["edit_type"] != "all"]
    outcomes = {"yes_yes": (1, 1), "yes_no": (1, 0), "no_yes": (0, 1), "no_no": (0, 0)}
    people, judges = ["item,edit_type,label"], {row["judge"]: ["item,score"] for row in listed}
    for row in listed:
        given = sorted(((h, j) for name, (j, h) in outcomes.items() for _ in range(int(row[name]))), reverse=True)
        for number, (human, answer) in enumerate(given):
            judges[row["judge"]].append(f"{row['edit_type']}-{number},{answer}")
            if row["judge"] == listed[0]["judge"]:
                people.append(f"{row['edit_type']}-{number},{row['edit_type']},{human}")
    words = [word for judge, lines in judges.items() for word in ("--scores", put(tmp_path / f"{judge}.csv", lines))]
    human = put(tmp_path / "people.csv", people)
    found: Found = {}
    for judge in align(editloupe, *words, "--human", human):
        (metric,) = judge["criteria"]
        for group in (metric["all"], *metric["by"]["edit_type"]):
            figures = {name: group["figures"][name]["value"] for name in ("accuracy", "pearson", "kappa", "f1")}
            found[f"{judge['judge'].split('.csv')[0]} | {group['name']}"] = figures
    assert len(found) == 30
    holds("edival-agreement", found)


# ---- GIE-Bench: Tables 2 and 7 ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_giebench() -> None:
    found: Found = {}
    for (number, judge), models in giebench_published.published().items():
        made = [one for model, counts in models.items() for one in giebench_published.edits(model, counts)]
        findings = [finding for _, both in made for finding in both]
        table = tables("giebench", samples=[sample for sample, _ in made], findings=findings)
        first = next(iter(table))
        found |= {f"Table {number} | {judge} | {about}": figures for about, figures in cells(table, first).items()}
    assert len(found) == 21
    holds("giebench", found)


# ---- DICE: Table 3 ---------------------------------------------------------------------------------------------------


class Differences(BaseProtocol):
    """DICE's tables over scores that are given."""

    name = "dice-tables"
    metrics = (*(Metric(id=id_, domain=Binary()) for id_ in ("correct", "no_change")), Metric(id="unwanted", domain=UNIT))
    tables = dice.tables("lmm")


def test_dice(tmp_path: Path, editloupe: Program) -> None:
    """200 images an editor that give the printed percentages, and how far people order the editors alike."""
    listed = rows(DATA / "dice_editors.csv")
    scores = [score for row in listed for score in dice_scores(row)]
    found = cells(tables(Differences(), scores=scores), "editors")
    ours = {"correct": "correct_edits", "unwanted": "unwanted_edits", "no_change": "no_change"}
    people = {"correct": "human_adherence", "unwanted": "human_preservation", "no_change": "human_no_change"}
    for metric, column in ours.items():
        judge = put(tmp_path / f"{metric}.csv", ["item,score", *(f"{r['editor']},{r[f'dice_{column}']}" for r in listed)])
        human = put(
            tmp_path / f"human_{metric}.csv", ["item,score", *(f"{r['editor']},{r[people[metric]]}" for r in listed)]
        )
        ((criterion,),) = [one["criteria"] for one in align(editloupe, "--scores", judge, "--human", human)]
        figures = criterion["all"]["figures"]
        found[f"agreement | {metric}"] = {name: figures[name]["value"] for name in ("spearman", "pearson", "kendall")}
    holds("dice", found)


def dice_scores(row: Row) -> Iterator[Score]:
    correct, no_change = (round(2 * float(row[f"dice_{name}"])) for name in ("correct_edits", "no_change"))
    values = {
        "correct": lambda i: float(i < correct),
        "unwanted": lambda i: float(row["dice_unwanted_edits"]) / 100,
        "no_change": lambda i: float(i >= 200 - no_change),
    }
    for i in range(200):
        for metric, value in values.items():
            yield Score(sample_id=str(i), editor=row["editor"], metric=metric, value=value(i), dims={"edit_type": None})


# ---- VIEScore and GenAI-Bench ----------------------------------------------------------------------------------------


@pytest.mark.shared
@needs("human-ratings")
@pytest.mark.parametrize("task", ["text_guided", "subject_driven"])
def test_viescore(task: str, tmp_path: Path, editloupe: Program) -> None:
    listed, found = rows(SHARED / "human-ratings" / f"viescore_{task}_ie.csv"), {}
    head = ["image_id,model," + ",".join(f"rater{i}_{c}" for i in (1, 2, 3) for c in ("SC", "PQ", "O"))]
    human = put(tmp_path / "people.csv", head + [joined(row, (rated(row, i) for i in (1, 2, 3))) for row in listed])
    for judge in ("gpt4o_0shot", "gpt4v_0shot", "gemini_0shot", "llava_0shot"):
        lines = [joined(row, [both]) for row in listed if (both := answered(row, judge)) is not None]
        scores = put(tmp_path / f"{judge}.csv", ["image_id,model,SC,PQ,O", *lines])
        for how in ("tanh-mean", "mean", "fisher"):
            (said,) = align(editloupe, "--scores", scores, "--human", human, "--aggregate", how)
            for criterion in said["criteria"]:
                about = f"{judge} | {criterion['criterion']}"
                averages = criterion["averages"]["figures"]
                found.setdefault(about, {})[f"spearman, {how}"] = averages["spearman"]["value"]
                found[about]["rater_vs_others"] = averages["rater_vs_others"]["value"]
                for group in criterion["by"]["editor"]:
                    figures = {name: group["figures"][name]["value"] for name in ("spearman", "kendall", "pearson")}
                    ceiling = {name: group["ceiling"][name]["value"] for name in ("fleiss_kappa", "alpha_ordinal")}
                    found[f"{about} | {group['name']}"] = {
                        **figures,
                        **ceiling,
                        "judged": group["figures"]["spearman"]["judged"],
                    }
    holds(f"viescore-{task}", found)


def rated(row: Row, rater: int) -> tuple[float, float]:
    return float(row[f"rater{rater}_sc"]), float(row[f"rater{rater}_pq"])


def answered(row: Row, judge: str) -> tuple[float, float] | None:
    """A criterion is the least of its sub-scores."""
    sc, pq = ([float(row[name]) for k in (1, 2) if row[name := f"{judge}_{c}_{k}"]] for c in ("sc", "pq"))
    return (min(sc) / 10, min(pq) / 10) if sc and pq else None


def joined(row: Row, pairs: Iterable[tuple[float, float]]) -> str:
    numbers = [number for sc, pq in pairs for number in (sc, pq, math.sqrt(sc * pq))]
    return ",".join(map(str, (row["image_id"], row["model"], *numbers)))


@pytest.mark.shared
@needs("human-ratings")
def test_genai_bench(tmp_path: Path, editloupe: Program) -> None:
    votes = SHARED / "human-ratings" / "genaibench_image_edit_pairwise.csv"
    known, listed = {"A>B", "B>A", "A=B=Good", "A=B=Bad"}, rows(votes)
    found: Found = {}
    for judge in ("gpt4o", "videollava", "idefics2", "llava", "blip2", "random", "minicpm-V-2.5", "qwenVL"):
        lines = [f"{row['idx']},{row[f'{judge}_vote']}" for row in listed if row[f"{judge}_vote"] in known]
        of_judge = ("--scores", put(tmp_path / f"{judge}.csv", ["item,label", *lines]))
        (said,) = align(editloupe, *of_judge, "--human", votes, "--columns", "item=idx,label=human_vote")
        exact = said["criteria"][0]["all"]["figures"]["exact"]
        found[judge] = {name: exact[name] for name in ("value", "adjusted", "judged", "asked")}
    holds("genaibench", found)


# ---- Doors -----------------------------------------------------------------------------------------------------------


def align(program: Program, *words: str | Path) -> list[dict[str, Any]]:
    """Each judge's agreement with people, by criterion."""
    code, out, err = program("compare", *words, *FEW)
    assert code == 0, err
    found: dict[str, list[dict[str, Any]]] = {}
    for one in json.loads(out)["human_agreement"]:
        found.setdefault(one["judge"], []).append(one)
    return [{"judge": judge, "criteria": criteria} for judge, criteria in found.items()]


def put(path: Path, lines: Sequence[str]) -> Path:
    """Write a table."""
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
