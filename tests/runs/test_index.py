"""The index of a run: questions, growth, older schemas, what is not ours."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from editloupe.runs import index
from editloupe.runs.index import RunIndex
from editloupe.runs.store import RunStore
from editloupe.traces import GALLERY


def finding(**more: Any) -> dict[str, Any]:
    about = {"sample_id": "s", "editor": "e", "turn": 0, "part": "", "metric": "m", "judge_id": "j", "repeat": 0}
    return {"task_id": "t", "status": "ok", "trace": None, **about, **more}


def write(folder: Path, *findings: dict[str, Any], mode: str = "w") -> None:
    with (folder / "findings.jsonl").open(mode, encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in findings)


def test_two_turns_and_two_parts_are_questions_of_their_own_and_the_latest_of_one_counts(tmp_path: Path) -> None:
    places: tuple[dict[str, Any], ...] = ({"turn": 1}, {"turn": 2}, {"part": "a"}, {"part": "b"}, {"metric": "n"})
    write(tmp_path, *(finding(**place) for place in places), finding(turn=2, status="refused"))
    with RunIndex(tmp_path) as opened:
        assert opened.statuses() == {"ok": 4, "refused": 1}
        assert opened.keys() == [("e/s", "s")]


def test_refresh_sees_what_is_appended_and_what_was_changed(tmp_path: Path) -> None:
    write(tmp_path, finding(trace="traces/a"))
    with RunIndex(tmp_path) as opened:
        version = opened.version
        opened.refresh()
        assert opened.version == version
        write(tmp_path, finding(sample_id="late", task_id="u", trace="traces/b"), mode="a")
        opened.refresh()
        assert opened.version > version
        assert (opened.keys_of("u"), opened.traces()) == (["e/late"], {"traces/a", "traces/b"})
        write(tmp_path, finding(sample_id="other"))
        opened.refresh()
        assert opened.keys() == [("e/other", "other")]


@pytest.mark.parametrize("old", [1, 99])
def test_an_index_of_another_schema_is_made_anew(tmp_path: Path, old: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "LARGE", 0)
    run = Path(shutil.copytree(GALLERY, tmp_path / "gallery"))
    base = sqlite3.connect(run / "index.sqlite")
    base.executescript(f"CREATE TABLE lines (file TEXT, place TEXT); PRAGMA user_version = {old};")
    base.close()
    assert RunStore.read_sample(run, "mug-blue").current() == [
        f for f in RunStore.read(run).current() if f.sample_id == "mug-blue"
    ]
    base = sqlite3.connect(run / "index.sqlite")
    assert base.execute("PRAGMA user_version").fetchone() == (2,)
    base.close()


# What came with the run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that is worth an index, with one."""
    monkeypatch.setattr(index, "LARGE", 0)
    run = Path(shutil.copytree(GALLERY, tmp_path / "gallery"))
    RunIndex(run).close()
    return run


def answers(run: Path) -> tuple[object, ...]:
    with RunIndex(run) as opened:
        return opened.statuses(), opened.keys(), opened.samples(), sorted(opened.traces()), opened.lines("mug-blue")


def change(run: Path, *commands: str) -> None:
    with closing(sqlite3.connect(run / "index.sqlite")) as base:
        for command in commands:
            base.execute(command)
        base.commit()


ENDLESS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT"
COLUMNS = (
    "'findings.jsonl' file, i at, i length, 's' id, 's' key, 't' task_id, 'j' judge_id, 0 repeat, 'm' metric, 0 turn, "
)

