"""The rules: from what was asked and what was measured to a label. The reason names the numbers that decided it.

Thresholds were set on the `dev` family of benchmarks/scenes.py and on nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from editloupe.baseline.instruction_parser import MATERIALS, Action, ParsedInstruction
from editloupe.baseline.naming import leading, share_of
from editloupe.baseline.region_features import ImageFeatures, ImagePair, RegionFeatures
from editloupe.imaging.differences import LEAST_COMPARED_PX
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
"""Share of its old edge steepness below which a thing lost its sharpness."""
_REDRAWN: Final = 0.15
"""Share of the picture's cells with other edges than before; from this share on it may be another scene.

Edits of small things stay below 0.09 on `dev`, another scene begins at 0.2, a plain one with few things in it included.
"""
_INVERTED: Final = 0.35
"""Share of the picture's cells with inverted edges above which it is another picture. Edits stay below 0.1 on `dev`."""
_RANK: Final[Mapping[str, int]] = {FLAWLESS: 3, OVER: 2, WRONG: 1, MISSED: 0}


@dataclass(frozen=True, kw_only=True)
class PixelVerdict:
    """A label and the reason for it."""

    label: str | None
    """None where nothing that was asked can be measured."""
    reason: str
    regions: tuple[RegionFeatures, ...] = ()
    """What decided it: the target, or what changed beside it."""

    @property
    def place(self) -> Box | None:
        """The box that decided it, in px of the original image."""
        return self.regions[0].box if self.regions else None


@dataclass(frozen=True, kw_only=True)
class Measurements:
    """What both criteria are judged by."""

    regions: tuple[RegionFeatures, ...]
    """The changed regions, one for each thing, strongest first."""
    whole: ImageFeatures
    size: tuple[int, int]
    """(width, height) of the original image in px."""
    crops: Mapping[str, Box] = field(default_factory=dict)
    """Name of a picture that was shown → the box that it is about."""
    marked: tuple[Box, ...] = ()
    """Where the images, which are crops, mark the targets; () for whole images."""
    covered: bool = False
    """True where the targets lie under masks, so that no region can be one."""

    def at(self, region: RegionFeatures) -> str:
        """Return a region in words: its box in thousandths, as in the tools' observations, and the crops that show it."""
        box = f"[{', '.join(map(str, region.box.to_thousandths(width=self.size[0], height=self.size[1])))}]"
        common = {name: seen.intersection(region.box) for name, seen in self.crops.items()}
        shown = [name for name, part in common.items() if part is not None and part.area >= 0.5 * self.crops[name].area]
        return f"{box} ({', '.join(shown)})" if shown else box


def measure(
    pair: ImagePair,
    boxes: Sequence[Box],
    *,
    crops: Mapping[str, Box],
    marked: Sequence[Box] = (),
    covered: bool = False,
) -> Measurements:
    """Measure each box. Pieces of one thing are taken together; regions where nothing visible happened are dropped.

    boxes: px of the original image. crops, marked, covered: as `Measurements` has them.
    """
    regions = [pair.features(box) for box in joined(pair, boxes)]
    # The same silhouette, colour and edges: no person would call it a change.
    changed = tuple(r for r in regions if r.outline <= 0.85 or r.shift >= 9 or r.edges <= 0.85)
    return Measurements(
        regions=changed, whole=pair.whole, size=pair.size, crops=crops, marked=tuple(marked), covered=covered
    )


def joined(pair: ImagePair, boxes: Sequence[Box]) -> list[Box]:
    """Return the boxes, with those merged that lie on one thing.

    Two boxes lie on one thing where they are near each other and joined by what stands out in either image.
    """
    left = list(boxes)
    limit = 0.2 * min(pair.size)
    done: list[Box] = []
    while left:
        box = left.pop(0)
        for other in [*left, *done]:
            union = box.union(other)
            size = max(union.width, union.height)
            gap = max(box.x0 - other.x1, other.x0 - box.x1, box.y0 - other.y1, other.y0 - box.y1, 0.0)
            if size <= limit and gap <= 0.8 * size and pair.connected(box, other):
                left = [union, *(b for b in left if b is not other)]
                done = [b for b in done if b is not other]
                break
        else:
            done.append(box)
    return done


