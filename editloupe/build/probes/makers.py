"""Makes edits whose truth is known: one maker for each way in which an edit goes right or wrong.

Each maker takes a scene and what is drawn at random, and returns a pair with its truth, or raises `NotMade` where people
could disagree about what comes out. A metric about which they could disagree has no truth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, TypeAlias

import cv2
import numpy as np

from editloupe.build import paint
from editloupe.build.paint import Mask
from editloupe.build.probes.scenes import Scene, Thing
from editloupe.data.images import RGB
from editloupe.files import read_toml
from editloupe.imaging.color_names import leading, share_of, to_lab
from editloupe.models.inpaint import OpenCVInpainter
from editloupe.protocols.probes.probe import Failure, Probe
from editloupe.values import Json

IF: Final = "instruction_following"
VC: Final = "visual_consistency"
"""Metrics of DLEBench."""
TRUTHS: Final[Mapping[str, Any]] = read_toml(Path(__file__).with_name("truths.toml"), "truths.toml")
"""What is right of each failure, and how people ask for an edit."""
_ONE_COLOR: Final = 0.8
"""Share of a thing that has its leading color, shades of a neighboring name half, for it to be of one."""
_TINT: Final = 6
"""Chroma of CIELAB from which a thing that is called gray, or black, has a hue."""
_HUE: Final = 50
"""Degrees between that hue and a color's, from which the color is another one."""
_SHOWN: Final = 24
"""px of what is put in or changed beside the target, at least: less could be missed."""
_ROUGH: Final = 6.0
"""ΔE (root mean square) of the ground around a thing from its mean, up to which what was behind it is known."""


class NotMade(Exception):
    """Says in a few words why what comes out would not be undeniable, or what a scene lacks."""


@dataclass(frozen=True, kw_only=True)
class Made:
    """An edit whose truth is known."""

    source: RGB
    edited: RGB
    instruction: str
    edit_type: str
    allowed: Mask
    """H×W, where the instruction lets the image change."""
    probe: Probe
    """What is known of it, but for its place in a set."""
    jpeg: bytes = b""
    """The edited image's file, where that is a JPEG."""


_Maker: TypeAlias = Callable[[Scene, Random], Made]


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
    open: Sequence[str] = (), **parameters: Json,
) -> Made:  # fmt: skip
    """Return an edit of the scene's target.

    asked: the color that the instruction asks for; "" for a removal.   open: metrics about which people could disagree.
    """
    edit_type, told = "Change Color" if asked else "Removal Object", TRUTHS[failure]
    return Made(
        source=scene.image,
        edited=edited,
        instruction=by.choice(TRUTHS["instructions"][edit_type]).format(name=scene.target.name, color=asked),
        edit_type=edit_type,
        allowed=paint.grown(scene.target.mask, paint.FEATHER_PX + 1),
        probe=Probe(
            truth={metric: label for metric, label in told["labels"].items() if metric not in open},
            bands={metric: tuple(band) for metric, band in told["bands"].items() if metric not in open},
            failure=failure,
            area=0.0,
            area_found=round(float(scene.target.mask.mean()), 8),
            scene="",
            maker=maker,
            seed=0,
            parameters={"asked": asked, **parameters} if asked else parameters,
            digest="",
        ),
    )


def _paints(thing: Thing, rgb: RGB, by: Random, *, not_near: Sequence[str] = ()) -> list[str]:
    """Return the colors that a thing can be given so that nobody takes one for what it had, in a drawn order.

    Raises NotMade where there is none.
    """
    own = paint.shares_of(rgb, thing.mask)
    a, b = (float(v) for v in to_lab(rgb[thing.mask][None])[0].mean(axis=0)[1:])
    # Of a grayish blue shoe nobody could say that it is not blue yet.
    tinted = np.hypot(a, b) >= _TINT
    names = [
        name
        for name, one in paint.PAINTS.items()
        if share_of(own, name) < 0.25
        and not (tinted and abs((np.degrees(np.arctan2(b, a)) - one.hue + 180) % 360 - 180) < _HUE)
        and all(paint.told_apart(name, other) for other in (thing.color, *not_near) if other)
        and f" {name} " not in f" {thing.name} "
    ]
    if not names:
        raise NotMade("no color that all would call by one name")
    return by.sample(names, len(names))


