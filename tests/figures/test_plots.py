"""Plots as SVG: where marks lie, what is read out, and that text from outside stays text."""

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest

from editloupe.figures.plots import NARROW, TONES, Shares, bars, cumulative, draw, histogram, line_class, means, scatter
from editloupe.stats.table import Cell, Dots, HeatPlot, RadarPlot, ScatterPlot, SizePlot
from editloupe.viewer.pages import assets

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


def test_no_dot_lies_outside_the_scale_of_scores() -> None:
    """Nine dots of 100 lie from 95 to 100, nine of 0 from 0 to 5, nine of 50 from 45 to 55."""
    groups = tuple(Dots(name=f"{score}", points=((0.1, score),) * 9) for score in (100.0, 50.0, 0.0))
    plot = ScatterPlot(name="n", title="t", groups=groups, trend=(), trend_title="", description="d")
    root = ET.fromstring(scatter(plot))
    # The ticks of 0 and 100 are 4 px above their words.
    at = {t.text: float(t.get("y", "")) - 4 for t in root.iter(f"{_SVG}text") if t.get("text-anchor") == "end"}
    a_point = (at["0"] - at["100"]) / 100
    values = [(at["0"] - float(c.get("cy", ""))) / a_point for c in root.iter(f"{_SVG}circle") if c.get("r") == "3"]
    for own, (low, high) in zip((values[:9], values[9:18], values[18:]), ((95, 100), (45, 55), (0, 5)), strict=True):
        assert low - 0.1 <= min(own) and max(own) <= high + 0.1
        assert len({round(value, 1) for value in own}) == 9


@pytest.mark.parametrize("width", [NARROW, 720])
def test_what_a_plot_says_below_is_broken_and_not_cut_where_it_is_narrow(width: int) -> None:
    few = "No trend: it takes two windows of 10 samples, and 12 samples have a box and a score"
    dots = Dots(name="good", points=((0.1, 100.0),))
    plot = ScatterPlot(name="n", title="Consistency by target width and height", groups=(dots,), trend=(),
                       trend_title=few, description="d")  # fmt: skip
    svg = scatter(plot, width=width)
    texts = _texts(svg)
    assert few in " ".join(texts) and plot.title in " ".join(texts) and "…" not in "".join(texts)
    assert ET.fromstring(svg).get("width") == str(width)
    lowest = max(float(t.get("y", "")) for t in ET.fromstring(svg).iter(f"{_SVG}text"))
    assert lowest < float(ET.fromstring(svg).get("height", ""))


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


def test_means_have_their_interval_and_a_row_that_nobody_was_judged_on_says_so() -> None:
    known = Cell(value=50.0, low=25.0, high=75.0, judged=4, asked=5)
    svg = means(["Change Color", "Add"], [("x", [known, Cell(judged=0, asked=3)])], title="t")
    # 0 to 100 on px 180 to 570, 3.9 px a point: the bar is 195 px wide, the whisker runs from 277.5 to 472.5.
    bar = next(r for r in ET.fromstring(svg).iter(f"{_SVG}rect") if "bar" in r.get("class", ""))
    assert (bar.get("x"), bar.get("width")) == ("180", "195.0")
    (whisker,) = (p.get("d", "") for p in ET.fromstring(svg).iter(f"{_SVG}path") if p.get("class") == "whisker")
    assert whisker.startswith("M277.5 ") and "H472.5" in whisker
    assert {"50.0 (4/5)", "– (0/3)"} <= set(_texts(svg))
    assert "Add not judged" in ET.fromstring(svg).findtext(f"{_SVG}desc", "")


def test_labels_of_a_metric_have_the_colours_and_shapes_of_worst_to_best_and_not_those_of_categories() -> None:
    labels = [("Perfect", 3), ("Fair", 2), ("Poor", 1), ("Lost", 4)]
    svg = bars([("a", labels)], title="t", goods=(100.0, 66.7, 33.3, 0.0))
    kinds = [r.get("class", "").split()[1] for r in ET.fromstring(svg).iter(f"{_SVG}rect") if "bar" in r.get("class", "")]
    assert kinds == ["t3", "t2", "t1", "t0"] * 2, "the parts, then the legend"
    assert "s0" not in kinds and len(TONES) == 4
    lost = Dots(name="Lost", points=((0.1, 0.1),), good=0.0)
    drawn = draw(SizePlot(name="n", title="t", groups=(lost,), note=""))
    # A square, also in the legend: colour alone says nothing.
    assert drawn.count('<path class="dot t0"') == 2 and "<circle" not in drawn


def test_the_palette_of_plots_is_that_of_the_pages() -> None:
    style = assets()["viewer.css"].decode()
    for number, (light, dark) in enumerate(TONES):
        assert f"--tone-{number}: {light};" in style and f"--tone-{number}: {dark};" in style


def _bars(svg: str) -> list[tuple[float, float, float]]:
    """(x, width, height) of each bar in px."""
    found = [r for r in ET.fromstring(svg).findall(f"{_SVG}rect") if "bar" in r.get("class", "")]
    return [(float(r.get("x", "")), float(r.get("width", "")), float(r.get("height", ""))) for r in found]


