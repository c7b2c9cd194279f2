"""`editloupe tools` as a user types it: listing, one call by hand, loading ahead, and every kind of bad input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.conftest import pixels

Run = Callable[..., tuple[int, str, str]]
LOCALIZE = ("tools", "call", "localize_differences")
ZOOM = ("tools", "call", "zoom_in", "before.png")


@pytest.fixture(autouse=True)
def edit(editloupe: Run) -> tuple[np.ndarray, np.ndarray]:
    """before.png and after.png, 320×240 px, with one red square at px [20, 20, 44, 44]; small.png of 1×1 px; notes.txt."""
    before, after = pixels(0, spots=1)
    Image.fromarray(before).save("before.png")
    Image.fromarray(after).save("after.png")
    Image.fromarray(before[:1, :1]).save("small.png")
    Path("notes.txt").write_text("no image")
    return before, after


def test_two_images_are_compared_and_the_pictures_lie_in_a_new_folder(editloupe: Run):
    code, said, noted = editloupe(*LOCALIZE, "before.png", "after.png")
    assert code == 0
    assert "1 region differs" in said
    path = "editloupe-tool-localize_differences/crop-1.png"
    assert f"{path}  Crop 1: " in said and "of 'Original Image' | px " in said
    assert "comparison_image_1 = 'Original Image', comparison_image_2 = 'Edited Image'" in noted
    with Image.open(path) as picture:
        assert picture.width > picture.height
    # Called again, nothing is overwritten.
    before = Path(path).read_bytes()
    assert "editloupe-tool-localize_differences-2/crop-1.png" in editloupe(*LOCALIZE, "before.png", "after.png")[1]
    assert Path(path).read_bytes() == before


def test_json_is_one_object_with_everything(editloupe: Run, edit: tuple[np.ndarray, np.ndarray]):
    words = ("tools", "call", "enhancer", "before.png", "after.png", "--bbox", "0,0,250,250", "--arg", "scale=2")
    code, said, _ = editloupe(*words, "--out", "looks", "--format", "json", "--device", "cpu")
    assert code == 0
    done = json.loads(said)
    assert done["tool"] == "enhancer" and done["version"] == "2; Lanczos"
    # Two images: the last one given is meant.
    assert done["arguments"] == {"bbox": [0, 0, 250, 250], "scale": 2, "target_image": "Edited Image"}
    assert done["device"] == "cpu" and done["works_with"] == ["Lanczos (nothing to load)"] and done["seconds"] >= 0
    shown, kept = done["images"]
    # A quarter of 320×240 px is 80×60. Five times that brings 60 px to 256 px at least.
    view = {"origin": "Edited Image", "box": [0.0, 0.0, 80.0, 60.0], "window": [0.0, 0.0, 400.0, 300.0], "op": "enhance"}
    assert shown == {
        "name": "Crop 1", "path": "looks/crop-1.png", "width": 400, "height": 300, "kept": False, "views": [view],
    }  # fmt: skip
    assert (kept["name"], kept["path"], kept["kept"]) == (None, "looks/plain-1.png", True)
    with Image.open(kept["path"]) as picture:
        assert np.array_equal(np.asarray(picture), edit[1][:60, :80])
    # The same folder again: names that are taken get a number.
    again = json.loads(editloupe(*words, "--out", "looks", "--format", "json")[1])
    assert [i["path"] for i in again["images"]] == ["looks/crop-1-2.png", "looks/plain-1-2.png"]


def test_where_nothing_is_to_be_shown_nothing_is_written(editloupe: Run):
    code, said, _ = editloupe(*LOCALIZE, "before.png", "before.png")
    assert code == 0
    assert "pixel-identical" in said
    assert not list(Path().glob("editloupe-tool-*"))


def test_arguments_come_as_json_as_words_or_as_the_schema_wants_them(editloupe: Run):
    said = editloupe(*ZOOM, "--args", '{"bbox": [0, 0, 500, 500]}', "--arg", "label=7 [red] mugs", "--out", "a")[1]
    # The label is text by its schema, and markup of the terminal's in it is text too.
    assert "Looking for: 7 [red] mugs." in said
    said = editloupe(*ZOOM, "after.png", "--arg", "bbox=[0, 0, 500, 500]", "--arg", "target_image=original image")[1]
    assert "of 'Original Image'" in said


def test_three_images_have_names_and_which_is_meant_must_be_said(editloupe: Run):
    code, _, error = editloupe(*ZOOM, "after.png", "before.png", "--bbox", "0,0,500,500")
    assert code == 2
    assert "3 images are given: say which is meant, for example --arg target_image='Image 3'" in error
    words = ("after.png", "before.png", "--bbox", "0,0,500,500", "--arg", "target_image=Image 3")
    assert "of 'Image 3'" in editloupe(*ZOOM, *words)[1]


BOX = ("--bbox", "0,0,500,500")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((*ZOOM, *BOX, "--arg", "target_image=Crop 1"), "there is no image 'Crop 1'; the images are: 'Original Image'"),
        ((*ZOOM, "--arg", "bbox=left half"), "bbox: 'left half' is not of type 'array'"),
        ((*ZOOM, "--bbox", "0.1,0.2,0.3,0.4"), "multiply by 1000, [100, 200, 300, 400]"),
        ((*ZOOM, "--bbox", "0,0,1,1"), "if these are fractions of the image, multiply them by 1000: [0, 0, 1000, 1000]"),
        ((*ZOOM, "--bbox", "300,0,100,500"), "empty or inverted: expected x0 < x1 and y0 < y1"),
        ((*ZOOM, "--bbox", "-10,0,500,500"), "-10 is less than the minimum of 0"),
        ((*ZOOM, "--bbox", "0,0,500,1001"), "1001 is greater than the maximum of 1000"),
        ((*ZOOM, "--bbox", "0,0,500"), "[0, 0, 500] is too short"),
        ((*ZOOM, "--bbox", "nan,0,500,500"), "'nan' is no number; expected X0,Y0,X1,Y1 from 0 to 1000"),
        ((*ZOOM, "--arg", "bbox=[NaN, 0, 500, 500]"), "NaN is no JSON number"),
        ((*ZOOM, "--args", '{"bbox": [0, 0, Infinity, 500]}'), "Infinity is no JSON number"),
        ((*ZOOM,), "'bbox' is a required property"),
        ((*ZOOM, *BOX, "--arg", "more=1"), "'more' was unexpected"),
        ((*ZOOM, *BOX, "--arg", "bbox=[0, 0, 1, 1]"), "the argument 'bbox' is given twice"),
        ((*ZOOM, "--arg", "bbox"), "expected KEY=VALUE"),
        ((*ZOOM, "--args", "[1]"), "expected one JSON object"),
        ((*ZOOM, "--args", "{"), "is not JSON"),
        ((*ZOOM, *BOX, "--arg", f"label={'x' * 201}"), "is 201 characters long, at most 200 are taken"),
        (("tools", "call", "enhancer", "before.png", *BOX, "--arg", "scale=3"), "3 is not one of [2, 4]"),
        (("tools", "call", "enhancer", "before.png", "--bbox", "0,0,2,2"), "expected at least 4 px a side"),
        ((*LOCALIZE, "before.png"), "compares two images; name a second file after the first"),
        ((*LOCALIZE, "before.png", "after.png", "--arg", "comparison_image_1=Edited Image"), "both arguments name"),
        ((*LOCALIZE, "before.png", "small.png"), "small.png: 1×1"),
        ((*LOCALIZE, "before.png", "notes.txt"), "notes.txt: not an image that can be read"),
        ((*LOCALIZE, "before.png", "nowhere.png"), "nowhere.png: no such file"),
        ((*LOCALIZE, "before.png", "after.png", "--picture-budget", "0"), "picture_budget: expected a number above 0"),
        ((*LOCALIZE, "before.png", "after.png", "--picture-budget", "nan"), "expected a finite number, found nan"),
        ((*LOCALIZE, "before.png", "after.png", "--marks", "maybe"), "'maybe' is not one of 'on', 'off'"),
        (("tools", "call", "magic", "before.png"), "unknown tool 'magic'; known here: detect_object"),
        ((*ZOOM, *BOX, "--device", "gpu"), "unknown device 'gpu'; expected auto, cpu, cuda, cuda:N or mps"),
        ((*ZOOM, *BOX, "--device", "cuda:7"), "cuda:7"),
        ((*ZOOM, *BOX, "--upscaler", "nowhere.pth"), "upscaler 'nowhere.pth': no such file"),
        ((*ZOOM, *BOX, "--upscaler", "notes.txt"), "expected one file of weights"),
        ((*ZOOM, *BOX, "--out", "notes.txt"), "--out notes.txt: cannot be written"),
        (
            ("tools", "call", "grounding", "before.png", "--arg", "phrase=mug"),
            "the tool 'grounding' is absent here: it needs",
        ),
        (("tools", "warm", "magic"), "unknown tool 'magic'"),
        (("tools", "warm", "--detector", "no such thing"), "'no such thing'"),
        (("tools", "serve-mcp", "--root", "nowhere"), "--root nowhere: is no folder"),
        (("tools", "serve-mcp", "--tools", "magic"), "unknown tool 'magic'"),
        (("tools", "--device", "cuda:7", "warm"), "cuda:7"),
        (("tools", "nothing"), "nothing"),
    ],
)
def test_bad_input_is_exit_code_2_and_says_what_to_do(words: tuple[str, ...], told: str, editloupe: Run):
    code, said, error = editloupe(*words)
    assert code == 2
    assert told in error
    assert "Traceback" not in error + said
    assert not list(Path().glob("editloupe-tool-*")), "a call that failed leaves nothing behind"


def test_with_json_an_error_is_an_object_too(editloupe: Run):
    code, said, error = editloupe(*ZOOM, "--bbox", "0.1,0.2,0.3,0.4", "--format", "json")
    assert code == 2
    assert json.loads(said)["error"]["kind"] == "ToolError"
    assert json.loads(said)["error"]["message"] in error
    assert json.loads(editloupe(*ZOOM[:3], "notes.txt", *BOX, "--format", "json")[1])["error"]["kind"] == "ImageError"
    assert json.loads(editloupe("tools", "call", "magic", "before.png", "--format", "json")[1])["error"]["kind"] == "UnknownPlugin"


def test_a_tool_that_falls_over_is_exit_code_1(editloupe: Run, monkeypatch: pytest.MonkeyPatch):
    from editloupe.tools.zoom_in import ZoomIn

    def fail(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(ZoomIn, "__call__", fail)
    code, said, error = editloupe(*ZOOM, *BOX, "--format", "json")
    assert code == 1
    assert "zoom_in failed (ZeroDivisionError: division by zero)" in error
    assert json.loads(said)["error"]["kind"] == "ToolFailed"


def test_the_list_says_which_tools_of_dlebench_these_are(editloupe: Run):
    code, told, _ = editloupe("tools")
    said = " ".join(told.split())
    assert code == 0
    assert "names four tools: Grounding, Zoom-In, Difference and Enhancer. Difference is localize_differences" in said
    assert "detect_object is from the dialogues too: Grounding in words alone. The paper enhances every crop" in said


def test_the_help_of_mode_says_whose_the_oracle_crops_are(editloupe: Run):
    _, told, _ = editloupe("judge", "--help")
    # The help is broken into columns.
    said = " ".join(told.replace("│", " ").split())
    assert "oracle crops by DLEBench's Eq. 1: the paper's rule for reference images, its use for crops is ours." in said


def test_warm_says_what_each_tool_works_with_and_why_one_is_absent(editloupe: Run):
    code, said, _ = editloupe("tools", "warm")
    assert code == 0
    assert said.count("Lanczos (nothing to load)") == 3
    assert "absent: it needs an object detector" in said
    assert editloupe("tools", "warm", "grounding")[0] == 2
    assert "zoom_in" not in editloupe("tools", "warm", "enhancer")[1]


def test_the_groups_options_hold_for_its_commands_and_the_commands_own_come_first(editloupe: Run):
    def device(*words: str) -> str:
        return str(json.loads(editloupe(*words, "before.png", *BOX, "--format", "json")[1])["device"])

    assert device("tools", "--device", "cpu", "call", "zoom_in") == "cpu"
    assert device("tools", "--device", "auto", "call", "zoom_in", "--device", "cpu") == "cpu"
    code, _, error = editloupe("tools", "--upscaler", "nowhere.pth")
    assert code == 2 and "nowhere.pth" in error


class _Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return (exec, ("raise SystemExit('code in a pickle was run')",))


@pytest.mark.filterwarnings("ignore::FutureWarning", "ignore::UserWarning", "ignore::DeprecationWarning")
class TestWithWeights:
    """The tools that load something, with tiny random weights; skipped without torch."""

    @pytest.fixture(scope="class")
    def models(self, tmp_path_factory: pytest.TempPathFactory) -> Path:
        """A folder with a detector, an upscaler, and spoilt ones of each."""
        torch = pytest.importorskip("torch", reason="needs the extra `vision`")
        pytest.importorskip("transformers", reason="needs the extra `vision`")
        import shutil

        from tests.models.tiny_detectors import grounding_dino_folder
        from tests.models.tiny_networks import rrdbnet_file

        base = tmp_path_factory.mktemp("models")
        whole = grounding_dino_folder(base / "gd")
        for name in ("cut", "evil", "other", "empty"):
            shutil.copytree(whole, base / name)
        tensors = base / "cut" / "model.safetensors"
        tensors.write_bytes(tensors.read_bytes()[:-1000])
        (base / "evil" / "model.safetensors").unlink()
        torch.save({"model.level_embed": _Evil()}, base / "evil" / "pytorch_model.bin")
        (base / "other" / "config.json").write_text('{"model_type": "bert"}')
        (base / "empty" / "model.safetensors").unlink()
        weights = rrdbnet_file(base)
        (base / "cut.pth").write_bytes(weights.read_bytes()[:2000])
        torch.save({"params_ema": {"conv_first.weight": _Evil()}}, base / "evil.pth")
        torch.save({"params_ema": {"fc.weight": torch.zeros(2, 2)}}, base / "other.pth")
        return base

    def test_warm_loads_what_is_named_and_says_where(self, editloupe: Run, models: Path):
        weights = ("--detector", models / "gd", "--upscaler", models / "tiny_x4.pth", "--device", "cpu")
        code, said, _ = editloupe("tools", "warm", *weights)
        assert code == 0
        flat = " ".join(said.replace("│", " ").split())
        assert "on cpu fp32" in flat and "GroundingDINO (gd" in flat and "tiny_x4 on cpu fp32" in flat
        assert "absent" not in flat

    @pytest.mark.parametrize("tool", ["grounding", "detect_object"])
    def test_a_detector_answers_by_hand(self, tool: str, editloupe: Run, models: Path):
        phrase = {"grounding": "phrase", "detect_object": "detect_object_name"}[tool]
        words = ("tools", "call", tool, "before.png", "--detector", models / "gd", "--device", "cpu")
        code, said, _ = editloupe(*words, "--arg", f"{phrase}=red mug", "--format", "json")
        assert code == 0
        done = json.loads(said)
        assert done["works_with"][0].endswith("on cpu fp32") and "GroundingDINO" in done["text"]
        for wrong, told in (
            ("", "should be non-empty"),
            ("?!", "nothing to look for in '?!'"),
            ("x" * 2000, "is 2,000 characters long, at most 200 are taken"),
        ):
            code, _, error = editloupe(*words, "--arg", f"{phrase}={wrong}")
            assert code == 2 and told in error and "Traceback" not in error, error

    @pytest.mark.parametrize(
        ("option", "name", "told"),
        [
            ("--detector", "nowhere", "detector"),
            ("--detector", "cut", "cannot be loaded"),
            ("--detector", "evil", "refused: it holds more than tensors"),
            ("--detector", "other", "model_type 'bert' is no detector known here"),
            ("--detector", "empty", "has no weights"),
            ("--upscaler", "nowhere.pth", "no such file"),
            ("--upscaler", "cut.pth", "damaged, cut off"),
            ("--upscaler", "evil.pth", "refused: it holds more than tensors"),
            ("--upscaler", "other.pth", "has not the keys of an RRDBNet|does not know this network"),
        ],
    )
    @pytest.mark.parametrize("command", ["call", "warm"])
    def test_bad_weights_are_named(self, option: str, name: str, told: str, command: str, editloupe: Run, models: Path):
        import re

        if command == "warm":
            words: tuple[str | Path, ...] = ("tools", "warm")
        elif option == "--detector":
            words = ("tools", "call", "grounding", "before.png", "--arg", "phrase=red mug")
        else:
            words = ("tools", "call", "enhancer", "before.png", *BOX)
        code, _, error = editloupe(*words, option, models / name, "--device", "cpu")
        assert code == 2
        assert re.search(told, error), error
        assert "Traceback" not in error

    def test_a_gpu_that_is_not_there_is_said(self, editloupe: Run, models: Path):
        import torch

        if torch.cuda.is_available():
            pytest.skip("there is a GPU here")
        for words in ((*ZOOM, *BOX), ("tools", "warm"), ("tools",)):
            code, _, error = editloupe(*words, "--device", "cuda")
            assert code == 2 and "there is no such GPU" in error and "use --device auto or cpu" in error
