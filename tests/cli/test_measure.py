"""`editloupe measure` as a user types it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
from PIL import Image

from editloupe.data.images import RGB
from editloupe.runs.store import RunStore
from tests.conftest import Cli, refused
from tests.imaging.drawn import textured, with_square


def save(path: Path, rgb: RGB) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(rgb).save(path)
    return path.name


@pytest.fixture
def edits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three edits of 160×120 px: a square with its mask, the same whole picture shifted, and nothing at all."""
    monkeypatch.chdir(tmp_path)
    folder = Path("shop")
    source = textured(160, 120)
    mask = np.zeros_like(source)
    mask[30:80, 40:90] = 255
    shifted = np.asarray(cv2.warpAffine(source, np.array([[1, 0, 4.0], [0, 1, 3.0]]), (160, 120)), np.uint8)
    save(folder / "source.png", source)
    save(folder / "square.png", with_square(np.clip(source + np.uint8(1), 1, 255), (40, 30, 90, 80)))
    save(folder / "mask.png", mask)
    save(folder / "shifted.png", shifted)
    rows: list[dict[str, Any]] = [
        {"id": "square", "edited_file_name": "square.png", "mask_file_name": "mask.png"},
        {"id": "shifted", "edited_file_name": "shifted.png"},
        {"id": "same", "edited_file_name": "source.png"},
        {"id": "gone", "edited_file_name": None},
    ]
    lines = [{"source_file_name": "source.png", "instruction": "Add a square.", **row} for row in rows]
    (folder / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def found(folder: str | Path) -> dict[tuple[str, str], Any]:
    """Return (sample, measure) → the finding."""
    return {(finding.sample_id, finding.metric): finding for finding in RunStore.read(Path(folder)).findings.values()}


def test_every_edit_of_a_folder_is_measured(editloupe: Cli, edits: Path) -> None:
    code, said, told = editloupe("measure", edits, "--measures", "mse,psnr,ssim", "--out", "m")
    assert code == 3  # one output is missing
    assert re.search(r"Measuring \S+shop into m\n", told)
    findings = found("m")
    assert findings["square", "mse"].value == pytest.approx(1, abs=0.05)
    told = editloupe("report", "m")[1]
    assert "outside the mask" in told and "the whole image" in told
    assert findings["square", "mse"].reason == "87.0 % of the pixels are compared"
    assert findings["shifted", "mse"].value > 100
    assert findings["same", "mse"].value == 0 and findings["same", "ssim"].value == 1
    infinite = findings["same", "psnr"]
    assert (infinite.status, infinite.answer) == ("not_defined", None) and infinite.reason.startswith("infinite")
    assert findings["gone", "mse"].status == "missing_output"
    # Nothing is measured twice.
    again = editloupe("measure", edits, "--measures", "mse,psnr,ssim", "--out", "m")
    assert "8 of 12 findings judged" in said and "from before, in" in again[1]
    # PSNR of equal images is infinite: that is no failure, unless nothing else was asked.
    line = ("measure", edits, "--set", "sample=same", "--measures")
    code, said, _ = editloupe(*line, "mse,psnr", "--out", "equal")
    assert code == 0 and "same, psnr: not_defined: infinite" in said and "retry" not in said
    assert editloupe(*line, "psnr", "--out", "infinite")[0] == 1
    for words in (("show", "m", "square"), ("report", "m"), ("export", "m", "--findings", "f.csv"), ("verify", "m")):
        assert editloupe(*words)[0] == 0
    assert "measure/psnr" in editloupe("show", "m", "square")[1]
    assert ",mse,measure,ok," in Path("f.csv").read_text()


def test_a_run_is_measured_by_what_it_keeps(editloupe: Cli, edits: Path) -> None:
    editloupe("judge", edits, "--out", "judged")
    for file in edits.iterdir():
        file.unlink()
    code, _, told = editloupe("measure", "judged", "--measures", "mse,l1", "--out", "m")
    findings = found("m")
    assert code == 3 and "judged into m" in told  # one output is missing
    assert findings["square", "mse"].value == pytest.approx(1, abs=0.05)
    assert " % of the pixels are compared" in findings["square", "mse"].reason
    assert findings["shifted", "l1"].value > 1
    assert findings["gone", "l1"].status == "missing_output"
    # The judged run stays as it was.
    assert editloupe("verify", "judged")[0] == 0


def test_bad_input_gets_one_message(editloupe: Cli, edits: Path) -> None:
    for words, said in (
        ((), "PATH is missing"),
        (
            ("shop", "--measures", "mse,beauty"),
            "'beauty' is no measure of an edit that is installed; there are aesthetic, ",
        ),
        (("shop", "--measures", "mse,mse"), "the measure 'mse' is named twice"),
        (("shop", "--mask", "some"), "'some' is not one of 'auto', 'apply', 'official', 'none'"),
        (("nowhere",), "nowhere: no such folder"),
        # One of the edits has a mask.
        (
            ("shop", "--measures", "mse,differences"),
            "the measure 'differences' cannot be taken of sample 'square': mask is",
        ),
    ):
        assert said in refused(editloupe, "measure", *words), words
