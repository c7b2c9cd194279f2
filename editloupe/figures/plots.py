"""Plots of tables by matplotlib: SVG for pages, readable on light and dark and read out; PDF and PNG for a paper.

What is ordered from worst to best (labels) has the colors and marks of `TONES`; what is not (editors, judges) has those of
`COLORS`. Each series has a hatch, a dash and a mark of its own, since color alone does not tell series apart. Without
matplotlib there are no plots, and pages show the tables alone.
"""

from __future__ import annotations

import io
import math
import re
import textwrap
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final, Literal
from xml.sax.saxutils import escape

import numpy as np

from editloupe.errors import ConfigError
from editloupe.figures.escape import safe
from editloupe.stats.table import (
    BarPlot,
    Dots,
    HeatPlot,
    HistogramPlot,
    MeansPlot,
    Plot,
    RadarPlot,
    ScatterPlot,
    SizePlot,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH: Final = 720
"""Px of a plot in a file of its own."""

NARROW: Final = 350
"""Px of a plot on a phone."""

COLORS: Final = ("#3b82c4", "#c9651c", "#2a9d74", "#b5569a", "#94831a", "#7d6be0")
"""In the order of the series; each has a contrast of at least 3 with light and with dark ground."""

TONES: Final = ("#d1483a", "#d17f24", "#8f9a26", "#2a9d74")
"""From worst to best."""

NO_PLOTS: Final = "No plots: they need matplotlib; install it with pip install 'editloupe[plots]'."

_INK: Final = "#1c2024"
"""Text and axes, which SVG draws in the color of the page."""
_DPI: Final = 96
_HATCHES: Final = ("", "//", "..", "xx", "--", "oo")
_DASHES: Final = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3)))
_MARKS: Final = ("o", "s", "^", "D", "v", "P")
_AREA: Final = "Target area, share of the image"
_STEPS: Final = 3
"""Bars of a histogram of areas for each power of ten. The paper does not name its intervals."""
_SETTINGS: Final[Any] = {
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), _INK),
    "svg.fonttype": "none",
    "svg.hashsalt": "editloupe",
    "font.size": 9.5,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "hatch.linewidth": 0.6,
}
_STYLE: Final = (
    f"svg{{color:{_INK}}}@media(prefers-color-scheme:dark){{svg{{color:#e4e7ea}}}}@media print{{svg{{color:{_INK}}}}}"
)


def available() -> bool:
    """Return whether plots can be drawn."""
    return find_spec("matplotlib") is not None


def written() -> str:
    """Return what a command says of plots among the files that it wrote."""
    return "plots as SVG" if available() else "and no plots, which need matplotlib (pip install 'editloupe[plots]')"


def draw(plot: Plot, *, width: float = WIDTH) -> str:
    """Return a plot as SVG of `width` px, under its title. Raises ConfigError without matplotlib."""
    figure = _figure(plot, width)
    title = textwrap.fill(safe(plot.title), max(20, int(width / 7)))
    figure.suptitle(title, x=0.01, ha="left", fontsize=10.5, fontweight="bold")
    return _as_svg(figure, plot.title, _told(plot))


def picture(plot: Plot, form: Literal["pdf", "png"]) -> bytes:
    """Return a plot for a paper. Raises ConfigError without matplotlib."""
    written = io.BytesIO()
    dated = {"CreationDate": None} if form == "pdf" else {"Software": None}
    _figure(plot, WIDTH).savefig(written, format=form, dpi=300, bbox_inches="tight", metadata=dated)
    return written.getvalue()


def _figure(plot: Plot, width: float) -> Figure:
    drawn: dict[type, Callable[[Any, float], Figure]] = {
        MeansPlot: _means, RadarPlot: _radar, BarPlot: _bars, HeatPlot: _heat, ScatterPlot: _scatter, SizePlot: _sizes,
        HistogramPlot: _areas,
    }  # fmt: skip
    return drawn[type(plot)](plot, width)


