"""DICE's tables: figures worked by hand, what is left out and counted, and the paper's Tables 1 and 3."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe.figures.columns import HumanLabels, RatedItem, column_of, editors_of, join, rated_editors
from editloupe.figures.judged import Judged
from editloupe.figures.people import agreement
from editloupe.figures.report import tables_of
from editloupe.protocols.base import BaseProtocol
from editloupe.protocols.dice.tables import Detector, rating_dims, tables
from editloupe.scores import Binary, Interval, Metric, MetricSet, Score
from editloupe.stats.table import Table
from editloupe.values import ImageRef, Sample, Turn

UNIT = Interval(low=0, high=1)
METRICS = (
    *(Metric(id=id_, domain=Binary()) for id_ in ("correct", "no_change", "coherence", "coherence_right")),
    *(Metric(id=id_, domain=UNIT) for id_ in ("unwanted", "detected", "given")),
    *(Metric(id=id_, domain=Interval(low=-1, high=1)) for id_ in ("clip_i_none", "clip_i_coherent", "clip_t_incoherent")),
)
HERE = Path(__file__).parent

Box = tuple[int, int, int, int]
WHOLE, LEFT, RIGHT = (0, 0, 100, 100), (0, 0, 50, 100), (50, 0, 100, 100)
"""In hundredths of the sides."""


def judged(scores: Iterable[Score], detector: Detector = "lmm", side: int | None = None) -> Judged:
    class Scored(BaseProtocol):
        """A protocol with these tables; its scores are given."""

        name = "dice-tables"
        metrics = METRICS

    Scored.tables = tables(detector, side=side)
    return Judged(
        name="j", folder=Path("run"), judge_id="j", backend="j", mode="", ablations=(), findings=(), samples={},
        metrics=MetricSet(id="dice", metrics=METRICS), protocol=Scored(), criteria=tuple(m.id for m in METRICS),
        scores=tuple(scores),
    )  # fmt: skip


def report(scores: Iterable[Score], detector: Detector = "lmm", side: int | None = None) -> dict[str, Table]:
    """The computed tables of a report on these scores, by name."""
    return {table.name: table for table in tables_of(judged(scores, detector, side))}


def score(
    metric: str, sample: str = "0", value: float | None = 1.0, *, editor: str = "a", part: str = "", **dims: Any
) -> Score:
    missing = None if value is not None else "refused"
    dims = {"edit_type": None, **dims}
    return Score(sample_id=sample, editor=editor, metric=metric, value=value, missing=missing, part=part, dims=dims)


def area(metric: str, number: int, op: str, box: Box, sample: str = "0", value: float | None = 1.0, **dims: Any) -> Score:
    x0, y0, x1, y1 = (v / 100 for v in box)
    dims = {"op": op, "object": "", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "width": 200, "height": 100, **dims}
    part = f"{'area' if metric == 'given' else 'difference'} {number}"
    return score(metric, sample, value, part=part, **dims)


def figures(table: Table) -> dict[tuple[object, ...], object]:
    """(row keys, column keys) → the figure unrounded."""
    return {
        (*row.keys.values(), *column.keys.values()): cell.value
        for row in table.rows
        for column, cell in zip(table.columns, row.cells, strict=True)
        if column.keys
    }


# ---- Editors ---------------------------------------------------------------------------------------------------------


def edits(editor: str, correct: int, unwanted: float, no_change: int, of: int = 200, **dims: Any) -> list[Score]:
    """Scores of images: the first ones have a coherent difference, the last ones none; all have the same unwanted share."""
    made = []
    for i in range(of):
        sample = str(i)
        made += [
            score("correct", sample, float(i < correct), editor=editor, **dims),
            score("unwanted", sample, unwanted, editor=editor),
            score("no_change", sample, float(i >= of - no_change), editor=editor),
        ]
    return made


def test_editors_have_percentages_of_their_judged_images() -> None:
    made = edits("HIVE", 22, 0.405, 109)
    table = report(made)["editors"]
    assert figures(table) == {
        ("HIVE", "correct", "judge"): pytest.approx(11.0),
        ("HIVE", "unwanted", "judge"): pytest.approx(40.5),
        ("HIVE", "no_change", "judge"): pytest.approx(54.5),
    }
    (row,) = table.rows
    assert row.cells[1].text.startswith("11.0 [") and row.cells[1].text.endswith("(200/200)")
    assert "detector=lmm" in table.caption and "it may have missed one" in table.caption
    # Without an answer of the detector an image has no score; the others stand.
    lost = [replace(s, value=None, missing="refused") if s.sample_id == "0" else s for s in made]
    (row,) = report(lost, "localize")["editors"].rows
    assert [cell.text.split("(")[-1] for cell in row.cells[1:]] == ["199/200)"] * 3
    assert row.cells[1].value == pytest.approx(100 * 21 / 199)
    assert "missed" not in report(made, "given")["editors"].caption
    typed = [replace(s, dims={"edit_type": "counting" if int(s.sample_id) < 44 else "removal"}) for s in made]
    # 22 of the first 44, none of the others.
    assert [row.cells[1].value for row in report(typed)["correct-by-type"].rows] == [50.0, 0.0, 11.0]


def test_tables_say_how_many_differences_nobody_was_asked_about() -> None:
    capped = [
        score("correct", "0", 0.0),
        score("unwanted", "0", 0.0),
        score("no_change", "0", 0.0, left_out=180, areas_given=0),
        score("correct", "1", 1.0),
        score("unwanted", "1", 0.0),
        score("no_change", "1", 0.0, left_out=0, areas_given=1),
        area("given", 1, "ADD", WHOLE, "1", coherent=1),
    ]
    said = "Not judged, by max_differences: 180 of the differences, in 1 image."
    tables = report(capped)
    assert said in tables["editors"].caption and said in tables["coherence-areas"].caption
    whole = [replace(s, dims={**s.dims, "left_out": 0}) if s.metric == "no_change" else s for s in capped]
    assert not any("max_differences" in table.caption for table in report(whole).values())


def test_people_stand_beside_the_judge() -> None:
    said = {"human_adherence": {"r1": 1, "r2": 1}, "human_preservation": {"r1": 5, "r2": 5}}
    image = ImageRef(sha256="0" * 64, width=8, height=8, media_type="image/png")
    human = {name.removeprefix("human_"): ratings for name, ratings in said.items()}
    sample = Sample(id="0", source=image, turns=(Turn(instruction="x", edited=None),), human=human)
    assert rating_dims(sample) == {"human_adherence": 1.0, "human_preservation": 5.0}
    assert rating_dims(replace(sample, human={"adherence_anna": {"human": 2}, "preservation": {"human": "good"}})) == {
        "human_adherence": 2.0
    }
    made = [
        *edits("a", 1, 0.0, 0, of=1, **rating_dims(sample)),
        *[replace(s, sample_id="1") for s in edits("a", 1, 0.0, 0, of=1, human_adherence=2.0, human_preservation=5.0)],
        *[replace(s, sample_id="2") for s in edits("a", 1, 0.0, 0, of=1)],
    ]
    found = figures(report(made)["editors"])
    assert found["a", "adherence", "people"] == pytest.approx(1.5)
    assert found["a", "no_change", "people"] == pytest.approx(50.0)
    assert report(made)["editors"].rows[0].cells[-1].text.endswith("(2/3)")


def published(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_papers_editors_are_ranked_as_people_rank_them() -> None:
    """200 images an editor that give the printed percentages, beside the printed ratings."""
    lines = published("dice_editors.csv")
    made = [
        s
        for line in lines
        for s in edits(
            line["editor"],
            round(2 * float(line["dice_correct_edits"])),
            float(line["dice_unwanted_edits"]) / 100,
            round(2 * float(line["dice_no_change"])),
        )
    ]
    found = figures(report(made)["editors"])
    for line in lines:
        for metric, column in (("correct", "correct_edits"), ("unwanted", "unwanted_edits"), ("no_change", "no_change")):
            assert found[line["editor"], metric, "judge"] == pytest.approx(float(line[f"dice_{column}"]))
    names = {"adherence": "human_adherence", "preservation": "human_preservation", "kept": "human_no_change"}
    ratings = {
        ("", line["editor"], 0, ""): {name: {"people": float(line[column])} for name, column in names.items()}
        for line in lines
    }
    items = {key: RatedItem(key=key, source=key[1]) for key in ratings}
    people = rated_editors(HumanLabels(source="people", items=items, ratings=ratings, metrics=tuple(names)))
    column = editors_of(column_of(judged(made)))
    items, people = join(column.items, people, where="the run", closed=True)
    for metric, rating, spearman, pearson in (
        ("correct", "adherence", 1.0, 0.984),
        # MGIE has 21.6 and MagicBrush 23.1, and people rate them 3.8 and 3.9.
        ("unwanted", "preservation", -0.9, -0.976),
        ("no_change", "kept", 1.0, 0.951),
    ):
        agreed = agreement(column, items, people, metric, rating=rating).all.figures
        assert agreed["spearman"].value == pytest.approx(spearman), metric
        assert agreed["pearson"].value == pytest.approx(pearson, abs=5e-4), metric


# ---- Detection -------------------------------------------------------------------------------------------------------


def sure(confidence: float) -> dict[str, Any]:
    return {"confidence": confidence, "confidence_source": "logprob"}


FOUND = [
    score("no_change", value=0.0),
    area("given", 1, "ADD", LEFT, coherent=1),
    area("given", 2, "REMOVE", RIGHT, coherent=0),
    area("detected", 1, "EDIT", WHOLE, **sure(0.9)),
    area("detected", 2, "ADD", LEFT, **sure(0.6)),
    area("detected", 3, "EDIT", RIGHT, **sure(0.7)),
]
"""Of 200×100 px. By confidence: the whole, the right, the left half."""


def test_average_precision_with_and_without_the_op() -> None:
    table = report(FOUND)["detection"]
    found = figures(table)
    # The whole has an IoU of exactly .50 with either half, and takes the later given one at .50. There then the right half
    # is wrong and the left one right: 1, 1/2, 2/3; the best precision is 1 up to a recall of .5 and 2/3 above: 51 and 50 of
    # 101. From .55 on the whole is wrong: 0, 1/2, 2/3, so 2/3 throughout.
    low, high = (51 + 50 * 2 / 3) / 101, 2 / 3
    assert found["logprob", "agnostic", "AP50"] == pytest.approx(100 * low)
    assert found["logprob", "agnostic", "AP75"] == pytest.approx(100 * high)
    assert found["logprob", "agnostic", "AP"] == pytest.approx(100 * (low + 9 * high) / 10)
    # Without confidences in the detector's order: whole, left, right. At .50 the whole takes the right half, the left one
    # is right, the right one wrong: 1, 1, 2/3.
    assert found["none", "agnostic", "AP50"] == pytest.approx(100.0)
    # By op: ADD is found, REMOVE is not, EDIT is not there.
    assert found["none", "aware", "AP"] == pytest.approx(50.0)
    assert (found["none", "aware", "AP_ADD"], found["none", "aware", "AP_REM"]) == (pytest.approx(100.0), 0.0)
    assert found["none", "aware", "AP_EDIT"] is None
    # 100×100 px: larger than 96². At 64×64 px they are 32×64, from 32² to 96².
    assert found["none", "agnostic", "AP_M"] is None and found["none", "agnostic", "AP_L"] is not None
    small = report(FOUND, side=64)["detection"]
    assert figures(small)["none", "agnostic", "AP_M"] is not None and figures(small)["none", "agnostic", "AP_L"] is None
    assert "at the source's own size" in table.caption and "at 64×64 px" in small.caption
    assert [cell.text for cell in table.rows[0].cells[:4]] == ["logprob", "1/1", "3", "2"]


def test_confidences_that_some_lack_or_that_are_of_two_kinds_give_no_figure() -> None:
    lacking = [*FOUND[:-1], area("detected", 3, "EDIT", RIGHT)]
    table = report(lacking)["detection"]
    assert table.rows[0].cells[4].text == "– (1 of 3 differences have none)"
    assert figures(table)["none", "agnostic", "AP50"] == pytest.approx(100.0)
    mixed = [*FOUND[:-1], area("detected", 3, "EDIT", RIGHT, confidence=0.2, confidence_source="asked")]
    first, last = report(mixed)["detection"].rows
    assert (first.cells[0].value, first.cells[4].why) == ("logprob and asked", "they have several sources")
    assert last.cells[0].value == "none"
    without = [area("detected", 1, "ADD", LEFT) if s.metric == "detected" else s for s in FOUND[:4]]
    assert [row.cells[0].value for row in report(without)["detection"].rows] == ["none"]


def test_images_without_a_detection_are_left_out_and_those_in_which_nothing_changed_count() -> None:
    lost = [score("no_change", "1", None), area("given", 1, "EDIT", LEFT, "1", coherent=1)]
    unknown = [score("no_change", "2", 0.0), area("detected", 1, "EDIT", LEFT, "2", **sure(1.0))]
    table = report([*FOUND, *lost, *unknown])["detection"]
    assert [cell.text for cell in table.rows[0].cells[1:4]] == ["1/2", "3", "2"]
    assert "Left out: 1 image;" in table.caption
    assert (
        figures(table)["logprob", "agnostic", "AP50"] == figures(report(FOUND)["detection"])["logprob", "agnostic", "AP50"]
    )
    # The data says that nothing changed: what was found there is wrong, and it is the surest.
    same = [score("no_change", "3", 0.0, areas_given=0), area("detected", 1, "EDIT", LEFT, "3", **sure(1.0))]
    table = report([*FOUND, *same])["detection"]
    assert table.rows[0].cells[1].text == "2/2" and table.rows[0].cells[2].text == "4"
    assert figures(table)["logprob", "agnostic", "AP75"] == pytest.approx(100 * 2 / 4)
    assert "detection" not in report(unknown) and "detection" not in report(FOUND, "given")


def test_ops_are_counted_where_the_places_agree() -> None:
    made = [*FOUND, score("no_change", "1", 0.0), area("given", 1, "EDIT", (0, 0, 10, 10), "1"),
            area("detected", 1, "ADD", (1, 0, 10, 10), "1", **sure(0.1))]  # fmt: skip
    found = figures(report(made)["ops"])
    # The whole takes the right half, the right one finds it taken, the left one is the left one.
    assert {key: value for key, value in found.items() if value} == {
        ("REMOVE", "EDIT"): 1, ("invented", "EDIT"): 1, ("ADD", "ADD"): 1, ("EDIT", "ADD"): 1
    }  # fmt: skip
    found = figures(report([s for s in made if s.metric != "detected"])["ops"])
    assert {key: value for key, value in found.items() if value} == {(op, "missed"): 1 for op in ("ADD", "EDIT", "REMOVE")}


def test_the_papers_mean_of_the_ops_holds_in_6_of_10_rows() -> None:
    """Class-aware AP is the mean of the three ops. The paper's other four rows cannot be had from their own columns."""
    far = {}
    for line in published("dice_detection.csv"):
        mean = sum(float(line[name]) for name in ("AP_ADD", "AP_REM", "AP_EDIT")) / 3
        name = f"{line['model']}, {line['confidence']}{line['stage1']}{line['stage2']}"
        far[name] = round(mean, 2), float(line["aware_AP"])
    assert len(far) == 10
    assert {name: both for name, both in far.items() if abs(both[0] - both[1]) > 0.1} == {
        "Qwen2-VL-7B, 011": (1.13, 1.6),
        "Qwen2-VL-7B, 111": (1.13, 1.6),
        "mPLUG-Owl3-7B, 111": (4.07, 4.4),
        "Idefics3-8B (DICE), 111": (16.93, 15.5),
    }
    # In ours it holds by definition.
    rows = [*FOUND, area("given", 3, "EDIT", (0, 0, 20, 20))]
    found = figures(report(rows)["detection"])
    ops = [found["logprob", "aware", name] for name in ("AP_ADD", "AP_REM", "AP_EDIT")]
    assert found["logprob", "aware", "AP"] == pytest.approx(sum(map(float, map(str, ops))) / 3)


