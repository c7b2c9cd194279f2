"""`editloupe compare`: judges against each other and against people, each figure worked by hand or held to SciPy."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from tests.conftest import final
from tests.figures.runs import IF, LEVELS, Row, finding, sample, write_run
from tests.setups import open_with, run_over

Found = dict[str, Any]
Comparer = Callable[..., Found]

A = [1, 2, 3, 4, 1, 2, 3, 4]
B = [1, 2, 3, 4, 2, 3, 4, 4]


def edit(number: int, **more: Any) -> Row:
    """Two samples share a source image; even ones are recolored, odd ones removed; the first half has small targets."""
    side = 20 if number < 4 else 200
    return sample(
        f"s{number}",
        source=str(number // 2),
        edit_type="color" if number % 2 == 0 else "removal",
        boxes=[(0, 0, side, side)],
        **more,
    )


def said(values: Sequence[int | None], **more: Any) -> list[Row]:
    """A judge's findings of the samples in turn, by IF labels from 1 to 4; None could not be judged."""
    return [finding(edit(i), "(refused)" if v is None else LEVELS[v], **more) for i, v in enumerate(values)]


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write judges' findings of the samples as a run."""

    def run(judges: dict[str, list[Row]], *, name: str = "run", samples: Sequence[Row] | None = None, **more: Any) -> Path:
        count = max(len({row["sample_id"] for row in rows}) for rows in judges.values())
        return write_run(tmp_path / name, samples or [edit(i) for i in range(count)], judges, **more)

    return run


@pytest.fixture
def compared(write: Callable[..., Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]) -> Comparer:
    """What `compare --json` tells of judges in one run. people: the labels' values; prices: a TOML file's text."""

    def compare(
        judges: dict[str, list[Row]],
        *,
        people: Sequence[int] = (),
        prices: str = "",
        backends: dict[str, str] | None = None,
    ) -> Found:
        words: list[str | Path] = []
        if people:
            rows = "".join(f"s{i},{LEVELS[v]}\n" for i, v in enumerate(people))
            (tmp_path / "people.csv").write_text("item,if\n" + rows, encoding="utf-8")
            words += ["--human", tmp_path / "people.csv"]
        if prices:
            (tmp_path / "prices.toml").write_text(prices, encoding="utf-8")
            words += ["--prices", tmp_path / "prices.toml"]
        code, told, problem = editloupe(
            "compare", write(judges, backends=backends), *words, "--resamples", "200", "--format", "json"
        )
        assert code == 0, problem
        # No figure is infinite or NaN.
        return dict(json.loads(told, parse_constant=lambda name: pytest.fail(f"{name} in the JSON")))

    return compare


def values(figures: Found) -> dict[str, float | None]:
    return {name: figure["value"] for name, figure in figures.items()}


def test_two_judges_by_hand(compared: Comparer):
    found = compared({"a": said(A), "b": said(B)})
    (pair,) = found["pairs"]
    assert pair["common"] == 8
    value = values(pair["figures"])
    assert value["exact"] == 5 / 8
    # Chance: Σ p_a p_b = (2·1 + 2·2 + 2·2 + 2·3) / 64 = 16/64; κ = (5/8 − 1/4) / (3/4) = 1/2.
    assert value["kappa"] == pytest.approx(0.5)
    # Observed squared distance 3·1/8; expected Σ_ij p_i q_j (i − j)², with q = (1, 2, 2, 3)/8 and p = 2/8 each:
    # q1: 0+1+4+9 = 14, q2: 1+0+1+4 = 6, q3: 4+1+0+1 = 6, q4: 14 → (14 + 12 + 12 + 42)/8·2/8 = 80/32 = 2.5; 1 − .375/2.5.
    assert value["weighted_kappa"] == pytest.approx(0.85)
    # Rubric units: a is lower by one on three of eight.
    assert value["bias"] == pytest.approx(-3 / 8)
    assert pair["difference"]["value"] == pytest.approx(-3 / 8 * 100 / 3)
    # Rows: b's label; columns: a's; the last for those that only b judged.
    assert pair["confusion"] == [[1, 0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 1, 2, 0]]
    a, b = found["summaries"]
    assert (a["label_entropy_bits"], a["mean"]["value"]) == (2.0, pytest.approx(50.0))
    # 1/8, 2/8, 2/8, 3/8.
    bits = -(1 / 8 * math.log2(1 / 8) + 2 * 1 / 4 * math.log2(1 / 4) + 3 / 8 * math.log2(3 / 8))
    assert b["label_entropy_bits"] == pytest.approx(bits)


