"""What all tests of building have: models that are programs, small pictures, and a set's files as Python values."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from editloupe.answers import Choice, Label, Text
from editloupe.findings import Finding
from editloupe.models import opening
from editloupe.runs import people
from editloupe.runs.store import RunStore
from tests.build import toys
from tests.conftest import Cli, pixels, png


@pytest.fixture(autouse=True)
def seers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[toys.Finder, toys.Reds]:
    """The backend toy/NAME, the editors odd:WHAT, a detector and a segmenter at hand."""
    toys.put(tmp_path / "site", monkeypatch)
    finder, reds = toys.Finder(), toys.Reds()
    monkeypatch.setattr(opening, "DETECTOR", lambda name, device: finder)
    monkeypatch.setattr(opening, "SEGMENTER", lambda name, device: reds)
    monkeypatch.delenv("EDITLOUPE_EDITOR", raising=False)
    return finder, reds


@pytest.fixture
def finder(seers: tuple[toys.Finder, toys.Reds]) -> toys.Finder:
    """The detector."""
    return seers[0]


@pytest.fixture(autouse=True)
def encoder(monkeypatch: pytest.MonkeyPatch) -> toys.MeanColor:
    """An encoder of pictures in place of DINO."""
    found = toys.MeanColor()
    monkeypatch.setattr(opening, "DINO", lambda name, device: found)
    return found


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what the model answers."""
    return lambda **said: monkeypatch.setenv("TOY", json.dumps(said))


def pictures(folder: Path, count: int = 2) -> Path:
    """A folder of images with a red square: 0.png, 1.png, …"""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        (folder / f"{number}.png").write_bytes(png(pixels(number, spots=1)[1]))
    return folder


def metadata(images: Path, *rows: dict[str, Any]) -> Path:
    """A folder of images with a row for each."""
    (images / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return images


def lines(path: str | Path) -> list[dict[str, Any]]:
    """The rows of a JSON Lines file; none where it is not there."""
    file = Path(path)
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []


def unwritten(out: str | Path = "set") -> bool:
    """Whether a folder holds nothing but its mark."""
    return not Path(out).exists() or [path.name for path in Path(out).iterdir()] == ["build.json"]


def left(funnel: Any) -> dict[str, dict[str, int]]:
    """Stage → what it left out, of the stages that left something out."""
    return {one["stage"]: one["left_out"] for one in funnel["stages"] if one["left_out"]}


def written(out: str | Path) -> dict[str, bytes]:
    """All files of a set but its run, what names the run, and what it goes on from."""
    aside = ("run", "build.json", "done.jsonl", "masks.jsonl")
    files = [p for p in Path(out).rglob("*") if p.is_file() and p.relative_to(out).parts[0] not in aside]
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in files}


VALUES = {"Flawless Execution": 4.0, "Perfect Consistency": 4.0, "Over Modification": 3.0, "Single Anomaly": 3.0}


def given(question: str, text: str, *, task: str = "t", row: str = "0-1", judge: str = "j", note: str = "") -> Finding:
    """What somebody answers about a row: yes or no, a label, or a better text."""
    answer: Any = Label(name=text, value=VALUES[text]) if text in VALUES else Text(text=text)
    return Finding(
        task_id=task, judge_id=judge, repeat=0, sample_id=row, editor="", metric=question, status="ok",
        answer=Choice(name=text) if text in ("yes", "no") else answer, reason=note,
    )  # fmt: skip


def look_through(
    editloupe: Cli,
    protocol: str,
    good: Mapping[str, str],
    out: str,
    *said: Mapping[str, str | None],
    rater: str = "ann",
    note: str = "",
) -> Path:
    """A run in which a person answers about the rows to review, a mapping a row.

    good: question → the answer with which a row passes; a row's own answers come first, and None leaves a question open.
    note: beside each no.
    """
    words = ("--protocol", protocol, "--backend", "toy/b", "--set", "fail_on_error=1", "--out", out)
    code, _, told = editloupe("judge", "set/to_review", *words)
    assert code == 0, told
    store = RunStore.read(Path(out))
    store.close()
    tasks = {(one.sample_id, one.metric): one.task_id for one in store.findings.values()}
    for row, own in zip(sorted({row for row, _ in tasks}), said, strict=True):
        for question, text in {**good, **own}.items():
            if text is not None and (row, question) in tasks:
                judge, noted = people.person(rater).id, note if text == "no" else ""
                finding = given(question, text, task=tasks[row, question], row=row, judge=judge, note=noted)
                people.add(Path(out), people.Given(finding=finding, rater=rater, time="2026-01-01T00:00:00+00:00"))
    return Path(out)