# ---- Coherence -------------------------------------------------------------------------------------------------------


def test_accuracy_stands_beside_what_a_constant_answer_reaches() -> None:
    def right(number: int, value: float | None, coherent: int) -> Score:
        return area("coherence_right", number, "EDIT", LEFT, value=value, coherent=coherent)

    # Three coherent areas, all judged right; one of two incoherent ones; one refused.
    made = [*(right(i, 1.0, 1) for i in (1, 2, 3)), right(4, 1.0, 0), right(5, 0.0, 0), right(6, None, 0)]
    table = report(made, "given")["coherence"]
    found = {key[-1]: value for key, value in figures(table).items()}
    assert found == {
        "accuracy": pytest.approx(80.0),
        "balanced_accuracy": pytest.approx((100 + 50) / 2),
        "base_rate": pytest.approx(60.0),
        # Three and the one that was taken for coherent.
        "called_coherent": pytest.approx(80.0),
    }
    assert table.rows[0].cells[1].text.endswith("(5/6)") and "right in 60.0 %" in table.caption
    alone = report(made[:3], "given")["coherence"].rows[0]
    assert alone.cells[2].text == "– (the data has one of the two alone)"
    nobody = report([right(1, None, 1)], "given")["coherence"].rows[0]
    assert [cell.value for cell in nobody.cells[1:]] == [None] * 4


