"""Tools in the loop: all five, every observation recorded and every picture traced to its place; and ablated ones.

The detector is a tiny random one, so its boxes are nonsense; that they are recorded, drawn and mapped back is not.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.images import ImageStore
from editloupe.findings import Observation
from editloupe.runs.outcome import Outcome
from editloupe.tools.base import BUILT_IN_TOOLS
from editloupe.tools.settings import ToolSettings
from editloupe.traces.events import ToolResult
from editloupe.traces.read import read_trace
from editloupe.values import Box, Json
from tests.conftest import LOOK, final
from tests.models.tiny_detectors import grounding_dino_folder
from tests.setups import open_with, run_over

EXAMPLES = Path(__file__).parents[2] / "examples" / "edits"
REAL = Path(__file__).parents[3] / "shared" / "data" / "real-edits"
real = (
    pytest.mark.slow,
    pytest.mark.skipif(not REAL.is_dir(), reason="the real edit pairs are not here (shared/data/real-edits)"),
)

CALLS: list[tuple[str, dict[str, Json]]] = [
    ("localize_differences", {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"}),
    ("grounding", {"target_image": "Edited Image", "phrase": "Red Mug."}),
    ("detect_object", {"target_image": "Original Image", "detect_object_name": "a cat"}),
    ("zoom_in", {"target_image": "Edited Image", "bbox": [400, 400, 520, 520], "label": "the mug"}),
    ("enhancer", {"target_image": "Original Image", "bbox": [450, 450, 500, 500], "scale": 4}),
    # A look at a picture that a tool has made, and a call that is wrong.
    ("zoom_in", {"target_image": "Crop 1", "bbox": [0, 0, 500, 500]}),
    ("grounding", {"target_image": "Edited Picture", "phrase": "red mug"}),
]


def judge_with_all_tools(
    folder: Path, out: Path, detector: Path, *, limit: int | None, device: str = "cpu", upscaler: Path | None = None
) -> int:
    """Judge a folder with a script that makes CALLS one after another, and check every trace; how many there were."""
    lines = [f"<tool_call>{json.dumps({'name': name, 'arguments': given})}</tool_call>" for name, given in CALLS]
    setup = open_with(
        backend=ScriptedLMM(["".join(lines[:4]), "".join(lines[4:]), final("Wrong Action", "Crop 1 shows it.")]),
        criteria=("if",),
        weights=ToolSettings(detector=str(detector), upscaler=upscaler and str(upscaler), device=device),
    )
    outcome = run_over(setup, folder, out, limit=limit)
    assert {(f.status, f.label) for f in outcome.findings} == {("ok", "Wrong Action")}
    store = ImageStore(out / "blobs")
    for finding in outcome.findings:
        # Examples share source images: a look at one that another sample has taken comes from what the run has kept.
        counts = {name: n for name, n in finding.counts.items() if name != "cached_tools"}
        assert counts == {"tool_errors": 1}, "only the call that is wrong is an error, and none is a crash"
        trace = read_trace(out / str(finding.trace))
        assert trace.problems == ()
        assert {tool["name"] for tool in trace.header.tools} == set(BUILT_IN_TOOLS)
        *results, refused = (event for event in trace.events if isinstance(event, ToolResult))
        assert [(r.call["name"], r.call["arguments"]) for r in (*results, refused)] == CALLS
        told = "there is no image 'Edited Picture'; the images are: 'Original Image', 'Edited Image', 'Crop 1'"
        assert told in refused.observation["text"]
        for result in results:
            check_observation(Observation.from_json(result.observation), result, store, device)
    return len(outcome.findings)


def check_observation(seen: Observation, result: ToolResult, store: ImageStore, device: str) -> None:
    assert result.crashed is None and not seen.error, seen.text
    assert len(result.aliases) == len(seen.images) and all(alias in seen.text for alias in result.aliases)
    for view in (*seen.views, *seen.kept):
        # Stored, at the size that the trace says, and a part of the picture that it says.
        assert store.array(view.image).shape[:2] == (view.image.height, view.image.width)
        whole = Box.whole(width=view.origin.width, height=view.origin.height)
        assert whole.intersection(view.region) == view.region
        assert list(view.to_origin(view.window)) == pytest.approx(list(view.region))
    if result.call["name"] in ("grounding", "detect_object"):
        assert str(seen.data["device"]).startswith(device)
        assert seen.data["precision"] == ("fp32" if device == "cpu" else "fp16")
        assert "sha256:" in str(seen.data["detector"])


@pytest.fixture(scope="module")
def detector(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random GroundingDINO."""
    pytest.importorskip("torch", reason="needs the extra `vision`")
    pytest.importorskip("transformers", reason="needs the extra `vision`")
    return grounding_dino_folder(tmp_path_factory.mktemp("models") / "tiny")


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(("folder", "limit", "count"), [(EXAMPLES, 3, 3), pytest.param(REAL, None, 83, marks=real)])
def test_all_five_tools_run_in_the_loop(folder: Path, limit: int | None, count: int, detector: Path, tmp_path: Path):
    assert judge_with_all_tools(folder, tmp_path / "run", detector, limit=limit) == count


# Ablations: what the model gets, what the trace keeps, and that nothing of it is taken for a run without.

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
