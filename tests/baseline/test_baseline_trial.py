"""The baseline's trial: the photographs that it needs, the tables it writes, and those that stand in the docs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

from benchmarks.baseline_trial import TARGETS, measure, photographs, report
from benchmarks.pages import DOCS
from editloupe.data.probes import AREAS, FAILURES


def tables(text: str) -> list[list[list[str]]]:
    """Return the Markdown tables of a text as cells, without the lines of dashes."""
    found: list[list[list[str]]] = [[]]
    for line in text.splitlines():
        if not line.startswith("|"):
            found.append([])
        elif not line.startswith("|---"):
            found[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    return [table for table in found if table]


def check(text: str, sets: list[str], *, judges: int) -> None:
    figures, cells, instead = tables(text)
    for table in (figures, cells, instead):
        assert len({len(row) for row in table}) == 1
    assert len(figures[0]) == 1 + judges
    assert cells[0] == ["failure", "", *(f"{100 * area:g} %" for area in AREAS), *(f"{name}, all" for name in sets)]
    # In the whole set no failure is without a row, and each stands in the order of `FAILURES`.
    named = list(dict.fromkeys(row[0].strip("`") for row in cells[1:-2]))
    assert named == [name for name in FAILURES if name in named]
    assert [row[:2] for row in cells[-2:]] == [["all", "IF"], ["all", "VC"]]
    assert len(instead) == 1 + 8
    assert len(instead[0]) == 1 + 2 * len(sets)


def test_the_docs_have_the_tables_of_both_sets() -> None:
    page = (DOCS / "baseline.md").read_text(encoding="utf-8")
    text = page.split("<!-- measured trial: begin -->")[1].split("<!-- measured trial: end -->")[0]
    check(text, ["drawn", "photographs"], judges=4)
    assert all(f"`{failure}`" in text for failure in FAILURES)


def test_the_photographs_get_their_names_and_boxes(tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "edited").mkdir(parents=True)
    (data / "source").mkdir()
    for name in TARGETS:
        Image.new("RGB", (8, 8)).save(data / "source" / name)
        (data / "edited" / name).write_bytes(b"an edit of the same name")
    folder = photographs(data, tmp_path / "out")
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) == len({row["id"] for row in rows}) == sum(map(len, TARGETS.values()))
    assert rows[0] == {
        "id": "signicade-0",
        "source_file_name": "signicade.jpg",
        "target_name": "sandwich board",
        "bbox": [0.5176, 0.5, 0.5388, 0.5486],
        "bbox_format": "unit",
    }
    assert rows[3]["bbox_format"] == "xyxy"
    assert all((folder / name).read_bytes() == (data / "source" / name).read_bytes() for name in TARGETS)


def test_a_photograph_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"missing \['signicade.jpg'"):
        photographs(tmp_path, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_small_trial_goes_the_whole_road(tmp_path: Path) -> None:
    made = measure("drawn", "drawn", tmp_path, count=24, seed=1, modes=("tool", "plain"))
    assert [judge.mode for judge in made.trial.judges] == ["tool", "plain"]
    assert 0 < made.probes <= 24
    assert made.built[1] > 0
    check(report([made]), ["drawn"], judges=2)
