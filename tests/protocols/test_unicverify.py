"""UnicVerify: did an edit change anything, what was done, and how well that matches what was asked."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.data.images import RGB
from editloupe.figures.judged import judged_in
from editloupe.figures.report import tables_of
from editloupe.protocols.unicverify.alignment import PairsError, TaskMatch, by_pairs, strictly
from editloupe.runs.outcome import Outcome
from editloupe.runs.store import RunStore
from editloupe.scores import Score
from tests.conftest import final
from tests.imaging.drawn import jpeg, textured, with_square
from tests.setups import open_with, run_over

Edits = Callable[..., Path]


def verified(changed: bool, instruction: str = "", **more: Any) -> str:
    """The reply of a verifier."""
    return final(json.dumps({"is_changed": changed, "instruction": instruction, **more}))


def tasks(*texts: str) -> list[dict[str, str]]:
    """Atomic tasks, each "object: action"."""
    return [dict(zip(("object", "action"), text.split(": "), strict=True)) for text in texts]


def parsed(reference: list[str], restated: list[str], pairs: list[list[int]] | None = None) -> str:
    """The reply of a parser."""
    lists = {"reference": tasks(*reference), "restated": tasks(*restated)}
    return final(json.dumps(lists if pairs is None else {**lists, "pairs": pairs}))


def asks_for_tasks(request: Request) -> bool:
    return "atomic tasks" in str(request)


def both(verification: Any, parsing: Any) -> Callable[[Request], str]:
    """One script for both roles; each a reply, or a function of the request."""

    def script(request: Request) -> str:
        reply = parsing if asks_for_tasks(request) else verification
        return str(reply(request) if callable(reply) else reply)

    return script


def run(folder: Path, out: Path, reply: Any, **options: Any) -> Outcome:
    """Judge a folder with one script in every role."""
    script = ScriptedLMM(reply if callable(reply) else [reply])
    return run_over(open_with(protocol="unicverify", backend=script, options=options), folder, out)


def by_metric(outcome: Outcome) -> dict[str, Score]:
    """The scores of a run of one sample."""
    return {score.metric: score for score in outcome.scores}


PAIRS: dict[str, Callable[[RGB], RGB]] = {
    "identical": lambda rgb: rgb,
    "recompressed": lambda rgb: jpeg(rgb, 75),
    "smaller": lambda rgb: cv2.resize(rgb, (144, 108), interpolation=cv2.INTER_AREA),
    "square": lambda rgb: with_square(rgb, (60, 40, 100, 80)),
    "brighter": lambda rgb: np.clip(rgb.astype(int) + 12, 0, 255).astype(np.uint8),
    "moved": lambda rgb: np.roll(rgb, 3, axis=1),
    "cropped": lambda rgb: rgb[:, :120],
}
SAME = {"identical", "recompressed", "smaller"}


def test_equation_6() -> None:
    cases = (
        (2, 3, 1, 0.5),  # 2/3 − 0.5 · 1/3
        (0, 2, 3, -0.75),  # 0/2 − 0.5 · 3/2: not clamped
        (3, 3, 0, 1),
        (0, 4, 0, 0),
        (0, 0, 0, None),
        (0, 0, 2, None),
    )
    for hits, reference, extra, accuracy in cases:
        found = TaskMatch(hits=hits, reference=reference, extra=extra).accuracy()
        assert found == (None if accuracy is None else pytest.approx(accuracy)), (hits, reference, extra)
    assert TaskMatch(hits=2, reference=3, extra=1).accuracy(w=1) == pytest.approx(1 / 3)  # 2/3 − 1/3


CAR, SKY, DOG, CAT = "car: paint blue", "sky: make cloudy", "dog: remove", "cat: add"


def test_tasks_are_matched_by_places_from_1_or_by_folded_texts_and_a_list_is_a_set() -> None:
    found = by_pairs(tasks(CAR, SKY, DOG), tasks("the automobile: make it blue", SKY, CAT), [[1, 1], [2, 2]])
    assert found == TaskMatch(hits=2, reference=3, extra=1)
    # "Car: paint blue." is the same text after folding, so that the set has two tasks.
    twice = by_pairs(tasks(CAR, "Car: Paint blue.", SKY), tasks(CAR), [[2, 1]])
    assert twice == TaskMatch(hits=1, reference=2, extra=0)
    strict = strictly(tasks(CAR, SKY, DOG), tasks("Car: Paint  BLUE.", "sky: make it cloudy", CAT))
    assert strict == TaskMatch(hits=1, reference=3, extra=2)
    for pairs, said in (
        ([[1, 1], [1, 2]], "two pairs name task 1 of reference"),
        ([[1, 2], [2, 2]], "two pairs name task 2 of restated"),
        ([[3, 1]], "task 3 of reference, which has tasks 1 to 2"),
        ([[1, 0]], "task 0 of restated"),
    ):
        with pytest.raises(PairsError, match=said):
            by_pairs(tasks(CAR, SKY), tasks(CAR, SKY), pairs)


ONE_EXTRA = parsed([CAR], [CAR, SKY], [[1, 1]])


def test_a_changed_pair_is_normal_if_what_was_done_is_what_was_asked(tmp_path: Path, edits: Edits) -> None:
    folder = edits(1)
    for number, (reply, options, accuracy, label) in enumerate(
        (
            (parsed([CAR], ["automobile: make blue"], [[1, 1]]), {}, 1, "Normal"),
            (ONE_EXTRA, {}, 0.5, "Hallucination"),  # 1/1 − 0.5 · 1/1
            (ONE_EXTRA, {"w": 0.25}, 0.75, "Hallucination"),
            (parsed([CAR, SKY], [CAR], [[1, 1]]), {}, 0.5, "Hallucination"),
            (parsed([CAR], [CAR, SKY]), {"matching": "strict"}, 0.5, "Hallucination"),
            (parsed([CAR], ["automobile: make blue"]), {"matching": "strict"}, -0.5, "Hallucination"),
        )
    ):
        outcome = run(folder, tmp_path / str(number), both(verified(True, "Paint the car blue."), reply), **options)
        found = by_metric(outcome)
        assert found["alignment_accuracy"].value == pytest.approx(accuracy), number
        assert (found["edit_class"].label, found["is_changed"].value) == (label, 1), number
        parse = next(f for f in outcome.findings if f.metric == "atomic_tasks")
        assert parse.role == "parse" and parse.task_id in found["edit_class"].findings


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    """A folder with a pair of each kind of PAIRS, people's class beside it."""
    folder = tmp_path / "pairs"
    (folder / "images").mkdir(parents=True)
    rows = []
    for number, (name, edit) in enumerate(PAIRS.items()):
        source = textured(192, 144, seed=number)
        for role, rgb in (("source", source), ("edited", edit(source))):
            cv2.imwrite(str(folder / "images" / f"{name}-{role}.png"), rgb[..., ::-1])
        files = {f"{role}_file_name": f"images/{name}-{role}.png" for role in ("source", "edited")}
        label = "No Edit" if name in SAME else "Normal" if name == "square" else "Hallucination"
        rows.append({"id": name, **files, "instruction": "Add a red square.", "edit_class": label})
    (folder / "metadata.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return folder


def judged_tables(out: Path) -> dict[str, list[dict[str, Any]]]:
    (judged,) = judged_in(RunStore.read(out))
    return {table.name: table.records() for table in tables_of(judged)}


def test_the_report_has_the_confusion_table_5_and_the_ways_to_find_no_edit(pairs: Path, tmp_path: Path) -> None:
    """The model takes the recompressed pair for an edit, breaks off at the cropped one, and is right about the rest."""

    def verify(request: Request) -> str:
        name = next(name for name, number in sizes.items() if number in str(request))
        if name == "cropped":
            return "?"
        return verified(name in ("recompressed", "square", "brighter", "moved"), f"Do {name}.")

    def parse(request: Request) -> str:
        return parsed([CAR], [CAR], [[1, 1]]) if "Do square." in str(request) else parsed([CAR], [SKY], [])

    lines = [json.loads(line) for line in (pairs / "metadata.jsonl").read_text().splitlines()]
    sizes = {row["id"]: f"square number {n}." for n, row in enumerate(lines)}
    lines = [{**row, "instruction": f"Add a red {sizes[row['id']]}"} for row in lines]
    (pairs / "metadata.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in lines))
    run(pairs, tmp_path / "run", both(verify, parse))
    found = judged_tables(tmp_path / "run")
    counts = {(r["human_class"], r["judge_says"]): r["count"] for r in found["confusion"] if r.get("count")}
    assert counts == {
        ("Normal", "Normal"): 1,
        ("No Edit", "No Edit"): 2,
        ("No Edit", "Hallucination"): 1,
        ("Hallucination", "Hallucination"): 2,
        ("Hallucination", "(unparsed)"): 1,
    }
    right = {r["human_class"]: (r["mean"], r["judged"], r["asked"]) for r in found["confusion"] if "figure" in r}
    assert right == {
        "Normal": (100, 1, 1), "No Edit": (pytest.approx(200 / 3), 3, 3), "Hallucination": (100, 2, 3),
    }  # fmt: skip
    # Eq. 6: 1 for the square; of the hallucinations two with −0.5 and one unparsed; No Edit has no reference.
    table = {(r["class"], r["scale"]): (r["mean"], r["judged"], r["asked"]) for r in found["alignment"]}
    assert table["Normal", 1] == (1, 1, 1) and table["Normal", 10] == (10, 1, 1)
    assert table["Hallucination", 1] == (-0.5, 2, 3) and table["Hallucination", 10] == (-5, 2, 3)
    assert table["No Edit", 1] == (None, 0, 3)
    ways = {(r["way"], r["figure"]): (r["mean"], r["judged"], r["asked"]) for r in found["no-edit"]}
    assert ways["lmm", "found"] == (pytest.approx(200 / 3), 3, 3) and ways["lmm", "false"] == (0, 3, 4)
    assert ways["differences", "found"] == (100, 3, 3) and ways["differences", "false"] == (0, 4, 4)
    assert {way for way, _ in ways} == {"lmm", "differences", "ssim"}
