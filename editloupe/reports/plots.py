"""Plots as SVG text, written by hand: no plotting library, readable in light and dark, with words for screen readers.

A plot is `svg(...)` around a grid of two axes and the marks drawn in it. Colours are classes (`line s0`, `dot s1`), so that
one style sheet serves light and dark, and each series has a dash of its own, since colour alone does not tell lines apart.
What is ordered from worst to best (labels) has the colours and shapes of `TONES`, which the viewer's pages share; what is
not (editors, judges) has those of `COLOURS`.
"""

from __future__ import annotations

import math
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from editloupe.reports.escape import safe
from editloupe.stats.table import (
    NONE,
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
)
from editloupe.values import digest

WIDTH: Final = 720
"""Px of a plot in a file of its own."""

NARROW: Final = 350
"""Px of a plot on a phone: the same letters, and less room between them."""

COLOURS: Final = (
    ("#0064a5", "#5db3f0"),
    ("#b34700", "#ff9a52"),
    ("#00735a", "#3fcfa5"),
    ("#9c3a7d", "#ec8fce"),
    ("#6b5900", "#e3c53d"),
    ("#5a3fc0", "#a99bff"),
)
"""(on light, on dark) in the order of the series; each has a contrast of at least 4.5 with its background."""

TONES: Final = (("#c0392b", "#f0685a"), ("#d9822b", "#f0a04b"), ("#9aa32b", "#c6cf55"), ("#1d8a68", "#3fc79a"))
"""(on light, on dark) from worst to best: --tone-0 to --tone-3 of the viewer's pages."""

_LEFT, _TOP, _BOTTOM = 76, 44, 344
"""Px of the plots of target areas."""

_AREA: Final = "Target area, share of the image (log scale)"
_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
_EDGE: Final = 16
"""Px that text keeps free of the picture's right edge."""

_HEADING: Final = 1.35
"""How much wider a heading runs than other text: 15 px for 13, and bold."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: `low` to `high` in data units, laid on px `start` to `end`; a y axis grows upwards, so that end < start."""

    low: float
    high: float
    start: float
    end: float
    title: str
    ticks: tuple[tuple[float, str], ...]
    """Value and label of each."""
    log: bool = False
    """Whether positions follow log10; `low` is then above 0."""

    def px(self, value: float) -> float:
        """Where a value lies, in px; one outside low..high lies on the nearer end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


def grid(x: Axis, y: Axis) -> list[str]:
    """Grid, tick labels, frame and titles of two axes."""
    parts = []
    for value, label in y.ticks:
        at = y.px(value)
        parts.append(f'<path class="grid" d="M{x.start:.1f} {at:.1f}H{x.end:.1f}"/>')
        parts.append(text(label, x.start - 8, at + 4, anchor="end"))
    for value, label in x.ticks:
        at = x.px(value)
        parts.append(f'<path class="grid" d="M{at:.1f} {y.start:.1f}V{y.end:.1f}"/>')
        parts.append(text(label, at, y.start + 18, anchor="middle"))
    parts.append(f'<path class="axis" d="M{x.start:.1f} {y.end:.1f}V{y.start:.1f}H{x.end:.1f}"/>')
    parts.append(text(x.title, (x.start + x.end) / 2, y.start + 40, anchor="middle"))
    parts.append(text(y.title, 16, (y.start + y.end) / 2, anchor="middle", turned=True))
    return parts


def percent_axis(*, start: float, end: float, title: str) -> Axis:
    """Shares 0 to 1, linear, ticks every 20 %."""
    ticks = tuple((n / 5, f"{20 * n} %") for n in range(6))
    return Axis(low=0.0, high=1.0, start=start, end=end, title=title, ticks=ticks)


def log_percent_axis(values: Iterable[float], *, start: float, end: float, title: str, least: int = -3) -> Axis:
    """Shares above 0 on a log axis over whole decades, from that of the smallest value (at most 10^least) to 100 %."""
    decade = min(least, math.floor(math.log10(min(values, default=1.0)) + 1e-9))
    ticks = tuple((10.0**n, f"{100 * 10.0**n:.10f}".rstrip("0").rstrip(".") + " %") for n in range(decade, 1))
    return Axis(low=10.0**decade, high=1.0, start=start, end=end, title=title, ticks=ticks, log=True)


def text(words: str, x: float, y: float, *, anchor: str = "start", turned: bool = False, style: str = "") -> str:
    """A line of text; anchor: start, middle or end.   turned: read from below, for a y axis.   style: a class."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{escape(safe(words))}</text>'


