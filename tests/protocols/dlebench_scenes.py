"""One drawn edit of each of DLEBench's seven types, and of several targets: what was, what should be, and the boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Final

import cv2
import numpy as np

from benchmarks.drawing import RGB, Thing, backdrop, render
from editloupe.data.images import ImageStore
from editloupe.values import Box, Role, Sample, Target, Turn
from tests.conftest import png

WIDTH, HEIGHT = 480, 360

_MUG = Thing(kind="mug", colour="red", x=120, y=180, size=40, grain=1)
_BALL = Thing(kind="ball", colour="yellow", x=310, y=90, size=36, grain=2)
_HAT = Thing(kind="hat", colour="green", x=400, y=250, size=44, grain=3)
_SIGN = Thing(kind="sign", colour="white", x=90, y=60, size=30, grain=4, text="AB 12")
_PLATE = Thing(kind="plate", colour="purple", x=240, y=290, size=46, grain=5)
_APPLES = tuple(
    Thing(kind="apple", colour="green", x=x, y=y, size=34, grain=6) for x, y in ((60, 300), (150, 310), (200, 230))
)
_CUPS = tuple(Thing(kind="mug", colour="orange", x=x, y=170, size=38, grain=7) for x in (220, 280, 420))
_ALL = (_MUG, _BALL, _HAT, _SIGN, _PLATE, *_APPLES, *_CUPS)
"""Several look alike: three green apples, three orange mugs beside a red one."""


@dataclass(frozen=True)
class OracleEdit:
    """One edit. `after` has a thing, or None for nothing, for each of `before`."""

    edit_type: str
    instruction: str
    before: tuple[Thing, ...]
    after: tuple[Thing | None, ...]

    @property
    def name(self) -> str:
        return f"{self.edit_type}, {len(self.before)}"


EDITS: Final = (
    OracleEdit(
        "Change Color", "Change the color of the orange mug in the middle to blue.",
        _CUPS[1:2], (replace(_CUPS[1], colour="blue"),),
    ),
    OracleEdit(
        "Change Color", "Change the color of all orange mugs to purple.",
        _CUPS, tuple(replace(cup, colour="purple") for cup in _CUPS),
    ),
    OracleEdit(
        "Change Material", "Change the material of the yellow ball to stone.",
        (_BALL,), (replace(_BALL, colour="gray", material="stone"),),
    ),
    OracleEdit(
        "Change OCR", 'Change the text on the white sign to "XY 98".',
        (_SIGN,), (replace(_SIGN, text="XY 98"),),
    ),
    OracleEdit(
        "Change Shape", "Change the shape of the purple plate to square.",
        (_PLATE,), (replace(_PLATE, form="square"),),
    ),
    OracleEdit("Removal Object", "Remove the leftmost green apple.", _APPLES[:1], (None,)),
    OracleEdit(
        "Replace Object", "Replace the green hat with a larger blue box.",
        (_HAT,), (replace(_HAT, kind="box", colour="blue", size=56),),
    ),
    OracleEdit(
        "Change Count", "Reduce the number of green apples from 3 to 1.",
        _APPLES, (_APPLES[0], None, None),
    ),
)  # fmt: skip
"""An edit of each type, and one of several targets that are judged one by one."""


@cache
def picture(things: Sequence[Thing]) -> RGB:
    """The things on a wall, 480×360 px."""
    return render(backdrop("wall", np.random.default_rng(7), WIDTH, HEIGHT), things)


def reference_of(edit: OracleEdit, *more: Thing) -> RGB:
    """The picture after a perfect edit. more: what is there besides."""
    becomes = dict(zip(edit.before, edit.after, strict=True))
    return picture((*(thing for old in _ALL if (thing := becomes.get(old, old)) is not None), *more))


def resized(rgb: RGB, factor: float) -> RGB:
    """The picture at another size, as an editor may deliver it."""
    kind = cv2.INTER_AREA if factor < 1 else cv2.INTER_CUBIC
    size = (round(factor * rgb.shape[1]), round(factor * rgb.shape[0]))
    return np.asarray(cv2.resize(rgb, size, interpolation=kind), dtype=np.uint8) if factor != 1 else rgb


@cache
def _file(pixels: bytes, shape: tuple[int, ...]) -> bytes:
    """The picture as a PNG file; made once, since that takes longer than most of what is tested."""
    return png(np.frombuffer(pixels, np.uint8).reshape(shape))


def sample_of(edit: OracleEdit, edited: RGB, folder: Path, *, edited_boxes: bool = False) -> Sample:
    """The edit as data would have it, its pictures in `folder`.

    edited_boxes: with boxes in the edited image, where a thing is there at all.
    """
    store, pictures = ImageStore(), {"source": picture(_ALL), "edited": edited, "reference": reference_of(edit)}
    for name, rgb in pictures.items():
        (folder / f"{name}.png").write_bytes(_file(rgb.tobytes(), rgb.shape))
    source, shown, reference = (store.add_file(folder / f"{name}.png") for name in pictures)
    targets = []
    for old, new in zip(edit.before, edit.after, strict=True):
        boxes: dict[Role, Box] = {"source": Box(*old.box)}
        if new is not None and new.box != old.box:
            boxes["reference"] = Box(*new.box)
        if new is not None and edited_boxes:
            # As a person or a detector draws it: a little off.
            x0, y0, x1, y1 = new.box
            boxes["edited"] = Box(x0 - 1.4, y0 - 2.7, x1 + 2.2, y1 + 1.1).scaled(shown.width / WIDTH, shown.height / HEIGHT)
        targets.append(Target(name=old.kind, boxes=boxes))
    turn = Turn(instruction=edit.instruction, edited=shown)
    return Sample(
        id=edit.name, source=source, turns=(turn,), reference=reference, targets=tuple(targets), edit_type=edit.edit_type
    )
