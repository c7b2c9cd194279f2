"""`editloupe build masks` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from tests.build.conftest import lines, metadata, pictures
from tests.build.toys import PX, Finder, Reds
from tests.conftest import Cli, refused

ROW = {"source_file_name": "0.png", "edited_file_name": "1.png", "instruction": "Make the red square blue."}


def edits(*rows: dict[str, Any]) -> Path:
    """Edits of a picture of 320×240 px with a red square."""
    return metadata(pictures(Path("edits")), *({**ROW, **row} for row in rows))


def white(sample: Any) -> tuple[int, int, int, int]:
    """The rectangle around what is white in the sample's mask; the mask holds 0 and 255 alone."""
    mask = ImageStore().array(sample.masks["edit"])
    assert set(np.unique(mask)) <= {0, 255} and mask.shape[:2] == (240, 320)
    ys, xs = np.nonzero(mask[..., 0])
    return int(xs.min()), int(ys.min()), int(xs.max()) + 1, int(ys.max()) + 1


def test_masks_from_boxes_and_phrases_are_read_back_with_the_data(editloupe: Cli, seers: tuple[Finder, Reds]) -> None:
    seers[0].seen = {"ghost": []}
    folder = edits(
        {"id": "boxed", "bbox": [10, 10, 60, 60], "target_name": "square", "human_if": 4, "edit_type": "Color"},
        {"id": "named", "editor": "alpha", "target_name": "red square", "note": "kept"},
        {"id": "named", "editor": "beta", "target_name": "red square"},
        {"id": "absent", "target_name": "ghost"},
        {"id": "all", "target_name": "The entire image"},
        {"id": "unnamed"},
        {"id": "gone", "source_file_name": "gone.png"},
    )
    code, said, _ = editloupe("build", "masks", folder, "--out", "masked")
    assert code == 0
    read = {sample.key: sample for sample in load(Path("masked"), store=ImageStore()).samples}
    assert list(read) == ["boxed", "alpha/named", "beta/named", "absent", "all", "unnamed"]
    found = {key: white(sample) for key, sample in read.items() if sample.masks}
    assert found == {"boxed": PX, "alpha/named": PX, "beta/named": PX, "all": (0, 0, 320, 240)}
    # What shares a source and a phrase is looked for once; the box of the data needs no detector.
    assert seers[0].asked.count("red square") == 1
    assert [box.ints() for box in seers[1].boxes] == [(10, 10, 60, 60), PX]
    assert "masked: 4 masks of 7 samples; 3 dropped." in said and "how: boxes 1, detector 2, whole image 1" in said
    left = {row["sample"]: (row["stage"], row["detail"]) for row in lines("masked/left_out.jsonl")}
    assert left["gone"][0] == "read" and "edits/gone.png: no such file" in left["gone"][1]
    assert left["unnamed"] == ("wanted", "no box, and no phrase in the column 'target_name'")
    assert left["absent"] == ("made", "'ghost' was not found: no box reached the detector's least score, 0.25")
    missing = {row["id"]: row.get("mask_missing") for row in lines("masked/metadata.jsonl")}
    assert missing["absent"] == left["absent"][1] and missing["boxed"] is None
    assert "can be judged" in editloupe("check", "masked")[1]


def test_a_column_names_the_targets(editloupe: Cli, finder: Finder) -> None:
    folder = edits({"id": "a", "what": "mug", "bbox": [0, 0, 9, 9]}, {"id": "b", "what": 3}, {"id": "c"})
    words = ("build", "masks", folder, "--out", "masked", "--format", "json")
    code, said, _ = editloupe(*words, "--set", "phrase_field=what")
    data = json.loads(said)
    assert (code, data["written"], data["read"], data["how"]) == (0, 1, 3, {"detector": 1})
    assert [row["detail"] for row in lines("masked/left_out.jsonl")] == ["column 'what' names no target"] * 2
    assert finder.asked == ["mug"]


def test_what_cannot_be_done_is_said_before_anything_is_written(editloupe: Cli) -> None:
    folder = edits({"id": "a", "target_name": "mug"})
    for words, told in (
        (("--out", folder), "holds other files (0.png); name a new or an empty folder"),
        (("--out", "masked", "--set", "phrase_field=what"), "no sample has what a mask is made of"),
    ):
        err = refused(editloupe, "build", "masks", folder, *words)
        assert told in err and not Path("masked").exists()