def fitted(words: str, x: float, y: float, *, room: float, anchor: str = "start", style: str = "") -> str:
    """`text`, cut where it would be wider than `room` px; the whole is in its tooltip then."""
    shown = _cut(safe(words), room / (_HEADING if style == "heading" else 1))
    line = text(shown, x, y, anchor=anchor, style=style)
    return line if shown == safe(words) else f"<g><title>{escape(safe(words))}</title>{line}</g>"


def _cut(words: str, room: float) -> str:
    """As much of the words as fits into `room` px at 13 px, with an ellipsis where that is not all."""
    if sum(map(_wide, words)) <= room:
        return words
    kept = 0
    room -= _wide("…")
    for letter in words:
        room -= _wide(letter)
        if room < 0:
            break
        kept += 1
    return f"{words[:kept].rstrip()}…"


def _wide(letter: str) -> float:
    """Px that a letter takes at 13 px in the usual sans-serif fonts, rather too much than too little."""
    if unicodedata.combining(letter):
        return 0
    if unicodedata.east_asian_width(letter) in "WF":
        return 13.5
    if letter in "mwMW@%…":
        return 12.5
    return 9.5 if letter.isupper() or ord(letter) > 0x2000 else 4.5 if letter in "iljtfr .,:;|!'()[]-" else 7.8


def lines(words: str, *, room: float) -> list[str]:
    """Break words at spaces into lines of at most `room` px; a word that is wider has a line of its own."""
    found: list[str] = []
    for word in safe(words).split(" "):
        longer = f"{found[-1]} {word}" if found else word
        if found and sum(map(_wide, longer)) <= room:
            found[-1] = longer
        else:
            found.append(word)
    return found


def legend(names: Sequence[str], *, x: float, y: float) -> list[str]:
    """A row for each series, 20 px high, the first at y: a piece of its line and its name."""
    parts = []
    for index, name in enumerate(names):
        at = y + 20 * index
        mark = f'<path class="{line_class(index)}" d="M{x:.1f} {at - 4:.1f}h28"/>'
        parts.append(f"<g>{mark}{fitted(name, x + 38, at, room=WIDTH - _EDGE - x - 38)}</g>")
    return parts


def line_class(index: int) -> str:
    """The classes of the line of the `index`-th series; colours and dashes come round again after 36."""
    turns = index // len(COLOURS)
    return f"line s{index % len(COLOURS)} d{(index + turns) % len(_DASHES)}"


def svg(parts: Iterable[str], *, height: float, title: str, desc: str, left: float = 16, width: float = WIDTH) -> str:
    """The parts under a heading as one SVG file, to be written alone or set into a page; `title` and `desc` are read out.

    left: where the heading begins, in px. One that is too long for a line has two, and the parts move down.
    """
    left = left if width >= WIDTH else 16
    first, *rest = lines(title, room=(width - _EDGE - left) / _HEADING)
    heading = [first, " ".join(rest)] if rest and width < WIDTH else [title]
    down = 20 * (len(heading) - 1)
    height += down
    shown = [fitted(line, left, 26 + 20 * n, room=width - _EDGE - left, style="heading") for n, line in enumerate(heading)]
    moved = (f'<g transform="translate(0 {down})">', *parts, "</g>") if down else parts
    body = "".join(f"{part}\n" for part in (*shown, *moved))
    # Several plots may stand in one page, where ids have to differ.
    name = f"plot-{digest([title, desc, body])[:10]}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" aria-labelledby="{name}-title {name}-desc" '
        f'viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" style="max-width:100%;height:auto">\n'
        f'<title id="{name}-title">{escape(safe(title))}</title>\n<desc id="{name}-desc">{escape(safe(desc))}</desc>\n'
        f"<style>{_style()}</style>\n"
        f'<rect class="paper" width="{width:g}" height="{height:g}"/>\n{body}</svg>\n'
    )


def _style() -> str:
    dashes = "".join(f".plot .d{n}{{stroke-dasharray:{dash}}}" for n, dash in enumerate(_DASHES) if dash)
    return (
        ".plot text{font:13px system-ui,sans-serif;fill:#1f2328}.plot .heading{font-weight:600;font-size:15px}"
        ".plot .small{font-size:11px}.plot .bar.none{fill:none;stroke:#57606a;stroke-dasharray:3 3}"
        ".plot .paper{fill:#fff}.plot .grid{stroke:#d8dee4;fill:none}.plot .axis{stroke:#57606a;fill:none}"
        ".plot .halo{paint-order:stroke;stroke:#fff;stroke-width:4px;stroke-linejoin:round}"
        ".plot .whisker{fill:none;stroke:#1f2328;stroke-width:1.4}.plot .inside{fill:#fff}.plot .inside.dark{fill:#14181c}"
        ".plot .trend{fill:none;stroke:#1f2328;stroke-width:1.6}"
        f".plot .line{{fill:none;stroke-width:2;stroke-linejoin:round}}{dashes}{_colours(0)}"
        "@media (prefers-color-scheme:dark){.plot text{fill:#e6edf3}.plot .paper{fill:#0d1117}"
        ".plot .halo{stroke:#0d1117}.plot .inside{fill:#0d1117}.plot .trend,.plot .whisker{stroke:#e6edf3}"
        f".plot .grid{{stroke:#30363d}}.plot .axis{{stroke:#9198a1}}{_colours(1)}}}"
    )


