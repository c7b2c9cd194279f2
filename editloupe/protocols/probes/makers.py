"""Makes edits whose truth is known: one maker for each way in which an edit goes right or wrong.

Each maker takes a scene and what is drawn at random, and returns a pair with its truth, or raises `NotMade` where people
could disagree about what comes out. A metric about which they could disagree has no truth.

What the labels of DLEBench leave open is left out:
- a recomposed picture keeps no truth for its layout, which Scene Collapse disregards: its target stands in another place;
- recoloured in place of removed is no Wrong Action for certain, since the target is still what it was; the reverse is;
- a plain solid in place of the thing that was asked for could pass for one that is hard to recognise, which is Over
  Modification; it stands in place of a colour, and another thing that all recognise in place of the one asked for;
- one copy too many could be counted as a change beside the target, and a count that stays as it was as a wrong one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, Literal, TypeAlias, get_args

import cv2
import numpy as np

from editloupe.baseline.naming import leading, share_of, to_lab
from editloupe.data.images import RGB
from editloupe.data.probes import Band, Failure
from editloupe.protocols.probes import placing
from editloupe.protocols.probes.colours import (
    FEATHER_PX,
    PAINTS,
    VISIBLE,
    Floats,
    Mask,
    apart,
    part_of,
    recoloured,
    shares_of,
    soft,
    to_oklab,
    told_apart,
)
from editloupe.protocols.probes.drawn import with_thing
from editloupe.protocols.probes.pictures import PLACES, SOLIDS, STYLES, solid
from editloupe.protocols.probes.placing import filled, grown, laid, size_of, stamped
from editloupe.protocols.probes.scene import Scene, Thing
from editloupe.protocols.probes.sprites import VIVID, Pose, extent, filling
from editloupe.values import Json

IF: Final = "instruction_following"
VC: Final = "visual_consistency"
"""Metrics of DLEBench."""
NC: Final = "non_edit_consistency"
"""A metric of UnicBench, beside its own instruction_following."""
_PERFECT: Final = "Perfect Consistency"

TRUTHS: Final[Mapping[Failure, Mapping[str, str]]] = {
    "flawless": {IF: "Flawless Execution", VC: _PERFECT},
    "wrong_colour": {IF: "Wrong Action", VC: _PERFECT},
    "wrong_object": {IF: "Wrong Action", VC: _PERFECT},
    "wrong_count": {IF: "Wrong Action"},
    "wrong_place": {IF: "Localization Failure", VC: "Single Anomaly"},
    "over_modification": {IF: "Over Modification", VC: _PERFECT},
    "no_edit": {IF: "Localization Failure", VC: _PERFECT},
    "one_collateral": {IF: "Flawless Execution", VC: "Single Anomaly"},
    "several_collateral": {IF: "Flawless Execution", VC: "Multiple Anomalies"},
    "restyled": {VC: "Scene Collapse"},
    "recomposed": {VC: "Scene Collapse"},
}
"""Failure → DLEBench's metric → the only label that is right."""
BANDS: Final[Mapping[Failure, Mapping[str, Band]]] = {
    # UnicBench takes 3 for a missing or an extra change and 2 for a wrong one, from 10; what is wrong as a whole gets 0.
    "flawless": {IF: (8, 10), NC: (8, 10)},
    "wrong_colour": {IF: (0, 8), NC: (8, 10)},
    "wrong_object": {IF: (0, 8)},
    "wrong_count": {IF: (0, 8)},
    "wrong_place": {IF: (0, 4), NC: (0, 7)},
    "over_modification": {IF: (0, 8), NC: (0, 8)},
    "no_edit": {IF: (0, 7), NC: (9, 10)},
    "one_collateral": {IF: (4, 8), NC: (0, 8)},
    "several_collateral": {IF: (0, 7), NC: (0, 5)},
    "restyled": {NC: (0, 7)},
    "recomposed": {NC: (0, 6)},
}
"""Failure → UnicBench's metric → the scores that are right: its penalties, and one to spare."""

EditType: TypeAlias = Literal["Change Color", "Removal Object", "Replace Object", "Change Count"]
EDIT_TYPES: Final[tuple[EditType, ...]] = get_args(EditType)

