"""The files that list edits with their differences: an edit a row, or a difference a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.protocols.dice.differences import given


def opened(folder: Path, rows: Any, name: str = "differences.json") -> Loaded:
    """The rows, with three pictures of 100×50 px beside them."""
    for file, level in (("a.png", 10), ("b.png", 90), ("c.png", 200)):
        Image.fromarray(np.full((50, 100, 3), level, np.uint8)).save(folder / file)
    (folder / name).write_text(rows if isinstance(rows, str) else json.dumps(rows), encoding="utf-8")
    return load(folder, store=ImageStore())


def test_an_edit_a_row(tmp_path: Path) -> None:
    differences = [
        {"op": "REMOVE", "object": "cat", "box": [0.1, 0.2, 0.3, 0.4], "coherent": True},
        {"command": "ADD", "subject": "dog", "bbox": [0, 0, 1, 1]},
    ]
    pair = {"source": "a.png", "edited": "b.png"}
    rows = [
        {"id": "7", **pair, "prompt": "remove the cat", "differences": differences},
        {**pair, "prompt": "x", "differences": []},
        # Nobody said what changed: that is not unchanged.
        {**pair, "prompt": "y"},
        {**pair, "source": "gone.png", "prompt": "z", "differences": []},
    ]
    loaded = opened(tmp_path, rows)
    assert (loaded.format, loaded.samples[0].id, loaded.samples[0].instruction) == ("dice", "7", "remove the cat")
    first, *others = (given(sample) for sample in loaded.samples)
    assert [(one.op, one.object, tuple(one.box), one.coherent) for one in first or ()] == [
        ("REMOVE", "cat", (0.1, 0.2, 0.3, 0.4), True),
        ("ADD", "dog", (0, 0, 1, 1), None),
    ]
    assert others == [[], None]
    (refused,) = loaded.rejected
    assert "gone.png" in refused.message and "row 4" in refused.message