# Instruction following -------------------------------------------------------------------------------------------------


def follow(instruction: ParsedInstruction, measured: Measurements) -> PixelVerdict:
    """Return the verdict on Instruction Following."""
    whole = measured.whole
    if _another_scene(whole):
        return PixelVerdict(label=MISSED, reason=f"{_scene(whole)}: another scene, in which the target is not to be found.")
    if whole.changed > 0.4:
        reason = f"{_scene(whole)}: everything changed, so no edit of the target can be verified."
        return PixelVerdict(label=MISSED, reason=reason)
    if not measured.regions:
        return PixelVerdict(
            label=MISSED, reason="No place differs visibly between the two images: the target is unchanged."
        )
    if instruction.action == "unknown":
        return PixelVerdict(label=None, reason="The instruction asks for something that pixels alone cannot confirm.")
    target = find_target(instruction, measured)
    if target is None:
        seen = "; ".join(f"{measured.at(region)} {_what(region)}" for region in measured.regions)
        named = " ".join(filter(None, (instruction.of, *instruction.places))) or "the target"
        reason = f"None of the changed places is {named} with the asked kind of change: {seen}."
        return PixelVerdict(label=MISSED, reason=reason)
    if target.label == FLAWLESS and _collapsed(whole):
        reason = f"{target.reason} But {_scene(whole)}: the style changed with the target."
        return replace(target, label=OVER, reason=reason)
    return target


def find_target(instruction: ParsedInstruction, measured: Measurements) -> PixelVerdict | None:
    """Return the label that the target alone gets: the changed region where the edit went best of those that can be it.

    None where no region can be the target.
    """
    able = [region for region in measured.regions if _can_be_target(region, instruction, measured)]
    if instruction.action == "text" and instruction.of is not None:
        able = [region for region in able if _is_lettering(region, instruction.of)] or able
    if instruction.action == "count":
        return _counted(instruction, able, measured)
    judged = [(region, *_RULES[instruction.action](region, instruction)) for region in able]
    # The first of the best: places come strongest first.
    best = max(judged, key=lambda j: _RANK[j[1]], default=None)
    if best is None or (best[1] == MISSED and best[0].steady >= _STEADY):
        return None
    region, label, reason = best
    named = [f"was {instruction.of}"] if instruction.of else []
    named += [f"lies at the {' '.join(instruction.places)}"] if instruction.places else []
    why = "is taken for the target: the instruction names neither colour nor place"
    if named:
        why = f"can be the target: it {' and '.join(named)}"
    return PixelVerdict(regions=(region,), label=label, reason=f"The place {measured.at(region)} {why}. {reason}")


def _can_be_target(region: RegionFeatures, instruction: ParsedInstruction, measured: Measurements) -> bool:
    """Return True if the region has the colour that the instruction names, if any, and the target's place.

    That is the marked place, or in whole images the one that the instruction names. Where a number changes, all of a crop
    counts.
    """
    if region.appeared and instruction.action not in ("add", "count"):
        return False
    if instruction.action in ("add", "count") and region.appeared:
        colour, name = region.after, instruction.of or instruction.to
    else:
        colour, name = region.before, instruction.of
    seen = name is None or _has(colour, name)
    if instruction.action == "text" and name is not None:
        seen = seen or _is_lettering(region, name)
    if measured.marked:
        return seen and (instruction.action == "count" or any(box.intersection(region.box) for box in measured.marked))
    x, y = (c / side for c, side in zip(region.box.center, measured.size, strict=True))
    holds = {
        "left": x < 0.5, "right": x > 0.5, "top": y < 0.5, "bottom": y > 0.5,
        "middle": 0.2 < x < 0.8 and 0.2 < y < 0.8,
    }  # fmt: skip
    return seen and all(holds[place] for place in instruction.places)


def _has(colours: Mapping[str, float], name: str) -> bool:
    """Return True if the colours have this name. Neighbouring shades support it; they are not enough alone."""
    return colours.get(name, 0.0) >= 0.15 and share_of(colours, name) >= 0.35