_SAID: Final[Mapping[EditType, Sequence[str]]] = {
    "Change Color": (
        "Make the {name} {colour}.",
        "Change the color of the {name} to {colour}.",
        "Could you turn the {name} {colour}?",
        "I'd like the {name} to be {colour}; leave everything else as it is.",
        "Recolor the {name} in {colour}.",
    ),
    "Removal Object": (
        "Remove the {name}.",
        "Take the {name} out of the picture.",
        "Please erase the {name}.",
        "Get rid of the {name} and keep the rest as it is.",
    ),
    "Replace Object": (
        "Replace the {name} with {thing}.",
        "Swap the {name} for {thing}.",
        "Put {thing} where the {name} is.",
    ),
    "Change Count": (
        "Add exactly one more {noun} of the same kind beside the {name}.",
        "Please add a single copy of the {name} beside it.",
        "Copy the {name} once, so that one more just like it is beside it.",
    ),
}
"""Edit type → instructions, as people write them."""
_INSTEAD: Final = ("a potted plant", "a sunflower", "a teddy bear", "a bicycle", "an open umbrella", "a sleeping cat")
"""What is asked for in place of a target that becomes something else."""
_OTHERS: Final = ("sock", "T-shirt", "heart", "bell", "boot", "starfish")
"""What it becomes: drawn things whose outlines all know, none of them like what is asked for."""
_ONE_COLOUR: Final = 0.8
"""Share of a photograph's thing that has its leading colour, shades of a neighbouring name half, for it to be of one."""
_TINT: Final = 0.02
"""Chroma of OKLab from which a thing that is called gray, or black, has a hue."""
_HUE: Final = 50
"""Degrees between that hue and a colour's, from which the colour is another one."""
_PLAINLY: Final = 0.85
"""Share of a thing that has a colour's name for a question to have that colour as its key."""
_SHOWN: Final = 24
"""px of a picture's thing that is put in or changed beside the target, at least: smaller ones could be missed."""


_Maker: TypeAlias = Callable[[Scene, Random], "Made"]


class NotMade(Exception):
    """What comes out would not be undeniable, or a scene lacks what a maker needs."""

    def __init__(self, why: str, detail: str) -> None:
        self.why = why
        super().__init__(detail)


@dataclass(frozen=True, kw_only=True)
class Made:
    """An edit whose truth is known."""

    failure: Failure
    edited: RGB
    instruction: str
    edit_type: EditType
    maker: str
    """Name and version."""
    parameters: Mapping[str, Json]
    allowed: Mask
    """H×W, where the instruction lets the image change."""
    question: Mapping[str, Json] = field(default_factory=dict)
    """Columns of a GIE-Bench question, whose key is what the edited image shows; {} for none."""
    open: Sequence[str] = ()
    """Metrics about which people could disagree here, though not for every edit that fails so."""

    @property
    def truth(self) -> Mapping[str, str]:
        """DLEBench's metric → the only right label."""
        return {metric: label for metric, label in TRUTHS[self.failure].items() if metric not in self.open}

    @property
    def bands(self) -> Mapping[str, Band]:
        """UnicBench's metric → the right scores."""
        return {metric: band for metric, band in BANDS[self.failure].items() if metric not in self.open}


def make(failure: Failure, scene: Scene, by: Random) -> Made:
    """Return an edit of a scene that fails, or not, in this way. The same scene and draws give the same edit.

    Raises NotMade.
    """
    made = _MAKERS[failure](scene, by)
    if failure in _WITHIN and (_changed(scene.image, made.edited) & ~made.allowed).any():
        raise NotMade("spills_over", f"{made.maker} changes more than the {scene.target.name}")
    if not scene.certain and failure != "no_edit" and made.truth.get(VC) == _PERFECT:
        # A mask that lacks a part of the thing can hold a part of the ground as well.
        made = replace(made, open=(*made.open, VC))
    return made


def said(edit_type: EditType, scene: Scene, by: Random, **words: str) -> str:
    """Return an instruction for a scene's target."""
    text = by.choice(_SAID[edit_type])
    return text.format(name=scene.target.name, noun=scene.target.noun, **words)


def _first(makers: Sequence[_Maker], scene: Scene, by: Random) -> Made:
    """Return what the first of these makers that can makes of a scene. Raises NotMade with all their reasons."""
    reasons = list[NotMade]()
    for one in by.sample(makers, len(makers)):
        try:
            return one(scene, by)
        except NotMade as error:
            reasons.append(error)
    raise NotMade(reasons[0].why, "; ".join(map(str, reasons)))


# Colour


def _paints(thing: Thing, rgb: RGB, by: Random, *, not_near: Sequence[str] = ()) -> list[str]:
    """Return the colours that a thing can be given so that nobody takes one for what it had, in a drawn order."""
    own = shares_of(rgb, thing.mask)
    a, b = (float(v) for v in to_oklab(rgb[thing.mask]).mean(axis=0)[1:])
    # Of a greyish blue shoe nobody could say that it is not blue yet.
    tinted = np.hypot(a, b) >= _TINT
    names = [
        name
        for name, paint in PAINTS.items()
        if share_of(own, name) < 0.25
        and not (tinted and abs((np.degrees(np.arctan2(b, a)) - paint.hue + 180) % 360 - 180) < _HUE)
        and all(told_apart(name, other) for other in (thing.colour, *not_near) if other)
        and f" {name} " not in f" {thing.name} "
    ]
    return by.sample(names, len(names))


