"""The scripts beside the package: the examples, what makes the gallery, and what measures."""

from __future__ import annotations

import io
import json
import re
import runpy
import shutil
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from editloupe import Run
from editloupe.traces import GALLERY

ROOT = Path(__file__).parents[2]
REAL = ROOT.parent / "shared" / "data" / "real-edits"


def run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def example(script: str, *words: str | Path) -> str:
    """What a script of the examples prints."""
    told = io.StringIO()
    with redirect_stdout(told), pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [script, *map(str, words)])
        runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    return told.getvalue()


def labels(folder: Path) -> list[tuple[str, str, str | None]]:
    return sorted((f.sample_id, f.metric, f.label) for f in Run(folder).findings)


@pytest.mark.slow
def test_the_gallery_is_made_again_with_the_same_labels(tmp_path: Path):
    assert "7 traces" in run("docs/site/make_gallery.py", str(tmp_path / "gallery"))
    assert labels(tmp_path / "gallery") == labels(GALLERY)


def test_a_script_for_each_job_judges_looks_and_compares(tmp_path: Path):
    first, second = tmp_path / "first", tmp_path / "second"
    edits = tmp_path / "edits"
    shutil.copytree(ROOT / "examples" / "edits", edits)
    rows = (edits / "metadata.jsonl").read_text(encoding="utf-8").splitlines()
    (edits / "metadata.jsonl").write_text("\n".join(row for row in rows if '"kitchen-mug"' in row), encoding="utf-8")
    assert "instruction_following" in example("judge_a_folder.py", edits, "baseline", first)
    told = example("look_into_a_verdict.py", first, "kitchen-mug")
    assert "calls:  localize_differences(" in told
    shutil.copytree(first, second)
    assert "of 2 scores are equal; 0 were not judged by both" in example("compare_judges.py", first, second)
    scripts = [path for path in (ROOT / "examples").glob("*.py") if path.name != "preference_worker.py"]
    assert len(scripts) == 3 and all(len(path.read_text(encoding="utf-8").splitlines()) < 40 for path in scripts)


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="the real edits are not here (../shared/data/real-edits)")
def test_the_study_of_the_tools_worth_counts_what_is_shown():
    # Three pairs with four, two and one marked place.
    told = run("-m", "benchmarks.looks", "--data", str(REAL), "--pairs", "3")
    assert re.search(r"\| localize_differences \| 3 of 3 \| 0 of \d \| ", told)
    assert "| the pair alone | 3 of 3 | " in told


def test_the_marked_places_lie_in_their_pictures():
    places = json.loads((ROOT / "benchmarks" / "looks" / "places.json").read_text(encoding="utf-8"))
    kinds = [place["kind"] for place in places.values()]
    assert (kinds.count("places"), kinds.count("whole"), kinds.count("none")) == (59, 23, 1)
    for place in places.values():
        assert bool(place["boxes"]) == (place["kind"] == "places")
        assert all(0 <= x0 < x1 <= 1000 and 0 <= y0 < y1 <= 1000 for x0, y0, x1, y1 in place["boxes"])