def _canvas(width: float, height: float, **more: Any) -> tuple[Figure, Axes]:
    """A figure of `width` px and `height` inches, with one pair of axes."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise ConfigError(NO_PLOTS) from error
    from matplotlib.figure import Figure

    mpl.rcParams.update(_SETTINGS)
    figure = Figure(figsize=(width / _DPI, height), dpi=_DPI, layout="constrained")
    return figure, figure.add_subplot(**more)


def _as_svg(figure: Figure, title: str, told: str) -> str:
    """A figure as SVG with its title and what it shows in words, its ink in the color of the page."""
    written = io.StringIO()
    with warnings.catch_warnings():
        # A letter that matplotlib's own font lacks is drawn by the reader's.
        warnings.filterwarnings("ignore", message="Glyph")
        figure.savefig(written, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    text = re.sub(r"<metadata>.*?</metadata>", "", written.getvalue(), flags=re.DOTALL)
    text = re.sub(re.escape(_INK), "currentColor", text[text.index("<svg") :])
    head = f'<title id="t">{escape(safe(title))}</title><desc id="d">{escape(safe(told))}</desc><style>{_STYLE}</style>'
    text = re.sub(r'(<svg[^>]*?) width="([\d.]+)pt" height="([\d.]+)pt"', _in_px, text, count=1)
    return re.sub(r"<svg([^>]*)>", r'<svg role="img" aria-labelledby="t d"\1>', text, count=1).replace(">", f">{head}", 1)


def _in_px(match: re.Match[str]) -> str:
    width, height = (f"{float(points) / 72 * _DPI:.0f}" for points in (match[2], match[3]))
    return f'{match[1]} width="{width}" height="{height}"'


def _means(plot: MeansPlot, width: float) -> Figure:
    """Bars with intervals: a group a row, a bar a series."""
    many = len(plot.series)
    figure, axes = _canvas(width, 0.9 + 0.22 * len(plot.rows) * max(2, many))
    for number, (name, cells) in enumerate(plot.series):
        # Where there is no value or interval, nothing is drawn for it.
        value, low, high = (
            np.array([getattr(cell, end) for cell in cells], dtype=float) for end in ("value", "low", "high")
        )
        places = np.arange(len(cells)) + (number + 0.5) / many * 0.8 - 0.4
        axes.barh(
            places, value, height=0.8 / many, label=_label(name), xerr=np.maximum([value - low, high - value], 0.0),
            error_kw={"ecolor": _INK, "elinewidth": 1, "capsize": 2}, **_filled(number),
        )  # fmt: skip
    _named_rows(axes, plot.rows)
    axes.set_xlim(0, 100)
    axes.set_xlabel("Mean, 0 to 100, with its 95 % interval")
    _legend(axes, only_several=True)
    return figure


def _radar(plot: RadarPlot, width: float) -> Figure:
    """Means on axes of their own, a line a series; a mean that is missing leaves a gap."""
    figure, axes = _canvas(width, width / _DPI * 0.75, projection="polar")
    angles = 2 * np.pi * np.arange(len(plot.rows) + 1) / len(plot.rows)
    for number, (name, cells) in enumerate(plot.series):
        line = np.array([cell.value for cell in (*cells, cells[0])], dtype=float)
        style = {"color": _color(number, None), "ls": _of(_DASHES, number), "marker": _of(_MARKS, number)}
        axes.plot(angles, line, label=_label(name), markersize=4, **style)
    axes.set_xticks(angles[:-1], [textwrap.fill(safe(name), 14) for name in plot.rows])
    axes.tick_params(axis="x", pad=20)
    axes.set_ylim(0, 100)
    axes.set_theta_offset(math.pi / 2)  # type: ignore[attr-defined]
    _legend(axes, only_several=True)
    return figure


def _bars(plot: BarPlot, width: float) -> Figure:
    """Stacked bars: how often each label was given, in the order of the table, a row each."""
    figure, axes = _canvas(width, 1.3 + 0.3 * len(plot.rows))
    names = [name for name, _ in plot.rows]
    counts = np.array([[n for _, n in own] for _, own in plot.rows], dtype=float)
    shares = 100 * counts / np.maximum(1, counts.sum(axis=1, keepdims=True))
    left = np.cumsum(shares, axis=1) - shares
    for number, (label, _) in enumerate(plot.rows[0][1] if plot.rows else ()):
        style = _filled(number, plot.goods[number] if plot.goods else None)
        axes.barh(range(len(names)), shares[:, number], left=left[:, number], height=0.7, label=_label(label), **style)
    _named_rows(axes, [""] if names == ["(not named)"] else names)
    axes.set_xlim(0, 100)
    axes.set_xlabel("Share of what was judged, %")
    _legend(axes)
    return figure


def _heat(plot: HeatPlot, width: float) -> Figure:
    """A grid of figures, colored from worst to best, with the number in each square."""
    figure, axes = _canvas(width, 1.3 + 0.42 * len(plot.names))
    from matplotlib.colors import LinearSegmentedColormap

    shares = np.array([[plot.cells.get((one, other)) for other in plot.names] for one in plot.names], dtype=float)
    colors = LinearSegmentedColormap.from_list("tones", TONES)
    axes.pcolormesh(np.ma.masked_invalid(shares), cmap=colors, vmin=0, vmax=100, edgecolors=_INK, linewidth=0.4)
    for (y, x), share in np.ndenumerate(shares):
        if (plot.names[y], plot.names[x]) in plot.cells:
            text, ink = ("–", _INK) if np.isnan(share) else (f"{share:.0f}", "#000")
            axes.text(x + 0.5, y + 0.5, text, ha="center", va="center", fontsize=8, color=ink)
    turned = 20 if width < WIDTH else 0
    axes.set_xticks(np.arange(len(plot.names)) + 0.5, [safe(name) for name in plot.names], rotation=turned)
    _named_rows(axes, plot.names, at=0.5)
    return figure


def _areas(plot: HistogramPlot, width: float) -> Figure:
    """How many samples have which area, and the share that has at most it (DLEBench, Figures 4 and 3)."""
    figure, axes = _canvas(width, 2.8)
    for low, high, count in _steps(plot):
        bar = axes.bar(low, count, width=high - low, align="edge", color=COLORS[0], edgecolor=_INK, linewidth=0.4)
        axes.bar_label(bar, padding=1)
    if values := sorted(plot.shares):
        line = axes.twinx()
        line.step([values[0], *values], 100 * np.arange(len(values) + 1) / len(values), where="post", color=COLORS[1])
        line.set_ylim(0, 103)
        line.set_ylabel("Of at most this area, %")
    _log_shares(axes, values)
    axes.set_ylabel("Samples")
    axes.set_title(_counted(plot), fontsize=9.5, loc="left")
    return figure


def _steps(plot: HistogramPlot) -> list[tuple[float, float, int]]:
    """(from, to, how many) in equal steps of the logarithm, which begin at their left edge."""
    # What is an edge on paper may lie a bit below it in floating point.
    counts = Counter(min(math.floor(math.log10(v) * _STEPS + 1e-9), -1) for v in plot.shares)
    return [(10 ** (step / _STEPS), 10 ** ((step + 1) / _STEPS), n) for step, n in sorted(counts.items())]


def _counted(plot: HistogramPlot) -> str:
    known = f"{len(plot.shares):,} sample{'s' * (len(plot.shares) != 1)}"
    return f"{known}, {plot.unknown:,} more of unknown area" if plot.unknown else known


def _scatter(plot: ScatterPlot, width: float) -> Figure:
    """Scores against areas; dots of one score are spread a little, so that they do not cover each other."""
    figure, axes = _canvas(width, 4.2)
    _dots(axes, plot.groups, spread=4)
    if plot.trend:
        axes.plot(*zip(*plot.trend, strict=True), color=_INK, linewidth=1.6, label=_label(plot.trend_title))
    else:
        axes.plot([], [], " ", label=_label(plot.trend_title))
    _log_shares(axes, [x for group in plot.groups for x, _ in group.points])
    axes.set_ylabel("Score, 0 to 100")
    axes.set_ylim(-4, 104)
    _legend(axes)
    return figure


def _sizes(plot: SizePlot, width: float) -> Figure:
    """Widths and heights of targets on two log axes, colored by score."""
    figure, axes = _canvas(width, 4.6)
    _dots(axes, plot.groups)
    points = [point for group in plot.groups for point in group.points]
    _log_shares(axes, [x for x, _ in points], title="Target width, share of the image's")
    _log_shares(axes, [y for _, y in points], title="Target height, share of the image's", which="y")
    _legend(axes)
    return figure


def _dots(axes: Axes, groups: Sequence[Dots], *, spread: float = 0) -> None:
    """Draw points, a color and mark a group.   spread: how far dots of one height are moved apart at most."""
    for number, group in enumerate(groups):
        x, y = np.array(group.points, dtype=float).reshape(-1, 2).T
        moved = y + spread * (np.arange(len(y)) % 9 / 8 - 0.5)
        color, mark = _color(number, group.good), _of(_MARKS, _place(number, group.good))
        label = _label(f"{group.name}: {len(group.points)}")
        axes.scatter(x, moved, s=16, alpha=0.75, color=color, marker=mark, label=label, clip_on=not spread)


def _named_rows(axes: Axes, names: Iterable[str], *, at: float = 0) -> None:
    """The first row on top; a long name is cut.   at: where in a row its name stands."""
    listed = [safe(name) for name in names]
    cut = [name if len(name) <= 32 else f"{name[:31]}…" for name in listed]
    axes.set_yticks(np.arange(len(listed)) + at, cut)
    axes.set_ylim(len(listed) - 0.5 + at, at - 0.5)


def _log_shares(axes: Axes, values: Sequence[float], *, title: str = _AREA, which: Literal["x", "y"] = "x") -> None:
    """An axis of shares over whole decades, down to that of the smallest value."""
    decade = min(-3, math.floor(math.log10(min(values, default=1.0)) + 1e-9))
    axis = axes.xaxis if which == "x" else axes.yaxis
    getattr(axes, f"set_{which}scale")("log")
    getattr(axes, f"set_{which}lim")(10.0**decade, 1.15)
    getattr(axes, f"set_{which}label")(f"{title} (log scale)")
    ticks = [10.0**n for n in range(decade, 1)]
    axis.set_ticks(ticks, labels=[f"{100 * tick:.10f}".rstrip("0").rstrip(".") + " %" for tick in ticks])


def _legend(axes: Axes, *, only_several: bool = False) -> None:
    """Below the plot, where there is room for names."""
    _, names = axes.get_legend_handles_labels()
    if len(names) > int(only_several):
        figure = axes.get_figure()
        assert figure is not None
        figure.legend(loc="outside lower left", frameon=False, ncols=1 if max(map(len, names)) > 24 else 2, fontsize=8.5)


def _label(name: str) -> str:
    """A name for a legend, which leaves out those that begin with an underscore."""
    return f" {safe(name)}" if name.startswith("_") else safe(name)


def _of(kinds: Sequence[Any], number: int) -> Any:
    return kinds[number % len(kinds)]


def _place(number: int, good: float | None) -> int:
    """The place of a group among the colors: of a label by how good it is."""
    return number if good is None else min(3, max(0, round(good / 100 * 3)))


def _color(number: int, good: float | None) -> str:
    return str(_of(COLORS if good is None else TONES, _place(number, good)))


def _filled(number: int, good: float | None = None) -> dict[str, Any]:
    """How a series fills its bars."""
    hatch = _of(_HATCHES, _place(number, good))
    return {"color": _color(number, good), "hatch": hatch, "edgecolor": _INK, "linewidth": 0.4}


def _told(plot: Plot) -> str:
    """What is read out in the picture's place."""
    match plot:
        case ScatterPlot():
            return plot.description
        case HistogramPlot():
            steps = ", ".join(f"{100 * low:.2g} to {100 * high:.2g} %: {n}" for low, high, n in _steps(plot))
            return f"{plot.title}: {'; '.join(filter(None, (_counted(plot), steps)))}."
        case _:
            return f"{plot.title}; the table has its numbers."