def _painted(rgb: RGB, thing: Thing, names: Sequence[str]) -> tuple[RGB, str]:
    """Return an image with a thing in the first of these colours by which it can be called afterwards. Raises NotMade."""
    for name in names:
        made = recoloured(rgb, thing.mask, PAINTS[name])
        found = shares_of(made, thing.mask)
        if leading(found) == name and share_of(found, name) >= 0.7 and apart(rgb, made, thing.mask) >= VISIBLE:
            return made, name
    raise NotMade("no_clear_colour", f"the {thing.name} has no colour afterwards that all would call by one name")


def _recoloured(scene: Scene, by: Random, *, not_near: Sequence[str] = ()) -> tuple[RGB, str]:
    return _painted(scene.image, scene.target, _paints(scene.target, scene.image, by, not_near=not_near))


def _colour_question(scene: Scene, by: Random, *, shown: str, asked: str) -> Mapping[str, Json]:
    """Return the columns of a question about the target's colour; {} where "the mug" could be another one."""
    if shown not in PAINTS or any(one.noun == scene.target.noun for one in scene.others):
        return {}
    if shown == scene.target.colour and shares_of(scene.image, scene.target.mask)[shown] < _PLAINLY:
        return {}
    if shown != asked and not told_apart(shown, asked):
        return {}
    others = [name for name in PAINTS if all(told_apart(name, one) for one in (shown, asked))]
    options = list(dict.fromkeys((shown, asked, *by.sample(others, len(others)))))[:4]
    by.shuffle(options)
    return {
        "evaluation_question": f"What color is the {scene.target.noun} in the image?",
        "multiple_choice_options": [*options, "I cannot tell from the image"],
        "expected_answer": shown,
    }


def reach(scene: Scene, made: Made) -> Mask:
    """Return where the target is before or after an edit, with a copy or a shadow that the instruction lets change."""
    # More than was asked for was done to the target, and nothing to the rest.
    stretched = _changed(scene.image, made.edited) if made.failure == "over_modification" else False
    return scene.target.mask | ((made.allowed | stretched) & ~_plain(scene))


def _plain(scene: Scene) -> Mask:
    return grown(scene.target.mask, FEATHER_PX + 1)


def _colour_edit(
    failure: Failure,
    scene: Scene,
    by: Random,
    edited: RGB,
    *,
    asked: str,
    shown: str,
    maker: str,
    open: Sequence[str] = (),
    **parameters: Json,
) -> Made:
    return Made(
        failure=failure,
        edited=edited,
        instruction=said("Change Color", scene, by, colour=asked),
        edit_type="Change Color",
        maker=maker,
        parameters={"asked": asked, **parameters},
        allowed=_plain(scene),
        question=_colour_question(scene, by, shown=shown, asked=asked),
        open=open,
    )


# Flawless edits, and what may be asked where nothing is done


def _flawless(scene: Scene, by: Random) -> Made:
    """Do what is asked: another colour, a removal, or one more of the target."""
    if not scene.certain:
        raise NotMade(
            "mask_not_certain", f"of the {scene.target.name}, cut out of its box, a part could be missing; give a mask"
        )
    return _first((_flawless_colour, _flawless_removal, _flawless_count), scene, by)


def _of_one_colour(scene: Scene) -> bool:
    """Return whether the target has one colour for the most part.

    Of a laptop whose screen is tinted, too, people could say that more was changed than was asked for. A drawn thing has
    one colour in all its shades.
    """
    if scene.clean is not None:
        return True
    own = shares_of(scene.image, scene.target.mask)
    return share_of(own, leading(own)) >= _ONE_COLOUR


def _flawless_colour(scene: Scene, by: Random) -> Made:
    if not _of_one_colour(scene):
        raise NotMade("several_colours", f"the {scene.target.name} has several colours; which are to change is open")
    edited, colour = _recoloured(scene, by)
    return _colour_edit("flawless", scene, by, edited, asked=colour, shown=colour, maker="recolour 2")


