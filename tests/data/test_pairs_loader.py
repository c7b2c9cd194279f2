"""A bare pair of folders with the instructions in one file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.errors import DataError, SampleError
from editloupe.values import Box


def opened(path: Path, **options: object) -> Loaded:
    return load(path, store=ImageStore(), **options)  # type: ignore[arg-type]


@pytest.fixture
def folder(draw: Callable[..., Path], tmp_path: Path) -> Path:
    """source/ with cat, dog and cow, edited/ with cat.jpg and dog.png, no instructions yet."""
    for i, name in enumerate(("source/cat.png", "source/dog.png", "source/cow.v2.png", "edited/cat.jpg", "edited/dog.png")):
        draw(f"set/{name}", i)
    return tmp_path / "set"


def test_pairs_are_matched_by_stem_and_a_missing_output_is_no_error(
    folder: Path, write: Callable[..., Path], draw: Callable[..., Path]
) -> None:
    draw("set/reference/dog.webp", 9)
    rows = ["name,instruction,edit_type,bbox", 'cat.png,Red cat,Change Color,"1,2,30,40"', "dog,No dog,,", "cow.v2,Blue,,"]
    write("set/instructions.csv", rows)
    loaded = opened(folder)
    assert (loaded.format, loaded.rejected) == ("pairs", ())
    cat, dog, cow = loaded.samples
    assert (cat.id, cat.instruction, cat.edit_type) == ("cat", "Red cat", "Change Color")
    assert cat.targets[0].boxes["source"] == Box(1, 2, 30, 40)
    assert dog.reference is not None and dog.edited is not None and cow.id == "cow.v2" and cow.edited is None


def test_instructions_may_be_json_lines(folder: Path, write: Callable[..., Path]) -> None:
    write("set/instructions.jsonl", [{"image": n, "instruction": f"Change {n}.", "lang": "en"} for n in ("cat", "dog")])
    loaded = opened(folder)
    assert [s.extra for s in loaded.samples] == [{"lang": "en"}] * 2
    (bad,) = loaded.rejected
    assert bad.id == "cow.v2" and "no instruction for 'cow.v2' in instructions.jsonl" in bad.message


def test_a_text_file_gives_one_instruction_for_all_or_one_a_line(folder: Path, write: Callable[..., Path]) -> None:
    write("set/instructions.txt", ["Make it red."])
    assert [s.instruction for s in opened(folder).samples] == ["Make it red."] * 3
    write("set/instructions.txt", ["cat\tRed cat.", "dog: no tab", "cow.v2\t "])
    loaded = opened(folder)
    assert [s.id for s in loaded.samples] == ["cat"]
    messages = {r.line: r.message for r in loaded.rejected if r.line}
    assert "no tab" in messages[2] and "instruction is empty" in messages[3]


def test_an_unmatched_file_or_row_is_rejected_and_named(
    folder: Path, write: Callable[..., Path], draw: Callable[..., Path]
) -> None:
    draw("set/edited/hen.png", 5)
    draw("set/source/dog.jpg", 6)
    write("set/instructions.csv", ["name,instruction", "cat,a", "dog,b", "cow.v2,c", "fox,d", "cat,e", ",f"])
    loaded = opened(folder)
    assert [s.id for s in loaded.samples] == ["cat", "cow.v2"]
    messages = {r.id: r.message for r in loaded.rejected}
    assert "several files have the stem 'dog'" in messages["dog"]
    assert "no image has the stem 'fox'" in messages["fox"]
    assert "no image in source/ has the stem 'hen'" in messages["hen"]
    assert "used before on line 2" in messages["cat#line-6"]
    assert "expected the stem of an image" in messages["line-7"]


def test_several_editors_share_source_and_instructions(
    folder: Path, write: Callable[..., Path], draw: Callable[..., Path], tmp_path: Path
) -> None:
    write("set/instructions.txt", ["Make it red."])
    for name in ("one/cat.png", "one/dog.png", "one/cow.v2.png", "two/cat.png"):
        draw(name, len(name))
    loaded = opened(folder, edited={"one": tmp_path / "one", "two": tmp_path / "two"})
    assert sum(s.edited is not None for s in loaded.samples) == 4 and len(loaded.samples) == 6
    assert any("editor 'two'" in note and "2 missing" in note for note in loaded.notes)


@pytest.mark.parametrize("stem", ["kitten", None])
def test_an_output_folder_that_fits_nothing_is_an_error_of_the_whole(
    folder: Path, write: Callable[..., Path], draw: Callable[..., Path], tmp_path: Path, stem: str | None
) -> None:
    write("set/instructions.txt", ["Make it red."])
    (tmp_path / "out").mkdir()
    if stem:
        draw(f"out/{stem}.png")
    with pytest.raises(DataError, match=r"saw 'kitten', expected names such as 'cat'|holds no image"):
        opened(folder, edited={"A": tmp_path / "out"})


def test_a_folder_for_each_editor_inside_edited_is_pointed_out(
    folder: Path, write: Callable[..., Path], draw: Callable[..., Path]
) -> None:
    write("set/instructions.txt", ["Make it red."])
    for file in (folder / "edited").iterdir():
        file.unlink()
    draw("set/edited/modelA/cat.png")
    with pytest.raises(DataError, match="--edited modelA="):
        opened(folder)


def test_instructions_are_needed_once_and_with_their_columns(folder: Path, write: Callable[..., Path]) -> None:
    with pytest.raises(DataError, match=r"expected the instructions in one of instructions\.csv"):
        opened(folder)
    file = write("set/instructions.csv", ["picture,prompt", "cat,red"])
    with pytest.raises(
        SampleError,
        match=r"no column for the id; looked for name, stem.*the columns are picture, prompt\. Say which it is: --col",
    ):
        opened(folder)
    write("set/instructions.txt", ["Make it red."])
    with pytest.raises(
        DataError, match=r"several tables could be the data: instructions\.csv, instructions\.txt; give the path"
    ):
        opened(folder)
    file.write_text('name,instruction\ncat,"an open quote\n', encoding="utf-8")
    (folder / "instructions.txt").unlink()
    assert any("line 2: is broken CSV" in r.message for r in opened(folder).rejected)


def test_a_source_folder_that_is_a_link_outside_is_refused(
    write: Callable[..., Path], draw: Callable[..., Path], tmp_path: Path
) -> None:
    draw("elsewhere/cat.png")
    draw("set/edited/cat.png")
    write("set/instructions.txt", ["Make it red."])
    (tmp_path / "set" / "source").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(DataError, match="leads outside"):
        opened(tmp_path / "set")
