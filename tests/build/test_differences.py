"""`editloupe build differences` as a user types it: from annotated images to what DICE is trained on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.build.paint import PAINTS
from editloupe.data.images import ImageStore
from editloupe.models import inpaint as inpainters
from editloupe.models.inpaint import within
from tests.build.conftest import left, unwritten
from tests.build.conftest import lines as rows_of
from tests.build.toys import Finder, MeanColor
from tests.conftest import Cli, refused

CUP, PLANT, SIGN, SPOON = 1, 2, 3, 4
NAMES = {CUP: "cup", PLANT: "plant", SIGN: "street_sign", SPOON: "spoon"}
A = [(CUP, [20, 10, 40, 30]), (PLANT, [100, 50, 60, 40]), (SPOON, [0, 0, 15, 40])]
B = [(CUP, [24, 10, 40, 30]), (SIGN, [120, 20, 50, 60])]
GRAY = (150, 148, 152)
SIMILAR = ("--set", "stage=1", "--set", "test_share=0", "--set", "seed=0")
"""Of a and b the seed draws a as the source."""
PAINT = {CUP: (200, 40, 40), PLANT: (40, 160, 60), SIGN: (240, 240, 240), SPOON: (60, 60, 90)}


def drawn(objects: Sequence[tuple[int, Sequence[int]]]) -> np.ndarray:
    """Plain rectangles on plain gray."""
    rgb = np.full((100, 200, 3), GRAY, np.uint8)
    for category, (x, y, w, h) in objects:
        rgb[y : y + h, x : x + w] = PAINT[category]
    return rgb


def annotate(folder: Path, scenes: dict[str, Any]) -> Path:
    """An annotated set of images of 200×100 px: file name → its objects."""
    folder.mkdir(parents=True, exist_ok=True)
    images: list[Any] = []
    annotations: list[Any] = []
    for number, (name, objects) in enumerate(scenes.items(), start=1):
        Image.fromarray(drawn(objects)).save(folder / name)
        images.append({"id": number, "file_name": name, "width": 200, "height": 100})
        for category, (x, y, w, h) in objects:
            outline = [[x, y, x + w, y, x + w, y + h, x, y + h]]
            one = {"id": len(annotations) + 1, "image_id": number, "category_id": category, "bbox": [x, y, w, h]}
            annotations.append({**one, "segmentation": outline})
    categories = [{"id": number, "name": name} for number, name in NAMES.items()]
    file = folder / "instances.json"
    file.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return file


def changed(file: Path, change: Callable[[Any], None]) -> Path:
    data = json.loads(file.read_text())
    change(data)
    file.write_text(json.dumps(data))
    return file


def build(editloupe: Cli, file: Path, *words: object, out: str = "set") -> tuple[int, dict[str, Any]]:
    """(exit code, funnel)."""
    code, said, told = editloupe("build", "differences", file, "--out", out, "--format", "json", *map(str, words))
    assert said, told
    return code, json.loads(said)


def lines(path: str, out: str = "set") -> list[dict[str, Any]]:
    return rows_of(Path(out) / path)


def answers(path: str = "train/sft.jsonl", out: str = "set") -> list[str]:
    """What the model is to say, without the tags around the answer."""
    said = [row["messages"][1]["content"][0]["text"] for row in lines(path, out)]
    return [text.replace("<Start Final Answer>", "").replace("</Start Final Answer>", "") for text in said]


# Stage 1


def test_a_pair_gives_what_each_image_has_alone_and_what_both_have_in_one_place(editloupe: Cli, tmp_path: Path) -> None:
    file = annotate(tmp_path / "photos", {"a.png": A, "b.png": B})
    code, funnel = build(editloupe, file, *SIMILAR)
    assert (code, funnel["read"], funnel["written"], funnel["dropped"]) == (0, 1, 1, 0)
    (row,) = lines("train/metadata.jsonl")
    # The cups overlap in 36×30 of 2400 − 1080 px: 0.82, one EDIT at its place in b. The sign is in b alone, the plant in a
    # alone. The spoon is 15 px wide. Boxes are in fractions of 200×100 px, from the top.
    assert row["differences"] == [
        {"op": "EDIT", "object": "cup", "box": [0.12, 0.1, 0.32, 0.4]},
        {"op": "ADD", "object": "street sign", "box": [0.6, 0.2, 0.85, 0.8]},
        {"op": "REMOVE", "object": "plant", "box": [0.5, 0.5, 0.8, 0.9]},
    ]
    assert answers() == [
        "EDIT: cup, [0.120, 0.100, 0.320, 0.400]\n"
        "ADD: street sign, [0.600, 0.200, 0.850, 0.800]\n"
        "REMOVE: plant, [0.500, 0.500, 0.800, 0.900]"
    ]
    assert funnel["by_split"]["train"] == {"rows": 1, "ADD": 1, "EDIT": 1, "REMOVE": 1}
    assert funnel["counts"] == {"absence_not_checked": 2}
    # The photographs keep their own bytes.
    images = [(Path("set/train") / row[name]).read_bytes() for name in ("source_file_name", "edited_file_name")]
    assert images == [(tmp_path / "photos" / name).read_bytes() for name in ("a.png", "b.png")]


def test_similar_photographs_are_paired(editloupe: Cli, tmp_path: Path, encoder: MeanColor) -> None:
    # Each number has a shade of its own, so that 0 is nearest to 1, 2 to 3, and so on; c.png cannot be read.
    shades = [60, 61, 80, 81, 100, 101, 120, 121]
    file = annotate(tmp_path / "photos", {**{f"{n}.png": A if n % 2 else B for n in range(8)}, "c.png": A})
    for number, shade in enumerate(shades):
        Image.fromarray(np.full((100, 200, 3), (200, shade, 40), np.uint8)).save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos" / "c.png").write_bytes((tmp_path / "photos" / "c.png").read_bytes()[:-60])
    code, funnel = build(editloupe, file, "--set", "stage=1", "--set", "test_share=0")
    rows = lines("train/metadata.jsonl")
    assert (code, funnel["read"], funnel["written"], encoder.seen) == (0, 4, 4, 8)
    assert funnel["unusable"] == {"unreadable_image": 1} and left(funnel) == {}
    named = {tuple(sorted((row["lineage"]["source"], row["lineage"]["edited"]))) for row in rows}
    assert named == {("0.png", "1.png"), ("2.png", "3.png"), ("4.png", "5.png"), ("6.png", "7.png")}
    # No pair joins the two splits.
    build(editloupe, file, "--set", "stage=1", "--set", "test_share=0.5", out="halves")
    seen = [
        {row["lineage"][side] for row in lines(f"{split}/metadata.jsonl", "halves") for side in ("source", "edited")}
        for split in ("train", "test")
    ]
    assert seen[0] and seen[1] and not seen[0] & seen[1]


def test_a_named_detector_checks_absences(editloupe: Cli, tmp_path: Path, finder: Finder) -> None:
    finder.seen = {"plant": []}
    file = annotate(tmp_path / "photos", {"a.png": A, "b.png": B})
    words = (*SIMILAR, "--detector", "mine")
    _, funnel = build(editloupe, file, *words)
    # The detector sees the sign in a, too: it is no ADD. Of b it says that there is no plant.
    assert set(finder.asked) == {"plant", "street sign"}
    assert [one["op"] for one in lines("train/metadata.jsonl")[0]["differences"]] == ["EDIT", "REMOVE"]
    assert funnel["counts"] == {"absent_by_detector": 1, "seen_by_detector": 1}
    finder.too_long = "street sign"
    _, funnel = build(editloupe, file, *words, out="long")
    assert funnel["counts"] == {"absent_by_detector": 1, "no_phrase": 1}


# Stage 2


OBJECTS = [(CUP, [20, 10, 60, 30]), (PLANT, [100, 50, 60, 40]), (SIGN, [110, 5, 50, 30])]


def scenes(count: int) -> dict[str, Any]:
    return {f"{number}.png": OBJECTS for number in range(count)}


def test_what_differs_is_what_is_said_and_nothing_else(editloupe: Cli, tmp_path: Path) -> None:
    file = annotate(tmp_path / "photos", scenes(12))
    code, funnel = build(
        editloupe, file, "--set", "stage=2", "--set", "jpeg=0", "--set", "test_share=0", "--set", "unchanged=0"
    )
    rows = lines("train/metadata.jsonl")
    assert (code, funnel["read"], len(rows)) == (0, 12, 12)
    ops = [funnel["by_split"]["train"][op] for op in ("ADD", "EDIT", "REMOVE")]
    assert sum(ops) == 36 == funnel["counts"]["drawn"] and min(ops) > 3
    store, original, boxes = ImageStore(), drawn(OBJECTS), {NAMES[c].replace("_", " "): box for c, box in OBJECTS}
    for row in rows:
        source, edited = (
            store.array(store.add_file(Path("set/train") / row[f"{role}_file_name"])) for role in ("source", "edited")
        )
        around = np.zeros(original.shape[:2], bool)
        for one in row["differences"]:
            x, y, w, h = boxes[one["object"]]
            assert one["box"] == [x / 200, y / 100, (x + w) / 200, (y + h) / 100]
            # By at most 3 px more than the mask.
            around[max(0, y - 3) : y + h + 3, max(0, x - 3) : x + w + 3] = True
            place = np.s_[y + 8 : y + h - 8, x + 8 : x + w - 8]
            category = next(c for c, name in NAMES.items() if name.replace("_", " ") == one["object"])
            before, after = source[place].reshape(-1, 3), edited[place].reshape(-1, 3)
            # Filled from the gray around it; the object itself; another color.
            gone, there = before if one["op"] == "ADD" else after, after if one["op"] == "ADD" else before
            assert (there == PAINT[category]).all()
            if one["op"] == "EDIT":
                assert one["how"].partition(" ")[2] in PAINTS and np.abs(gone.astype(int) - PAINT[category]).max() > 40
            else:
                assert np.abs(gone.astype(int) - GRAY).max() <= 6 and one["how"].startswith("removed by OpenCV")
        assert np.array_equal(source[~around], original[~around]) and np.array_equal(edited[~around], original[~around])
    assert {row["instruction"] for row in rows} == {"No edit was asked for."}


def test_some_stay_as_they_are_and_some_are_compressed(editloupe: Cli, tmp_path: Path) -> None:
    file = annotate(tmp_path / "photos", scenes(20))
    code, funnel = build(editloupe, file, "--set", "stage=2", "--set", "unchanged=0.5", "--set", "test_share=0")
    rows, counts = lines("train/metadata.jsonl"), funnel["counts"]
    assert code == 0 and 3 < sum(not row["differences"] for row in rows) == counts["unchanged"] < 17
    assert answers().count("no change") == counts["unchanged"]
    qualities = [q for row in rows for q in row["lineage"]["jpeg"] if q is not None]
    assert len(qualities) == counts["compressed"] and min(qualities) >= 50 and max(qualities) <= 95
    endings = [Path(row[name]).suffix for row in rows for name in ("source_file_name", "edited_file_name")]
    assert endings.count(".jpg") == len(qualities)


def test_an_inpainter_by_words_puts_in_objects_of_other_categories(
    editloupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    class Painter:
        name = version = "painter"
        takes_words = True

        def __call__(self, rgb: Any, mask: Any, words: str = "", *, seed: int = 0) -> Any:
            asked.extend([words] if words else [])
            return within(rgb, np.full_like(rgb, 7), mask)

    monkeypatch.setattr(inpainters, "open_inpainter", lambda name, device: Painter())
    file = annotate(tmp_path / "photos", scenes(12))
    words = ("--set", "test_share=0", "--set", "unchanged=0", "--set", "jpeg=0", "--set", "inpainter=painter")
    build(editloupe, file, "--set", "stage=2", *words)
    edits = [one for row in lines("train/metadata.jsonl") for one in row["differences"] if one["op"] == "EDIT"]
    replaced = [one for one in edits if one["how"].startswith("replaced")]
    # Of 36 objects about 12 are edited, of which about 4 by color; the seed is fixed.
    assert 0 < len(replaced) == len(asked) < len(edits)
    for one in replaced:
        # Named is what the original shows; what comes in is another category.
        assert one["how"].split("'")[1] in {"cup", "plant", "street sign", "spoon"} - {one["object"]}


def test_what_cannot_be_used_is_said_with_its_reason(editloupe: Cli, tmp_path: Path) -> None:
    file = annotate(tmp_path / "photos", {**scenes(3), "gone.png": OBJECTS, "small.png": [(CUP, [0, 0, 20, 20])]})
    (tmp_path / "photos" / "gone.png").unlink()
    Image.new("RGB", (50, 50)).save(tmp_path / "photos" / "1.png")
    (tmp_path / "photos" / "2.png").write_bytes(b"\x89PNG no image")

    def worse(data: Any) -> None:
        first = data["annotations"][0]
        data["annotations"] += [
            {**first, "id": 100, "image_id": 77},
            {**first, "id": 101, "category_id": 77},
            {**first, "id": 102, "bbox": [180, 10, 60, 30]},
        ]
        first["segmentation"] = {"size": [10, 10], "counts": [100]}

    code, funnel = build(editloupe, changed(file, worse), "--set", "stage=2")
    assert (code, funnel["read"], funnel["written"]) == (0, 5, 1)
    assert left(funnel) == {
        "read": {"missing_file": 1, "size_differs": 1, "unreadable_image": 1}, "objects": {"no_large_object": 1},
    }  # fmt: skip
    assert funnel["unusable"] == {"unknown_image": 1, "unknown_category": 1, "box": 1, "segmentation": 1}
    told = {(row.get("what") or row.get("source"), row["why"]) for row in lines("left_out.jsonl")}
    assert told == {
        ("annotation 100", "unknown_image"), ("annotation 101", "unknown_category"), ("annotation 102", "box"),
        ("0.png", "segmentation"), ("1.png", "size_differs"), ("2.png", "unreadable_image"), ("gone.png", "missing_file"),
        ("small.png", "no_large_object"),
    }  # fmt: skip


# Stage 3


def annotated(folder: Path) -> Path:
    """Two edits with differences as people annotated them, one without."""
    folder.mkdir()
    Image.fromarray(drawn(A)).save(folder / "a.png")
    Image.fromarray(drawn(B)).save(folder / "b.png")
    row = {"source_file_name": "a.png", "edited_file_name": "b.png", "instruction": "Remove the plant."}
    differences = [
        {"op": "REMOVE", "object": "plant", "box": [0.5, 0.5, 0.8, 0.9], "coherent": True, "reason": "It was asked for."},
        {"op": "ADD", "object": "street sign", "box": [0.6, 0.2, 0.85, 0.8], "coherent": False},
        {"op": "EDIT", "object": "", "box": [0.1, 0.1, 0.32, 0.4], "coherent": False, "reason": "A \n move."},
        {"op": "EDIT", "object": "cup", "box": [0.1, 0.1, 0.32, 0.4]},
    ]
    rows = [
        {**row, "id": "one", "differences": differences},
        {**row, "id": "two", "instruction": "Add a sign.", "differences": None},
        {**row, "id": "three", "instruction": "Do it.", "differences": [{"op": "MOVE", "box": [0, 0, 1, 1]}]},
    ]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows))
    return folder


def test_a_judged_difference_becomes_a_row_with_its_box_drawn(editloupe: Cli, tmp_path: Path) -> None:
    code, funnel = build(editloupe, annotated(tmp_path / "edits"), "--set", "stage=3", "--set", "test_share=0")
    assert (code, funnel["read"], funnel["written"], funnel["counts"]["with_reason"]) == (0, 6, 3, 2)
    assert left(funnel) == {
        "read": {"no_differences": 1, "unreadable_differences": 1}, "annotated": {"no_coherence": 1},
    }  # fmt: skip
    assert answers() == [
        "<Start Thinking>It was asked for.</Start Thinking>\nyes",
        "no",
        "<Start Thinking>A move.</Start Thinking>\nno",
    ]
    assert funnel["by_split"]["train"] == {"rows": 3, "yes": 1, "no": 2}
    before, after = drawn(A), drawn(B)
    colors = {"REMOVE": (0, 0, 255), "ADD": (255, 0, 0), "EDIT": (0, 255, 0)}
    corners = {"REMOVE": (100, 50), "ADD": (120, 20), "EDIT": (20, 10)}
    for row, op in zip(lines("train/sft.jsonl"), ("REMOVE", "ADD", "EDIT"), strict=True):
        x, y = corners[op]
        for name, original, marked in zip(row["images"], (before, after), (True, True), strict=True):
            shown = np.asarray(Image.open(Path("set/train") / name))
            assert (tuple(shown[y, x]) == colors[op]) is marked
            # Nothing inside the box is hidden, nor anything outside.
            assert np.array_equal(shown[y + 4 : y + 20, x + 4 : x + 20], original[y + 4 : y + 20, x + 4 : x + 20])
            assert np.array_equal(shown[:5], original[:5])
        first, *_, last = (part.get("text", "") for part in row["messages"][0]["content"])
        assert "Editing instruction: Remove the plant." in first and "The answers: yes, no." in last
    assert lines("train/metadata.jsonl") == []


# The command


def test_options_and_folders_that_do_not_fit_are_refused(editloupe: Cli, tmp_path: Path) -> None:
    file, damaged = annotate(tmp_path / "photos", scenes(2)), tmp_path / "damaged.json"
    damaged.write_text("{")
    second = ("--set", "stage=2")
    for path, words, told in (
        (file, (), "name the stage: --set stage=1"),
        (file, (*second, "--set", "inpainter=lama"), "expected opencv or diffusers:MODEL"),
        (file, (*second, "--set", "images=nowhere"), "no such folder"),
        (damaged, second, "is no JSON"),
    ):
        err = refused(editloupe, "build", "differences", path, "--out", "set", *words)
        assert told in err and unwritten("set")