def _without(scene: Scene, thing: Thing, by: Random, *, rgb: RGB | None = None) -> RGB:
    """Return an image without a thing: exactly, or by a smooth ground. Raises NotMade where its traces could be seen."""
    whole = scene.image if rgb is None else rgb
    if scene.clean is not None:
        clean = scene.clean(thing)
        changed = grown(_changed(clean, scene.image), 1)
        made = np.where(changed[..., None], clean, whole)
    else:
        avoid = np.zeros(thing.mask.shape, np.bool_)
        for one in (scene.target, *scene.others):
            avoid |= one.mask if one.name != thing.name else False
        made, ground = filled(whole, thing.mask, np.random.default_rng(by.randrange(2**32)), avoid=grown(avoid, 2))
        if not ground.smooth:
            told = f"ΔE {ground.rough:.1f} from a smooth ground, {ground.shade:.1f} next to the thing"
            raise NotMade("rough_ground", f"what is around the {thing.name} is too rough to continue it ({told})")
    if apart(scene.image, made, thing.mask) < VISIBLE:
        raise NotMade("hardly_visible", f"the {thing.name} hardly differs from what is behind it")
    return made


def _flawless_removal(scene: Scene, by: Random) -> Made:
    edited = _without(scene, scene.target, by)
    return Made(
        failure="flawless",
        edited=edited,
        instruction=said("Removal Object", scene, by),
        edit_type="Removal Object",
        maker=_remover(scene),
        parameters={},
        allowed=_changed(scene.image, edited) | _plain(scene),
        open=_left_behind(scene),
    )


def _left_behind(scene: Scene) -> tuple[str, ...]:
    """Return the metrics that a trace of what was removed leaves open, such as a rest of its shadow."""
    return () if scene.clean is not None else (VC,)


def _remover(scene: Scene) -> str:
    return "remove 1" if scene.clean is None else "remove exactly 1"


def _changed(source: RGB, edited: RGB) -> Mask:
    off = source != edited
    return np.asarray(off[..., 0] | off[..., 1] | off[..., 2], np.bool_)


def _copies(scene: Scene, number: int) -> tuple[RGB, Mask, bool]:
    """Return an image with so many copies of the target beside it, where the first is, and if they look real.

    Raises NotMade.
    """
    places = placing.beside_target(scene, number)
    if not places:
        raise NotMade("no_room_beside", f"there is no ground like that around the {scene.target.name} for {number} more")
    rows, columns = part_of(scene.target.mask, 1)
    part, weight = scene.image[rows, columns], soft(scene.target.mask[rows, columns], inside=0.5, outside=0.5)
    made, seen = scene.image, list[Mask]()
    for x, y in places:
        before = made
        if scene.clean is not None:
            made = _shaded(scene, made, x - columns.start, y - rows.start)
        made = stamped(made, part, weight, (x, y))
        seen.append(laid(made.shape, weight, (x, y)) | _changed(before, made))
    if any(apart(scene.image, made, mask) < VISIBLE / 2 for mask in (laid(made.shape, weight, place) for place in places)):
        raise NotMade("hardly_visible", f"a copy of the {scene.target.name} hardly shows")
    whole = scene.clean is not None or filled(scene.image, scene.target.mask, np.random.default_rng(0))[1].even
    return made, grown(seen[0], 2), whole


def _shaded(scene: Scene, rgb: RGB, dx: int, dy: int) -> RGB:
    """Return an image with the target's shadow once more, moved by so many px: what it does to the ground, there too."""
    assert scene.clean is not None
    ratio = (scene.image.astype(np.float32) + 1) / (scene.clean(scene.target).astype(np.float32) + 1)
    ratio[scene.target.mask] = 1
    # Light that the thing itself throws on its rim stays there.
    ratio = np.minimum(ratio, 1)
    moved = cv2.warpAffine(
        ratio, np.array([[1, 0, dx], [0, 1, dy]], np.float32), (rgb.shape[1], rgb.shape[0]), borderValue=(1, 1, 1)
    )
    for one in (scene.target, *scene.others):
        moved[one.mask] = 1
    return np.asarray(np.rint(np.clip(rgb * moved, 0, 255)), np.uint8)


def _flawless_count(scene: Scene, by: Random) -> Made:
    edited, first, whole = _copies(scene, 1)
    if not whole:
        raise NotMade("rough_ground", f"a copy of the {scene.target.name} lacks the shadow, or the ground, of the first")
    return _count_edit("flawless", scene, by, edited, first, more=1)


def _count_edit(failure: Failure, scene: Scene, by: Random, edited: RGB, first: Mask, *, more: int) -> Made:
    return Made(
        failure=failure,
        edited=edited,
        instruction=said("Change Count", scene, by),
        edit_type="Change Count",
        maker="copy 1",
        parameters={"asked": 1, "more": more},
        allowed=first | _plain(scene),
    )


