"""The 83 real edit pairs, judged by the embedded baseline: none is dropped, and every verdict can be explained."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from editloupe.runs.store import RunStore
from editloupe.traces.read import read_trace

REAL = Path(__file__).parents[3] / "shared" / "data" / "real-edits"


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="the real edit pairs are not here (shared/data/real-edits)")
def test_all_83_real_pairs_are_judged_by_both_criteria_and_every_verdict_is_explained(tmp_path: Path):
    out = tmp_path / "run"
    program = [sys.executable, "-c", "from editloupe.cli import main; main()"]
    done = subprocess.run(
        [*program, "judge", str(REAL), "--backend", "baseline", "--out", str(out), "--json"],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
    )
    # The baseline abstains where pixels cannot tell, so the run ends with failures above the tolerated share of 0.
    assert done.returncode == 3, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["asked"] == 166
    store = RunStore.read(out)
    findings = store.current()
    assert Counter(f.metric for f in findings) == {"instruction_following": 83, "visual_consistency": 83}
    assert {f.status for f in findings} <= {"ok", "abstained"}
    assert store.problems == []
    for finding in findings:
        trace = read_trace(out / str(finding.trace))
        assert trace.problems == ()
        assert len(trace.steps()) >= 2
    shown = subprocess.run([*program, "show", str(out), "re-000-aurora"], capture_output=True, text=True, check=True)
    assert shown.stdout.count("Verdict: ") + shown.stdout.count("Not judged: ") == 2