def _painted(rgb: RGB, thing: Thing, names: Sequence[str]) -> tuple[RGB, str]:
    """Return an image with a thing in the first of these colors by which it can be called afterward. Raises NotMade."""
    for name in names:
        made = paint.recolored(rgb, thing.mask, paint.PAINTS[name])
        found = paint.shares_of(made, thing.mask)
        if leading(found) == name and share_of(found, name) >= 0.7 and paint.apart(rgb, made, thing.mask) >= paint.VISIBLE:
            return made, name
    raise NotMade("no color that all would call by one name")


def _recolored(scene: Scene, by: Random) -> tuple[RGB, str]:
    return _painted(scene.image, scene.target, _paints(scene.target, scene.image, by))


def _of_one_color(scene: Scene) -> bool:
    """Return whether the target has one color for the most part.

    Of a laptop whose screen is tinted, too, people could say that more was changed than was asked for.
    """
    own = paint.shares_of(scene.image, scene.target.mask)
    return share_of(own, leading(own)) >= _ONE_COLOR


def _flawless(scene: Scene, by: Random) -> Made:
    """Do what is asked: a removal where the ground is smooth, or another color."""
    if by.random() < 0.4 and (removed := _without(scene)) is not None:
        # A trace of what was removed can be left, such as a rest of its shadow.
        return _made("flawless", scene, by, removed, "remove 3", open=(VC,))
    if not _of_one_color(scene):
        raise NotMade("a target of several colors")
    edited, color = _recolored(scene, by)
    return _made("flawless", scene, by, edited, "recolor 3", asked=color)


def _without(scene: Scene) -> RGB | None:
    """Return the image with the ground in place of the target; None where the ground is not smooth, or it hardly shows."""
    mask = scene.target.mask
    hole = paint.grown(mask, paint.FEATHER_PX)
    ring = paint.grown(mask, max(6.0, 0.35 * paint.size_of(mask))) & ~hole
    ground = to_lab(scene.image[ring][None])[0]
    if np.sqrt(((ground - ground.mean(axis=0)) ** 2).sum(axis=1).mean()) > _ROUGH:
        return None
    made = OpenCVInpainter()(scene.image, hole)
    return made if paint.apart(scene.image, made, mask) >= paint.VISIBLE else None


def _no_edit(scene: Scene, by: Random) -> Made:
    """Leave all as it is."""
    asked = "" if by.random() < 0.4 else _paints(scene.target, scene.image, by)[0]
    return _made("no_edit", scene, by, scene.image, "nothing 2", asked=asked)


def _wrong_colour(scene: Scene, by: Random) -> Made:
    """Give the target another color than the one that is asked for."""
    edited, shown = _recolored(scene, by)
    asked = _paints(scene.target, scene.image, by, not_near=(shown,))[0]
    return _made("wrong_colour", scene, by, edited, "recolor 3", asked=asked, to=shown)


def _wrong_place(scene: Scene, by: Random) -> Made:
    """Do to another target what is asked for this one."""
    asked = _paints(scene.target, scene.image, by)
    for thing in by.sample(scene.others, len(scene.others)):
        if paint.size_of(thing.mask) < min(_SHOWN, 0.7 * paint.size_of(scene.target.mask)):
            continue
        try:
            free = _paints(thing, scene.image, by)
            edited, color = _painted(scene.image, thing, [name for name in asked if name in free])
        except NotMade:
            continue
        if not (changed(scene.image, edited) & scene.target.mask).any():
            return _made("wrong_place", scene, by, edited, "recolor 3", asked=color, on=thing.name)
    raise NotMade("no other target that could take the color")


def _over_modification(scene: Scene, by: Random) -> Made:
    """Give the target the color that is asked for, and dots besides."""
    side = paint.size_of(scene.target.mask)
    if side < _SHOWN:
        raise NotMade("too small for a pattern")
    edited, color = _recolored(scene, by)
    where = rows, columns = paint.part_of(scene.target.mask, 0)
    inside = scene.target.mask[where]
    ys, xs = np.mgrid[0 : inside.shape[0], 0 : inside.shape[1]].astype(np.float32)
    step = max(6.0, side / 3.2)
    dots = (np.hypot(xs % step - step / 2, ys % step - step / 2) < 0.3 * step) & inside
    light = float(to_lab(edited[where])[inside][:, 0].mean())
    ink = np.full((*inside.shape, 3), 245 if light < 55 else 20, np.uint8)
    made, mask = paint.stamped(edited, ink, (columns.start, rows.start), dots)
    if not 0.12 <= mask.sum() / inside.sum() <= 0.6 or paint.apart(edited, made, mask) < paint.VISIBLE:
        raise NotMade("a pattern would hardly show")
    return _made("over_modification", scene, by, made, "recolor and dots 4", asked=color)


