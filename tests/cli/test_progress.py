"""How far a run is: the three forms, what they count, and when they speak."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from editloupe.cli import progress as module
from editloupe.cli.progress import State, _Events, _Lines, _Watch, panel
from editloupe.runs.execute import Progress, Spent
from tests.conftest import final

Cli = Callable[..., tuple[int, str, str]]

BUSY = Spent(calls=40, in_flight=18, retries=7, tokens=1_204_331, cost_usd=3.412)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def state(**given: Any) -> State:
    usual = {"done": 412, "total": 1889, "spent": lambda: BUSY, "failures": {"refused": 4, "unparsed": 5}, "rejected": 3}
    return State(progress=Progress(**{**usual, **given}), elapsed_s=192, rate=2.0)


def test_what_is_counted_in_words() -> None:
    one = state()
    assert one.counted() == "412 of 1,889 (22%)"
    assert one.left_s == (1889 - 412) / 2
    assert one.costs() == ["2.0 a second", "18 calls in flight", "1.2 M tokens", "3.41 USD", "7 retries"]
    assert one.troubles() == ["9 failed: 5 unparsed, 4 refused", "3 rows rejected"]
    quiet = state(spent=Spent, failures={}, rejected=0)
    assert (quiet.costs(), quiet.troubles()) == (["2.0 a second"], [])


def test_what_is_not_known_is_not_said() -> None:
    unknown = State(progress=Progress(done=0, total=10), elapsed_s=1, rate=0.0)
    assert unknown.left_s is None
    assert state(grows=True).counted().endswith("more may follow")


def test_the_panel_fits_eighty_columns() -> None:
    file = io.StringIO()
    Console(file=file, width=80).print(panel(state()))
    lines = file.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    told = " ".join(file.getvalue().split())
    for words in ("judging", "412 of 1,889", "18 calls in flight", "9 failed: 5 unparsed, 4 refused", "3 rows rejected"):
        assert words in told


def watched(form: Any, clock: Clock) -> _Watch:
    return _Watch(form, clock)


def test_a_log_has_a_line_after_ten_seconds_or_five_per_cent(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(module, "note", said.append)
    clock = Clock()
    watch = watched(_Lines(), clock)
    watch.listen(Progress(phase="reading the data"))
    watch.listen(Progress(done=0, total=1000))
    for second in range(1, 10):
        clock.now = second
        watch.listen(Progress(done=second, total=1000))
    assert said == ["reading the data …"]
    clock.now = 10
    watch.tick()
    assert len(said) == 2 and said[1].startswith("judging: 9 of 1,000 (1%), 0:10 elapsed, about ")
    clock.now = 12
    watch.listen(Progress(done=60, total=1000))
    assert len(said) == 3
    clock.now = 12.1
    watch.listen(Progress(done=999, total=1000))
    assert len(said) == 3, "two lines are a second apart"
    watch.listen(Progress(done=1000, total=1000))
    assert said[-1].startswith("judging: 1,000 of 1,000 (100%), 0:12 elapsed, ") and "left" not in said[-1]


def test_a_slow_backend_is_heard_of_although_nothing_arrives(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr(module, "note", said.append)
    clock = Clock()
    watch = watched(_Lines(), clock)
    watch.listen(Progress(done=0, total=4, spent=lambda: Spent(in_flight=4)))
    for second in range(1, 31):
        clock.now = second
        watch.tick()
    assert len(said) == 3 and all("0 of 4 (0%)" in line and "4 calls in flight" in line for line in said)


def test_the_rate_is_that_of_the_last_minute() -> None:
    clock = Clock()
    seen: list[State] = []
    form = type("Form", (), {"show": lambda self, state, due: seen.append(state)})()
    watch = watched(form, clock)
    for second in range(0, 200):
        clock.now = second
        watch.listen(Progress(done=second if second < 100 else 100 + 10 * (second - 100), total=5000))
    assert seen[-1].rate == pytest.approx(10, rel=0.02)


def test_events_have_a_finding_and_where_the_run_stands(capsys: pytest.CaptureFixture[str]) -> None:
    clock = Clock()
    watch = watched(_Events(), clock)
    watch.listen(Progress(phase="reading the data"))
    watch.tick()
    watch.listen(Progress(done=0, total=2, spent=lambda: BUSY))
    clock.now = 4
    watch.listen(Progress(done=2, total=2, failures={"refused": 1}, rejected=1, spent=lambda: BUSY))
    events = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [event["phase"] for event in events] == ["reading the data", "judging", "judging"]
    assert events[-1] == {
        "event": "progress", "phase": "judging", "done": 2, "total": 2, "grows": False, "elapsed_s": 4, "left_s": 0.0,
        "rate": 0.5, "calls": 40, "in_flight": 18, "retries": 7, "tokens": 1204331, "cost_usd": 3.412,
        "failures": {"refused": 1}, "rejected_rows": 1,
    }  # fmt: skip


def test_a_judged_folder_is_followed_in_a_log(editloupe: Cli, edits: Callable[..., Path], tmp_path: Path) -> None:
    folder, replies = edits(2), tmp_path / "replies.jsonl"
    replies.write_text(json.dumps(final("Wrong Action")) + "\n", encoding="utf-8")
    with (folder / "metadata.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"source_file_name": "gone.png", "edited_file_name": "gone.png", "instruction": "x"}\n')
    code, _, told = editloupe("judge", folder, "--backend", f"scripted/{replies}", "--criteria", "if")
    lines = told.splitlines()
    assert code == 3
    assert "reading the data …" in lines
    assert any(line.startswith("judging: 3 of 3 (100%)") and line.endswith("1 row rejected") for line in lines)
