"""The three modes over a drawn folder of DLEBench's shape: what is shown, what is asked, what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.runs.outcome import Outcome
from editloupe.traces.read import read_trace
from tests.conftest import final
from tests.protocols.dlebench_folder import EDITORS, HEIGHT, SCENES, WIDTH, draw_folder
from tests.setups import open_with, run_over


def good(request: Request) -> str:
    """The best label of whichever criterion is asked for."""
    return final("Flawless Execution" if "Instruction Following" in request.messages[0].text else "Perfect Consistency")


def judged(folder: Path, out: Path, mode: str, script=good, **settings: object) -> tuple[Outcome, ScriptedLMM]:  # type: ignore[no-untyped-def]
    lmm = ScriptedLMM(script)
    setup = open_with(backend=lmm, mode=mode, **settings)  # type: ignore[arg-type]
    edited = {editor: folder / "outputs" / editor for editor in EDITORS}
    return run_over(setup, folder, out, config={}, edited=edited), lmm


def finding(outcome: Outcome, editor: str, id: str, criterion: str, target: int | None = None) -> Finding:
    (found,) = (
        f
        for f in outcome.findings
        if (f.editor, f.sample_id, f.metric, f.part) == (editor, id, criterion, f"target {target}" if target else "")
    )
    return found


def views(outcome: Outcome, found: Finding) -> tuple[dict[str, str], dict[str, Any]]:
    """What the first message of a finding's trace showed, by name: the pictures' digests, and how they were made."""
    trace = read_trace(outcome.store.folder / str(found.trace))
    first = next(event for event in trace.events if event.kind == "message")
    shown = {part["alias"]: part["image"]["sha256"] for part in first.message["parts"] if part["type"] == "image"}  # type: ignore[index, union-attr]
    recipes = {view["alias"]: view for view in trace.header.task["views"]}  # type: ignore[union-attr, index]
    assert shown.keys() == recipes.keys()
    return shown, recipes


def pixels(outcome: Outcome, sha256: str) -> np.ndarray:
    (path,) = (outcome.store.blobs / sha256[:2]).glob(f"{sha256}.*")
    return np.asarray(Image.open(path).convert("RGB"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_folder(tmp_path_factory.mktemp("dlebench"))


@pytest.fixture(scope="module")
def oracle(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Outcome, ScriptedLMM]:
    return judged(folder, tmp_path_factory.mktemp("oracle") / "run", "oracle")


# Eq. 1 by hand. color: 32×20 px, s = 20 ≤ 32, λ = 6, sides 7·32 = 224 and 7·20 = 140 about (116, 110).
# border: 16×16, λ = 6, sides 112 about (8, 8), cut at 0.
# several: 32×32, λ = 6, 224 about (76, 76), from −36: cut at 0. 64×64: α = (64−32)/224 = 1/7,
# λ = 6/7·6 + 1/7·0.3 = 5.1857…, sides 395.886 about (332, 232), from 134.06 to 529.9 and 34.06 to 429.9: cut at 480, 360.
# gone: 40×40: α = 8/224, λ = 5.79643, sides 271.857 about (220, 170).
# other: with the reference's box 190..260 × 140..210: 70×70, α = 38/224, λ = 5.03304, sides 422.31 about (225, 175).
REGIONS = {
    ("color", 1): [4, 40, 228, 180],
    ("border", 1): [0, 0, 64, 64],
    ("several", 1): [0, 0, 188, 188],
    ("several", 2): [134, 34, 480, 360],
    ("gone", 1): [84, 34, 356, 306],
    ("other", 1): [13, 0, 437, 360],
}


@pytest.mark.parametrize(("id", "target"), REGIONS)
def test_the_oracle_shows_each_target_in_a_crop_by_equation_1(oracle: tuple[Outcome, ScriptedLMM], id: str, target: int):
    outcome, _ = oracle
    shown, recipes = views(outcome, finding(outcome, "steady", id, "instruction_following", target))
    assert list(recipes) == ["Original Image", "Edited Image", "Reference Image"]
    for alias, recipe in recipes.items():
        assert (recipe["op"], recipe["region"]) == ("crop", REGIONS[id, target]), alias
    x0, y0, x1, y1 = REGIONS[id, target]
    made = pixels(outcome, shown["Original Image"])
    factor = made.shape[1] / (x1 - x0)
    # Brought to at least 256 px on the shorter side by a whole factor.
    assert made.shape[:2] == ((y1 - y0) * factor, (x1 - x0) * factor) and factor == int(factor)
    assert min(made.shape[:2]) >= 256
    # The middle of the target's box is red in the crop.
    bx0, by0, bx1, by1 = next(s for s in SCENES if s.id == id).boxes[target - 1]
    middle = made[int(((by0 + by1) / 2 - y0) * factor), int(((bx0 + bx1) / 2 - x0) * factor)]
    assert middle[0] > 180 and middle[1] < 60


def test_the_oracle_masks_the_targets_for_the_surroundings(oracle: tuple[Outcome, ScriptedLMM]):
    outcome, _ = oracle
    shown, recipes = views(outcome, finding(outcome, "steady", "several", "visual_consistency"))
    # 32 px: 5 % is 1.6 px, so the least pad of 2 px; 64 px: 3.2 px, rounded outward.
    boxes = [[58, 58, 94, 94], [296, 196, 368, 268]]
    share = (36 * 36 + 72 * 72) / (WIDTH * HEIGHT)
    for alias, recipe in recipes.items():
        assert recipe["op"] == "mask", alias
        assert recipe["params"]["boxes"] == boxes
        assert recipe["params"]["share"] == pytest.approx(share, abs=1e-6)
        made = pixels(outcome, shown[alias])
        assert made.shape == (HEIGHT, WIDTH, 3)
        white = (made == 255).all(axis=2)
        for x0, y0, x1, y1 in boxes:
            assert white[y0:y1, x0:x1].all()
        assert white.sum() == 36 * 36 + 72 * 72


def test_the_oracle_refuses_samples_without_boxes(tmp_path: Path):
    folder = draw_folder(tmp_path / "data", boxes=False)
    with pytest.raises(DataError, match=r"12 of 12 samples have none: steady/color, .* and 7 more\. Add a column bbox"):
        judged(folder, tmp_path / "run", "oracle")
    assert not (tmp_path / "run").exists()