def test_what_one_could_not_judge_is_in_its_coverage_and_in_no_pair(compared: Comparer):
    found = compared({"a": said([None, *A[1:]]), "b": said(B)})
    (pair,) = found["pairs"]
    assert (pair["common"], values(pair["figures"])["exact"]) == (7, 4 / 7)
    a, b = found["summaries"]
    assert (a["mean"]["judged"], a["mean"]["asked"], a["statuses"]) == (7, 8, {"refused": 1})
    assert (b["mean"]["judged"], b["common"]["judged"]) == (8, 7)
    # b's 1 was judged by b alone.
    assert pair["confusion"][0] == [0, 0, 0, 0, 1]


def test_a_judge_without_any_verdict_takes_part_in_nothing_and_is_listed(compared: Comparer):
    found = compared({"a": said(A), "none": said([None] * 8)})
    (pair,) = found["pairs"]
    assert pair["common"] == 0
    assert set(values(pair["figures"]).values()) == {None}
    assert (pair["difference"]["value"], pair["test"]["p"]) == (None, None)
    assert found["summaries"][1]["label_entropy_bits"] is None
    assert not found["disagreements"]


def test_a_judge_without_any_verdict_empties_nobodys_mean(compared: Comparer):
    found = compared({"a": said([None, *A[1:]]), "none": said([None] * 8), "b": said(B)}, people=A)
    # a: 2 3 4 1 2 3 4 are 19/7 of 1..4; b: 2 3 4 2 3 4 4 are 22/7.
    a, none, b = (s["common"] for s in found["summaries"])
    assert (a["judged"], a["value"]) == (7, pytest.approx((19 / 7 - 1) / 3 * 100))
    assert (b["judged"], b["value"]) == (7, pytest.approx((22 / 7 - 1) / 3 * 100))
    assert (none["judged"], none["value"]) == (0, None)
    versus = found["human_agreement"][0]["versus"]
    assert versus["none, tool"]["why"] == "no sample that both judged"
    assert versus["b, tool"]["p"] is not None


def test_three_judges_against_people_with_holms_correction(compared: Comparer):
    wrong = [4, 4, 4, 1, 4, 4, 4, 1]
    found = compared({"right": said(A), "near": said(B), "wrong": said(wrong)}, people=A)
    right, near, bad = found["human_agreement"]
    assert right["all"]["figures"]["exact"]["value"] == 1.0
    assert near["all"]["figures"]["exact"]["value"] == 5 / 8
    assert near["all"]["figures"]["mae"]["value"] == pytest.approx(3 / 8)
    assert bad["all"]["figures"]["exact"]["value"] == 0.0
    test = right["versus"]["near, tool"]
    # Two samples share a source image. 3 samples to 0 are of two images: 2 of 2² flips are as far apart as 2 + 1.
    assert (test["right_alone"], test["other_right_alone"], test["p"], test["n"]) == (3, 0, pytest.approx(2 / 4), 2)
    # p: 1/2 (2 + 1), 2/16 (2 + 2 + 2 + 2), 2/8 (2 + 2 + 1); Holm: 1/8·3, 1/4·2, 1/2·1.
    assert right["versus"]["wrong, tool"]["p_holm"] == pytest.approx(3 / 8)
    assert near["versus"]["wrong, tool"]["p_holm"] == pytest.approx(2 / 4)
    assert test["p_holm"] == pytest.approx(1 / 2)
    assert [e["agreeing"] for e in found["costs"]] == [8, 5, 0]


PRICES = "[models.m]\ninput = 1.0\noutput = 10.0\n"


