"""`editloupe build edival`: chains of edits."""

from __future__ import annotations

import ast
import csv
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from PIL import Image

from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.protocols.edival.chain import read_chain
from editloupe.protocols.edival.instructions import EDIT_TYPES
from tests.build.conftest import left, lines, unwritten
from tests.build.test_edival_pools import replay
from tests.build.toys import Finder
from tests.conftest import Cli, pngs


def pictures(folder: Path, count: int = 3) -> Path:
    """A folder of PNG and JPEG files: 0.png, 1.jpg, 2.png, …, 10.png."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number}.png").write_bytes(pngs(number, spots=1)[0])
        if number == 1:
            Image.open(folder / "1.png").save(folder / "1.jpg")
            (folder / "1.png").unlink()
    return folder


TOY = ("--backend", "toy/a")


def build(editloupe: Cli, path: Path, *words: str | Path) -> tuple[int, dict[str, Any]]:
    """(exit code, funnel) of a build by the toy."""
    code, said, told = editloupe("build", "edival", path, "--out", "set", *TOY, "--format", "json", *words)
    assert said, told
    return code, json.loads(said)


def table() -> list[dict[str, Any]]:
    """The benchmark's file, its lists read."""
    with Path("set/edival/instructions.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    numbers = ("image_index", "turns")
    return [{k: int(v) if k in numbers else ast.literal_eval(v) for k, v in row.items()} for row in rows]


def test_every_image_becomes_a_chain_that_is_read_back(editloupe: Cli, tmp_path: Path) -> None:
    code, funnel = build(editloupe, pictures(tmp_path / "images", 11))
    assert code == 0
    assert (funnel["read"], funnel["written"], funnel["dropped"]) == (11, 11, 0)
    assert funnel["objects"] == {"listed": 33, "grounded": 33, "left_out": {}}
    rows = table()
    assert [(row["image_index"], row["turns"]) for row in rows] == [(i, t) for i in range(11) for t in (1, 2, 3)]
    header = (Path("set/edival/instructions.csv")).read_text().splitlines()[0]
    assert header == (
        "image_index,turns,task_type,instructions,format_instructions,bg_consistency,unchanged_objects,available_objects,"
        "all_objects"
    )
    kinds = [Counter(row["task_type"][-1] for row in rows[turn::3]) for turn in range(3)]
    assert funnel["instructions"] == {str(turn): dict(found) for turn, found in enumerate(kinds, start=1)}
    for row in rows:
        # Lists are cumulative, pools are those after the turn.
        whole = rows[row["image_index"] * 3 + 2]
        for name in ("task_type", "instructions", "format_instructions"):
            assert row[name] == whole[name][: row["turns"]]
    store = ImageStore()
    benchmark, general = (load(Path("set") / name, store=store, outputs=False) for name in ("edival", "imagefolder"))
    assert (benchmark.format, general.format) == ("edival", "imagefolder") and not benchmark.rejected
    for row, sample, same in zip(rows[2::3], benchmark.samples, general.samples, strict=True):
        chain = read_chain(sample)
        assert chain == read_chain(same) and (sample.id, sample.source) == (same.id, same.source)
        assert [edit.edit_type for edit in chain.edits] == row["task_type"]
        # Each type once, or subject_add where no object allowed another.
        assert len({*row["task_type"]} | {"subject_add"}) >= 3 and not set(row["task_type"]) - set(EDIT_TYPES)
        objects = [name for name in ("metal red cup", "wooden table", "cat") if name in chain.pools[0].ever]
        assert len(objects) == 3
        foreground = {name for pools in chain.pools for name in pools.ever} - {"wooden table"}
        if not any(edit.edit_type == "background_change" for edit in chain.edits):
            assert replay(objects, chain.edits) == list(chain.pools)
        assert all(set(edit.keep) <= foreground for edit in chain.edits)
    assert not lines("set/left_out.jsonl")


def test_an_object_counts_if_the_detector_confirms_it(editloupe: Cli, tmp_path: Path, finder: Finder) -> None:
    finder.seen = {
        "metal red cup": [((0.1, 0.1, 0.4, 0.4), 0.34)],  # under 0.35
        "wooden table": [((0.0, 0.1, 0.95, 0.6), 0.9)],  # wide (0.95), and 0.475 of the image
        "cat": [((0.0, 0.1, 0.95, 0.5), 0.35)],  # as wide, and 0.38 of the image
    }
    _, funnel = build(editloupe, pictures(tmp_path / "images"))
    assert funnel["objects"] == {"listed": 9, "grounded": 3, "left_out": {"not_found": 3, "oversized": 3}}
    assert {(one["object"], one["why"]) for one in lines("set/left_out.jsonl")} == {
        ("metal red cup", "not_found"),
        ("wooden table", "oversized"),
    }
    assert all(row["all_objects"][0] == "cat" for row in table())


def test_an_answer_that_cannot_be_used_leaves_the_chain_out(editloupe: Cli, tmp_path: Path, toy: Any) -> None:
    toy(suggest="no/thing")
    images = pictures(tmp_path / "images", 8)
    code, funnel = build(editloupe, images, "--set", "turns=2", "--set", "fail_on_error=1")
    lost = left(funnel)["instructed"]
    # Of a type with a list of answers it is none of them.
    assert code == 1 and "unusable_answer" in lost and sum(lost.values()) == 8
    assert {one["detail"] for one in lines("set/left_out.jsonl") if one["why"] == "unusable_answer"} >= {
        "'no/thing' is no name"
    }


def test_nine_turns_have_nine_types_where_objects_allow_them(editloupe: Cli, tmp_path: Path) -> None:
    code, _ = build(editloupe, pictures(tmp_path / "images", 6), "--set", "turns=9")
    assert code == 0 and len(table()) == 54
    for row in table()[8::9]:
        twice = [kind for kind in EDIT_TYPES if row["task_type"].count(kind) > 1]
        assert twice in ([], ["subject_add"])


def test_what_cannot_be_built_is_said_before_anything_is_spent(editloupe: Cli, tmp_path: Path) -> None:
    images, other = pictures(tmp_path / "images"), pictures(tmp_path / "other", 1)
    shutil.copytree(images, tmp_path / "deep" / "below")

    def refused(path: Path, *words: str, out: str | Path = "set") -> str:
        code, said, told = editloupe("build", "edival", path, "--out", out, *words)
        assert (code, said) == (2, ""), told
        return " ".join(told.split())

    for path, words, out, told in (
        (tmp_path / "deep", TOY, "set", "3 lie in folders below, such as below: name that folder"),
        (images / "0.png", TOY, "set", "is a file; expected a folder of images"),
        (images, TOY, images / "0.png", "is a file; name a new or an empty folder"),
        (images, (*TOY, "--set", "speed=1"), "set", "there is no setting 'speed'"),
        (images, (), "set", "--set role.decompose=provider/model"),
    ):
        assert told in refused(path, *words, out=out)
        assert unwritten(tmp_path / "set")
    build(editloupe, images)
    assert f"was built with images {images}, and this command has {other}; name another" in refused(other, *TOY)
    assert "was built with seed 42, and this command has 7" in refused(images, *TOY, "--set", "seed=7")
