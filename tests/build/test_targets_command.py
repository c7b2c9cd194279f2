"""`editloupe targets` as a user types it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe.models import opening
from tests.build.conftest import metadata
from tests.conftest import Cli, final, refused, scripted
from tests.protocols.dlebench_folder import draw_folder, edited_options
from tests.tools.test_search import Reds

EXAMPLES = Path(__file__).parents[2] / "examples" / "edits"


@pytest.fixture
def mugs() -> Path:
    """Three edits of a picture with a red 20×10 px rectangle in 200×100 px; no outputs."""
    folder = Path("mugs")
    folder.mkdir()
    picture = np.full((100, 200, 3), 120, dtype=np.uint8)
    picture[30:40, 40:60] = (255, 0, 0)
    Image.fromarray(picture).save(folder / "a.png")
    asked = {"blue": " Make the red mug blue. ", "film": "Make it cinematic.", "cat": "Add a cat."}
    return metadata(folder, *({"id": id_, "source_file_name": "a.png", "instruction": text} for id_, text in asked.items()))


@pytest.fixture
def reds(monkeypatch: pytest.MonkeyPatch) -> Reds:
    """A detector at hand that finds what is red."""
    found = Reds()
    monkeypatch.setattr(opening, "DETECTOR", lambda name, device: found)
    return found


def test_boxes_of_the_data_need_no_model(editloupe: Cli):
    code, said, _ = editloupe("build", "targets", EXAMPLES)
    assert code == 0 and "11 from the data." in said and "rules" not in said
    words = ("build", "targets", EXAMPLES, "--set", "limit=1", "--format", "json")
    data = json.loads(editloupe(*words)[1])
    # The first is kitchen-mug, [40, 130, 84, 174] in 512×384 px: 44·44 / (512·384).
    assert (data["targets"], data["how"], data["median_share"]) == (1, {"boxes": 1}, pytest.approx(0.0098470052))


def test_a_detector_and_rules_that_say_that_they_are_rules(editloupe: Cli, mugs: Path, reds: Reds):
    code, said, _ = editloupe("build", "targets", mugs)
    assert code == 0
    told = " ".join(said.split())
    assert "named by rules on the instruction's words, not by an LMM; name one with --backend" in told
    assert "1 from whole image" in told and "1 from the detector" in told and "1 unknown: abstained" in told


def test_a_model_names_the_objects_and_is_asked_once(editloupe: Cli, mugs: Path, reds: Reds):
    scripted("names.jsonl", final("red mug"))
    code, said, _ = editloupe("build", "targets", mugs, "--backend", "scripted/names.jsonl", "--format", "json")
    assert code == 0
    data = json.loads(said)
    # 20·10 of 200·100 px.
    assert (data["how"], data["median_share"]) == ({"detector": 3}, 0.01)
    # The same command again asks nobody.
    assert "Spent" not in editloupe("build", "targets", mugs, "--backend", "scripted/names.jsonl")[1]


def test_boxes_are_written_beside_the_data_and_can_be_judged_with(editloupe: Cli, mugs: Path, reds: Reds):
    code, _, said = editloupe("build", "targets", mugs, "--write", mugs / "metadata-boxes.jsonl")
    assert code == 0
    assert "1 box added in mugs/metadata-boxes.jsonl" in said
    row = json.loads((mugs / "metadata-boxes.jsonl").read_text().splitlines()[0])
    assert (row["id"], row["bbox"], row["target_name"]) == ("blue", [40, 30, 60, 40], "red mug")
    assert (row["bbox_by"]["score"], row["bbox_by"]["phrase_by"][:5]) == (0.62, "rules")
    code, said, _ = editloupe("build", "targets", mugs / "metadata-boxes.jsonl", "--format", "json")
    assert code == 0 and json.loads(said)["how"]["boxes"] == 1


def test_boxes_for_a_dlebench_download_are_read_by_the_oracle_mode(editloupe: Cli, reds: Reds, tmp_path: Path):
    folder = draw_folder(tmp_path / "dle", boxes=False)
    rows = [json.loads(line) for line in (folder / "data.jsonl").read_text().splitlines()]
    # A place in small images that is px by either corners or sizes: the file must say which.
    rows = [row for row in rows if row["id"] in ("color", "gone")]
    rows = [{key: value for key, value in row.items() if key != "id"} for row in rows]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for file in (folder / "Source_Images").iterdir():
        picture = np.array(Image.open(file))
        picture[(picture == (220, 0, 0)).all(axis=2)] = (255, 0, 0)
        Image.fromarray(picture).save(file)
    judge = ("judge", folder, *edited_options(folder), "--mode", "oracle", "--out", "run")
    code, _, said = editloupe(*judge)
    assert code == 2
    assert "`editloupe build targets PATH --write PATH/boxes.jsonl`, then judge again" in said
    code, _, said = editloupe("build", "targets", folder, "--write", folder / "metadata-boxes.jsonl")
    assert (code, f"reads boxes from {folder / 'boxes.jsonl'}" in said, reds.asked) == (2, True, [])
    code, _, said = editloupe("build", "targets", folder, "--write", folder / "boxes.jsonl")
    assert code == 0, said
    assert "2 boxes added" in said
    lines = [json.loads(line) for line in (folder / "boxes.jsonl").read_text().splitlines()]
    assert [line["id"] for line in lines] == ["color", "gone"] and lines[0]["bbox_format"] == "xyxy"
    code, _, said = editloupe(*judge)
    assert code == 0, said
    # The disc of "color" is drawn in [100, 100, 132, 120], a px inside.
    assert lines[0]["bbox"] == pytest.approx([100, 100, 132, 120], abs=2)


def test_a_wrong_word_is_answered_before_anything_is_spent(editloupe: Cli, mugs: Path, reds: Reds):
    for words, message in (
        (("--write", "elsewhere.jsonl"), "expected a .jsonl file in mugs"),
        (("--write", "mugs/metadata.jsonl"), "exists already"),
        (("--backend", "nobody/x"), "unknown backend 'nobody'"),
    ):
        assert message in refused(editloupe, "build", "targets", mugs, *words) and reds.asked == []
