"""EdiVal-IF: whether an edit was followed, by one pure rule a type (paper, 2.4 and appendix I.3).

A rule takes what was seen before and after the edit and what a model said, and returns a verdict with its reason. It looks
at no picture, so that recorded detections can be judged again by other thresholds. Boxes are in fractions of their
picture.

Paper and published code differ. Every difference is an option of `Rules`, and `if` sets all of them: `paper` are the
defaults below, `official` is `OFFICIAL`. Where the paper says nothing, the default is that of the code.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, SerializerFunctionWrapHandler, model_serializer, model_validator

from editloupe.config import Words
from editloupe.protocols.edival.chain import ChainOptions
from editloupe.protocols.edival.sights import RECORDED, Sight
from editloupe.tasks import Status
from editloupe.values import Box

Sights: TypeAlias = Sequence[Sight]
"""What was seen of one object in one picture, best first."""

Threshold = Annotated[float, Field(ge=RECORDED, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]

MOVED: Final = 0.03
"""A centre that moved by more than this share of a side has moved."""
NO_TEXT: Final = "no text"
"""What a reader answers where there is nothing to read."""
_STRAIGHT: Final = str.maketrans("“”„‘’‚", "\"\"\"'''")


def _words(words: tuple[str, ...]) -> tuple[str, ...]:
    return () if words == ("none",) else tuple(word.casefold() for word in words)


class Rules(ChainOptions):
    """The options of the rules."""

    preset: Literal["paper", "official"] = Field(default="paper", alias="if")
    """Where the other options come from: the paper's text, or the published code. Each can be set by itself as well."""
    miss: Literal["status", "failure"] = "status"
    """An object that is not seen before the edit. status: the edit has no verdict. failure: it failed, as in the code."""
    yes: Literal["parsed", "anywhere"] = "parsed"
    """parsed: the model answers yes or no. anywhere: a reply that has "yes" in it means yes, also "eyes"."""
    duplicate_overlap: Share = 0.8
    """Where objects are counted: two boxes with a larger IoU are one."""

    add_threshold: Threshold = 0.3
    """A box counts if it scores above it; so do the other thresholds. Recorded are boxes above 0.25."""
    add_reference: Literal["after", "before"] = "after"
    """Picture in which the reference of an added object has its place."""
    add_margin: Share = 0.0
    """Centres differ by more than this share of the side for an added object to be left, right, above or below."""
    add_gate: bool = False
    """Whether a model is asked too if the object is new."""

    remove_threshold: Threshold = 0.35
    """As add_threshold."""
    remove_by: Literal["absence", "overlap"] = "absence"
    """absence: a removed object is not seen. overlap: or its best box overlaps the old one by less than remove_overlap."""
    remove_overlap: Share = 0.2
    """IoU, for remove_by=overlap."""
    remove_largest: Share = 1.0
    """A box with both sides above this share of the picture is left out where an object is removed. 1: none is."""
    remove_again: Annotated[Words, AfterValidator(_words)] = ()
    """Words, comma-separated. An object named with one of them is also gone if the word alone finds nothing; or none."""

    replace_threshold: Threshold = 0.3
    """As add_threshold."""
    replace_by: Literal["gone", "overlap"] = "gone"
    """gone: the old object is not seen after the edit (appendix E). overlap: the new one overlaps its place (I.3)."""
    replace_gate: bool = True
    """Whether a model is asked too if one was replaced by the other."""
    replace_singular: bool = False
    """Look for names without "es" or "s" at their end: "glasses" as "glass", "bus" as "bu"."""

    position_threshold: Threshold = 0.3
    """As add_threshold."""
    position_counts: Literal["not_increased", "equal", "any"] = "not_increased"
    """How many there are of both objects after a move, against before."""
    position_count_threshold: Threshold = 0.3
    """As add_threshold, for position_counts."""
    position_names: Literal["full", "short"] = "full"
    """Names by which they are counted. short: a model leaves colour and material out; role `shorten`."""
    position_inside: Literal["allowed", "refused"] = "allowed"
    """Whether the box of one object may contain that of the other."""
    position_moved: bool = False
    """Whether the centre of the object must have moved by more than 0.03 of a side."""

    count_threshold: Threshold = 0.3
    """As add_threshold."""

    attributes: Literal["crop", "whole"] = "crop"
    """Colour and material are judged on the object's place before and after, or on both whole images."""
    crop_threshold: Threshold = 0.3
    """As add_threshold, for the object that is cropped: of colour, material and replaced text."""

    text_match: Literal["contains", "equal"] = "contains"
    """contains: the new text is part of what was read. equal: it is all of it."""
    text_object: Literal["before", "both"] = "before"
    """Where the object with a replaced text must be seen."""

    background_objects: Literal["ignored", "needed"] = "ignored"
    """needed: the objects that shall stay must be seen after a change of background."""
    background_threshold: Threshold = 0.25
    """As add_threshold, for background_objects."""
    background_largest: Share = 1.0
    """The best box of such an object does not count if both its sides are above this share of the picture."""
    background_unnamed: Literal["judged", "failure"] = "judged"
    """A sentence that names no objects to keep. The code cannot read it, and counts it as a failure."""

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        """Take what is not given from the preset."""
        return {**OFFICIAL, **data} if isinstance(data, Mapping) and data.get("if") == "official" else data

    @model_serializer(mode="wrap")
    def _without_preset(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what the preset says, so that another `if` can be given to options that were written."""
        preset = {name: field.get_default() for name, field in Rules.model_fields.items()}
        if self.preset == "official":
            preset |= OFFICIAL
        data: dict[str, Any] = handler(self)
        return {name: value for name, value in data.items() if name not in preset or getattr(self, name) != preset[name]}


OFFICIAL: Final[Mapping[str, Any]] = {
    "chains": "complete",
    "miss": "failure",
    "yes": "anywhere",
    "add_reference": "before",
    "add_margin": 0.03,
    "add_gate": True,
    "remove_by": "overlap",
    "remove_largest": 0.98,
    "remove_again": ("hat", "bird"),
    "replace_by": "overlap",
    "replace_singular": True,
    "position_counts": "equal",
    "position_count_threshold": 0.4,
    "position_names": "short",
    "position_inside": "refused",
    "attributes": "whole",
    "text_object": "both",
    "background_objects": "needed",
    "background_largest": 0.9,
    "background_unnamed": "failure",
}
"""What `if=official` sets: the published code (TianyuCodings/EdiVal, detector/instruction_detector.py)."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Whether an edit was followed."""

    done: bool | None
    """None where nothing can be said, and while a model has to be asked."""
    reason: str
    """In plain words."""
    status: Status | None = None
    """Why nothing can be said; None with a verdict, and for `OPEN`."""


OPEN: Final = Verdict(done=None, reason="a model has to say")
"""What was seen does not speak against the edit, and `said` is needed."""


def add(new: Sights, *, reference: tuple[Sights, Sights] | None, position: str, said: bool | None, rules: Rules) -> Verdict:
    """Judge an added object.

    new: seen of it after the edit.   reference: seen of its reference before and after; None for an edit without one.
    position: one of `instructions.POSITIONS`.   said: whether a model saw it newly there; None if none was asked.
    """
    least = rules.add_threshold
    found = over(new, least)
    beside: list[Sight] | None = None
    if reference is not None:
        before, after = (over(sights, least) for sights in reference)
        if not before:
            return _missed("the reference", rules)
        beside = before if rules.add_reference == "before" else after
    if not found:
        return _no("the new object is not seen after the edit")
    if beside is not None:
        if not beside:
            return _no("the reference is no longer seen after the edit")
        if not any(_beside(one.box, other.box, position, rules.add_margin) for one in found for other in beside):
            return _no(f"the new object is seen, and not {_side(position)} the reference")
    return _gated(said, rules.add_gate, "the new object is seen where it should be", "a model does not see it newly there")


def remove(before: Sights, after: Sights, *, again: Mapping[str, Sights] | None = None, rules: Rules) -> Verdict:
    """Judge a removed object.

    before, after: seen of it.   again: seen after the edit of each word of `words_again`; None if none was looked for.
    """
    was = _of_size(over(before, rules.remove_threshold), rules.remove_largest)
    left = _of_size(over(after, rules.remove_threshold), rules.remove_largest)
    if not was:
        return _missed("the object", rules)
    if not left:
        return _yes("the object is no longer seen")
    overlap = was[0].box.iou(left[0].box)
    if rules.remove_by == "overlap" and overlap < rules.remove_overlap:
        return _yes(f"what is still seen is elsewhere (IoU {overlap:.2f})")
    gone = [word for word, sights in (again or {}).items() if not over(sights, rules.remove_threshold)]
    if gone:
        return _yes(f"no {gone[0]} is seen any more")
    return _no("the object is still seen")


def words_again(name: str, rules: Rules) -> list[str]:
    """Return the words that are looked for alone where an object of this name is still seen."""
    return [word for word in rules.remove_again if word in name.casefold()]


def replace(old: tuple[Sights, Sights | None], new: Sights, *, said: bool | None, rules: Rules) -> Verdict:
    """Judge an object that another one replaced.

    old: seen of it before and after; the second counts with replace_by=gone alone.   new: seen of the other after the edit.
    said: whether a model saw the replacement; None if none was asked.
    """
    least = rules.replace_threshold
    was, there = over(old[0], least), over(new, least)
    if not was:
        return _missed("the old object", rules)
    if not there:
        return _no("the new object is not seen after the edit")
    if rules.replace_by == "gone" and over(old[1] or (), least):
        return _no("the old object is still seen")
    if rules.replace_by == "overlap" and not any(one.box.iou(other.box) > 0 for one in was for other in there):
        return _no("the new object is seen, and not in the place of the old one")
    seen = (
        "the old object is gone and the new one is seen" if rules.replace_by == "gone" else "the new object is in its place"
    )
    return _gated(said, rules.replace_gate, seen, "a model does not see the replacement")


def singular(name: str, rules: Rules) -> str:
    """Return the name by which an object of a replacement is looked for."""
    if not rules.replace_singular:
        return name
    return name.removesuffix("es") if name.endswith("es") else name.removesuffix("s")


@dataclass(frozen=True, kw_only=True)
class SeenPair:
    """What was seen of the object that moves, and of its reference."""

    target: Sights
    reference: Sights


def position(
    before: SeenPair | None, after: SeenPair, *, counted: tuple[SeenPair, SeenPair] | None, position: str, rules: Rules
) -> Verdict:
    """Judge an object that was moved beside another one, as `looks_before` says.

    before: None where it is not looked at.   counted: before and after by the names of position_names; None where nothing
    is counted.   position: one of `instructions.POSITIONS`.
    """
    least = rules.position_threshold
    if before is not None:
        for sights, name in ((before.target, "the object"), (before.reference, "the reference")):
            if not over(sights, least):
                return _missed(name, rules)
    if counted is not None:
        for name, field in (("the object", "target"), ("the reference", "reference")):
            then, now = (count_of(getattr(pair, field), rules.position_count_threshold, rules) for pair in counted)
            if now > then or (now != then and rules.position_counts == "equal"):
                return _no(f"{name} was there {_times(then)} and is there {_times(now)}")
    target, reference = over(after.target, least), over(after.reference, least)
    if not target or not reference:
        return _no(f"{'the reference' if target else 'the object'} is not seen after the edit")
    one, other = target[0].box, reference[0].box
    if rules.position_inside == "refused" and (_contains(one, other) or _contains(other, one)):
        return _no("one of the two boxes contains the other")
    if not _beside(one, other, position, 0.0):
        return _no(f"the object is not {_side(position)} the reference")
    if rules.position_moved and before is not None:
        (x0, y0), (x1, y1) = over(before.target, least)[0].box.center, one.center
        if max(abs(x1 - x0), abs(y1 - y0)) <= MOVED:
            return _no(f"the object is {_side(position)} the reference, and has not moved")
    return _yes(f"the object is {_side(position)} the reference")


def looks_before(rules: Rules) -> bool:
    """Return whether a change of position looks at both objects before the edit. The published code does not."""
    return rules.miss == "status" or rules.position_moved


def count(before: Sights, after: Sights, *, due: int, rules: Rules) -> Verdict:
    """Judge how many there are of an object. before, after: seen of it.   due: how many there shall be."""
    if not over(before, rules.count_threshold):
        return _missed("the object", rules)
    found = count_of(after, rules.count_threshold, rules)
    return Verdict(done=found == due, reason=f"the object is seen {_times(found)}; {due} were asked for")


def attribute(before: Sights | None, *, said: bool | None, rules: Rules) -> Verdict:
    """Judge a colour or a material. before: seen of the object; None where whole images are judged.

    said: whether a model saw the change; None if none was asked.
    """
    if before is not None and not over(before, rules.crop_threshold):
        return _missed("the object", rules)
    return _gated(said, True, "a model sees the change", "a model does not see the change")


def text(before: Sights | None, after: Sights | None, *, new: str, read: str | None, rules: Rules) -> Verdict:
    """Judge a new text.

    before, after: seen of the object whose text is replaced; None for a text that is added to the image, and `after` where
    it is not looked at.   read: what a model read; None if none was asked.
    """
    if before is not None and not over(before, rules.crop_threshold):
        return _missed("the object", rules)
    if after is not None and not over(after, rules.crop_threshold):
        return _no("the object is not seen after the edit")
    if read is None:
        return OPEN
    found, due = compared(read), compared(new)
    if found.rstrip(".! ") == NO_TEXT != due:
        found = ""
    same = found == due if rules.text_match == "equal" else due in found
    return Verdict(done=same, reason=f"a model reads {read!r}; {new!r} was asked for")


def background(kept: Mapping[str, Sights] | None, *, said: bool | None, rules: Rules) -> Verdict:
    """Judge a new background.

    kept: seen after the edit of each object that shall stay; None where they are not looked at.
    said: whether a model saw the new background; None if none was asked.
    """
    for name, sights in (kept or {}).items():
        best = over(sights, rules.background_threshold)[:1]
        if not _of_size(best, rules.background_largest):
            return _no(f"{name!r} is not seen after the edit" if not best else f"the box of {name!r} fills the image")
    return _gated(said, True, "a model sees the new background", "a model does not see the new background")


UNNAMED: Final = Verdict(done=False, reason="the sentence names no objects to keep (background_unnamed=failure)")


def over(sights: Sights, least: float) -> list[Sight]:
    """Return the sights that score above a threshold, best first."""
    return sorted((sight for sight in sights if sight.score > least), key=lambda sight: -sight.score)


def count_of(sights: Sights, least: float, rules: Rules) -> int:
    """Return how many objects there are: of boxes that overlap by more than duplicate_overlap the best one counts."""
    kept: list[Sight] = []
    for sight in over(sights, least):
        if all(sight.box.iou(other.box) <= rules.duplicate_overlap for other in kept):
            kept.append(sight)
    return len(kept)


def compared(text: str) -> str:
    """Return a text as it is compared: one form of each character, no case, single spaces, no quotes around it."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold()).translate(_STRAIGHT)
    whole = " ".join(folded.split())
    # A text of quotes alone is what it is: the empty one would be part of any other.
    return whole.strip("\"'`«»「」 ") or whole


def _yes(reason: str) -> Verdict:
    return Verdict(done=True, reason=reason)


def _no(reason: str) -> Verdict:
    return Verdict(done=False, reason=reason)


def _missed(what: str, rules: Rules) -> Verdict:
    reason = f"{what} is not seen before the edit"
    if rules.miss == "failure":
        return _no(f"{reason} (miss=failure)")
    return Verdict(done=None, status="not_defined", reason=f"{reason}, so that nothing can be said of the edit")


def _gated(said: bool | None, asked: bool, what: str, denied: str) -> Verdict:
    if not asked:
        return _yes(what)
    if said is None:
        return OPEN
    return _yes(what) if said else _no(denied)


def _of_size(sights: Sights, largest: float) -> list[Sight]:
    return [sight for sight in sights if not (sight.box.width > largest and sight.box.height > largest)]


def _beside(one: Box, other: Box, position: str, margin: float) -> bool:
    """Return whether a box's centre is left, right, above or below another's by more than a margin."""
    axis = 0 if position in ("left", "right") else 1
    distance = one.center[axis] - other.center[axis]
    return -distance > margin if position in ("left", "above") else distance > margin


def _side(position: str) -> str:
    return f"{position} of" if position in ("left", "right") else position


def _contains(one: Box, other: Box) -> bool:
    return one.x0 <= other.x0 and one.y0 <= other.y0 and one.x1 >= other.x1 and one.y1 >= other.y1


def _times(count: int) -> str:
    return f"{count} time{'' if count == 1 else 's'}"
