"""Parquet files with images in their rows and folders of `save_to_disk`, drawn by hand and written by `datasets` itself."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest

from editloupe.data.images import ImageStore
from editloupe.errors import DataError, SampleError
from tests import clients
from tests.conftest import draw_edits, pngs
from tests.data.benchmarks import IMAGE, cell
from tests.data.conftest import opened

Program = Callable[..., tuple[int, str, str]]


def frame(count: int = 3, *, first: int = 0, **columns: list[Any]) -> polars.DataFrame:
    """Rows as `datasets` writes them; row i has i % 3 + 1 changed squares."""
    numbers = range(first, first + count)
    pairs = [pngs(i, spots=1 + i % 3) for i in numbers]
    given: dict[str, Any] = {
        name: polars.Series([cell(pair[n], f"{of}{i}.png") for i, pair in zip(numbers, pairs, strict=True)], dtype=IMAGE)
        for n, (name, of) in enumerate((("source", "room"), ("edited", "edit")))
    }
    return polars.DataFrame({**given, "instruction": [f"Make square {i} red." for i in numbers], **columns})


def save(folder: Path, *frames: polars.DataFrame, files: list[str] | None = None) -> Path:
    """A folder as `save_to_disk` leaves it."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05}-of-{len(frames):05}.arrow" for i in range(len(frames))]
    for name, one in zip(names, frames, strict=True):
        one.write_ipc_stream(folder / name)
    state = {"_data_files": [{"filename": name} for name in files or names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")
    return folder


def test_a_parquet_file_with_images_is_data(tmp_path: Path):
    boxes = [[[20, 20, 44, 44]], None, []]
    more = {"id": [*"abc"], "editor": [*"xxy"], "edit_type": ["Color"] * 3, "human_if": ["good", None, "bad"]}
    frame(**more, bboxes=boxes, note=[1, 2, 3]).write_parquet(tmp_path / "edits.parquet")
    found = opened(tmp_path / "edits.parquet")
    assert (found.format, len(found.samples), found.rejected) == ("datasets", 3, ())
    first = found.samples[0]
    said = (first.key, first.instruction, first.edit_type, first.extra)
    assert said == ("x/a", "Make square 0 red.", "Color", {"note": 1})
    assert (first.source.width, first.edited.width, first.human) == (320, 320, {"if": {"human": "good"}})
    assert [len(sample.targets) for sample in found.samples] == [1, 0, 0]
    assert opened(tmp_path).samples == found.samples, "its folder is as good"


def test_rows_without_an_id_are_called_after_their_edited_file(tmp_path: Path):
    frame().write_parquet(tmp_path / "edits.parquet")
    assert [sample.id for sample in opened(tmp_path).samples] == ["edit0", "edit1", "edit2"]
    nameless = frame().with_columns(polars.col("edited").struct.field("bytes").alias("edited"))
    nameless.write_parquet(tmp_path / "edits.parquet")
    assert [sample.id for sample in opened(tmp_path).samples] == ["1", "2", "3"], "bytes alone: by their row"


def test_several_files_of_a_saved_folder_are_counted_on(tmp_path: Path):
    folder = save(tmp_path / "saved", frame(2), frame(40, first=2))
    found = opened(folder)
    assert [sample.id for sample in found.samples] == [f"edit{i}" for i in range(42)]
    # Each has its own pixels, whichever file and block it lies in.
    whole = frame(42).get_column("edited").struct.field("bytes").to_list()
    sizes = ImageStore()
    assert [s.edited.sha256 for s in found.samples] == [sizes.add_bytes(data).sha256 for data in whole]
    assert opened(folder / "data-00000-of-00002.arrow").samples == found.samples[:2]


def test_an_image_that_is_null_is_a_missing_output_and_a_broken_one_a_rejected_row(tmp_path: Path):
    rows = frame(4)
    good = rows["edited"].to_list()
    rows = rows.with_columns(edited=polars.Series([None, cell(None), cell(b"no image"), good[3]], dtype=IMAGE))
    for path in (save(tmp_path / "saved", rows), tmp_path / "edits.parquet"):
        if path.suffix:
            rows.write_parquet(path)
        found = opened(path)
        assert [sample.edited is None for sample in found.samples] == [True, True, False]
        (refused,) = found.rejected
        assert refused.kind == "unreadable_image" and "row 3, column 'edited'" in refused.message


def test_a_row_that_holds_a_path_is_read_below_the_folder_alone(tmp_path: Path):
    before, after = pngs(0, spots=1)
    (tmp_path / "secret.png").write_bytes(before)
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "room.png").write_bytes(before)
    paths = ["room.png", str(tmp_path / "secret.png"), "../secret.png", "nowhere.png"]
    rows = frame(4).with_columns(
        source=polars.Series([cell(None, path) for path in paths], dtype=IMAGE),
        edited=polars.Series([cell(after)] * 4, dtype=IMAGE),
    )
    rows.write_parquet(folder / "edits.parquet")
    found = opened(folder)
    assert len(found.samples) == 1
    assert [row.kind for row in found.rejected] == ["outside_folder", "outside_folder", "missing_file"]
    assert all("save_to_disk puts the images into the rows" in row.message for row in found.rejected)


@pytest.mark.parametrize("names", [["../secret.arrow"], ["/etc/passwd"], ["nowhere.arrow"], [3]])
def test_a_saved_folder_names_files_of_its_own_only(tmp_path: Path, names: list[Any]):
    frame(1).write_ipc_stream(tmp_path / "secret.arrow")
    folder = save(tmp_path / "saved", frame(1), files=names)
    with pytest.raises(DataError, match=r"holds '\.\.'|is absolute|no such file"):
        opened(folder, format="datasets")


def test_what_cannot_be_used_as_a_whole_says_why(tmp_path: Path):
    for split in ("train", "test"):
        save(tmp_path / "dict" / split, frame(1))
    (tmp_path / "dict" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    with pytest.raises(DataError, match="expected one split, found test, train"):
        opened(tmp_path / "dict")
    frame(1).rename({"instruction": "words"}).write_parquet(tmp_path / "words.parquet")
    with pytest.raises(
        SampleError, match=r"no column for the instruction; looked for .*the columns are words, source, edited\. Say which"
    ):
        opened(tmp_path / "words.parquet")
    frame(1).drop("edited").write_parquet(tmp_path / "half.parquet")
    with pytest.raises(SampleError, match="no column with images for the edited; looked for edited, "):
        opened(tmp_path / "half.parquet")
    for name, data in (("text", b"hello, no Arrow here"), ("short", b"\xff\xff\xff\xff\x08\0\0\0"), ("none", b"")):
        (tmp_path / f"{name}.arrow").write_bytes(data)
        with pytest.raises(SampleError, match=r"is not an Arrow stream|cannot be read"):
            opened(tmp_path / f"{name}.arrow", format="datasets")


_WRITE = """
import sys
from pathlib import Path
import datasets
data, out = map(Path, sys.argv[1:])
folder = datasets.load_dataset("imagefolder", data_dir=str(data), split="train")
folder.save_to_disk(out / "saved", num_shards=2)
datasets.DatasetDict(test=folder).save_to_disk(out / "dict")
embedded = folder.with_format("arrow").map(datasets.table.embed_table_storage, batched=True).with_format(None)
embedded.to_parquet(out / "parquet" / "test-00000-of-00001.parquet")
folder.to_parquet(out / "paths" / "edits.parquet")
"""


@pytest.mark.clients
def test_what_datasets_writes_is_read_as_the_folder_that_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    python = clients.client("datasets")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))
    data = draw_edits(tmp_path / "edits", 3)
    (tmp_path / "parquet").mkdir()
    (tmp_path / "paths").mkdir()
    clients.run(python, "-c", _WRITE, data, tmp_path)
    expected = [(s.id, s.content) for s in opened(data).samples]
    for name in ("saved", "dict", "parquet"):
        found = opened(tmp_path / name)
        assert (found.format, found.rejected) == ("datasets", ())
        assert [(s.id, s.content) for s in found.samples] == expected, name
    assert len(opened(tmp_path / "paths").rejected) == 3
