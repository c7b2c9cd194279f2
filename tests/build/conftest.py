"""What all tests of building have: models that are programs, small pictures, and a set's files as Python values."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.models import opening
from tests.build import toys
from tests.conftest import pixels, png

Run = Callable[..., tuple[int, str, str]]


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


def left(funnel: Any) -> dict[str, dict[str, int]]:
    """Stage → what it left out, of the stages that left something out."""
    return {one["stage"]: one["left_out"] for one in funnel["stages"] if one["left_out"]}


def written(out: str | Path) -> dict[str, bytes]:
    """All files of a set but its run, what names the run, and what it goes on from."""
    aside = ("run", "build.json", "done.jsonl", "masks.jsonl")
    files = [p for p in Path(out).rglob("*") if p.is_file() and p.relative_to(out).parts[0] not in aside]
    return {p.relative_to(out).as_posix(): p.read_bytes() for p in files}