def _colours(ground: int) -> str:
    """ground: 0 light, 1 dark."""
    return "".join(
        f".plot .line.s{n}{{stroke:{pair[ground]}}}.plot .dot.s{n},.plot .bar.s{n}{{fill:{pair[ground]}}}"
        for n, pair in enumerate(COLOURS)
    ) + "".join(f".plot .dot.t{n},.plot .bar.t{n}{{fill:{pair[ground]}}}" for n, pair in enumerate(TONES))


def mark_class(index: int, good: float | None) -> str:
    """The class of the `index`-th group's marks: of its place from worst to best, 0 to 100, else of its number."""
    if good is None:
        return f"s{index % len(COLOURS)}"
    return f"t{min(len(TONES) - 1, max(0, round(good / 100 * (len(TONES) - 1))))}"


def dot(kind: str, x: float, y: float, *, size: float = 3, faint: bool = False) -> str:
    """A mark: of worst to best a square, a diamond, a triangle and a disc, of anything else a disc."""
    shade = ' fill-opacity="0.55"' if faint else ""
    s = size
    match kind:
        case "t0":
            path = f"M{x - s:.1f} {y - s:.1f}h{2 * s:g}v{2 * s:g}h{-2 * s:g}Z"
        case "t1":
            path = f"M{x:.1f} {y - 1.3 * s:.1f}l{1.3 * s:g} {1.3 * s:g}l{-1.3 * s:g} {1.3 * s:g}l{-1.3 * s:g} {-1.3 * s:g}Z"
        case "t2":
            path = f"M{x:.1f} {y - 1.2 * s:.1f}l{1.3 * s:g} {2.2 * s:g}h{-2.6 * s:g}Z"
        case _:
            return f'<circle class="dot {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{size:g}"{shade}/>'
    return f'<path class="dot {kind}" d="{path}"{shade}/>'


@dataclass(frozen=True, kw_only=True)
class Shares:
    """One line of `cumulative`, or one panel of `histogram`: shares of the image above 0 up to 1.

    Raises ValueError: a value outside 0 < v ≤ 1.
    """

    name: str
    values: tuple[float, ...]
    unknown: int = 0
    """How many more have no share that is known."""
    of: str = "target"
    """What is counted, in the singular."""

    def __post_init__(self) -> None:
        wrong = next((value for value in self.values if not 0 < value <= 1), None)
        if wrong is not None:
            raise ValueError(f"a share of the image is above 0 and at most 1, found {wrong!r}")

    @property
    def counted(self) -> str:
        """Return how many are known, and how many more are not, in words."""
        known = f"{len(self.values):,} {self.of}{'s' * (len(self.values) != 1)}"
        return f"{known}, {self.unknown:,} more of unknown area" if self.unknown else known


def cumulative(series: Sequence[Shares]) -> str:
    """Cumulative distributions of area shares, one step line a series, as SVG (DLEBench, Figure 3).

    The line of a series reaches 100 % where all its known values lie; unknown ones are no part of it and are counted in the
    legend. A series without a known value has no line.
    """
    x = log_percent_axis((v for s in series for v in s.values), start=_LEFT, end=WIDTH - 28, title=_AREA)
    y = percent_axis(start=_BOTTOM, end=_TOP, title="Targets of at most this area")
    lines = [
        f'<path class="{line_class(index)}" d="{_steps(sorted(s.values), x, y)}"/>'
        for index, s in enumerate(series)
        if s.values
    ]
    below = _BOTTOM + 72
    parts = [*grid(x, y), *lines, *legend([f"{s.name}: {s.counted}" for s in series], x=_LEFT, y=below)]
    height = below + 20 * len(series)
    return svg(parts, height=height, title="Target objects by area", desc=_read_out(series), left=_LEFT)