def _no_edit(scene: Scene, by: Random) -> Made:
    """Leave all as it is."""
    edit_type = by.choice([one for one in EDIT_TYPES if one != "Change Count"])
    words, parameters = dict[str, str](), dict[str, Json]()
    columns: Mapping[str, Json] = {}
    if edit_type == "Change Color":
        names = _paints(scene.target, scene.image, by)
        if not names:
            raise NotMade("no_clear_colour", f"there is no colour that the {scene.target.name} does not have")
        words = {"colour": names[0]}
        parameters = {"asked": names[0]}
        columns = _colour_question(scene, by, shown=scene.target.colour, asked=names[0])
    elif edit_type == "Replace Object":
        words = {"thing": by.choice(_INSTEAD)}
    return Made(
        failure="no_edit",
        edited=scene.image,
        instruction=said(edit_type, scene, by, **words),
        edit_type=edit_type,
        maker="nothing 1",
        parameters=parameters,
        allowed=_plain(scene),
        question=columns,
    )


# Wrong actions on the target


def _wrong_colour(scene: Scene, by: Random) -> Made:
    """Give the target another colour than the one that is asked for."""
    edited, shown = _recoloured(scene, by)
    others = _paints(scene.target, scene.image, by, not_near=(shown,))
    if not others:
        raise NotMade("no_clear_colour", f"there is no third colour for the {scene.target.name}")
    return _colour_edit("wrong_colour", scene, by, edited, asked=others[0], shown=shown, maker="recolour 2", to=shown)


def _wrong_object(scene: Scene, by: Random) -> Made:
    """Put something else in the target's place than is asked for, or remove or replace it in place of recolouring it."""
    return _first((_removed_instead, _solid_instead, _thing_instead), scene, by)


def _removed_instead(scene: Scene, by: Random) -> Made:
    edited = _without(scene, scene.target, by)
    names = _paints(scene.target, scene.image, by)
    if not names:
        raise NotMade("no_clear_colour", f"there is no colour that the {scene.target.name} does not have")
    return Made(
        failure="wrong_object",
        edited=edited,
        instruction=said("Change Color", scene, by, colour=names[0]),
        edit_type="Change Color",
        maker=_remover(scene),
        parameters={"asked": names[0], "removed": True},
        allowed=_changed(scene.image, edited) | _plain(scene),
        open=_left_behind(scene),
    )


def _solid_instead(scene: Scene, by: Random) -> Made:
    rows, columns = part_of(scene.target.mask, 1)
    w, h = columns.stop - columns.start, rows.stop - rows.start
    height, width = scene.image.shape[:2]
    kind, colour = "box", by.choice([name for name in PAINTS if told_apart(name, scene.target.colour)])
    names = _paints(scene.target, scene.image, by, not_near=(colour,))
    if not names:
        raise NotMade("no_clear_colour", f"there is no third colour for the {scene.target.name}")
    # It covers the target whole, and no more of the rest than that takes.
    part, weight = solid(kind, (w + 4, h + 4), colour)
    x, y = columns.start - 2, rows.start - 2
    if x < 0 or y < 0 or x + w + 4 > width or y + h + 4 > height:
        raise NotMade("at_the_border", f"the {scene.target.name} is too near to the border to be covered")
    edited = stamped(scene.image, part, weight, (x, y))
    covered = laid(edited.shape, weight, (x, y))
    if any((covered & one.mask).any() for one in scene.others):
        raise NotMade("covers_others", f"what covers the {scene.target.name} would cover another thing")
    left = scene.target.mask & (_changed(scene.image, edited) == 0)
    if left.sum() > 0.02 * scene.target.mask.sum() or apart(scene.image, edited, scene.target.mask) < VISIBLE:
        raise NotMade("hardly_visible", f"the {scene.target.name} would still show")
    return Made(
        failure="wrong_object",
        edited=edited,
        instruction=said("Change Color", scene, by, colour=names[0]),
        edit_type="Change Color",
        maker="solid 2",
        parameters={"asked": names[0], "solid": kind, "colour": colour},
        allowed=covered | _plain(scene),
    )


