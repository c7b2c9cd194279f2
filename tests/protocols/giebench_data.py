"""Files of the shape of gie_bench.json: a small one to be judged, and one with the counts and oddities of the real one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ABSTAIN = "I can not tell from the image"
COLORS = ("Red", "Green", "Blue")

Rows = Sequence[Mapping[str, Any]]


def mask(*boxes: tuple[int, int, int, int], side: int = 224) -> list[list[int]]:
    """A mask of 0 and 1 with 1 inside these boxes (x0, y0, x1, y1)."""
    found = np.zeros((side, side), dtype=int)
    for x0, y0, x1, y1 in boxes:
        found[y0:y1, x0:x1] = 1
    rows: list[list[int]] = found.tolist()
    return rows


def row(number: int, **changes: Any) -> dict[str, Any]:
    """A row about an image of its own: the mug becomes red."""
    base = {
        "edit_instruction": f"Change the color of mug {number} to red.",
        "evaluation_question": "What color is the mug?",
        "expected_answer": "Red",
        "multiple_choice_options": [*COLORS, ABSTAIN],
        "edit_type": "Color Change",
        "image": f"/home/{number}.jpg",
        "image_content_type": "home",
        "object_mask": mask((50, 50, 100, 100)),
        "url": f"https://images.example/{number}",
    }
    return {**base, **changes}


def write(root: Path, rows: Rows, *, images: str = "images2000", name: str = "gie_bench.json") -> Path:
    """Write the file and draw the image of each row, 96×64 px noise that depends on its name."""
    root.mkdir(parents=True, exist_ok=True)
    for path in {str(one["image"]).lstrip("/") for one in rows if isinstance(one.get("image"), str)}:
        draw(root / images / path)
    (root / name).write_text(json.dumps(rows), encoding="utf-8")
    return root


def draw(path: Path, *, spot: tuple[int, int, int] | None = None) -> Path:
    """Draw the image of a name; with a spot of this color inside the mask of `row`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    seed = int.from_bytes(path.stem.encode(), "big") % 2**32
    rgb = np.random.default_rng(seed).integers(90, 150, (64, 96, 3), dtype=np.uint8)
    if spot is not None:
        rgb[16:26, 24:40] = spot
    Image.fromarray(rgb).save(path.with_suffix(".png") if path.suffix == ".png" else path)
    return path