def _steps(values: Sequence[float], x: Axis, y: Axis) -> str:
    """The path of one distribution, from its least value to its largest; values that fall on one px make one step."""
    path, n, previous = [f"M{x.px(values[0]):.1f} {y.start:.1f}"], len(values), None
    for index, value in enumerate(values, start=1):
        at = f"{x.px(value):.1f}"
        if at == previous:
            path.pop()
        elif previous is not None:
            path.append(f"H{at}")
        path.append(f"V{y.px(index / n):.1f}")
        previous = at
    return "".join(path)


def _read_out(series: Sequence[Shares]) -> str:
    """The plot in words: for each series how much lies below 0.1 %, 1 % and 10 %."""
    sentences = ["Cumulative distribution of the area of target objects as a share of their image."]
    for s in series:
        under = {a: sum(v < a for v in s.values) / max(1, len(s.values)) for a in (0.001, 0.01, 0.1)}
        shares = ", ".join(f"{100 * share:.0f} % are under {100 * a:g} %" for a, share in under.items())
        sentences.append(f"{s.name}: {s.counted}; {f'{shares} of the image' if s.values else 'no line'}.")
    return " ".join(sentences)


BARS_A_DECADE: Final = 3
"""Bars of `histogram` for each power of ten: equal steps of the logarithm."""


def histogram(series: Sequence[Shares], *, title: str, width: float = WIDTH) -> str:
    """Counts of area shares in equal steps of their logarithm, one panel a series, as SVG (DLEBench, Figure 4).

    The count stands above each bar. A bar holds shares from its left edge on and below its right one; 100 % is in the last.
    The paper does not name its intervals; ours are thirds of a power of ten.
    """
    step_of, parts, sentences, bottom = 1 / BARS_A_DECADE, list[str](), list[str](), 16.0
    for s in series:
        top, bottom = bottom + 56, bottom + 56 + 220
        x = log_percent_axis((v for one in series for v in one.values), start=_LEFT, end=width - 28, title=_AREA)
        # What is an edge on paper may lie a bit below it in floating point.
        steps = Counter(min(math.floor(math.log10(v) * BARS_A_DECADE + 1e-9), -1) for v in s.values)
        y = _count_axis(max(steps.values(), default=1), start=bottom, end=top, title=f"{s.of.capitalize()}s")
        parts += [
            *grid(x, y),
            fitted(f"{s.name}: {s.counted}" if s.name else s.counted, _LEFT, top - 12, room=x.end - _LEFT),
        ]
        told = []
        for step, count in sorted(steps.items()):
            left, right = (x.px(10 ** (n * step_of)) for n in (step, step + 1))
            at = y.px(count)
            parts.append(
                f'<rect class="bar s0" x="{left + 1:.1f}" y="{at:.1f}" width="{right - left - 2:.1f}" '
                f'height="{bottom - at:.1f}"/>'
            )
            parts.append(text(f"{count:,}", (left + right) / 2, at - 5, anchor="middle", style="halo"))
            low, high = (float(f"{100 * 10 ** (n * step_of):.2g}") for n in (step, step + 1))
            told.append(f"{low:g} to {high:g} %: {count:,}")
        sentences.append(f"{s.name or title}: {s.counted}; {', '.join(told) or 'no bar'}.")
        bottom += 48
    return svg(parts, height=bottom + 8, title=title, desc=" ".join(sentences), left=_LEFT, width=width)


def _count_axis(most: int, *, start: float, end: float, title: str) -> Axis:
    """Counts from 0, with room for the number above the highest bar; six ticks at most, in steps of 1, 2 or 5 × 10ⁿ."""
    high = most * 1.12
    step = next(n * 10**power for power in range(12) for n in (1, 2, 5) if n * 10**power * 5 >= high)
    ticks = tuple((float(n), f"{n:,}") for n in range(0, math.floor(high) + 1, step))
    return Axis(low=0.0, high=high, start=start, end=end, title=title, ticks=ticks)


_SPREAD: Final = "Dots are spread within the band of their score, so that they do not cover each other."


def draw(plot: Plot, *, width: float = WIDTH) -> str:
    """Return a table's plot as SVG. width: px; from `NARROW` on, all of it can be read at its own size."""
    match plot:
        case ScatterPlot():
            return scatter(plot, width=width)
        case SizePlot():
            return sizes(plot, width=width)
        case HistogramPlot():
            known = Shares(name="", values=plot.shares, unknown=plot.unknown, of="sample")
            return histogram([known], title=plot.title, width=width)
        case BarPlot():
            return bars(plot.rows, title=plot.title, goods=plot.goods, width=width)
        case MeansPlot():
            return means(plot.rows, plot.series, title=plot.title, width=width)
        case HeatPlot():
            return heat(plot, width=width)
        case RadarPlot():
            return radar(plot, width=width)


