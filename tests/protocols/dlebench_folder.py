"""A folder shaped as DLEBench is downloaded, drawn: two editors, boxes, references, several targets, a missing output."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeAlias

import cv2
import numpy as np

from tests.conftest import png

WIDTH, HEIGHT = 480, 360

Quad: TypeAlias = tuple[int, int, int, int]


TWO: tuple[Quad, ...] = ((60, 60, 92, 92), (300, 200, 364, 264))
DISC, LARGER = (200, 150, 240, 190), (190, 140, 260, 210)
BLUE = (0, 0, 220)


@dataclass(frozen=True)
class Scene:
    """One edit: discs in boxes (xyxy px) on a noisy ground, recolored or painted over in the reference."""

    id: str
    edit_type: str
    instruction: str
    boxes: tuple[Quad, ...]
    after: tuple[tuple[int, int, int] | None, ...]
    reference_boxes: tuple[Quad, ...] = ()


SCENES = (
    Scene("color", "Change Color", "Change the red disc to blue.", ((100, 100, 132, 120),), (BLUE,)),
    Scene("border", "Change Color", "Change the red disc in the corner to blue.", ((0, 0, 16, 16),), (BLUE,)),
    Scene("several", "Change Color", "Change all red discs to green.", TWO, ((0, 180, 0), (0, 180, 0))),
    Scene("gone", "Removal Object", "Remove the red disc.", (DISC,), (None,)),
    Scene("other", "Replace Object", "Replace the red disc with a larger blue one.", (DISC,), (BLUE,), (LARGER,)),
    Scene("material", "Change Material", "Make the red disc wooden.", ((400, 300, 440, 340),), ((150, 100, 50),)),
)

EDITORS = ("steady", "careless")
"""`steady` draws the reference; `careless` leaves the target as it was and paints a block elsewhere."""

MISSING = ("careless", "material")


def draw_folder(folder: Path, *, boxes: bool = True, edited_size: tuple[int, int] | None = None) -> Path:
    """The folder; each editor's outputs lie in outputs/NAME. edited_size: width, height of the outputs, if another."""
    for name in ("Source_Images", "Reference_Images", *(f"outputs/{editor}" for editor in EDITORS)):
        (folder / name).mkdir(parents=True)
    for name, data in _pictures(edited_size).items():
        (folder / name).write_bytes(data)
    rows = []
    for scene in SCENES:
        row = {"image": f"{scene.id}.png", "reference_image": f"{scene.id}.png"}
        row |= {name: getattr(scene, name) for name in ("id", "instruction", "edit_type")}
        if boxes:
            row |= {"bbox": scene.boxes, "bbox_format": "xyxy"}
            row |= {"reference_bbox": scene.reference_boxes} if scene.reference_boxes else {}
        rows.append(row)
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def edited_options(folder: Path) -> list[str]:
    """The command line's options that name the editors' outputs."""
    return [word for editor in EDITORS for word in ("--edited", f"{editor}={folder / 'outputs' / editor}")]


@cache
def _pictures(edited_size: tuple[int, int] | None) -> dict[str, bytes]:
    """The files of a folder's pictures by their paths in it."""
    files = {}
    for number, scene in enumerate(SCENES):
        ground = np.random.default_rng(number).integers(110, 130, (HEIGHT, WIDTH, 3), dtype=np.uint8)
        red = [(220, 0, 0)] * len(scene.boxes)
        source = _drawn(ground, scene.boxes, red)
        reference = _drawn(ground, scene.reference_boxes or scene.boxes, list(scene.after))
        careless = source.copy()
        careless[300:330, 20:60] = (250, 250, 0)
        files[f"Source_Images/{scene.id}.png"] = png(source)
        files[f"Reference_Images/{scene.id}.png"] = png(reference)
        for editor, picture in zip(EDITORS, (reference, careless), strict=True):
            if (editor, scene.id) != MISSING:
                size = edited_size or (WIDTH, HEIGHT)
                files[f"outputs/{editor}/{scene.id}.png"] = png(cv2.resize(picture, size, interpolation=cv2.INTER_CUBIC))
    return files


def _drawn(
    ground: np.ndarray, boxes: tuple[Quad, ...], colors: list[tuple[int, int, int] | None] | list[tuple[int, int, int]]
) -> np.ndarray:
    picture = ground.copy()
    for (x0, y0, x1, y1), color in zip(boxes, colors, strict=True):
        if color is not None:
            center, axes = ((x0 + x1) // 2, (y0 + y1) // 2), ((x1 - x0) // 2 - 1, (y1 - y0) // 2 - 1)
            cv2.ellipse(picture, center, axes, 0, 0, 360, color, cv2.FILLED)
    return picture
