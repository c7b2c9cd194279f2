"""The arithmetic of docs/scale.md prints what the page shows, and stands on the figures that were measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")


def test_the_arithmetic_prints_what_the_page_shows(capsys: pytest.CaptureFixture[str]):
    code, shown = (re.findall(rf"```{kind}\n(.*?)```", PAGE, re.DOTALL)[0] for kind in ("python", "text"))
    exec(compile(code, "docs/scale.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_the_arithmetic_takes_the_measured_figures():
    measured = (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")
    block = measured.partition("<!-- processes: begin -->")[2].partition("<!-- processes: end -->")[0]
    table = [[cell.strip() for cell in line.split("|")] for line in block.splitlines() if line.startswith("|")]
    row = dict(zip(table[0], next(row for row in table if row[1].startswith("editloupe, ")), strict=True))
    cpu_ms, disk_mb = row["CPU ms a sample"], row["disk MB"]
    assert f"TASK_S, TASK_BYTES = {float(cpu_ms) / 1000:.2f}, {disk_mb}e6 / 192" in PAGE
