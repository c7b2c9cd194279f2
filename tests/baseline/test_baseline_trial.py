"""The baseline's trial goes the whole road, and its tables stand in the docs."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.baseline_trial import measure, report
from benchmarks.pages import DOCS
from editloupe.build.probes.makers import FAILURES


def test_the_docs_have_the_tables() -> None:
    page = (DOCS / "baseline.md").read_text(encoding="utf-8")
    text = page.split("<!-- measured trial: begin -->")[1].split("<!-- measured trial: end -->")[0]
    assert all(name.replace("_", " ") in text for name in FAILURES)
    assert "Judges on trial" in text and "accuracy by failure and area" in text


@pytest.mark.slow
def test_a_small_trial_goes_the_whole_road(tmp_path: Path) -> None:
    trial = measure(tmp_path, count=20)
    assert [Path(judge.run).name for judge in trial.judges] == ["tool", "plain"] and trial.judges[0].probes == 20
    assert "accuracy by failure and area" in report(trial)
