"""Small data of the shape of EdiVal-Bench: its CSV file, base images, and outputs where the official scripts write them."""

from __future__ import annotations

import csv
import io
import zlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

Line = dict[str, Any]

CHAINS: Mapping[int, Sequence[tuple[str, str, str]]] = {
    0: (
        ("subject_add", "Add bench on the left of oak tree", "Add [bench] on the [left] of [oak tree]"),
        ("count_change", '"Change the count of oak tree to 4"', '"Change the count of [oak tree] to [4]"'),
        (
            "background_change",
            "Change the background to park, remain the bench unchanged",
            "Change the background to [park]",
        ),
    ),
    1: (
        (
            "position_change",
            "Change the position of cup to left of jar.",
            "Change the position of [cup] to [left] of [jar].",
        ),
        (
            "text_change",
            "Replace the text 'Open \"now\"' on jar with 'Shut'",
            "Replace the text '[Open \"now\"]' on [jar] with '[Shut]'",
        ),
        ("subject_remove", "Remove cup", "Remove [cup]"),
    ),
}
"""Image → its edits: type, sentence, sentence with brackets. Stray quotes and a full stop, as the benchmark has them."""


def lines(chains: Mapping[int, Sequence[tuple[str, str, str]]] = CHAINS) -> list[Line]:
    """The lines of chains, one after each turn, with pools that tell the turns apart."""
    return [
        {
            "image_index": index,
            "turns": turn,
            "task_type": [edit[0] for edit in edits[:turn]],
            "instructions": [edit[1] for edit in edits[:turn]],
            "format_instructions": [edit[2] for edit in edits[:turn]],
            "bg_consistency": all(edit[0] != "background_change" for edit in edits[:turn]),
            "unchanged_objects": ["jar"] if turn == 1 else [],
            "available_objects": [f"thing {turn}"],
            "all_objects": ["jar", *(f"thing {n}" for n in range(1, turn + 1))],
        }
        for index, edits in chains.items()
        for turn in range(1, len(edits) + 1)
    ]


def picture(name: str, size: tuple[int, int] = (24, 16), kind: str = "PNG") -> bytes:
    """An image file of noise that depends on a name."""
    rng = np.random.default_rng(zlib.crc32(name.encode()))
    data = io.BytesIO()
    Image.fromarray(rng.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)).save(data, kind)
    return data.getvalue()


def put(path: Path, data: bytes | None = None) -> Path:
    """Write an image, by default one that depends on the path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kind = "JPEG" if path.suffix == ".jpg" else "PNG"
    path.write_bytes(picture(str(path), kind=kind) if data is None else data)
    return path


def write(root: Path, given: Sequence[Mapping[str, Any]], *, name: str = "edival.csv", images: str = "") -> Path:
    """Write the file and a base image for each index."""
    root.mkdir(parents=True, exist_ok=True)
    with (root / name).open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(given[0]))
        writer.writeheader()
        writer.writerows(given)
    for index in {one["image_index"] for one in given}:
        put(root / images / f"{index}_input_raw.jpg")
    return root


def edit(
    folder: Path,
    indexes: Iterable[int] = CHAINS,
    *,
    turns: Sequence[int] = (1, 2, 3),
    modes: Sequence[str] = ("multipass", "singlepass"),
) -> Path:
    """Draw an editor's outputs, with the copy of the base image that the official scripts put beside them."""
    for mode in modes:
        for index in indexes:
            for name in (f"{index}_input_raw", *(f"{index}_input_raw_turn_{turn}" for turn in turns)):
                put(folder / mode / f"{name}.png")
    return folder
