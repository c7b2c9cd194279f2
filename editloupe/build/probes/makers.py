"""Makes edits whose truth is known: one maker for each way in which an edit goes right or wrong.

Each maker takes a scene and what is drawn at random, and returns a pair with its truth, or raises `NotMade` where people
could disagree about what comes out. A metric about which they could disagree has no truth.

What the labels of DLEBench leave open is left out:
- recoloured in place of removed is no Wrong Action for certain, since the target is still what it was; the reverse is;
- a card in place of another thing that was asked for could pass for one that is hard to recognise, which is Over
  Modification; so it stands in place of a colour.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from random import Random
from typing import Final, TypeAlias

import cv2
import numpy as np

from editloupe.build.probes.colours import (
    FEATHER_PX,
    PAINTS,
    VISIBLE,
    Mask,
    apart,
    part_of,
    recoloured,
    shares_of,
    soft,
    told_apart,
)
from editloupe.build.probes.photographs import Scene, Thing
from editloupe.build.probes.placing import card, filled, grown, size_of, spots, stamped, taken
from editloupe.data.images import RGB
from editloupe.data.probes import Band, Failure
from editloupe.imaging.color_names import leading, share_of, to_lab
from editloupe.values import Json

IF: Final = "instruction_following"
VC: Final = "visual_consistency"
"""Metrics of DLEBench."""
TRUTHS: Final = tomllib.loads(files("editloupe.build.probes").joinpath("truths.toml").read_text("utf-8"))
"""What is right of each failure, and how people ask for an edit."""
_ONE_COLOUR: Final = 0.8
"""Share of a thing that has its leading colour, shades of a neighbouring name half, for it to be of one."""
_TINT: Final = 6
"""Chroma of CIELAB from which a thing that is called gray, or black, has a hue."""
_HUE: Final = 50
"""Degrees between that hue and a colour's, from which the colour is another one."""
ELSEWHERE: Final = 15.0
"""Median ΔE of two pictures seen from far, below which they could be of one place."""
_SHOWN: Final = 24
"""px of what is put in or changed beside the target, at least: less could be missed."""

_Maker: TypeAlias = Callable[[Scene, Random], "Made"]


class NotMade(Exception):
    """Says in a few words why what comes out would not be undeniable, or what a scene lacks."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """An edit whose truth is known."""

    failure: Failure
    edited: RGB
    instruction: str
    edit_type: str
    maker: str
    """Name and version."""
    parameters: Mapping[str, Json]
    allowed: Mask
    """H×W, where the instruction lets the image change."""
    open: Sequence[str]
    """Metrics about which people could disagree here, though not for every edit that fails so."""

    @property
    def truth(self) -> Mapping[str, str]:
        """DLEBench's metric → the only right label."""
        return {metric: label for metric, label in TRUTHS[self.failure]["labels"].items() if metric not in self.open}

    @property
    def bands(self) -> Mapping[str, Band]:
        """UnicBench's metric → the right scores."""
        return {metric: tuple(band) for metric, band in TRUTHS[self.failure]["bands"].items() if metric not in self.open}


def make(failure: Failure, scene: Scene, by: Random) -> Made:
    """Return an edit of a scene that fails, or not, in this way. The same scene and draws give the same edit.

    Raises NotMade.
    """
    return _MAKERS[failure](scene, by)


def changed(source: RGB, edited: RGB) -> Mask:
    """Return H×W, where two images of one size differ at all."""
    return np.asarray((source != edited).any(axis=2), np.bool_)


