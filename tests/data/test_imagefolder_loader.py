"""The ImageFolder convention, well-formed and otherwise."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import polars
import pytest
from PIL import Image

from editloupe.data.human import human_column
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load, load_sample
from editloupe.errors import ConfigError, DataError, ImageError, SampleError
from editloupe.values import Box, Sample

REAL = Path(__file__).parents[3] / "shared" / "data" / "real-edits"


def opened(path: Path, **options: object) -> Loaded:
    return load(path, store=ImageStore(), **options)  # type: ignore[arg-type]


def reason(loaded: Loaded, id: str) -> str:
    return next(r.message for r in loaded.rejected if r.id == id)


@pytest.mark.skipif(not REAL.is_dir(), reason="the shared collection of real edits is not on this machine")
def test_the_collection_of_real_edits_loads_whole() -> None:
    loaded = opened(REAL)
    assert (loaded.format, len(loaded.samples), loaded.rejected) == ("imagefolder", 83, ())
    assert len({sample.key for sample in loaded.samples}) == 83


def test_every_column_finds_its_place(pair: Callable[..., dict], write: Callable[..., Path], draw: Callable) -> None:
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
    assert "Human labels come along: if_1, if_2, visual_consistency." in loaded.notes


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        ("human_if", ("if", "human")),
        ("human_if_anna", ("if_anna", "human")),
        ("human_text_quality__anna", ("text_quality", "anna")),
        ("human_", None),
        ("humans", None),
    ],
)
def test_a_rating_column_names_criterion_and_rater(column: str, expected: tuple[str, str] | None) -> None:
    assert human_column(column) == expected


@pytest.mark.parametrize(
    ("bbox_format", "bbox"),
    [
        (None, [16, 12, 32, 36]),
        ("xyxy", "16,12,32,36"),
        ("xywh", [16, 12, 16, 24]),
        ("unit", [0.25, 0.25, 0.5, 0.75]),
        ("thousandths", "[250, 250, 500, 750]"),
        ("yxyx_thousandths", [250, 250, 750, 500]),
        (None, {"x": 16, "y": 12, "w": 16, "h": 24}),
        (None, [[16, 12], [32, 36]]),
    ],
)
def test_a_box_is_px_of_the_source_unless_its_format_says_otherwise(
    pair: Callable[..., dict], write: Callable[..., Path], bbox_format: str | None, bbox: object
) -> None:
    row = pair("cat", bbox=bbox, **({} if bbox_format is None else {"bbox_format": bbox_format}))
    (sample,) = opened(write("set/metadata.jsonl", [row]).parent).samples
    assert sample.targets[0].boxes["source"] == Box(16, 12, 32, 36)  # of 64×48 px


def test_several_boxes_are_several_targets(pair: Callable[..., dict], write: Callable[..., Path]) -> None:
    row = pair("cat", bboxes=[[0, 0, 10, 10], [20, 20, 30, 30]])
    (sample,) = opened(write("set/metadata.jsonl", [row]).parent).samples
    assert [target.boxes["source"] for target in sample.targets] == [Box(0, 0, 10, 10), Box(20, 20, 30, 30)]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"bbox": [0, 0, 200, 20]}, r"reaches outside the image of 64×48 px.*bbox_format"),
        ({"bbox": [30, 30, 10, 10]}, r"empty or inverted"),
        ({"bbox": [1, 2, 3]}, r"expected four numbers, found 3"),
        ({"bbox": "here"}, r"expected four numbers"),
        ({"bbox": {"a": 1}}, r"found the keys a"),
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
    ],
)
def test_one_bad_row_is_rejected_with_its_line_and_the_others_go_on(
    pair: Callable[..., dict], write: Callable[..., Path], columns: dict[str, object], expected: str
) -> None:
    loaded = opened(write("set/metadata.jsonl", [pair("cat"), pair("dog", **columns), pair("horse")]).parent)
    assert [sample.id for sample in loaded.samples] == ["cat", "horse"]
    (bad,) = loaded.rejected
    assert bad.line == 2 and bad.message.startswith("metadata.jsonl, line 2: ") and bad.file is not None
    assert bad.id == ("line-2" if "id" in columns else "dog")
    with pytest.raises(SampleError, match=expected):
        raise SampleError(bad.message)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('{"id": "dog", ', "broken JSON"),
        ('{"id": "dog", "human_if": NaN}', "NaN, which is not a JSON number"),
        ('{"id": "dog", "human_if": 1e999}', "too large"),
        ('["dog"]', "expected one JSON object"),
        ('{"id": "dog", "id": "cow"}', "key 'id' twice"),
        ('{"id": "\\ud800"}', "surrogate"),
        ("[" * 100_000, "brackets are nested deeper than 100"),
    ],
)
def test_a_broken_json_line_is_rejected_by_its_number(
    pair: Callable[..., dict], write: Callable[..., Path], line: str, expected: str
) -> None:
    loaded = opened(write("set/metadata.jsonl", [pair("cat"), "", line, pair("horse")]).parent)
    assert [sample.id for sample in loaded.samples] == ["cat", "horse"]
    with pytest.raises(SampleError, match=f"line 3: .*({expected})"):
        raise SampleError(reason(loaded, "line-3"))


def test_a_null_output_is_missing_and_not_rejected(pair: Callable[..., dict], write: Callable[..., Path]) -> None:
    rows = [pair("cat", edited_file_name=None), pair("dog", edited_file_name=""), pair("horse")]
    loaded = opened(write("set/metadata.jsonl", rows).parent)
    assert loaded.rejected == ()
    assert [sample.edited is None for sample in loaded.samples] == [True, True, False]


def test_an_id_counts_once_for_each_editor(pair: Callable[..., dict], write: Callable[..., Path]) -> None:
    rows = [pair("cat", editor="a"), pair("cat", editor="b"), pair("dog", editor="a"), pair("cat", editor="a")]
    loaded = opened(write("set/metadata.jsonl", rows).parent)
    assert [sample.key for sample in loaded.samples] == ["a/cat", "b/cat", "a/dog"]
    (bad,) = loaded.rejected
    assert bad.kind == "duplicate_id" and bad.key == "a/cat#line-4"
    assert "line 4: id 'cat' was used before on line 1" in bad.message


def test_rows_without_an_id_are_named_by_stem_or_digest_and_always_alike(
    pair: Callable[..., dict], write: Callable[..., Path]
) -> None:
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


def test_csv_is_read_with_quotes_line_breaks_and_numbers(pair: Callable[..., dict], tmp_path: Path) -> None:
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


def test_a_missing_column_is_named_with_those_that_are_there(pair: Callable[..., dict], tmp_path: Path) -> None:
    pair("cat")
    (tmp_path / "set" / "metadata.csv").write_text(
        "source_filename,edited_file_name,instruction\na,b,c\n", encoding="utf-8"
    )
    with pytest.raises(
        SampleError,
        match=r"no column for the source; looked for source_file_name, .*the columns are source_filename, edited_file",
    ):
        opened(tmp_path / "set")


def test_parquet_is_read_and_its_not_a_numbers_are_no_ratings(pair: Callable[..., dict], tmp_path: Path) -> None:
    rows = [
        pair("cat", bbox=[1, 2, 30, 40], human_if=2.0, noise=float("nan")),
        pair("dog", bbox=None, human_if=float("nan"), noise=1.0),
    ]
    polars.DataFrame(rows).write_parquet(tmp_path / "set" / "metadata.parquet")
    loaded = opened(tmp_path / "set")
    (sample,) = loaded.samples
    assert sample.human == {"if": {"human": 2.0}} and sample.extra == {"noise": None}
    assert loaded.rejected[0].line == 2 and "human_if" in loaded.rejected[0].message


def test_a_parquet_file_that_is_none_is_an_error_of_the_data(pair: Callable[..., dict], tmp_path: Path) -> None:
    pair("cat")
    (tmp_path / "set" / "metadata.parquet").write_bytes(b"nonsense")
    with pytest.raises(SampleError, match="not a Parquet file"):
        opened(tmp_path / "set")


def test_names_with_spaces_and_other_scripts_are_found(pair: Callable[..., dict], write: Callable[..., Path]) -> None:
    import unicodedata

    rows = [pair(" red  mug "), pair("猫 №1"), pair(unicodedata.normalize("NFD", "café"))]
    rows[2]["edited_file_name"] = unicodedata.normalize("NFC", str(rows[2]["edited_file_name"]))
    rows[1]["edited_file_name"] = str(rows[1]["edited_file_name"]).replace("/", "\\")
    loaded = opened(write("set/metadata.jsonl", rows).parent)
    assert [r.message for r in loaded.rejected] == [] and len(loaded.samples) == 3


def test_a_link_that_leads_outside_is_refused(
    pair: Callable[..., dict], write: Callable[..., Path], draw: Callable
) -> None:
    outside = draw("secret.png", 9)
    file = write("set/metadata.jsonl", [pair("cat"), pair("dog"), pair("cow"), pair("owl")])
    edited = file.parent / "edited"
    for name, target in (("dog", outside), ("cow", edited / "cow.png"), ("owl", edited / "cat.png")):
        (edited / f"{name}.png").unlink()
        (edited / f"{name}.png").symlink_to(target)
    loaded = opened(file.parent)
    assert [sample.id for sample in loaded.samples] == ["cat", "owl"]  # a link inside is as good as a file
    assert "leads outside" in reason(loaded, "dog") and "cow" in reason(loaded, "cow")


def test_metadata_that_is_a_link_outside_is_refused(pair: Callable[..., dict], write: Callable[..., Path]) -> None:
    file = write("elsewhere.jsonl", [pair("cat")])
    (file.parent / "set" / "metadata.jsonl").symlink_to(file)
    with pytest.raises(DataError, match="leads outside"):
        opened(file.parent / "set")


def test_undecodable_files_are_rejected_by_what_is_wrong_with_them(
    pair: Callable[..., dict], write: Callable[..., Path]
) -> None:
    file = write("set/metadata.jsonl", [pair("cat"), pair("dog"), pair("cow"), pair("owl")])
    (file.parent / "edited" / "dog.png").write_bytes(b"")
    (file.parent / "edited" / "cow.png").write_bytes(b"<html>")
    Image.new("RGB", (1, 1)).save(file.parent / "edited" / "owl.png")
    loaded = opened(file.parent)
    assert [sample.id for sample in loaded.samples] == ["cat"]
    assert {r.kind for r in loaded.rejected} == {"unreadable_image"}
    assert "empty" in reason(loaded, "dog") and "not an image" in reason(loaded, "cow") and "1×1" in reason(loaded, "owl")


def test_a_box_a_pixel_beyond_the_border_is_cut_and_said_so(pair: Callable[..., dict], write: Callable[..., Path]) -> None:
    (sample,) = opened(write("set/metadata.jsonl", [pair("cat", bbox=[10, 10, 65, 49])]).parent).samples
    assert sample.targets[0].boxes["source"] == Box(10, 10, 64, 48) and "cut at the border" in sample.warnings[0]


def test_several_editors_are_judged_on_the_same_rows(
    pair: Callable[..., dict], write: Callable[..., Path], draw: Callable, tmp_path: Path
) -> None:
    rows = [{k: v for k, v in pair(n).items() if k != "edited_file_name"} for n in ("cat", "dog")]
    file = write("set/metadata.jsonl", rows)
    for name in ("a/cat.png", "a/dog.jpg", "b/cat.webp"):
        draw(name, len(name))
    loaded = opened(file.parent, edited={"A": tmp_path / "a", "B": tmp_path / "b"})
    assert [sample.key for sample in loaded.samples] == ["A/cat", "A/dog", "B/cat", "B/dog"]
    assert [sample.edited is None for sample in loaded.samples] == [False, False, False, True]


def test_a_folder_of_no_known_layout_says_what_was_looked_for_and_seen(tmp_path: Path, draw: Callable) -> None:
    with pytest.raises(DataError, match="no such folder"):
        opened(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match=r"empty: the folder is empty\.\n") as found:
        opened(tmp_path / "empty")
    lines = str(found.value).splitlines()
    # A layout a line.
    assert (
        lines[2].startswith("  imagefolder: metadata.jsonl, ") and sum(line.startswith("  pairs: ") for line in lines) == 1
    )
    assert max(map(len, lines)) < 200
    draw("pictures/one.png")
    with pytest.raises(DataError, match=r"no known layout; saw one\.png\.\nThe layouts are:\n"):
        opened(tmp_path / "pictures")
    with pytest.raises(DataError, match="expected a folder or a metadata file"):
        opened(tmp_path / "pictures" / "one.png")


def test_empty_metadata_and_two_kinds_of_it_are_errors(pair: Callable[..., dict], write: Callable[..., Path]) -> None:
    file = write("set/metadata.jsonl", [""])
    with pytest.raises(SampleError, match="holds no rows"):
        opened(file.parent)
    write("set/metadata.csv", [",".join(pair("cat")), ",".join(map(str, pair("cat").values()))])
    with pytest.raises(DataError, match=r"metadata\.jsonl, metadata\.csv; give the path of the one"):
        opened(file.parent)
    assert len(opened(file.parent / "metadata.csv").samples) == 1


def test_an_unknown_format_and_a_stray_mapping_file_are_refused(
    pair: Callable[..., dict], write: Callable[..., Path]
) -> None:
    file = write("set/metadata.jsonl", [pair("cat")])
    with pytest.raises(
        ConfigError,
        match="unknown format 'coco'; expected one of auto, imagefolder, datasets, dice, dlebench, edival, emuedit, gedit",
    ):
        opened(file.parent, format="coco")
    with pytest.raises(ConfigError, match=r"mapping file map\.toml cannot be read"):
        opened(file.parent, format="imagefolder", fields=Path("map.toml"))


def test_two_files_and_an_instruction_make_a_sample(draw: Callable, tmp_path: Path) -> None:
    Image.new("RGBA", (64, 48), (255, 0, 0, 9)).save(tmp_path / "after.png")
    sample = load_sample(draw("before.png"), tmp_path / "after.png", " Make it red. ", edit_type="Change Color")
    assert (sample.id, sample.instruction, sample.edit_type) == ("after", "Make it red.", "Change Color")
    assert sample.warnings == ("edited: alpha composited on white",)
    assert ImageStore().array(sample.source).shape == (48, 64, 3)


def test_two_files_without_instruction_or_with_a_broken_image_are_refused(draw: Callable, tmp_path: Path) -> None:
    with pytest.raises(SampleError, match="the instruction is empty"):
        load_sample(draw("a.png"), draw("b.png"), "  ")
    cut = tmp_path / "cut.png"
    cut.write_bytes(draw("b.png", 5, size=(200, 200)).read_bytes()[:9000])
    with pytest.raises(ImageError, match=r"cut\.png.*damaged or cut off"):
        load_sample(draw("a.png"), cut, "go")
