"""Probes: questions beside their truth, verdicts that are right, wrong or neither, and probes that are not as they were."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from editloupe import plugins
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.data.probes import probe_of
from editloupe.data.samples import load
from editloupe.errors import ConfigError, DataError
from editloupe.figures.judged import judged_in
from editloupe.protocols.base import Known, make_protocol
from editloupe.protocols.repeats import Repeats
from editloupe.rubrics import rubric_path
from editloupe.runs.outcome import Outcome
from editloupe.runs.store import RunStore
from editloupe.tasks import Ask, Measure
from editloupe.testing import check_protocol
from editloupe.values import Sample
from tests.conftest import final, png
from tests.protocols.probe_files import FAILURES, IF, VC, draw_probes, picture, probe_row, write
from tests.setups import open_with, run_over

Cli = Callable[..., tuple[int, str, str]]
RIGHT_IF, RIGHT_VC = f"right_{IF}", f"right_{VC}"


def samples_of(folder: Path) -> tuple[Sample, ...]:
    return load(folder, store=ImageStore()).samples


def question_of(request: Request) -> str:
    return " ".join(part.text for message in request.messages for part in message.parts if hasattr(part, "text"))


def always(instruction_following: str, visual_consistency: str) -> ScriptedLMM:
    """Gives one label for each criterion, whatever it sees."""

    def answer(request: Request) -> str:
        return final(visual_consistency if "Perfect Consistency" in question_of(request) else instruction_following)

    return ScriptedLMM(answer)


FLATTERS = ("Flawless Execution", "Perfect Consistency")


def judged(folder: Path, out: Path, backend: ScriptedLMM, **given: Any) -> Outcome:
    setup = open_with(protocol="probes", backend=backend, **{"mode": "plain", **given})
    return run_over(setup, folder, out)


def values(scores: Any, metric: str) -> dict[str, float | str | None]:
    """Sample id → value, or the status for want of one."""
    return {s.sample_id: s.missing if s.value is None else s.value for s in scores if s.metric == metric}


def test_each_question_stands_beside_its_truth(tmp_path: Path) -> None:
    flawless, restyled = samples_of(draw_probes(tmp_path, ["flawless", "restyled"]))
    protocol = make_protocol("probes", {"mode": "plain"})
    tasks = {task.metric: task for task in protocol.plan([flawless], Known())}
    assert list(tasks) == [IF, f"key_{IF}", VC, f"key_{VC}"]
    key, asked = tasks[f"key_{IF}"], tasks[IF]
    assert isinstance(key, Measure) and isinstance(asked, Ask)
    assert (key.measure, key.views) == ("key", ())
    assert key.args == {"answer": {"kind": "choice", "name": "Flawless Execution"}}
    # What is asked is what the protocol asks that is named, in its words.
    theirs = next(t for t in make_protocol("dlebench", {"mode": "plain"}).plan([flawless], Known()) if t.metric == IF)
    assert isinstance(theirs, Ask) and (asked.prompt, asked.views, asked.answer) == (
        theirs.prompt,
        theirs.views,
        theirs.answer,
    )
    # A restyled scene has no truth of Instruction Following: it is asked, and nobody is right or wrong about it.
    assert [task.metric for task in protocol.plan([restyled], Known())] == [IF, VC, f"key_{VC}"]


def test_a_truth_is_a_finding_of_kind_key_and_a_verdict_is_right_or_wrong(tmp_path: Path) -> None:
    folder = draw_probes(tmp_path / "p", ["flawless", "wrong_colour", "one_collateral", "restyled"])
    outcome = judged(folder, tmp_path / "run", always(*FLATTERS))
    # It calls everything flawless: IF is right for p00 and p02, VC for p00 and p01, and p03 has no truth of IF.
    assert values(outcome.scores, RIGHT_IF) == {"p00": 1.0, "p01": 0.0, "p02": 1.0, "p03": "not_defined"}
    assert values(outcome.scores, RIGHT_VC) == {"p00": 1.0, "p01": 1.0, "p02": 0.0, "p03": 0.0}
    assert values(outcome.scores, IF) == dict.fromkeys(["p00", "p01", "p02", "p03"], 4.0)
    store = RunStore.read(tmp_path / "run")
    keys = [f for f in store.findings.values() if f.metric.startswith("key_")]
    # Two of each probe, one of the restyled.
    assert len(keys) == 7 and {f.role for f in keys} == {"measure"}
    assert {store.info["judges"][f.judge_id]["kind"] for f in keys} == {"key"}  # type: ignore[index, call-overload]
    (score,) = (s for s in outcome.scores if s.metric == RIGHT_IF and s.sample_id == "p01")
    assert dict(score.dims) == {
        "edit_type": "Change Color", "target_area": 0.0625, "target_width": 0.25, "target_height": 0.25,
        "failure": "wrong_colour", "area": 0.1, "nuisance": None, "trap": None, "twin": None, "scene": "scene 1",
    }  # fmt: skip
    assert len(score.findings) == 2


def test_what_could_not_be_judged_is_neither_right_nor_wrong(tmp_path: Path) -> None:
    folder = draw_probes(tmp_path / "p", ["flawless"])
    outcome = judged(folder, tmp_path / "run", ScriptedLMM([final("No idea")] * 3), remind_answers=False)
    assert values(outcome.scores, RIGHT_IF) == values(outcome.scores, IF) == {"p00": "off_menu"}
    (one,) = judged_in(RunStore.read(tmp_path / "run"))
    assert one.protocol.right == {IF: RIGHT_IF, VC: RIGHT_VC}  # type: ignore[attr-defined]


def test_scores_are_held_against_bands(tmp_path: Path) -> None:
    metrics = [m.id for m in make_protocol("unicbench").metrics]
    bands = {metrics[0]: [8, 10], metrics[1]: [0, 3.5]}
    rows = [probe_row(tmp_path, 0, truth={}, bands=bands), probe_row(tmp_path, 1, truth={}, bands={metrics[0]: [8.5, 10]})]
    outcome = judged(write(tmp_path, rows), tmp_path / "run", ScriptedLMM([final('{"score": 8}')]), asks="unicbench")
    # 8 lies in 8 to 10, on its edge; not in 0 to 3.5, and not in 8.5 to 10.
    assert values(outcome.scores, f"right_{metrics[0]}") == {"p00": 1.0, "p01": 0.0}
    assert values(outcome.scores, f"right_{metrics[1]}") == {"p00": 0.0, "p01": "not_defined"}
    # The overall score is asked of nobody, and has no truth.
    assert "right_overall" not in {score.metric for score in outcome.scores}
    assert outcome.unusable == 0


def test_a_multiple_choice_question_has_its_own_key(tmp_path: Path) -> None:
    question = {
        "evaluation_question": "What color is the square?",
        "multiple_choice_options": ["Blue", "Red", "Green"],
        "expected_answer": "Blue",
    }
    rows = [probe_row(tmp_path, n, failure, row=question) for n, failure in enumerate(["flawless", "no_edit"])]
    # Of this one there is no question: it is not asked, and is no failure.
    rows.append(probe_row(tmp_path, 2, "restyled"))
    outcome = judged(write(tmp_path, rows), tmp_path / "run", ScriptedLMM([final("Blue")]), asks="giebench")
    assert values(outcome.scores, "accuracy") == {"p00": 1.0, "p01": 1.0}
    assert {s.dims["failure"] for s in outcome.scores} == {"flawless", "no_edit"}
    assert [m.id for m in outcome.setup.protocol.metrics] == ["accuracy"] and outcome.unusable == 0


def test_a_truth_that_is_no_label_blocks_its_key(tmp_path: Path) -> None:
    rows = [probe_row(tmp_path, 0, truth={IF: "Splendid"})]
    outcome = judged(write(tmp_path, rows), tmp_path / "run", always(*FLATTERS))
    (score,) = (s for s in outcome.scores if s.metric == RIGHT_IF)
    assert (score.value, score.missing) == (None, "input_error") and "'Splendid' is no label" in score.reason


def test_repeats_are_joined_before_they_are_held_against_the_truth(tmp_path: Path) -> None:
    folder = draw_probes(tmp_path / "p", ["wrong_colour"])
    labels = iter(["Wrong Action", "Flawless Execution", "Wrong Action"] * 2)

    def answer(request: Request) -> str:
        return final("Perfect Consistency" if "Perfect Consistency" in question_of(request) else next(labels))

    setup = open_with(protocol="probes", backend=ScriptedLMM(answer), mode="plain", repeats=Repeats(count=3))
    outcome = run_over(setup, folder, tmp_path / "run", concurrency=1)
    assert values(outcome.scores, RIGHT_IF) == {"p00": 1.0}
    # The truth is known once, however often it is asked for.
    keys = [f for f in RunStore.read(tmp_path / "run").findings.values() if f.metric == f"key_{IF}"]
    assert [f.repeat for f in keys] == [0]


def test_the_oracle_mode_shows_the_boxes_of_probes_and_asks_once_for_the_truth(tmp_path: Path) -> None:
    rows = [probe_row(tmp_path, 0, "wrong_colour", row={"bboxes": [[20, 20, 36, 36], [2, 2, 10, 10]]})]
    (sample,) = samples_of(write(tmp_path, rows))
    tasks = list(make_protocol("probes", {"mode": "oracle"}).plan([sample], Known()))
    asked = [(task.metric, task.about.part) for task in tasks]
    assert asked == [(IF, "target 1"), (f"key_{IF}", ""), (IF, "target 2"), (VC, ""), (f"key_{VC}", "")]
    outcome = judged(tmp_path, tmp_path / "run", always("Wrong Action", "Perfect Consistency"), mode="oracle")
    assert values(outcome.scores, RIGHT_IF) == values(outcome.scores, RIGHT_VC) == {"p00": 1.0}


def change_row(folder: Path) -> None:
    lines = (folder / "metadata.jsonl").read_text().splitlines()
    row = json.loads(lines[0])
    row["probe"]["truth"][IF] = "Wrong Action"
    (folder / "metadata.jsonl").write_text("\n".join([json.dumps(row), *lines[1:]]) + "\n")


def change_image(role: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / f"images/p00-{role}.png").write_bytes(png(picture((1, 2, 3), seed=9)))

    return change


@pytest.mark.parametrize(
    ("change", "what"),
    [(change_row, "its row"), (change_image("source"), "its source image"), (change_image("edited"), "its edited image"),
     (change_image("mask"), "its mask")],
)  # fmt: skip
def test_a_probe_that_was_changed_after_it_was_built_is_not_judged(
    tmp_path: Path, change: Callable[[Path], None], what: str, editloupe: Cli
) -> None:
    folder = draw_probes(tmp_path / "p", ["flawless", "no_edit"])
    change(folder)
    loaded = load(folder, store=ImageStore())
    assert [sample.id for sample in loaded.samples] == ["p01"]
    (row,) = loaded.rejected
    assert (row.id, row.kind) == ("p00", "changed_probe")
    assert (
        f"p00: the probe was changed after it was built: {what}. " in row.message
        and "build the probes again" in row.message
    )
    backend = always(*FLATTERS)
    outcome = judged(folder, tmp_path / "run", backend)
    assert len(backend.requests) == 2  # of p01 alone
    assert values(outcome.scores, RIGHT_IF) == {"p01": 0.0, "p00": "input_error"}
    code, said, _ = editloupe("check", folder, "--format", "json")
    (problem,) = (one for one in json.loads(said)["problems"] if one["severity"] == "error")
    assert code == 1 and (problem["sample"], problem["kind"]) == ("p00", "changed_probe") and what in problem["message"]


def test_other_images_in_place_of_those_that_were_built_are_not_judged(tmp_path: Path) -> None:
    folder = draw_probes(tmp_path / "p", ["flawless"])
    (sample,) = samples_of(folder)
    probe = probe_of(sample)
    assert probe is not None and probe.failure == "flawless"
    setup = open_with(protocol="probes", backend=always(*FLATTERS), mode="plain", null_edit=True)
    outcome = run_over(setup, folder, tmp_path / "run")
    assert values(outcome.scores, IF) == values(outcome.scores, RIGHT_IF) == {"p00": "input_error"}
    assert all("its edited image" in f.reason for f in RunStore.read(tmp_path / "run").findings.values())


def test_data_without_a_probe_are_refused_before_anything_is_asked(tmp_path: Path, editloupe: Cli, edits: Any) -> None:
    code, _, told = editloupe("judge", edits(2), "--protocol", "probes")
    assert code == 2 and "no sample is a probe (s00 has no column 'probe')" in told and "editloupe build probes" in told
    # Between probes, a row that is none is not judged.
    plain = {name: value for name, value in probe_row(tmp_path / "q", 1).items() if name != "probe"}
    folder = write(tmp_path / "q", [probe_row(tmp_path / "q", 0), plain])
    backend = always(*FLATTERS)
    outcome = judged(folder, tmp_path / "run", backend)
    assert len(backend.requests) == 2 and values(outcome.scores, RIGHT_IF) == {"p00": 1.0, "p01": "input_error"}


def test_a_column_of_this_name_that_holds_something_else_is_a_column_like_any_other(tmp_path: Path) -> None:
    row = {**probe_row(tmp_path, 0), "probe": "thermometer"}
    (sample,) = samples_of(write(tmp_path, [row]))
    assert sample.extra["probe"] == "thermometer"
    with pytest.raises(DataError, match="p00: column 'probe' is no probe"):
        probe_of(sample)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"asks": "pairwise"}, "option asks: Input should be 'dlebench', 'unicbench' or 'giebench'; found 'pairwise'"),
        ({"asks": "unicbench", "mode": "oracle"}, "protocol 'unicbench'.*option mode"),
        ({"mask_pad": "9"}, "protocol 'dlebench'.*option mask_pad"),
        ({"asks": "giebench", "mask_pad": "0.1"}, "protocol 'giebench'.*unknown option 'mask_pad'"),
    ],
)
def test_options_are_those_of_the_protocol_that_asks(options: Mapping[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        make_protocol("probes", options)


def test_the_command_line_judges_reports_replays_and_scores_again(tmp_path: Path, editloupe: Cli) -> None:
    words = ("--protocol", "probes", "--set", "asks=dlebench", "--mode", "plain", "--out", "run")
    assert editloupe("judge", draw_probes(tmp_path / "p"), *words)[0] == 0
    code, said, _ = editloupe("report", "run", "--full")
    assert code == 0 and "Share of right verdicts by failure" in said and "restyled" in said
    before = judged_in(RunStore.read(Path("run")))[0].scores
    assert 1.0 in values(before, RIGHT_IF).values()
    # Five probes, two questions each; the nine truths are no questions.
    code, said, _ = editloupe("replay", "run")
    assert code == 0 and "10 as recorded" in said
    # Wrong Action counts 1.5 now: the mean changes, and no verdict is more or less right.
    text = rubric_path("dlebench").read_text(encoding="utf-8")
    Path("mine.toml").write_text(text.replace("value = 2", "value = 1.5"), encoding="utf-8")
    code, said, told = editloupe("replay", "run", "--rubric", "mine.toml", "--out", "again")
    assert code == 0, told
    after = judged_in(RunStore.read(Path("again")))[0].scores
    assert values(after, RIGHT_IF) == values(before, RIGHT_IF) and values(after, IF) != values(before, IF)


@pytest.mark.parametrize("options", [{}, {"mode": "oracle"}, {"mode": "plain", "criteria": "vc"}, {"asks": "unicbench"}])
def test_it_keeps_the_contract_of_protocols(tmp_path: Path, options: Mapping[str, Any]) -> None:
    band = {"instruction_following": [0, 10]}
    rows = [probe_row(tmp_path, n, failure, bands=band) for n, failure in enumerate(FAILURES)]
    store = ImageStore()
    samples = load(write(tmp_path, rows), store=store).samples
    scores = check_protocol(plugins.load("protocols", "probes"), options=options, samples=samples, images=store)
    assert any(score.value is not None for score in scores if score.metric.startswith("right_"))
