"""The example of docs/protocols.md is complete: installed as a package, it goes through the commands of the page."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest

from editloupe import Run, plugins
from tests.conftest import Cli, Edits, final, scripted

PAGE = Path(__file__).parents[2] / "docs" / "protocols.md"


def block(info: str, number: int = 0) -> str:
    """The text of a block of the page, by its language."""
    found = re.findall(rf"^```{info}[^\n]*\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return found[number]


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The page's package on the path, with its metadata."""
    project = tomllib.loads(block("toml"))["project"]
    site = tmp_path / "site"
    info = site / "my_bench-0.1.dist-info"
    info.mkdir(parents=True)
    (site / "my_bench.py").write_text(block("python"), encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    groups = project["entry-points"].items()
    points = [f"[{group}]\n" + "".join(f"{k} = {v}\n" for k, v in given.items()) for group, given in groups]
    (info / "entry_points.txt").write_text("\n".join(points))
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "my_bench", raising=False)
    plugins.forget()
    return site


def test_the_example_goes_through_the_commands_of_the_page(
    installed: Path, tmp_path: Path, edits: Edits, editloupe: Cli
) -> None:
    commands = [line.split() for line in block("sh").splitlines() if line.startswith("editloupe ")]
    # Every question is answered with its first line: 8 is above 5, and then "8" is no yes and no no.
    uri = scripted(tmp_path / "replies.jsonl", *[final("8")] * 3)
    given = {"edits": str(edits(2)), "openai/gpt-4.1": uri, "runs/mine": str(tmp_path / "run")}
    for words in commands:
        code, said, err = editloupe(*[given.get(word, word) for word in words[1:]])
        assert code == (3 if words[1] == "judge" else 0), (words, said, err)
    assert "my-bench 0.1" in editloupe("list", "protocols")[1]
    rows = Run(tmp_path / "run").frame().to_dicts()
    assert {(r["sample"], r["metric"]): (r["value"], r["missing"]) for r in rows} == {
        ("s00", "quality"): (8.0, None),
        ("s00", "flawless"): (None, "unparsed"),
        ("s01", "quality"): (8.0, None),
        ("s01", "flawless"): (None, "unparsed"),
    }


def test_the_example_keeps_the_contract(installed: Path) -> None:
    exec(compile(block("python", 1), str(PAGE), "exec"), {})


def test_the_page_takes_at_most_two_screens_beside_its_code() -> None:
    text = re.sub(r"^```.*?^```", "", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    assert len([line for line in text.splitlines() if line.strip()]) <= 60