def test_a_histogram_counts_areas_in_thirds_of_a_power_of_ten() -> None:
    # 0.1 % begins a bar, 0.2 % is in it (to 0.215 %), 0.3 % in the next; 100 % is in the last (from 46.4 %).
    svg = histogram([Shares(name="", values=(0.001, 0.002, 0.003, 1.0), unknown=2, of="sample")], title="t")
    # Three decades on px 76 to 692 make nine bars of 68.44 px, less 1 px on each side.
    assert [x for x, *_ in _bars(svg)] == [pytest.approx(v, abs=0.06) for v in (77, 77 + 616 / 9, 77 + 616 * 8 / 9)]
    assert {round(width, 1) for _, width, _ in _bars(svg)} == {66.4}
    # The axis of 220 px ends at 2 · 1.12.
    assert [height for *_, height in _bars(svg)] == [pytest.approx(v, abs=0.06) for v in (196.4, 98.2, 98.2)]
    texts = _texts(svg)
    assert "4 samples, 2 more of unknown area" in texts
    told = ET.fromstring(svg).findtext(f"{_SVG}desc", "")
    assert "0.1 to 0.22 %: 2, 0.22 to 0.46 %: 1, 46 to 100 %: 1" in told


def test_each_data_set_of_a_histogram_has_a_panel_and_an_empty_one_no_bar() -> None:
    two = (Shares(name="a", values=(0.01,) * 300), Shares(name="none", values=(), unknown=1))
    svg = histogram(two, title="t")
    assert len(_bars(svg)) == 1
    assert {"a: 300 targets", "none: 0 targets, 1 more of unknown area", "300"} <= set(_texts(svg))
    assert _bars(histogram([], title="t")) == []


def test_a_target_lies_where_its_width_and_height_say_in_its_labels_colour() -> None:
    good, lost = Dots(name="good", points=((0.1, 0.01),)), Dots(name="lost", points=((1.0, 1.0), (0.01, 0.1)))
    svg = draw(SizePlot(name="n", title="t", groups=(good, lost), note="Of several targets the largest."))
    found = ET.fromstring(svg).findall(f"{_SVG}circle")
    # Two decades each: 1 % to 100 % on px 76 to 692 across and px 464 to 44 up.
    assert [(c.get("class"), c.get("cx"), c.get("cy")) for c in found] == [
        ("dot s0", "384.0", "464.0"), ("dot s1", "692.0", "44.0"), ("dot s1", "76.0", "254.0"),
    ]  # fmt: skip
    both = SizePlot(name="n", title="t", groups=(good, Dots(name="lost", points=((0.1, 0.01),))), note="")
    cx = [float(c.get("cx", "")) for c in ET.fromstring(draw(both)).findall(f"{_SVG}circle")]
    # Another of the same size: 5 px away at the golden angle, 5 · cos 137.5° = −3.7.
    assert cx == [384.0, 380.3]
    assert {"good: 1", "lost: 2", "Of several targets the largest."} <= set(_texts(svg))


def _heat() -> HeatPlot:
    return HeatPlot(
        name="heat",
        title="Judge: accuracy in percent",
        rows=("wrong colour", "restyled"),
        columns=("0.1 %", "1 %"),
        columns_title="Target area",
        cells=(((25.0, 4, 5), (100.0, 4, 4)), ((None, 0, 3), None)),
    )


@pytest.mark.parametrize("width", [720, NARROW])
def test_a_heat_map_says_in_each_cell_what_it_rests_on(width: float) -> None:
    root = ET.fromstring(draw(_heat(), width=width))
    groups = [g for g in root.findall(f"{_SVG}g/{_SVG}g") + root.findall(f"{_SVG}g") if g.find(f"{_SVG}rect") is not None]
    found = [(g.find(f"{_SVG}rect").get("class"), [t.text for t in g.findall(f"{_SVG}text")]) for g in groups]  # type: ignore[union-attr]
    # Four tones over 0 to 100: 25 is the second (25 / 100 * 3 = 0.75, rounded 1), 100 the best. What was not asked is no
    # cell; one of which nothing was judged has no tone.
    assert found == [("bar t1", ["25", "4/5"]), ("bar t3", ["100", "4/4"]), ("bar none", ["–", "0/3"])]
    assert "wrong colour: 0.1 % 25, 1 % 100. restyled: 0.1 % –." in root.findtext(f"{_SVG}desc", "")


def test_a_radar_is_broken_where_there_is_no_figure() -> None:
    plot = RadarPlot(
        name="radar",
        title="All",
        axes=("a", "b", "c", "d"),
        series=(("one", (50.0, 100.0, None, 0.0)), ("two", (0.0,) * 4)),
    )
    root = ET.fromstring(draw(plot))
    # The middle is at px 360, 258, the outer ring 170 px away: a upwards, b to the right, c downwards, d to the left.
    first, second = _lines(draw(plot))
    assert first == "M360.0 173.0L530.0 258.0M360.0 258.0L360.0 173.0"
    assert second.count("M360.0 258.0L360.0 258.0") == 4
    assert "one: a 50, b 100, c –, d 0. two: a 0, b 0, c 0, d 0." in root.findtext(f"{_SVG}desc", "")
    assert "A line is broken where a judge has no figure." in [t.text for t in root.iter(f"{_SVG}text")]
