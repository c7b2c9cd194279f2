"""The rules: from what was asked and what was measured to a label, with the numbers that decided it in words.

Thresholds were set on the `dev` family of benchmarks/scenes.py and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from editloupe.baseline.instruction_parser import MATERIALS, Action, Wish
from editloupe.baseline.naming import leading, share_of
from editloupe.baseline.region_features import Look, Pair, Whole
from editloupe.values import Box

FLAWLESS: Final = "Flawless Execution"
OVER: Final = "Over Modification"
WRONG: Final = "Wrong Action"
MISSED: Final = "Localization Failure"
PERFECT: Final = "Perfect Consistency"
SINGLE: Final = "Single Anomaly"
MULTIPLE: Final = "Multiple Anomalies"
COLLAPSE: Final = "Scene Collapse"

FOLLOWING: Final = frozenset((FLAWLESS, OVER, WRONG, MISSED))
CONSISTENCY: Final = frozenset((PERFECT, SINGLE, MULTIPLE, COLLAPSE))

_STEADY: Final = 16.0
"""ΔE below which a thing is still the same thing in another light or softness."""

_BLURRED: Final = 0.6
"""Edge steepness, of what it was, below which a thing lost its sharpness."""

_REDRAWN: Final = 0.15
"""Share of the picture's cells with other edges than before from which on it may be another scene.

Edits of small things stay below 0.09 on `dev`, another scene begins at 0.2, a plain one with few things in it included.
"""

_RANK: Final[Mapping[str, int]] = {FLAWLESS: 3, OVER: 2, WRONG: 1, MISSED: 0}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """A label and why; `label` is None where nothing that was asked can be measured.

    place: the box that it rests on, px of the original image.
    """

    label: str | None
    reason: str
    place: Box | None = None


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What both criteria rest on: the changed places, one a thing, and the picture as a whole."""

    looks: tuple[Look, ...]
    whole: Whole
    size: tuple[int, int]
    crops: Mapping[str, Box] = field(default_factory=dict)

    def at(self, look: Look) -> str:
        """A place in words: its box in thousandths, as in the tools' observations, and the crops that show it."""
        box = f"[{', '.join(map(str, look.box.to_thousandths(width=self.size[0], height=self.size[1])))}]"
        shown = [name for name, seen in self.crops.items() if _inside(seen, look.box)]
        return f"{box} ({', '.join(shown)})" if shown else box


@dataclass(frozen=True, kw_only=True)
class _Target:
    """The place taken for the instruction's target, and what happened there. `looks` are all that belong to it."""

    looks: tuple[Look, ...]
    label: str
    reason: str


def gather(pair: Pair, boxes: Sequence[Box], *, crops: Mapping[str, Box]) -> Evidence:
    """Look at each place; pieces of one thing are taken together, places where nothing visible happened are dropped.

    boxes: px of the original image.   crops: name of a picture that was shown → the box that it is about.
    """
    looks = [pair.look(box) for box in joined(pair, boxes)]
    return Evidence(
        looks=tuple(look for look in looks if not _trivial(look)), whole=pair.whole, size=pair.size, crops=crops
    )


def joined(pair: Pair, boxes: Sequence[Box]) -> list[Box]:
    """Boxes with those merged that lie on one thing: near each other, and joined by what stands out in either image."""
    left = list(boxes)
    limit = 0.2 * min(pair.size)
    done: list[Box] = []
    while left:
        box = left.pop(0)
        for other in [*left, *done]:
            union = box.union(other)
            near = max(union.width, union.height) <= limit and _gap(box, other) <= 0.8 * max(union.width, union.height)
            if near and pair.connected(box, other):
                left = [union, *(b for b in left if b is not other)]
                done = [b for b in done if b is not other]
                break
        else:
            done.append(box)
    return done


# Instruction following -------------------------------------------------------------------------------------------------


def follow(wish: Wish, evidence: Evidence) -> Verdict:
    """The label of Instruction Following."""
    whole = evidence.whole
    if _another_scene(whole):
        return Verdict(label=MISSED, reason=f"{_scene(whole)}: another scene, in which the target is not to be found.")
    if whole.changed > 0.4:
        return Verdict(
            label=MISSED, reason=f"{_scene(whole)}: everything changed, so no edit of the target can be verified."
        )
    if not evidence.looks:
        return Verdict(label=MISSED, reason="No place differs visibly between the two images: the target is unchanged.")
    if wish.action == "unknown":
        return Verdict(label=None, reason="The instruction asks for something that pixels alone cannot confirm.")
    target = find_target(wish, evidence)
    if target is None:
        return Verdict(label=MISSED, reason=_no_target(wish, evidence))
    place = target.looks[0].box if target.looks else None
    if target.label == FLAWLESS and _collapsed(whole):
        return Verdict(
            label=OVER, place=place, reason=f"{target.reason} But {_scene(whole)}: the style changed with the target."
        )
    return Verdict(label=target.label, reason=target.reason, place=place)


