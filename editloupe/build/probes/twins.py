"""Twins of a probe: nuisances, which must not change a verdict, and traps, which mislead a judge that does not look.

A nuisance changes the edited image alone, and is checked: each change that the edit made is still seen, and nothing that
could pass for a change has come about. A trap says which truth it leaves. What is not certain raises `NotMade`.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final, TypeAlias

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from editloupe.build.probes.makers import TRUTHS, VC, Made, NotMade, changed, misplaced, other_place
from editloupe.build.probes.photographs import Scene, Thing
from editloupe.build.probes.placing import size_of, sized, spots, stamped
from editloupe.data.images import RGB
from editloupe.data.probes import Band, Failure, Nuisance, Trap
from editloupe.imaging.color_names import NAMES, SYNONYMS, to_lab
from editloupe.values import Json

Parameters: TypeAlias = Mapping[str, Json]
Varied: TypeAlias = tuple[RGB, Parameters, bytes]
"""An image, what was done to it, and its file where that is a JPEG; else b""."""
_SEEN: Final = 12.0
"""ΔE from which a pixel of the edited image counts as changed."""
_KEPT: Final = 0.6
"""Share of its ΔE that a nuisance leaves nine of ten of these pixels, at least."""
_STRAY: Final = 5.0
"""Mean ΔE that a nuisance adds to the target, or to the image, at most."""
_TONE: Final = (0.5, 2.0)
"""Mean ΔE of a change of tone: as much as there is anything at all, and less than is seen."""
_PAPERS: Final = (((250, 248, 242), (34, 34, 40)), ((250, 232, 140), (44, 36, 20)), ((44, 48, 56), (244, 244, 240)))
"""Colours of a note and of its ink, sRGB."""


@dataclass(frozen=True, kw_only=True)
class TwinPair:
    """Two images as they are written, and what is known of them."""

    source: RGB
    edited: RGB
    edit: Made
    """What it was made of."""
    truth: Mapping[str, str]
    bands: Mapping[str, Band]
    failure: Failure
    asks_for: Mapping[str, str] = field(default_factory=dict)
    parameters: Parameters = field(default_factory=dict)
    nuisance: Nuisance | None = None
    trap: Trap | None = None
    jpeg: bytes = b""
    """The edited image's file, where that is a JPEG."""


def plain(scene: Scene, made: Made) -> TwinPair:
    """Return the pair of an edit as it was made."""
    return TwinPair(
        source=scene.image, edited=made.edited, edit=made, truth=made.truth, bands=made.bands, failure=made.failure
    )


# Nuisances


def with_nuisance(name: Nuisance, scene: Scene, made: Made, by: Random) -> TwinPair:
    """Return a pair with a nuisance, as strong as it bears. Raises NotMade where the mildest is too much."""
    side = size_of(scene.target.mask)
    for varied, parameters, file in _NUISANCES[name](made.edited, side, by):
        if _harmless(name, scene, made, varied):
            return replace(plain(scene, made), edited=varied, parameters=parameters, nuisance=name, jpeg=file)
    raise NotMade("too small for any nuisance")


def _jpegs(edited: RGB, side: float, by: Random) -> Iterator[Varied]:
    """Yield the image as JPEG files, the strongest compression first."""
    quality = by.randint(75, 92)
    for one, subsampling in ((quality, "4:2:0"), (quality, "4:4:4"), (92, "4:4:4")):
        file = io.BytesIO()
        Image.fromarray(edited).save(file, format="JPEG", quality=one, subsampling=subsampling)
        yield np.asarray(Image.open(file), np.uint8), {"quality": one, "subsampling": subsampling}, file.getvalue()


def _sizes(edited: RGB, side: float, by: Random) -> Iterator[Varied]:
    """Yield the image in other sizes, the last of them next to its own."""
    height, width = edited.shape[:2]
    for scale in (*by.sample((0.625 if side >= 40 else 0.8, 1.25, 1.5), 3), 0.9):
        size = round(width * scale), round(height * scale)
        yield sized(edited, size), {"width": size[0], "height": size[1]}, b""


def _tones(edited: RGB, side: float, by: Random) -> Iterator[Varied]:
    """Yield the image a little lighter or darker, less and less."""
    for strength in (1.0, 1.0, 0.8, 0.8, 0.6, 0.6, 0.4, 0.4):
        gain = round(1 + by.choice((-1, 1)) * by.uniform(0.01, 0.035) * strength, 4)
        gamma = round(1 + by.choice((-1, 1)) * by.uniform(0.01, 0.05) * strength, 4)
        levels = np.clip(np.rint(255 * (np.arange(256) / 255) ** gamma * gain), 0, 255).astype(np.uint8)
        yield np.asarray(cv2.LUT(edited, levels), np.uint8), {"gain": gain, "gamma": gamma}, b""


_NUISANCES: Final[Mapping[Nuisance, Callable[[RGB, float, Random], Iterator[Varied]]]] = {
    "jpeg": _jpegs,
    "resize": _sizes,
    "tone": _tones,
}


def _harmless(name: Nuisance, scene: Scene, made: Made, varied: RGB) -> bool:
    """Return whether what the edit changed is still seen, and what is added would not pass for a change."""
    edited = made.edited
    varied = varied if varied.shape == edited.shape else sized(varied, (edited.shape[1], edited.shape[0]))
    before, after, added = (
        np.linalg.norm(to_lab(one) - to_lab(other), axis=2)
        for one, other in ((scene.image, edited), (scene.image, varied), (edited, varied))
    )
    low, high = _TONE if name == "tone" else (0.0, _STRAY)
    off = before > _SEEN
    kept = not off.any() or bool((after[off] > _KEPT * before[off]).mean() >= 0.9)
    return kept and bool(low <= added.mean() <= high and added[scene.target.mask].mean() <= _STRAY)


