"""`editloupe compare`: judges against each other and against people, each figure worked by hand or held to SciPy."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from editloupe.answers import Label
from editloupe.backends.prices import ModelPrice, Prices
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request, Usage
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.protocols.dlebench import DLEBench
from editloupe.reports.compare import Comparison, compare, entropy, mcnemar, signed_ranks
from editloupe.reports.judged import Judged
from editloupe.rubrics.model import load_rubric
from editloupe.runs.execute import execute
from editloupe.runs.setup import Settings, Source, open_bench
from editloupe.scores import Score
from editloupe.values import Box, ImageRef, Sample, Target, Turn
from tests.conftest import final

IF = "instruction_following"
RUBRIC = load_rubric("dlebench")
LEVELS = {level.value: level.name for level in RUBRIC.criterion("if").levels}
NO_PRICES = Prices()


def sample(number: int, *, size: int = 1000, instruction: str = "Do it.") -> Sample:
    """Two samples share a source image; even ones are recoloured, odd ones removed; the first half has small targets."""

    def image(name: str) -> ImageRef:
        return ImageRef(sha256=name, width=size, height=size, media_type="image/png")

    side = 20 if number < 4 else 200
    return Sample(
        id=f"s{number}",
        source=image(f"source {number // 2}"),
        turns=(Turn(instruction=instruction, edited=image(f"edited {number}")),),
        edit_type="color" if number % 2 == 0 else "removal",
        targets=(Target(boxes={"source": Box(0, 0, side, side)}),),
    )


def judge(name: str, values: list[int | None], *, backend: str = "baseline", usage: Usage | None = None) -> Judged:
    """A judge of eight samples by IF labels from 1 to 4; None could not be judged."""
    samples = [sample(i) for i in range(len(values))]
    scores, findings = [], []
    for s, v in zip(samples, values, strict=True):
        label = None if v is None else Label(name=LEVELS[v], value=float(v))
        scores.append(
            Score(
                sample_id=s.id,
                editor="",
                edit_type=s.edit_type,
                metric=IF,
                value=None if v is None else float(v),
                normalised=None if v is None else (v - 1) / 3 * 100,
                label=None if label is None else label.name,
                missing="refused" if v is None else None,
            )
        )
        findings.append(
            Finding(
                task_id=s.id,
                judge_id=name,
                repeat=0,
                sample_id=s.id,
                editor="",
                criterion=IF,
                status="refused" if v is None else "ok",
                answer=label,
                usage=usage or Usage(),
                seconds=2.0,
                turns=1,
                trace="traces/none.jsonl",
            )
        )
    return Judged(
        name=name,
        folder=Path("run"),
        judge_id=name,
        backend=backend,
        mode="tool",
        ablations=(),
        rubric=RUBRIC,
        protocol=DLEBench(RUBRIC, criteria=["if"]),
        criteria=(IF,),
        samples={s.key: s for s in samples},
        findings=tuple(findings),
        scores=tuple(scores),
    )


A = [1, 2, 3, 4, 1, 2, 3, 4]
B = [1, 2, 3, 4, 2, 3, 4, 4]


def test_two_judges_by_hand():
    found = compare([judge("a", list(A)), judge("b", list(B))], prices=NO_PRICES)
    (pair,) = found.pairs
    assert pair.common == 8
    value = {name: figure.estimate.value for name, figure in pair.figures.items()}
    assert value["exact"] == 5 / 8
    # Chance: Σ p_a p_b = (2·1 + 2·2 + 2·2 + 2·3) / 64 = 16/64; κ = (5/8 − 1/4) / (3/4) = 1/2.
    assert value["kappa"] == pytest.approx(0.5)
    # Observed squared distance 3·1/8; expected Σ_ij p_i q_j (i − j)², with q = (1, 2, 2, 3)/8 and p = 2/8 each:
    # q1: 0+1+4+9 = 14, q2: 1+0+1+4 = 6, q3: 4+1+0+1 = 6, q4: 14 → (14 + 12 + 12 + 42)/8·2/8 = 80/32 = 2.5; 1 − .375/2.5.
    assert value["weighted_kappa"] == pytest.approx(0.85)
    # Rubric units: a is lower by one on three of eight.
    assert value["bias"] == pytest.approx(-3 / 8)
    assert pair.difference.value == pytest.approx(-3 / 8 * 100 / 3)
    # Rows: b's label; columns: a's; the last for those that only b judged.
    assert pair.confusion == ((1, 0, 0, 0, 0), (1, 1, 0, 0, 0), (0, 1, 1, 0, 0), (0, 0, 1, 2, 0))
    a, b = found.standings
    assert (a.entropy, a.mean.value) == (2.0, pytest.approx(50.0))
    # 1/8, 2/8, 2/8, 3/8.
    assert b.entropy == pytest.approx(-(1 / 8 * math.log2(1 / 8) + 2 * 1 / 4 * math.log2(1 / 4) + 3 / 8 * math.log2(3 / 8)))


def test_correlation_is_scipys():
    stats = pytest.importorskip("scipy.stats")
    (pair,) = compare([judge("a", list(A)), judge("b", list(B))], prices=NO_PRICES).pairs
    assert pair.figures["spearman"].estimate.value == pytest.approx(stats.spearmanr(A, B).statistic)


def test_groups_by_edit_type_and_area():
    (pair,) = compare([judge("a", list(A)), judge("b", list(B))], prices=NO_PRICES).pairs
    types = {name: figures["exact"].estimate.value for name, figures in pair.by["edit_type"].items()}
    # Even samples: 1 3 1 3 and 1 3 2 4; odd: 2 4 2 4 and 2 4 3 4.
    assert types == {"Change Color": 0.5, "Removal Object": 0.75}
    areas = {name: figures["exact"].estimate.value for name, figures in pair.by["area"].items()}
    # 20×20 of a million px is 0.04 %, 200×200 is 4 %.
    assert areas == {"under 0.07 %": 1.0, "0.8 to 10 %": 0.25}


def test_what_one_could_not_judge_is_in_its_coverage_and_in_no_pair():
    found = compare([judge("a", [None, *A[1:]]), judge("b", list(B))], prices=NO_PRICES)
    (pair,) = found.pairs
    assert (pair.common, pair.figures["exact"].estimate.value) == (7, 4 / 7)
    a, b = found.standings
    assert (a.mean.judged, a.mean.asked, dict(a.statuses)) == (7, 8, {"refused": 1})
    assert (b.mean.judged, b.common.judged) == (8, 7)
    # b's 1 was judged by b alone.
    assert pair.confusion[0] == (0, 0, 0, 0, 1)


def test_a_judge_without_any_verdict_takes_part_in_nothing_and_is_listed():
    found = compare([judge("a", list(A)), judge("none", [None] * 8)], prices=NO_PRICES)
    assert found.notes == ("none has no verdict at all; it is listed and takes part in nothing",)
    (pair,) = found.pairs
    assert pair.common == 0
    assert {figure.estimate.value for figure in pair.figures.values()} == {None}
    assert (pair.difference.value, pair.test.p) == (None, None)
    assert found.standings[1].entropy is None
    assert not found.disagreements


def test_a_judge_without_any_verdict_empties_nobodys_mean():
    truth = {("", f"s{i}", IF): float(v) for i, v in enumerate(A)}
    three = [judge("a", [None, *A[1:]]), judge("none", [None] * 8), judge("b", list(B))]
    found = compare(three, prices=NO_PRICES, people=truth)
    # a: 2 3 4 1 2 3 4 are 19/7 of 1..4; b: 2 3 4 2 3 4 4 are 22/7.
    a, none, b = (s.common for s in found.standings)
    assert (a.judged, a.value) == (7, pytest.approx((19 / 7 - 1) / 3 * 100))
    assert (b.judged, b.value) == (7, pytest.approx((22 / 7 - 1) / 3 * 100))
    assert (none.judged, none.value) == (0, None)
    assert found.nearness[0].versus["none"][0].why == "no sample that both judged"
    assert found.nearness[0].versus["b"][0].p is not None


def test_a_criterion_that_a_judge_was_not_asked_is_told_of_the_others():
    def both(name: str) -> Judged:
        one = judge(name, list(A))
        more = tuple(replace(s, metric="visual_consistency") for s in one.scores)
        return replace(one, scores=(*one.scores, *more), criteria=(IF, "visual_consistency"))

    found = compare([both("a"), both("b"), judge("if only", list(B))], prices=NO_PRICES)
    assert found.notes == ("if only has no verdict on VC; what all judged is told without it there",)
    common = {(s.judge, s.criterion): s.common.judged for s in found.standings}
    assert common["a", "visual_consistency"] == common["b", "visual_consistency"] == common["if only", IF] == 8
    assert common["if only", "visual_consistency"] == 0


def test_one_sample_gives_no_chance_corrected_figure():
    (pair,) = compare([judge("a", [1]), judge("b", [2])], prices=NO_PRICES).pairs
    value = {name: figure.estimate.value for name, figure in pair.figures.items()}
    assert value["exact"] == 0.0
    assert value["kappa"] is None and value["spearman"] is None
    assert pair.difference.interval is None


def test_entropy_by_hand():
    assert entropy([4, 4]) == 1.0
    assert entropy([7]) == 0.0
    assert entropy([]) is None


def test_signed_ranks_are_of_source_images():
    # Eight differences on four sources: their means differ, but four are too few.
    few = signed_ranks([1.0, 1.0] * 4, [str(i // 2) for i in range(8)])
    assert (few.p, few.why) == (None, "4 of 4 source images differ; 6 are needed")
    stats = pytest.importorskip("scipy.stats")
    differences = [1.0, 3.0, 2.0, 2.0, -1.0, 0.0, 4.0, 4.0, 5.0, 6.0, 7.0, 8.0, 0.0, 0.0]
    found = signed_ranks(differences, [str(i // 2) for i in range(14)])
    # Means 2, 2, −0.5, 4, 5.5, 7.5 and 0, which says nothing.
    assert found.n == 6
    assert found.p == pytest.approx(stats.wilcoxon([2, 2, -0.5, 4, 5.5, 7.5]).pvalue)


def test_mcnemar_by_hand():
    # Five to one: 2 · (C(6,0) + C(6,1)) / 64.
    assert mcnemar(5, 1).p == pytest.approx(2 * 7 / 64)
    assert (mcnemar(0, 0).p, mcnemar(0, 0).why) == (None, "they are right on the same samples")


def test_three_judges_against_people_with_holms_correction():
    truth = {("", f"s{i}", IF): float(v) for i, v in enumerate(A)}
    wrong = [4, 4, 4, 1, 4, 4, 4, 1]
    found = compare(
        [judge("right", list(A)), judge("near", list(B)), judge("wrong", wrong)], prices=NO_PRICES, people=truth
    )
    right, near, bad = found.nearness
    assert right.figures["exact"].estimate.value == 1.0
    assert near.figures["exact"].estimate.value == 5 / 8
    assert near.figures["mae"].estimate.value == pytest.approx(3 / 8)
    assert bad.figures["exact"].estimate.value == 0.0
    test, ours, theirs = right.versus["near"]
    assert (ours, theirs, test.p) == (3, 0, pytest.approx(2 / 8))
    # p: 1/4 (3 to 0), 1/128 (8 to 0), 1/16 (5 to 0); Holm: 1/128·3, 1/16·2, 1/4·1.
    assert right.versus["wrong"][0].corrected == pytest.approx(3 / 128)
    assert near.versus["wrong"][0].corrected == pytest.approx(2 / 16)
    assert test.corrected == pytest.approx(1 / 4)
    assert [e.agreeing for e in found.efforts] == [8, 5, 0]


def test_what_a_verdict_costs():
    prices = Prices(by_name={"m": ModelPrice(input=1.0, output=10.0)})
    usage = Usage(input_tokens=1000, output_tokens=100, image_tokens=800)
    truth = {("", f"s{i}", IF): LEVELS[v] for i, v in enumerate(B)}
    found = compare(
        [judge("a", [None, *A[1:]], backend="openai/m", usage=usage), judge("b", list(B), backend="openai/other")],
        prices=prices,
        people=truth,
    )
    a, b = found.efforts
    # Eight findings: 8,000 tokens at 1 USD and 800 at 10 USD a million; seven verdicts, of which four are people's.
    assert a.cost == pytest.approx(0.016)
    assert a.cost_a_verdict == pytest.approx(0.016 / 7)
    assert (a.agreeing, a.cost_an_agreeing) == (4, pytest.approx(0.004))
    assert (a.verdicts, a.findings, a.seconds, a.turns) == (7, 8, 2.0, 1.0)
    assert b.cost is None and b.cost_a_verdict is None


def test_a_cost_is_unknown_where_a_finding_has_no_tokens():
    prices = Prices(by_name={"m": ModelPrice(input=1.0, output=10.0)})
    told = judge("told", list(A), backend="openai/m", usage=Usage(input_tokens=1000))
    silent = judge("silent", list(A), backend="openai/m")
    first, *others = told.findings
    partly = replace(told, name="partly", findings=(replace(first, usage=Usage()), *others))
    failed = replace(first, status="backend_failed", answer=None, usage=Usage(), turns=0)
    cut = replace(told, name="cut", findings=(failed, *others))
    never = replace(told, name="never", findings=(replace(first, usage=Usage(), trace=None), *others))
    judges = [told, silent, partly, cut, never, judge("baseline", list(A))]
    costs = [e.cost for e in compare(judges, prices=prices).efforts]
    # 1,000 tokens a finding; what was not answered or not asked costs nothing.
    assert costs == [pytest.approx(0.008), None, None, pytest.approx(0.007), pytest.approx(0.007), 0.0]


def test_disagreements_come_furthest_apart_first():
    found = compare([judge("a", list(A)), judge("b", [4, *B[1:]])], prices=NO_PRICES)
    assert [(d.sample, d.spread) for d in found.disagreements][:2] == [("s0", 1.0), ("s4", pytest.approx(1 / 3, abs=1e-6))]
    assert found.disagreements[0].labels == {"a": "Localization Failure", "b": "Flawless Execution"}


def test_other_data_no_overlap_and_one_judge_are_refused():
    a, b = judge("a", list(A)), judge("b", list(B))
    changed = replace(b, samples={**b.samples, "s3": sample(3, instruction="Do something else.")})
    with pytest.raises(ConfigError, match="judged different data: s3 differ in image, instruction or targets"):
        compare([a, changed], prices=NO_PRICES)
    # The first run has no s3: it differs from neither.
    first = replace(a, folder=Path("first"), samples={k: v for k, v in a.samples.items() if k != "s3"})
    second, third = replace(b, folder=Path("second")), replace(changed, name="c", folder=Path("third"))
    with pytest.raises(ConfigError, match=r"^second and third judged different data: s3 differ"):
        compare([first, second, third], prices=NO_PRICES)
    apart = replace(b, samples={"other": replace(sample(9), id="other")})
    with pytest.raises(ConfigError, match="no sample in common: run has s0, s1, s2, …; run has other"):
        compare([a, apart], prices=NO_PRICES)
    with pytest.raises(ConfigError, match="one judge only"):
        compare([a], prices=NO_PRICES)


def runs_of(edits: Path, tmp_path: Path, scripts: dict[str, Callable[[Request], str]]) -> dict[str, Path]:
    made = {}
    for name, script in scripts.items():
        bench = open_bench(Settings(backend=ScriptedLMM(script, name=name), criteria=("if",)))
        made[name] = tmp_path / name
        execute(bench, Source(path=edits), made[name], config={})
    return made


def number_of(request: Request) -> int:
    """Which sample it is: "Make square 3 red."."""
    return int(request.messages[0].text.split("Make square ")[1].split()[0])


def test_compare_on_the_command_line(
    edits: Callable[..., Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    folder = edits(8)
    made = runs_of(
        folder,
        tmp_path,
        {
            "first": lambda r: final(LEVELS[A[number_of(r)]]),
            "second": lambda r: final(LEVELS[B[number_of(r)]]),
            "third": lambda r: final(LEVELS[A[number_of(r)]]) if number_of(r) else "no label",
        },
    )
    human = tmp_path / "human.csv"
    human.write_text("item,if\n" + "".join(f"s{i:02},{LEVELS[v]}\n" for i, v in enumerate(A)))
    words = ("compare", *made.values(), "--human", human)
    code, told, said = editloupe(*words, "--json")
    assert code == 0, said
    data = json.loads(told)
    pairs = {(p["first"], p["second"]): p for p in data["pairs"]}
    assert pairs["scripted/first, tool", "scripted/second, tool"]["figures"]["kappa"]["value"] == pytest.approx(0.5)
    assert pairs["scripted/first, tool", "scripted/third, tool"]["common"] == 7
    assert [e["agreeing"] for e in data["efforts"]] == [8, 5, 7]
    code, told, _ = editloupe(*words, "--out", tmp_path / "out")
    assert code == 0
    assert "1 scripted/first, tool" in told and "Which of two judges is right more often" in told
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert {"compare.md", "compare.json", "pairs.csv", "effort.csv", "agreement-instruction-following.svg"} <= names
    with (tmp_path / "out" / "pairs.csv").open() as file:
        assert float(next(csv.DictReader(file))["weighted_kappa"]) == pytest.approx(0.85)
    code, told, said = editloupe("compare", *made.values(), "--judges", "nobody,scripted/first", "--json")
    assert (code, "--judges nobody: no judge of that name" in said) == (2, True)
    code, told, said = editloupe("compare", made["first"])
    assert (code, "one judge only" in said) == (2, True)


def test_runs_of_other_data_are_refused_on_the_command_line(
    edits: Callable[..., Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    good = {"first": lambda r: final("Flawless Execution")}
    one = runs_of(edits(2), tmp_path, good)["first"]
    rows = (tmp_path / "edits" / "metadata.jsonl").read_text().replace("Make square 1 red.", "Make square 1 blue.")
    (tmp_path / "edits" / "metadata.jsonl").write_text(rows)
    two = runs_of(tmp_path / "edits", tmp_path / "more", good)["first"]
    code, _, said = editloupe("compare", one, two)
    assert (code, "judged different data: s01 differ" in said) == (2, True)


def test_runs_of_one_folder_name_are_told_apart_by_their_parents(
    edits: Callable[..., Path], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    folder = edits(8)
    made = []
    for month, labels in (("jan", A), ("feb", B)):
        bench = open_bench(
            Settings(backend=ScriptedLMM(lambda r, v=labels: final(LEVELS[v[number_of(r)]]), name="one"), criteria=("if",))
        )
        made.append(tmp_path / month / "run")
        execute(bench, Source(path=folder), made[-1], config={})
    code, told, said = editloupe("compare", *made, "--json")
    assert code == 0, said
    data = json.loads(told)
    jan, feb = (j["name"] for j in data["judges"])
    assert (jan, feb) == ("scripted/one, tool (jan/run)", "scripted/one, tool (feb/run)")
    # Exact agreement of A and B is 5 of 8; a judge beside itself would have 1.
    assert data["pairs"][0]["figures"]["exact"]["value"] == 5 / 8
    assert {tuple(d["labels"]) for d in data["disagreements"]} == {(jan, feb)}
    code, _, said = editloupe("compare", made[0], tmp_path / "feb" / ".." / "jan" / "run")
    assert (code, "are the same run; name each run once" in said) == (2, True)


def test_judges_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two judges are called a"):
        compare([judge("a", list(A)), judge("a", list(B))], prices=NO_PRICES)


def as_table(found: Comparison) -> str:
    return json.dumps(found.to_json(), allow_nan=False)


def test_nothing_in_the_json_is_infinite_or_nan():
    assert as_table(compare([judge("a", [None] * 8), judge("b", [2] * 8)], prices=NO_PRICES))
