"""The oracle mode on edits that are right: what it masks, what it asks, and that nothing of its own making counts."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from editloupe import Judge
from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.images import ImageStore
from editloupe.errors import DataError
from editloupe.findings import Finding, Observation
from editloupe.imaging.views import make_view
from editloupe.protocols.base import Known, make_protocol
from editloupe.tasks import Ask
from editloupe.tools.base import ToolContext, open_toolbox
from editloupe.values import Sample
from tests.conftest import final
from tests.protocols.dlebench_scenes import EDITS, OracleEdit, reference_of, resized, sample_of

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


# Those that were once called a collapse or an anomaly run every day.
