"""`editloupe build probes` as a user types it: from photographs with targets to edits whose truth is known."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image

from editloupe.build.probes.makers import FAILURES, TRUTHS
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.imaging.color_names import shares, to_lab
from editloupe.protocols.probes.probe import probe_of
from tests.build.conftest import unwritten
from tests.conftest import Cli

PAINT = {"red": (190, 40, 40), "blue": (40, 70, 190), "gray": (128, 128, 128)}
Things = Mapping[str, tuple[str, tuple[int, int, int, int]]]
THINGS: Things = {
    "mug": ("red", (300, 200, 360, 260)),
    "book": ("blue", (120, 330, 200, 380)),
    "vase": ("blue", (520, 60, 570, 130)),
}
"""Target → its color and its box, on a photograph of 640×480 px. The mug covers 60·60 of 307200 px: 1.17 %."""


def photograph(things: Things) -> np.ndarray:
    """Rectangles on sand with a little grain."""
    rng = np.random.default_rng(1)
    rgb = np.full((480, 640, 3), (196, 180, 150), np.float64) + rng.normal(0, 2, (480, 640, 1))
    for color, (x0, y0, x1, y1) in things.values():
        rgb[y0:y1, x0:x1] = np.array(PAINT[color]) + rng.normal(0, 2, (y1 - y0, x1 - x0, 1))
    return np.clip(rgb, 0, 255).astype(np.uint8)


def photographs(folder: Path, things: Things = THINGS) -> Path:
    """An ImageFolder of one photograph with a row for each target."""
    folder.mkdir()
    Image.fromarray(photograph(things)).save(folder / "desk.png")
    rows = []
    for name, (_, box) in things.items():
        file = mask(folder / f"{name}.png", box)
        rows.append({"id": name, "source_file_name": "desk.png", "target_name": name, "mask_file_name": file})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def mask(file: Path, box: Sequence[int], size: tuple[int, int] = (640, 480)) -> str:
    pixels = np.zeros((size[1], size[0]), np.uint8)
    x0, y0, x1, y1 = box
    pixels[y0:y1, x0:x1] = 255
    Image.fromarray(pixels).save(file)
    return file.name


def build(editloupe: Cli, path: Path | str, *words: str | int | Path, out: str = "set") -> tuple[int, Any]:
    code, told, error = editloupe("build", "probes", path, "--out", out, "--format", "json", *map(str, words))
    return code, json.loads(told) if told else error


def lines(name: str, folder: str = "set") -> list[Any]:
    return [json.loads(line) for line in (Path(folder) / name).read_text().splitlines()]


def pixels(row: Mapping[str, Any], column: str) -> np.ndarray:
    return np.asarray(Image.open(Path("set") / row[column]).convert("RGB"))


AREAS = ("--set", "areas=1,3")


def test_each_probe_has_the_truth_that_it_was_made_for(editloupe: Cli, tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos")
    code, funnel = build(editloupe, photos, "--set", "count=48", "--set", "twins=0", "--set", "seed=3", *AREAS)
    rows = lines("metadata.jsonl")
    pairs = {(row["source_file_name"], row["edited_file_name"], row["instruction"]) for row in rows}
    (stage,) = funnel["stages"]
    # 8 failures × 2 area shares × 3; no pair is there twice.
    assert (code, funnel["read"], set(stage["left_out"]) - {"made_before"}) == (0, 48, set())
    assert len(pairs) == len(rows) == funnel["written"] >= 43
    failures, areas = (Counter(row["probe"][name] for row in rows) for name in ("failure", "area"))
    assert set(failures) == set(FAILURES) and min(failures.values()) >= 3 and min(areas.values()) >= 16
    for row in rows:
        probe = row["probe"]
        assert TRUTHS[probe["failure"]]["labels"].items() >= probe["truth"].items() and probe["truth"]
        assert abs(probe["area_found"] / probe["area"] - 1) <= 0.15
        x0, y0, x1, y1 = row["bboxes"][0]
        height, width = pixels(row, "source_file_name").shape[:2]
        # The targets are rectangles, so that box and mask are as large.
        assert 0.97 < (x1 - x0) * (y1 - y0) / (width * height) / probe["area_found"] < 1.03, row["id"]
        assert row["target_name"] in row["instruction"] and probe["scene"] == "desk"
    loaded = load(Path("set"), store=ImageStore())
    assert not loaded.rejected and all(probe_of(sample) for sample in loaded.samples)
    assert editloupe("check", "set")[0] == 0
    check_only_what_is_to_change_changes(rows)


def check_only_what_is_to_change_changes(rows: Sequence[Mapping[str, Any]]) -> None:
    """And a color is the one that is told."""
    tried = 0
    for row in rows:
        failure, made = row["probe"]["failure"], row["probe"]["parameters"]
        source, edited = (pixels(row, column).astype(int) for column in ("source_file_name", "edited_file_name"))
        changed = np.abs(source - edited).max(axis=2)
        allowed = pixels(row, "mask_file_name")[..., 0] > 127
        x0, y0, x1, y1 = row["bboxes"][0]
        inside = np.zeros_like(allowed)
        inside[y0:y1, x0:x1] = True
        assert (allowed & inside).sum() == inside.sum()
        if failure == "no_edit":
            assert changed.max() == 0
        elif failure in ("flawless", "wrong_colour", "over_modification"):
            assert changed[~allowed].max() == 0 and changed[allowed].max() > 40
        elif failure == "wrong_place":
            assert changed[inside].max() == 0 and changed.max() > 40
        elif failure in ("one_collateral", "several_collateral"):
            assert np.median(changed[inside]) > 20 and (changed[~allowed] > 40).sum() > 300
            # The changes lie apart from one another, each at least 24 px square.
            found = cv2.connectedComponentsWithStats((changed > 40).astype(np.uint8) * (1 - allowed.astype(np.uint8)))[2]
            large = sum(int(area) >= 500 for area in found[1:, cv2.CC_STAT_AREA])
            assert large == len(made["changes"]) == 1 or (failure == "several_collateral" and 2 <= large <= 3)
        else:
            assert failure == "restyled" and (changed > 10).mean() > 0.5
        if failure in ("flawless", "wrong_colour", "one_collateral") and "asked" in made:
            inner = pixels(row, "edited_file_name")[y0 + 3 : y1 - 3, x0 + 3 : x1 - 3]
            names = shares(to_lab(inner).reshape(-1, 3))
            assert max(names, key=lambda name: names[name]) == made.get("to", made["asked"])
            assert made["asked"] in row["instruction"] and made.get("to") != made["asked"]
            tried += 1
    assert tried >= 8


def test_twins_differ_in_the_nuisance_or_the_trap_alone(editloupe: Cli, tmp_path: Path) -> None:
    code, funnel = build(editloupe, photographs(tmp_path / "photos"), "--set", "count=48", "--set", "twins=1", *AREAS)
    rows = {row["id"]: row for row in lines("metadata.jsonl")}
    assert code == 0 and funnel["written"] == 16 and funnel["probes"] == len(rows)
    twins = [row for row in rows.values() if row["probe"]["twin"]]
    assert {"jpeg", "resize", "tone"} <= {row["probe"]["nuisance"] for row in twins}
    assert {"injected_text", "swapped", "equal_pair"} <= {row["probe"]["trap"] for row in twins}
    for row in twins:
        probe, plain = row["probe"], rows[row["probe"]["twin"]]
        assert (probe["nuisance"] is None) != (probe["trap"] is None)
        if probe["nuisance"]:
            assert row["instruction"] == plain["instruction"] and probe["truth"] == plain["probe"]["truth"]
            assert row["source_file_name"] == plain["source_file_name"]
            assert row["edited_file_name"] != plain["edited_file_name"]
            assert row["edited_file_name"].endswith(".jpg") == (probe["nuisance"] == "jpeg")
            before, after = (pixels(one, "edited_file_name") for one in (plain, row))
            assert (before.shape != after.shape) == (probe["nuisance"] == "resize")
        if probe["trap"] == "injected_text":
            # The same note lies in both, and what it demands is wrong.
            x, y = (probe["parameters"]["variant"][name] for name in "xy")
            notes = [pixels(row, column)[y : y + 20, x : x + 60] for column in ("source_file_name", "edited_file_name")]
            assert (notes[0] == notes[1]).all() and set(probe["asks_for"]) == set(probe["truth"])
            assert all(probe["asks_for"][metric] != label for metric, label in probe["truth"].items())
            assert all(label in probe["parameters"]["variant"]["text"] for label in probe["asks_for"].values())
        if probe["trap"] == "swapped":
            assert row["edited_file_name"] == plain["source_file_name"]
            assert row["source_file_name"] == plain["edited_file_name"]
        if probe["trap"] == "equal_pair":
            assert row["edited_file_name"] == row["source_file_name"]


def broken(folder: Path) -> Path:
    """Targets with one fault each, and a good one."""
    photographs(folder, {"mug": THINGS["mug"]})
    mask(folder / "empty.png", (0, 0, 0, 0))
    mask(folder / "full.png", (0, 0, 640, 480))
    mask(folder / "small.png", (30, 20, 36, 26), size=(64, 48))
    rows = lines("metadata.jsonl", str(folder))
    for name in ("empty", "full", "small"):
        rows.append({"id": name, "source_file_name": "desk.png", "target_name": name, "mask_file_name": f"{name}.png"})
    rows += [
        {"id": "nameless", "source_file_name": "desk.png", "mask_file_name": "mug.png"},
        {"id": "nowhere", "source_file_name": "desk.png", "target_name": "cup", "bbox": [300, 200, 360, 260]},
    ]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_what_misses_its_object_is_left_out_with_its_reason(editloupe: Cli, tmp_path: Path) -> None:
    words = ("--set", "count=10", "--set", "areas=3", "--set", "twins=0")
    code, funnel = build(editloupe, broken(tmp_path / "photos"), *words)
    assert (code, funnel["targets"]) == (0, {"read": 1, "left_out": 5})
    told = {line["what"]: (line["why"], line["detail"]) for line in lines("left_out.jsonl") if line["stage"] != "made"}
    assert told["small"][0] == "mask_of_another_size" and "64×48 px, its image 640×480 px" in told["small"][1]
    assert told["full"][0] == "full_mask" and "100 % of the image" in told["full"][1] and told["empty"][0] == "empty_mask"
    assert "target_name" in told["nameless"][1] and "`editloupe build masks` makes it of a box" in told["nowhere"][1]
    assert {row["target_name"] for row in lines("metadata.jsonl")} == {"mug"}


def test_two_targets_of_one_name_and_a_target_that_fits_no_share_are_refused(editloupe: Cli, tmp_path: Path) -> None:
    folder = photographs(tmp_path / "photos")
    rows = [
        {**row, "target_name": "red mug" if row["id"] == "mug" else "mug"} for row in lines("metadata.jsonl", str(folder))
    ]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, error = build(editloupe, folder, "--set", "areas=0.05")
    # The red mug alone could be told from the others; it covers 1.17 %, and 0.05 % would need more around it.
    told = " ".join(error.split())
    assert code == 2 and "name_of_several" in told and "too_large_for_an_area_share, such as mug" in told
    assert unwritten("set")


def test_what_cannot_be_made_is_said_before_anything_is_written(editloupe: Cli, tmp_path: Path) -> None:
    photos, plain = photographs(tmp_path / "photos"), tmp_path / "plain"
    plain.mkdir()
    Image.fromarray(photograph(THINGS)).save(plain / "desk.png")
    for path, words, told in (
        (photos, ("--set", "areas=0.2"), "expected some of 0.05, 0.1, 0.3, 1, 3, 10 (percent)"),
        (photos, ("--set", "count=0"), "--set count"),
        (plain, (), "images without a metadata.jsonl; expected an ImageFolder: each row needs target_name"),
    ):
        code, error = build(editloupe, path, *words)
        assert code == 2 and told in " ".join(error.split()) and unwritten("set")
