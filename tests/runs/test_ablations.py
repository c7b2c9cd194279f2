"""Ablated runs: what the model gets, what the trace keeps, and that nothing of it is taken for a run without ablation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

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


def judged(out: Path, *ablate: str, backend: str | ScriptedLMM = "baseline", limit: int = 1, **given: Any) -> Outcome:
    setup = open_with(backend=backend, ablate=ablate, tools=("localize_differences", "zoom_in"), **given)
    return run_over(setup, EXAMPLES, out, limit=limit)


def looked(outcome: Outcome) -> list[tuple[Observation, tuple[str, ...]]]:
    """The observations of all findings, and the names of their pictures."""
    return [
        (Observation.from_json(event.observation), tuple(event.aliases))
        for finding in outcome.findings
        for event in read_trace(outcome.store.folder / str(finding.trace)).events
        if isinstance(event, ToolResult)
    ]


def script() -> ScriptedLMM:
    return ScriptedLMM([LOOK, ZOOM, final("Wrong Action", "Crop 1 and Crop 2 show it.")] * 3)


@pytest.mark.parametrize("limit", [4, pytest.param(12, marks=pytest.mark.slow)])
def test_a_judge_that_reads_texts_alone_answers_the_same_over_black_pictures(limit: int, tmp_path: Path) -> None:
    # The baseline takes places from the observations' text and measures the input images, which stay as they are.
    plain, black = (judged(tmp_path / name, *ablate, limit=limit) for name, ablate in (("a", ()), ("b", ("black-crops",))))
    assert {f.status for f in plain.findings} == {"ok"}
    assert [(f.status, f.label) for f in black.findings] == [(f.status, f.label) for f in plain.findings]
    assert [seen.text for seen, _ in looked(black)] == [seen.text for seen, _ in looked(plain)]


def test_pictures_are_black_and_what_they_hide_is_kept_and_worked_on(tmp_path: Path) -> None:
    plain = judged(tmp_path / "plain", backend=script(), limit=2, criteria=("if",))
    black = judged(tmp_path / "black", "black-crops", backend=script(), limit=2, criteria=("if",))
    store = ImageStore(tmp_path / "black" / "blobs")
    for (seen, names), (true, true_names) in zip(looked(black), looked(plain), strict=True):
        assert (seen.text, names) == (true.text, true_names)
        assert [(i.width, i.height) for i in seen.images] == [(i.width, i.height) for i in true.images]
        for image in seen.images:
            assert not store.array(image).any() and store.notes(image) == (), "black all over"
        assert [v.image for v in seen.kept] == [v.image for v in true.views], "what is hidden lies in the trace"
        assert all(store.array(view.image).any() for view in seen.kept)
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
    judged(tmp_path / "run")
    with pytest.raises(RunMismatch):
        judged(tmp_path / "run", "black-crops")


def test_an_ablation_that_cannot_be_is_refused() -> None:
    for settings, message in (
        ({"ablate": ("sham-differences",)}, "no ablation 'sham-differences'; the ablations are: black-crops"),
        ({"ablate": ("black-crops",), "mode": "plain"}, "no tool is offered here"),
        ({"ablate": ("black-crops",), "tools": ("grounding",)}, "there are no tools"),
    ):
        with pytest.raises(ConfigError, match=message):
            open_with(**settings)


@pytest.mark.parametrize(
    "name", ["zoom_in", *(pytest.param(name, marks=pytest.mark.slow) for name in ("localize_differences", "enhancer"))]
)
def test_ablated_tools_keep_the_contract_of_tools(name: str) -> None:
    check_tool(open_with(ablate=("black-crops",)).toolbox.tools[name])


def test_a_run_goes_on_over_pictures_that_were_hidden_before_it_was_cut_off(tmp_path: Path) -> None:
    replies = [LOOK, Unavailable("gone"), *[final("Wrong Action")] * 3]
    first = judged(tmp_path / "run", "black-crops", backend=ScriptedLMM(replies))
    assert {f.status for f in first.findings} == {"backend_failed"}
    replies[1] = ZOOM
    again = judged(tmp_path / "run", "black-crops", backend=ScriptedLMM(replies))
    assert {(f.status, f.label) for f in again.findings} == {("ok", "Wrong Action"), ("unparsed", None)}
    straight = judged(tmp_path / "straight", "black-crops", backend=ScriptedLMM([LOOK, ZOOM, *replies[2:]]))
    assert looked(again) == looked(straight)
