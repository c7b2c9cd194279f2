"""`editloupe build probes` as a user types it: from photographs with targets to edits whose truth is known."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.data.images import ImageStore
from editloupe.data.probes import FAILURES, probe_digest, probe_of
from editloupe.data.samples import load
from editloupe.protocols.probes import variants
from editloupe.protocols.probes.builder import ProbeSet, ProbeSetOptions
from editloupe.protocols.probes.makers import TRUTHS

Run = Callable[..., tuple[int, str, str]]
PAINT = {"red": (190, 40, 40), "blue": (40, 70, 190), "grey": (128, 128, 128)}
Things = Mapping[str, tuple[str, tuple[int, int, int, int]]]
THINGS: Things = {
    "mug": ("red", (300, 200, 360, 260)),
    "book": ("blue", (120, 330, 200, 380)),
    "vase": ("blue", (520, 60, 570, 130)),
}
"""Target → its colour and its box, on a photograph of 640×480 px. The mug covers 60·60 of 307200 px: 1.17 %."""


def photograph(things: Things) -> np.ndarray:
    """Rectangles on sand with a little grain."""
    rng = np.random.default_rng(1)
    rgb = np.full((480, 640, 3), (196, 180, 150), np.float64) + rng.normal(0, 2, (480, 640, 1))
    for colour, (x0, y0, x1, y1) in things.values():
        rgb[y0:y1, x0:x1] = np.array(PAINT[colour]) + rng.normal(0, 2, (y1 - y0, x1 - x0, 1))
    return np.clip(rgb, 0, 255).astype(np.uint8)


def photographs(folder: Path, things: Things = THINGS, *, by: str = "mask", **more: Mapping[str, Any]) -> Path:
    """An ImageFolder of one photograph with a row for each target.   more: columns of a target's row beside these."""
    folder.mkdir()
    Image.fromarray(photograph(things)).save(folder / "desk.png")
    rows = []
    for name, (_, (x0, y0, x1, y1)) in things.items():
        row: dict[str, Any] = {"id": name, "source_file_name": "desk.png", "target_name": name}
        if by == "mask":
            row["mask_file_name"] = mask(folder / f"{name}.png", (x0, y0, x1, y1))
        else:
            row |= {"bbox": [x0, y0, x1, y1]}
        rows.append({**row, **more.get(name, {})})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def mask(file: Path, box: Sequence[int], size: tuple[int, int] = (640, 480)) -> str:
    pixels = np.zeros((size[1], size[0]), np.uint8)
    x0, y0, x1, y1 = box
    pixels[y0:y1, x0:x1] = 255
    Image.fromarray(pixels).save(file)
    return file.name


def build(editloupe: Run, path: Path | str, *words: str | int | Path, out: str = "set") -> tuple[int, Any]:
    code, told, error = editloupe("build", "probes", path, "--out", out, "--json", *map(str, words))
    return code, json.loads(told) if told else error


def lines(name: str, folder: str = "set") -> list[Any]:
    return [json.loads(line) for line in (Path(folder) / name).read_text().splitlines()]


def pixels(row: Mapping[str, Any], column: str) -> np.ndarray:
    return np.asarray(Image.open(Path("set") / row[column]).convert("RGB"))


def files(folder: str = "set") -> dict[str, str]:
    """What a set is made of, without the record of what was made, which is in the order in which it was."""
    found = {}
    for path in sorted(Path(folder).glob("**/*")):
        if path.is_file() and path.name not in ("done.jsonl", "build.json"):
            found[str(path.relative_to(folder))] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


AREAS = ("--areas", "1,3")


def test_each_probe_has_the_truth_that_it_was_made_for(editloupe: Run, tmp_path: Path) -> None:
    code, funnel = build(editloupe, photographs(tmp_path / "photos"), "--count", 44, "--twins", 0, "--seed", 3, *AREAS)
    assert (code, funnel["read"], funnel["written"]) == (0, 3, 44)
    rows = lines("metadata.jsonl")
    # 11 failures × 2 area shares × 2.
    assert {name: funnel["by_failure"][name] for name in FAILURES} == dict.fromkeys(FAILURES, 4)
    assert funnel["by_area"] == {"1": 22, "3": 22}
    for row in rows:
        probe = row["probe"]
        assert TRUTHS[probe["failure"]].items() >= probe["truth"].items() and probe["truth"]
        assert abs(probe["area_found"] / probe["area"] - 1) <= 0.15
        x0, y0, x1, y1 = row["bboxes"][0]
        height, width = pixels(row, "source_file_name").shape[:2]
        # The targets are rectangles, so that box and mask are as large. With a copy, or stretched, the box is larger.
        share = (x1 - x0) * (y1 - y0) / (width * height) / probe["area_found"]
        larger = probe["maker"].startswith(("copy", "recolour and stretch"))
        assert share > 1.5 if larger else 0.97 < share < 1.25, row["id"]
        assert row["target_name"] in row["instruction"] and probe["scene"] == "desk"
    loaded = load(Path("set"), store=ImageStore())
    assert not loaded.rejected and all(probe_of(sample) for sample in loaded.samples)
    assert editloupe("check", "set")[0] == 0


def test_only_the_target_changes_where_nothing_else_may(editloupe: Run, tmp_path: Path) -> None:
    build(editloupe, photographs(tmp_path / "photos"), "--count", 44, "--twins", 0, *AREAS)
    seen = set()
    for row in lines("metadata.jsonl"):
        failure = row["probe"]["failure"]
        source, edited = (pixels(row, column).astype(int) for column in ("source_file_name", "edited_file_name"))
        changed = np.abs(source - edited).max(axis=2)
        allowed = np.asarray(Image.open(Path("set") / row["mask_file_name"])) > 127
        x0, y0, x1, y1 = row["bboxes"][0]
        inside = np.zeros_like(allowed)
        inside[y0:y1, x0:x1] = True
        # The box holds all that may change but for a soft edge, and of a new colour no more than the target.
        near = np.zeros_like(allowed)
        near[max(0, y0 - 4) : y1 + 4, max(0, x0 - 4) : x1 + 4] = True
        assert not (allowed & ~near).any()
        assert not row["probe"]["maker"].startswith("recolour 2") or (allowed & inside).sum() == inside.sum()
        if failure == "no_edit":
            assert changed.max() == 0
        elif failure in ("flawless", "wrong_colour", "wrong_object"):
            assert changed[~allowed].max() == 0 and changed[allowed].max() > 40
        elif failure == "wrong_place":
            assert changed[inside].max() == 0 and changed.max() > 40
        elif failure in ("one_collateral", "several_collateral"):
            assert np.median(changed[inside]) > 20 and (changed[~allowed] > 40).sum() > 300
        elif failure in ("restyled", "recomposed"):
            assert (changed > 10).mean() > 0.5
        seen.add(failure)
    assert seen == set(FAILURES)


def test_a_question_has_as_its_key_the_colour_that_is_shown(editloupe: Run, tmp_path: Path) -> None:
    build(editloupe, photographs(tmp_path / "photos"), "--count", 66, "--twins", 0, *AREAS)
    rows = [row for row in lines("metadata.jsonl") if "evaluation_question" in row]
    by = {row["probe"]["failure"]: row for row in rows}
    assert {"flawless", "wrong_colour", "over_modification", "one_collateral"} <= set(by)
    wrong = by["wrong_colour"]
    assert wrong["expected_answer"] == wrong["probe"]["parameters"]["to"]
    assert wrong["probe"]["parameters"]["asked"] in wrong["instruction"]
    for row in rows:
        assert row["expected_answer"] in row["multiple_choice_options"]
        # Of green and pink there is but one colour that is told apart from both.
        assert len(set(row["multiple_choice_options"])) in (4, 5)
        if row["probe"]["failure"] in ("no_edit", "wrong_place"):
            # Of the source: the mug is red, book and vase are blue.
            assert row["expected_answer"] == {"mug": "red", "book": "blue", "vase": "blue"}[row["target_name"]]