def find_target(wish: Wish, evidence: Evidence) -> _Target | None:
    """Of the changed places that can be the target, the one where the edit went best; None where none can be."""
    able = [look for look in evidence.looks if _can_be_target(look, wish, evidence)]
    if wish.action == "text" and wish.of is not None:
        able = [look for look in able if _is_lettering(look, wish.of)] or able
    if wish.action == "count":
        return _counted(wish, able, evidence)
    judged = [(look, *_RULES[wish.action](look, wish)) for look in able]
    # The first of the best: places come strongest first.
    best = max(judged, key=lambda j: _RANK[j[1]], default=None)
    if best is None or (best[1] == MISSED and best[0].steady >= _STEADY):
        return None
    look, label, why = best
    return _Target(looks=(look,), label=label, reason=f"The place {evidence.at(look)} {_matches(wish)}. {why}")


def _can_be_target(look: Look, wish: Wish, evidence: Evidence) -> bool:
    """Colour before the edit and place in the picture, as far as the instruction names them."""
    if look.appeared and wish.action not in ("add", "count"):
        return False
    if wish.action in ("add", "count") and look.appeared:
        colour, name = look.after, wish.of or wish.to
    else:
        colour, name = look.before, wish.of
    seen = name is None or _has(colour, name)
    if wish.action == "text" and name is not None:
        seen = seen or _is_lettering(look, name)
    return seen and _in_place(look, wish, evidence)


def _has(colours: Mapping[str, float], name: str) -> bool:
    """Neighbouring shades support a name; they do not make it."""
    return colours.get(name, 0.0) >= 0.15 and share_of(colours, name) >= 0.35


def _is_lettering(look: Look, name: str) -> bool:
    """Letters change inside a board, so the board's colour lies around the place."""
    return _has(look.around, name)


def _in_place(look: Look, wish: Wish, evidence: Evidence) -> bool:
    (cx, cy), (width, height) = look.box.center, evidence.size
    x, y = cx / width, cy / height
    holds = {
        "left": x < 0.5, "right": x > 0.5, "top": y < 0.5, "bottom": y > 0.5,
        "middle": 0.2 < x < 0.8 and 0.2 < y < 0.8,
    }  # fmt: skip
    return all(holds[place] for place in wish.places)


# One rule a kind of edit: (label, why) for a place that can be the target


def _colour(look: Look, wish: Wish) -> tuple[str, str]:
    if look.vanished:
        return WRONG, f"{_gone(look)}: removed instead of recoloured."
    asked = wish.to or ""
    share = share_of(look.after, asked) if asked else float(look.shift >= 15)
    if asked and share < 0.4:
        if look.shift < 12 or look.steady < _STEADY:
            return MISSED, f"Its colour hardly moved ({_moved(look)}; typical pixel ΔE {look.steady:.0f})."
        return WRONG, f"It is now {leading(look.after)} and not {asked} ({_moved(look)})."
    if look.shift < 8:
        return MISSED, f"Its colour hardly moved ({_moved(look)})."
    right = f"It has the asked colour ({_moved(look)}; {share:.0%} of it goes by {asked or 'another name than before'})"
    return _kept(look, right)


def _material(look: Look, wish: Wish) -> tuple[str, str]:
    if look.vanished:
        return WRONG, f"{_gone(look)}: removed instead of given another material."
    looks_like = MATERIALS.get(wish.material or "", ())
    share = sum(look.after.get(name, 0.0) for name in looks_like)
    if looks_like and share < 0.5:
        return (
            WRONG,
            f"It is now {leading(look.after)}; {wish.material} would be {' or '.join(looks_like)} ({_moved(look)}).",
        )
    right = f"Its surface changed, with colours that {wish.material or 'the asked material'} can have ({_moved(look)})"
    return _kept(look, right, texture_may_change=True)


def _text(look: Look, wish: Wish) -> tuple[str, str]:
    if look.vanished:
        return WRONG, f"{_gone(look)}: the writing was erased."
    recoloured = look.shift >= 15 and look.size_before > 0.6 and look.size_after > 0.6
    if recoloured and look.inner > 0.7:
        return WRONG, f"The board changed its colour ({_moved(look)}) and the writing stayed (r = {look.inner:.2f})."
    if recoloured:
        return OVER, f"The writing changed (r = {look.inner:.2f}), and the board's colour with it ({_moved(look)})."
    if look.sharpness < 0.35:
        return WRONG, f"The strokes are gone ({look.sharpness:.2f} of the old sharpness), and none stand there now."
    if look.edges > 0.8:
        return MISSED, f"The strokes of the writing are where they were (r = {look.edges:.2f})."
    if look.size_before > 0.6 and look.outline < 0.92:
        return OVER, f"The writing changed, and the board's outline with it (cover {look.outline:.2f})."
    return FLAWLESS, (
        f"The strokes changed (r = {look.edges:.2f}) on an unchanged ground. What they read now is left to others: "
        "a pixel baseline cannot read."
    )


