"""Image editors: a command, the one that draws, and one of another package."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from editloupe import models
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, EditError, ModelAbsent
from editloupe.models.edit import command
from editloupe.testing.contracts import drawn_pair
from tests.packages import install

IMAGE: RGB = drawn_pair()["Original Image"]
SCRIPT = """
import sys, time
from PIL import Image
source, made, words, seed = sys.argv[1:5]
if words == "fail":
    print("out of", "memory", file=sys.stderr)
    sys.exit(3)
if words == "sleep":
    time.sleep(30)
if words == "text":
    open(made, "w").write("sorry")
elif words != "nothing":
    image = Image.open(source)
    image.paste((0, 0, 0), (0, 0, 10 + int(seed), 10))
    image.save(made)
    open(made + ".words", "w").write(words)
    Image.open(made).verify()
"""


@pytest.fixture
def script(tmp_path: Path) -> str:
    """The command line of a program that paints a corner black."""
    (tmp_path / "an edit.py").write_text(SCRIPT)
    return f"{sys.executable} '{tmp_path / 'an edit.py'}' {{input}} {{output}} {{instruction}} {{seed}}"


def failure(name: str, instruction: str) -> tuple[str, str]:
    with pytest.raises(EditError) as raised:
        models.get("edit", name)(IMAGE, instruction)
    return raised.value.kind, str(raised.value)


def test_a_command_reads_and_writes_a_file_and_no_shell_reads_its_words(script: str, tmp_path: Path) -> None:
    editor = models.get("edit", f"cmd:{script}")
    assert editor is models.get("edit", f"cmd:{script}")
    # A shell would make a file of the last words.
    made = editor(IMAGE, f"make it; touch {tmp_path}/made $(touch {tmp_path}/made)", seed=2)
    assert not (tmp_path / "made").exists()
    assert (made[:10, :12] == 0).all() and np.array_equal(made[10:], IMAGE[10:])
    assert editor.version.startswith(f"command {Path(sys.executable).name} sha256:") and str(tmp_path) not in editor.version


def test_an_instruction_is_no_option_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "edit.py").write_text(
        "import argparse, shutil\np = argparse.ArgumentParser()\np.add_argument('--out')\np.add_argument('f', nargs=3)\n"
        "a = p.parse_args()\nshutil.copy(a.f[0], a.f[1])\n"
    )
    editor = models.get("edit", f"cmd:{sys.executable} '{tmp_path / 'edit.py'}' {{input}} {{output}} {{instruction}}")
    assert np.array_equal(editor(IMAGE, "--out=/etc/passwd is painted"), IMAGE)


def test_a_shell_is_not_given_the_instruction_as_its_script(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the shell would run what a model writes"):
        models.get("edit", "cmd:sh -c 'cp {input} {output} # {instruction}'")
    editor = models.get("edit", 'cmd:sh -c \'cp "$1" "$2"\' sh {input} {output} {instruction}')
    assert np.array_equal(editor(IMAGE, f"$(touch {tmp_path}/made)"), IMAGE) and not (tmp_path / "made").exists()


def test_a_command_that_gives_no_image_says_how(script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, kind, said in (
        ("fail", "failed", "ended with code 3; it said: out of memory"),
        ("sleep", "timed_out", "took longer than 0.3 s"),
        ("nothing", "no_image", "ended well and wrote no image"),
        ("text", "no_image", "not an image that can be read"),
    ):
        monkeypatch.setattr(command, "TIMEOUT_S", 0.3 if words == "sleep" else 30.0)
        found, message = failure(f"cmd:{script}", words)
        assert found == kind and said in message


def test_a_name_that_cannot_be_used_says_what_is_expected() -> None:
    for name, said in (
        ("cmd:", "expected cmd:PROGRAM WORDS"),
        ("cmd:python edit.py {input} {output}", "with {input}, {output} and {instruction}"),
        ("cmd:python 'edit.py {input} {output} {instruction}", "No closing quotation"),
        ("cmd:no-such-program {input} {output} {instruction}", "there is no program 'no-such-program'"),
        ("paint:x", "unknown editor 'paint'; .*known here: cmd, drawing"),
    ):
        with pytest.raises(ConfigError, match=said):
            models.get("edit", name)
    with pytest.raises(ModelAbsent, match="name one with --set editor=…"):
        models.get("edit")


def test_the_drawing_editor_edits_the_thing_in_the_middle_and_nothing_else() -> None:
    rgb: RGB = np.full((120, 120, 3), 200, np.uint8)
    rgb[50:70, 50:70] = (30, 60, 200)
    outside = np.ones((120, 120), bool)
    outside[38:82, 38:82] = False
    recolored = models.get("edit", "drawing")(rgb, "Change the color of the square from blue to red.")
    removed = models.get("edit", "drawing")(rgb, "Remove the blue square.")
    assert np.array_equal(recolored[outside], rgb[outside]) and np.array_equal(removed[outside], rgb[outside])
    assert (recolored[50:70, 50:70] == (200, 30, 30)).all()
    assert (np.ptp(removed[52:68, 52:68], axis=-1) < 5).all()


PACKAGE = """
import numpy as np
class Painter:
    def __init__(self, name):
        self.name = self.version = name
    def __call__(self, rgb, instruction, *, seed=0):
        return np.full_like(rgb, 7)
def open_painter(name, device):
    return Painter(f"{name} on {device}")
"""


def test_an_editor_of_another_package_is_named_by_its_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    points = {"editors": {"toy-painter": "toyset:open_painter"}}
    install(tmp_path / "site", monkeypatch, files={"toyset/__init__.py": PACKAGE}, entry_points=points)
    editor = models.get("edit", "toy-painter:large", device="cpu")
    assert editor.name == "toy-painter:large on cpu"
    assert (editor(IMAGE, "Remove the square.") == 7).all()
