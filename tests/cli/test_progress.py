"""How far a run is: the three forms, what they count, and when they speak."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from editloupe.cli.progress import Watch
from editloupe.runs.outcome import Progress, Spent
from tests.backends.openai_server import OpenAIServer, fails, says
from tests.conftest import Cli, Edits, draw_edits, final, scripted
from tests.terminal import Terminal

BUSY = Spent(calls=40, in_flight=18, retries=7, tokens=1_204_331, cost_usd=3.412, waits_s=64.6)
STANDS = ["412 of 1,889 questions (22%)", "3:26 elapsed", "about 12:18 left"]
COSTS = ["2.0 a second", "18 calls in flight", "1.2 M tokens", "3.41 USD", "7 retries", "the endpoint asked to wait 1:05"]
TROUBLES = ["9 failed: 5 unparsed, 4 refused", "3 rows rejected"]
"""412 questions in 206 s are 2 a second: the 1,477 that are left take 738.5 s."""


def test_the_panel_says_what_the_log_says() -> None:
    now = [0.0]
    watch = Watch(lambda: now[0])
    assert watch.take(Progress(phase="reading the data")) and watch.line() == "reading the data …"
    assert watch.take(Progress(done=0, total=1889))
    now[0] = 206
    failures = {"refused": 4, "unparsed": 5}
    assert not watch.take(Progress(done=412, total=1889, spent=lambda: BUSY, failures=failures, rejected=3))
    assert watch.line() == "judging: " + ", ".join(STANDS + COSTS + TROUBLES)
    lines = watch.panel().plain.splitlines()
    assert lines[0] == "judging"
    assert [part for line in lines[1:] for part in line.split(" · ")] == STANDS + COSTS + TROUBLES
    watch.take(Progress(done=1889, total=1889))
    assert "1,889 of 1,889 questions (100%)" in watch.line() and "left" not in watch.line()


def test_the_panel_moves_in_a_real_terminal_and_leaves_nothing_behind(tmp_path: Path) -> None:
    draw_edits(tmp_path / "edits", 3)
    waits = [fails(429, "slow down", headers={"Retry-After": "2"})]

    def slowly(handler: Any, body: dict[str, Any]) -> None:
        time.sleep(0.3)
        if len(server.seen) == 3 and waits:
            waits.pop()(handler, body)
            return
        says(final("Wrong Action"))(handler, body)

    with OpenAIServer(slowly) as server:
        words = ("--mode", "plain", "--criteria", "if", "--concurrency", "1", "--out", "run")
        backend = f"openai/tiny-vl?base_url={server.url}&env=none"
        with Terminal("judge", "edits", "--backend", backend, *words, folder=tmp_path) as terminal:
            code, drawn = terminal.end()
    assert code == 0, drawn
    counts = re.findall(r"(\d) of 3 questions \((\d+)%\) · \d:\d\d elapsed( · about \d:\d\d left)?", drawn)
    assert {(done, percent) for done, percent, _ in counts} >= {("0", "0"), ("1", "33"), ("2", "67")}
    assert any(done == "2" and left for done, _, left in counts)
    assert re.search(r"\d\.\d a second · 1 call in flight · 14 tokens", drawn)
    assert re.search(r"1 retry · the endpoint asked to wait 0:0[12]", drawn)
    # Every line of the panel is erased in the end.
    screen = terminal.screen()
    assert "in flight" not in screen
    assert "elapsed" not in screen
    assert screen.index("Judging") < screen.index("3 of 3 findings judged")


def test_a_judged_folder_is_followed_in_a_log(editloupe: Cli, edits: Edits, tmp_path: Path) -> None:
    folder, uri = edits(2), scripted(tmp_path / "replies.jsonl", final("Wrong Action"))
    with (folder / "metadata.jsonl").open("a", encoding="utf-8") as file:
        file.write('{"source_file_name": "gone.png", "edited_file_name": "gone.png", "instruction": "x"}\n')
    code, _, told = editloupe("judge", folder, "--backend", uri, "--criteria", "if")
    lines = told.splitlines()
    assert code == 3
    assert "reading the data …" in lines
    assert any(line.startswith("judging: 3 of 3 questions (100%)") and line.endswith("1 row rejected") for line in lines)
