"""Drawn images and small data sets for the loaders."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load

Draw = Callable[..., Path]


def opened(path: Path, **options: Any) -> Loaded:
    """Load a folder with a store of its own."""
    return load(path, store=ImageStore(), **options)


@pytest.fixture
def draw(tmp_path: Path) -> Draw:
    """draw("a.png", seed, size=(w, h)) writes noise (or one color) that depends on the seed, below tmp_path."""

    def make(name: str, seed: int = 0, *, size: tuple[int, int] = (64, 48)) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        rng = np.random.default_rng(seed)
        values = rng.integers(0, 255, (size[1], size[0], 3), dtype=np.uint8)
        # A large image is one color, so that it is quickly written.
        image = Image.fromarray(values) if max(size) < 500 else Image.new("RGB", size, tuple(values[0, 0].tolist()))
        image.save(path)
        return path

    return make


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Sequence[Mapping[str, object] | str]], Path]:
    """write("set/metadata.jsonl", rows) writes objects as JSON lines, and text as it is."""

    def make(name: str, rows: Sequence[Mapping[str, object] | str]) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return path

    return make


@pytest.fixture
def pair(draw: Draw) -> Callable[..., dict[str, object]]:
    """pair("cat") draws set/source/cat.png and set/edited/cat.png and gives their metadata row."""

    def make(name: str, **columns: object) -> dict[str, object]:
        draw(f"set/source/{name}.png", len(name))
        draw(f"set/edited/{name}.png", len(name) + 100)
        row: dict[str, object] = {
            "id": name,
            "source_file_name": f"source/{name}.png",
            "edited_file_name": f"edited/{name}.png",
            "instruction": f"Change {name}.",
        }
        return {**row, **columns}

    return make
