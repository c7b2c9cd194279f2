"""The scripts beside the package: what makes the gallery, and what measures a report."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from editloupe import Run
from editloupe.traces import GALLERY

ROOT = Path(__file__).parents[2]


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def labels(folder: Path) -> list[tuple[str, str, str | None]]:
    return sorted((f.sample_id, f.metric, f.label) for f in Run(folder).findings)


def test_the_gallery_is_made_again_with_the_same_labels(tmp_path: Path):
    assert "7 traces" in run("examples/make_gallery.py", str(tmp_path / "gallery"))
    assert labels(tmp_path / "gallery") == labels(GALLERY)


@pytest.mark.slow
def test_the_benchmark_of_a_report_measures_one():
    assert run("-m", "benchmarks.report", "--samples", "50", "--rounds", "1").startswith("2 editors × 50 samples: ")


@pytest.mark.slow
def test_the_benchmark_of_the_rules_of_unicverify_counts_pairs_a_minute():
    assert "| edited | " in run("-m", "benchmarks.verify", "--pairs", "3")