def _shape(look: Look, wish: Wish) -> tuple[str, str]:
    if look.vanished:
        return WRONG, f"{_gone(look)}: removed instead of reshaped."
    if look.edges > 0.6 and look.outline > 0.9:
        if look.steady < _STEADY:
            return MISSED, f"Outline and colour are as before (cover {look.outline:.2f}, r = {look.edges:.2f})."
        return WRONG, f"Its outline stayed (cover {look.outline:.2f}); what changed is the colour ({_moved(look)})."
    known = wish.outline in ("round", "square", "triangle", "star")
    right = f"Its outline changed from {look.form_before} to {look.form_after} (cover {look.outline:.2f})"
    if look.sharpness < _BLURRED - 0.05:
        return OVER, f"{right}, but it lost its sharpness ({look.sharpness:.2f} of what it was)."
    if known and look.form_after != wish.outline and look.form_after != "other":
        return WRONG, f"Its outline is now {look.form_after} and not {wish.outline}."
    if look.steady >= 1.25 * _STEADY:
        return OVER, f"{right}, and its colour too (typical pixel ΔE {look.steady:.0f})."
    return FLAWLESS, f"{right}; its colour stayed (typical pixel ΔE {look.steady:.0f})."


def _remove(look: Look, wish: Wish) -> tuple[str, str]:
    if look.vanished:
        return FLAWLESS, f"{_gone(look)}, and the place looks like its surroundings."
    return (
        WRONG,
        f"Something still stands out there ({look.size_after:.0%} of the box): changed, not removed ({_moved(look)}).",
    )


def _replace(look: Look, wish: Wish) -> tuple[str, str]:
    if look.vanished:
        return WRONG, f"{_gone(look)}, and nothing stands there now: removed, not replaced."
    if look.edges > 0.6 and look.outline > 0.9:
        return WRONG, f"It has its old outline (cover {look.outline:.2f}, r = {look.edges:.2f}): recoloured, not replaced."
    if wish.to is not None and share_of(look.after, wish.to) < 0.35:
        return WRONG, f"What stands there now is {leading(look.after)} and not {wish.to}."
    right = f"Something with another outline stands there (cover {look.outline:.2f}, r = {look.edges:.2f})"
    if look.sharpness < 0.55:
        return OVER, f"{right}, but blurred ({look.sharpness:.2f} of the old sharpness): not clearly recognisable."
    return FLAWLESS, f"{right}. Whether it is the asked kind of thing is left to others."


def _add(look: Look, wish: Wish) -> tuple[str, str]:
    if look.appeared:
        return FLAWLESS, f"Something new stands there ({leading(look.after)})."
    return WRONG, "Something that was there changed; nothing was added."


_RULES: Final[Mapping[Action, Callable[[Look, Wish], tuple[str, str]]]] = {
    "colour": _colour, "material": _material, "text": _text, "shape": _shape, "remove": _remove, "replace": _replace,
    "add": _add,
}  # fmt: skip


def _kept(look: Look, right: str, *, texture_may_change: bool = False) -> tuple[str, str]:
    """The part that colour and material share: the action is right; were outline, sharpness and details kept?"""
    if look.outline < (0.8 if texture_may_change else 0.88):
        return OVER, f"{right}, but its outline did not stay (cover {look.outline:.2f})."
    if look.sharpness < _BLURRED:
        return OVER, f"{right}, but it lost its sharpness ({look.sharpness:.2f} of what it was)."
    if look.edges < (0.3 if texture_may_change else 0.5):
        return OVER, f"{right}, but its structure did not stay (edges correlate by {look.edges:.2f})."
    if not texture_may_change and look.inner < 0.45:
        return OVER, f"{right}, but its details did not stay (edges inside it correlate by {look.inner:.2f})."
    return FLAWLESS, f"{right}; outline and structure stayed (cover {look.outline:.2f}, r = {look.edges:.2f})."