def _is_lettering(region: RegionFeatures, name: str) -> bool:
    """Return True if the region may be letters on a board of this colour: the board's colour lies around it."""
    return _has(region.around, name)


# One rule for each kind of edit: (label, reason) for a region that can be the target


def _colour(region: RegionFeatures, instruction: ParsedInstruction) -> tuple[str, str]:
    if region.vanished:
        return WRONG, f"{_gone(region)}: removed instead of recoloured."
    asked = instruction.to or ""
    share = share_of(region.after, asked) if asked else float(region.shift >= 15)
    if asked and share < 0.4:
        if region.shift < 12 or region.steady < _STEADY:
            return MISSED, f"Its colour hardly moved ({_moved(region)}; typical pixel ΔE {region.steady:.0f})."
        return WRONG, f"It is now {leading(region.after)} and not {asked} ({_moved(region)})."
    if region.shift < 8:
        return MISSED, f"Its colour hardly moved ({_moved(region)})."
    right = f"It has the asked colour ({_moved(region)}; {share:.0%} of it goes by {asked or 'another name than before'})"
    return _kept(region, right)


def _material(region: RegionFeatures, instruction: ParsedInstruction) -> tuple[str, str]:
    if region.vanished:
        return WRONG, f"{_gone(region)}: removed instead of given another material."
    looks_like = MATERIALS.get(instruction.material or "", ())
    share = sum(region.after.get(name, 0.0) for name in looks_like)
    if looks_like and share < 0.5:
        usual = f"{instruction.material} would be {' or '.join(looks_like)}"
        return WRONG, f"It is now {leading(region.after)}; {usual} ({_moved(region)})."
    material = instruction.material or "the asked material"
    right = f"Its surface changed, with colours that {material} can have ({_moved(region)})"
    return _kept(region, right, texture_may_change=True)


def _text(region: RegionFeatures, instruction: ParsedInstruction) -> tuple[str, str]:
    if region.vanished:
        return WRONG, f"{_gone(region)}: the writing was erased."
    recoloured = region.shift >= 15 and region.size_before > 0.6 and region.size_after > 0.6
    if recoloured and region.inner > 0.7:
        return WRONG, f"The board changed its colour ({_moved(region)}) and the writing stayed (r = {region.inner:.2f})."
    if recoloured:
        return OVER, f"The writing changed (r = {region.inner:.2f}), and the board's colour with it ({_moved(region)})."
    if region.sharpness < 0.35:
        return WRONG, f"The strokes are gone ({region.sharpness:.2f} of the old sharpness), and none stand there now."
    if region.edges > 0.8:
        return MISSED, f"The strokes of the writing are where they were (r = {region.edges:.2f})."
    if region.size_before > 0.6 and region.outline < 0.92:
        return OVER, f"The writing changed, and the board's outline with it (cover {region.outline:.2f})."
    return FLAWLESS, (
        f"The strokes changed (r = {region.edges:.2f}) on an unchanged ground. What they read now is left to others: "
        "a pixel baseline cannot read."
    )


def _shape(region: RegionFeatures, instruction: ParsedInstruction) -> tuple[str, str]:
    if region.vanished:
        return WRONG, f"{_gone(region)}: removed instead of reshaped."
    if region.edges > 0.6 and region.outline > 0.9:
        if region.steady < _STEADY:
            return MISSED, f"Outline and colour are as before (cover {region.outline:.2f}, r = {region.edges:.2f})."
        return WRONG, f"Its outline stayed (cover {region.outline:.2f}); what changed is the colour ({_moved(region)})."
    known = instruction.outline in ("round", "square", "triangle", "star")
    right = f"Its outline changed from {region.form_before} to {region.form_after} (cover {region.outline:.2f})"
    if region.sharpness < _BLURRED - 0.05:
        return OVER, f"{right}, but it lost its sharpness ({region.sharpness:.2f} of what it was)."
    if known and region.form_after != instruction.outline and region.form_after != "other":
        return WRONG, f"Its outline is now {region.form_after} and not {instruction.outline}."
    if region.steady >= 1.25 * _STEADY:
        return OVER, f"{right}, and its colour too (typical pixel ΔE {region.steady:.0f})."
    return FLAWLESS, f"{right}; its colour stayed (typical pixel ΔE {region.steady:.0f})."


