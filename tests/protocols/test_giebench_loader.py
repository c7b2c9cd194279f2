"""gie_bench.json as it is downloaded: its counts and oddities are said, masks become images, outputs are found by name."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.errors import SampleError
from editloupe.protocols.giebench.tables import EDIT_TYPES, edit_type_name
from tests.protocols.giebench_data import ABSTAIN, Rows, draw, mask, row, whole_set, write


def opened(path: Path, **options: Any) -> Loaded:
    return load(path, store=ImageStore(), **{"outputs": False, **options})


def test_a_file_of_the_shape_of_the_real_one_gives_its_counts_and_warnings(tmp_path: Path) -> None:
    loaded = opened(write(tmp_path / "gie", whole_set()))
    assert (loaded.format, len(loaded.samples), loaded.rejected) == ("giebench", 1080, ())
    merged = Counter(edit_type_name(sample.edit_type) for sample in loaded.samples)
    assert merged == dict.fromkeys(EDIT_TYPES, 120)
    assert len({sample.source.sha256 for sample in loaded.samples}) == 848
    notes = "\n".join(loaded.notes)
    assert "1080 rows about 848 images" in notes
    # One group of each has a third row.
    for words in ("edit type: 44 groups of 89 rows", "instruction: 8 groups of 17 rows"):
        assert f"rows that share image and {words}; each row is judged by itself" in notes
    assert "without case and punctuation, accepted: 7 (rows 1, 121, 241, 361, 481, 601, 721)" in notes
    assert "which blocks their question: 14 (rows 10, 20, 30" in notes
    assert "empty masks, so that the whole image is measured: 5 (rows 375, 408, 497, 593, 802)" in notes
    assert "full masks, so that nothing is left to be measured: 2 (rows 841, 1002)" in notes
    by_id = {sample.id: sample for sample in loaded.samples}
    assert "the key 'red.' is read as the option 'Red'" in by_id["121"].warnings
    assert any("the key 'Purple' is none of the options 'Red', 'Green', 'Blue'" in text for text in by_id["10"].warnings)
    assert any("the mask is empty" in text for text in by_id["375"].warnings)
    assert any("the mask is full" in text for text in by_id["841"].warnings)


def test_check_counts_rows_whose_question_cannot_be_asked_apart(tmp_path: Path, editloupe: Any) -> None:
    rows = [row(0), row(1, expected_answer="Purple"), row(2, multiple_choice_options=["Red", "", "Blue"]), row(3)]
    root = write(tmp_path / "gie", rows)
    for number in range(3):
        draw(tmp_path / "out" / f"{number}.png")
    code, said, _ = editloupe("check", root, "--edited", f"a={tmp_path / 'out'}")
    told = "1 of 4 samples can be judged, 8 images; 1 outputs missing, 2 questions cannot be asked, errors: 0"
    assert code == 0 and told in " ".join(said.split()), said
    code, said, _ = editloupe("check", root, "--edited", f"a={tmp_path / 'out'}", "--format", "json")
    assert [json.loads(said)[name] for name in ("rows", "usable", "blocked")] == [4, 1, 2]


def test_a_mask_becomes_an_image_of_the_sample_once_and_nothing_is_written(tmp_path: Path) -> None:
    root = write(tmp_path / "gie", [row(0), row(1)])
    out = draw(tmp_path / "out" / "0.png").parent
    before = sorted(tmp_path.rglob("*"))
    store = ImageStore(tmp_path / "run" / "blobs", writes=False)
    samples = load(root, store=store, edited={"a": out, "b": out}).samples
    assert sorted(tmp_path.rglob("*")) == before
    # Both rows have the same mask, for both editors.
    (ref,) = {sample.masks["edit"] for sample in samples}
    rgb = store.array(ref)
    assert rgb.shape == (224, 224, 3)
    expected = np.zeros((224, 224), dtype=np.uint8)
    expected[50:100, 50:100] = 255
    assert (rgb == expected[:, :, None]).all()
    store.write()
    assert [path.read_bytes() for path in (tmp_path / "run").rglob("*.png")] == [store.data(ref)]
    assert "object_mask" not in samples[0].extra


@pytest.mark.parametrize("named", ["{n}.png", "home/{n}.webp", "Color Change/home/{n}.jpg"])
def test_outputs_are_found_by_row_or_by_the_path_of_the_image(tmp_path: Path, named: str) -> None:
    root = write(tmp_path / "gie", [row(n) for n in range(3)])
    for n in (0, 2):
        draw(tmp_path / "out" / named.format(n=n))
    loaded = opened(root, edited={"omni": tmp_path / "out"}, outputs=True)
    assert [sample.key for sample in loaded.samples] == ["omni/0", "omni/1", "omni/2"]
    assert [s.edited and s.edited.path and s.edited.path.stem for s in loaded.samples] == ["0", None, "2"]


def test_outputs_may_be_listed_in_a_file_in_any_order(tmp_path: Path) -> None:
    same = row(2)
    root = write(tmp_path / "gie", [row(0), row(1), same, same])
    folder = tmp_path / "omni"
    listed = [
        {**same, "edited_image_path": "pictures/first.png"},
        row(1, edited_image_path=None),
        {**same, "edited_image_path": str(folder / "pictures" / "second.png")},
        row(0, edited_image_path="pictures/zero.png"),
        row(7, edited_image_path="pictures/strange.png"),
    ]
    for name in ("first", "second", "zero"):
        draw(folder / "pictures" / f"{name}.png")
    (folder / "outputs.json").write_text(json.dumps(listed), encoding="utf-8")
    loaded = opened(root, edited={"omni": folder / "outputs.json"}, outputs=True)
    stems = [s.edited and s.edited.path and s.edited.path.stem for s in loaded.samples]
    assert stems == ["zero", None, "first", "second"] and loaded.rejected == ()
    assert any("1 missing, 1 belong to no row" in note for note in loaded.notes)


def test_a_listed_output_outside_the_list_s_folder_is_not_read(tmp_path: Path) -> None:
    root = write(tmp_path / "gie", [row(0), row(1)])
    outside = draw(tmp_path / "else" / "0.png")
    (tmp_path / "omni").mkdir()
    draw(tmp_path / "omni" / "1.png")
    listed = [row(0, edited_image_path=str(outside)), row(1, edited_image_path="1.png")]
    (tmp_path / "omni" / "outputs.json").write_text(json.dumps(listed), encoding="utf-8")
    loaded = opened(root, edited={"omni": tmp_path / "omni" / "outputs.json"}, outputs=True)
    (refused,) = loaded.rejected
    assert refused.key == "omni/0" and refused.kind == "outside_folder"
    assert refused.message.startswith("gie_bench.json, row 1: file name")


def test_an_image_in_another_category_is_found_by_its_url(tmp_path: Path) -> None:
    root = write(tmp_path / "gie", [row(0), row(1)])
    (root / "images2000" / "home" / "0.jpg").rename(draw(root / "images2000" / "city" / "zero.jpg"))
    (root / "images2000urls").mkdir()
    urls = [{"image_name": "zero.jpg", "image_url": "https://images.example/0"}]
    (root / "images2000urls" / "city.json").write_text(json.dumps(urls), encoding="utf-8")
    loaded = opened(root)
    assert [sample.source.path and sample.source.path.name for sample in loaded.samples] == ["zero.jpg", "1.jpg"]
    assert "row 0: home/0.jpg is not there; city/zero.jpg is the image of its URL" in loaded.notes


def test_images_lie_in_the_folder_of_the_file_too(tmp_path: Path) -> None:
    for images in ("", "images"):
        root = write(tmp_path / f"gie-{images}", [row(0)], images=images)
        assert len(opened(root).samples) == 1


@pytest.mark.parametrize(
    ("given", "image", "said"),
    [
        (mask((0, 0, 5, 5), side=24), (24, 24), "the mask is 24×24, and others are 224×224"),
        ([[0] * 30] * 20, (20, 30), "the mask is empty"),
        ((np.array(mask((50, 50, 100, 100))) * 255).tolist(), (224, 224), "other numbers than 0 and 1; what is above 0"),
        ([[10, 1] * 8] * 16, (16, 16), "other numbers than 0 and 1; what is above 0"),
        ([[0, 1], [1]], None, "the mask's rows differ in length"),
        ([[[0] * 9] * 9] * 9, None, "expected at least 8×8 numbers"),
        ([0, 1, 1], None, "expected at least 8×8 numbers"),
        ("none", None, "expected at least 8×8 numbers"),
        ([["x"] * 8] * 8, None, "expected at least 8×8 numbers"),
        (None, None, "there is no mask"),
    ],
)
def test_an_odd_mask_is_named_and_its_row_still_asked(
    tmp_path: Path, given: Any, image: tuple[int, int] | None, said: str
) -> None:
    store = ImageStore()
    (sample,) = load(write(tmp_path / "gie", [row(0, object_mask=given)]), store=store, outputs=False).samples
    assert any(said in text for text in sample.warnings), sample.warnings
    assert (store.array(sample.masks["edit"]).shape[:2] if sample.masks else None) == image


def test_a_file_that_is_broken_or_cut_off_is_refused_and_not_repaired(tmp_path: Path) -> None:
    root = write(tmp_path / "gie", [row(0)])
    whole = '{"image": "a.jpg", "edit_instruction": "Go."}'
    for text, said in (
        (f'[{whole}, {{"image": "b', "or is cut off: .*nothing is repaired"),
        (f"[{whole}", "or is cut off"),
        (f"[{whole} {whole}]", "Expecting ',' delimiter"),
        ('[{"image": "a.jpg", "object_mask": [[0,1],[1,0]}]', "Expecting ',' delimiter"),
        ('[{"image": NaN}]', "holds NaN, which is not a JSON number"),
        ('[{"image": 1, "image": 2}]', "holds the key 'image' twice"),
        ("[1]", "expected an object, found the number 1"),
        (f"[{whole}] and more", "Extra data"),
        ("[]", "holds no rows"),
        ('[{"picture": "a.jpg"}]', "no column for the source; looked for image; the columns are picture"),
        ("[" * 200, "nested deeper than 100"),
    ):
        (root / "gie_bench.json").write_text(text, encoding="utf-8")
        with pytest.raises(SampleError, match=said):
            opened(root)


def test_a_question_that_cannot_be_asked_is_a_warning_of_its_row(tmp_path: Path) -> None:
    for number, (columns, said) in enumerate(
        (
            ({"multiple_choice_options": ["Red"]}, "has 1 of them; expected 2 to 13"),
            ({"multiple_choice_options": ["Red", "Red", "Blue"]}, "holds 'Red' twice"),
            ({"multiple_choice_options": "Red, Blue"}, "expected a list of options"),
            ({"multiple_choice_options": ["Red", 3]}, "holds 3; expected text"),
            ({"expected_answer": "Blue sky"}, "the key 'Blue sky' is none of the options"),
            ({"expected_answer": None}, "'expected_answer' is None"),
            ({"evaluation_question": " "}, "expected a question"),
            ({"expected_answer": " red "}, "the key ' red ' is read as the option 'Red'"),
        )
    ):
        one, other = opened(write(tmp_path / str(number), [row(0), row(1, **columns)])).samples
        assert one.warnings == ("no edited image",)
        assert any(said in text for text in other.warnings), other.warnings


def test_a_file_of_another_name_is_read_where_the_format_is_named(tmp_path: Path) -> None:
    rows: Rows = [row(0, multiple_choice_options=["Red", "Blue, or teal", ABSTAIN])]
    root = write(tmp_path / "gie", rows, name="part.json")
    (sample,) = opened(root / "part.json", format="giebench").samples
    assert sample.extra["multiple_choice_options"] == ["Red", "Blue, or teal", ABSTAIN]