SPOILT = {
    "places before the file": ["UPDATE lines SET at = -5"],
    "places behind the file": ["UPDATE lines SET at = 1000000000000000"],
    "places that are words": ["UPDATE lines SET at = 'there'"],
    "places inside lines": ["UPDATE lines SET at = at + 3"],
    "places of other samples": ["UPDATE lines SET id = 'mug-blue', key = 'mug-blue' WHERE id <> 'mug-blue'"],
    "one place many times": ["INSERT INTO lines SELECT * FROM lines"],
    "endless lines": [
        "DROP TABLE lines", f"CREATE VIEW lines AS {ENDLESS} {COLUMNS} '' part, 'ok' status, NULL trace FROM n",
    ],
    "endless files": ["DROP TABLE files", f"CREATE VIEW files AS {ENDLESS} 'samples.jsonl' name, i size, '' head FROM n"],
    "a trigger": ["CREATE TRIGGER t AFTER INSERT ON lines BEGIN DELETE FROM lines; END"],
    "a table more": ["CREATE TABLE more (a TEXT)"],
    "sizes that are words": ["UPDATE files SET size = 'large'"],
    "sizes below zero": ["UPDATE files SET size = -1"],
    "sizes beyond 64 bits": ["UPDATE files SET size = 1e300"],
    "heads of other files": ["UPDATE files SET head = 'x'", "DELETE FROM lines"],
    "no files, and lines": ["DELETE FROM files", "UPDATE lines SET status = 'refused'"],
    "empty files, and lines": ["UPDATE files SET size = 0, head = ''", "UPDATE lines SET status = 'refused'"],
}  # fmt: skip


@pytest.mark.parametrize("spoilt", SPOILT)
def test_an_index_that_says_what_cannot_be_is_made_anew(spoilt: str, run: Path) -> None:
    wanted, began = answers(run), time.monotonic()
    change(run, *SPOILT[spoilt])
    with RunIndex(run) as opened:
        assert opened.lines("mug-blue") == wanted[-1]
    if spoilt not in ("places of other samples", "one place many times"):
        assert answers(run) == wanted
    assert time.monotonic() - began < 5


def test_an_index_that_came_with_a_run_is_not_believed(run: Path, tmp_path: Path) -> None:
    wanted = answers(run)
    change(run, "UPDATE lines SET status = 'refused'")
    assert answers(run) != wanted
    assert answers(Path(shutil.copytree(run, tmp_path / "sent"))) == wanted


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_index_is_made_anew_in_time(seed: int, run: Path) -> None:
    draw = random.Random(seed)
    data = bytearray((run / "index.sqlite").read_bytes())
    # Its pages' heads, by which they point at each other.
    for page in range(0, len(data), 4096):
        for place in range(page + (100 if page == 0 else 0), page + 120):
            data[place] = draw.choice([data[place], draw.randrange(256)])
    (run / "index.sqlite").write_bytes(data)
    began = time.monotonic()
    with RunIndex(run) as opened:
        assert set(opened.lines("mug-blue")) <= {"samples.jsonl", "findings.jsonl"}
    assert time.monotonic() - began < 5


def test_an_index_that_is_a_link_stays_as_it_is(run: Path, tmp_path: Path) -> None:
    wanted = answers(run)
    (run / "index.sqlite").rename(tmp_path / "theirs")
    change_ = (tmp_path / "theirs").read_bytes()
    for target in ("theirs", "nothing"):
        (run / "index.sqlite").symlink_to(tmp_path / target)
        assert answers(run) == wanted
        assert ((tmp_path / "theirs").read_bytes(), (tmp_path / "nothing").exists()) == (change_, False)
        (run / "index.sqlite").unlink()


@pytest.mark.parametrize("odd", [{"turn": 10**30}, {"turn": [1]}, {"turn": 1e999}, {"status": {"a": 1}}, {"trace": 5}])
def test_a_line_that_no_index_can_hold_does_not_cost_the_others(odd: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path, finding(), finding(sample_id="odd") | odd, finding(sample_id="half \ud800"))
    with RunIndex(tmp_path) as opened:
        assert {("e/s", "s"), ("e/half \ud800", "half \ud800")} <= set(opened.keys())
        assert list(opened.lines("half \ud800")) == ["findings.jsonl"]
