"""Ablated runs: what the model gets, what the trace keeps, and that nothing of it is taken for a run without ablation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe import Judge, load_sample
from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, RunMismatch, Unavailable
from editloupe.findings import Observation
from editloupe.runs.execute import Outcome
from editloupe.testing import check_tool
from editloupe.traces.events import ToolResult
from editloupe.traces.read import read_trace
from editloupe.values import Box, ImageRef, View
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


def test_a_judge_that_looks_where_it_is_told_to_answers_otherwise_over_sham_differences(
    plain: Outcome, tmp_path: Path
) -> None:
    sham = judged(tmp_path / "sham", "sham-differences", limit=len(plain.findings) // 2)
    differ = [(a, b) for a, b in zip(labels(plain), labels(sham), strict=True) if a != b]
    assert len(differ) >= len(plain.findings) / 4


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


def test_sham_differences_are_as_many_of_like_sizes_and_alike_in_both_images(tmp_path: Path) -> None:
    sham = judged(tmp_path / "sham", "sham-differences", backend=ScriptedLMM([LOOK, final("Wrong Action")]), limit=3)
    plain = judged(tmp_path / "plain", backend=ScriptedLMM([LOOK, final("Wrong Action")]), limit=3)
    store = ImageStore(tmp_path / "sham" / "blobs")
    for (_, seen, names), (_, true, true_names) in zip(looked(sham), looked(plain), strict=True):
        assert names == true_names
        assert seen.data["ablations"] == ["sham-differences"]
        places = seen.data["sham"]
        assert isinstance(places, list) and len(places) == true.data["total"]
        for place, region in zip(places, true.data["regions"], strict=True):  # type: ignore[arg-type]
            assert place["true_box"] == region["box_1"]  # type: ignore[index]
            shown, real = Box(*place["shown_box"]), Box(*place["true_box"])  # type: ignore[index,misc]
            assert shown.intersection(real) is None
            assert abs(shown.width - real.width) <= 1 and abs(shown.height - real.height) <= 1
            assert place["busy"] == 0  # type: ignore[index]
            # The text names the place that is shown, and not the true one.
            assert str(list(real.to_thousandths(width=512, height=384))) not in seen.text
        for left, right in zip(seen.views[::2], seen.views[1::2], strict=True):
            panes = [store.array(v.image)[_slices(v)].astype(int) for v in (left, right)]
            assert np.abs(panes[0] - panes[1]).max() <= 1, "both panes show the same"
        assert "sham" not in seen.text and "ablat" not in seen.text


def test_what_is_shown_around_a_sham_place_holds_no_difference_either() -> None:
    # A long thin difference is shown with much above and below it.
    store, before = ImageStore(), np.full((900, 900, 3), 150, dtype=np.uint8)
    # Only near it is there as much detail.
    before[400:560:4] = 60
    after = before.copy()
    after[440:450, 300:600] = (200, 0, 0)
    seen = _called(store, store.add_array(before), store.add_array(after))
    (place,) = seen.data["sham"]  # type: ignore[misc]
    assert place["busy"] == 0  # type: ignore[index, call-overload]
    for view in seen.views:
        assert view.region.intersection(Box(300, 440, 600, 450)) is None


def _slices(view: View) -> tuple[slice, slice]:
    x0, y0, x1, y1 = view.window.ints()
    return slice(y0, y1), slice(x0, x1)


def test_an_edit_that_changed_everything_has_no_quiet_place_and_the_trace_says_so(tmp_path: Path) -> None:
    store = ImageStore()
    first, second = (store.add_file(EXAMPLES / "images" / f"{name}.png") for name in ("harbour", "harbour-sketch"))
    observation = _called(store, first, second)
    places = observation.data["sham"]
    assert isinstance(places, list) and places
    assert all(place["busy"] > 0.3 for place in places)  # type: ignore[index,operator,call-overload]


def test_identical_images_have_nothing_to_falsify() -> None:
    store = ImageStore()
    image = store.add_array(np.full((64, 64, 3), 90, dtype=np.uint8))
    other = store.add_bytes(store.data(image) + b" ")
    observation = _called(store, image, other)
    assert "pixel-identical" in observation.text
    assert observation.data["sham"] == [] and observation.views == ()


def _called(store: ImageStore, first: ImageRef, second: ImageRef) -> Observation:
    """The sham tool's word on two images."""
    from editloupe.tools.base import ToolContext

    box = open_with(ablate=("sham-differences",)).toolbox
    context = ToolContext(images=store, views={"A": View.whole(first), "B": View.whole(second)})
    return box.call("localize_differences", {"comparison_image_1": "A", "comparison_image_2": "B"}, context)