def test_what_a_verdict_costs(compared: Comparer):
    usage = {"input_tokens": 1000, "output_tokens": 100, "image_tokens": 800}
    found = compared(
        {"a": said([None, *A[1:]], usage=usage), "b": said(B)},
        backends={"a": "openai/m", "b": "openai/other"},
        prices=PRICES,
        people=B,
    )
    a, b = found["costs"]
    # Eight findings: 8,000 tokens at 1 USD and 800 at 10 USD a million; seven verdicts, of which four are people's.
    assert a["cost_usd"] == pytest.approx(0.016)
    assert a["cost_a_verdict_usd"] == pytest.approx(0.016 / 7)
    assert (a["agreeing"], a["cost_an_agreeing_verdict_usd"]) == (4, pytest.approx(0.004))
    assert (a["verdicts"], a["findings"], a["seconds_median"], a["turns_mean"]) == (7, 8, 2.0, 1.0)
    assert b["cost_usd"] is None and b["cost_a_verdict_usd"] is None


def test_a_cost_is_unknown_where_a_finding_has_no_tokens(compared: Comparer):
    told = said(A, usage={"input_tokens": 1000})
    first, *others = told
    failed = finding(edit(0), "(backend_failed)", turns=0)
    judges = {
        "told": told,
        "silent": said(A),
        "partly": [first | {"usage": {}}, *others],
        "cut": [failed, *others],
        "never": [first | {"usage": {}, "trace": None}, *others],
        "baseline": said(A),
    }
    uris = dict.fromkeys(("told", "silent", "partly", "cut", "never"), "openai/m")
    costs = [e["cost_usd"] for e in compared(judges, backends=uris, prices=PRICES)["costs"]]
    # 1,000 tokens a finding; what was not answered or not asked costs nothing.
    assert costs == [pytest.approx(0.008), None, None, pytest.approx(0.007), pytest.approx(0.007), 0.0]


def test_disagreements_come_furthest_apart_first(compared: Comparer):
    found = compared({"a": said(A), "b": said([4, *B[1:]])})["disagreements"]
    assert [(d["sample"], d["spread"]) for d in found][:2] == [("s0", 100.0), ("s4", pytest.approx(100 / 3, abs=1e-4))]
    assert found[0]["labels"] == {"a, tool": "Localization Failure", "b, tool": "Flawless Execution"}


def test_other_data_no_overlap_and_one_judge_are_refused(
    write: Callable[..., Path], editloupe: Callable[..., tuple[int, str, str]]
):
    def refused(*runs: Path) -> str:
        code, _, problem = editloupe("compare", *runs)
        assert code == 2
        return problem

    eight = [edit(i) for i in range(8)]
    one = write({"a": said(A)}, name="one")
    changed = [*eight[:3], edit(3, instruction="Do something else."), *eight[4:]]
    second = write({"b": said(B)}, name="second", samples=changed)
    assert "judged different data: s3 differ in image, instruction or targets" in refused(one, second)
    # The first run has no s3: it differs from neither.
    first = write({"a": [*said(A)[:3], *said(A)[4:]]}, name="first", samples=[*eight[:3], *eight[4:]])
    third = write({"c": said(A)}, name="third")
    problem = refused(first, second, third)
    assert "/second and " in problem and "/third judged different data: s3 differ" in problem
    others = [row | {"id": f"other {row['id']}"} for row in eight]
    apart = write({"b": [finding(row, "Wrong Action") for row in others]}, name="apart", samples=others)
    problem = refused(one, apart)
    assert "no sample in common" in problem and "has s0, s1, s2, …" in problem and "has other s0, other s1" in problem
    assert "one judge only" in refused(one)


def runs_of(edits: Path, tmp_path: Path, scripts: dict[str, Callable[[Request], str]]) -> dict[str, Path]:
    made = {}
    for name, script in scripts.items():
        made[name] = tmp_path / name
        run_over(open_with(backend=ScriptedLMM(script, name=name), criteria=("if",)), edits, made[name])
    return made


def number_of(request: Request) -> int:
    """Which sample it is: "Make square 3 red."."""
    return int(request.messages[0].text.split("Make square ")[1].split()[0])


