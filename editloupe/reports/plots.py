"""Plots as SVG text, written by hand: no plotting library, readable in light and dark, with words for screen readers.

A plot is `svg(...)` around a `Panel`'s axes and the marks drawn in it. Colours are classes (`line s0`, `dot s1`), so that
one style sheet serves light and dark, and each series has a dash of its own, since colour alone does not tell lines apart.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from editloupe.reports.plain import safe
from editloupe.values import digest

WIDTH: Final = 720
COLOURS: Final = (
    ("#0064a5", "#5db3f0"),
    ("#b34700", "#ff9a52"),
    ("#00735a", "#3fcfa5"),
    ("#9c3a7d", "#ec8fce"),
    ("#6b5900", "#e3c53d"),
    ("#5a3fc0", "#a99bff"),
)
"""(on light, on dark) in the order of the series; each has a contrast of at least 4.5 with its background."""

_DASHES: Final = ("", "7 3", "2 3", "9 3 2 3", "12 4", "4 2 1 2")
_NAME: Final = 70
"""Characters of a name that are shown; the rest is in its tooltip."""


@dataclass(frozen=True, kw_only=True)
class Axis:
    """One axis: `low` to `high` in data units, laid on px `start` to `end` (end < start for a y axis, which grows upwards).

    log: positions follow log10, and low is above 0.   ticks: (value, its label).
    """

    low: float
    high: float
    start: float
    end: float
    title: str
    ticks: tuple[tuple[float, str], ...]
    log: bool = False

    def px(self, value: float) -> float:
        """Where a value lies, in px; one outside low..high lies on the nearer end."""
        low, high, at = self.low, self.high, min(max(value, self.low), self.high)
        if self.log:
            low, high, at = math.log10(low), math.log10(high), math.log10(at)
        share = (at - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)


@dataclass(frozen=True, kw_only=True)
class Panel:
    """Two axes and the grid between them."""

    x: Axis
    y: Axis

    def drawn(self) -> list[str]:
        """Grid, tick labels, frame and titles."""
        x, y, parts = self.x, self.y, []
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
        middle = (y.start + y.end) / 2
        parts.append(text(y.title, 16, middle, anchor="middle", turned=True))
        return parts


def percent_axis(*, start: float, end: float, title: str) -> Axis:
    """Shares 0 to 1, linear, ticks every 20 %."""
    ticks = tuple((n / 5, f"{20 * n} %") for n in range(6))
    return Axis(low=0.0, high=1.0, start=start, end=end, title=title, ticks=ticks)


def log_percent_axis(values: Iterable[float], *, start: float, end: float, title: str, top: float = 1.0) -> Axis:
    """Shares above 0 on a log axis over whole decades, from that of the smallest value (at most 0.1 %) to `top`."""
    least = min(values, default=top)
    decade = min(-3, math.floor(math.log10(least) + 1e-9))
    highest = math.ceil(math.log10(top) - 1e-9)
    ticks = tuple((10.0**n, f"{100 * 10.0**n:.10f}".rstrip("0").rstrip(".") + " %") for n in range(decade, highest + 1))
    return Axis(low=10.0**decade, high=10.0**highest, start=start, end=end, title=title, ticks=ticks, log=True)


def text(words: str, x: float, y: float, *, anchor: str = "start", turned: bool = False, style: str = "") -> str:
    """A line of text; anchor: start, middle or end.   turned: read from below, for a y axis.   style: a class."""
    turn = f' transform="rotate(-90 {x:.1f} {y:.1f})"' if turned else ""
    named = f' class="{style}"' if style else ""
    return f'<text{named} x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{turn}>{escape(safe(words))}</text>'


def legend(names: Sequence[str], *, x: float, y: float) -> list[str]:
    """A row for each series, 20 px high, the first at y: a piece of its line and its name."""
    parts = []
    for index, name in enumerate(names):
        at = y + 20 * index
        shown = name if len(name) <= _NAME else f"{name[: _NAME - 1]}…"
        whole = "" if shown == name else f"<title>{escape(safe(name))}</title>"
        mark = f'<path class="{line_class(index)}" d="M{x:.1f} {at - 4:.1f}h28"/>'
        parts.append(f"<g>{whole}{mark}{text(shown, x + 38, at)}</g>")
    return parts


def line_class(index: int) -> str:
    """The classes of the line of the `index`-th series; colours and dashes come round again after 36."""
    turns = index // len(COLOURS)
    return f"line s{index % len(COLOURS)} d{(index + turns) % len(_DASHES)}"


def svg(parts: Iterable[str], *, height: float, title: str, desc: str, width: float = WIDTH) -> str:
    """The parts as one SVG file, to be written alone or set into a page; `title` and `desc` are read out."""
    body = "".join(f"{part}\n" for part in parts)
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
        ".plot .paper{fill:#fff}.plot .grid{stroke:#d8dee4;fill:none}.plot .axis{stroke:#57606a;fill:none}"
        f".plot .line{{fill:none;stroke-width:2;stroke-linejoin:round}}{dashes}{_colours(0)}"
        "@media (prefers-color-scheme:dark){.plot text{fill:#e6edf3}.plot .paper{fill:#0d1117}"
        f".plot .grid{{stroke:#30363d}}.plot .axis{{stroke:#9198a1}}{_colours(1)}}}"
    )


def _colours(ground: int) -> str:
    """ground: 0 light, 1 dark."""
    return "".join(
        f".plot .line.s{n}{{stroke:{pair[ground]}}}.plot .dot.s{n},.plot .bar.s{n}{{fill:{pair[ground]}}}"
        for n, pair in enumerate(COLOURS)
    )


@dataclass(frozen=True, kw_only=True)
class Shares:
    """One line of `cumulative`: shares of the image above 0 up to 1, and how many more have none that is known."""

    name: str
    values: tuple[float, ...]
    unknown: int = 0


def cumulative(
    series: Sequence[Shares],
    *,
    title: str = "Target objects by area",
    x_title: str = "Target area, share of the image (log scale)",
    y_title: str = "Targets of at most this area",
) -> str:
    """Cumulative distributions of area shares, one step line a series, as SVG (DLEBench, Figure 3).

    The line of a series reaches 100 % where all its known values lie; unknown ones are no part of it and are counted in the
    legend. A series without a known value has no line. Raises ValueError: a value outside 0 < v ≤ 1.
    """
    wrong = [v for s in series for v in s.values if not 0 < v <= 1]
    if wrong:
        raise ValueError(f"a share of the image is above 0 and at most 1, found {wrong[0]!r}")
    left, top, bottom = 76, 44, 344
    x = log_percent_axis((v for s in series for v in s.values), start=left, end=WIDTH - 28, title=x_title)
    y = percent_axis(start=bottom, end=top, title=y_title)
    lines = [
        f'<path class="{line_class(index)}" d="{_steps(sorted(s.values), x, y)}"/>'
        for index, s in enumerate(series)
        if s.values
    ]
    names = [f"{s.name}: {_counted(s)}" for s in series]
    below = bottom + 72
    parts = [
        text(title, left, 26, style="heading"),
        *Panel(x=x, y=y).drawn(),
        *lines,
        *legend(names, x=left, y=below),
    ]
    return svg(parts, height=below + 20 * len(names), title=title, desc=_read_out(series))


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


def _counted(series: Shares) -> str:
    known = f"{len(series.values):,} {'target' if len(series.values) == 1 else 'targets'}"
    return f"{known}, {series.unknown:,} more of unknown area" if series.unknown else known


def _read_out(series: Sequence[Shares]) -> str:
    """The plot in words: for each series how much lies below 0.1 %, 1 % and 10 %."""
    told = []
    for s in series:
        n = len(s.values)
        shares = (
            [f"{100 * sum(v < a for v in s.values) / n:.0f} % are under {100 * a:g} %" for a in (0.001, 0.01, 0.1)]
            if n
            else []
        )
        told.append(
            f"{s.name}: {_counted(s)}; {', '.join(shares)} of the image." if n else f"{s.name}: {_counted(s)}; no line."
        )
    return " ".join(["Cumulative distribution of the area of target objects as a share of their image.", *told])
