"""The edits that are asked about: smooth noise of 1024×768 px as JPEG, one pair of files for all samples."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (1024, 768)


def draw(folder: Path, samples: int, *, size: tuple[int, int] = SIZE) -> Path:
    """A folder that `editloupe judge` reads. Returns it."""
    rng = np.random.default_rng(0)
    (folder / "images").mkdir(parents=True)
    for side in ("source", "edited"):
        small = Image.fromarray(rng.integers(0, 256, (size[1] // 8, size[0] // 8, 3), dtype=np.uint8))
        small.resize(size, Image.Resampling.BICUBIC).save(folder / "images" / f"{side}.jpg", quality=90)
    files = {"source_file_name": "images/source.jpg", "edited_file_name": "images/edited.jpg"}
    rows = [{"id": f"s{i}", **files, "instruction": f"Edit {i}."} for i in range(samples)]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder
