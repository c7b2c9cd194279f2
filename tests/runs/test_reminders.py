"""Runs in which answers were reminded of: replayed, resumed, forked, re-scored, and asked again by their config."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.errors import ConfigError, Unavailable
from editloupe.findings import Finding
from editloupe.runs.recording import Live
from editloupe.runs.replay import Replayed, fork
from editloupe.runs.rescore import protocol_with, rescore
from editloupe.runs.store import RunStore
from editloupe.tools.base import open_toolbox
from editloupe.traces.events import Note
from editloupe.traces.read import read_trace
from tests.conftest import LOOK, final
from tests.runs.test_replay import replayed as replayed_all
from tests.setups import open_with, run_over

Judged = Callable[..., Finding]


@pytest.fixture
def judged(edits: Callable[..., Path], tmp_path: Path) -> Judged:
    """Judges one edit, into the folder `run`, by a script."""
    folder = edits(1)

    def judge(*script: str | Exception, **options: object) -> Finding:
        setup = open_with(backend=ScriptedLMM(script), criteria=("if",), **options)
        (finding,) = run_over(setup, folder, tmp_path / "run", config={}).findings
        return finding

    return judge


def replayed(out: Path, **how: object) -> Replayed:
    (one,) = replayed_all(out, **how)
    return one


def test_a_run_with_reminders_of_answers_is_replayed_re_scored_and_forked_behind_them(judged: Judged, tmp_path: Path):
    out, toolbox = tmp_path / "run", open_toolbox(("localize_differences",))
    finding = judged(LOOK, final("Superb"), final("Fine"), final("Wrong Action"))
    assert (finding.label, finding.counts) == ("Wrong Action", {"reminders": 2})
    assert (replayed(out).verdict, replayed(out).message) == ("same", "")
    notes = [e.text for e in read_trace(out / str(finding.trace)).events if isinstance(e, Note)]
    assert [note.split(";")[0] for note in notes] == [f"reminder {n}: the answer is none of the labels" for n in (1, 2)]
    store = RunStore.read(out)
    (one,) = rescore(store, protocol_with(store, {"rubric": "dlebench"}))
    assert (one.now and one.now.label, one.changed) == ("Wrong Action", False)
    lmm = ScriptedLMM(["-", "-", final("Over Modification")])
    forked = fork(out, str(finding.trace), at=2, backend=lmm, toolbox=toolbox)
    assert (forked.finding.label, forked.finding.counts) == ("Over Modification", {"reminders": 1})
    assert "found 'Superb'" in lmm.requests[0].messages[-1].text
    with pytest.raises(ConfigError, match="at this step the judge answered"):
        fork(out, str(finding.trace), at=4, backend=lmm, toolbox=toolbox)


def test_a_judge_that_reminds_of_no_answer_is_replayed_without(judged: Judged, tmp_path: Path):
    out = tmp_path / "run"
    finding = judged(LOOK, final("Superb"), remind_answers=False)
    assert "remind_answers" not in (out / str(finding.trace)).read_text()
    one = replayed(out)
    assert (one.verdict, one.finding and one.finding.status) == ("same", "off_menu")
    # The live half of a replay is the recorded judge too: one answer, no reminder.
    lmm = ScriptedLMM([LOOK, final("Superb"), final("Wrong Action")])
    live = replayed(out, live=Live(backend=lmm), model="live")
    assert (live.finding and live.finding.status, len(lmm.requests)) == ("off_menu", 2)


def test_a_task_that_broke_off_at_a_reminder_goes_on_there(judged: Judged):
    assert judged(LOOK, final("Superb"), Unavailable("gone")).status == "backend_failed"
    finding = judged(Unavailable("asked again"), Unavailable("asked again"), final("Wrong Action"))
    assert (finding.label, finding.counts) == ("Wrong Action", {"reminders": 1})
