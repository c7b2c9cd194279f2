"""The index of a run: questions, growth, older schemas, what is not ours."""

from __future__ import annotations

import json
import shutil
import sqlite3
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


def test_targets_of_version_1_are_questions_of_their_own(tmp_path: Path) -> None:
    old = {k: v for k, v in finding(criterion="m").items() if k not in ("metric", "turn", "part")}
    write(tmp_path, old | {"target": 1}, old | {"target": 2}, old | {"target": 2, "status": "off_menu"}, old)
    with RunIndex(tmp_path) as opened:
        assert opened.statuses() == {"ok": 2, "off_menu": 1}


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
