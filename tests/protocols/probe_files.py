"""A small folder of probes, drawn by hand: what `editloupe build probes` makes, without it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from editloupe.data.sealed import seal_of
from tests.conftest import png

IF, VC = "instruction_following", "visual_consistency"
SIDE, BOX = 64, (20, 20, 36, 36)
RED, BLUE, GREEN = (200, 30, 30), (30, 30, 200), (30, 160, 30)

TRUTHS: Mapping[str, Mapping[str, str]] = {
    "flawless": {IF: "Flawless Execution", VC: "Perfect Consistency"},
    "wrong_colour": {IF: "Wrong Action", VC: "Perfect Consistency"},
    "no_edit": {IF: "Localization Failure", VC: "Perfect Consistency"},
    "one_collateral": {IF: "Flawless Execution", VC: "Single Anomaly"},
    "restyled": {VC: "Scene Collapse"},
}
FAILURES = tuple(TRUTHS)


def picture(color: tuple[int, int, int], *, seed: int = 0) -> np.ndarray:
    """SIDE×SIDE noise with a square of this color in BOX."""
    rgb = np.random.default_rng(seed).integers(110, 140, (SIDE, SIDE, 3), dtype=np.uint8)
    rgb[BOX[1] : BOX[3], BOX[0] : BOX[2]] = color
    return rgb


def edited(failure: str, *, seed: int = 0) -> np.ndarray:
    """What becomes of "Make the red square blue."."""
    rgb = picture({"wrong_colour": GREEN, "no_edit": RED}.get(failure, BLUE), seed=seed)
    if failure == "one_collateral":
        rgb[50:58, 4:12] = (240, 240, 0)
    return 255 - rgb if failure == "restyled" else rgb


def probe_row(folder: Path, number: int, failure: str = "flawless", **changes: Any) -> dict[str, Any]:
    """A row of metadata; its images are written. changes: of the probe, and with "row" further columns."""
    columns = changes.pop("row", {})
    id_ = f"p{number:02}"
    mask = np.zeros((SIDE, SIDE, 3), dtype=np.uint8)
    mask[BOX[1] : BOX[3], BOX[0] : BOX[2]] = 255
    # One source a probe, so that each is a group of its own.
    images = {"source": picture(RED, seed=number), "edited": edited(failure, seed=number), "mask": mask}
    row: dict[str, Any] = {"id": id_, "instruction": "Make the red square blue.", "edit_type": "Change Color"}
    files = {}
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for role, rgb in images.items():
        name, data = f"images/{id_}-{role}.png", png(rgb)
        (folder / name).write_bytes(data)
        row[f"{role}_file_name"] = name
        files[f"{role}_file_name"] = hashlib.sha256(data).hexdigest()
    probe = {
        "truth": dict(TRUTHS[failure]),
        "failure": failure,
        "area": 0.1,
        "area_found": 0.0625,
        "scene": f"scene {number}",
        "maker": "hand 1",
        "seed": number,
        **changes,
    }
    row |= {"bboxes": [list(BOX)], **columns, "probe": probe}
    probe["digest"] = seal_of(row, files)
    return row


def write(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write metadata.jsonl."""
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def draw_probes(folder: Path, failures: Sequence[str] = FAILURES, **changes: Any) -> Path:
    """One probe a failure: p00, p01, …"""
    return write(folder, [probe_row(folder, number, failure, **changes) for number, failure in enumerate(failures)])