def scatter(plot: ScatterPlot, *, width: float = WIDTH) -> str:
    """Scores 0 to 100 against target areas on a log axis, a dot a sample, with the line of a trend (DLEBench, Figure 6).

    Dots of one score lie in a band about it, spread by their number alone, so that they do not cover each other. The band
    ends where the scale does: no dot lies below 0 or above 100.
    """
    groups, trend = plot.groups, plot.trend
    x = log_percent_axis((x for group in groups for x, _ in group.points), start=_LEFT, end=width - 28, title=_AREA)
    ticks = tuple((float(n), f"{n}") for n in (0, 25, 50, 75, 100))
    y = Axis(low=-2, high=102, start=_BOTTOM, end=_TOP, title="Score", ticks=ticks)
    marks = []
    for index, group in enumerate(groups):
        for number, (area, score) in enumerate(group.points):
            # The golden ratio spreads any run of numbers evenly over the band.
            low, high = max(0, score - 5), min(100, score + 5)
            at = low + (high - low) * (number * 0.6180339887 % 1)
            marks.append(dot(mark_class(index, group.good), x.px(area), y.px(at), faint=True))
    line = "".join(f"{'L' if n else 'M'}{x.px(a):.1f} {y.px(s):.1f}" for n, (a, s) in enumerate(trend))
    begin, below = _keys_at(width), _BOTTOM + 72
    keys = _dot_keys(groups, below, width)
    below += 20 * len(groups)
    if line:
        marks.append(f'<path class="trend" d="{line}"/>')
        keys.append(f'<path class="trend" d="M{begin} {below - 4}h28"/>')
    notes = _below((plot.trend_title, _SPREAD), begin + 38, below, width)
    height = below + 20 * len(notes)
    parts = [*grid(x, y), *marks, *keys, *notes]
    return svg(parts, height=height, title=plot.title, desc=plot.description, left=_LEFT, width=width)


def sizes(plot: SizePlot, *, width: float = WIDTH) -> str:
    """Relative widths of targets against relative heights, both on a log axis, a dot a sample, coloured by score.

    The main panel of DLEBench's Figure 6. Dots of one size lie about their place, so that they do not cover each other.
    """
    bottom = _BOTTOM + 120
    shares = [share for group in plot.groups for point in group.points for share in point]
    x, y = (
        log_percent_axis(shares, start=start, end=end, title=f"Target {side}, share of the image's (log scale)", least=-2)
        for side, start, end in (("width", _LEFT, width - 28), ("height", bottom, _TOP))
    )
    marks, there = list[str](), Counter[tuple[float, float]]()
    for kind, (w, h) in ((mark_class(i, g.good), point) for i, g in enumerate(plot.groups) for point in g.points):
        # The golden angle packs any number of dots about a place.
        number = there[w, h]
        there[w, h] += 1
        cx, cy = (at + 5 * number**0.5 * turn(2.399963 * number) for at, turn in ((x.px(w), math.cos), (y.px(h), math.sin)))
        marks.append(dot(kind, cx, cy, faint=True))
    at = bottom + 72
    below = at + 20 * len(plot.groups)
    notes = _below((plot.note,), _keys_at(width), below, width)
    told = ", ".join(f"{group.name} {len(group.points):,}" for group in plot.groups)
    desc = f"Width against height of the target, coloured by label: {told}. {plot.note}"
    parts = [*grid(x, y), *marks, *_dot_keys(plot.groups, at, width), *notes]
    return svg(parts, height=below + 20 * len(notes), title=plot.title, desc=desc, left=_LEFT, width=width)


def _keys_at(width: float) -> float:
    """Where a legend begins, in px: under its plot, or at the edge of a narrow one."""
    return _LEFT if width >= WIDTH else _EDGE


def _below(notes: Iterable[str], x: float, y: float, width: float) -> list[str]:
    """Sentences below a plot, each in as many lines of 20 px as it takes."""
    room = width - _EDGE - x
    found = [line for note in notes for line in lines(note, room=room)]
    return [fitted(line, x, y + 20 * n, room=room) for n, line in enumerate(found)]


def _dot_keys(groups: Sequence[Dots], y: float, width: float) -> list[str]:
    """A row for each group, 20 px high, the first at y: a dot, its name and how many there are."""
    begin, keys = _keys_at(width), []
    room = width - _EDGE - begin - 38
    for i, group in enumerate(groups):
        name = fitted(f"{group.name}: {len(group.points):,}", begin + 38, y, room=room)
        keys.append(f"<g>{dot(mark_class(i, group.good), begin + 14, y - 4, size=4)}{name}</g>")
        y += 20
    return keys


def bars(
    rows: Sequence[tuple[str, Sequence[tuple[str, int]]]],
    *,
    title: str,
    goods: Sequence[float | None] = (),
    width: float = WIDTH,
) -> str:
    """Stacked bars, one a row (an editor), each part a label's share of the row's total, as SVG.

    rows: (name, (label, count) in order); the labels are the same in every row. A row of nothing has no bar, and says so.
    goods: how good each label is, 0 (worst) to 100 (best); () for labels without an order.
    """
    labels = [label for label, _ in rows[0][1]] if rows else []
    kinds = [mark_class(i, goods[i] if goods else None) for i in range(len(labels))]
    left, top = _names(width), 44
    height = top + 32 * len(rows)
    x = percent_axis(start=left, end=width - 28, title="Share of what was judged")
    none = Axis(low=0, high=1, start=height, end=top, title="", ticks=())
    marks, sentences = [], []
    for number, (name, counts) in enumerate(rows):
        total, at, y = sum(n for _, n in counts), 0, top + 32 * number + 6
        marks += _row_name(name, left - 8, y + 15, room=left - 16)
        if not total:
            marks.append(text("nothing judged", left + 8, y + 15))
        for index, (label, n) in enumerate(counts):
            if n:
                start, end = x.px(at / total), x.px((at + n) / total)
                marks.append(
                    f"<g><title>{escape(safe(f'{name}, {label}: {n:,} of {total:,}'))}</title>"
                    f'<rect class="bar {kinds[index]}" x="{start:.1f}" y="{y}" width="{max(0.5, end - start - 1):.1f}" '
                    f'height="20"/></g>'
                )
                if end - start > 34:
                    style = "inside dark" if kinds[index] in ("t1", "t2") else "inside"
                    marks.append(text(f"{n:,}", (start + end) / 2, y + 15, anchor="middle", style=style))
            at += n
        sentences.append(f"{name}: {', '.join(f'{label} {n:,}' for label, n in counts)}.")
    below = height + 72
    keys = [
        f'<g><rect class="bar {kinds[i]}" x="{left}" y="{below + 20 * i - 12}" width="14" height="14"/>'
        f"{fitted(label, left + 24, below + 20 * i, room=width - _EDGE - left - 24)}</g>"
        for i, label in enumerate(labels)
    ]
    return svg(
        [*grid(x, none), *marks, *keys], height=below + 20 * len(keys), title=title, desc=" ".join(sentences), width=width
    )


def means(rows: Sequence[str], series: Sequence[tuple[str, Sequence[Cell]]], *, title: str, width: float = WIDTH) -> str:
    """Means of 0 to 100 as bars with their intervals, a group a row (an edit type), a bar a series (an editor), as SVG.

    DLEBench shows the same figures as a radar (Figure 7), which has no room for intervals. A cell without a value has no
    bar, and says so.
    """
    left, top, thick, gap = _names(width), 44, 16, 12
    end = width - (150 if width >= WIDTH else 112)
    height = top + len(rows) * (thick * len(series) + gap)
    ticks = tuple((float(n), f"{n}") for n in (0, 25, 50, 75, 100))
    x = Axis(low=0, high=100, start=left, end=end, title="Score, with its 95 % interval; judged of asked", ticks=ticks)
    none = Axis(low=0, high=1, start=height, end=top, title="", ticks=())
    marks, sentences = list[str](), list[str]()
    for number, row in enumerate(rows):
        start = top + number * (thick * len(series) + gap) + gap / 2
        marks += _row_name(row, left - 8, start + thick * len(series) / 2 + 4, room=left - 16)
        for index, (name, cells) in enumerate(series):
            cell, y = cells[number], start + thick * index
            counts = f"({cell.judged}/{cell.asked})" if cell.asked else "(not asked)"
            if not isinstance(cell.value, float):
                marks.append(text(f"– {counts}", left + 8, y + thick - 4))
                continue
            marks.append(
                f"<g><title>{escape(safe(f'{row}, {name}: {cell.text}'))}</title>"
                f'<rect class="bar s{index % len(COLOURS)}" x="{left}" y="{y + 2:.1f}" '
                f'width="{max(1.0, x.px(cell.value) - left):.1f}" height="{thick - 4}" fill-opacity="0.7"/></g>'
            )
            if cell.low is not None and cell.high is not None:
                low, high, middle = x.px(cell.low), x.px(cell.high), y + thick / 2
                marks.append(
                    f'<path class="whisker" d="M{low:.1f} {middle:.1f}H{high:.1f}M{low:.1f} {middle - 4:.1f}v8'
                    f'M{high:.1f} {middle - 4:.1f}v8"/>'
                )
            marks.append(text(f"{cell.value:.1f} {counts}", end + 8, y + thick - 4))
    for name, cells in series:
        told = ", ".join(
            f"{row} {cell.value:.1f}" if isinstance(cell.value, float) else f"{row} not judged"
            for row, cell in zip(rows, cells, strict=True)
        )
        sentences.append(f"{name}: {told}.")
    below = height + 72
    keys = [
        f'<g><rect class="bar s{i % len(COLOURS)}" x="{left}" y="{below + 20 * i - 12}" width="14" height="14"/>'
        f"{fitted(name, left + 24, below + 20 * i, room=width - _EDGE - left - 24)}</g>"
        for i, (name, _) in enumerate(series)
    ]
    return svg(
        [*grid(x, none), *marks, *keys], height=below + 20 * len(keys), title=title, desc=" ".join(sentences), width=width
    )


def heat(plot: HeatPlot, *, width: float = WIDTH) -> str:
    """A grid of shares in percent as SVG, each in the tone of its place from worst to best, with its number in it.

    Below each share stands how many were judged of how many asked. A place that was not asked about is empty.
    """
    left, top, high = _names(width), 44.0, 40.0
    wide = (width - _EDGE - left) / max(1, len(plot.columns))
    marks, sentences = list[str](), list[str]()
    for i, (row, cells) in enumerate(zip(plot.rows, plot.cells, strict=True)):
        y = top + high * i
        marks += _row_name(row, left - 8, y + high / 2 + 4, room=left - 16)
        told = []
        for j, (column, cell) in enumerate(zip(plot.columns, cells, strict=True)):
            x = left + wide * j
            if cell is None:
                continue
            share, judged, asked = cell
            kind = "none" if share is None else mark_class(0, share)
            shown = NONE if share is None else f"{share:.0f}"
            style = "" if share is None else "inside dark" if kind in ("t1", "t2") else "inside"
            marks.append(
                f"<g><title>{escape(safe(f'{row}, {column}: {shown} % ({judged:,} of {asked:,} judged)'))}</title>"
                f'<rect class="bar {kind}" x="{x + 1:.1f}" y="{y + 1:.1f}" width="{wide - 2:.1f}" height="{high - 2:.1f}"/>'
                f"{text(shown, x + wide / 2, y + 18, anchor='middle', style=style)}"
                f"{text(f'{judged}/{asked}', x + wide / 2, y + 33, anchor='middle', style=f'{style} small'.strip())}</g>"
            )
            told.append(f"{column} {shown}")
        sentences.append(f"{row}: {', '.join(told)}.")
    bottom = top + high * len(plot.rows)
    marks += [
        text(column, left + wide * (j + 0.5), bottom + 18, anchor="middle", style="" if width >= WIDTH else "small")
        for j, column in enumerate(plot.columns)
    ]
    marks.append(text(plot.columns_title, left + wide * len(plot.columns) / 2, bottom + 40, anchor="middle"))
    notes = _below(("In a cell: accuracy in percent; judged/asked.",), _EDGE, bottom + 68, width)
    desc = f"Accuracy in percent by row and {plot.columns_title.lower()}. {' '.join(sentences)}"
    return svg([*marks, *notes], height=bottom + 68 + 20 * len(notes), title=plot.title, desc=desc, width=width)


