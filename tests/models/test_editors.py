"""Image editors: a command, an address, the one that draws, and one of another package."""

from __future__ import annotations

import base64
import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe import models
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, EditError, ModelAbsent
from editloupe.models import remote
from editloupe.models.edit import endpoint
from editloupe.testing.contracts import drawn_pair
from tests.backends import loopback
from tests.backends.loopback import Act, LoopbackServer, hangs, resets_mid_body, sends
from tests.packages import install

IMAGE: RGB = drawn_pair()["Original Image"]
ASKED = "Change the color of the blue square to red."

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


def test_a_command_that_gives_no_image_says_how(script: str) -> None:
    for words, kind, said in (
        ("fail", "failed", "ended with code 3; it said: out of memory"),
        ("sleep", "timed_out", "took longer than 0.5 s"),
        ("nothing", "no_image", "ended well and wrote no image"),
        ("text", "no_image", "not an image that can be read"),
    ):
        found, message = failure(f"cmd?timeout_s=0.5:{script}" if words == "sleep" else f"cmd:{script}", words)
        assert found == kind and said in message


def test_a_name_that_cannot_be_used_says_what_is_expected() -> None:
    for name, said in (
        ("cmd:", "expected cmd:PROGRAM WORDS"),
        ("cmd:python edit.py {input} {output}", "with {input}, {output} and {instruction}"),
        ("cmd?speed=1:python {input} {output} {instruction}", "expected cmd:PROGRAM"),
        ("cmd?timeout_s=0:python {input} {output} {instruction}", "expected cmd:PROGRAM"),
        ("cmd:python 'edit.py {input} {output} {instruction}", "No closing quotation"),
        ("cmd:no-such-program {input} {output} {instruction}", "there is no program 'no-such-program'"),
        ("drawing:red", "expected drawing alone"),
        ("http://127.0.0.1:1/edit?speed=1", "expected an address such as"),
        ("paint:x", "unknown editor 'paint'; .*known here: cmd, drawing, http, https"),
        ("/usr/bin/edit", "expected a name with what it needs"),
    ):
        with pytest.raises(ConfigError, match=said):
            models.get("edit", name)
    with pytest.raises(ModelAbsent, match="name one with --set editor=…"):
        models.get("edit")


class Handler(loopback.LoopbackHandler):
    def do_POST(self) -> None:  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        picture = Image.open(io.BytesIO(base64.b64decode(body["image"], validate=True)))
        if set(body) != {"image", "instruction", "seed"} or picture.format != "PNG" or picture.size != (320, 240):
            self.house.complaints.append(str(sorted(body)))
        self.house.take(body, {})(self, body)


class Server(LoopbackServer):
    handler = Handler


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(remote, "PAUSES_S", (0.0, 0.0))
    yield
    endpoint._shared.cache_clear()


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.fromarray(IMAGE).resize((160, 120)).save(file, "JPEG")
    return file.getvalue()


def says(**said: Any) -> Act:
    return sends(json.dumps(said).encode())


@pytest.mark.parametrize(
    "act", [sends(jpeg(), content_type="image/jpeg"), says(image=base64.b64encode(jpeg()).decode())], ids=["bytes", "json"]
)
def test_an_address_is_sent_the_image_and_answers_with_one(act: Act) -> None:
    with Server(act) as server:
        editor = models.get("edit", f"{server.address}/edit?timeout_s=5")
        assert editor(IMAGE, ASKED, seed=3).shape == (120, 160, 3)
        assert not server.complaints
        assert (server.seen[0]["instruction"], server.seen[0]["seed"]) == (ASKED, 3)
        assert editor.version == f"address {server.address}/edit"


@pytest.mark.parametrize(
    ("act", "kind", "said", "asked"),
    [
        (sends(b'{"error": "no GPU"}', status=500), "failed", "HTTP 500: 'no GPU'", 1),
        (sends(b"{}", status=503), "failed", "is not ready", 3),
        (resets_mid_body, "failed", "the connection failed", 3),
        (hangs, "timed_out", "no answer within 0.3 s", 1),
        (says(image=None, error="declined"), "no_image", "sent no image (application/json): 'declined'", 1),
        (says(image="?"), "no_image", "no base64", 1),
        (sends(b"hello", content_type="image/png"), "no_image", "sent no image: its reply: not an image", 1),
    ],
)
def test_an_address_that_gives_no_image_says_how(act: Act, kind: str, said: str, asked: int) -> None:
    with Server(act) as server:
        found, message = failure(f"{server.address}?timeout_s={0.3 if act is hangs else 20}", ASKED)
        assert found == kind and said in message
        assert len(server.seen) == asked


@pytest.mark.parametrize(
    ("instruction", "inside"),
    [
        ("Change the color of the square from blue to red.", lambda rgb: (rgb[..., 0] > 150) & (rgb[..., 2] < 80)),
        ("Remove the blue square.", lambda rgb: rgb.max(axis=-1) - rgb.min(axis=-1) < 20),
        ("Make the square wooden.", lambda rgb: (rgb == (230, 130, 20)).all(axis=-1) | (rgb == (30, 60, 200)).all(axis=-1)),
    ],
)
def test_the_drawing_editor_edits_the_thing_in_the_middle_and_nothing_else(instruction: str, inside: Any) -> None:
    crop = IMAGE[60:180, 100:230]  # the square fills 40…80 × 40…90 of it
    made = models.get("edit", "drawing")(crop, instruction)
    assert inside(made[44:76, 44:86]).mean() > 0.95
    outside = np.ones(crop.shape[:2], bool)
    outside[36:84, 36:94] = False
    assert np.array_equal(made[outside], crop[outside])


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
    assert (editor(IMAGE, "Anything.") == 7).all()
