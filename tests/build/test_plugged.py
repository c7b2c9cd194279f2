"""A data set's builder of another package is a command, and a broken one says why."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.build.conftest import lines, pictures, unwritten
from tests.conftest import Cli, refused
from tests.packages import install

TOY = '''
from editloupe import files
from editloupe.build.base import LeftOut
from editloupe.build.direct import DirectRecipe, WorkItem
from editloupe.build.engine import RowStep, SetRecipe
from editloupe.protocols.base import Options

class ListOptions(Options):
    least: int = 1
    """Least number of boxes."""

class Lister(SetRecipe):
    """Lists images in which a detector sees squares."""

    name, summary, first, file, folders = "lister", "List images.", "read", "list.jsonl", ("pictures",)
    Options = ListOptions

    def steps(self):
        return (RowStep("seen", "squares are seen", self._seen),)

    def rows(self, image):
        return [image.becomes(1, None)]

    def _seen(self, row):
        args = {"phrase": "red square", "box_threshold": 0.3, "text_threshold": 0.3}
        seen = row.measure("boxes", "detections", args).answer.data["detections"]
        if len(seen) < self.options.least:
            raise LeftOut("few", f"{len(seen)} boxes")

    def columns(self, row, place, number):
        return {"number": number}

    def lines(self, row, place, number):
        yield {"image": place.as_is(row.sample.source, "pictures", f"p{number}")}

half = object()

class Listless(SetRecipe):
    """Says no step, no row and no line."""

    name, summary, first, file, folders = "listless", "Nothing.", "read", "list.jsonl", ()

class Countless(DirectRecipe):
    """Says nothing that is to be counted."""

    summary, reads = "Nothing.", "A folder."

class Blank(Options):
    name: str = "blank"
    """Name of the file."""

class Counter(DirectRecipe):
    """Counts the files of a folder, and asks nobody."""

    summary, reads, weights, Options = "Count [all] files.", "A folder.", ("device",), Blank
    noun = unit = "file"
    passes = {"seen": "it is seen"}

    def items(self, stopped, tell):
        tell("counting")
        if (self.path / "stop").exists():
            return None
        return [WorkItem(about={"file": file.name}, make=dict) for file in self.path.iterdir()]

    def write(self, worked):
        text = str((len(worked.written), self.models.device))
        files.write_whole(self.folder / self.options.name, text.encode(), below=self.folder)
        return {}
'''


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(
        tmp_path / "site",
        monkeypatch,
        files={"toyset/__init__.py": TOY},
        entry_points={
            "builders": {
                "lister": "toyset:Lister",
                "half": "toyset:half",
                "counter": "toyset:Counter",
                "gone": "toyset:gone",
                "listless": "toyset:Listless",
                "countless": "toyset:Countless",
            },
            "protocols": {"lister": "toyset:Lister", "listless": "toyset:Listless"},
        },
    )


def test_a_recipe_of_another_package_is_a_command(editloupe: Cli, tmp_path: Path) -> None:
    pictures(tmp_path / "images")
    code, said, _ = editloupe("list", "recipes", "lister")
    assert code == 0 and "List images." in said and "least" in said and "Least number of boxes." in said
    # Its help is its own, with its settings; that of RECIPE is of all.
    code, said, _ = editloupe("build", "lister", "--help")
    assert code == 0 and "List images." in said and "--set least" in said and "Least number of boxes. Default: 1." in said
    assert "--backend" in said and "--review" not in said and "build lister [OPTIONS] [PATH]" in said
    code, said, told = editloupe("build", "lister", "images", "--out", "set", "--format", "json")
    assert code == 0, told
    funnel = json.loads(said)
    assert (funnel["read"], funnel["written"], funnel["dropped"]) == (2, 2, 0)
    assert lines("set/list.jsonl") == [{"image": "p0.png"}, {"image": "p1.png"}]
    assert [row["number"] for row in lines("set/imagefolder/metadata.jsonl")] == [0, 1]
    assert json.loads(Path("set/funnel.json").read_text()) == {k: v for k, v in funnel.items() if k != "folder"}
    code, _, told = editloupe("build", "lister", "images", "--out", "other", "--edited", "a=images")
    assert code == 2 and "lister reads PATH alone; leave --edited out" in told and not Path("other").exists()
    code, said, _ = editloupe("build", "lister", "images", "--out", "none", "--set", "least=2")
    assert code == 1 and "0 rows of 2 rows; 2 dropped" in said and "images: read 2, left out (0)" in said


def test_a_builder_that_asks_nobody_has_no_options_of_a_judge_and_makes_no_run(editloupe: Cli, tmp_path: Path) -> None:
    (tmp_path / "things").mkdir()
    code, said, _ = editloupe("list", "recipes", "counter")
    assert code == 0 and "Count [all] files." in said and "Name of the file." in said
    code, said, _ = editloupe("build", "counter", "--help")
    assert code == 0 and "Count [all] files." in said and "A folder." in said and "--set name" in said
    assert "--backend" not in said and "FOLDER/run" not in said
    err = refused(editloupe, "build", "counter", "things", "--out", "none", "--backend", "toy/a")
    assert "counter asks no model" in err
    code, said, told = editloupe("build", "counter", "things", "--out", "none", "--format", "json")
    assert (code, json.loads(said)["written"]) == (1, 0), told
    (tmp_path / "things" / "one").write_text("")
    words = ("build", "counter", "things", "--device", "cpu")
    code, said, _ = editloupe(*words, "--out", "set")
    assert code == 0 and "1 file of 1 file; 0 dropped" in said
    assert Path("set/blank").read_text() == "(1, 'cpu')"
    assert sorted(path.name for path in Path("set").iterdir()) == ["blank", "build.json", "funnel.json", "left_out.jsonl"]
    code, _, told = editloupe(*words, "--out", "set", "--set", "name=other")
    assert code == 2 and "was built with name blank, and this command has other" in " ".join(told.split())
    # Stopped: no funnel, and the code of an interruption.
    (tmp_path / "things" / "stop").write_text("")
    assert editloupe(*words, "--out", "stopped")[0] == 130 and not Path("stopped/funnel.json").exists()


def test_a_recipe_that_leaves_something_out_is_told_what(editloupe: Cli, tmp_path: Path) -> None:
    pictures(tmp_path / "images")
    for name, said in (
        (
            "listless",
            "protocol 'listless' (toyset 1.0) cannot be opened: TypeError: Can't instantiate abstract class Listless",
        ),
        ("countless", "recipe Countless lacks items, write"),
    ):
        assert said in refused(editloupe, "build", name, "images", "--out", "none"), name
        assert unwritten("none")


def test_a_broken_builder_says_why_and_stops_no_other(editloupe: Cli) -> None:
    for name, said in (
        ("half", "builder 'half' (toyset 1.0) is no recipe: expected a SetRecipe or a DirectRecipe"),
        ("gone", "builder 'gone' (toyset 1.0, toyset:gone)"),
    ):
        assert said in refused(editloupe, "build", name)
        code, listed, _ = editloupe("list", "recipes")
        assert code == 0 and all(word in listed for word in ("edival", "lister", name))
