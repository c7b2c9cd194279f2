"""The objects after each edit of a chain, worked by hand and held against the benchmark's file."""

from __future__ import annotations

import ast
import csv
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe.build.edival.pools import after, renamed, start
from editloupe.protocols.edival.chain import Pools
from editloupe.protocols.edival.instructions import Edit, parse_edit

SAMPLE = Path(__file__).parents[3] / "shared" / "data" / "benchmarks" / "edival" / "instructions_first_40_images.csv"
OBJECTS = ("metal red cup", "wooden table", "cat")


def replay(objects: Iterable[str], edits: Iterable[Edit]) -> list[Pools]:
    """Return the pools after each edit of a chain; what stays of a new background is what its sentence names."""
    found = [start(objects)]
    for edit in edits:
        found.append(after(found[-1], edit))
    return found[1:]


@pytest.mark.parametrize(
    ("edit", "ever", "unchanged", "available"),
    [
        (
            Edit(edit_type="subject_add", new="fork", position="left", reference="cat"),
            (*OBJECTS, "fork"), OBJECTS, (*OBJECTS, "fork"),
        ),
        (Edit(edit_type="subject_remove", target="cat"), OBJECTS, OBJECTS[:2], OBJECTS[:2]),
        (Edit(edit_type="subject_replace", target="cat", new="dog"), (*OBJECTS, "dog"), OBJECTS[:2], (*OBJECTS[:2], "dog")),
        (
            Edit(edit_type="color_alter", target="metal red cup", new="blue"),
            (*OBJECTS, "metal blue cup"), OBJECTS[1:], (*OBJECTS[1:], "metal blue cup"),
        ),
        (
            Edit(edit_type="material_alter", target="cat", new="glass"),
            (*OBJECTS, "glass cat"), OBJECTS[:2], (*OBJECTS[:2], "glass cat"),
        ),
        (Edit(edit_type="text_change", new="HI"), (*OBJECTS, "text"), OBJECTS, OBJECTS),
        (Edit(edit_type="text_change", target="cat", old_text="A", new="B"), OBJECTS, OBJECTS[:2], OBJECTS),
        (
            Edit(edit_type="position_change", target="cat", position="left", reference="wooden table"),
            OBJECTS, OBJECTS[:1], OBJECTS,
        ),
        (Edit(edit_type="count_change", target="cat", count=3), OBJECTS, OBJECTS[:2], OBJECTS),
    ],
    ids=lambda value: value.edit_type if isinstance(value, Edit) else "",
)  # fmt: skip
def test_an_edit_changes_the_pools(edit: Edit, ever: Any, unchanged: Any, available: Any) -> None:
    pools = after(start(OBJECTS), edit)
    assert (pools.ever, pools.unchanged, pools.available, pools.background_kept) == (ever, unchanged, available, True)


def test_a_new_background_leaves_the_foreground_and_stays_for_good() -> None:
    edits = [
        Edit(edit_type="background_change", new="park", keep=("cat", "metal red cup")),
        Edit(edit_type="subject_add", new="dog"),
    ]
    first, second = replay(OBJECTS, edits)
    # The order is that of the pool and not of the sentence.
    assert first.unchanged == first.available == ("metal red cup", "cat")
    assert (first.ever, first.background_kept, second.background_kept) == (OBJECTS, False, False)
    assert second.available == ("metal red cup", "cat", "dog")
    assert after(start(OBJECTS), edits[0], foreground={"cat"}).available == ("cat",)


def test_a_name_says_the_new_color_or_material() -> None:
    for kind, name, new, found in (
        ("color_alter", "wooden light brown dresser", "red", "wooden light red dresser"),
        ("color_alter", "black and white dog", "red", "red and white dog"),
        ("color_alter", "cloth dark shirt", "blue", "blue cloth dark shirt"),
        ("color_alter", "orange", "blue", "blue orange"),
        ("material_alter", "metal rusty fence", "wood", "wood rusty fence"),
        ("material_alter", "glass", "metal", "metal glass"),
    ):
        assert renamed(Edit(edit_type=kind, target=name, new=new)) == found


def rows(path: Path) -> list[dict[str, Any]]:
    objects = [f"{kind}_objects" for kind in ("unchanged", "available", "all")]
    lists = ("task_type", "instructions", "format_instructions", *objects)
    with path.open(encoding="utf-8", newline="") as file:
        return [{**row, **{name: ast.literal_eval(row[name]) for name in lists}} for row in csv.DictReader(file)]


def first_objects(edit: Edit, ever: Sequence[str]) -> list[str]:
    """The objects before the first edit: all that are there after it, without the one that it brought."""
    brings = edit.edit_type in ("subject_add", "subject_replace", "color_alter", "material_alter") or (
        edit.edit_type == "text_change" and not edit.target
    )
    return list(ever[:-1] if brings else ever)


@pytest.mark.skipif(not SAMPLE.exists(), reason="the benchmark's file is not here")
def test_the_pools_of_the_benchmarks_file_follow_from_its_instructions() -> None:
    table = rows(SAMPLE)
    assert len(table) == 120
    others = []
    for row in table:
        edits = [*map(parse_edit, row["task_type"], row["format_instructions"], row["instructions"])]
        first = next(r for r in table if r["image_index"] == row["image_index"] and r["turns"] == "1")
        objects = first_objects(edits[0], first["all_objects"])
        # The file counts as foreground what the sentence names, but not what an edit has brought or renamed.
        edits = [replace(edit, keep=tuple(name for name in edit.keep if name in objects)) for edit in edits]
        pools = replay(objects, edits)[-1]
        found = (*map(list, (pools.ever, pools.available, pools.unchanged)), str(pools.background_kept))
        given = tuple(row[name] for name in ("all_objects", "available_objects", "unchanged_objects", "bg_consistency"))
        if found != given:
            others.append((row["image_index"], row["turns"], found, given))
    assert others == []
