"""The ImageFolder convention, well-formed and otherwise."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import polars
import pytest

from editloupe.data.samples import Loaded
from editloupe.errors import DataError, SampleError
from editloupe.values import Box, Sample
from tests.data.conftest import opened

Make = Callable[..., Path]
Pair = Callable[..., dict]
REAL = Path(__file__).parents[3] / "shared" / "data" / "real-edits"


def reason(loaded: Loaded, id: str) -> str:
    return next(r.message for r in loaded.rejected if r.id == id)


def test_every_column_finds_its_place(pair: Pair, write: Make, draw: Make) -> None:
    draw("set/right.png", 7)
    draw("set/mask.png", 8)
    row = pair(
        "cat",
        reference_file_name="right.png",
        mask_file_name="mask.png",
        edit_type="Change Color",
        bbox=[10, 5, 30, 25],
        target_name="red mug",
        model="Bagel",
        human_if_1="Wrong Action",
        human_if_2=3,
        human_visual_consistency="Scene Collapse",
        lang="en",
        origin={"repo": "x"},
    )
    loaded = opened(write("set/metadata.jsonl", [row]).parent)
    (sample,) = loaded.samples
    assert (sample.id, sample.editor, sample.key, sample.dataset) == ("cat", "Bagel", "Bagel/cat", "set")
    assert sample.instruction == "Change cat." and sample.edit_type == "Change Color"
    assert sample.reference is not None and sample.reference.path is not None and sample.reference.path.name == "right.png"
    assert list(sample.masks) == ["edit"]
    assert sample.targets[0].name == "red mug" and sample.targets[0].boxes == {"source": Box(10, 5, 30, 25)}
    rated = {"if_1": "Wrong Action", "if_2": 3.0, "visual_consistency": "Scene Collapse"}
    assert sample.human == {name: {"human": rating} for name, rating in rated.items()}
    assert sample.extra == {"lang": "en", "origin": {"repo": "x"}}
    assert Sample.from_json(sample.to_json()) == sample
    assert "Human labels: if_1, if_2, visual_consistency." in loaded.notes


BOXES: list[tuple[str | None, object]] = [
    (None, [16, 12, 32, 36]),
    ("xyxy", "16,12,32,36"),
    ("xywh", [16, 12, 16, 24]),
    ("unit", [0.25, 0.25, 0.5, 0.75]),
    ("thousandths", "[250, 250, 500, 750]"),
    ("yxyx_thousandths", [250, 250, 750, 500]),
    (None, [[16, 12, 32, 36]]),
]
"""One box of a picture of 64×48 px, in several spellings."""


def test_a_box_is_px_of_the_source_unless_its_format_says_otherwise(pair: Pair, write: Make) -> None:
    rows = [
        pair("cat", id=f"{n}", bbox=bbox, **({} if way is None else {"bbox_format": way}))
        for n, (way, bbox) in enumerate(BOXES)
    ]
    rows += [pair("dog", bbox=[10, 10, 65, 49])]
    *samples, cut = opened(write("set/metadata.jsonl", rows).parent).samples
    assert [sample.targets[0].boxes["source"] for sample in samples] == [Box(16, 12, 32, 36)] * len(BOXES)
    assert cut.targets[0].boxes["source"] == Box(10, 10, 64, 48) and "cut at the border" in cut.warnings[0]


BAD: list[tuple[dict[str, object], str]] = [
    ({"bbox": [0, 0, 200, 20]}, r"reaches outside the image of 64×48 px.*bbox_format"),
    ({"bbox": [30, 30, 10, 10]}, r"empty or inverted"),
    ({"bbox": [1, 2, 3]}, r"expected four finite numbers"),
    ({"bbox": "here"}, r"expected a box"),
    ({"bbox": {"a": 1}}, r"expected a box .*found the object"),
    ({"bbox": [0, 0, 9, 9], "bboxes": [[0, 0, 9, 9]]}, r"both 'bbox' and 'bboxes'"),
    ({"bbox": [0, 0, 9, 9], "bbox_format": "cxcywh"}, r"'bbox_format': expected one of xyxy"),
    ({"instruction": ""}, r"the instruction is empty"),
    ({"instruction": 12}, r"column 'instruction': expected text, found the number 12"),
    ({"id": 1.5}, r"column 'id': expected text or a whole number"),
    ({"human_if": True}, r"column 'human_if': expected a label or a finite number, found true"),
    ({"source_file_name": None}, r"'source_file_name' is empty"),
    ({"source_file_name": 3}, r"'source_file_name': expected text, found the number 3"),
    ({"source_file_name": ["source/dog.png", None]}, r"'source_file_name' is empty"),
    ({"edited_file_name": "edited/no.png"}, r"edited/no\.png: no such file"),
    ({"edited_file_name": "../outside.png"}, r"holds '\.\.'.*nothing outside"),
    ({"edited_file_name": "..\\outside.png"}, r"holds '\.\.'"),
    ({"edited_file_name": "/etc/passwd"}, r"is absolute"),
    ({"edited_file_name": "C:\\a.png"}, r"is absolute"),
    ({"edited_file_name": "a\0.png"}, r"zero byte"),
    ({"edited_file_name": "x" * 5000 + ".png"}, r"cannot be opened"),
    ({"edited_file_name": "edited"}, r"is a folder"),
    ({"reference_file_name": "no.png"}, r"no\.png: no such file"),
]
BROKEN: list[tuple[str, str]] = [
    ('{"id": "dog", ', "broken JSON"),
    ('{"id": "dog", "human_if": NaN}', "holds NaN, which is not a JSON number"),
    ('{"id": "dog", "human_if": 1e999}', "holds 1e999, which is not"),
    ('["dog"]', "expected one JSON object"),
    ('{"id": "dog", "id": "cow"}', "key 'id' twice"),
    ('{"id": "\\ud800"}', "surrogate"),
    ("[" * 100_000, "brackets are nested deeper than 100"),
]


def test_a_bad_row_is_rejected_with_its_line_and_the_others_go_on(pair: Pair, write: Make) -> None:
    bad = [pair("dog", **({"id": f"dog{n}"} | columns)) for n, (columns, _) in enumerate(BAD)]
    rows = [pair("cat"), *bad, "", *(line for line, _ in BROKEN), pair("horse")]
    loaded = opened(write("set/metadata.jsonl", rows).parent)
    assert [sample.id for sample in loaded.samples] == ["cat", "horse"]
    # The first line is the cat's, and the blank one before the broken lines counts too.
    lines = [*range(2, 2 + len(BAD)), *range(3 + len(BAD), 3 + len(BAD) + len(BROKEN))]
    for row, line, (given, expected) in zip(loaded.rejected, lines, [*BAD, *BROKEN], strict=True):
        assert row.line == line and row.message.startswith(f"metadata.jsonl, line {line}: ") and row.file is not None
        assert re.search(expected, row.message), (given, row.message)
        assert row.id == (f"line-{line}" if isinstance(given, str) or "id" in given else f"dog{line - 2}")


def test_an_id_counts_once_for_each_editor(pair: Pair, write: Make) -> None:
    rows = [pair("cat", editor="a"), pair("cat", editor="b"), pair("dog", editor="a"), pair("cat", editor="a")]
    loaded = opened(write("set/metadata.jsonl", rows).parent)
    assert [sample.key for sample in loaded.samples] == ["a/cat", "b/cat", "a/dog"]
    (bad,) = loaded.rejected
    assert bad.kind == "duplicate_id" and bad.key == "a/cat#line-4"
    assert "line 4: id 'cat' was used before on line 1" in bad.message


def test_rows_without_an_id_are_named_by_stem_or_digest_and_always_alike(pair: Pair, write: Make) -> None:
    def row(name: str, **columns: object) -> dict:
        return {k: v for k, v in pair(name, **columns).items() if k != "id"}

    rows = [row("cat"), row("dog"), row("dog", instruction="Again."), row("cow", edited_file_name=None), row("cat")]
    rows[4]["instruction"] = rows[0]["instruction"]
    rows[0], rows[4] = rows[4], {**pair("horse")}
    loaded = opened(write("set/metadata.jsonl", rows).parent)
    ids = [sample.id for sample in loaded.samples]
    assert ids[0] == "cat" and ids[4] == "horse" and len(set(ids)) == 5
    assert all(len(id) == 12 for id in ids[1:4])
    assert [sample.id for sample in opened(write("set/metadata.jsonl", rows).parent).samples] == ids


def test_csv_is_read_with_quotes_line_breaks_and_numbers(pair: Pair, tmp_path: Path) -> None:
    rows = [
        pair("cat", instruction='Make the "cat", blue\nand big', bbox="1,2,30,40", human_if="3", human_vc="Flawless"),
        pair("dog", bbox="", human_if="", human_vc="nan"),
        pair("horse", bbox="", human_if="", human_vc=""),
    ]
    with (tmp_path / "set" / "metadata.csv").open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    loaded = opened(tmp_path / "set")
    assert loaded.samples[0].instruction == 'Make the "cat", blue\nand big'
    assert loaded.samples[0].human == {"if": {"human": 3.0}, "vc": {"human": "Flawless"}}
    assert loaded.samples[0].targets[0].boxes["source"] == Box(1, 2, 30, 40)
    # The first row takes two lines, so the second one begins on line 4.
    assert loaded.rejected[0].line == 4 and "finite number, found the number nan" in loaded.rejected[0].message


def test_parquet_is_read_and_its_not_a_numbers_are_no_ratings(pair: Pair, tmp_path: Path) -> None:
    rows = [
        pair("cat", bbox=[1, 2, 30, 40], human_if=2.0, noise=float("nan")),
        pair("dog", bbox=None, human_if=float("nan"), noise=1.0),
    ]
    polars.DataFrame(rows).write_parquet(tmp_path / "set" / "metadata.parquet")
    loaded = opened(tmp_path / "set")
    assert [(sample.human, sample.extra) for sample in loaded.samples] == [
        ({"if": {"human": 2.0}}, {"noise": None}),
        ({}, {"noise": 1.0}),
    ]


def test_names_with_spaces_and_other_scripts_are_found(pair: Pair, write: Make) -> None:
    rows = [pair(" red  mug "), pair("猫 №1"), pair("café")]
    loaded = opened(write("set/metadata.jsonl", rows).parent)
    assert [r.message for r in loaded.rejected] == [] and len(loaded.samples) == 3


def test_a_link_that_leads_outside_is_refused(pair: Pair, write: Make, draw: Make) -> None:
    outside = draw("secret.png", 9)
    file = write("set/metadata.jsonl", [pair("cat"), pair("dog"), pair("cow"), pair("owl")])
    edited = file.parent / "edited"
    for name, target in (("dog", outside), ("cow", edited / "cow.png"), ("owl", edited / "cat.png")):
        (edited / f"{name}.png").unlink()
        (edited / f"{name}.png").symlink_to(target)
    loaded = opened(file.parent)
    assert [sample.id for sample in loaded.samples] == ["cat", "owl"]  # a link inside is as good as a file
    assert "leads outside" in reason(loaded, "dog") and "cow" in reason(loaded, "cow")


def test_a_folder_of_no_known_layout_shows_the_two_that_most_people_have(tmp_path: Path, draw: Make) -> None:
    with pytest.raises(DataError, match="no such folder"):
        opened(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"no known layout; saw an empty folder\.\n") as found:
        opened(tmp_path / "empty")
    lines = str(found.value).splitlines()
    assert len(lines) == 6 and "source, edited and instruction" in lines[2] and "source/cat.png" in lines[3]
    draw("pictures/one.png")
    with pytest.raises(DataError, match=r"no known layout; saw one\.png\.\n"):
        opened(tmp_path / "pictures")
    with pytest.raises(DataError, match="expected a folder or a metadata file"):
        opened(tmp_path / "pictures" / "one.png")


def test_empty_metadata_and_two_kinds_of_it_are_errors(pair: Pair, write: Make) -> None:
    file = write("set/metadata.jsonl", [""])
    with pytest.raises(SampleError, match="holds no rows"):
        opened(file.parent)
    write("set/metadata.csv", [",".join(pair("cat")), ",".join(map(str, pair("cat").values()))])
    with pytest.raises(DataError, match=r"metadata\.jsonl .*; metadata\.csv .*Give the path of the one"):
        opened(file.parent)
    assert len(opened(file.parent / "metadata.csv").samples) == 1
