"""A run folder as a data set."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe.data.images import ImageStore
from editloupe.data.samples import load

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(editloupe: Run) -> Path:
    """A run of one edit with a mask, without the data that it was made from."""
    folder = Path("data")
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in ("a", "b", "m"):
        Image.fromarray(rng.integers(0, 256, (40, 50, 3), np.uint8)).save(folder / f"{name}.png")
    row = {"id": "one", "source_file_name": "a.png", "edited_file_name": "b.png", "mask_file_name": "m.png"}
    lines = [{**row, "instruction": "Change it."}, {**row, "id": "two", "edited_file_name": None, "instruction": "?"}]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    editloupe("judge", folder, "--out", "run")
    for file in folder.iterdir():
        file.unlink()
    return Path("run").resolve()


def blob(run: Path, sha: str) -> Path:
    return run / "blobs" / sha[:2] / f"{sha}.png"


def test_the_samples_of_a_run_are_loaded_with_their_pictures(run: Path) -> None:
    store = ImageStore()
    loaded = load(run, store=store)
    assert loaded.format == "run" and not loaded.rejected
    one, two = loaded.samples
    assert (one.id, one.instruction, two.edited) == ("one", "Change it.", None)
    assert one.edited is not None
    for ref in (one.source, one.edited, one.masks["edit"]):
        assert store.array(ref).shape == (40, 50, 3)


def test_a_picture_that_is_gone_or_changed_costs_its_sample(run: Path) -> None:
    one, _ = load(run, store=ImageStore()).samples
    assert one.edited is not None
    place = blob(run, one.edited.sha256)
    kept = place.read_bytes()
    place.write_bytes(blob(run, one.source.sha256).read_bytes())
    rejected = load(run, store=ImageStore()).rejected
    assert "its bytes are no longer those that its name tells" in rejected[0].message
    place.unlink()
    loaded = load(run, store=ImageStore())
    assert [sample.id for sample in loaded.samples] == ["two"]
    assert "does not keep the edited image; name the folder of edits itself" in loaded.rejected[0].message
    # Nothing outside the run is read.
    outside = run.parent / "outside.png"
    outside.write_bytes(kept)
    place.symlink_to(outside)
    assert "leads outside" in load(run, store=ImageStore()).rejected[0].message


def test_lines_that_are_no_sample_are_named(run: Path) -> None:
    with (run / "samples.jsonl").open("a") as file:
        file.write('[]\n{"id": 3}\nnot json\n')
        file.write(json.dumps({"rejected": {"id": "r", "editor": "", "message": "no image"}}) + "\n")
    rejected = load(run, store=ImageStore()).rejected
    assert [row.id for row in rejected] == ["line-3", "line-4", "line-5", "r"]
    assert "line 3: expected an object" in rejected[0].message and rejected[3].message == "no image"
