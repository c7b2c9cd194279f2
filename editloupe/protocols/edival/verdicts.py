"""EdiVal-IF: whether an edit was followed, by one rule a type (paper, 2.4 and appendix I.3).

A rule looks for objects before and after the edit, asks a model what detections cannot tell, and returns a verdict. What it
looks for comes from recorded detections, so that a run can be judged again by other thresholds. Where paper and published
code differ, `rules.Rules` says which way to go.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from editloupe.protocols.edival import instructions as of
from editloupe.protocols.edival.case import Case, EdiValQuestion
from editloupe.protocols.edival.rules import Rules
from editloupe.protocols.edival.sights import Sight
from editloupe.values import Box

NO_TEXT: Final = "no text"
"""What a reader answers where there is nothing to read."""
_STRAIGHT: Final = str.maketrans("“”„‘’‚", "\"\"\"'''")


@dataclass(frozen=True, kw_only=True)
class TurnVerdict:
    """Whether an edit was followed."""

    done: bool | None
    """None where nothing can be said."""
    reason: str
    """In plain words."""
    status: str | None = None
    """Why nothing can be said; None with a verdict."""


def followed(case: Case) -> TurnVerdict:
    """Return whether the edit of a case was followed. Raises NoValue where something is not known."""
    return _OF_TYPE[case.edit.edit_type](case)


def _add(case: Case) -> TurnVerdict:
    edit, rules = case.edit, case.rules
    wanted = [(case.after, edit.new)]
    if edit.reference:
        wanted.append((case.before, edit.reference))
        if rules.add_reference == "after":
            wanted.append((case.after, edit.reference))
    found, *references = case.seen(rules.add_threshold, *wanted)
    if references and not references[0]:
        return _missed("the reference", rules)
    if not found:
        return _no("the new object is not seen after the edit")
    if references:
        beside = references[-1]
        if not beside:
            return _no("the reference is no longer seen after the edit")
        if not any(_beside(one.box, other.box, edit.position, rules.add_margin) for one in found for other in beside):
            return _no(f"the new object is seen, and not {_side(edit.position)} the reference")
    if rules.add_gate and not case.says(EdiValQuestion.ADDED, case.pictures(), object=edit.new):
        return _no("a model does not see it newly there")
    return _yes("the new object is seen where it should be")


def _remove(case: Case) -> TurnVerdict:
    target, rules = case.edit.target, case.rules
    before, after = case.seen(rules.remove_threshold, (case.before, target), (case.after, target))
    was, left = (_of_size(sights, rules.remove_largest) for sights in (before, after))
    if not was:
        return _missed("the object", rules)
    if not left:
        return _yes("the object is no longer seen")
    overlap = was[0].box.iou(left[0].box)
    if overlap < rules.remove_overlap:
        return _yes(f"what is still seen is elsewhere (IoU {overlap:.2f})")
    words = [word for word in rules.remove_again if word.casefold() in target.casefold()]
    again = case.seen(rules.remove_threshold, *((case.after, word) for word in words))
    if gone := [word for word, sights in zip(words, again, strict=True) if not sights]:
        return _yes(f"no {gone[0]} is seen any more")
    return _no("the object is still seen")


def _replace(case: Case) -> TurnVerdict:
    edit, rules = case.edit, case.rules
    old, new = (_singular(name) if rules.replace_singular else name for name in (edit.target, edit.new))
    gone = rules.replace_by == "gone"
    wanted = [(case.before, old), (case.after, new), *([(case.after, old)] if gone else [])]
    was, there, *left = case.seen(rules.replace_threshold, *wanted)
    if not was:
        return _missed("the old object", rules)
    if not there:
        return _no("the new object is not seen after the edit")
    if any(left):
        return _no("the old object is still seen")
    if not gone and not any(one.box.iou(other.box) > 0 for one in was for other in there):
        return _no("the new object is seen, and not in the place of the old one")
    if not case.says(EdiValQuestion.REPLACED, case.pictures(), object=edit.target, new=edit.new):
        return _no("a model does not see the replacement")
    return _yes("the old object is gone and the new one is seen" if gone else "the new object is in its place")


def _singular(name: str) -> str:
    return name.removesuffix("es") if name.endswith("es") else name.removesuffix("s")


def _position(case: Case) -> TurnVerdict:
    edit, rules = case.edit, case.rules
    names = (edit.target, edit.reference)
    # The published code does not look at both objects before the edit.
    turns = (case.before, case.after) if rules.miss == "status" else (case.after,)
    seen = case.seen(rules.position_threshold, *((turn, name) for turn in turns for name in names))
    *before, target, reference = seen
    for sights, name in zip(before, ("the object", "the reference"), strict=False):
        if not sights:
            return _missed(name, rules)
    if not target or not reference:
        return _no(f"{'the reference' if target else 'the object'} is not seen after the edit")
    one, other = target[0].box, reference[0].box
    if rules.position_inside == "refused" and (_contains(one, other) or _contains(other, one)):
        return _no("one of the two boxes contains the other")
    if not _beside(one, other, edit.position, 0.0):
        return _no(f"the object is not {_side(edit.position)} the reference")
    return _counts(case) or _yes(f"the object is {_side(edit.position)} the reference")


def _counts(case: Case) -> TurnVerdict | None:
    """Return a verdict where the counts of both objects speak against a move."""
    names, rules = (case.edit.target, case.edit.reference), case.rules
    if rules.position_names == "short":
        names = case.short_names(*names)
    places = [(turn, name) for turn in (case.before, case.after) for name in names]
    counts = [_count_of(sights, rules) for sights in case.seen(rules.position_count_threshold, *places)]
    for name, then, now in zip(("the object", "the reference"), counts[:2], counts[2:], strict=True):
        if now > then or (now != then and rules.position_counts == "equal"):
            return _no(f"{name} was there {_times(then)} and is there {_times(now)}")
    return None


def _count(case: Case) -> TurnVerdict:
    edit, rules = case.edit, case.rules
    before, after = case.seen(rules.count_threshold, (case.before, edit.target), (case.after, edit.target))
    if not before:
        return _missed("the object", rules)
    found = _count_of(after, rules)
    return TurnVerdict(done=found == edit.count, reason=f"the object is seen {_times(found)}; {edit.count} were asked for")


def _attribute(case: Case) -> TurnVerdict:
    edit, rules = case.edit, case.rules
    if rules.attributes == "whole":
        said = case.says(EdiValQuestion.ATTRIBUTE_WHOLE, case.pictures(), instruction=edit.sentence())
    else:
        (before,) = case.seen(rules.crop_threshold, (case.before, edit.target))
        if not before:
            return _missed("the object", rules)
        views = tuple(
            case.crop(alias, turn, before[0].box)
            for alias, turn in (("Crop Before", case.before), ("Crop After", case.after))
        )
        attribute = "Color" if edit.edit_type == of.COLOR_ALTER else "Material"
        said = case.says(EdiValQuestion.ATTRIBUTE_CROP, views, object=edit.target, attribute=attribute, new=edit.new)
    return _yes("a model sees the change") if said else _no("a model does not see the change")


def _text(case: Case) -> TurnVerdict:
    edit, rules = case.edit, case.rules
    question, views = EdiValQuestion.TEXT_WHOLE, case.pictures()[1:]
    if edit.target:
        turns = (case.before, case.after) if rules.text_object == "both" else (case.before,)
        before, *after = case.seen(rules.crop_threshold, *((turn, edit.target) for turn in turns))
        if not before:
            return _missed("the object", rules)
        if not all(after):
            return _no("the object is not seen after the edit")
        question, views = EdiValQuestion.TEXT_CROP, (case.crop("Crop", case.after, before[0].box),)
    read = case.reads(question, views, crop=question == EdiValQuestion.TEXT_CROP, no_text=NO_TEXT.upper())
    found, due = compared(read), compared(edit.new)
    if found.rstrip(".! ") == NO_TEXT != due:
        found = ""
    return TurnVerdict(done=due in found, reason=f"a model reads {read!r}; {edit.new!r} was asked for")


def _background(case: Case) -> TurnVerdict:
    edit, rules = case.edit, case.rules
    if not edit.keep and rules.background_unnamed == "failure":
        return _no("the sentence names no objects to keep (background_unnamed=failure)")
    kept = edit.keep if rules.background_objects == "needed" else ()
    sights = case.seen(rules.background_threshold, *((case.after, name) for name in kept))
    for name, found in zip(kept, sights, strict=True):
        if not found:
            return _no(f"{name!r} is not seen after the edit")
        if not _of_size(found[:1], rules.background_largest):
            return _no(f"the box of {name!r} fills the image")
    if not case.says(EdiValQuestion.BACKGROUND, case.pictures()[1:], background=edit.new):
        return _no("a model does not see the new background")
    return _yes("a model sees the new background")


_OF_TYPE: Final[Mapping[str, Callable[[Case], TurnVerdict]]] = {
    of.SUBJECT_ADD: _add,
    of.SUBJECT_REMOVE: _remove,
    of.SUBJECT_REPLACE: _replace,
    of.COLOR_ALTER: _attribute,
    of.MATERIAL_ALTER: _attribute,
    of.TEXT_CHANGE: _text,
    of.POSITION_CHANGE: _position,
    of.COUNT_CHANGE: _count,
    of.BACKGROUND_CHANGE: _background,
}


def _count_of(sights: Sequence[Sight], rules: Rules) -> int:
    """Return how many objects there are: of boxes that overlap by more than duplicate_overlap the best one counts."""
    kept: list[Sight] = []
    for sight in sights:
        if all(sight.box.iou(other.box) <= rules.duplicate_overlap for other in kept):
            kept.append(sight)
    return len(kept)


def compared(text: str) -> str:
    """Return a text as it is compared: one form of each character, no case, single spaces, no quotes around it."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).translate(_STRAIGHT)
    whole = " ".join(folded.split())
    # A text of quotes alone is what it is: the empty one would be part of any other.
    return whole.strip("\"'`«»「」 ") or whole


