"""`editloupe build masks` as a user types it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.data.images import RGB, ImageStore
from editloupe.data.samples import load
from editloupe.errors import ToolError
from editloupe.models import opening
from editloupe.models.segment.base import Segmentation
from editloupe.values import Box
from tests.build.conftest import lines
from tests.tools.test_search import Reds

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def seers() -> None:
    """Nothing: these tests open models of their own."""


class RedPixels:
    """Segments what is purely red in a box."""

    def __init__(self, version: str = "red pixels 1") -> None:
        self.name, self.version, self.asked = "RedPixels", version, []

    def __call__(self, rgb: RGB, boxes: Sequence[Box]) -> list[Segmentation]:
        self.asked.append([box.ints() for box in boxes])
        if rgb[0, 0, 0] == 1:
            raise ToolError("RedPixels ran out of memory on this picture alone")
        found = []
        for box in boxes:
            x0, y0, x1, y1 = box.ints()
            mask = np.zeros(rgb.shape[:2], dtype=bool)
            mask[y0:y1, x0:x1] = (rgb[y0:y1, x0:x1] == (255, 0, 0)).all(axis=2)
            found.append(Segmentation(mask=mask, score=0.9))
        return found


def picture(file: Path, *, red: tuple[int, int, int, int] | None = (40, 30, 60, 40), gray: int = 120) -> None:
    """200×100 px of gray with a red rectangle."""
    rgb = np.full((100, 200, 3), gray, dtype=np.uint8)
    if red is not None:
        x0, y0, x1, y1 = red
        rgb[y0:y1, x0:x1] = (255, 0, 0)
    Image.fromarray(rgb).save(file)


def write(folder: Path, *rows: dict[str, Any], name: str = "metadata.jsonl") -> None:
    (folder / name).write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture
def mugs() -> Path:
    """Seven edits of three pictures of 200×100 px; two of them by editors that share a source."""
    folder = Path("mugs")
    folder.mkdir()
    picture(folder / "red.png")
    picture(folder / "gray.png", red=None)
    picture(folder / "two.png", red=(10, 10, 20, 20))
    row = {"source_file_name": "red.png", "edited_file_name": "two.png", "instruction": "Make the red mug blue."}
    write(
        folder,
        {**row, "id": "boxed", "bbox": [30, 20, 70, 50], "target_name": "mug", "human_if": 4, "edit_type": "Color"},
        {**row, "id": "named", "editor": "alpha", "target_name": "red mug", "note": "kept"},
        {**row, "id": "named", "editor": "beta", "target_name": "red mug"},
        {**row, "id": "gray", "source_file_name": "gray.png", "target_name": "red mug"},
        {**row, "id": "all", "source_file_name": "gray.png", "target_name": "The entire image"},
        {**row, "id": "unnamed"},
        {**row, "id": "gone", "source_file_name": "gone.png"},
    )
    return folder


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> tuple[Reds, RedPixels]:
    """A detector and a segmenter at hand that find what is red."""
    detector, segmenter = Reds(), RedPixels()
    monkeypatch.setattr(opening, "DETECTOR", lambda name, device: detector)
    monkeypatch.setattr(opening, "SEGMENTER", lambda name, device: segmenter)
    return detector, segmenter


def samples(folder: Path) -> dict[str, Any]:
    return {sample.key: sample for sample in load(folder, store=ImageStore()).samples}


def white(sample: Any) -> tuple[int, int, int, int] | None:
    """The rectangle around what is white in the sample's mask; the mask holds 0 and 255 alone."""
    mask = ImageStore().array(sample.masks["edit"])
    assert set(np.unique(mask)) <= {0, 255} and mask.shape[:2] == (sample.source.height, sample.source.width)
    ys, xs = np.nonzero(mask[..., 0])
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


def test_masks_from_boxes_and_phrases_are_read_back_with_the_data(
    editloupe: Run, mugs: Path, found: tuple[Reds, RedPixels]
):
    code, said, _ = editloupe("build", "masks", mugs, "--out", "masked")
    assert code == 0
    read = samples(Path("masked"))
    assert list(read) == ["boxed", "alpha/named", "beta/named", "gray", "all", "unnamed"]
    assert {key: white(sample) for key, sample in read.items() if sample.masks} == {
        "boxed": (40, 30, 60, 40),
        "alpha/named": (40, 30, 60, 40),
        "beta/named": (40, 30, 60, 40),
        "all": (0, 0, 200, 100),
    }
    # What shares a source and a phrase is looked for once; the box of the data needs no detector.
    assert sorted(found[1].asked) == [[(30, 20, 70, 50)], [(40, 30, 60, 40)]]
    assert "masked: 4 masks of 7 samples; 3 dropped." in said and "how: boxes 1, detector 2, whole image 1" in said
    left = {row["sample"]: (row["stage"], row["detail"]) for row in lines("masked/left_out.jsonl")}
    assert left["gone"][0] == "read" and "mugs/gone.png: no such file" in left["gone"][1]
    assert left["unnamed"] == ("wanted", "no box, and no phrase in the column 'target_name'")
    assert left["gray"] == ("made", "'red mug' was not found: no box reached the detector's least score, 0.30")
    missing = {row["id"]: row.get("mask_missing") for row in lines("masked/metadata.jsonl")}
    assert missing["gray"] == left["gray"][1] and missing["boxed"] is None
    assert "can be judged" in editloupe("check", "masked")[1]


def test_a_column_names_the_targets(editloupe: Run, mugs: Path, found: tuple[Reds, RedPixels]):
    row = {"source_file_name": "red.png", "edited_file_name": "two.png", "instruction": "Make it blue."}
    write(mugs, {**row, "id": "a", "what": "mug", "bbox": [0, 0, 9, 9]}, {**row, "id": "b", "what": 3}, {**row, "id": "c"})
    words = ("build", "masks", mugs, "--out", "masked", "--format", "json")
    code, said, _ = editloupe(*words, "--set", "phrase_field=what")
    data = json.loads(said)
    assert (code, data["written"], data["read"], data["how"]) == (0, 1, 3, {"detector": 1})
    assert [row["detail"] for row in lines("masked/left_out.jsonl")] == ["column 'what' names no target"] * 2
    assert found[0].asked[0][0] == "mug"


def test_what_cannot_be_done_is_said_before_anything_is_written(editloupe: Run, mugs: Path, found: tuple[Reds, RedPixels]):
    def refused(*words: str | Path) -> str:
        code, _, said = editloupe("build", "masks", mugs, *words)
        assert code == 2 and not Path("masked").exists()
        return " ".join(said.split())

    assert "holds other files (gray.png); name a new or an empty folder" in refused("--out", mugs)
    told = refused("--out", "masked", "--set", "phrase_field=what")
    assert "no sample has what a mask is made of" in told and "name the column with --set phrase_field" in told
    assert "no such folder" in " ".join(editloupe("build", "masks", "nowhere", "--out", "masked")[2].split())
