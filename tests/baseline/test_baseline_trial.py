"""The baseline's trial goes the whole road."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.baseline_trial import measure, report


@pytest.mark.slow
def test_a_small_trial_goes_the_whole_road(tmp_path: Path) -> None:
    trial = measure(tmp_path, count=20)
    assert [Path(judge.run).name for judge in trial.judges] == ["tool", "plain"] and trial.judges[0].probes == 20
    assert "accuracy by failure and area" in report(trial)
