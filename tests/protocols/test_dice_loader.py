"""The files that list edits with their differences: an edit a row, or a difference a row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.errors import SampleError
from editloupe.protocols.dice.differences import given


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, level in (("a.png", 10), ("b.png", 90), ("c.png", 200)):
        Image.fromarray(np.full((50, 100, 3), level, np.uint8)).save(tmp_path / name)
    return tmp_path


def write(folder: Path, rows: Any, name: str = "differences.json") -> Path:
    text = rows if isinstance(rows, str) else json.dumps(rows)
    (folder / name).write_text(text, encoding="utf-8")
    return folder


def test_an_edit_a_row(folder: Path) -> None:
    differences = [
        {"op": "REMOVE", "object": "cat", "box": [0.1, 0.2, 0.3, 0.4], "coherent": True},
        {"command": "ADD", "subject": "dog", "bbox": [0, 0, 1, 1]},
    ]
    rows = [{"id": "7", "source": "a.png", "edited": "b.png", "prompt": "remove the cat", "differences": differences}]
    loaded = load(write(folder, rows), store=ImageStore())
    (sample,) = loaded.samples
    assert (loaded.format, sample.id, sample.instruction, loaded.rejected) == ("dice", "7", "remove the cat", ())
    found = given(sample, "unit")
    assert found is not None
    assert [(one.op, one.object, tuple(one.box), one.coherent) for one in found] == [
        ("REMOVE", "cat", (0.1, 0.2, 0.3, 0.4), True),
        ("ADD", "dog", (0, 0, 1, 1), None),
    ]


def test_a_difference_a_row_as_the_published_detector_writes_them(folder: Path) -> None:
    def row(edited: str, operation: str, words: str, *box: float) -> dict[str, Any]:
        pair = {"original_path": "a.png", "edited_path": edited, "gt_prompt": "make it red"}
        return {**pair, "operation": operation, "complete_difference": words, "bbox": list(box), "confidence": 0.75}

    rows = [
        row("b.png", "EDIT", "EDIT: vase", 0, 0, 0.5, 0.5),
        row("c.png", "ADD", "ADD: lamp: tall", 0, 0, 0.1, 0.1),
        row("b.png", "REMOVE", "REMOVE: cat", 0.5, 0.5, 1, 1),
    ]
    loaded = load(write(folder, rows, "predicted_differences.json"), store=ImageStore())
    found = [given(sample, "unit") or [] for sample in loaded.samples]
    assert [[(one.op, one.object, one.confidence) for one in sample] for sample in found] == [
        [("EDIT", "vase", 0.75), ("REMOVE", "cat", 0.75)],
        [("ADD", "lamp: tall", 0.75)],
    ]


def test_an_edit_without_differences_is_a_sample(folder: Path) -> None:
    rows = [{"source": "a.png", "edited": "b.png", "prompt": "x", "differences": []}]
    (sample,) = load(write(folder, rows), store=ImageStore()).samples
    assert given(sample, "unit") == []


def test_an_edit_of_which_nobody_said_what_changed_is_not_unchanged(folder: Path) -> None:
    rows = [{"source": "a.png", "edited": "b.png", "prompt": "x"}, {"source": "a.png", "edited": "c.png", "prompt": "y"}]
    found = load(write(folder, rows), store=ImageStore()).samples
    assert [given(sample, "unit") for sample in found] == [None, None]


def test_a_row_that_cannot_be_used_is_kept_with_its_reason(folder: Path) -> None:
    rows = [
        {"source": "a.png", "edited": "b.png", "prompt": "x", "differences": []},
        {"source": "gone.png", "edited": "b.png", "prompt": "y", "differences": []},
    ]
    loaded = load(write(folder, rows), store=ImageStore())
    assert len(loaded.samples) == 1
    assert "gone.png" in loaded.rejected[0].message and "row 2" in loaded.rejected[0].message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[", "is not JSON that can be read"),
        ("{}", "holds no rows"),
        ("[]", "holds no rows"),
        ("[7]", "expected an object, found the number 7"),
    ],
)
def test_a_file_of_another_shape_is_refused(folder: Path, text: str, message: str) -> None:
    with pytest.raises(SampleError, match=message):
        load(write(folder, text), store=ImageStore())
