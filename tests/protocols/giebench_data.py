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


def whole_set() -> list[dict[str, Any]]:
    """1,080 rows with the counts of the real file.

    120 rows a type, of which Scene Change 74 and Background Change 46; 848 images; 44 pairs of image and edit type that
    occur twice (one thrice), 8 of them with the same instruction; 5 empty and 2 full masks; 21 keys that are no option
    exactly, of which 7 fold and 14 do not; the right option first in 560 rows, then in 315, 123 and 82.
    """
    types = ("Add Object", "Attribute Change", "Color Change", "Layout Modification", "Object Replacement", "Remove Object",
             "Size Change", "Textual Edit")  # fmt: skip
    names = [name for name in types for _ in range(120)] + ["Scene Change"] * 74 + ["Background Change"] * 46
    images, instructions = list(range(1080)), [f"Change the color of mug {number} to red." for number in range(1080)]
    for pair in range(44):  # all of them Textual Edit, rows 840 to 959
        images[841 + 2 * pair] = 840 + 2 * pair
        if pair < 8:
            instructions[841 + 2 * pair] = instructions[840 + 2 * pair]
    images[928], instructions[928] = 840, instructions[840]
    # 187 rows share the image of a row of another type: 1080 - 45 - 187 = 848.
    images[960:] = range(120)
    images[720:787] = range(120, 187)
    places = [0] * 560 + [1] * 315 + [2] * 123 + [3] * 82
    shared, rows = mask((5, 5, 10, 10), side=24), []
    for number, name in enumerate(names):
        options = ["Green", "Blue", ABSTAIN]
        options.insert(places[number * 7 % 1080], "Red")
        more = {"edit_type": name, "edit_instruction": instructions[number], "multiple_choice_options": options}
        rows.append(row(number, image=f"/home/{images[number]}.jpg", object_mask=shared, **more))
    for number in (1, 121, 241, 361, 481, 601, 721):
        rows[number]["expected_answer"] = "red."
    for number in range(10, 150, 10):
        rows[number]["expected_answer"] = "Purple"
    for number in (375, 408, 497, 593, 802):
        rows[number]["object_mask"] = mask(side=24)
    for number in (841, 1002):
        rows[number]["object_mask"] = mask((0, 0, 24, 24), side=24)
    return rows
