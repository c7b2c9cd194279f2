"""A loader of another package comes through the same door as the built-in ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.data.images import ImageStore
from editloupe.data.samples import box_file, formats, load
from editloupe.errors import ConfigError
from tests.packages import install

LOADER = """
from editloupe.data.rows import Loaded


def matches(data):
    return (data.root / "toy.txt").is_file()


def load(data):
    return Loaded(format="toy", samples=(), rejected=(), notes=((data.root / "toy.txt").read_text(),))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"toyset/__init__.py": "", "toyset/loader.py": LOADER}
    install(tmp_path / "site", monkeypatch, files=files, entry_points={"loaders": {"toy": "toyset.loader"}})
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "toy.txt").write_text("three edits")
    return tmp_path / "data"


def test_its_layout_is_recognized_and_can_be_named(folder: Path) -> None:
    assert formats()[:2] == ("auto", "imagefolder") and {"pairs", "datasets", "run", "toy"} <= {*formats()}
    for format in ("auto", "toy"):
        assert load(folder, store=ImageStore(), format=format).notes == ("three edits",)


def test_only_a_layout_of_columns_takes_a_mapping_file(folder: Path) -> None:
    assert box_file("toy") is None and box_file("imagefolder") is None
    boxes = box_file("dlebench")
    assert boxes is not None and (boxes.name, boxes.id_key, boxes.boxes_key) == ("boxes.jsonl", "id", "bbox")
    (folder / "map.toml").write_text("[columns]\nsource = 'a'\n")
    with pytest.raises(ConfigError, match=r"laid over one of imagefolder, datasets, dice, .*, not over 'toy'"):
        load(folder, store=ImageStore(), format="toy", fields=folder / "map.toml")