def test_detected_areas_have_coherence_as_their_class() -> None:
    made = [
        *FOUND,
        area("coherence", 1, "EDIT", WHOLE, value=0.0, **sure(0.9)),
        area("coherence", 2, "ADD", LEFT, value=1.0, **sure(0.6)),
        area("coherence", 3, "EDIT", RIGHT, value=0.0, **sure(0.7)),
    ]
    found = figures(report(made)["coherence-areas"])
    # Coherent: found at once. Incoherent: at .50 the whole takes the right half; above, the right half comes second.
    assert found["logprob", "AP coherent"] == pytest.approx(100.0)
    assert found["logprob", "AP incoherent"] == pytest.approx((100 + 9 * 50) / 10)
    assert found["logprob", "AP"] == pytest.approx((100 + 55) / 2)
    # Of an image of which one difference was not judged nothing counts.
    half = [replace(s, value=None, missing="refused") if s.metric == "coherence" else s for s in made]
    table = report(half)["coherence-areas"]
    assert table.rows[-1].cells[1].text == "0/1" and "Left out: 1 image;" in table.caption
    assert [cell.text for cell in table.rows[-1].cells[4:]] == ["– (no such area)"] * 5
    unsaid = [replace(s, dims={**s.dims, "coherent": None}) if s.metric == "given" else s for s in made]
    assert "coherence-areas" not in report(unsaid) and "coherence-areas" not in report(made, "given")


# ---- CLIP ------------------------------------------------------------------------------------------------------------


def test_patched_clip_has_a_mean_for_each_editor() -> None:
    made = [score("clip_i_none", "0", 0.9), score("clip_i_none", "1", 0.7), score("clip_t_incoherent", "0", 0.25),
            score("clip_i_none", "0", None, editor="b")]  # fmt: skip
    table = report(made)["clip"]
    assert [column.title for column in table.columns] == ["Editor", "CLIP-I, none", "CLIP-T, incoherent"]
    assert figures(table)["a", "clip_i_none"] == pytest.approx(0.8) and figures(table)["b", "clip_i_none"] is None
    assert table.rows[1].cells[1].text == "– (0/1)"
    assert not {"clip", "editors", "detection"} & {*report([score("coherence")])}
