"""Ablated runs: what the model gets, what the trace keeps, and that nothing of it is taken for a run without ablation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge, load_sample
from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, RunMismatch, Unavailable
from editloupe.findings import Observation
from editloupe.runs.outcome import Outcome
from editloupe.testing import check_tool
from editloupe.traces.events import ToolResult
from editloupe.traces.read import read_trace
from tests.conftest import LOOK, final
from tests.setups import open_with, run_over

EXAMPLES = Path(__file__).parents[2] / "examples" / "edits"
ZOOM = '<tool_call>{"name": "zoom_in", "parameters": {"target_image": "Crop 1", "bbox": [0, 0, 400, 400]}}</tool_call>'


def judged(out: Path, *ablate: str, backend: str | ScriptedLMM = "baseline", limit: int | None = None) -> Outcome:
    setup = open_with(backend=backend, ablate=ablate, tools=("localize_differences", "zoom_in"))
    return run_over(setup, EXAMPLES, out, config={}, limit=limit)


def looked(outcome: Outcome) -> list[tuple[str, Observation, tuple[str, ...]]]:
    """(tool, observation, the pictures' names) of all findings."""
    return [
        (str(event.call["name"]), Observation.from_json(event.observation), tuple(event.aliases))
        for finding in outcome.findings
        for event in read_trace(outcome.store.folder / str(finding.trace)).events
        if isinstance(event, ToolResult)
    ]


def labels(outcome: Outcome) -> list[str | None]:
    assert {f.status for f in outcome.findings} == {"ok"}
    return [f.label for f in outcome.findings]


def script() -> ScriptedLMM:
    return ScriptedLMM([LOOK, ZOOM, final("Wrong Action", "Crop 1 and Crop 2 show it.")] * 3)


@pytest.fixture(scope="module", params=[4, pytest.param(12, marks=pytest.mark.slow)])
def plain(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The first examples, or all, judged by the baseline without ablation."""
    return judged(tmp_path_factory.mktemp("plain") / "run", limit=request.param)


def test_a_judge_that_reads_texts_alone_answers_the_same_over_black_pictures(plain: Outcome, tmp_path: Path) -> None:
    # The baseline takes places from the observations' text and measures the input images, which stay as they are.
    black = judged(tmp_path / "black", "black-crops", limit=len(plain.findings) // 2)
    assert labels(black) == labels(plain)
    assert [seen.text for _, seen, _ in looked(black)] == [seen.text for _, seen, _ in looked(plain)]


def test_pictures_are_black_and_what_they_hide_is_kept_and_worked_on(tmp_path: Path) -> None:
    tools = ("localize_differences", "zoom_in")
    seeing = open_with(backend=script(), criteria=("if",), tools=tools)
    blind = open_with(backend=script(), criteria=("if",), tools=tools, ablate=("black-crops",))
    plain = run_over(seeing, EXAMPLES, tmp_path / "plain", config={}, limit=3)
    black = run_over(blind, EXAMPLES, tmp_path / "black", config={}, limit=3)
    store = ImageStore(tmp_path / "black" / "blobs")
    for (tool, seen, names), (_, true, true_names) in zip(looked(black), looked(plain), strict=True):
        assert (seen.text, names) == (true.text, true_names), tool
        assert [(i.width, i.height) for i in seen.images] == [(i.width, i.height) for i in true.images]
        for image in seen.images:
            assert not store.array(image).any(), "black all over"
            assert store.notes(image) == ()
        assert [v.image for v in seen.kept] == [v.image for v in true.views], "what is hidden lies in the trace"
        for view in seen.kept:
            assert store.array(view.image).any()
        assert seen.data["ablations"] == ["black-crops"]
    # The places that the thought rests on are those of the input images, through a crop of a hidden crop too.
    assert [f.evidence for f in black.findings] == [f.evidence for f in plain.findings]
    assert all(f.evidence for f in black.findings)


def test_an_ablated_judge_is_another_judge_and_its_run_another_run(tmp_path: Path) -> None:
    plain, black = open_with(), open_with(ablate=("black-crops",))
    assert plain.judge.id != black.judge.id
    assert "ablations" not in plain.spec.identity and black.spec.identity["ablations"] == ["black-crops"]
    assert black.toolbox.tools["localize_differences"].version.endswith("+black")
    assert open_with(ablate=("black-crops", "black-crops")).judge.id == black.judge.id
    judged(tmp_path / "run", limit=1)
    with pytest.raises(RunMismatch):
        judged(tmp_path / "run", "black-crops", limit=1)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ablate": ("sham-differences",)}, "no ablation 'sham-differences'; the ablations are: black-crops"),
        ({"ablate": ("black-crops",), "mode": "plain"}, "no tool is offered here"),
        ({"ablate": ("black-crops",), "tools": ("grounding",)}, "there are no tools"),
    ],
)
def test_an_ablation_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_with(**settings)


def test_the_python_door_ablates_too(tmp_path: Path) -> None:
    images = EXAMPLES / "images"
    sample = load_sample(images / "kitchen.png", images / "kitchen-mug.png", "Change the color of the red mug to blue.")
    with Judge("baseline", ablate="black-crops", out=tmp_path / "run") as judge:
        assert judge.id != Judge("baseline").id
        assert {finding.status for finding in judge.judge(sample)} == {"ok"}


@pytest.mark.parametrize(
    "name", ["zoom_in", *(pytest.param(name, marks=pytest.mark.slow) for name in ("localize_differences", "enhancer"))]
)
def test_ablated_tools_keep_the_contract_of_tools(name: str) -> None:
    check_tool(open_with(ablate=("black-crops",)).toolbox.tools[name])


def test_a_run_goes_on_over_pictures_that_were_hidden_before_it_was_cut_off(tmp_path: Path) -> None:
    replies = [LOOK, Unavailable("gone"), *[final("Wrong Action")] * 3]
    first = judged(tmp_path / "run", "black-crops", backend=ScriptedLMM(replies), limit=1)
    assert {f.status for f in first.findings} == {"backend_failed"}
    replies[1] = ZOOM
    again = judged(tmp_path / "run", "black-crops", backend=ScriptedLMM(replies), limit=1)
    assert {(f.status, f.label) for f in again.findings} == {("ok", "Wrong Action"), ("unparsed", None)}
    straight = judged(tmp_path / "straight", "black-crops", backend=ScriptedLMM([LOOK, ZOOM, *replies[2:]]), limit=1)
    assert [seen for _, seen, _ in looked(again)] == [seen for _, seen, _ in looked(straight)]
