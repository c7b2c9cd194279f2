"""The index of a run: its questions, what is appended or changed, lines that are none, one sample of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from editloupe.runs.index import RunIndex
from editloupe.runs.store import RunStore


def finding(**more: Any) -> dict[str, Any]:
    about = {"sample_id": "s", "editor": "e", "turn": 0, "part": "", "metric": "m", "judge_id": "j", "repeat": 0}
    return {"task_id": "t", "status": "ok", "trace": None, **about, **more}


def write(folder: Path, *findings: dict[str, Any], mode: str = "w") -> None:
    with (folder / "findings.jsonl").open(mode, encoding="utf-8") as file:
        file.writelines(json.dumps(one) + "\n" for one in findings)


def test_refresh_sees_what_is_appended_and_what_was_changed(tmp_path: Path) -> None:
    write(tmp_path, finding(trace="traces/a"))
    index = RunIndex(tmp_path)
    version = index.version
    index.refresh()
    assert index.version == version
    write(tmp_path, finding(sample_id="late", task_id="u", trace="traces/b"), mode="a")
    with (tmp_path / "findings.jsonl").open("a") as file:
        file.write(torn := json.dumps(finding(sample_id="torn")))
    index.refresh()
    assert index.version > version and index.lines(["torn"]) == {}
    assert (index.names_trace("traces/b"), index.names_trace("traces/c")) == (True, False)
    with (tmp_path / "findings.jsonl").open("a") as file:
        file.write("\n")
    index.refresh()
    assert index.lines(["torn"]) == index.lines(["e/torn"]) == {"findings.jsonl": f"{torn}\n".encode()}
    # The same file with other lines, longer and then shorter than before.
    for others in ([finding(sample_id=f"other-{n}") for n in range(9)], [finding(sample_id="last")]):
        write(tmp_path, *others)
        index.refresh()
        assert index.keys() == [(f"e/{one['sample_id']}", one["sample_id"]) for one in others]
        assert list(index.lines([others[-1]["sample_id"]]).values()) == [(json.dumps(others[-1]) + "\n").encode()]


def test_one_sample_is_read_by_the_index_as_it_is_read_from_the_whole(
    gallery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = RunStore.read(gallery)
    assert RunStore.read_samples(gallery, ["mug-blue"]).current() == whole.current()  # a small run
    monkeypatch.setattr("editloupe.runs.index.LARGE", 1)
    for index in (None, RunIndex(gallery)):
        part = RunStore.read_samples(gallery, ["mug-blue"], index)
        assert list(part.samples) == ["mug-blue"]
        assert part.current() == [f for f in whole.current() if f.sample_id == "mug-blue"]
    assert RunStore.read_samples(gallery, ["unknown"]).current() == whole.current()
    assert not {path.name for path in gallery.iterdir()} & {"index.sqlite", "run.lock"}
