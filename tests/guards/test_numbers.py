"""Labels, statuses and scores of edits whose judge is known, and the published tables that are computed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.traces import GALLERY
from tests.guards.doors import Program, labels, means, statuses
from tests.guards.frozen import holds

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "edits"
REAL = ROOT.parent / "shared" / "data" / "real-edits"
SOME = ("kitchen-mug-green", "kitchen-apple", "harbour-boat", "street-sign")
"""A recoloring gone wrong, a removal, an edit of too much, and a text: enough for every day."""


def judged(program: Program, data: Path, mode: str, folder: Path, *samples: str) -> Path:
    """The run of the pixel baseline over this data."""
    words = [word for name in samples for word in ("--sample", name)]
    code, _, err = program("judge", data, "--backend", "baseline", "--mode", mode, *words, "--out", folder / "run")
    # 3: it abstains where pixels cannot tell.
    assert code in (0, 3), err
    return folder / "run"


@pytest.mark.parametrize("mode", ["tool", "plain", "oracle"])
def test_some_examples_keep_labels_and_scores(mode: str, tmp_path: Path, editloupe: Program) -> None:
    run = judged(editloupe, EXAMPLES, mode, tmp_path, *SOME)
    holds(f"examples-{mode}", labels(run), whole=False)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["tool", "plain", "oracle"])
def test_all_examples_keep_labels_scores_and_means(mode: str, tmp_path: Path, editloupe: Program) -> None:
    run = judged(editloupe, EXAMPLES, mode, tmp_path)
    holds(f"examples-{mode}", {**labels(run), "statuses": statuses(run), **means(editloupe, run)})


# Without boxes around the targets there is no oracle mode.
@pytest.mark.shared
@pytest.mark.skipif(not REAL.is_dir(), reason="the real edits are not here (../shared/data/real-edits)")
@pytest.mark.parametrize("mode", ["tool", "plain"])
def test_real_edits_keep_labels_scores_and_means(mode: str, tmp_path: Path, editloupe: Program) -> None:
    run = judged(editloupe, REAL, mode, tmp_path)
    found = labels(run)
    assert len(found) == 83
    holds(f"real-{mode}", {**found, "statuses": statuses(run), **means(editloupe, run, types=False)})


def test_the_gallery_is_answered_and_replayed_as_recorded(gallery: Path, editloupe: Program) -> None:
    assert gallery != GALLERY
    code, out, err = editloupe("replay", gallery)
    assert code == 0, out + err
    holds("gallery", {**labels(gallery), "statuses": statuses(gallery), **means(editloupe, gallery)})
