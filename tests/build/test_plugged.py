"""A data set's builder of another package is a command, and a broken one says why."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer.main

from editloupe import cli
from tests.conftest import draw_edits
from tests.packages import install

Run = Callable[..., tuple[int, str, str]]

TOY = '''
from editloupe import files
from editloupe.data.samples import load
from editloupe.protocols.base import Options
from editloupe.build.base import Built

class ListOptions(Options):
    least: int = 1
    """Least number of pixels."""

class Lister:
    """Writes the size and the difference of each pair."""

    summary, protocol, Options = "List pairs.", "measures", ListOptions

    def check(self, options, models):
        pass

    def load(self, path, options, *, store, folder):
        return load(path, store=store)

    def write(self, run, options, *, folder):
        lines, small = [], 0
        for sample, known in run.known():
            if sample.source.width * sample.source.height < options.least:
                small += 1
                continue
            lines.append(f"{sample.id} {known.answer('mse', sample).value >= 0}\\n")
        files.write_whole(folder / "list.txt", "".join(lines).encode(), below=folder)
        lost = {("large", "small"): small}
        return Built(read=len(run.samples), written=len(lines), noun="line", passes={"large": "it is large"}, lost=lost)

half = object()

class Blank(Options):
    name: str = "blank"
    """Name of the file."""

class Counter:
    """Counts the files of a folder, and asks nobody."""

    summary, protocol, reads, weights, Options = "Count files.", None, "A folder.", ("device",), Blank

    def build(self, path, options, *, models, folder, stopped, tell):
        tell("counting")
        if (path / "stop").exists():
            return None
        count = len(list(path.iterdir()))
        files.write_whole(folder / options.name, str((count, models.device)).encode(), below=folder)
        return Built(read=count, written=count, noun="file", unit="file", passes={"seen": "it is seen"})

class Bare:
    protocol = None

class Unread(Lister):
    review = "measures"
'''


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    install(
        tmp_path / "site",
        monkeypatch,
        files={"toyset/__init__.py": TOY},
        entry_points={
            "builders": {
                "lister": "toyset:Lister",
                "half": "toyset:half",
                "counter": "toyset:Counter",
                "bare": "toyset:Bare",
                "unread": "toyset:Unread",
                "gone": "toyset:gone",
            }
        },
    )
    # The program reads its commands once.
    monkeypatch.setattr(typer.main, "get_command", functools.cache(typer.main.get_command.__wrapped__))  # type: ignore[attr-defined]
    cli._imported.cache_clear()
    yield
    cli._imported.cache_clear()


def test_a_builder_of_another_package_is_a_command(editloupe: Run, tmp_path: Path) -> None:
    draw_edits(tmp_path / "edits", 2)
    code, said, _ = editloupe("list", "recipes", "lister")
    assert code == 0 and "List pairs." in said and "least" in said and "Least number of pixels." in said
    words = ("build", "lister", "edits", "--set", "measures=mse")
    code, said, told = editloupe(*words, "--out", "set", "--format", "json")
    assert code == 0, told
    funnel = json.loads(said)
    assert (funnel["read"], funnel["written"], funnel["dropped"]) == (2, 2, 0)
    assert Path("set/list.txt").read_text() == "s00 True\ns01 True\n"
    assert json.loads(Path("set/funnel.json").read_text()) == {k: v for k, v in funnel.items() if k != "folder"}
    code, said, _ = editloupe(*words, "--out", "none", "--set", "least=999999")
    assert code == 1 and "0 lines of 2 images; 2 dropped" in said


def test_a_builder_that_asks_nobody_has_no_options_of_a_judge_and_makes_no_run(editloupe: Run, tmp_path: Path) -> None:
    (tmp_path / "things").mkdir()
    code, said, _ = editloupe("list", "recipes", "counter")
    assert code == 0 and "Count files." in said and "Name of the file." in said
    code, _, told = editloupe("build", "counter", "things", "--out", "none", "--backend", "toy/a")
    assert code == 2 and "counter asks no model" in told
    code, said, told = editloupe("build", "counter", "things", "--out", "none", "--format", "json")
    assert (code, json.loads(said)["written"]) == (1, 0), told
    (tmp_path / "things" / "one").write_text("")
    words = ("build", "counter", "things", "--device", "cpu")
    code, said, _ = editloupe(*words, "--out", "set")
    assert code == 0 and "1 file of 1 file; 0 dropped" in said
    assert Path("set/blank").read_text() == "(1, 'cpu')"
    assert sorted(path.name for path in Path("set").iterdir()) == ["blank", "build.json", "funnel.json"]
    code, _, told = editloupe(*words, "--out", "set", "--set", "name=other")
    assert code == 2 and "was built with name blank, and this command has other" in " ".join(told.split())
    # Stopped: no funnel, and the code of an interruption.
    (tmp_path / "things" / "stop").write_text("")
    assert editloupe(*words, "--out", "stopped")[0] == 130 and not Path("stopped/funnel.json").exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bare", "builder 'bare' (toyset 1.0) lacks summary, reads, weights, Options, build"),
        ("half", "builder 'half' (toyset 1.0) lacks summary, protocol"),
        ("unread", "builder 'unread' (toyset 1.0) lacks reviewed"),
        ("gone", "builder 'gone' (toyset 1.0, toyset:gone)"),
    ],
)
def test_a_broken_builder_says_why_and_stops_no_other(editloupe: Run, tmp_path: Path, name: str, said: str) -> None:
    code, _, told = editloupe("build", name)
    assert code == 2 and said in " ".join(told.split())
    code, listed, _ = editloupe("list", "recipes")
    assert code == 0 and all(word in listed for word in ("edival", "lister", name))
