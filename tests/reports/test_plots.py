"""Plots as SVG: where marks lie, what is read out, and that text from outside stays text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from editloupe.reports.plots import Shares, bars, cumulative, line_class, radar, scatter
from editloupe.tables import Dots, ScatterPlot

_SVG = "{http://www.w3.org/2000/svg}"


def _lines(svg: str) -> list[str]:
    """The paths of the series; those of the legend are inside groups."""
    return [p.get("d", "") for p in ET.fromstring(svg).findall(f"{_SVG}path") if "line" in p.get("class", "")]


def test_a_step_lies_where_its_share_of_the_image_and_of_the_targets_say() -> None:
    svg = cumulative([Shares(name="a", values=(0.1, 0.001, 1.0, 0.1))])
    # x: three decades, 0.1 % to 100 %, on px 76 to 692: 0.1 % at 76, 10 % at 76 + 2/3 · 616 = 486.7, 100 % at 692.
    # y: px 344 (0 %) to 44 (100 %): one of four at 344 - 75 = 269, three at 344 - 225 = 119.
    assert _lines(svg) == ["M76.0 344.0V269.0H486.7V119.0H692.0V44.0"]


def test_the_axis_goes_down_to_the_decade_of_the_smallest_target() -> None:
    svg = cumulative([Shares(name="a", values=(0.00002, 0.5))])
    labels = [t.text for t in ET.fromstring(svg).findall(f"{_SVG}text")]
    assert "0.001 %" in labels and "0.0001 %" not in labels and "100 %" in labels


def test_the_plot_says_in_words_what_it_shows_and_what_is_unknown() -> None:
    svg = cumulative(
        [Shares(name="small", values=(0.0005, 0.005, 0.05, 0.5), unknown=2), Shares(name="none", values=(), unknown=1)]
    )
    root = ET.fromstring(svg)
    # Under 0.1 %: 1 of 4; under 1 %: 2 of 4; under 10 %: 3 of 4.
    told = root.findtext(f"{_SVG}desc", "")
    assert "small: 4 targets, 2 more of unknown area; 25 % are under 0.1 %, 50 % are under 1 %, 75 % are under 10 %" in told
    assert "none: 0 targets, 1 more of unknown area; no line." in told
    assert len(_lines(svg)) == 1
    named = root.get("aria-labelledby", "").split()
    assert named == [root.find(f"{_SVG}title").get("id"), root.find(f"{_SVG}desc").get("id")]  # type: ignore[union-attr]


def test_names_from_outside_stay_text() -> None:
    name = "<script>alert(1)</script>\x1b" + "x" * 100
    groups = ET.fromstring(cumulative([Shares(name=name, values=(0.5,))])).findall(f"{_SVG}g")
    assert (groups[0].findtext(f".//{_SVG}text") or "").startswith("<script>alert(1)</script>␛x")
    assert (groups[0].findtext(f".//{_SVG}title") or "").endswith("x: 1 target")


def test_no_series_make_an_empty_plot() -> None:
    assert _lines(cumulative([])) == []


@pytest.mark.parametrize("value", [0.0, -0.1, 1.5, float("nan")])
def test_what_is_no_share_of_an_image_is_refused(value: float) -> None:
    with pytest.raises(ValueError, match="at most 1"):
        cumulative([Shares(name="a", values=(value,))])


def test_each_of_many_series_has_a_line_of_its_own() -> None:
    assert len({line_class(n) for n in range(36)}) == 36


def _texts(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter(f"{_SVG}text")]


def test_dots_are_said_to_be_spread_and_the_scores_axis_ends_at_100() -> None:
    dots = Dots(name="good", points=((0.1, 100.0), (0.1, 100.0)))
    few = "No trend: it takes windows of 10 samples"
    plot = ScatterPlot(name="n", title="t", groups=(dots,), trend=(), trend_title=few, description="d")
    texts = _texts(scatter(plot))
    assert few in texts
    assert "Dots are spread within the band of their score, so that they do not cover each other." in texts
    assert [t for t in texts if t.isdigit()] == ["0", "25", "50", "75", "100"]
    assert 'class="trend"' not in scatter(plot)


@pytest.mark.parametrize(
    ("name", "most"),
    # A bar's name has 164 px: 12 wide letters of 13.5 px, or 21 narrow ones of 7.8.
    [("图像编辑模型测试版本一二三四五六七", 12), ("abcdeabcdeabcdeabcdeabcdeabcde", 21)],
)
def test_a_name_is_cut_by_its_width_and_kept_in_its_tooltip(name: str, most: int) -> None:
    svg = bars([(name, [("good", 1)])], title="Title " * 30)
    root = ET.fromstring(svg)
    (shown,) = (t for t in _texts(svg) if t.startswith(name[:5]))
    assert shown.endswith("…") and name.startswith(shown[:-1]) and most - 3 <= len(shown) <= most
    assert name in [t.text for t in root.iter(f"{_SVG}title")]
    assert next(t for t in _texts(svg) if t.startswith("Title")).endswith("…")
    assert "短い名前" in _texts(bars([("短い名前", [("good", 1)])], title="t"))


def test_the_numbers_of_the_rings_lie_on_top_of_the_lines() -> None:
    svg = radar(["a", "b", "c"], [("x", [10.0, 50.0, 90.0])], title="t")
    assert svg.index('class="halo"') > svg.rindex('class="dot')
