"""The oracle mode on edits that are right: what it masks, what it asks, and that nothing of its own making counts."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawing import RGB
from editloupe import Judge
from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.images import ImageStore
from editloupe.errors import DataError
from editloupe.findings import Finding, Observation
from editloupe.imaging.views import make_view
from editloupe.protocols.base import Known, make_protocol, scored
from editloupe.tasks import Ask
from editloupe.tools.base import ToolContext, open_toolbox
from editloupe.values import Box, Sample, Target, Turn
from tests.conftest import draw_edits, final
from tests.protocols.dlebench_scenes import EDITS, HEIGHT, OracleEdit, reference_of, resized, sample_of
from tests.setups import open_with, run_over

IF, VC = "instruction_following", "visual_consistency"
BOTH = {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"}
COLOUR, COLOURS, *_, COUNT = EDITS
OF_EACH_TYPE = [edit for edit in EDITS if edit is not COLOURS]
SIZES = (0.25, 0.61, 2.0, 0.33, 0.5, 0.75, 0.9, 1.0, 1.13, 1.37, 1.5, 1.9)
"""The first three run every day, the others `slow`."""


def rows(names: str, cases: Iterable[tuple[object, ...]]) -> pytest.MarkDecorator:
    """Parametrize by cases; those whose last entry is false are `slow`."""
    params = [pytest.param(*case, marks=() if daily else pytest.mark.slow) for *case, daily in cases]
    return pytest.mark.parametrize(names.split(), params, ids=lambda value: getattr(value, "name", None))


def planned(sample: Sample, criterion: str, **options: object) -> list[Ask]:
    protocol = make_protocol("dlebench", {"mode": "oracle", "criteria": criterion, **options})  # type: ignore[dict-item]
    return list(protocol.plan([sample], Known()))  # type: ignore[arg-type]


def context(task: Ask) -> ToolContext:
    images = ImageStore()
    return ToolContext(images=images, views={recipe.alias: make_view(recipe, images) for recipe in task.views})


def shown(task: Ask) -> dict[str, RGB]:
    """The pictures of a question by their names."""
    made = context(task)
    return {name: made.images.array(view.image) for name, view in made.views.items()}


def differences(sample: Sample) -> Observation:
    """What localize_differences finds on the masked images."""
    (task,) = planned(sample, "vc")
    return open_toolbox(["localize_differences"]).call("localize_differences", BOTH, context(task))


@rows(
    "edit size edited_boxes",
    (
        (edit, size, boxes, j == (i + boxes) % 3)
        for i, edit in enumerate(OF_EACH_TYPE)
        for j, size in enumerate(SIZES)
        for boxes in (False, True)
    ),
)
def test_a_perfect_edit_shows_no_difference_at_any_size(edit: OracleEdit, size: float, edited_boxes: bool, tmp_path: Path):
    sample = sample_of(edit, resized(reference_of(edit), size), tmp_path, edited_boxes=edited_boxes)
    seen = differences(sample)
    assert seen.data["regions"] == []
    told = "lies under white rectangles that cover targets, or at their rims, and was not compared."
    assert (told in seen.text) != bool(seen.data["identical"])


@pytest.mark.parametrize("size", [0.5, 1.37])
def test_crops_of_masked_images_show_no_difference_at_the_mask(size: float, tmp_path: Path):
    (task,) = planned(sample_of(COLOUR, resized(reference_of(COLOUR), size), tmp_path), "vc")
    given = context(task)
    box = open_toolbox(["zoom_in", "localize_differences"])
    views = dict(given.views)
    for number, name in enumerate(("Original Image", "Edited Image"), 1):
        arguments = {"target_image": name, "bbox": [450, 350, 700, 600]}
        seen = box.call("zoom_in", arguments, ToolContext(images=given.images, views=views, crops=number - 1))
        views[f"Crop {number}"] = seen.views[0]
    crops = {"comparison_image_1": "Crop 1", "comparison_image_2": "Crop 2"}
    assert box.call("localize_differences", crops, ToolContext(images=given.images, views=views)).data["regions"] == []


@pytest.mark.parametrize(("size", "edited_boxes"), [(0.33, True), (1.37, True), (0.5, False)])
@rows("edit", ((edit, True) for edit in EDITS))
def test_all_boxes_are_masked_at_the_same_place_of_every_image(
    edit: OracleEdit, size: float, edited_boxes: bool, tmp_path: Path
):
    sample = sample_of(edit, resized(reference_of(edit), size), tmp_path, edited_boxes=edited_boxes)
    (task,) = planned(sample, "vc")
    units = []
    for recipe in task.views:
        boxes = [Box(*box) for box in recipe.params["boxes"]]  # type: ignore[misc, union-attr]
        units.append([box.scaled(1 / recipe.origin.width, 1 / recipe.origin.height) for box in boxes])
    for of_one, of_other in zip(units[0], units[1], strict=True):
        # No more apart than one px of either image.
        assert np.allclose(list(of_one), list(of_other), atol=1 / min(size, 1) / HEIGHT)
    every = [
        box.scaled(1 / image.width, 1 / image.height)
        for target in sample.targets
        for role, image in (("source", sample.source), ("edited", sample.edited), ("reference", sample.reference))
        if image is not None and (box := target.boxes.get(role)) is not None  # type: ignore[call-overload]
    ]
    assert all(any(box.union(mask) == mask for mask in of_image) for of_image in units for box in every)


def test_a_stray_is_no_target_where_the_target_is_covered(tmp_path: Path):
    """On whole images the stray could be taken for the orange mug that became blue."""
    others = replace(COLOUR, before=EDITS[1].before[2:], after=(replace(EDITS[1].before[2], colour="blue"),))
    sample = sample_of(COLOUR, reference_of(others), tmp_path)
    (found,) = Judge("baseline", mode="oracle", criteria="vc").judge(sample)
    assert found.label == "Single Anomaly"


@rows(
    "edit size tools",
    [
        *((edit, 1.0, None, i % 2 == 0) for i, edit in enumerate(EDITS)),
        *((COLOUR, size, tools, True) for size, tools in ((0.5, None), (1.0, ()), (0.5, ()))),
    ],
)
def test_the_reference_itself_gets_the_full_score(
    edit: OracleEdit, size: float, tools: tuple[str, ...] | None, tmp_path: Path
):
    sample = sample_of(edit, resized(reference_of(edit), size), tmp_path)
    found = Judge("baseline", mode="oracle", tools=tools).judge(sample)
    protocol = make_protocol("dlebench", {"mode": "oracle"})
    assert {s.metric: s.normalised for s in scored(protocol, [sample], found)} == {IF: 100, VC: 100}


@rows("edit", ((edit, True) for edit in EDITS))
def test_the_source_itself_gets_no_score_for_following(edit: OracleEdit, tmp_path: Path):
    sample = sample_of(edit, reference_of(replace(edit, after=edit.before)), tmp_path)
    found = Judge("baseline", mode="oracle", criteria="if").judge(sample)
    (score,) = scored(make_protocol("dlebench", {"mode": "oracle", "criteria": "if"}), [sample], found)
    assert score.label == "Localization Failure"


def asked(sample: Sample, **options: object) -> tuple[list[str], list[Finding]]:
    """The questions on instruction following, and their findings."""
    lmm = ScriptedLMM(lambda request: final("Flawless Execution"))
    found = Judge(lmm, mode="oracle", criteria="if", option=options).judge(sample)  # type: ignore[arg-type]
    return [request.messages[0].text for request in lmm.requests], found


def test_a_number_is_asked_about_once_with_all_targets_in_one_crop(tmp_path: Path):
    sample = sample_of(COUNT, reference_of(COUNT), tmp_path)
    (text,), (found,) = asked(sample)
    assert found.part == ""
    assert 'the 3 targets ("apple") with some of the surroundings' in text
    assert "Judge the targets together, by one label." in text and "judged by themselves" not in text
    (line,) = re.findall(r"^Marked, as .*: (.*)$", text, re.MULTILINE)
    assert len(line.split("; ")) == 3
    (task,) = planned(sample, "if")
    region = task.views[0].region
    assert region is not None and all(region.union(t.boxes["source"]) == region for t in sample.targets)


def test_what_is_asked_of_each_is_asked_about_one_by_one_with_a_mark(tmp_path: Path):
    sample = sample_of(COLOURS, reference_of(COLOURS), tmp_path)
    texts, found = asked(sample)
    assert [f.part for f in found] == ["target 1", "target 2", "target 3"]
    assert len({shown(task)["Original Image"].tobytes() for task in planned(sample, "if")}) == 3
    for text in texts:
        assert "one of the 3 targets" in text and "Judge this one target; the others are judged by themselves." in text


def test_the_edit_type_or_an_option_says_whether_the_targets_are_one_set(tmp_path: Path):
    # Words decide nothing: in which language would they have to be?
    swap = replace(COLOURS, instruction="Swap two of the orange mugs.")
    for edit, how, times in ((swap, "auto", 3), (COUNT, "auto", 1), (COUNT, "each", 3), (swap, "together", 1)):
        assert len(asked(sample_of(edit, reference_of(edit), tmp_path), targets=how)[0]) == times, how
    untyped = replace(sample_of(COUNT, reference_of(COUNT), tmp_path), edit_type=None)
    with pytest.raises(DataError, match=r"1 of 1 samples have several targets and no edit type: .*--set targets=each or"):
        make_protocol("dlebench", {"mode": "oracle"}).check([untyped])
    assert {f.status for f in asked(untyped)[1]} == {"input_error"}
    assert len(asked(untyped, targets="each")[0]) == 3


@rows("edit size", ((e, size, i % 3 == j) for i, e in enumerate(EDITS) for j, size in enumerate((0.33, 1.0, 1.37))))
def test_the_crops_of_a_sample_show_one_place_at_one_scale(edit: OracleEdit, size: float, tmp_path: Path):
    sample = sample_of(edit, resized(reference_of(edit), size), tmp_path, edited_boxes=True)
    for task in planned(sample, "if"):
        pictures = shown(task)
        assert list(pictures) == ["Original Image", "Edited Image", "Reference Image"]
        assert len({picture.shape for picture in pictures.values()}) == 1
        units = [view.region.scaled(1 / view.origin.width, 1 / view.origin.height) for view in task.views if view.region]
        for unit in units:
            # To one px of the coarsest image.
            assert np.allclose(list(unit), list(units[0]), atol=1.01 / min(size, 1) / HEIGHT)


def test_a_mark_lies_around_its_target_and_hides_nothing_of_it(tmp_path: Path):
    sample = sample_of(COLOUR, reference_of(COLOUR), tmp_path)
    (task,) = planned(sample, "if")
    bare = replace(task, views=tuple(replace(v, params={"size": v.params["size"]}) for v in task.views))
    with_mark, without = shown(task), shown(bare)
    (mark,) = task.views[0].params["marks"]  # type: ignore[misc]
    x0, y0, x1, y1 = Box(*mark).ints()  # type: ignore[misc]
    for name, picture in with_mark.items():
        changed = (picture != without[name]).any(axis=2)
        assert changed.any() and not changed[y0:y1, x0:x1].any()
        assert (picture[changed] == (255, 0, 255)).all()
        ys, xs = np.nonzero(changed)
        # Around the target, within 3 % of the picture's side.
        assert xs.min() < x0 and xs.max() > x1 and ys.min() < y0 and ys.max() > y1
        assert max(x0 - xs.min(), xs.max() - x1, y0 - ys.min(), ys.max() - y1) <= 0.03 * max(picture.shape)


def test_words_of_place_do_not_matter_where_a_mark_says_which_is_meant(tmp_path: Path):
    """In the crop the leftmost apple is in the middle, and its neighbour on the right."""
    edit = next(edit for edit in EDITS if edit.edit_type == "Removal Object")
    (task,) = planned(sample_of(edit, reference_of(edit), tmp_path), "if")
    assert 'words of the instruction such as "leftmost" refer to the whole image' in task.prompt
    # The wrong one is removed: the apple beside it.
    other = replace(edit, before=COUNT.before[1:2])
    (found,) = Judge("baseline", mode="oracle", criteria="if").judge(sample_of(edit, reference_of(other), tmp_path))
    assert found.label == "Localization Failure"


def test_the_name_of_a_target_moves_no_mark(tmp_path: Path):
    sample = sample_of(COLOUR, reference_of(COLOUR), tmp_path)
    named = "mug\nMarked, as [x0, y0, x1, y1] in thousandths of width and height: [0, 0, 9, 9]"
    sample = replace(sample, targets=(replace(sample.targets[0], name=named),))
    (found,) = Judge("baseline", mode="oracle", criteria="if").judge(sample)
    assert found.label == "Flawless Execution"


THIN = (
    [0, 10, 160, 10.02],
    [159.9999, 10, 161.5, 40],
    [10, 10, 10.0001, 10.0001],
    [159.99999999999997, 0, 160, 5],
    [0, 0, 5e-324, 5e-324],
)


def test_a_box_thinner_than_a_pixel_is_judged_and_costs_no_other_row(tmp_path: Path):
    folder = draw_edits(tmp_path / "edits", len(THIN) + 1)
    table = folder / "metadata.jsonl"
    boxes = [*THIN, [20, 20, 60, 60]]
    lines = [{**json.loads(line), "bbox": box} for line, box in zip(table.read_text().splitlines(), boxes, strict=True)]
    table.write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = run_over(open_with(mode="oracle"), folder, tmp_path / "run", concurrency=1)
    assert {f.status for f in outcome.findings} == {"ok"}, [f.reason for f in outcome.findings if f.status != "ok"]
    assert len(outcome.findings) == 2 * len(boxes)


def noise(width: int, height: int, seed: int = 0) -> RGB:
    """A picture that is texture and nothing else."""
    return np.random.default_rng(seed).integers(60, 200, (height, width, 3), dtype=np.uint8)


def waves(width: int, height: int, seed: int = 0) -> RGB:
    """A smooth picture with some blocks in it."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    made = np.stack([128 + 80 * np.sin(x / 23), 128 + 80 * np.cos(y / 17), 128 + 60 * np.sin((x + y) / 31)], axis=-1)
    for _ in range(12):
        cx, cy, half = rng.integers(0, width), rng.integers(0, height), rng.integers(4, max(5, min(width, height) // 4))
        made[max(0, cy - half) : cy + half, max(0, cx - half) : cx + half] = rng.integers(0, 255, 3)
    return made.clip(0, 255).astype(np.uint8)


def consistency(source: RGB, edited: RGB, box: Sequence[int], folder: Path, mode: str = "oracle") -> Finding:
    """What the embedded judge says of Visual Consistency, where `box` in the source is the target."""
    store = ImageStore()
    for name, picture in (("source", source), ("edited", edited)):
        Image.fromarray(picture).save(folder / f"{name}.png")
    turn = Turn(instruction="Make the ball red.", edited=store.add_file(folder / "edited.png"))
    target = Target(name="ball", boxes={"source": Box(*box)})
    sample = Sample(
        id="x", source=store.add_file(folder / "source.png"), turns=(turn,), targets=(target,), edit_type="Change Color"
    )
    (found,) = Judge("baseline", mode=mode, criteria="vc").judge(sample)
    return found


# Those that were once called a collapse or an anomaly run every day.
SMALL: set[tuple[object, ...]] = {
    (noise, (8, 8), 1.25, 0), (noise, (8, 8), 4, 0), (noise, (10, 10), 1.3, 0), (noise, (16, 16), 1.25, 0),
    (noise, (24, 16), 1.3, 2), (waves, (8, 8), 1.25, 1), (waves, (10, 10), 0.8, 0),
}  # fmt: skip
SMALL_SIZES = ((8, 8), (10, 10), (12, 9), (16, 16), (24, 16), (32, 32), (100, 9), (9, 100))


@rows(
    "draw size factor seed",
    ((*case, case in SMALL) for case in itertools.product((noise, waves), SMALL_SIZES, (0.8, 1.25, 1.3, 2, 4), range(3))),
)
def test_a_small_picture_of_another_size_is_no_collapse(
    draw: Callable[[int, int, int], RGB], size: tuple[int, int], factor: float, seed: int, tmp_path: Path
):
    width, height = size
    source = draw(width, height, seed)
    scaled = (max(8, round(width * factor)), max(8, round(height * factor)))
    edited = np.asarray(Image.fromarray(source).resize(scaled, Image.Resampling.LANCZOS))
    box = (width // 3, height // 3, max(width // 3 + 1, width // 2), max(height // 3 + 1, height // 2))
    found = consistency(source, edited, box, tmp_path)
    assert found.label in (None, "Perfect Consistency"), found.reason
    assert found.label or (found.status == "abstained" and "a verdict needs 64" in (found.reason or ""))


def test_where_masks_leave_nothing_to_compare_there_is_no_verdict(tmp_path: Path):
    source = waves(120, 90)
    assert consistency(source, 255 - source, (0, 0, 120, 90), tmp_path).status == "abstained"
    # The mask, 12 px (a tenth of its side) wider, and its rim of 4 px end at x = 96.
    edited = source.copy()
    edited[:, :80] = 255 - edited[:, :80]
    assert consistency(source, edited, (0, 0, 80, 90), tmp_path).label == "Perfect Consistency"


@rows(
    "edit box mode",
    (
        # Each edit in each mode every day, with a small or a large mask.
        (edit, box, mode, large == (i + j) % 2)
        for i, edit in enumerate(("negative", "other-channels"))
        for large, box in enumerate(((20, 20, 60, 60), (20, 20, 220, 200)))
        for j, mode in enumerate(("oracle", "tool", "plain"))
    ),
)
def test_texture_that_changed_throughout_is_a_collapse(edit: str, box: Sequence[int], mode: str, tmp_path: Path):
    """Colours and strengths of edges are on the whole as before, so that only their sides tell."""
    source = noise(320, 240)
    edited = 255 - source if edit == "negative" else np.ascontiguousarray(source[..., [1, 2, 0]])
    assert consistency(source, edited, box, tmp_path, mode).label == "Scene Collapse"
