"""Names and areas of target objects: from boxes, by a detector, unknown; nothing that failed becomes a number."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe.backends.scripted import ScriptedLMM
from editloupe.build.targets import summary
from editloupe.config import JudgeConfig, RunConfig
from editloupe.errors import ModelAbsent, ToolError
from editloupe.models import opening
from editloupe.models.detect.base import Detector
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from tests.tools.test_search import Reds

Folder = Callable[..., Path]
Find = Callable[..., Outcome]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder of sources alone, 200×100 px, each with a red 20×10 px rectangle at (40, 30) unless `red` says no."""

    def make(*rows: dict[str, object], red: bool = True) -> Path:
        root = tmp_path / "data"
        root.mkdir()
        for number, row in enumerate(rows):
            picture = np.full((100, 200, 3), 120 + number, dtype=np.uint8)
            if red:
                picture[30:40, 40:60] = (255, 0, 0)
            Image.fromarray(picture).save(root / f"{number}.png")
            row |= {"id": f"s{number}", "source_file_name": f"{number}.png"}
        (root / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return root

    return make


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    """Run the protocol on a folder; without a detector it is absent."""

    def run(
        root: Path, *, lmm: ScriptedLMM | None = None, detector: Detector | None = None, stop: threading.Event | None = None
    ) -> Outcome:
        def opened(name: str | None, device: str) -> Detector:
            if detector is None:
                raise ModelAbsent("none here")
            return detector

        monkeypatch.setattr(opening, "DETECTOR", opened)
        config = RunConfig.make(path=root, protocol="targets", judge=JudgeConfig.make(backend=lmm), concurrency=2)
        return drive(open_setup(config), tmp_path / "run", stop=stop)

    return run


class Breaks(Reds):
    """Fails as a network can."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def __call__(self, images, phrase):  # type: ignore[no-untyped-def]
        raise self.error


@pytest.mark.parametrize(
    ("instruction", "detector", "missing"),
    [
        ("Make the mug blue.", None, "not_defined"),
        ("Make the mug blue.", Reds(limit=1), "not_defined"),
        ("Make the mug blue.", Breaks(ToolError("too long")), "tool_failed"),
        ("Zzz.", Reds(), "abstained"),
    ],
)
def test_what_cannot_be_found_out_has_a_kind_and_no_number(
    instruction: str, detector: Detector | None, missing: str, folder: Folder, find: Find
) -> None:
    outcome = find(folder({"instruction": instruction}), detector=detector)
    assert [(score.value, score.missing) for score in outcome.scores] == [(None, missing)]
    assert outcome.scores[0].reason
    assert summary(outcome) == {"targets": 1, "how": {}, "unknown": {missing: 1}, "median_share": None}