def test_both_together_show_black_pictures_of_sham_places(tmp_path: Path) -> None:
    both = judged(
        tmp_path / "both", "black-crops", "sham-differences", backend=ScriptedLMM([LOOK, final("Wrong Action")]), limit=1
    )
    (_, seen, _), *_ = looked(both)
    assert seen.data["ablations"] == ["sham-differences", "black-crops"]
    assert not ImageStore(tmp_path / "both" / "blobs").array(seen.images[0]).any()


def test_an_ablated_judge_is_another_judge_and_its_run_another_run(tmp_path: Path) -> None:
    ids, identities = [], []
    for ablate in ((), ("black-crops",), ("sham-differences",), ("sham-differences", "black-crops")):
        setup = open_with(ablate=ablate)
        ids.append(setup.judge.id)
        identities.append(json.dumps(dict(setup.spec.identity), sort_keys=True))
    assert len(set(ids)) == len(set(identities)) == 4
    setup = open_with(ablate=("sham-differences",))
    assert setup.toolbox.tools["localize_differences"].version.startswith("5+sham")
    assert "ablations" not in open_with().spec.identity
    judged(tmp_path / "run", limit=1)
    with pytest.raises(RunMismatch):
        judged(tmp_path / "run", "black-crops", limit=1)


def test_the_order_of_ablations_and_saying_one_twice_make_no_other_judge() -> None:
    one = open_with(ablate=("black-crops", "sham-differences", "black-crops")).judge.id
    assert one == open_with(ablate=("sham-differences", "black-crops")).judge.id


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ablate": ("blur",)}, "no ablation 'blur'; the ablations are: sham-differences, black-crops"),
        ({"ablate": ("black-crops",), "mode": "plain"}, "no tool is offered here"),
        (
            {"ablate": ("sham-differences",), "tools": ("zoom_in",)},
            "needs the tool 'localize_differences'; the tools are zoom_in",
        ),
        ({"ablate": ("black-crops",), "tools": ("grounding",)}, "there are no tools"),
    ],
)
def test_an_ablation_that_cannot_be_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_with(**settings)


def test_the_python_door_ablates_too(tmp_path: Path) -> None:
    images = EXAMPLES / "images"
    sample = load_sample(images / "kitchen.png", images / "kitchen-mug.png", "Change the color of the red mug to blue.")
    with Judge("baseline", ablate="sham-differences", out=tmp_path / "run") as judge:
        assert judge.id != Judge("baseline").id
        findings = judge.judge(sample)
    plain = Judge("baseline").judge(sample)
    assert [f.label for f in findings] != [f.label for f in plain]


@pytest.mark.parametrize(
    ("name", "ablate"),
    [
        ("zoom_in", ("black-crops",)),
        *(
            pytest.param(name, ablate, marks=pytest.mark.slow)
            for name, ablate in (
                ("localize_differences", ("sham-differences", "black-crops")),
                ("localize_differences", ("black-crops",)),
                ("localize_differences", ("sham-differences",)),
                ("zoom_in", ("sham-differences", "black-crops")),
                ("enhancer", ("black-crops",)),
                ("enhancer", ("sham-differences", "black-crops")),
            )
        ),
    ],
)
def test_ablated_tools_keep_the_contract_of_tools(name: str, ablate: tuple[str, ...]) -> None:
    check_tool(open_with(ablate=ablate).toolbox.tools[name])


def test_a_run_goes_on_over_pictures_that_were_hidden_before_it_was_cut_off(tmp_path: Path) -> None:
    replies = [LOOK, Unavailable("gone"), *[final("Wrong Action")] * 3]
    first = judged(tmp_path / "run", "black-crops", backend=ScriptedLMM(replies), limit=1)
    assert {f.status for f in first.findings} == {"backend_failed"}
    replies[1] = ZOOM
    again = judged(tmp_path / "run", "black-crops", backend=ScriptedLMM(replies), limit=1)
    assert {(f.status, f.label) for f in again.findings} == {("ok", "Wrong Action"), ("unparsed", None)}
    straight = judged(tmp_path / "straight", "black-crops", backend=ScriptedLMM([LOOK, ZOOM, *replies[2:]]), limit=1)
    assert [seen for _, seen, _ in looked(again)] == [seen for _, seen, _ in looked(straight)]