def _made(
    failure: Failure, scene: Scene, by: Random, edited: RGB, maker: str, *, asked: str = "",
    allowed: Mask | None = None, open: Sequence[str] = (), **parameters: Json,
) -> Made:  # fmt: skip
    """Return an edit of the scene's target.

    asked: the colour that the instruction asks for; "" for a removal.
    allowed: where the image may change beside the target.
    """
    edit_type, name = "Change Color" if asked else "Removal Object", scene.target.name
    around = grown(scene.target.mask, FEATHER_PX + 1)
    return Made(
        failure=failure,
        edited=edited,
        instruction=by.choice(TRUTHS["instructions"][edit_type]).format(name=name, colour=asked),
        edit_type=edit_type,
        maker=maker,
        parameters={"asked": asked, **parameters} if asked else parameters,
        allowed=around if allowed is None else around | allowed,
        open=open,
    )


# Colour


def _paints(thing: Thing, rgb: RGB, by: Random, *, not_near: Sequence[str] = ()) -> list[str]:
    """Return the colours that a thing can be given so that nobody takes one for what it had, in a drawn order.

    Raises NotMade where there is none.
    """
    own = shares_of(rgb, thing.mask)
    a, b = (float(v) for v in to_lab(rgb[thing.mask][None])[0].mean(axis=0)[1:])
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
    if not names:
        raise NotMade("no colour that all would call by one name")
    return by.sample(names, len(names))


def _painted(rgb: RGB, thing: Thing, names: Sequence[str]) -> tuple[RGB, str]:
    """Return an image with a thing in the first of these colours by which it can be called afterwards. Raises NotMade."""
    for name in names:
        made = recoloured(rgb, thing.mask, PAINTS[name])
        found = shares_of(made, thing.mask)
        if leading(found) == name and share_of(found, name) >= 0.7 and apart(rgb, made, thing.mask) >= VISIBLE:
            return made, name
    raise NotMade("no colour that all would call by one name")


def _recoloured(scene: Scene, by: Random) -> tuple[RGB, str]:
    return _painted(scene.image, scene.target, _paints(scene.target, scene.image, by))


def _of_one_colour(scene: Scene) -> bool:
    """Return whether the target has one colour for the most part.

    Of a laptop whose screen is tinted, too, people could say that more was changed than was asked for.
    """
    own = shares_of(scene.image, scene.target.mask)
    return share_of(own, leading(own)) >= _ONE_COLOUR


# Flawless edits, and none


def _flawless(scene: Scene, by: Random) -> Made:
    """Do what is asked: another colour, or a removal."""
    if not _of_one_colour(scene) or by.random() < 0.4:
        try:
            edited, gone = _without(scene, by)
            # A trace of what was removed can be left, such as a rest of its shadow.
            return _made("flawless", scene, by, edited, "remove 2", allowed=gone, open=(VC,))
        except NotMade:
            if not _of_one_colour(scene):
                raise
    edited, colour = _recoloured(scene, by)
    return _made("flawless", scene, by, edited, "recolour 3", asked=colour)


def _without(scene: Scene, by: Random) -> tuple[RGB, Mask]:
    """Return the image with smooth ground in place of the target, and where it differs. Raises NotMade."""
    rgb, thing = scene.image, scene.target
    avoid = grown(taken(scene) & ~thing.mask, 2)
    made = filled(rgb, thing.mask, np.random.default_rng(by.randrange(2**32)), avoid=avoid)
    if made is None:
        raise NotMade("rough ground around the target")
    if apart(rgb, made, thing.mask) < VISIBLE:
        raise NotMade("it would hardly show")
    return made, changed(rgb, made)


def _no_edit(scene: Scene, by: Random) -> Made:
    """Leave all as it is."""
    if by.random() < 0.4:
        return _made("no_edit", scene, by, scene.image, "nothing 2")
    asked = _paints(scene.target, scene.image, by)[0]
    return _made("no_edit", scene, by, scene.image, "nothing 2", asked=asked)


# Wrong actions on the target


def _wrong_colour(scene: Scene, by: Random) -> Made:
    """Give the target another colour than the one that is asked for."""
    edited, shown = _recoloured(scene, by)
    asked = _paints(scene.target, scene.image, by, not_near=(shown,))[0]
    return _made("wrong_colour", scene, by, edited, "recolour 3", asked=asked, to=shown)


