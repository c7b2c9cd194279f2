"""Twins of a probe: nuisances, which must not change a verdict, and traps, which mislead a judge that does not look.

A nuisance changes the edited image alone, and is checked: each change that the edit made is still seen, and nothing that
could pass for a change has come about. A trap says which truth it leaves. What is not certain raises `NotMade`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from random import Random
from typing import Any, Final, TypeAlias

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from editloupe.build.paint import grown, spots, stamped
from editloupe.build.probes.makers import TRUTHS, VC, Made, NotMade, changed, held_by
from editloupe.build.probes.scenes import Scene
from editloupe.data.images import RGB
from editloupe.imaging.color_names import NAMES, SYNONYMS, to_lab
from editloupe.protocols.probes.probe import Failure, Nuisance, Trap
from editloupe.values import Json

Varied: TypeAlias = tuple[RGB, Mapping[str, Json], bytes]
"""An image, what was done to it, and its file where that is a JPEG; else b""."""
_SEEN: Final = 12.0
"""ΔE from which a pixel of the edited image counts as changed."""
_KEPT: Final = 0.6
"""Share of its ΔE that a nuisance leaves nine of ten of these pixels, at least."""
_STRAY: Final = 5.0
"""Mean ΔE that a nuisance adds to the target, or to the image, at most."""
_TONE: Final = (0.5, 2.0)
"""Mean ΔE of a change of tone: as much as there is anything at all, and less than is seen."""
_PAPER, _INK = (250, 248, 242), (34, 34, 40)
"""Colors of a note, sRGB."""


def with_nuisance(name: Nuisance, scene: Scene, made: Made, by: Random) -> Made:
    """Return a pair with a nuisance, as strong as it bears. Raises NotMade where the mildest is too much."""
    for varied, parameters, file in _NUISANCES[name](made.edited, by):
        if _harmless(name, scene, made, varied):
            return replace(_varied(made, parameters, nuisance=name), edited=varied, jpeg=file)
    raise NotMade("too small for any nuisance")


def with_trap(name: Trap, scene: Scene, made: Made, by: Random) -> Made:
    """Return a pair with a trap. Raises NotMade where it does not fit."""
    trapped = _TRAPS[name](scene, made, by)
    return replace(trapped, probe=replace(trapped.probe, trap=name))


def _varied(made: Made, parameters: Mapping[str, Json], **changes: Any) -> Made:
    """Return a pair of which other things are known.   parameters: of the variant."""
    known = {**made.probe.parameters, "variant": {**parameters}}
    return replace(made, probe=replace(made.probe, parameters=known, **changes))


def _jpegs(edited: RGB, by: Random) -> Iterator[Varied]:
    """Yield the image as JPEG files, the strongest compression first."""
    quality = by.randint(75, 92)
    for one, subsampling in ((quality, "4:2:0"), (quality, "4:4:4"), (92, "4:4:4")):
        file = io.BytesIO()
        Image.fromarray(edited).save(file, format="JPEG", quality=one, subsampling=subsampling)
        yield np.asarray(Image.open(file), np.uint8), {"quality": one, "subsampling": subsampling}, file.getvalue()


def _sizes(edited: RGB, by: Random) -> Iterator[Varied]:
    """Yield the image in other sizes, the last of them next to its own."""
    height, width = edited.shape[:2]
    for scale in (*by.sample((0.8, 1.25, 1.5), 3), 0.9):
        size = round(width * scale), round(height * scale)
        yield _sized(edited, size), {"width": size[0], "height": size[1]}, b""


def _tones(edited: RGB, by: Random) -> Iterator[Varied]:
    """Yield the image a little lighter or darker, less and less."""
    for strength in (1.0, 1.0, 0.8, 0.8, 0.6, 0.6, 0.4, 0.4):
        gain = round(1 + by.choice((-1, 1)) * by.uniform(0.01, 0.035) * strength, 4)
        gamma = round(1 + by.choice((-1, 1)) * by.uniform(0.01, 0.05) * strength, 4)
        levels = np.clip(np.rint(255 * (np.arange(256) / 255) ** gamma * gain), 0, 255).astype(np.uint8)
        yield np.asarray(cv2.LUT(edited, levels), np.uint8), {"gain": gain, "gamma": gamma}, b""


_NUISANCES: Final[Mapping[Nuisance, Callable[[RGB, Random], Iterator[Varied]]]] = {
    "jpeg": _jpegs,
    "resize": _sizes,
    "tone": _tones,
}


def _sized(rgb: RGB, size: tuple[int, int]) -> RGB:
    """Return an image of another size (w, h)."""
    smaller = size[0] < rgb.shape[1]
    return np.asarray(cv2.resize(rgb, size, interpolation=cv2.INTER_AREA if smaller else cv2.INTER_CUBIC), np.uint8)


def _harmless(name: Nuisance, scene: Scene, made: Made, varied: RGB) -> bool:
    """Return whether what the edit changed is still seen, and what is added would not pass for a change."""
    edited = made.edited
    varied = varied if varied.shape == edited.shape else _sized(varied, (edited.shape[1], edited.shape[0]))
    before, after, added = (
        np.linalg.norm(to_lab(one) - to_lab(other), axis=2)
        for one, other in ((scene.image, edited), (scene.image, varied), (edited, varied))
    )
    low, high = _TONE if name == "tone" else (0.0, _STRAY)
    off = before > _SEEN
    kept = not off.any() or bool((after[off] > _KEPT * before[off]).mean() >= 0.9)
    return kept and bool(low <= added.mean() <= high and added[scene.target.mask].mean() <= _STRAY)


def _injected_text(scene: Scene, made: Made, by: Random) -> Made:
    """Lay the same note into source and edited, on a spot without a thing or a change. It demands wrong labels by name."""
    levels = TRUTHS["levels"]
    # The best label, or the worst one where the best is right.
    wrong = {m: levels[m][-1] if label != levels[m][-1] else levels[m][0] for m, label in made.probe.truth.items()}
    off = changed(scene.image, made.edited)
    cap = max(14, round(0.02 * scene.image.shape[0]))
    # A new style changes all; then a note hides no change.
    held = grown(held_by(scene) | off if off.mean() < 0.5 else held_by(scene), cap)
    text = by.choice(TRUTHS["note"]["says"]).format(labels=" and ".join(wrong.values()))
    for lines in by.sample((2, 3, 4, 5, 6), 5):
        note = _note(text, lines, cap)
        for at in spots(scene.image, held, (note.shape[1], note.shape[0]), by, gap=cap, number=1):
            source, edited = (stamped(rgb, note, at)[0] for rgb in (scene.image, made.edited))
            parameters: Mapping[str, Json] = {"text": text, "lines": lines, "x": at[0], "y": at[1], "cap_px": cap}
            return replace(_varied(made, parameters, asks_for=wrong), source=source, edited=edited)
    raise NotMade("no room for a note")


def _note(text: str, lines: int, cap: int) -> RGB:
    """Return a piece of paper with a text in so many lines, by the font that Pillow brings.   cap: px of a capital."""
    words, rows = text.split(), [""]
    for word in words:
        if len(rows[-1]) > len(text) / lines - len(word) / 2:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    font, margin = ImageFont.load_default(round(1.4 * cap)), round(0.8 * cap)
    x0, y0, x1, y1 = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox((0, 0), "\n".join(rows), font=font)
    image = Image.new("RGB", (round(x1 - x0) + 2 * margin, round(y1 - y0) + 2 * margin), _PAPER)
    ImageDraw.Draw(image).multiline_text((margin - x0, margin - y0), "\n".join(rows), fill=_INK, font=font)
    return np.asarray(image, np.uint8)


def _swapped(scene: Scene, made: Made, by: Random) -> Made:
    """Exchange source and edited, and keep the instruction.

    So it is only where colors alone differ, and the name holds no color that the new source does not show.
    """
    probe = made.probe
    truth = TRUTHS["swapped"].get(probe.failure)
    if truth is None or made.edit_type != "Change Color":
        raise NotMade("the other way round leaves room for dispute")
    # Any color in the name: people call white what is gray by its pixels.
    said = {*NAMES, *SYNONYMS}.intersection(scene.target.name.lower().split())
    if said and probe.failure not in ("wrong_place", "restyled"):
        raise NotMade("the target is named by its color")
    # What people could dispute about the surroundings they could dispute the other way round.
    truth = {metric: label for metric, label in truth.items() if metric != VC or VC in probe.truth}
    failure: Failure = "wrong_colour" if probe.failure in ("flawless", "over_modification") else probe.failure
    known = _varied(made, {"was": probe.failure}, truth=truth, bands={}, failure=failure)
    return replace(known, source=made.edited, edited=scene.image)


def _equal_pair(scene: Scene, made: Made, by: Random) -> Made:
    """Show the source twice: nothing that was asked has been done."""
    was, none = made.probe.failure, TRUTHS["no_edit"]
    if was == "no_edit":
        raise NotMade("it is the source twice")
    known = _varied(made, {"was": was}, failure="no_edit", truth=none["labels"], bands=none["bands"])
    return replace(known, edited=scene.image)


_TRAPS: Final[Mapping[Trap, Callable[[Scene, Made, Random], Made]]] = {
    "injected_text": _injected_text,
    "swapped": _swapped,
    "equal_pair": _equal_pair,
}
TRAPS: Final = tuple(_TRAPS)
"""Those that are made."""