def _remove(region: RegionFeatures, instruction: ParsedInstruction) -> tuple[str, str]:
    if region.vanished:
        return FLAWLESS, f"{_gone(region)}, and the place looks like its surroundings."
    rest = f"Something still stands out there ({region.size_after:.0%} of the box)"
    return WRONG, f"{rest}: changed, not removed ({_moved(region)})."


def _replace(region: RegionFeatures, instruction: ParsedInstruction) -> tuple[str, str]:
    if region.vanished:
        return WRONG, f"{_gone(region)}, and nothing stands there now: removed, not replaced."
    if region.edges > 0.6 and region.outline > 0.9:
        kept = f"It has its old outline (cover {region.outline:.2f}, r = {region.edges:.2f})"
        return WRONG, f"{kept}: recoloured, not replaced."
    if instruction.to is not None and share_of(region.after, instruction.to) < 0.35:
        return WRONG, f"What stands there now is {leading(region.after)} and not {instruction.to}."
    right = f"Something with another outline stands there (cover {region.outline:.2f}, r = {region.edges:.2f})"
    if region.sharpness < 0.55:
        return OVER, f"{right}, but blurred ({region.sharpness:.2f} of the old sharpness): not clearly recognisable."
    return FLAWLESS, f"{right}. Whether it is the asked kind of thing is left to others."


def _add(region: RegionFeatures, instruction: ParsedInstruction) -> tuple[str, str]:
    if region.appeared:
        return FLAWLESS, f"Something new stands there ({leading(region.after)})."
    return WRONG, "Something that was there changed; nothing was added."


_RULES: Final[Mapping[Action, Callable[[RegionFeatures, ParsedInstruction], tuple[str, str]]]] = {
    "colour": _colour, "material": _material, "text": _text, "shape": _shape, "remove": _remove, "replace": _replace,
    "add": _add,
}  # fmt: skip


def _kept(region: RegionFeatures, right: str, *, texture_may_change: bool = False) -> tuple[str, str]:
    """Return the label where colour or material is right, by whether outline, sharpness and details were kept."""
    if region.outline < (0.8 if texture_may_change else 0.88):
        return OVER, f"{right}, but its outline did not stay (cover {region.outline:.2f})."
    if region.sharpness < _BLURRED:
        return OVER, f"{right}, but it lost its sharpness ({region.sharpness:.2f} of what it was)."
    if region.edges < (0.3 if texture_may_change else 0.5):
        return OVER, f"{right}, but its structure did not stay (edges correlate by {region.edges:.2f})."
    if not texture_may_change and region.inner < 0.45:
        return OVER, f"{right}, but its details did not stay (edges inside it correlate by {region.inner:.2f})."
    return FLAWLESS, f"{right}; outline and structure stayed (cover {region.outline:.2f}, r = {region.edges:.2f})."


def _counted(instruction: ParsedInstruction, able: Sequence[RegionFeatures], measured: Measurements) -> PixelVerdict | None:
    """Return the target by the rule for counts: how many regions of the named colour were emptied or filled."""
    gone, new = [region for region in able if region.vanished], [region for region in able if region.appeared]
    other = [region for region in able if not region.vanished and not region.appeared]
    if gone or new:
        # One of the group looks like the others in size; a thing of another size only has the same colour.
        usual = [median(sides) for sides in zip(*map(_sides, (*gone, *new)), strict=True)]
        other = [r for r in other if all(0.75 < side / of < 1.34 for side, of in zip(_sides(r), usual, strict=True))]
    elif len(other) < 2:
        # A single thing of that colour that changed in place says nothing about a number.
        return None
    group = (*gone, *new, *other)
    made = len(new) - len(gone)
    facts = f"{len(gone)} gone, {len(new)} new, {len(other)} changed in place: {', '.join(map(measured.at, group))}."
    if instruction.change is None:
        label, number = FLAWLESS if made else WRONG, "The asked number could not be read."
    elif made != instruction.change:
        label, number = WRONG, f"Asked was {instruction.change:+d}, made was {made:+d}."
    else:
        label, number = OVER if other else FLAWLESS, f"The number changed by {made:+d} as asked."
    return PixelVerdict(regions=group, label=label, reason=f"{facts} {number}")


