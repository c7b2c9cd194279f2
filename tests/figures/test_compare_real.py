"""Three judges over the 83 real edit pairs: the pixel baseline, and two scripts that err at known rates."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from editloupe.backends.prices import Prices
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.figures.compare import compare
from editloupe.figures.judged import read_judged
from editloupe.rubrics import load_rubric
from editloupe.values import digest
from tests.conftest import final
from tests.setups import open_with, run_over

REAL = Path(__file__).parents[3] / "shared" / "data" / "real-edits"
EXAMPLES = Path(__file__).parents[2] / "examples" / "edits"
LEVELS = [level.name for level in load_rubric("dlebench").criterion("if").levels]


def place(request: Request) -> int:
    """A number of its own for each question, the same for every judge."""
    return int(digest([part.image.sha256 for part in request.messages[0].images])[:8], 16)


def steady(request: Request) -> str:
    return final(LEVELS[place(request) % 4])


def erring(request: Request) -> str:
    """Off by one level, upwards but at the top, for one question in four."""
    number = place(request)
    level = number % 4
    if number // 4 % 4 == 0:
        level = level + 1 if level < 3 else 2
    return final(LEVELS[level])


def quadratic_kappa(x: np.ndarray, y: np.ndarray) -> float:
    """1 − Σ w·observed / Σ w·expected with w = (i − j)²."""
    counts = np.zeros((4, 4))
    np.add.at(counts, (x - 1, y - 1), 1)
    weights = np.subtract.outer(np.arange(4), np.arange(4)) ** 2
    expected = np.outer(counts.sum(axis=1), counts.sum(axis=0)) / counts.sum()
    return float(1 - (weights * counts).sum() / (weights * expected).sum())


@pytest.mark.parametrize(
    "folder",
    [
        EXAMPLES,
        pytest.param(
            REAL,
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(not REAL.is_dir(), reason="the real edits are not here (shared/data/real-edits)"),
            ],
        ),
    ],
    ids=["examples", "real"],
)
def test_every_figure_of_three_judges_is_that_of_the_labels_themselves(folder: Path, tmp_path: Path):
    stats = pytest.importorskip("scipy.stats")
    backends = {
        "steady": ScriptedLMM(steady, name="steady"),
        "erring": ScriptedLMM(erring, name="erring"),
        "baseline": "baseline",
    }
    for name, backend in backends.items():
        run_over(open_with(backend=backend, criteria=("if",), mode="plain"), folder, tmp_path / name)
    values: dict[str, dict[tuple[str, str], int]] = {}
    for name in backends:
        rows = [json.loads(line) for line in (tmp_path / name / "findings.jsonl").read_text().splitlines()]
        values[name] = {(r["editor"], r["sample_id"]): int(r["value"]) for r in rows if r["status"] == "ok"}
    found = compare(read_judged([tmp_path / name for name in backends]), prices=Prices())
    names = list(backends)
    assert len(found.pairs) == 3
    for pair, (a, b) in zip(found.pairs, [(0, 1), (0, 2), (1, 2)], strict=True):
        both = sorted(values[names[a]].keys() & values[names[b]].keys())
        x, y = (np.array([values[names[i]][key] for key in both]) for i in (a, b))
        told = {name: figure.value for name, figure in pair.figures.items()}
        assert pair.common == len(both) > 10
        assert told["exact"] == pytest.approx((x == y).mean())
        assert told["bias"] == pytest.approx((x - y).mean())
        assert told["weighted_kappa"] == pytest.approx(quadratic_kappa(x, y))
        assert told["spearman"] == pytest.approx(stats.spearmanr(x, y).statistic)
        assert pair.difference.value == pytest.approx((x - y).mean() * 100 / 3)
        assert np.array(pair.confusion)[:, :4].tolist() == [
            [int(((y == row) & (x == column)).sum()) for column in (1, 2, 3, 4)] for row in (1, 2, 3, 4)
        ]
    # One question in four was answered otherwise, as far as chance has it.
    first = found.pairs[0].figures["exact"].value
    assert first is not None and 0.5 < first < 0.95
