"""What is remembered of a visit that left nothing to ask: the next one tells the same, and whatever changed is seen."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from editloupe import plugins
from editloupe.runs import ended, execute
from tests.conftest import draw_edits, final
from tests.exports.every_run import every_run
from tests.toys.install import install

Program = Callable[..., tuple[int, str, str]]
Script = Callable[..., str]


@pytest.fixture(autouse=True)
def few_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some samples are worth it, and the program's files were written long ago."""
    monkeypatch.setattr(ended, "MANY", 1)
    monkeypatch.setattr(ended, "_SETTLED", -(10**18))


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """Writes a script, and returns its backend."""

    def written(*lines: str) -> str:
        (tmp_path / "script.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        return "scripted/script.jsonl"

    return written


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The toy package, installed for this test alone."""
    found = install(tmp_path / "site")
    monkeypatch.syspath_prepend(found)
    for name in [name for name in sys.modules if name.startswith("editloupe_toys")]:
        monkeypatch.delitem(sys.modules, name)
    plugins.forget()
    yield found
    for name in [name for name in sys.modules if name.startswith("editloupe_toys")]:
        del sys.modules[name]
    plugins.forget()


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The protocols of the judges whose questions are planned from now on."""
    found: list[str] = []

    class Noted(execute.Schedule):
        def __init__(self, protocol: Any, *more: Any) -> None:
            found.append(protocol.name)
            super().__init__(protocol, *more)

    monkeypatch.setattr(execute, "Schedule", Noted)
    return found


def told(said: tuple[int, str, str]) -> tuple[int, str, str]:
    """What a command said, without the times."""
    code, *texts = said
    names = "elapsed_s|left_s|rate|seconds"
    out, err = (re.sub(rf'("({names})": )[\d.]+|\d+(\.\d+)? s\b|[\d:]+ elapsed|[\d.]+ a second', r"\1", t) for t in texts)
    return code, out, err


def files(run: Path) -> dict[str, bytes]:
    """The run's files, but for what is remembered and who wrote."""
    left = {ended.FILE, "run.owner", "index.json"}
    return {str(p.relative_to(run)): p.read_bytes() for p in run.rglob("*") if p.is_file() and p.name not in left}


def same_twice(editloupe: Program, planned: list[str], run: Path, *words: str | Path) -> tuple[int, str, str]:
    """Say it by what is remembered, and again by planning: both times the same, and the same files."""
    planned.clear()
    short = told(editloupe(*words))
    assert planned == []
    kept = files(run)
    (run / ended.FILE).unlink()
    assert told(editloupe(*words)) == short and planned
    assert files(run) == kept
    return short


@pytest.mark.parametrize(
    ("more", "code", "form"),
    [
        ((), 0, ()),
        ((), 0, ("--json",)),
        (("--limit", "2"), 0, ()),
        (("--repeats", "3", "--temperature", "0.5"), 0, ("--json",)),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (("--limit", "2"), 0, ("--json",)),
                (("--sample", "s01"), 0, ()),
                (("--sample", "s01"), 0, ("--json",)),
                (("--repeats", "3", "--temperature", "0.5"), 0, ()),
                (("--backend", "strict=baseline", "--fail-on-error", "0"), 0, ()),
                (("--backend", "strict=baseline", "--fail-on-error", "0"), 0, ("--json",)),
                (("--criteria", "vc"), 0, ()),
                (("--criteria", "vc"), 0, ("--json",)),
            )
        ),
    ],
)
def test_a_finished_run_says_the_same_without_planning(
    more: tuple[str, ...], code: int, form: tuple[str, ...], editloupe: Program, planned: list[str], tmp_path: Path
):
    words = ("judge", draw_edits(tmp_path / "edits", 3), "--mode", "plain", *more, "--out", "run", *form)
    first = editloupe(*words)
    assert planned and first[0] == code
    said = same_twice(editloupe, planned, tmp_path / "run", *words)
    assert said[0] == code and ("Means of all samples" in said[1] or '"event": "done"' in said[1])


@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_failures_of_a_model_and_rejected_rows_are_told_again(
    form: tuple[str, ...], editloupe: Program, planned: list[str], script: Script, tmp_path: Path
):
    data = draw_edits(tmp_path / "edits", 3)
    (data / "edited" / "s01.png").write_bytes(b"")
    words = ("judge", data, "--backend", script(*[final("Superb")] * 9), "--criteria", "if", "--out", "run", *form)
    assert editloupe(*words)[0] == 1
    code, out, _ = same_twice(editloupe, planned, tmp_path / "run", *words)
    assert code == 1 and ("unparsed" in out or '"judged": 0' in out)
    more = ("--fail-on-error", "0.2")
    words = ("judge", data, "--mode", "plain", "--out", "other", *more, *form)
    assert editloupe(*words)[0] == 3
    code, out, _ = same_twice(editloupe, planned, tmp_path / "other", *words)
    assert code == 3 and ("Exit code 3: 2 of 6 findings" in out or '"failed": 2' in out)


@pytest.mark.parametrize("form", [(), pytest.param(("--json",), marks=pytest.mark.slow)], ids=["text", "json"])
def test_several_judges_are_remembered_each(
    form: tuple[str, ...], editloupe: Program, planned: list[str], script: Script, tmp_path: Path
):
    data = draw_edits(tmp_path / "edits", 2)
    judges = ("--backend", "a=baseline", "--backend", f"b={script(*[final('Wrong Action')] * 4)}")
    words = ("judge", data, "--mode", "plain", "--criteria", "if", *judges, "--out", "run", *form)
    assert editloupe(*words)[0] == 0
    # The second one's findings came after the first one's end.
    planned.clear()
    assert editloupe(*words)[0] == 0 and planned == ["dlebench"]
    same_twice(editloupe, planned, tmp_path / "run", *words)


