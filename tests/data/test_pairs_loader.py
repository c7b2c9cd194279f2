"""A bare pair of folders with the instructions in one table."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.errors import DataError, SampleError
from editloupe.values import Box
from tests.data.conftest import opened

Make = Callable[..., Path]
ROWS = ["name,instruction", "cat,Red cat", "dog,No dog", "cow.v2,Blue"]


@pytest.fixture
def folder(draw: Make, tmp_path: Path) -> Path:
    """source/ with cat, dog and cow.v2, edited/ with cat.jpg and dog.png, no instructions yet."""
    for i, name in enumerate(("source/cat.png", "source/dog.png", "source/cow.v2.png", "edited/cat.jpg", "edited/dog.png")):
        draw(f"set/{name}", i)
    return tmp_path / "set"


def test_pairs_are_matched_by_stem_and_a_missing_output_is_no_error(folder: Path, write: Make, draw: Make) -> None:
    draw("set/reference/dog.webp", 9)
    rows = ["name,instruction,edit_type,bbox", 'cat.png,Red cat,Change Color,"1,2,30,40"', "dog,No dog,,", "cow.v2,Blue,,"]
    write("set/instructions.csv", rows)
    loaded = opened(folder)
    assert (loaded.format, loaded.rejected) == ("pairs", ())
    cat, dog, cow = loaded.samples
    assert (cat.id, cat.instruction, cat.edit_type) == ("cat", "Red cat", "Change Color")
    assert cat.targets[0].boxes["source"] == Box(1, 2, 30, 40)
    assert dog.reference is not None and dog.edited is not None and cow.id == "cow.v2" and cow.edited is None


def test_what_has_no_partner_is_named(folder: Path, write: Make, draw: Make) -> None:
    draw("set/edited/hen.png", 5)
    draw("set/source/dog.jpg", 6)
    draw("set/source/owl.jpg", 7)
    write("set/instructions.csv", [*ROWS, "fox,d", "cat,e", ",f", 'pig,"an open quote'])
    loaded = opened(folder)
    assert [s.id for s in loaded.samples] == ["cat", "cow.v2"]
    said = {
        "dog": "several files have the stem 'dog'",
        "fox": "no image has the stem 'fox'",
        "owl": "no instruction for 'owl' in instructions.csv",
        "cat#line-6": "used before on line 2",
        "line-7": "expected the stem of an image",
        "line-8": "is broken CSV",
    }
    messages = {r.id: r.message for r in loaded.rejected}
    assert messages.keys() == said.keys()
    for id_, part in said.items():
        assert part in messages[id_]
    assert any("belong to no row" in note and "hen.png" in note for note in loaded.notes)


def test_several_editors_share_source_and_instructions(folder: Path, write: Make, draw: Make, tmp_path: Path) -> None:
    write("set/instructions.csv", ROWS)
    for name in ("one/cat.png", "one/dog.png", "one/cow.v2.png", "two/cat.png", "three/kitten.png"):
        draw(name, len(name))
    loaded = opened(folder, edited={"one": tmp_path / "one", "two": tmp_path / "two"})
    assert sum(s.edited is not None for s in loaded.samples) == 4 and len(loaded.samples) == 6
    assert any("editor 'two'" in note and "2 missing" in note for note in loaded.notes)
    with pytest.raises(DataError, match=r"saw 'kitten', expected names such as 'cat'"):
        opened(folder, edited={"A": tmp_path / "three"})


def test_what_cannot_be_used_as_a_whole_says_what_to_do(folder: Path, write: Make, draw: Make, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"no table of instructions; expected one of instructions\.csv"):
        opened(folder)
    write("set/instructions.csv", ["picture,prompt", "cat,red"])
    with pytest.raises(
        SampleError, match=r"no column for the id; .*the columns are picture, prompt\. Say which it is: --col"
    ):
        opened(folder)
    file = write("set/instructions.csv", ROWS)
    write("set/instructions.jsonl", [{"name": "cat", "instruction": "Go."}])
    with pytest.raises(DataError, match=r"several tables could be the data: instructions\.csv .*; instructions\.jsonl "):
        opened(folder)
    file.unlink()
    assert [s.id for s in opened(folder).samples] == ["cat"]
    for image in (folder / "edited").iterdir():
        image.unlink()
    draw("set/edited/modelA/cat.png")
    with pytest.raises(DataError, match="--edited modelA="):
        opened(folder)
    (folder / "source").rename(tmp_path / "elsewhere")
    (folder / "source").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="leads outside"):
        opened(folder)
