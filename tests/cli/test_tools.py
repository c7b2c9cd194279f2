"""`editloupe tools` as a user types it: the list, one call by hand, and every kind of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import Cli, pixels, refused

LOCALIZE = ("tools", "call", "localize_differences")
ZOOM = ("tools", "call", "zoom_in", "before.png")
BOX = ("--arg", "bbox=[0, 0, 500, 500]")


@pytest.fixture(autouse=True)
def edit(editloupe: Cli) -> tuple[np.ndarray, np.ndarray]:
    """before.png and after.png, 320×240 px, with one red square at px [20, 20, 44, 44]; small.png of 1×1 px; notes.txt."""
    before, after = pixels(0, spots=1)
    Image.fromarray(before).save("before.png")
    Image.fromarray(after).save("after.png")
    Image.fromarray(before[:1, :1]).save("small.png")
    Path("notes.txt").write_text("no image")
    return before, after


def test_two_images_are_compared_and_the_pictures_lie_in_a_new_folder(editloupe: Cli) -> None:
    code, said, noted = editloupe(*LOCALIZE, "before.png", "after.png")
    path = "editloupe-tool-localize_differences/crop-1.png"
    assert code == 0 and "1 region differs" in said
    assert f"{path}  Crop 1: " in said and "of 'Original Image' | px " in said
    assert "comparison_image_1 = 'Original Image', comparison_image_2 = 'Edited Image'" in noted
    # Called again, nothing is overwritten.
    before = Path(path).read_bytes()
    assert "editloupe-tool-localize_differences-2/crop-1.png" in editloupe(*LOCALIZE, "before.png", "after.png")[1]
    assert Path(path).read_bytes() == before
    code, said, _ = editloupe(*LOCALIZE, "before.png", "before.png", "--out", "same")
    assert code == 0 and "pixel-identical" in said and not Path("same").exists()


def test_json_is_one_object_with_everything(editloupe: Cli, edit: tuple[np.ndarray, np.ndarray]) -> None:
    words = ("tools", "call", "enhancer", "before.png", "after.png", "--arg", "bbox=[0,0,250,250]", "--arg", "scale=2")
    code, said, _ = editloupe(*words, "--out", "looks", "--format", "json", "--device", "cpu")
    done = json.loads(said)
    assert code == 0 and done["tool"] == "enhancer" and done["version"] == "2; Lanczos"
    # Two images: the last one given is meant.
    assert done["arguments"] == {"bbox": [0, 0, 250, 250], "scale": 2, "target_image": "Edited Image"}
    assert done["works_with"] == ["Lanczos (nothing to load)"] and done["seconds"] >= 0
    assert done["images"] == [{"name": "Crop 1", "path": "looks/crop-1.png"}, {"name": None, "path": "looks/plain-1.png"}]
    # A quarter of 320×240 px is 80×60. Five times that brings 60 px to 256 px at least.
    with Image.open("looks/crop-1.png") as picture:
        assert picture.size == (400, 300)
    with Image.open("looks/plain-1.png") as picture:
        assert np.array_equal(np.asarray(picture), edit[1][:60, :80])
    again = json.loads(editloupe(*words, "--out", "looks", "--format", "json")[1])
    assert [i["path"] for i in again["images"]] == ["looks/crop-1-2.png", "looks/plain-1-2.png"]


def test_images_have_names_and_arguments_are_what_the_schema_wants(editloupe: Cli) -> None:
    # The label is text by its schema, and markup of the terminal's in it is text too.
    assert "Looking for: 7 [red] mugs." in editloupe(*ZOOM, *BOX, "--arg", "label=7 [red] mugs", "--out", "a")[1]
    assert "of 'Original Image'" in editloupe(*ZOOM, "after.png", *BOX, "--arg", "target_image=original image")[1]
    err = refused(editloupe, *ZOOM, "after.png", "before.png", *BOX)
    assert "3 images are given: say which is meant, for example --arg target_image='Image 3'" in err
    assert "of 'Image 3'" in editloupe(*ZOOM, "after.png", "before.png", *BOX, "--arg", "target_image=Image 3")[1]


def test_bad_input_is_exit_code_2_and_says_what_to_do(editloupe: Cli) -> None:
    for words, told in (
        ((*ZOOM, *BOX, "--arg", "target_image=Crop 1"), "there is no image 'Crop 1'; the images are: 'Ori"),
        ((*ZOOM, "--arg", "bbox=left half"), "bbox: 'left half' is not of type 'array'"),
        ((*ZOOM, "--arg", "bbox=[0.1,0.2,0.3,0.4]"), "multiply by 1000, [100, 200, 300, 400]"),
        ((*ZOOM, *BOX, *BOX), "'bbox' is given twice"),
        ((*ZOOM, "--arg", "bbox"), "expected KEY=VALUE"),
        ((*LOCALIZE, "before.png"), "compares two images; name a second file after the first"),
        ((*LOCALIZE, "before.png", "small.png"), "small.png: 1×1"),
        ((*LOCALIZE, "before.png", "notes.txt"), "notes.txt: not an image that can be read"),
        (("tools", "call", "magic", "before.png"), "unknown tool 'magic'; known here: detect_object"),
        ((*ZOOM, *BOX, "--device", "gpu"), "unknown device 'gpu'; expected auto, cpu, cuda, cuda:N or mps"),
        ((*ZOOM, *BOX, "--upscaler", "nowhere.pth"), "upscaler 'nowhere.pth': no such file"),
        ((*ZOOM, *BOX, "--out", "notes.txt"), "--out notes.txt: cannot be written"),
        (("tools", "call", "grounding", "before.png", "--arg", "phrase=mug"), "is absent here: it needs"),
        (("tools", "serve", "--root", "nowhere"), "--root nowhere: is no folder"),
        (("tools", "grounding"), "the tool grounding is absent here"),
        (("tools", "zoom_in", "before.png"), "takes no more words"),
        (("tools", "call", "zoom_in"), "expected a tool and at least one image"),
    ):
        code, said, error = editloupe(*words)
        assert code == 2 and told in error and "Traceback" not in error + said, (words, error)
        assert not list(Path().glob("editloupe-tool-*")), "a call that failed leaves nothing behind"


def test_a_tool_that_falls_over_is_exit_code_1(editloupe: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    from editloupe.tools.zoom_in import ZoomIn

    def fail(*_: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(ZoomIn, "__call__", fail)
    code, _, error = editloupe(*ZOOM, *BOX)
    assert code == 1 and "zoom_in failed (ZeroDivisionError: division by zero)" in error


def test_the_tools_are_listed_and_shown(editloupe: Cli) -> None:
    code, told, _ = editloupe("tools")
    said = " ".join(told.split())
    assert code == 0 and "grounding absent: it needs an object detector" in said
    code, told, _ = editloupe("tools", "zoom_in", "--format", "csv")
    assert code == 0 and told.splitlines()[0] == "Argument,Type,Default,What it is"