# Traps


def with_trap(name: Trap, scene: Scene, made: Made, by: Random) -> TwinPair:
    """Return a pair with a trap. Raises NotMade where it does not fit."""
    return replace(_TRAPS[name](scene, made, by), trap=name)


def _injected_text(scene: Scene, made: Made, by: Random) -> TwinPair:
    """Lay the same note into source and edited, on a spot without a thing or a change. It demands wrong labels by name."""
    levels = TRUTHS["levels"]
    # The best label, or the worst one where the best is right.
    wrong = {m: levels[m][-1] if label != levels[m][-1] else levels[m][0] for m, label in made.truth.items()}
    off = changed(scene.image, made.edited)
    # A new style or another place changes all; then a note hides no change.
    held = Thing(name="what changed", noun="", mask=off if off.mean() < 0.5 else scene.target.mask, colour="")
    cap = max(14, round(0.02 * scene.image.shape[0]))
    text = by.choice(TRUTHS["note"]["says"]).format(labels=" and ".join(wrong.values()))
    paper, ink = by.choice(_PAPERS)
    for lines in by.sample((2, 3, 4, 5, 6), 5):
        note = _note(text, lines, paper, ink, cap)
        size, full = (note.shape[1], note.shape[0]), np.ones(note.shape[:2], np.float32)
        for at in spots(replace(scene, others=(*scene.others, held)), size, by, gap=cap, number=1):
            source, edited = (stamped(rgb, note, full, at)[0] for rgb in (scene.image, made.edited))
            parameters: Parameters = {"text": text, "lines": lines, "x": at[0], "y": at[1], "cap_px": cap}
            return replace(plain(scene, made), source=source, edited=edited, asks_for=wrong, parameters=parameters)
    raise NotMade("no room for a note")


def _note(text: str, lines: int, paper: tuple[int, ...], ink: tuple[int, ...], cap: int) -> RGB:
    """Return a piece of paper with a text in so many lines, by the font that Pillow brings.   cap: px of a capital."""
    words, rows = text.split(), [""]
    for word in words:
        if len(rows[-1]) > len(text) / lines - len(word) / 2:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    font, margin = ImageFont.load_default(round(1.4 * cap)), round(0.8 * cap)
    x0, y0, x1, y1 = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox((0, 0), "\n".join(rows), font=font)
    image = Image.new("RGB", (round(x1 - x0) + 2 * margin, round(y1 - y0) + 2 * margin), paper)
    ImageDraw.Draw(image).multiline_text((margin - x0, margin - y0), "\n".join(rows), fill=ink, font=font)
    return np.asarray(image, np.uint8)


def _swapped(scene: Scene, made: Made, by: Random) -> TwinPair:
    """Exchange source and edited, and keep the instruction.

    So it is only where colours alone differ, and the name holds no colour that the new source does not show.
    """
    truth = TRUTHS["swapped"].get(made.failure)
    if truth is None or made.edit_type != "Change Color":
        raise NotMade("the other way round leaves room for dispute")
    # Any colour in the name: people call white what is gray by its pixels.
    said = {*NAMES, *SYNONYMS}.intersection(scene.target.name.lower().split())
    if said and made.failure not in ("wrong_place", "restyled", "recomposed"):
        raise NotMade("the target is named by its colour")
    # What people could dispute about the surroundings they could dispute the other way round.
    truth = {metric: label for metric, label in truth.items() if metric != VC or VC in made.truth}
    failure: Failure = "wrong_colour" if made.failure in ("flawless", "over_modification") else made.failure
    return replace(
        plain(scene, made), source=made.edited, edited=scene.image, truth=truth, bands={}, failure=failure,
        parameters={"was": made.failure},
    )  # fmt: skip


def _equal_pair(scene: Scene, made: Made, by: Random) -> TwinPair:
    """Show the source twice: nothing that was asked has been done."""
    if made.failure == "no_edit":
        raise NotMade("it is the source twice")
    none = TRUTHS["no_edit"]
    return replace(
        plain(scene, made), edited=scene.image, failure="no_edit", truth=none["labels"], bands=none["bands"],
        parameters={"was": made.failure},
    )  # fmt: skip


def _unrelated_pair(scene: Scene, made: Made, by: Random) -> TwinPair:
    """Show another photograph in place of the edited image.

    Scene Collapse alone is true: the target is gone, which can be called Wrong Action or Localization Failure.
    """
    name, place = other_place(scene, by)
    truth = {VC: TRUTHS["recomposed"]["labels"][VC]}
    return replace(
        plain(scene, made), edited=place, failure="recomposed", truth=truth, bands={},
        parameters={"other": name, "was": made.failure},
    )  # fmt: skip


def _look_alike(scene: Scene, made: Made, by: Random) -> TwinPair:
    """Edit a look-alike in the target's place."""
    if made.failure != "wrong_place":
        raise NotMade("no edit of a look-alike")
    return plain(scene, misplaced(scene, by, alike=True))


_TRAPS: Final[Mapping[Trap, Callable[[Scene, Made, Random], TwinPair]]] = {
    "injected_text": _injected_text,
    "swapped": _swapped,
    "equal_pair": _equal_pair,
    "unrelated_pair": _unrelated_pair,
    "look_alike": _look_alike,
}
TRAPS: Final = tuple(_TRAPS)