def _collateral(scene: Scene, by: Random, *, several: bool) -> Made:
    """Do what is asked, and change one thing beside it, or two or three."""
    number = by.choice((2, 3)) if several else 1
    edited, color = _recolored(scene, by)
    target, done = scene.target, list[Json]()
    least = max(_SHOWN, 0.8 * paint.size_of(target.mask))
    # A look-alike that changes could be taken for the target; other things first, then what is put in.
    things = [one for one in scene.others if one.noun != target.noun and paint.size_of(one.mask) >= 0.6 * least]
    for thing in by.sample(things, min(number, len(things))):
        try:
            made, _ = _painted(edited, thing, _paints(thing, scene.image, by, not_near=(color,)))
        except NotMade:
            continue
        if not (changed(edited, made) & paint.grown(target.mask, 3)).any():
            edited = made
            done.append({"what": thing.name, "how": "recolored"})
    side = round(1.15 * max(least, 0.045 * min(scene.image.shape[:2])))
    gap = max(8.0, 0.4 * paint.size_of(target.mask))
    held = paint.grown(held_by(scene), gap)
    for place in paint.spots(scene.image, held, (side, side), by, gap=gap, number=4 * (number - len(done))):
        shown = by.choice([name for name in paint.PAINTS if paint.told_apart(name, color)])
        made, mask = paint.stamped(edited, paint.card(side, shown), place)
        if len(done) < number and paint.apart(edited, made, mask) >= 1.5 * paint.VISIBLE:
            edited = made
            done.append({"what": f"{shown} card", "how": "added"})
    if len(done) < number:
        raise NotMade("no room beside the target")
    failure: Failure = "several_collateral" if several else "one_collateral"
    open_ = () if _of_one_color(scene) else (IF,)
    return _made(failure, scene, by, edited, "recolor with collateral 4", asked=color, open=open_, changes=done)


def held_by(scene: Scene) -> Mask:
    """Return where a scene's things are."""
    return np.asarray(np.logical_or.reduce([scene.target.mask, *(one.mask for one in scene.others)]), np.bool_)


def _restyled(scene: Scene, by: Random) -> Made:
    """Redraw the whole picture as a pencil drawing on white paper."""
    asked = _paints(scene.target, scene.image, by)[0]
    gray = cv2.cvtColor(scene.image, cv2.COLOR_RGB2GRAY)
    blurred = cv2.GaussianBlur(cv2.bitwise_not(gray), (0, 0), max(2.0, 0.012 * max(gray.shape)))
    drawn = np.clip(gray.astype(np.float32) * 256 / np.maximum(1, 256 - blurred.astype(np.float32)), 0, 255)
    made = np.repeat((255 - np.clip((255 - drawn) * 1.8, 0, 235)).astype(np.uint8)[..., None], 3, axis=2)
    far = [np.asarray(cv2.resize(rgb, (32, 24), interpolation=cv2.INTER_AREA), np.uint8) for rgb in (scene.image, made)]
    if float(np.median(np.linalg.norm(to_lab(far[0]) - to_lab(far[1]), axis=2))) < 12:
        raise NotMade("it would hardly show")
    return _made("restyled", scene, by, made, "pencil drawing 2", asked=asked)


_MAKERS: Final[Mapping[Failure, _Maker]] = {
    "flawless": _flawless,
    "wrong_colour": _wrong_colour,
    "wrong_place": _wrong_place,
    "over_modification": _over_modification,
    "no_edit": _no_edit,
    "one_collateral": partial(_collateral, several=False),
    "several_collateral": partial(_collateral, several=True),
    "restyled": _restyled,
}
FAILURES: Final = tuple(_MAKERS)
"""Those that are made."""
