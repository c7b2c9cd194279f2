"""A table as a value: named columns, rows of typed cells. `figures.render` shows it; files get one record a figure.

Protocols make tables of their own from these values, so they stand below the protocols. Frozen values, no I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from editloupe.values import Json

if TYPE_CHECKING:
    from editloupe.stats.bootstrap import Estimate

T = TypeVar("T")

NONE = "–"
"""What stands where there is no value."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One figure, or words, with what it rests on."""

    value: float | str | None = None
    """The figure or the words; None if there is none."""
    name: str = "value"
    """The figure's name in files; "" keeps the cell out of them."""
    digits: int | None = None
    """Decimals shown; None shows a number as it is."""
    signed: bool = False
    """Show a plus sign."""
    low: float | None = None
    """Lower end of the interval."""
    high: float | None = None
    """Upper end of the interval."""
    interval_digits: int = 1
    """Decimals of the interval."""
    bounds: tuple[str, str] | None = None
    """Names of the interval's ends in files; None leaves them out."""
    judged: int | None = None
    """How many were judged."""
    asked: int | None = None
    """How many were asked; shown as (judged/asked)."""
    note: str = ""
    """Words behind the figure, in brackets or behind judged/asked."""
    why: str = ""
    """Why there is no value; shown behind the dash."""
    more: Mapping[str, Json] = field(default_factory=dict)
    """Further fields of the record in files."""
    meter: float | None = None
    """0 to 100: how far the value is up its scale, for a bar in pages."""
    strong: bool = False
    """Show in bold."""

    @property
    def text(self) -> str:
        """What is shown: "63.33 [50.0, 75.0] (10/12)"."""
        if isinstance(self.value, str):
            shown = self.value
        elif self.value is None:
            shown = NONE
        else:
            shown = self._number(self.value, self.digits)
            if self.low is not None and self.high is not None:
                low, high = (self._number(end, self.interval_digits) for end in (self.low, self.high))
                shown += f" [{low}, {high}]"
        counts = f"{self.judged}/{self.asked}" if self.asked else ""
        words = "; ".join(filter(None, (counts, self.note, self.why if self.value is None else "")))
        return f"{shown} ({words})" if words else shown

    @property
    def record(self) -> dict[str, Json]:
        """The figure in files: numbers unrounded, None where there is none."""
        if not self.name:
            return dict(self.more)
        ends: dict[str, Json] = {} if self.bounds is None else {self.bounds[0]: self.low, self.bounds[1]: self.high}
        counts: dict[str, Json] = {} if self.asked is None else {"judged": self.judged, "asked": self.asked}
        # One kind of number in a column: 50.0 beside 66.7.
        value = self.value
        if self.digits is not None and value is not None and not isinstance(value, str):
            value = float(value)
        return {self.name: value, **ends, **counts, **self.more}

    def _number(self, value: float, digits: int | None) -> str:
        sign = "+z" if self.signed else ""
        return f"{value:{sign}g}" if digits is None else f"{value:{sign}.{digits}f}"