def test_twins_differ_in_the_nuisance_or_the_trap_alone(editloupe: Run, tmp_path: Path) -> None:
    code, funnel = build(editloupe, photographs(tmp_path / "photos"), "--count", 60, "--twins", 1, *AREAS)
    rows = {row["id"]: row for row in lines("metadata.jsonl")}
    assert code == 0 and funnel["plain"] == 20
    twins = [row for row in rows.values() if row["probe"]["twin"]]
    assert {"jpeg", "resize", "tone"} & {row["probe"]["nuisance"] for row in twins}
    for row in twins:
        probe, plain = row["probe"], rows[row["probe"]["twin"]]
        assert (probe["nuisance"] is None) != (probe["trap"] is None)
        if probe["nuisance"]:
            assert row["instruction"] == plain["instruction"] and probe["truth"] == plain["probe"]["truth"]
            assert row["source_file_name"] == plain["source_file_name"]
            assert row["edited_file_name"] != plain["edited_file_name"]
            assert row["edited_file_name"].endswith(".jpg") == (probe["nuisance"] == "jpeg")
        if probe["trap"] == "file_name":
            assert Path(row["edited_file_name"]).stem == probe["parameters"]["variant"]["stem"]
        if probe["trap"] == "equal_pair":
            assert row["edited_file_name"] == row["source_file_name"]