def test_compare_on_the_command_line(
    edits: Callable[..., Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    scripts = {
        "first": lambda r: final(LEVELS[A[number_of(r)]]),
        "second": lambda r: final(LEVELS[B[number_of(r)]]),
        "third": lambda r: final(LEVELS[A[number_of(r)]]) if number_of(r) else "no label",
    }
    made = runs_of(edits(8), tmp_path, scripts)
    human = tmp_path / "human.csv"
    human.write_text("item,if\n" + "".join(f"s{i:02},{LEVELS[v]}\n" for i, v in enumerate(A)))
    code, told, said = editloupe("compare", *made.values(), "--human", human, "--out", tmp_path / "out")
    assert code == 0, said
    assert "1 first, tool" in told and "Which of two judges is right more often" in told
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"compare.md", "compare.json", "pairs.csv", "costs.csv", "agreement-instruction-following.svg"} <= names
    with (tmp_path / "out" / "pairs.csv").open() as file:
        pairs = {(row["first"], row["second"]): row for row in csv.DictReader(file)}
    assert float(pairs["first, tool", "second, tool"]["weighted_kappa"]) == pytest.approx(0.85)
    assert pairs["first, tool", "third, tool"]["common"] == "7"
    with (tmp_path / "out" / "costs.csv").open() as file:
        assert [row["agreeing"] for row in csv.DictReader(file)] == ["8", "5", "7"]
    code, told, said = editloupe("compare", *made.values(), "--judges", "nobody,scripted/first", "--format", "json")
    assert (code, "--judges nobody: no judge of that name" in said) == (2, True)


def test_runs_of_one_folder_name_are_told_apart_by_their_parents(
    edits: Callable[..., Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    folder = edits(8)
    made = []
    for month, labels in (("jan", A), ("feb", B)):
        judge = ScriptedLMM(lambda r, v=labels: final(LEVELS[v[number_of(r)]]), name="one")
        made.append(tmp_path / month / "run")
        run_over(open_with(backend=judge, criteria=("if",)), folder, made[-1])
    code, told, said = editloupe("compare", *made, "--format", "json")
    assert code == 0, said
    data = json.loads(told)
    jan, feb = (j["name"] for j in data["judges"])
    assert (jan, feb) == (f"one, tool ({made[0]})", f"one, tool ({made[1]})")
    # Exact agreement of A and B is 5 of 8; a judge beside itself would have 1.
    assert data["pairs"][0]["figures"]["exact"]["value"] == 5 / 8
    assert {tuple(d["labels"]) for d in data["disagreements"]} == {(jan, feb)}
    code, _, said = editloupe("compare", made[0], tmp_path / "feb" / ".." / "jan" / "run")
    assert (code, "are the same run; name each run once" in said) == (2, True)


def test_runs_of_different_criteria_are_compared_on_what_they_share(
    edits: Callable[..., Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    folder, runs = edits(2), {name: tmp_path / name for name in ("both", "if", "vc")}

    def script(request: Request) -> str:
        return final("Perfect Consistency" if "Visual Consistency" in request.messages[0].text else "Wrong Action")

    for name, criteria in (("both", ("if", "vc")), ("if", ("if",)), ("vc", ("vc",))):
        run_over(open_with(backend=ScriptedLMM(script, name=name), criteria=criteria), folder, runs[name])
    code, out, err = editloupe("compare", runs["both"], runs["if"], "--format", "json")
    told = json.loads(out)
    assert code == 0 and {pair["criterion"] for pair in told["pairs"]} == {IF}
    assert told["notes"][0].startswith("compared on what all runs have, Instruction Following (IF): ")
    # Two samples, two questions each; of the cost those on the shared metric alone.
    assert [cost["findings"] for cost in told["costs"]] == [2, 2]
    code, _, err = editloupe("compare", runs["if"], runs["vc"])
    assert code == 2 and "no metric in common" in err
    assert f"{runs['if']} has Instruction Following (IF)" in err and f"{runs['vc']} has Visual Consistency (VC)" in err
    # A metric that two rubrics define is not one metric.
    info = json.loads((runs["both"] / "run.json").read_text())
    info["record"]["metrics"][0]["name"] = "Another"
    (runs["both"] / "run.json").write_text(json.dumps(info))
    code, _, err = editloupe("compare", runs["both"], runs["if"])
    assert code == 2 and "no metric in common" in err and "Another (IF)" in err