def _wrong_object(scene: Scene, by: Random) -> Made:
    """Remove the target, or put a card in its place, where another colour is asked for."""
    card_of = by.choice([name for name in PAINTS if told_apart(name, scene.target.colour)])
    asked = _paints(scene.target, scene.image, by, not_near=(card_of,))[0]
    if by.random() < 0.5:
        try:
            edited, gone = _without(scene, by)
            return _made("wrong_object", scene, by, edited, "remove 2", asked=asked, allowed=gone, removed=True)
        except NotMade:
            pass  # a card then
    rows, columns = part_of(scene.target.mask, 3)
    size = columns.stop - columns.start, rows.stop - rows.start
    edited, covered = stamped(scene.image, *card(size, card_of), (columns.start, rows.start))
    if any((covered & one.mask).any() for one in scene.others):
        raise NotMade("a card would cover another target")
    if apart(scene.image, edited, scene.target.mask) < VISIBLE:
        raise NotMade("it would hardly show")
    return _made("wrong_object", scene, by, edited, "card 1", asked=asked, allowed=covered, card=card_of)


def misplaced(scene: Scene, by: Random, *, alike: bool = False) -> Made:
    """Do to another target what is asked for this one; to a look-alike if that is asked for, or there is nothing else."""
    twins = [one for one in scene.others if one.noun == scene.target.noun]
    others = [one for one in scene.others if one.noun != scene.target.noun]
    things = twins if alike else by.sample(others, len(others)) or twins
    asked = _paints(scene.target, scene.image, by)
    for thing in things:
        if size_of(thing.mask) < min(_SHOWN, 0.7 * size_of(scene.target.mask)):
            continue
        try:
            free = _paints(thing, scene.image, by)
            edited, colour = _painted(scene.image, thing, [name for name in asked if name in free])
        except NotMade:
            continue
        if not (changed(scene.image, edited) & scene.target.mask).any():
            return _made("wrong_place", scene, by, edited, "recolour 3", asked=colour, on=thing.name)
    raise NotMade("no other target that could take the colour")


# More than was asked for


def _over_modification(scene: Scene, by: Random) -> Made:
    """Give the target the colour that is asked for, and dots besides."""
    side = size_of(scene.target.mask)
    if side < _SHOWN:
        raise NotMade("too small for a pattern")
    edited, colour = _recoloured(scene, by)
    where = rows, columns = part_of(scene.target.mask, 0)
    inside = scene.target.mask[where]
    ys, xs = np.mgrid[0 : inside.shape[0], 0 : inside.shape[1]].astype(np.float32)
    step = max(6.0, side / 3.2)
    dots = np.hypot(xs % step - step / 2, ys % step - step / 2) < 0.3 * step
    light = float(to_lab(edited[where])[inside][:, 0].mean())
    ink = np.full((*inside.shape, 3), 245 if light < 55 else 20, np.uint8)
    weight = soft(dots & inside, inside=0.5, outside=0.5) * inside
    made, mask = stamped(edited, ink, weight, (columns.start, rows.start))
    share = float(mask.sum() / inside.sum())
    if not 0.12 <= share <= 0.6 or apart(edited, made, mask) < VISIBLE:
        raise NotMade("a pattern would hardly show")
    return _made("over_modification", scene, by, made, "recolour and dots 3", asked=colour)


# Changes beside the target


