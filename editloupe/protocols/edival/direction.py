"""CLIP_dir, a baseline of the study with people (paper, 2.5): does the image change as the words of the edit do?

The paper names the measure and Gal et al. (2022). It tells neither the texts nor the threshold above which an edit counts
as made. The texts here are made from the parts of the instruction, before and after.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from editloupe.protocols.base import Known
from editloupe.protocols.edival import instructions as of
from editloupe.protocols.edival.chain import Chain, about_edit, gap, score_of
from editloupe.protocols.edival.instructions import Edit
from editloupe.protocols.edival.rules import Rules
from editloupe.protocols.edival.sights import measuring, picture_of
from editloupe.scores import NOT_JUDGED, Interval, Metric, Score
from editloupe.tasks import Measure
from editloupe.values import Json, Sample

DIRECTION: Final = "clip_direction"
DIRECTION_METRIC: Final = Metric(
    id=DIRECTION, name="CLIP direction", short="CLIP_dir", domain=Interval(low=-1, high=1), source="2.5"
)
_PLACES: Final = {"left": "to the left of", "right": "to the right of", "above": "above", "below": "below"}


def captions(edit: Edit) -> tuple[str, str]:
    """Return what the image shows before an edit and after it, for example ("a photo of a cup", "a photo of a red cup")."""
    target, new, beside = edit.target, edit.new, edit.reference
    place = _PLACES.get(edit.position, "beside")
    before, after = {
        of.SUBJECT_ADD: (f" of {beside}" if beside else "", f" of {new} {place} {beside}" if beside else f" of {new}"),
        of.SUBJECT_REMOVE: (f" of {target}", ""),
        of.SUBJECT_REPLACE: (f" of {target}", f" of {new}"),
        of.COLOR_ALTER: (f" of {target}", f" of {new} {target}"),
        of.MATERIAL_ALTER: (f" of {target}", f" of {target} made of {new}"),
        of.TEXT_CHANGE: _texts(edit),
        of.POSITION_CHANGE: (f" of {target} and {beside}", f" of {target} {place} {beside}"),
        of.COUNT_CHANGE: (f" of {target}", f" of {edit.count} {target}"),
        of.BACKGROUND_CHANGE: ("", f" with {new} in the background"),
    }[edit.edit_type]
    return f"a photo{before}", f"a photo{after}"


def plan_direction(protocol: str, sample: Sample, chain: Chain, rules: Rules) -> Iterator[Measure]:
    """Return the measure of each edit: from the image before its turn to the image after it."""
    for index, edit in enumerate(chain.edits):
        turn = chain.turn(index)
        images = {"source": picture_of(sample, turn - 1), "edited": picture_of(sample, turn)}
        before, after = captions(edit)
        args: dict[str, Json] = {"source_text": before, "edited_text": after}
        about = about_edit(sample, chain, index)
        yield measuring(protocol, DIRECTION, about, args, images, gap(sample, turn, rules))


def score_direction(sample: Sample, chain: Chain, known: Known) -> Iterator[Score]:
    """Return the cosine of each edit. Above which one an edit counts as made, the paper does not tell."""
    for index in range(len(chain.edits)):
        about = about_edit(sample, chain, index)
        finding = known.finding(DIRECTION, about)
        value = None if finding is None or finding.answer is None else finding.answer.value
        if finding is None:
            yield score_of(DIRECTION, about, chain.dims(index), None, NOT_JUDGED)
        elif value is None:
            yield score_of(DIRECTION, about, chain.dims(index), None, finding.status, finding.reason, [finding.task_id])
        else:
            yield score_of(DIRECTION, about, chain.dims(index), value, findings=[finding.task_id])


def _texts(edit: Edit) -> tuple[str, str]:
    if not edit.target:
        return "", f" with the text '{edit.new}'"
    return f" of {edit.target} with the text '{edit.old_text}'", f" of {edit.target} with the text '{edit.new}'"