def radar(plot: RadarPlot, *, width: float = WIDTH) -> str:
    """Figures of 0 to 100 on axes around a middle, a closed line a series, as SVG. Outside is better.

    A figure that is not there has no point: the line then is broken at its axis.
    """
    many = len(plot.axes)
    radius = 170.0 if width >= WIDTH else 88.0
    middle, centre = width / 2, 44 + 44 + radius
    turns = [(math.sin(2 * math.pi * i / max(1, many)), -math.cos(2 * math.pi * i / max(1, many))) for i in range(many)]

    def at(i: int, value: float) -> tuple[float, float]:
        return middle + turns[i][0] * radius * value / 100, centre + turns[i][1] * radius * value / 100

    parts = list[str]()
    for ring in (25, 50, 75, 100):
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(i, ring) for i in range(many)))
        parts.append(f'<polygon class="{"axis" if ring == 100 else "grid"}" points="{points}"/>')
    for i, name in enumerate(plot.axes):
        x, y = at(i, 100)
        parts.append(f'<path class="grid" d="M{middle:.1f} {centre:.1f}L{x:.1f} {y:.1f}"/>')
        side = turns[i][0]
        anchor = "middle" if abs(side) < 0.1 else "start" if side > 0 else "end"
        x, y = x + 10 * side, y + 12 * turns[i][1]
        room = width - _EDGE if anchor == "middle" else (width - x if anchor == "start" else x) - 4
        rows = lines(name, room=room)
        first = y + 4 - (18 * (len(rows) - 1) if turns[i][1] < -0.9 else 9 * (len(rows) - 1))
        parts += [fitted(row, x, first + 18 * n, room=room, anchor=anchor) for n, row in enumerate(rows)]
    for ring in (50, 100):
        parts.append(text(f"{ring}", middle + 4, centre - radius * ring / 100 + 14, style="halo small"))
    sentences = []
    for index, (name, values) in enumerate(plot.series):
        parts.append(f'<path class="{line_class(index)}" d="{_round(values, at)}"/>')
        parts += [dot(f"s{index % len(COLOURS)}", *at(i, v)) for i, v in enumerate(values) if v is not None]
        told = ", ".join(f"{axis} {NONE if v is None else f'{v:.0f}'}" for axis, v in zip(plot.axes, values, strict=True))
        sentences.append(f"{name}: {told}.")
    below = centre + radius + 72
    begin = _keys_at(width)
    keys = [
        f'<g><path class="{line_class(i)}" d="M{begin} {below + 20 * i - 4:.1f}h28"/>'
        f"{fitted(name, begin + 38, below + 20 * i, room=width - _EDGE - begin - 38)}</g>"
        for i, (name, _) in enumerate(plot.series)
    ]
    gaps = any(value is None for _, values in plot.series for value in values)
    said = ("A line is broken where a judge has no figure.",) if gaps else ()
    notes = _below(said, begin, below + 20 * len(keys), width)
    height = below + 20 * (len(keys) + len(notes))
    return svg([*parts, *keys, *notes], height=height, title=plot.title, desc=" ".join(sentences), width=width)


def _round(values: Sequence[float | None], at: Callable[[int, float], tuple[float, float]]) -> str:
    """The path of a closed line, broken where there is no value."""
    path = []
    for i, value in enumerate(values):
        after = values[(i + 1) % len(values)]
        if value is not None and after is not None:
            (x, y), (to_x, to_y) = at(i, value), at((i + 1) % len(values), after)
            path.append(f"M{x:.1f} {y:.1f}L{to_x:.1f} {to_y:.1f}")
    return "".join(path)


def _names(width: float) -> float:
    """Px for the names of rows, left of their bars."""
    return min(180, round(0.3 * width))


def _row_name(name: str, x: float, y: float, *, room: float) -> list[str]:
    """A row's name that ends at x, about the line at y: in two lines where one has no room for it."""
    first, *rest = lines(name, room=room)
    if not rest:
        return [fitted(name, x, y, room=room, anchor="end")]
    return [fitted(part, x, y + 7 * side, room=room, anchor="end") for part, side in ((first, -1), (" ".join(rest), 1))]


def matrix(names: Sequence[str], values: Sequence[Sequence[float | None]], *, title: str, what: str) -> str:
    """A square of figures up to 1, a shade each, as SVG: who agrees with whom. None is left empty.

    what: the figure's name, for the legend below and the words that are read out.
    """
    left, top, cell = 220, 72, min(72.0, (WIDTH - 248) / max(1, len(names)))
    parts, sentences = [], []
    for i, name in enumerate(names):
        parts.append(fitted(f"{i + 1} {name}", left - 10, top + cell * (i + 0.5) + 4, room=left - 18, anchor="end"))
        parts.append(text(str(i + 1), left + cell * (i + 0.5), top - 10, anchor="middle"))
        for j, value in enumerate(values[i]):
            x, y = left + cell * j, top + cell * i
            share = 0.0 if value is None else max(0.0, min(1.0, value))
            parts.append(
                f'<rect class="bar s0" x="{x:.1f}" y="{y:.1f}" width="{cell - 2:.1f}" height="{cell - 2:.1f}" '
                f'fill-opacity="{0.06 if value is None else 0.12 + 0.88 * share:.2f}"/>'
            )
            if value is not None:
                style = "inside" if share > 0.7 else ""
                parts.append(text(f"{value:.2f}", x + cell / 2 - 1, y + cell / 2 + 4, anchor="middle", style=style))
                if i < j:
                    sentences.append(f"{name} and {names[j]}: {value:.2f}.")
    bottom = top + cell * len(names) + 24
    parts.append(text(what, left, bottom))
    return svg(parts, height=bottom + 12, title=title, desc=" ".join(sentences))
