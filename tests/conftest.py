"""What several tests need: drawn images, a folder of edits, a judge's workplace."""

from __future__ import annotations

import functools
import io
import json
import os
import shutil
import signal
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import typer.main
import typer.rich_utils
from PIL import Image

from editloupe import cli
from editloupe.data.images import ImageStore
from editloupe.traces import GALLERY
from editloupe.values import Sample, Turn
from tests.toys.install import installed

if TYPE_CHECKING:
    from playwright.sync_api import Browser

Cli = Callable[..., tuple[int, str, str]]
"""What the fixture `editloupe` is: words of the command line → (exit code, standard output, standard error)."""
Edits = Callable[..., Path]
"""What the fixture `edits` is: a count of edits and options of `draw_edits` → the folder."""

# Weights that this machine happens to have change no test: no settings, an empty model cache, no download. Before any
# import of huggingface_hub, which reads them once.
for name in ("DETECTOR", "UPSCALER", "DEVICE", "CLIP", "DINO", "LPIPS", "FACES", "EDITOR"):
    os.environ.pop(f"EDITLOUPE_{name}", None)
# Tables as wide on every machine and without color, in whatever terminal or CI the tests run; Typer has read these.
os.environ["COLUMNS"] = "120"
for name in ("FORCE_COLOR", "PY_COLORS", "GITHUB_ACTIONS"):
    os.environ.pop(name, None)
typer.rich_utils.FORCE_TERMINAL = None
os.environ |= {"HF_HUB_CACHE": "/nonexistent/hub", "HF_HUB_OFFLINE": "1"}

# Each HTTP client reads all certificate authorities, which takes longer than most tests; none of them speaks TLS.
for name in ("load_verify_locations", "load_default_certs", "set_default_verify_paths"):
    setattr(ssl.SSLContext, name, lambda *args, **kwargs: None)

# Typer reads the signatures of all commands with every call of the program; once is enough for all tests of a process.
typer.main.get_command = functools.cache(typer.main.get_command)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it runs in the background deaf to Ctrl-C, and children inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)

LOOK = '<tool_call>{"name": "localize_differences", "parameters": {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"}}</tool_call>'  # noqa: E501
"""The call with which the paper's judge begins (Tables 8 and 12)."""


def final(label: str, thought: str = "I have seen enough.") -> str:
    """A reply that ends the loop."""
    return f"<Start Thinking>{thought}</Start Thinking>\n<Start Final Answer>{label}</Start Final Answer>"


def scripted(path: str | Path, *replies: object) -> str:
    """Write what a backend is to say, one reply after the other, and return the backend's URI."""
    Path(path).write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    return f"scripted/{path}"


def pixels(seed: int, *, spots: int) -> tuple[np.ndarray, np.ndarray]:
    """A noisy gray scene of 240×320 px, and the same with `spots` colored squares of 24 px."""
    rng = np.random.default_rng(seed)
    before = rng.integers(100, 140, (240, 320, 3), dtype=np.uint8)
    after = before.copy()
    for i in range(spots):
        y, x = 20 + 90 * (i // 3), 20 + 100 * (i % 3)
        after[y : y + 24, x : x + 24] = ((255, 0, 0), (0, 200, 0), (0, 0, 255))[i % 3]
    return before, after


def png(rgb: np.ndarray) -> bytes:
    """Encode a picture fast; noise does not get smaller anyway."""
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "PNG", compress_level=1)
    return file.getvalue()


@functools.cache
def pngs(seed: int, *, spots: int) -> tuple[bytes, bytes]:
    """The files of `pixels`."""
    before, after = pixels(seed, spots=spots)
    return png(before), png(after)


@pytest.fixture
def editloupe(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Runs the program as a user does, in a folder of its own: (exit code, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    # The last two are read by tests alone, and the program would warn of them.
    of_tests = ("EDITLOUPE_VLLM", "EDITLOUPE_DOCKER")
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", *of_tests):
        monkeypatch.delenv(name, raising=False)

    # A start of processes pays in large folders; a small one takes as long only on a busy machine.
    monkeypatch.setattr("editloupe.runs.pool._AFTER_S", 60.0)

    def run(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["editloupe", *map(str, words)])
        cli.output.out.cache_clear()
        cli.output.err.cache_clear()
        with pytest.raises(SystemExit) as caught:
            cli.main()
        captured = capsys.readouterr()
        return int(caught.value.code or 0), captured.out, captured.err

    return run


def words_of(text: str) -> str:
    """A text on one line, as it is in a terminal of any width."""
    return " ".join(text.replace("│", " ").split())


def refused(editloupe: Cli, *words: str | Path) -> str:
    """Give a command that ends with 2 and prints nothing. Return its message on one line."""
    code, said, told = editloupe(*words)
    assert (code, said) == (2, ""), (words, code, said, told)
    return words_of(told)


def bare_plot(plot: Any, **given: Any) -> str:
    """Draw nothing."""
    return "<svg xmlns='http://www.w3.org/2000/svg'/>"


@pytest.fixture
def bare_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files and pages have empty plots: drawing them takes most of the time of a report."""
    for module in ("editloupe.figures.plots", "editloupe.viewer.numbers"):
        monkeypatch.setattr(f"{module}.draw", bare_plot)


@pytest.fixture
def store() -> ImageStore:
    """An image store in memory."""
    return ImageStore()


@pytest.fixture
def sample(store: ImageStore) -> Sample:
    """One edit with three changed places."""
    before, after = pixels(0, spots=3)
    return Sample(
        id="dustpan",
        source=store.add_array(before),
        turns=(Turn(instruction="Change attribute of blue dustpan to red.", edited=store.add_array(after)),),
        edit_type="Change Color",
    )


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true, 30 s at the most."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


ANSWERED = "Add red square {}."
"""An instruction that the pixel baseline answers."""


def draw_edits(
    folder: Path,
    count: int,
    *,
    types: tuple[str, ...] = ("Change Color", "Removal Object"),
    instruction: str = "Make square {} red.",
) -> Path:
    """Write an ImageFolder of `count` edits with ids s00, s01, ..."""
    (folder / "source").mkdir(parents=True)
    (folder / "edited").mkdir()
    rows = []
    for i in range(count):
        before, after = pngs(i, spots=i % 4)
        (folder / "source" / f"s{i:02}.png").write_bytes(before)
        (folder / "edited" / f"s{i:02}.png").write_bytes(after)
        rows.append(
            {
                "id": f"s{i:02}",
                "source_file_name": f"source/s{i:02}.png",
                "edited_file_name": f"edited/s{i:02}.png",
                "instruction": instruction.format(i),
                "edit_type": types[i % len(types)],
            }
        )
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


@pytest.fixture
def edits(tmp_path: Path) -> Edits:
    """Makes an ImageFolder in the test's folder; see `draw_edits`."""

    def make(count: int, *, name: str = "edits", **options: Any) -> Path:
        return draw_edits(tmp_path / name, count, **options)

    return make


@pytest.fixture
def gallery(tmp_path: Path) -> Path:
    """A copy of the gallery that may be written to."""
    return Path(shutil.copytree(GALLERY, tmp_path / "gallery"))


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The toy package, installed."""
    with installed(tmp_path_factory.mktemp("site")):
        yield


_CHROMIUM = [
    "--no-sandbox",  # the tests may run as root, where Chromium's sandbox does not start
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--force-color-profile=srgb",
]
"""How Chromium is started."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    assert path, "no Chromium: set CHROMIUM, or install Debian's package chromium"
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=_CHROMIUM)
        yield found
        found.close()