def _thing_instead(scene: Scene, by: Random) -> Made:
    if scene.clean is None:
        raise NotMade("not_drawn", "a drawn thing would not look like one of a photograph")
    bare = _without(scene, scene.target, by)
    there = {thing.noun for thing in (scene.target, *scene.others)}
    kinds = [noun for noun in _OTHERS if noun not in there]
    if not kinds:
        raise NotMade("no_other_thing", "the scene has all the things that could stand in the target's place")
    noun, colour = by.choice(kinds), by.choice([name for name in VIVID if told_apart(name, scene.target.colour)])
    rows, columns = part_of(scene.target.mask, 0)
    side = size_of(scene.target.mask) / filling(noun) ** 0.5
    low = extent(noun, Pose(x=0, y=0, side=side))[3]
    # It stands where the target stood.
    pose = Pose(x=(columns.start + columns.stop) / 2, y=rows.stop - low, side=side)
    edited, mask = with_thing(bare, noun, pose, colour=colour, seed=by.randrange(2**31))
    x0, y0, x1, y1 = extent(noun, pose)
    height, width = mask.shape
    if x0 < 2 or y0 < 2 or x1 > width - 2 or y1 > height - 2:
        raise NotMade("at_the_border", f"the {scene.target.name} is too near to the border for a {noun}")
    if any((_changed(bare, edited) & one.mask).any() for one in scene.others):
        raise NotMade("covers_others", f"a {noun} in the {scene.target.name}'s place would cover another thing")
    if apart(bare, edited, mask) < VISIBLE:
        raise NotMade("hardly_visible", f"a {colour} {noun} would hardly show")
    thing = by.choice(_INSTEAD)
    return Made(
        failure="wrong_object",
        edited=edited,
        instruction=said("Replace Object", scene, by, thing=thing),
        edit_type="Replace Object",
        maker="thing 1",
        parameters={"asked": thing, "thing": noun, "colour": colour},
        allowed=_changed(scene.image, edited) | _plain(scene),
    )


def _wrong_count(scene: Scene, by: Random) -> Made:
    """Add two where one is asked for."""
    edited, first, _ = _copies(scene, 2)
    return _count_edit("wrong_count", scene, by, edited, first, more=2)


def _wrong_place(scene: Scene, by: Random) -> Made:
    """Do to something else what is asked for the target; to a look-alike only where there is nothing else."""
    alike = _alike(scene)
    others = [one for one in scene.others if one not in alike]
    return _misplaced(scene, by, by.sample(others, len(others)) or alike or _found(scene, by))


def on_look_alike(scene: Scene, by: Random) -> Made:
    """Return the wrong place on a look-alike of the target. Raises NotMade, also where there is none."""
    return _misplaced(scene, by, _alike(scene))


def _alike(scene: Scene) -> list[Thing]:
    return [one for one in scene.others if one.noun == scene.target.noun]


def _misplaced(scene: Scene, by: Random, things: Sequence[Thing]) -> Made:
    asked = _paints(scene.target, scene.image, by)
    for thing in things:
        if size_of(thing.mask) < min(_SHOWN, 0.7 * size_of(scene.target.mask)):
            continue
        names = [name for name in asked if name in _paints(thing, scene.image, by)]
        try:
            edited, colour = _painted(scene.image, thing, names)
        except NotMade:
            continue
        if (_changed(scene.image, edited) & scene.target.mask).any():
            continue
        return _colour_edit(
            "wrong_place", scene, by, edited, asked=colour, shown=scene.target.colour, maker="recolour 2", on=thing.name
        )
    raise NotMade("no_other_thing", "nothing else stands out that could take the colour in the target's place")


def _found(scene: Scene, by: Random) -> list[Thing]:
    """Return what stands out beside the target, for want of named things."""
    masks = placing.patches(scene)
    things = [Thing(name=f"patch {n}", noun="patch", mask=mask, colour="") for n, mask in enumerate(masks, start=1)]
    return by.sample(things, len(things))


def _over_modification(scene: Scene, by: Random) -> Made:
    """Give the target the colour that is asked for, and another shape or a pattern besides."""
    return _first((_stretched, _patterned), scene, by)


def _stretched(scene: Scene, by: Random) -> Made:
    edited, colour = _recoloured(scene, by)
    rows, columns = part_of(scene.target.mask, 2)
    w, h = columns.stop - columns.start, rows.stop - rows.start
    height, width = scene.image.shape[:2]
    free = placing.free_of(scene, 2) | scene.target.mask
    for factor, along in ((f, a) for f in (1.9, 1.7, 1.55) for a in by.sample((0, 1), 2)):
        size = (round(w * factor), h) if along == 0 else (w, round(h * factor))
        x = columns.start - (size[0] - w) // 2
        # Upwards, so that what stands on the ground still does.
        y = rows.start - (size[1] - h)
        if x < 2 or y < 2 or x + size[0] > width - 2 or y + size[1] > height - 2:
            continue
        mask = scene.target.mask[rows, columns].astype(np.float32)
        weight = soft(np.asarray(cv2.resize(mask, size, interpolation=cv2.INTER_LINEAR) >= 0.5), inside=0.5, outside=0.5)
        part = np.asarray(cv2.resize(edited[rows, columns], size, interpolation=cv2.INTER_LINEAR), np.uint8)
        covered = laid(edited.shape, weight, (x, y))
        others = np.zeros_like(covered)
        for one in scene.others:
            others |= one.mask
        bare = scene.target.mask & ~covered
        if (covered & others).any() or bare.sum() > 0.25 * scene.target.mask.sum():
            continue
        made = stamped(edited, part, weight, (x, y))
        grown_by = float((covered & ~scene.target.mask).sum() / scene.target.mask.sum())
        beyond = covered & ~grown(scene.target.mask, 2) & free
        if grown_by < 0.35 or not beyond.any() or apart(scene.image, made, beyond) < VISIBLE / 2:
            continue
        return _colour_edit(
            "over_modification", scene, by, made, asked=colour, shown=colour, maker="recolour and stretch 2",
            # In a photograph it can hide what no mask names, such as a post beside it.
            open=() if scene.clean is not None else (VC,), factor=factor, along=("width", "height")[along],
        )  # fmt: skip
    raise NotMade("no_room_to_stretch", f"the {scene.target.name} cannot be stretched without covering something else")


