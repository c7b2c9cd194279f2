"""Plots: drawn at every width, read out, without a script, and text from outside stays text."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from editloupe.figures import plots
from editloupe.figures.plots import NARROW, WIDTH, draw, picture
from editloupe.figures.write import table_files
from editloupe.stats.table import (
    BarPlot,
    Cell,
    Dots,
    HeatPlot,
    HistogramPlot,
    MeansPlot,
    Plot,
    RadarPlot,
    ScatterPlot,
    SizePlot,
    simple,
)

pytest.importorskip("matplotlib", reason="it is in the extra `plots`")

_SVG = "{http://www.w3.org/2000/svg}"
HOSTILE = "</text><script>alert(1)</script> $x_1$ \x1b"


def every(name: str = "alpha") -> list[Plot]:
    """One plot of each kind, with a name from outside."""
    cell = Cell(value=50.0, low=40.0, high=60.0)
    dots = (Dots(name=name, points=((0.1, 100.0), (0.001, 100.0)), good=100.0), Dots(name="bad", points=(), good=0.0))
    return [
        MeansPlot(name="m", title="Means", rows=(name, "b"), series=((name, (cell, Cell())), ("_two", (cell, cell)))),
        RadarPlot(name="r", title="Radar", rows=(name, "b", "c"),
                  series=((name, (cell, Cell(), cell)), ("_two", (cell, cell, cell)))),
        BarPlot(name="b", title="Labels", rows=((name, ((name, 3), ("bad", 1))),), goods=(100, 0)),
        HeatPlot(name="h", title="Heat", names=(name, "x"), cells={(name, "x"): 50.0, ("x", name): None}),
        HistogramPlot(name="a", title="Areas", shares=(0.0002, 0.02), unknown=1),
        HistogramPlot(name="none", title="No area", shares=(), unknown=2),
        ScatterPlot(name="s", title="Scatter", groups=dots, trend=((0.01, 50.0), (0.1, 60.0)), trend_title=name,
                    description="d"),
        SizePlot(name="z", title="Sizes", groups=(Dots(name=name, points=((0.1, 0.2),)),), description="Sizes: one."),
    ]  # fmt: skip


@pytest.mark.parametrize("width", [NARROW, WIDTH])
def test_every_plot_is_drawn_at_its_width_and_text_stays_text(width: int) -> None:
    for plot in every(HOSTILE):
        text = draw(plot, width=width)
        root = ET.fromstring(text)
        assert root.get("width") == str(width) and root.findtext(f"{_SVG}title") == plot.title
        assert "<script" not in text and "http" not in text.replace("http://www.w3.org", "")
        # Its ink is that of the page, on light and on dark.
        assert "currentColor" in text and "prefers-color-scheme:dark" in text
        # The same again, or each report would be another file.
        assert width == WIDTH or draw(plot, width=width) == text


def test_plots_for_a_paper_are_files(tmp_path: Path) -> None:
    (first, *_) = every()
    assert picture(first, "pdf").startswith(b"%PDF") and picture(first, "png").startswith(b"\x89PNG")


def test_what_is_seen_is_said_in_words() -> None:
    read_out = [plot for plot in every() if plot.name in ("a", "z")]
    told = {plot.name: ET.fromstring(draw(plot)).findtext(f"{_SVG}desc") or "" for plot in read_out}
    # 0.02 % and 2 %, in thirds of a power of ten.
    assert told["a"] == "Areas: 2 samples, 1 more of unknown area; 0.01 to 0.022 %: 1, 1 to 2.2 %: 1."
    assert told["z"] == "Sizes: one."


def test_without_matplotlib_a_table_is_written_without_its_plots(monkeypatch: pytest.MonkeyPatch) -> None:
    table = simple("t", "T", ("A",), [("x",)], plots=tuple(every()[:2]))
    assert [name for name, _ in table_files([table])] == ["t.csv", "m.svg", "r.svg"]
    monkeypatch.setattr(plots, "find_spec", lambda name: None)
    assert [name for name, _ in table_files([table])] == ["t.csv"] and "pip install 'editloupe[plots]'" in plots.NO_PLOTS