def test_what_the_world_caused_is_asked_again(editloupe: Program, planned: list[str], script: Script, tmp_path: Path):
    data = draw_edits(tmp_path / "edits", 2)
    # The script ends before it has answered.
    uri = script("Let me see.")
    words = ("judge", data, "--mode", "plain", "--criteria", "if", "--backend", uri, "--out", "run")
    editloupe(*words)
    statuses = [json.loads(line)["status"] for line in (tmp_path / "run" / "findings.jsonl").read_text().splitlines()]
    assert statuses == ["backend_failed", "backend_failed"]
    assert not (tmp_path / "run" / ended.FILE).exists()


def test_a_visit_that_was_stopped_is_not_remembered(editloupe: Program, planned: list[str], tmp_path: Path):
    words = ("judge", draw_edits(tmp_path / "edits", 2), "--mode", "plain", "--out", "run")
    assert editloupe(*words, "--run-seconds", "0.000001")[0] == 5
    assert not (tmp_path / "run" / ended.FILE).exists()
    editloupe(*words)
    same_twice(editloupe, planned, tmp_path / "run", *words)


Change = Callable[[Path, Path, Path], object]


def append(path: Path, text: str) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


def cut(path: Path) -> None:
    """Take the last line away, in which a trace says what it ends in."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


CHANGES: dict[str, tuple[Change, tuple[str, ...]]] = {
    "a line of findings that is none": (lambda run, data, site: append(run / "findings.jsonl", '{"no": 1}\n'), ()),
    "an old finding again": (
        lambda run, data, site: append(
            run / "findings.jsonl", (run / "findings.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)[0]
        ),
        (),
    ),
    "a finding edited": (lambda run, data, site: edit(run / "findings.jsonl", '"value": 3', '"value": 4'), ()),
    "a trace cut off": (lambda run, data, site: cut(next(run.glob("traces/*/*/*"))), ()),
    "a row of another type": (lambda run, data, site: edit(data / "metadata.jsonl", "Change Color", "Resize"), ()),
    "an instruction changed": (lambda run, data, site: edit(data / "metadata.jsonl", "square 0", "square 9"), ()),
    "an image changed": (lambda run, data, site: shutil.copy(data / "source/s01.png", data / "edited/s00.png"), ()),
    "a sample gone": (lambda run, data, site: edit(data / "metadata.jsonl", '"id": "s01"', '"id": "s07"'), ()),
    "the protocol edited": (lambda run, data, site: append(site / "editloupe_toys" / "stars.py", "\n"), ()),
    "the protocol touched": (lambda run, data, site: os.utime(site / "editloupe_toys" / "stars.py", (1, 1)), ()),
    "another package": (lambda run, data, site: (site / "new-1.0.dist-info").mkdir(), ()),
    "another limit": (lambda run, data, site: None, ("--limit", "1")),
    "other repeats": (lambda run, data, site: None, ("--repeats", "2")),
    "the run copied": (lambda run, data, site: shutil.copytree(run.rename(run.with_name("old")), run), ()),
}  # fmt: skip
DAILY = (
    "a finding edited",
    "a trace cut off",
    "an image changed",
    "a sample gone",
    "the protocol touched",
    "another package",
    "another limit",
)
"""One or two of each part: the run, the data, the program, the command. The others are `slow`."""


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in DAILY else pytest.mark.slow) for n in CHANGES])
def test_whatever_changed_is_seen(
    name: str, editloupe: Program, planned: list[str], script: Script, site: Path, tmp_path: Path
):
    data, run = draw_edits(tmp_path / "edits", 2), tmp_path / "run"
    uri = script(*[final("3")] * 8)
    words = ("judge", data, "--protocol", "stars", "--backend", uri, "--out", "run")
    assert editloupe(*words)[0] == 0
    planned.clear()
    assert editloupe(*words)[0] == 0 and planned == []
    change, more = CHANGES[name]
    change(run, data, site)
    twin = tmp_path / "twin"
    shutil.copytree(run, twin / "run")
    shutil.copy("script.jsonl", twin)
    (twin / "run" / ended.FILE).unlink()
    said = told(editloupe(*words, *more))
    # A run that is refused plans nothing either.
    assert planned or said[0] == 2
    os.chdir(twin)
    assert told(editloupe(*words, *more)) == said


@pytest.mark.slow
def test_every_protocol_says_the_same(editloupe: Program, planned: list[str], tmp_path: Path):
    commands = []

    def noted(*words: str | Path) -> tuple[int, str, str]:
        commands.append(words)
        return editloupe(*words)

    every_run(noted, tmp_path)
    remembered = set()
    for words in (words for words in commands if words[0] == "judge"):
        run = Path(words[words.index("--out") + 1])
        editloupe(*words)
        planned.clear()
        short = told(editloupe(*words))
        kept = {} if planned else files(run)
        remembered |= {run.name} if kept else set()
        (run / ended.FILE).unlink(missing_ok=True)
        assert told(editloupe(*words)) == short
        # What is asked again is written again.
        assert not kept or files(run) == kept
    assert remembered >= {"plain", "dice", "unicbench", "pairwise"} and "measures" not in remembered