def _patterned(scene: Scene, by: Random) -> Made:
    side = size_of(scene.target.mask)
    if side < _SHOWN:
        raise NotMade("too_small_for_a_pattern", f"the {scene.target.name} is {side:.0f} px; a pattern would not show")
    edited, colour = _recoloured(scene, by)
    rows, columns = part_of(scene.target.mask, 0)
    inside = scene.target.mask[rows, columns]
    h, w = inside.shape
    ys, xs = np.mgrid[0:h, 0:w].astype(np.float32)
    kind = by.choice(("holes", "checks"))
    step = max(6.0, side / 3.2)
    if kind == "holes":
        bare = np.hypot((xs - w / 2 + step / 2) % step - step / 2, (ys - h / 2 + step / 2) % step - step / 2) < 0.30 * step
    else:
        bare = (((xs // (step / 1.6)).astype(int) + (ys // (step / 1.6)).astype(int)) % 2) == 0
    bare &= inside
    share = float(bare.sum() / inside.sum())
    if not 0.12 <= share <= 0.6:
        raise NotMade("no_clear_pattern", f"a pattern would cover {100 * share:.0f} % of the {scene.target.name}")
    light = float(to_lab(edited[rows, columns])[inside][:, 0].mean())
    ink = np.full((h, w, 3), 245 if light < 55 else 20, np.uint8)
    made = stamped(edited, ink, soft(bare, inside=0.5, outside=0.5) * inside, (columns.start, rows.start))
    if kind == "checks":
        # Dark and light squares leave no colour to call it by: half of each stays.
        ink = np.clip(edited[rows, columns].astype(np.int16) + (80 if light < 55 else -75), 0, 255).astype(np.uint8)
        made = stamped(edited, ink, soft(bare, inside=0.5, outside=0.5) * inside, (columns.start, rows.start))
    mask = np.zeros(scene.target.mask.shape, np.bool_)
    mask[rows, columns] = bare
    if apart(edited, made, mask) < VISIBLE:
        raise NotMade("hardly_visible", "the pattern hardly shows")
    return _colour_edit(
        "over_modification", scene, by, made, asked=colour, shown=colour, maker="recolour and pattern 2", pattern=kind
    )


# Collateral changes


def _one_collateral(scene: Scene, by: Random) -> Made:
    """Do what is asked, and change one thing beside it."""
    return _collateral("one_collateral", scene, by, 1)


def _several_collateral(scene: Scene, by: Random) -> Made:
    """Do what is asked, and change two or three things beside it."""
    return _collateral("several_collateral", scene, by, by.choice((2, 3)))


def _collateral(failure: Failure, scene: Scene, by: Random, number: int) -> Made:
    if number == 1 and not scene.certain:
        raise NotMade("mask_not_certain", f"what is recoloured beside the {scene.target.name} could be another change")
    edited, colour = _recoloured(scene, by)
    least = max(_SHOWN, 0.8 * size_of(scene.target.mask))
    done: list[Json] = []
    taken = grown(scene.target.mask, 3)
    # A look-alike that changes could be taken for the target; other things first, then what is put in.
    things = [one for one in scene.others if one.noun != scene.target.noun and size_of(one.mask) >= 0.6 * least]
    for thing in by.sample(things, len(things)):
        if len(done) == number:
            break
        if (taken & thing.mask).any():
            continue
        for how in by.sample(("remove", "recolour"), 2):
            try:
                if how == "remove":
                    made = _without(scene, thing, by, rgb=edited)
                else:
                    names = _paints(thing, scene.image, by, not_near=(colour,))
                    made, _ = _painted(edited, thing, names)
            except NotMade:
                continue
            changed = _changed(edited, made)
            if (changed & taken).any():
                continue
            edited, taken = made, taken | grown(changed, 3)
            done.append({"what": thing.name, "how": {"remove": "removed", "recolour": "recoloured"}[how]})
            break
    if len(done) < number:
        edited, taken = _put_in(scene, by, edited, taken, done, number, least, colour)
    if len(done) < number:
        raise NotMade(
            "no_room_beside", f"there is room for {len(done)} changes of {least:.0f} px beside the target, not {number}"
        )
    return _colour_edit(
        failure, scene, by, edited, asked=colour, shown=colour, maker="recolour with collateral 2", changes=done,
        open=() if scene.certain and _of_one_colour(scene) else (IF,),
    )  # fmt: skip


def _put_in(
    scene: Scene, by: Random, edited: RGB, taken: Mask, done: list[Json], number: int, least: float, asked: str
) -> tuple[RGB, Mask]:
    """Put solids into the scene, or recolour what stands out in it, until there are so many changes."""
    height, width = scene.image.shape[:2]
    side = int(max(least, 0.045 * min(height, width)) * 1.15)
    if scene.clean is None and not scene.others and by.random() < 0.6:
        for thing in _found(scene, by):
            if len(done) == number:
                break
            if size_of(thing.mask) < least or (taken & thing.mask).any():
                continue
            try:
                made, _ = _painted(edited, thing, _paints(thing, scene.image, by, not_near=(asked,)))
            except NotMade:
                continue
            edited, taken = made, taken | grown(thing.mask, 6)
            done.append({"what": thing.name, "how": "recoloured"})
    gap = max(8.0, 0.4 * size_of(scene.target.mask))
    for place in placing.spots(scene, (side, side), by, gap=gap, number=4 * (number - len(done))):
        if len(done) == number:
            break
        x, y = place
        ground = shares_of(edited, _rectangle(edited.shape, x, y, side))
        names = [name for name in PAINTS if share_of(ground, name) < 0.2 and told_apart(name, asked)]
        if not names:
            continue
        kind, colour = by.choice(SOLIDS), by.choice(names)
        part, weight = solid(kind, (side, side), colour)
        made = stamped(edited, part, weight, place)
        mask = laid(made.shape, weight, place)
        if (mask & taken).any() or apart(edited, made, mask) < 1.5 * VISIBLE:
            continue
        edited, taken = made, taken | grown(mask, 4)
        done.append({"what": f"{colour} {kind}", "how": "added"})
    return edited, taken


def _rectangle(shape: tuple[int, ...], x: int, y: int, side: int) -> Mask:
    mask = np.zeros(shape[:2], np.bool_)
    mask[y : y + side, x : x + side] = True
    return mask


# The scene as a whole


def _restyled(scene: Scene, by: Random) -> Made:
    """Redraw the whole picture in another medium, with the edit or without it."""
    name = by.choice(sorted(STYLES))
    try:
        edited, colour = _recoloured(scene, by)
    except NotMade:
        edited, colour = scene.image, (_paints(scene.target, scene.image, by) or ["red"])[0]
    made = STYLES[name](edited, by)
    outside = ~grown(scene.target.mask, 4)
    small = np.linalg.norm(to_lab(scene.image[::4, ::4]) - to_lab(made[::4, ::4]), axis=2)[outside[::4, ::4]]
    if float(np.median(small)) < 12:
        raise NotMade("hardly_visible", f"the picture is hardly another one as {name}")
    return _colour_edit("restyled", scene, by, made, asked=colour, shown="", maker=f"{name} 1")


def _recomposed(scene: Scene, by: Random) -> Made:
    """Set the target, in the colour that is asked for, into another place altogether."""
    edited, colour = _recoloured(scene, by)
    name = by.choice(sorted(PLACES))
    place = PLACES[name](scene.image.shape[:2], by)
    weight: Floats = soft(scene.target.mask)[..., None]
    made = np.rint(place * (1 - weight) + edited * weight).astype(np.uint8)
    off = np.linalg.norm(to_lab(scene.image[::4, ::4]) - to_lab(made[::4, ::4]), axis=2)
    if float(np.median(off)) < 15:
        raise NotMade("hardly_visible", f"{name} is hardly another place here")
    return _colour_edit("recomposed", scene, by, made, asked=colour, shown="", maker=f"{name} 1")


_WITHIN: Final[frozenset[Failure]] = frozenset(("flawless", "wrong_colour", "wrong_object", "no_edit"))
"""Failures that change nothing but what the instruction lets change."""
_MAKERS: Final[Mapping[Failure, _Maker]] = {
    "flawless": _flawless,
    "wrong_colour": _wrong_colour,
    "wrong_object": _wrong_object,
    "wrong_count": _wrong_count,
    "wrong_place": _wrong_place,
    "over_modification": _over_modification,
    "no_edit": _no_edit,
    "one_collateral": _one_collateral,
    "several_collateral": _several_collateral,
    "restyled": _restyled,
    "recomposed": _recomposed,
}