def _yes(reason: str) -> TurnVerdict:
    return TurnVerdict(done=True, reason=reason)


def _no(reason: str) -> TurnVerdict:
    return TurnVerdict(done=False, reason=reason)


def _missed(what: str, rules: Rules) -> TurnVerdict:
    reason = f"{what} is not seen before the edit"
    if rules.miss == "failure":
        return _no(f"{reason} (miss=failure)")
    return TurnVerdict(done=None, status="not_defined", reason=f"{reason}, so that nothing can be said of the edit")


def _of_size(sights: Sequence[Sight], largest: float) -> list[Sight]:
    return [sight for sight in sights if not (sight.box.width > largest and sight.box.height > largest)]


def _beside(one: Box, other: Box, position: str, margin: float) -> bool:
    """Return whether a box's center is left, right, above or below another's by more than a margin."""
    axis = 0 if position in ("left", "right") else 1
    distance = one.center[axis] - other.center[axis]
    return -distance > margin if position in ("left", "above") else distance > margin


def _side(position: str) -> str:
    return f"{position} of" if position in ("left", "right") else position


def _contains(one: Box, other: Box) -> bool:
    return one.x0 <= other.x0 and one.y0 <= other.y0 and one.x1 >= other.x1 and one.y1 >= other.y1


def _times(count: int) -> str:
    return f"{count} time{'' if count == 1 else 's'}"
