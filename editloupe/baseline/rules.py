"""The rules: from what was asked and what was measured to a label. The reason names the numbers that decided it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from editloupe.baseline.reading import Asked
from editloupe.imaging.color_names import CLEAR_NAMES, Lab, leading, share_of, shares
from editloupe.imaging.differences import LARGE_SHARE, LEAST_COMPARED_PX, Differences
from editloupe.imaging.standing import ChangedPlace, Mask, grown

FOLLOWING: Final = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
CONSISTENCY: Final = ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency")
MISSED, WRONG, OVER, FLAWLESS = FOLLOWING
COLLAPSE, MULTIPLE, SINGLE, PERFECT = CONSISTENCY
UNSURE: Final = ""
# Share of its box that an upright outline fills.
_FILLED: Final = {"triang": (0.35, 0.64), "round": (0.7, 0.85), "square": (0.88, 1.0)}


class Ruling(NamedTuple):
    """A label or UNSURE, the reason, and the places that decided it: the target, or what changed beside it."""

    label: str
    reason: str
    places: tuple[ChangedPlace, ...] = ()


class Changes(NamedTuple):
    """What both criteria are judged by."""

    found: Differences
    places: tuple[ChangedPlace, ...]
    """The places that changed, strongest first."""
    crops: Mapping[str, str]
    """A box in thousandths, as a text → the crop that shows it."""
    covered: bool
    """True where the targets lie under masks, so that no place can be one."""

    @property
    def redrawn(self) -> bool:
        """True for another scene or another style."""
        return self.found.regenerated or self.found.changed_share > LARGE_SHARE

    def named(self, *places: ChangedPlace) -> str:
        """Return places in words: the box in thousandths, the crop that shows it, and what happened there."""
        width, height, said = *self.found.alignment.size_1, []
        for one in places:
            box = str(list(one.box.to_thousandths(width=width, height=height)))
            colors = " to ".join(leading(shares(pixels)) for pixels in one.core)
            shown = f"{self.crops[box]}, {colors}" if box in self.crops else colors
            said.append(f"{box} ({shown}, ΔE {one.shift:.0f}, cover {one.cover:.2f}, r = {one.edges:.2f})")
        return "; ".join(said) or "none"


def follow(asked: Asked, seen: Changes) -> Ruling:
    """Return the verdict on Instruction Following."""
    if not seen.places and not seen.redrawn:
        return Ruling(MISSED, "No place differs visibly between the two images: the target is unchanged.")
    if seen.redrawn:
        label = MISSED if seen.found.changed_share > 2 * LARGE_SHARE and not asked.unread else UNSURE
        return Ruling(label, f"{seen.found.changed_share:.0%} of the picture differ clearly, which hides the target.")
    one = seen.places[0]
    if not asked.of and not asked.located and {"remove": one.vanished, "add": one.appeared}.get(asked.kind):
        return Ruling(FLAWLESS, f"What changed most is as asked, gone or new: {seen.named(one)}.", (one,))
    return _target(asked, seen)


def consist(asked: Asked, seen: Changes) -> Ruling:
    """Return the verdict on Visual Consistency."""
    if seen.found.compared_px < LEAST_COMPARED_PX and not seen.found.identical:
        return Ruling(UNSURE, f"The masks leave {seen.found.compared_px:.0f} px² to compare.")
    if seen.redrawn and not asked.unread:
        return Ruling(COLLAPSE, f"{seen.found.changed_share:.0%} of the picture differ clearly: another scene or style.")
    target = Ruling(MISSED, "") if seen.covered or not seen.places else _target(asked, seen)
    if not target.label and not target.places:
        # What was asked for would be called an anomaly.
        return target
    strays = tuple(one for one in seen.places if one not in target.places)
    label = (PERFECT, SINGLE, MULTIPLE)[min(2, len(strays))]
    return Ruling(label, f"Target: {seen.named(*target.places)}. Other places: {seen.named(*strays)}.", strays)


def _target(asked: Asked, seen: Changes) -> Ruling:
    """Return the verdict on the place where the edit went best of those that can be the target."""
    if asked.unread:
        return Ruling(UNSURE, asked.unread)
    able = tuple(one for one in seen.places if _can_be(one, asked))
    if not able:
        clear = all(_clearly_not(shares(one.core[0]), asked.of) for one in seen.places)
        return Ruling(MISSED if clear else UNSURE, f"No changed place was {asked.of}: {seen.named(*seen.places)}.")
    if asked.kind == "count":
        made = sum(one.appeared - one.vanished for one in able)
        label = FLAWLESS if made == asked.change else WRONG
        label = label if all(one.appeared or one.vanished for one in able) else UNSURE
        return Ruling(label, f"Asked was {asked.change:+d}, made was {made:+d}: {seen.named(*able)}.", able)
    judged = [(_judged(asked, one), one) for one in able]
    (label, reason), best = min(judged, key=lambda one: (FLAWLESS, OVER, UNSURE, WRONG).index(one[0][0]))
    return Ruling(label, f"Target: {seen.named(best)}. {reason}", (best,))


def _can_be(one: ChangedPlace, asked: Asked) -> bool:
    """Return True if the place has the color that the instruction names."""
    new = one.appeared and asked.kind in ("add", "count")
    pixels = one.core[1] if new else one.core[0]
    if asked.kind == "text":
        pixels = one.before[grown(one.changed, 4) & ~grown(one.changed, 1)]
    return (new or not one.appeared) and _is(shares(pixels), asked.of)


def _is(colors: Mapping[str, float], name: str) -> bool:
    """Return True if the colors have this name. Neighboring shades support it; they are not enough alone."""
    return colors.get(name, 0.0) >= 0.15 and share_of(colors, name) >= 0.35


def _clearly_not(colors: Mapping[str, float], name: str) -> bool:
    """Return True if nobody would call it so: it has one clear color, and no shade of a neighbor."""
    return leading(colors) in CLEAR_NAMES and colors[leading(colors)] >= 0.5 and share_of(colors, name) < 0.2


def _judged(asked: Asked, one: ChangedPlace) -> tuple[str, str]:
    """Return (label, reason) for a place that can be the target: first what had to change, then what had to stay."""
    kind, same = asked.kind, one.cover >= 0.88 and one.edges >= 0.5
    if kind in ("add", "remove"):
        right = one.appeared if kind == "add" else one.vanished
        return (FLAWLESS, "It is as asked, new or gone.") if right else (WRONG, "Something was and is there.")
    if one.vanished:
        return WRONG, "It is gone, which was not asked for."
    if kind == "text":
        return _written(asked, one)
    if kind == "replace" and same:
        return WRONG, "Its outline stayed."
    if kind == "shape" and not same:
        ys, xs = np.nonzero(one.stands)
        filled = len(xs) / float((np.ptp(xs) + 1) * (np.ptp(ys) + 1)) if len(xs) else 0.0
        least, most = _FILLED[asked.outline]
        label = OVER if one.shift >= 20 else FLAWLESS if least <= filled <= most else WRONG
        return label, f"It has another outline, which fills {filled:.0%} of its box."
    colors = shares(one.core[1])
    if asked.to and not _is(colors, asked.to):
        return WRONG if _clearly_not(colors, asked.to) else UNSURE, f"It is not {asked.to}."
    if kind == "replace" and asked.to:
        return FLAWLESS, f"Something {asked.to} with another outline stands there."
    if kind in ("color", "material") and not same:
        return OVER, "Its outline or its structure did not stay."
    if kind == "color":
        return FLAWLESS, "It has the asked color, and its outline stayed."
    return UNSURE, "Whether it is what was asked for, colors do not tell."


def _written(asked: Asked, one: ChangedPlace) -> tuple[str, str]:
    """Return a verdict on a line of two words by where they part. Letters are not read."""
    texts = [text.split() for text in asked.texts]
    if [len(words) for words in texts] == [2, 2]:
        # The space is half as wide as a letter.
        before, after = ((len(a) + 0.25) / (len(a) + len(b) + 0.5) for a, b in texts)
        moved = _gap(one.after, one.changed) - _gap(one.before, one.changed)
        if abs(moved - (after - before)) > 0.1:
            return WRONG, f"The gap between its words moved by {moved:+.2f} of the line, not by {after - before:+.2f}."
    return UNSURE, "The writing changed, and pixels do not tell what it reads."


def _gap(lab: Lab, changed: Mask) -> float:
    """Return where the widest gap of a line lies, 0 to 1 of what is written; 0 where there is none."""
    line = lab[changed.any(axis=1)][:, changed.any(axis=0)]
    off = np.linalg.norm(line - np.median(line, axis=(0, 1)), axis=2)
    inked = np.flatnonzero((off >= 0.5 * off.max()).any(axis=0))
    at = int(np.diff(inked, append=inked[-1]).argmax())
    return float(inked[at : at + 2].mean() - inked[0]) / max(1.0, float(np.ptp(inked)))
