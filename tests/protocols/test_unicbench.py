"""UnicBench: what is asked of whom, what replies become, and whole runs with tools, constraints and broken replies."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.answers import Number, Scale
from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, DataError
from editloupe.figures.ranking import by_scores
from editloupe.findings import Finding
from editloupe.protocols.base import Known, make_protocol, planned, scored
from editloupe.protocols.unicbench.protocol import UnicBench
from editloupe.rubrics import load_rubric, rubric_path
from editloupe.runs.worker import Worker
from editloupe.scores import Score
from editloupe.tasks import Ask
from editloupe.testing import check_protocol
from editloupe.values import ImageRef, Sample, Turn
from tests.backends.loopback import Act
from tests.backends.openai_server import Handler, OpenAIServer, says
from tests.conftest import LOOK, final, png
from tests.protocols.unicbench_published import METRICS
from tests.setups import open_with

Cli = Callable[..., tuple[int, str, str]]
POINTS = ["The trees are gone.", "There is bamboo\nin their place."]
SEVEN = '{"score": 7, "reason": "The bamboo (left) is green."}'
BOX = {"target_image": "Edited Image", "bbox": [0, 0, 500, 500]}


def edit(id: str = "k.en", *, task: str = "Object Editing", edited: bool = True, **extra: Any) -> Sample:
    image = ImageRef(sha256=f"{len(id):064}", width=64, height=64, media_type="image/png")
    columns = {"key": "k", "task": task, "subtask": "Subject Removal", "language": "en", **extra}
    return Sample(
        id=id,
        editor="bagel",
        source=image,
        turns=(Turn(instruction="Replace the trees\nwith bamboo.", edited=image if edited else None),),
        edit_type="Subject Removal",
        extra={name: value for name, value in columns.items() if value is not None},
    )


REASONING = edit(task="Reasoning Editing", reasoning_points=POINTS)


def asked(one: Sample, **options: str) -> dict[str, Ask]:
    protocol = make_protocol("unicbench", options)
    return {task.metric: task for task in planned(protocol, [one], Known()) if isinstance(task, Ask)}


def scores_of(one: Sample, given: dict[str, float | str], **options: str) -> dict[str, Score]:
    """Scores of a sample from numbers, or statuses, by short name."""
    findings = [
        Finding(
            task_id=short,
            judge_id="j",
            repeat=0,
            sample_id=one.id,
            editor=one.editor,
            metric=METRICS[short],
            status="ok" if isinstance(said, float) else said,  # type: ignore[arg-type]
            reason="" if isinstance(said, float) else f"{short} was {said}",
            answer=Number(value=said) if isinstance(said, float) else None,
        )
        for short, said in given.items()
    ]
    return {score.metric: score for score in scored(make_protocol("unicbench", options), [one], findings)}


# ---- Questions ---------------------------------------------------------------------------------------------------------


def test_three_metrics_are_asked_of_every_edit_and_reasoning_accuracy_of_reasoning_editing_alone() -> None:
    assert list(asked(edit())) == [METRICS[short] for short in ("IF", "NC", "VQ")]
    found = asked(REASONING)
    assert list(found) == list(METRICS.values())
    for metric, task in found.items():
        assert task.answer == Scale(low=0, high=10, reason=True) and task.tools == () and task.blocked is None
        assert [view.alias for view in task.views] == ["Original Image", "Edited Image"]
        assert "\nEditing Instruction: Replace the trees with bamboo.\n" in task.prompt
        assert ("1. The trees are gone.\n2. There is bamboo in their place." in task.prompt) == (
            metric == "reasoning_accuracy"
        )


def test_the_penalties_are_those_of_the_paper() -> None:
    # Prompts 1 to 4, in their order: what each fault costs, from … to.
    assert {c.short: [(p.low, p.high) for p in c.penalties] for c in load_rubric("unicbench").criteria} == {
        "IF": [(3, 3), (3, 3), (2, 2), (2, 4), (3, 5), (3, 5), (3, 5), (3, 3)],
        "NC": [(3, 3), (3, 3), (2, 2), (4, 5)],
        "VQ": [(4, 4), (3, 3), (2, 2), (2, 4), (2, 3), (4, 4), (2, 2)],
        "RA": [(3, 3), (3, 3), (3, 3), (2, 2), (2, 2), (2, 2), (2, 2)],
    }


def test_questions_are_in_english_as_in_the_paper_and_in_chinese_where_it_is_asked_for() -> None:
    chinese = edit("k.cn", language="cn")
    by_default, in_chinese = asked(chinese), asked(chinese, prompt_language="cn")
    assert "Criterion: Instruction Following" in by_default["instruction_following"].prompt
    prompt = in_chinese["instruction_following"].prompt
    assert "标准：指令遵循" in prompt and "编辑指令：Replace the trees with bamboo." in prompt
    assert "* 表情，−2 到 −4：" in prompt and "* 缺失修改，−3：" in prompt
    assert asked(chinese, prompt_language="sample") == in_chinese
    assert "Criterion:" in asked(edit(), prompt_language="sample")["visual_quality"].prompt
    points = asked(replace(REASONING, id="k.cn"), prompt_language="cn")["reasoning_accuracy"].prompt
    assert "推理要点" in points and "1. The trees are gone." in points


def test_the_chinese_rubric_has_the_criteria_scales_and_penalties_of_the_english_one() -> None:
    ours = load_rubric("unicbench"), load_rubric("unicbench_cn")
    facts = [
        [
            (c.id, c.short, c.scale, len(c.inspection), len(c.notes), [(p.low, p.high) for p in c.penalties])
            for c in r.criteria
        ]
        for r in ours
    ]
    assert facts[0] == facts[1]


def test_a_rubric_of_ones_own_is_asked_as_it_is_written(tmp_path: Path) -> None:
    text = 'id="own"\ntitle="Own"\n[criteria.light]\nname="Light"\nshort="L"\nquestion="Is the light right?"\n'
    (tmp_path / "own.toml").write_text(text + "scale={low=0, high=5, whole=true}\n", encoding="utf-8")
    own = str(tmp_path / "own.toml")
    for language in ("en", "cn"):
        (task,) = asked(edit(), rubric=own, prompt_language=language).values()
        assert "Is the light right?" in task.prompt and task.answer == Scale(low=0, high=5, whole=True, reason=True)
    assert [m.id for m in make_protocol("unicbench", {"rubric": own}).metrics] == ["light", "overall"]
    two = text + "scale={low=0, high=5}\n" + text.split("\n", 2)[2].replace("ight", "ook").replace('"L"', '"K"')
    (tmp_path / "own.toml").write_text(two + "scale={low=0, high=10}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"overall is a geometric mean, .* found 0 to 5, 0 to 10"):
        make_protocol("unicbench", {"rubric": own})
    with pytest.raises(ConfigError, match=r"protocol 'unicbench' asks for numbers \(a scale\), .* has labels"):
        make_protocol("unicbench", {"rubric": "dlebench"})


def test_only_samples_of_the_languages_asked_for_get_questions_and_scores() -> None:
    chinese = edit("k.cn", language="cn")
    assert asked(chinese, language="en") == {} and scores_of(chinese, {}, language="en") == {}
    assert list(asked(chinese, language="cn")) == list(asked(chinese))
    assert asked(edit(language=None), language="cn"), "a sample that names no language is always asked about"
    with pytest.raises(ConfigError, match=r"option language: unknown language 'fr'; expected en, cn, or en,cn"):
        make_protocol("unicbench", {"language": "fr"})
    with pytest.raises(DataError, match=r"no sample is in the language asked about \(en\); the samples are in cn"):
        make_protocol("unicbench", {"language": "en"}).check([chinese])
    with pytest.raises(DataError, match=r"bagel/k.fr: language 'fr'; expected en or cn"):
        make_protocol("unicbench").check([edit("k.fr", language="fr")])


def test_a_reasoning_row_without_points_is_an_input_error_and_no_mean_of_three() -> None:
    for points in (None, [], [""], "The trees are gone.", [1]):
        one = edit(task="Reasoning Editing", reasoning_points=points)
        status, why = asked(one)["reasoning_accuracy"].blocked or ("", "")
        assert status == "input_error" and "needs reasoning_points" in why
        assert asked(one)["visual_quality"].blocked is None
    found = scores_of(one, {"IF": 9.0, "NC": 8.0, "VQ": 7.0, "RA": "input_error"})
    assert (found["overall"].value, found["overall"].missing) == (None, "input_error")


# ---- Scores ------------------------------------------------------------------------------------------------------------


def test_overall_is_the_geometric_mean_of_what_applies() -> None:
    for one, given, overall in (
        # (9 · 8 · 7)^(1/3), (9 · 8 · 7 · 6)^(1/4), and a genuine 0.
        (edit(), {"IF": 9.0, "NC": 8.0, "VQ": 7.0}, "7.9581"),
        (REASONING, {"IF": 9.0, "NC": 8.0, "VQ": 7.0, "RA": 6.0}, "7.4156"),
        (edit(), {"IF": 10.0, "NC": 0.0, "VQ": 9.0}, "0.0000"),
        (edit(), {"IF": 7.25, "NC": 7.25, "VQ": 7.25}, "7.2500"),
    ):
        found = scores_of(one, given)  # type: ignore[arg-type]
        assert f"{found['overall'].value:.4f}" == overall and found["overall"].missing is None
        assert set(found) == {METRICS[short] for short in given} | {"overall"}, "no score of a metric that does not apply"
        columns = {"task": one.extra["task"], "subtask": "Subject Removal", "language": "en"}
        assert found["overall"].dims == {**columns, "edit_type": "Subject Removal"}
        assert set(found["overall"].findings) == set(given)


def test_overall_is_missing_with_the_status_of_the_metric_that_is() -> None:
    found = scores_of(edit(), {"IF": 9.0, "NC": "unparsed", "VQ": 7.0})
    whole = found["overall"]
    assert (whole.value, whole.missing, whole.reason) == (None, "unparsed", "NC was unparsed")
    assert (found["visual_quality"].value, found["non_edit_consistency"].missing) == (7.0, "unparsed")
    assert scores_of(edit(), {"IF": 9.0, "NC": 8.0})["overall"].missing == "not judged yet"


def test_the_protocol_keeps_the_contract() -> None:
    for options in ({}, {"mode": "tool"}, {"prompt_language": "cn"}, {"criteria": "nc"}):
        check_protocol(UnicBench, options=options)
    store = ImageStore()
    ref = store.add_array(np.zeros((32, 32, 3), dtype=np.uint8))
    turns = (Turn(instruction="?", edited=ref),)
    real = [replace(one, source=ref, turns=turns) for one in (replace(REASONING, id="r"), edit(language="cn"))]
    assert {(s.sample_id, s.metric) for s in check_protocol(UnicBench, samples=real, images=store)} == {
        *(("r", metric) for metric in (*METRICS.values(), "overall")),
        *(("k.en", metric) for metric in (*METRICS.values(), "overall") if metric != "reasoning_accuracy"),
    }


# ---- The loop ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def judged(sample: Sample, store: ImageStore) -> Callable[..., Finding]:
    """The finding of one metric of a real pair of pictures."""

    def judge(lmm: Any, **settings: Any) -> Finding:
        setup = open_with(backend=lmm, protocol="unicbench", criteria=("if",), **settings)
        (task,) = setup.protocol.plan([sample], Known())
        return Worker(setup=setup, images=store).run_task(task)

    return judge


def test_the_judge_looks_closely_then_scores_with_a_reason(judged: Callable[..., Finding]) -> None:
    lmm = ScriptedLMM([LOOK, final('{"score": 6, "reason": "As Crop 1 shows, the handle (blue) is bent."}', "Enough.")])
    finding = judged(lmm, mode="tool")
    assert (finding.status, finding.value, finding.turns) == ("ok", 6.0, 1)
    assert finding.reason == "As Crop 1 shows, the handle (blue) is bent." and finding.label is None
    assert {e.image for e in finding.evidence} == {"Original Image", "Edited Image"}
    first, second = (request.messages[-1].text for request in lmm.requests)
    assert "write one JSON object whose score is one number from 0 to 10 in place of the dots" in first
    assert "zoom_in" in first and "give your JSON object in <Start Final Answer>" in second


def test_plain_mode_offers_no_tools_and_a_bare_number_counts_with_the_thought_as_its_reason(judged) -> None:
    lmm = ScriptedLMM([final("8/10", "All is there.")])
    finding = judged(lmm)
    assert (finding.status, finding.value, finding.reason) == ("ok", 8.0, "All is there.")
    assert "tool" not in lmm.requests[0].messages[0].text.split("## How to reply")[1]


def test_an_unusable_score_is_reminded_of_and_then_has_its_status(judged) -> None:
    for said, status in (
        ('{"score": 11, "reason": "x"}', "off_menu"),
        ('{"score": "eight", "reason": "x"}', "off_menu"),
        ('{"score": 7} {"score": 5}', "contradictory"),
        ('{"reason": "x"}', "off_menu"),
    ):
        lmm = ScriptedLMM([final(said, thought) for thought in ("Once.", "Twice.", "Thrice.")])
        finding = judged(lmm)
        assert (finding.status, finding.answer, finding.counts) == (status, None, {"reminders": 2}), said
        reminder = 'The answer is one JSON object of this form: {"score": <number from 0 to 10>'
        assert reminder in lmm.requests[1].messages[-1].text
    mended = judged(ScriptedLMM([final(said), final(SEVEN)]))
    assert (mended.value, mended.reason, mended.counts) == (7.0, "The bamboo (left) is green.", {"reminders": 1})


def holds(text: str) -> Act:
    """Answers a request that is held to a schema with this text, any other with words that say nothing."""

    def act(handler: Handler, request: dict[str, Any]) -> None:
        says(text if "response_format" in request else "Let me see.")(handler, request)

    return act


@pytest.mark.parametrize("tool_protocol", ["text", "native"])
def test_a_last_answer_is_held_to_the_schema_of_the_scale(judged, tmp_path: Path, tool_protocol: str) -> None:
    own = tmp_path / "whole.toml"
    text = 'id="own"\ntitle="Own"\n[criteria.if]\nname="Light"\nshort="L"\nquestion="Is the light right?"\n'
    own.write_text(text + "scale={low=0, high=10, whole=true}\n", encoding="utf-8")
    with OpenAIServer(holds(SEVEN)) as server:
        backend = f"openai/tiny-vl?base_url={server.url}"
        settings = {"mode": "tool", "tool_protocol": tool_protocol}
        for rubric, kind in (("unicbench", "number"), (str(own), "integer")):
            finding = judged(backend, rubric=rubric, **settings)
            assert (finding.status, finding.value, finding.reason) == ("ok", 7.0, "The bamboo (left) is green.")
            assert finding.counts == {"reminders": 1, "schema_answers": 1}
            last = server.seen[-1]["response_format"]["json_schema"]
            assert last["strict"] is True and last["schema"]["required"] == ["reason", "score"]
            assert last["schema"]["properties"]["score"] == {"type": kind, "minimum": 0, "maximum": 10}
            assert "one JSON object and nothing else" in json.dumps(server.seen[-1]["messages"][-1])
        assert server.complaints == []


# ---- Whole runs --------------------------------------------------------------------------------------------------------


def folder_of(root: Path, count: int) -> Path:
    """Drawn edits in both languages; every fourth is of Reasoning Editing."""
    root.mkdir()
    rng, rows = np.random.default_rng(0), []
    tasks = ("Object Editing", "Attribute Editing", "Scene Editing", "Reasoning Editing")
    for number in range(count):
        rgb = rng.integers(100, 140, (48, 64, 3), dtype=np.uint8)
        (root / f"{number}.png").write_bytes(png(rgb))
        task = tasks[number % 4]
        for language in ("en", "cn"):
            rgb[4:12, 8:16] = (200, number, 0 if language == "en" else 200)
            (root / f"{number}.{language}.png").write_bytes(png(rgb))
            rows.append(
                {
                    "id": f"{number}.{language}",
                    "source_file_name": f"{number}.png",
                    "edited_file_name": f"{number}.{language}.png",
                    "instruction": f"Do edit number {number}." if language == "en" else f"完成编辑 number {number}。",
                    "task": task,
                    "subtask": f"{task} {number % 2}",
                    "language": language,
                    **({"reasoning_points": POINTS} if task == "Reasoning Editing" else {}),
                }
            )
    (root / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return root


def test_recorded_numbers_are_read_by_another_scale_and_never_converted(tmp_path: Path, editloupe: Cli) -> None:
    folder_of(tmp_path / "unic", 2)
    (tmp_path / "says.jsonl").write_text(json.dumps(final(SEVEN)) + "\n", encoding="utf-8")
    words = ("--protocol", "unicbench", "--backend", "scripted/says.jsonl", "--set", "language=cn")
    code, said, err = editloupe("judge", "unic", *words, "--set", "prompt_language=sample", "--out", "run")
    # The geometric mean of three sevens is 7, and no sample in English was asked about.
    assert code == 0 and "7.00 (2/2)" in said and "English" not in said, said + err
    text = rubric_path("unicbench").read_text(encoding="utf-8")
    (tmp_path / "five.toml").write_text(text.replace("high = 10}", "high = 5}"), encoding="utf-8")
    code, said, err = editloupe("replay", "run", "--rubric", "five.toml")
    flat = " ".join(said.split())
    assert code == 0 and "instruction_following: 7 → (off_menu)" in flat and "6 of 6 findings change" in flat, said + err
    # A mean of numbers is in their unit, and not on 0 to 100.
    assert "Mean 7 (2 of 2 judged)" in flat and "0 of 2 judged" in flat and "of 100" not in flat, said
    assert "Numbers stay as the judge gave them" in flat and "one outside it is off_menu" in flat
    (tmp_path / "other.toml").write_text(text.replace("low = 3, high = 3", "low = 1, high = 1"), encoding="utf-8")
    code, said, err = editloupe("replay", "run", "--rubric", "other.toml")
    assert code == 0 and "0 of 6 findings change" in said, said + err
    code, _, err = editloupe("replay", "run", "--rubric", "dlebench")
    assert code == 2 and "protocol 'unicbench' asks for numbers (a scale)" in " ".join(err.split())


def test_numbers_that_differ_are_named_in_replays_and_forks(tmp_path: Path, editloupe: Cli) -> None:
    folder_of(tmp_path / "unic", 1)
    for name, score in (("seven", SEVEN), ("three", '{"score": 3, "reason": "x"}')):
        (tmp_path / f"{name}.jsonl").write_text(json.dumps(final(score)) + "\n", encoding="utf-8")
    words = ("--protocol", "unicbench", "--backend", "scripted/seven.jsonl", "--criteria", "if")
    assert editloupe("judge", "unic", *words, "--out", "run")[0] == 0
    code, said, err = editloupe("replay", "run", "--model", "live", "--backend", "scripted/three.jsonl")
    assert "recorded '7', now '3'" in said, said + err
    code, said, err = editloupe("replay", "run", "0.en", "--at", "0", "--backend", "scripted/three.jsonl")
    assert code == 0 and "Parent: 7\nFork:   3" in said, said + err


def test_a_protocols_own_overall_ranks_and_not_the_mean_of_all_metrics() -> None:
    given = {"IF": 10.0, "NC": 0.0, "VQ": 10.0}
    (ranking,) = by_scores([edit()], list(scores_of(edit(), given).values()), ["overall"])
    # The geometric mean, and not (100 + 0 + 100 + 0) / 4.
    assert ranking.places[0].figures == {"overall": 0.0}


def test_edits_are_ranked_by_the_metrics_that_they_were_asked() -> None:
    by = ["instruction_following", "reasoning_accuracy", "overall"]
    plain = [replace(edit(), editor=name) for name in ("a", "b")]
    scores = [
        s for e, n in zip(plain, (5.0, 7.0), strict=True) for s in scores_of(e, {"IF": n, "NC": 7.0, "VQ": 7.0}).values()
    ]
    (ranking,) = by_scores(plain, scores, by)
    assert [(p.editor, p.rank, p.missing) for p in ranking.places] == [("b", 1, ""), ("a", 2, "")]
    assert list(ranking.places[0].figures) == ["instruction_following", "overall"]
    # Where nobody was asked what is ranked by, nobody has a rank.
    (ranking,) = by_scores(plain, scores, ["reasoning_accuracy"])
    assert [p.missing for p in ranking.places] == ["reasoning_accuracy: not judged"] * 2