def estimated(
    found: Estimate | None, *, digits: int = 2, interval_digits: int = 1, signed: bool = False, counts: bool = True,
    name: str = "mean", bounds: tuple[str, str] | None = ("low", "high"), why: bool = False, meter: float | None = None,
    scale: float = 1,
) -> Cell:  # fmt: skip
    """Return the cell of an estimate; None stands for a figure that nobody asked for.

    counts: show and record judged of asked.   why: say behind the dash why there is no value.   scale: 100 for percent.
    """
    if found is None:
        return Cell(name=name, bounds=bounds, judged=0 if counts else None, asked=0 if counts else None)
    value, low, high = (None if x is None else scale * x for x in (found.value, found.low, found.high))
    judged, asked = (found.judged, found.asked) if counts else (None, None)
    return Cell(
        value=value, name=name, digits=digits, signed=signed, low=low, high=high, interval_digits=interval_digits,
        bounds=bounds, judged=judged, asked=asked, why=found.why if why else "", meter=meter,
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Column:
    """One column."""

    title: str
    words: bool = False
    """True for words, which stand at the left and may be broken; numbers stand at the right and are never broken."""
    keys: Mapping[str, Json] = field(default_factory=dict)
    """What its figures are of, for files: {"editor": "alpha"}. Cells of a row with equal keys share a record."""
    files_only: bool = False
    """Do not show the column."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line: a cell for each column."""

    cells: tuple[Cell, ...]
    keys: Mapping[str, Json] = field(default_factory=dict)
    """What its figures are of, for files: {"edit_type": "Change Color"}."""
    records: tuple[Mapping[str, Json], ...] | None = None
    """What files hold of the row; None for the figures of its cells."""
    strong: bool = False
    """True for a row that sums up others."""
    dim: bool = False
    """True for a row that says little: shown gray in a terminal."""


UNNAMED: Final = "(not named)"
"""What a cell calls an editor without a name."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """One table."""

    name: str
    """Of its files, without ending."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    fixed: int = 1
    """How many of the first columns name the row. They stand in every part of a table that is wider than the terminal."""
    caption: str = ""
    """How to read it, below the table."""
    keys: Mapping[str, Json] = field(default_factory=dict)
    """What all figures are of, for files: {"judge": "strict"}."""
    at_once: int = 4
    """How many columns behind the fixed ones a terminal shows side by side, at most."""
    plots: tuple[Plot, ...] = ()
    """Pictures of the same figures."""

    def __post_init__(self) -> None:
        """Call a single editor that has no name nothing: as a row, its name is hidden; as a column, it is all edits."""
        if [column.title for column in self.columns[self.fixed :]] == [UNNAMED]:
            only = replace(self.columns[-1], title="All edits")
            object.__setattr__(self, "columns", (*self.columns[:-1], only))
        for i, column in enumerate(self.columns[: self.fixed]):
            unnamed = bool(self.rows) and all(row.cells[i].value == UNNAMED for row in self.rows)
            if unnamed and not column.files_only and len(self.shown) > 1:
                hidden = replace(column, files_only=True)
                object.__setattr__(self, "columns", (*self.columns[:i], hidden, *self.columns[i + 1 :]))
                object.__setattr__(self, "fixed", max(self.fixed - 1, 0))
                return

    @property
    def shown(self) -> list[int]:
        """Numbers of the columns that are shown."""
        return [i for i, column in enumerate(self.columns) if not column.files_only]

    def text(self, row: Row) -> list[str]:
        """Return the texts of a row's shown cells."""
        return [row.cells[i].text for i in self.shown]

    def records(self) -> list[dict[str, Json]]:
        """Return one object a figure, or a group of figures of the same keys, for files: row by row."""
        found: list[dict[str, Json]] = []
        for row in self.rows:
            if row.records is not None:
                found += [{**self.keys, **row.keys, **record} for record in row.records]
                continue
            groups: dict[tuple[object, ...], dict[str, Json]] = {}
            for column, cell in zip(self.columns, row.cells, strict=True):
                if fields := cell.record:
                    base = {**self.keys, **row.keys, **column.keys}
                    groups.setdefault(tuple(column.keys.items()), base).update(fields)
            found += groups.values()
        return found

    def with_keys(self, keys: Mapping[str, Json]) -> Table:
        """Return the table with further keys of all its figures, in front."""
        return replace(self, keys={**keys, **self.keys})

    def to_json(self) -> dict[str, Json]:
        """Return title, caption and records."""
        return {"title": self.title, "caption": self.caption, "records": list(self.records())}


def words(text: str, *, name: str = "", strong: bool = False) -> Cell:
    """Return a cell of words. name: in files; "" keeps it out of them."""
    return Cell(value=text, name=name, strong=strong)


def label_columns(*titles: str) -> tuple[Column, ...]:
    """Return columns of words that name the row."""
    return tuple(Column(title=title, words=True) for title in titles)


def listed(
    name: str,
    title: str,
    lines: Iterable[T],
    columns: Mapping[str, Callable[[T], Cell | str]],
    *,
    keys: Callable[[T], Mapping[str, Json]] | None = None,
    fixed: int = 1,
    at_once: int = 6,
    caption: str = "",
) -> Table:
    """Return a table with a row for each line. The first columns, as many as `fixed`, are words that name the row.

    columns: title → the cell of a line, or words.   keys: what a line's figures are of, for files; None leaves the rows out
    of them.
    """

    def row(line: T) -> Row:
        cells = (made if isinstance(made := cell(line), Cell) else words(made) for cell in columns.values())
        return Row(cells=tuple(cells), keys=keys(line) if keys else {}, records=None if keys else ())

    return Table(
        name=name,
        title=title,
        columns=tuple(Column(title=text, words=place < fixed) for place, text in enumerate(columns)),
        rows=tuple(map(row, lines)),
        fixed=fixed,
        at_once=at_once,
        caption=caption,
    )


def simple(name: str, title: str, head: Sequence[str], rows: Iterable[Sequence[str | Cell]], **more: object) -> Table:
    """Return a table whose columns are all words: each cell is recorded under its column's title.

    more: further fields of the table.
    """
    return Table(
        name=name,
        title=title,
        columns=label_columns(*head),
        rows=tuple(
            Row(cells=tuple(c if isinstance(c, Cell) else words(c, name=h) for h, c in zip(head, row, strict=True)))
            for row in rows
        ),
        **{"fixed": len(head), **more},  # type: ignore[arg-type]
    )


def transposed(table: Table, head: str) -> Table:
    """Return a table with its rows as columns. Figures and their keys in files stay.

    table: one whose first column alone names the row.   head: title of the new first column.
    """
    rows = (
        Row(
            cells=(words(column.title), *(replace(row.cells[i], strong=row.strong) for row in table.rows)),
            keys=column.keys,
        )
        for i, column in enumerate(table.columns)
        if i
    )
    columns = (Column(title=row.cells[0].text, keys=row.keys) for row in table.rows)
    return replace(table, columns=(*label_columns(head), *columns), rows=tuple(rows))


@dataclass(frozen=True, kw_only=True)
class Dots:
    """A group of points in a plot."""

    name: str
    points: tuple[tuple[float, float], ...]
    """ScatterPlot: (share of the image 0 to 1, score 0 to 100); SizePlot: (width, height), shares of the image's 0 to 1."""
    good: float | None = None
    """How good what the group stands for is, 0 (worst) to 100 (best); None for groups without an order."""


@dataclass(frozen=True, kw_only=True)
class _Named:
    """What every plot has."""

    name: str
    """Of its file, without ending."""
    title: str


@dataclass(frozen=True, kw_only=True)
class ScatterPlot(_Named):
    """Scores 0 to 100 against shares of the image on a log axis, with the line of a trend."""

    groups: tuple[Dots, ...]
    """A group a label."""
    trend: tuple[tuple[float, float], ...] = ()
    trend_title: str = ""
    """Name of the line, or why there is none."""
    description: str
    """Read out instead of the picture."""


@dataclass(frozen=True, kw_only=True)
class SizePlot(ScatterPlot):
    """Widths and heights of targets on two log axes, colored by score."""


@dataclass(frozen=True, kw_only=True)
class HistogramPlot(_Named):
    """How many samples have targets of which area."""

    shares: tuple[float, ...]
    """Areas as shares of the image, above 0 up to 1, one for each sample."""
    unknown: int
    """Samples whose target area is not known."""


@dataclass(frozen=True, kw_only=True)
class BarPlot(_Named):
    """Stacked bars: how often each label was given, a row each."""

    rows: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    """(name, (label, count) in order); the labels are the same in every row."""
    goods: tuple[float | None, ...] = ()
    """How good each label is, 0 (worst) to 100 (best); () for labels without an order."""


@dataclass(frozen=True, kw_only=True)
class MeansPlot(_Named):
    """Means of 0 to 100 with their intervals: a group a row, such as an edit type, a bar a series, such as an editor."""

    rows: tuple[str, ...]
    series: tuple[tuple[str, tuple[Cell, ...]], ...]
    """(name, a cell a row); a cell without a value has no bar, and the plot says so."""


@dataclass(frozen=True, kw_only=True)
class RadarPlot(MeansPlot):
    """The same means on axes of their own, 0 in the middle (DLEBench's Figure 7, UnicBench's 10 and 11)."""


@dataclass(frozen=True, kw_only=True)
class HeatPlot(_Named):
    """A grid of figures of each two names, colored from worst to best."""

    names: tuple[str, ...]
    cells: Mapping[tuple[str, str], float | None]
    """(row, column) → 0 to 100; None where there is no figure. A place that is not listed stays empty."""


Plot: TypeAlias = ScatterPlot | SizePlot | HistogramPlot | BarPlot | MeansPlot | RadarPlot | HeatPlot