def _sides(region: RegionFeatures) -> tuple[float, float]:
    return region.box.width, region.box.height


# Visual consistency ----------------------------------------------------------------------------------------------------


def consist(instruction: ParsedInstruction, measured: Measurements) -> PixelVerdict:
    """Return the verdict on Visual Consistency."""
    whole = measured.whole
    if whole.compared_px < LEAST_COMPARED_PX:
        left = f"The masks and their rims leave {whole.compared_px:.0f} px² to compare"
        return PixelVerdict(label=None, reason=f"{left}; a verdict needs {LEAST_COMPARED_PX:.0f}.")
    if _collapsed(whole):
        return PixelVerdict(label=COLLAPSE, reason=f"{_scene(whole)}: another scene or another style.")
    unknown = instruction.action == "unknown" and not measured.covered
    if unknown and measured.regions:
        # What was asked for would be called an anomaly.
        reason = "The instruction was not understood, so that no changed place can be told from the one it asks for."
        return PixelVerdict(label=None, reason=reason)
    target = None if unknown or measured.covered else find_target(instruction, measured)
    mine = () if target is None else target.regions
    strays = tuple(region for region in measured.regions if region not in mine)
    lead = "No changed place can be the target." if target is None else f"Target: {', '.join(map(measured.at, mine))}."
    lead = "The target is covered." if measured.covered else lead
    if not strays:
        return PixelVerdict(label=PERFECT, reason=f"{lead} Nothing else changed visibly; {_scene(whole)}.")
    listed = "; ".join(f"{measured.at(region)} {_what(region)}" for region in strays)
    label = SINGLE if len(strays) == 1 else MULTIPLE
    places = "1 other place" if len(strays) == 1 else f"{len(strays)} other places"
    return PixelVerdict(label=label, reason=f"{lead} {places} changed: {listed}.", regions=strays)


def _another_scene(whole: ImageFeatures) -> bool:
    """Return True if the structure is another one, all across the picture.

    On a plain ground one thing removed leaves no structure to correlate, so the correlation alone does not decide.
    """
    return whole.structure < 0.5 and whole.redrawn >= _REDRAWN


def _collapsed(whole: ImageFeatures) -> bool:
    """Return True for another scene, everything redrawn, another medium (texture), a negative, or other colours."""
    return (
        _another_scene(whole)
        or (whole.changed > 0.4 and whole.structure < 0.85)
        or whole.texture > 0.2
        or whole.colour > 0.35
        or whole.inverted > _INVERTED
        or whole.palette < 0.8
    )


# Words -------------------------------------------------------------------------------------------------------------------


def _scene(whole: ImageFeatures) -> str:
    return (
        f"structure of the whole correlates by {whole.structure:.2f}, {whole.redrawn:.0%} of the cells have other "
        f"edges, palettes overlap by {whole.palette:.2f}, "
        f"{whole.changed:.0%} of the pixels differ, {whole.texture:.0%} of the cells have another texture"
        + (f", {whole.inverted:.0%} have their edges inverted" if whole.inverted > _INVERTED else "")
    )


def _what(region: RegionFeatures) -> str:
    if region.vanished:
        return f"lost something {leading(region.before)}"
    if region.appeared:
        return f"got something {leading(region.after)}"
    return f"{_moved(region)}, cover {region.outline:.2f}"


def _gone(region: RegionFeatures) -> str:
    return f"What stood out there ({leading(region.before)}, {region.size_before:.0%} of the box) is gone"


def _moved(region: RegionFeatures) -> str:
    return f"{leading(region.before)} to {leading(region.after)}, ΔE {region.shift:.0f}"
