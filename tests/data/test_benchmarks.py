"""Public benchmarks in the shape of their public files: what `check` says of them, and that `judge` takes them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.data.images import ImageStore
from editloupe.errors import SampleError
from tests.data.benchmarks import column, draw, emuedit, gedit, imgedit, kris, magicbrush, rise, write
from tests.data.conftest import opened

Editloupe = Callable[..., tuple[int, str, str]]

MADE: dict[str, tuple[Callable[[Path], None], str]] = {
    "gedit": (gedit, "1 missing, 0 belong to no row"),
    "imgedit": (imgedit, "named {id}; 1 missing, 0 belong to no row"),
    "kris": (kris, "2 missing, 0 belong to no row"),
    "rise": (rise, "named images/{category}/{id}; 1 missing, 0 belong to no row"),
    "magicbrush": (magicbrush, "0 missing, 1 belong to no row"),
    "emuedit": (emuedit, "named {id}; 1 missing, 0 belong to no row"),
}


def test_check_recognizes_each_and_says_what_is_missing(editloupe: Editloupe, tmp_path: Path) -> None:
    for name, (make, outputs) in MADE.items():
        make(tmp_path / name)
        (tmp_path / name / "out").rename(tmp_path / f"{name}-out")
        code, out, err = editloupe("check", name, "--edited", f"bagel={name}-out")
        said = " ".join((out + err).split())
        assert code == 0 and outputs in said and f"{name}: {name}; " in said, said


def test_an_entry_of_gedit_is_one_language_and_its_output_lies_by_task_and_language(tmp_path: Path) -> None:
    gedit(tmp_path)
    for folder in ("out", "out/fullset"):
        found = opened(tmp_path, edited={"bagel": tmp_path / folder})
        assert [(s.id, s.edit_type, s.edited is None) for s in found.samples] == [
            ("k1.en", "subject-add", False),
            ("k1.cn", "subject-add", False),
            ("k2.en", "tone_transfer", True),
        ]
    assert found.samples[0].extra["Intersection_exist"] is True


def test_turns_of_imgedit_are_one_sample(tmp_path: Path) -> None:
    turns = {"id": "1.png", "turn1": "All edits are green.", "turn2": "Add fruit.", "turn3": "Change the plate."}
    draw(tmp_path / "1.png")
    draw(tmp_path / "out/1_turn_2.png", edited=True)
    # One object by key, as in the readme, or a line for each entry.
    write(tmp_path / "turns.json", {"1": turns})
    (tmp_path / "lines.json").write_text("\n".join([json.dumps(turns)] * 2))
    for name, count in (("turns.json", 1), ("lines.json", 2)):
        found = opened(tmp_path / name, format="imgedit", edited={"bagel": tmp_path / "out"})
        assert len(found.samples) == count
        assert [turn.instruction for turn in found.samples[0].turns] == [turns[f"turn{n}"] for n in (1, 2, 3)]
        assert [turn.edited is None for turn in found.samples[0].turns] == [True, False, True]


def test_kris_shows_several_input_images_in_their_order(tmp_path: Path) -> None:
    kris(tmp_path)
    found = opened(tmp_path, edited={"bagel": tmp_path / "out"})
    assert [(s.id, s.reference is None, len(s.sources)) for s in found.samples] == [
        ("biology-1", True, 1),
        ("temporal_prediction-1", False, 2),
        ("viewpoint_change-1", False, 1),
    ]
    several = found.samples[1]
    assert [ref.path.name for ref in several.sources if ref.path] == ["1-2.png", "1-3.png"]
    assert several.source == several.sources[0]
    # One category by itself.
    file = tmp_path / "KRIS_Bench/biology/annotation.json"
    (one,) = opened(file, format="kris", outputs=False).samples
    assert one.id == "biology-1"


def test_magicbrush_is_sessions_or_single_turns(tmp_path: Path) -> None:
    magicbrush(tmp_path)
    out = {"bagel": tmp_path / "out"}
    sizes = ImageStore()
    files = {name: sizes.add_file(tmp_path / f"out/139/139_{name}.png").sha256 for name in ("1", "iter_2", "inde_2")}
    (session,) = opened(tmp_path, edited=out).samples
    assert session.id == "139" and [t.instruction for t in session.turns] == ["Add a hat.", "Make it red."]
    assert [turn.edited.sha256 for turn in session.turns] == [files["1"], files["iter_2"]]
    first, second = opened(tmp_path / "edit_turns.json", edited=out).samples
    assert (first.id, second.id) == ("139-1", "139-2")
    assert [turn.edited.sha256 for turn in (*first.turns, *second.turns)] == [files["1"], files["inde_2"]]
    # A single turn begins with the right image of the turn before.
    assert second.source.sha256 == first.reference.sha256 == sizes.add_file(tmp_path / "images/139/139-output1.png").sha256


def test_an_index_that_is_not_unique_is_no_id(tmp_path: Path) -> None:
    emuedit(tmp_path, edited_image=column(2, edited=True), model=["emu", "emu"], idx=[7, 7])
    assert [sample.id for sample in opened(tmp_path / "test.parquet").samples] == ["aa", "bb"]


def test_a_list_of_another_kind_is_refused_with_what_was_expected(tmp_path: Path) -> None:
    said = r"list.json: (no column for the source; looked for .*; the columns are other|is not JSON|expected an object)"
    for text in ("{", "3", '{"1": {"other": 1}}', '[{"other": 1}]'):
        (tmp_path / "list.json").write_text(text)
        with pytest.raises(SampleError, match=said):
            opened(tmp_path / "list.json", format="rise", outputs=False)


def test_one_broken_entry_is_rejected_and_the_others_stay(tmp_path: Path) -> None:
    imgedit(tmp_path)
    entries = json.loads((tmp_path / "basic_edit.json").read_text())
    entries |= {"a/b": entries["673"], "5": {"id": "nowhere.png", "prompt": "x"}, "6": 3}
    entries |= {"7": {"id": "animal/1.png", "prompt": " "}}
    write(tmp_path / "basic_edit.json", entries)
    found = opened(tmp_path, outputs=False)
    assert len(found.samples) == 2
    messages = " ".join(row.message for row in found.rejected)
    said = ("without '/'", "nowhere.png: no such file", "found the number 3", "the instruction under 'prompt' is empty")
    assert [part for part in said if part not in messages] == []
