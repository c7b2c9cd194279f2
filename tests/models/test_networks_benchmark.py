"""The table of `benchmarks.networks`, and that the command runs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.networks import Row, Way, boxes_apart, difference_table, measure, pixels_apart, table
from editloupe.models.detect.base import Detection
from editloupe.models.devices import Device
from editloupe.values import Box


def row(way: str, rate: float, *, callers: int = 8, batch: int = 1, peak_gib: float | None = None) -> Row:
    return Row(network="Net", way=way, callers=callers, batch=batch, seconds=callers / rate, rate=rate, peak_gib=peak_gib)


def test_each_way_stands_beside_the_peer_of_as_many_items() -> None:
    rows = [row("loop", 4.0, callers=1), row("loop", 2.0), row("editloupe", 3.0, batch=8, peak_gib=1.25)]
    lines = table(rows, "two abacuses").splitlines()
    assert lines[0] == "Measured on: two abacuses. Random weights at full size, medians."
    # 3 a second against the 2 of eight callers, not the 4 of one.
    assert lines[-1] == "| Net | editloupe | 8 | 8 | 3 | 1.50 | 1.2 |"
    assert lines[-2] == "| Net | loop | 8 | 1 | 2 | 1.00 | – |"


def test_ways_take_turns_and_the_first_turn_is_not_counted() -> None:
    order: list[str] = []
    ways = [Way(name, 2, 1, lambda name=name: order.append(name)) for name in ("a", "b")]
    rows = measure("Net", ways, device=Device("cpu", half=False), rounds=2)
    assert order == ["a", "b"] * 3
    assert [r.way for r in rows] == ["a", "b"]
    assert all(r.peak_gib is None for r in rows)


def test_outputs_are_the_same_up_to_a_pixel_and_a_hundredth_of_a_score() -> None:
    def one(x: float, score: float) -> Detection:
        return Detection(box=Box(x, 0, x + 10, 10), score=score)

    beside = [[one(0, 0.5), one(50, 0.9)]]
    # The first is 0.5 px away with the same score; of the second the score differs by 0.1.
    apart = boxes_apart("Net", "this beside that", [[one(0.5, 0.5), one(50, 0.8)]], beside)
    assert (apart.same, apart.worst, apart.mean) == (0.5, pytest.approx(0.1), pytest.approx(0.05))
    grey = np.full((2, 2, 3), 100, np.uint8)
    other = grey.copy()
    other[0, 0] = (101, 104, 100)
    # Of 12 values one differs by 1, which is the same, and one by 4.
    drawn = pixels_apart("Net", "this beside that", [other], [grey])
    assert (drawn.same, drawn.worst, drawn.mean) == (pytest.approx(11 / 12), 4, pytest.approx(5 / 12))
    assert difference_table([drawn]).splitlines()[-1].startswith("| Net | this beside that | 91.7 % | 4 | 0.42 | ")


@pytest.mark.slow
def test_the_command_measures_real_esrgan_and_writes_its_figures(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the extra `vision`")
    pytest.importorskip("transformers", reason="needs the extra `vision`")
    out = tmp_path / "figures.json"
    command = [sys.executable, "-m", "benchmarks.networks", "--quick", "--device", "cpu", "--threads", "1"]
    done = subprocess.run(
        [*command, "--only", "upscaler", "--callers", "2", "--json", str(out)],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    figures = json.loads(out.read_text(encoding="utf-8"))
    assert "1 CPU thread" in figures["machine"]
    assert [(r["callers"], r["batch"]) for r in figures["rows"]] == [(2, 1), (2, 1), (2, 2)]
    assert all(r["rate"] > 0 for r in figures["rows"])
    assert [(d["ways"], d["worst"]) for d in figures["differences"]] == [("a batch of 4 beside one by one", 0)]
    assert "| editloupe | 2 | 2 |" in done.stdout