def test_the_same_call_gives_the_same_bytes_and_what_was_begun_is_continued(editloupe: Run, tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos")
    words = ("--count", 24, *AREAS)
    build(editloupe, photos, *words)
    first = files()
    shutil.rmtree("set")
    # Stopped after a few probes.
    options = ProbeSetOptions(count=24, areas="1,3")
    asked = iter(range(100))
    Path("set").mkdir()
    nothing: Any = None
    told: list[str] = []
    rest = {"models": nothing, "folder": Path("set"), "tell": told.append}
    built = ProbeSet().build(photos, options, stopped=lambda: next(asked) > 6, **rest)
    assert built is None and not Path("set/metadata.jsonl").exists()
    done = len(lines("done.jsonl"))
    assert 0 < done < 12
    with Path("set/done.jsonl").open("a") as file:
        file.write('{"key": "torn')
    told.clear()
    ProbeSet().build(photos, options, stopped=lambda: False, **rest)
    assert {name: sha for name, sha in first.items() if name != "funnel.json"} == files()
    assert len([text for text in told if text.startswith("Probe")]) <= 12 - done


def test_a_file_that_is_gone_is_made_again_and_one_that_no_row_names_goes(editloupe: Run, tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos")
    build(editloupe, photos, "--count", 12, *AREAS)
    first = files()
    Path("set", lines("metadata.jsonl")[3]["edited_file_name"]).unlink()
    Path("set/images/stray.png").write_bytes(b"stray")
    assert build(editloupe, photos, "--count", 12, *AREAS)[0] == 0
    assert files() == first


def test_a_file_that_was_changed_is_made_again(editloupe: Run, tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos")
    build(editloupe, photos, "--count", 6, *AREAS)
    first = files()
    # Of one row all three, of another its edited image alone: what a probe that was changed asks for is to build again.
    row, other = lines("metadata.jsonl")[:2]
    for name in (*(row[f"{role}_file_name"] for role in ("source", "edited", "mask")), other["edited_file_name"]):
        with Path("set", name).open("ab") as file:
            file.write(b"more")
    assert editloupe("check", "set")[0] != 0
    assert build(editloupe, photos, "--count", 6, *AREAS)[0] == 0
    assert files() == first and editloupe("check", "set")[0] == 0


def test_the_digest_tells_a_row_or_an_image_that_was_changed(editloupe: Run, tmp_path: Path) -> None:
    build(editloupe, photographs(tmp_path / "photos"), "--count", 4, *AREAS)
    for row in lines("metadata.jsonl"):
        shas = {
            column: hashlib.sha256(Path("set", row[column]).read_bytes()).hexdigest()
            for column in ("source_file_name", "edited_file_name", "mask_file_name")
        }
        assert probe_digest(row, shas) == row["probe"]["digest"]
        assert probe_digest({**row, "instruction": "Remove the cup."}, shas) != row["probe"]["digest"]
        assert probe_digest(row, {**shas, "edited_file_name": "0" * 64}) != row["probe"]["digest"]
        assert probe_digest({**row, "probe": {**row["probe"], "truth": {}}}, shas) != row["probe"]["digest"]


def test_drawn_scenes_alone_need_no_photograph(editloupe: Run) -> None:
    code, funnel = build(editloupe, "drawn", "--count", 12, "--areas", "0.05,10", "--twins", 0, "--longest", 640)
    # Two scenes of each share.
    assert (code, funnel["read"], funnel["stages"][0]["left_out"]) == (0, 4, {})
    assert funnel["written"] >= 9
    for row in lines("metadata.jsonl"):
        assert row["probe"]["scene"].startswith("drawn-")
        assert abs(row["probe"]["area_found"] / row["probe"]["area"] - 1) <= 0.15


@pytest.mark.parametrize(
    ("words", "told"),
    [
        # 256·192·0.0005 is 25 px, of which nobody could say what they are.
        (("--longest", 256, "--areas", 0.05), "it needs 64"),
        # 0.05 % of 1024·768 are 393 px, about 20 px a side.
        (("--areas", 0.05, "--least", 100), "expected at least 100 px on its shorter side (--least)"),
    ],
)
def test_a_share_that_cannot_be_drawn_is_said(editloupe: Run, words: tuple[str | int | float, ...], told: str) -> None:
    code, funnel = build(editloupe, "drawn", "--drawn", 1, "--count", 3, *words)  # type: ignore[arg-type]
    assert (code, funnel["written"]) == (1, 0) and sum(funnel["not_made"].values()) == 2
    left = lines("left_out.jsonl")
    assert [line["what"] for line in left] == ["p00000", "p00001"] and told in left[0]["detail"]


def test_a_count_of_fewer_than_the_shares_says_so(editloupe: Run) -> None:
    told = editloupe("build", "probes", "drawn", "--drawn", "1", "--count", "1", "--out", "set")[1]
    assert "No probe has 0.1 %, 0.3 %, 1 %, 3 %, 10 %: --count 1 is too few for every share." in told.replace("\n", " ")


def test_drawn_scenes_stand_beside_photographs(editloupe: Run, tmp_path: Path) -> None:
    words = ("--count", 22, "--drawn", 1, "--areas", "0.3,3", "--longest", 640)
    code, funnel = build(editloupe, photographs(tmp_path / "photos"), *words)
    assert (code, funnel["read"]) == (0, 5)
    scenes = {(row["probe"]["area"], row["probe"]["scene"].split("-")[0]) for row in lines("metadata.jsonl")}
    # No target of the photograph has as little as 0.3 %.
    assert scenes == {(0.003, "drawn"), (0.03, "drawn"), (0.03, "desk")}


def broken(folder: Path) -> Path:
    """Targets with one fault each, and a good one."""
    things: Things = dict.fromkeys(("mug", "empty", "full", "small", "beside", "ground"), ("red", (300, 200, 360, 260)))
    photographs(folder, {"mug": THINGS["mug"]})
    mask(folder / "empty.png", (0, 0, 0, 0))
    mask(folder / "full.png", (0, 0, 640, 480))
    mask(folder / "small.png", (30, 20, 36, 26), size=(64, 48))
    mask(folder / "beside.png", (300, 200, 360, 260))
    mask(folder / "ground.png", (100, 100, 160, 160))
    rows = lines("metadata.jsonl", str(folder))
    for name in list(things)[1:]:
        row = {"id": name, "source_file_name": "desk.png", "target_name": name, "mask_file_name": f"{name}.png"}
        rows.append({**row, **({"bbox": [10, 10, 60, 60]} if name == "beside" else {})})
    rows += [
        {"id": "nameless", "source_file_name": "desk.png", "bbox": [300, 200, 360, 260]},
        {"id": "nowhere", "source_file_name": "desk.png", "target_name": "cup"},
        {"id": "sand", "source_file_name": "desk.png", "target_name": "sand", "bbox": [100, 100, 160, 160]},
        {"id": "again", "source_file_name": "desk.png", "target_name": "cup", "mask_file_name": "mug.png"},
    ]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_what_misses_its_object_is_left_out_with_its_reason(editloupe: Run, tmp_path: Path) -> None:
    code, funnel = build(editloupe, broken(tmp_path / "photos"), "--count", 11, "--areas", "3", "--twins", 0)
    assert (code, funnel["read"]) == (0, 10)
    read, masks, *_ = funnel["stages"]
    assert read["left_out"] == {"box": 1, "row": 1}
    assert masks["left_out"] == {
        "again": 1,
        "empty_mask": 1,
        "full_mask": 1,
        "mask_beside_its_box": 1,
        "mask_of_another_size": 1,
        "mask_without_an_edge": 1,
        "no_clear_object": 1,
    }
    told = {line["what"]: line["detail"] for line in lines("left_out.jsonl") if "detail" in line}
    assert "64×48 px, its image 640×480 px" in told["small"] and "100 % of the image" in told["full"]
    assert "outside the box" in told["beside"] and "no edge" in told["ground"] and "'mug'" in told["again"]
    assert "target_name" in told["nameless"] and "mask_file_name" in told["nowhere"] and "GrabCut" in told["sand"]
    assert {row["target_name"] for row in lines("metadata.jsonl")} == {"mug"}


def test_a_name_that_could_be_either_of_two_is_left_out(editloupe: Run, tmp_path: Path) -> None:
    things = {"mug": THINGS["mug"], "blue mug": THINGS["book"], "Book": THINGS["vase"]}
    photos = photographs(tmp_path / "photos", things)
    code, funnel = build(editloupe, photos, "--count", 11, "--areas", "3", "--twins", 0)
    assert (code, funnel["stages"][1]["left_out"]) == (0, {"name_of_several": 1})
    left = next(line for line in lines("left_out.jsonl") if line["what"] == "mug")
    assert "another target of its photograph is 'mug' too" in left["detail"] and "'red mug'" in left["detail"]
    assert {row["target_name"] for row in lines("metadata.jsonl")} == {"blue mug", "Book"}


def test_a_share_that_no_crop_gives_is_left_out_and_said(editloupe: Run, tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos", {"mug": THINGS["mug"]})
    code, funnel = build(editloupe, photos, "--count", 22, "--areas", "0.1,3", "--twins", 0)
    assert (code, funnel["without_a_share"]) == (0, {"too_large_for_an_area_share": 1})
    # All are made of the share that there is.
    assert funnel["by_area"] == {"0.1": 0, "3": funnel["written"]} and funnel["written"] >= 18
    left = next(line for line in lines("left_out.jsonl") if line["stage"] == "area")
    assert (left["what"], left["area"]) == ("mug", 0.001)
    # 60·60 of 640·480 px.
    assert "covers 1.17 % of its photograph" in left["detail"]
    assert "No probe has 0.1 %" in editloupe("build", "probes", photos, "--out", "set", "--count", 22, "--areas", "0.1,3",
                                              "--twins", "0")[1].replace("\n", " ")  # fmt: skip


def test_a_target_of_too_few_pixels_is_left_out_and_said(editloupe: Run, tmp_path: Path) -> None:
    photos = photographs(tmp_path / "photos", {"mug": ("red", (300, 200, 310, 206))})
    code, error = build(editloupe, photos, "--areas", "0.05")
    # Of 60 px: 0.02 %. At 0.05 % the short side has the 6 px that it has.
    assert code == 2 and "the target is 6.0 px; expected at least 8 px on its shorter side (--least)" in " ".join(
        error.split()
    )
    assert not Path("set").exists()
    code, _ = build(editloupe, photos, "--areas", "0.05", "--least", 5, "--count", 11)
    assert code == 0


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ("--areas", "0.2"),
            "--areas: expected some of 0.05, 0.1, 0.3, 1, 3, 10 (percent), with commas between them; found",
        ),
        (("--font", "gone.ttf"), "gone.ttf' is no file"),
        (("--count", "0"), "--count"),
    ],
)
def test_options_that_cannot_be_met_are_said_before_anything_is_written(
    editloupe: Run, tmp_path: Path, words: tuple[str, ...], told: str
) -> None:
    code, error = build(editloupe, photographs(tmp_path / "photos"), *words)
    assert code == 2 and told in " ".join(error.split())
    assert not Path("set").exists()


def test_a_font_that_lacks_a_letter_of_a_note_is_named_before_anything_is_made(
    editloupe: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(variants, "_NOTES", ("\u6f22 {labels}",))
    code, error = build(editloupe, "drawn", "--count", 4)
    assert code == 2 and "has no glyph for '\u6f22' (U+6F22)" in " ".join(error.split())
    assert not Path("set/done.jsonl").exists()


def test_a_folder_without_targets_is_an_error_that_says_what_is_missing(editloupe: Run, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    Image.fromarray(photograph(THINGS)).save(tmp_path / "plain/desk.png")
    code, error = build(editloupe, tmp_path / "plain")
    assert code == 2 and "target_name" in error and "--drawn" in error