def _counted(wish: Wish, able: Sequence[Look], evidence: Evidence) -> _Target | None:
    """The rule for counts: how many places of the named colour were emptied or filled."""
    gone, new = [look for look in able if look.vanished], [look for look in able if look.appeared]
    other = [look for look in able if not look.vanished and not look.appeared]
    if gone or new:
        # One of the group looks like the others in size; a thing of another size is a bystander of the same colour.
        usual = [median(sides) for sides in zip(*map(_sides, (*gone, *new)), strict=True)]
        other = [
            look for look in other if all(0.75 < side / of < 1.34 for side, of in zip(_sides(look), usual, strict=True))
        ]
    elif len(other) < 2:
        # A single thing of that colour that changed in place says nothing about a number.
        return None
    group = (*gone, *new, *other)
    made = len(new) - len(gone)
    facts = f"{len(gone)} gone, {len(new)} new, {len(other)} changed in place: {', '.join(map(evidence.at, group))}."
    if wish.change is None:
        label = FLAWLESS if made else WRONG
        return _Target(looks=group, label=label, reason=f"{facts} The asked number could not be read.")
    if made != wish.change:
        return _Target(looks=group, label=WRONG, reason=f"{facts} Asked was {wish.change:+d}, made was {made:+d}.")
    label = OVER if other else FLAWLESS
    return _Target(looks=group, label=label, reason=f"{facts} The number changed by {made:+d} as asked.")


def _sides(look: Look) -> tuple[float, float]:
    return look.box.width, look.box.height


# Visual consistency ----------------------------------------------------------------------------------------------------


def consist(wish: Wish, evidence: Evidence) -> Verdict:
    """The label of Visual Consistency."""
    whole = evidence.whole
    if _collapsed(whole):
        return Verdict(label=COLLAPSE, reason=f"{_scene(whole)}: another scene or another style.")
    target = None if wish.action == "unknown" else find_target(wish, evidence)
    mine = () if target is None else target.looks
    strays = [look for look in evidence.looks if look not in mine]
    said = "No changed place can be the target." if target is None else f"Target: {', '.join(map(evidence.at, mine))}."
    if not strays:
        return Verdict(label=PERFECT, reason=f"{said} Nothing else changed visibly; {_scene(whole)}.")
    listed = "; ".join(f"{evidence.at(look)} {_what(look)}" for look in strays)
    label = SINGLE if len(strays) == 1 else MULTIPLE
    return Verdict(
        label=label, reason=f"{said} {len(strays)} other {_places(len(strays))} changed: {listed}.", place=strays[0].box
    )


def _another_scene(whole: Whole) -> bool:
    """Other structure, and all across: on a plain ground one thing removed leaves no structure to correlate."""
    return whole.structure < 0.5 and whole.redrawn >= _REDRAWN


def _collapsed(whole: Whole) -> bool:
    """Another scene (structure), everything redrawn (changed), another medium (texture), or other colours throughout."""
    return (
        _another_scene(whole)
        or (whole.changed > 0.4 and whole.structure < 0.85)
        or whole.texture > 0.2
        or whole.colour > 0.35
        or whole.palette < 0.8
    )


# Words -------------------------------------------------------------------------------------------------------------------


def _trivial(look: Look) -> bool:
    """Nothing that a person would call a change: the same silhouette, colour and edges."""
    return look.outline > 0.85 and look.shift < 9 and look.edges > 0.85


def _scene(whole: Whole) -> str:
    return (
        f"structure of the whole correlates by {whole.structure:.2f}, {whole.redrawn:.0%} of the cells have other "
        f"edges, palettes overlap by {whole.palette:.2f}, "
        f"{whole.changed:.0%} of the pixels differ, {whole.texture:.0%} of the cells have another texture"
    )


def _matches(wish: Wish) -> str:
    named = [f"was {wish.of}"] if wish.of else []
    named += [f"lies at the {' '.join(wish.places)}"] if wish.places else []
    return f"can be the target: it {' and '.join(named)}" if named else (
        "is taken for the target: the instruction names neither colour nor place"
    )  # fmt: skip


def _no_target(wish: Wish, evidence: Evidence) -> str:
    seen = "; ".join(f"{evidence.at(look)} {_what(look)}" for look in evidence.looks)
    named = " ".join(filter(None, (wish.of, *wish.places))) or "the target"
    return f"None of the changed places is {named} with the asked kind of change: {seen}."


def _what(look: Look) -> str:
    if look.vanished:
        return f"lost something {leading(look.before)}"
    if look.appeared:
        return f"got something {leading(look.after)}"
    return f"{_moved(look)}, cover {look.outline:.2f}"


def _gone(look: Look) -> str:
    return f"What stood out there ({leading(look.before)}, {look.size_before:.0%} of the box) is gone"


def _moved(look: Look) -> str:
    return f"{leading(look.before)} to {leading(look.after)}, ΔE {look.shift:.0f}"


def _places(count: int) -> str:
    return "place" if count == 1 else "places"


def _inside(part: Box, whole: Box) -> bool:
    common = part.intersection(whole)
    return common is not None and common.area >= 0.5 * part.area


def _gap(a: Box, b: Box) -> float:
    return max(a.x0 - b.x1, b.x0 - a.x1, a.y0 - b.y1, b.y0 - a.y1, 0.0)
