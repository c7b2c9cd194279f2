"""The edits that are asked about: a pair of JPEG files for each sample, and two crops of it as PNG files."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (1024, 768)
CROPS = 2
"""Of a sample. They are cut before the clock starts, for those who send crops that are at hand."""


def draw(folder: Path, samples: int, *, size: tuple[int, int] = SIZE) -> Path:
    """A folder that `editloupe judge` reads; no two files are alike. Returns it.

    Smooth colors with the grain of a camera; about 2 % of the edited image shows other colors.
    """
    rng = np.random.default_rng(0)
    for name in ("images", "crops"):
        (folder / name).mkdir(parents=True)
    rows = []
    for i in range(samples):
        before = _smooth(rng, size) + np.rint(rng.normal(scale=3, size=(size[1], size[0], 3)))
        after = before.copy()
        side = size[1] // 6
        x, y = (int(rng.integers(0, bound - side)) for bound in size)
        after[y : y + side, x : x + side] = 255 - after[y : y + side, x : x + side]
        files, crops = {}, []
        for name, values in (("source", before), ("edited", after)):
            files[f"{name}_file_name"] = f"images/{i}-{name}.jpg"
            picture = Image.fromarray(values.clip(0, 255).astype(np.uint8))
            picture.save(folder / files[f"{name}_file_name"], quality=90)
            crops.append(picture.crop((x, y, min(x + 2 * side, size[0]), min(y + 2 * side, size[1]))))
        edited = hashlib.sha256((folder / files["edited_file_name"]).read_bytes()).hexdigest()
        for number, crop in enumerate(crops, start=1):
            crop.save(crop_file(folder, edited, number), compress_level=1)
        rows.append({"id": f"s{i}", **files, "instruction": f"Edit {i}.", "edited_sha256": edited})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def crop_file(folder: Path, edited: str, number: int) -> Path:
    """Return where a crop lies. edited: SHA-256 of the sample's edited file.   number: from 1."""
    return folder / "crops" / f"{edited}-{number}.png"


def _smooth(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray:
    small = Image.fromarray(rng.integers(0, 256, (size[1] // 16, size[0] // 16, 3), dtype=np.uint8))
    return np.asarray(small.resize(size, Image.Resampling.BICUBIC), dtype=np.float32)