def _collateral(scene: Scene, by: Random, *, several: bool) -> Made:
    """Do what is asked, and change one thing beside it, or two or three."""
    number = by.choice((2, 3)) if several else 1
    edited, colour = _recoloured(scene, by)
    least = max(_SHOWN, 0.8 * size_of(scene.target.mask))
    done: list[Json] = []
    # A look-alike that changes could be taken for the target; other things first, then what is put in.
    things = [one for one in scene.others if one.noun != scene.target.noun and size_of(one.mask) >= 0.6 * least]
    for thing in by.sample(things, min(number, len(things))):
        try:
            made, _ = _painted(edited, thing, _paints(thing, scene.image, by, not_near=(colour,)))
        except NotMade:
            continue
        if not (changed(edited, made) & grown(scene.target.mask, 3)).any():
            edited = made
            done.append({"what": thing.name, "how": "recoloured"})
    side = round(1.15 * max(least, 0.045 * min(scene.image.shape[:2])))
    gap = max(8.0, 0.4 * size_of(scene.target.mask))
    for place in spots(scene, (side, side), by, gap=gap, number=4 * (number - len(done))):
        shown = by.choice([name for name in PAINTS if told_apart(name, colour)])
        made, mask = stamped(edited, *card((side, side), shown), place)
        if len(done) < number and apart(edited, made, mask) >= 1.5 * VISIBLE:
            edited = made
            done.append({"what": f"{shown} card", "how": "added"})
    if len(done) < number:
        raise NotMade("no room beside the target")
    failure: Failure = "several_collateral" if several else "one_collateral"
    open_ = () if _of_one_colour(scene) else (IF,)
    return _made(failure, scene, by, edited, "recolour with collateral 3", asked=colour, open=open_, changes=done)


# The scene as a whole


def _restyled(scene: Scene, by: Random) -> Made:
    """Redraw the whole picture in another medium."""
    asked = _paints(scene.target, scene.image, by)[0]
    made = _pencil(scene.image)
    if from_afar(scene.image, made) < 12:
        raise NotMade("it would hardly show")
    return _made("restyled", scene, by, made, "pencil drawing 2", asked=asked)


def _pencil(rgb: RGB) -> RGB:
    """Return the picture as a pencil drawing on white paper."""
    grey = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)
    blurred = cv2.GaussianBlur(cv2.bitwise_not(grey), (0, 0), max(2.0, 0.012 * max(rgb.shape)))
    drawn = np.clip(grey.astype(np.float32) * 256 / np.maximum(1, 256 - blurred.astype(np.float32)), 0, 255)
    one = (255 - np.clip((255 - drawn) * 1.8, 0, 235)).astype(np.uint8)
    return np.repeat(one[..., None], 3, axis=2)


def other_place(scene: Scene, by: Random) -> tuple[str, RGB]:
    """Return the name and the picture of another place, of the scene's size. Raises NotMade."""
    found = scene.elsewhere(by)
    if found is None or from_afar(scene.image, found[1]) < ELSEWHERE:
        raise NotMade("no photograph of another place")
    return found


def from_afar(first: RGB, second: RGB) -> float:
    """Return the median ΔE of two pictures, seen from far."""
    far = [np.asarray(cv2.resize(rgb, (32, 24), interpolation=cv2.INTER_AREA), np.uint8) for rgb in (first, second)]
    return float(np.median(np.linalg.norm(to_lab(far[0]) - to_lab(far[1]), axis=2)))


def _recomposed(scene: Scene, by: Random) -> Made:
    """Set the target, in the colour that is asked for, into another place altogether."""
    edited, colour = _recoloured(scene, by)
    name, place = other_place(scene, by)
    weight = soft(scene.target.mask)
    made, _ = stamped(place, edited, weight, (0, 0))
    return _made("recomposed", scene, by, made, "another place 2", asked=colour, place=name)


_MAKERS: Final[Mapping[Failure, _Maker]] = {
    "flawless": _flawless,
    "wrong_colour": _wrong_colour,
    "wrong_object": _wrong_object,
    "wrong_place": misplaced,
    "over_modification": _over_modification,
    "no_edit": _no_edit,
    "one_collateral": partial(_collateral, several=False),
    "several_collateral": partial(_collateral, several=True),
    "restyled": _restyled,
    "recomposed": _recomposed,
}
FAILURES: Final = tuple(_MAKERS)
"""Those that are made."""
