"""The table at the end of a run: scores by edit type, labels, and what could not be judged, for terminal and Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from editloupe.reports.plain import markdown_row, plain, safe
from editloupe.reports.summary import Cell, Summary
from editloupe.scores import MetricSet
from editloupe.values import Json

CAPTION = "Scores 0 to 100, higher is better; in brackets samples judged of asked, in Overall each once a criterion."
WORST = "Of several targets of a sample the worst label counts."
"""What the oracle mode adds: it judges targets one by one."""


@dataclass(frozen=True, kw_only=True)
class Heading:
    """What stands above the numbers, so that no table travels without it.

    judge: URI.   describes: what kind of judge ("pixel baseline: ... not an LMM").   ablations: of the tools.
    notes: absent tools and the like.
    """

    judge: str
    describes: str
    mode: str
    rubric: str
    ablations: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        ablated = f" ablated by {' and '.join(self.ablations)}" if self.ablations else ""
        asked = f"mode {self.mode}{ablated}; rubric {self.rubric}" if self.mode else f"protocol {self.rubric}{ablated}"
        return f"Judge: {self.judge} ({self.describes}); {asked}"

    @property
    def caption(self) -> str:
        """Below a table of scores."""
        return f"{CAPTION} {WORST}" if self.mode == "oracle" else CAPTION


@dataclass(frozen=True, kw_only=True)
class Row:
    """One row of a score table."""

    name: str
    cells: tuple[Cell, ...]
    strong: bool = False


def terminal(
    summaries: Sequence[Summary], rubric: MetricSet, heading: Heading, *, pooled: Summary | None = None
) -> RenderableType:
    """Everything as Rich renderables: a score table and a label table an editor.

    pooled: all editors together; where it is given, the editors share one table, a row each, and this one is shown whole.
    """
    parts: list[RenderableType] = [plain(heading.text, "bold")]
    parts += [plain(note, "yellow") for note in heading.notes]
    if pooled is not None:
        parts += [Text(), _editor_table(summaries, rubric)]
    for summary in summaries if pooled is None else [pooled]:
        caption = Text(heading.caption, style="dim")
        parts += [Text(), _score_table(summary, rubric), caption, Text(), _label_table(summary, rubric)]
    return Group(*parts)


def markdown(summaries: Sequence[Summary], rubric: MetricSet, heading: Heading) -> str:
    """The same tables as Markdown."""
    lines = [heading.text, "", *(f"> {note}" for note in heading.notes)]
    for summary in summaries:
        lines += ["", f"## {safe(table_title(summary))}", ""]
        names = [column_heading(c, rubric) for c in table_columns(summary)]
        lines += [markdown_row(["Edit type", "Samples", *names]), markdown_row(["---", "---:", *["---:"] * len(names)])]
        for row in table_rows(summary):
            name = f"**{row.name}**" if row.strong else row.name
            lines.append(markdown_row([name, str(_samples(row.cells)), *(_score(c) for c in row.cells)]))
        lines += [
            "",
            heading.caption,
            "",
            markdown_row(["Metric", "Label", "Samples"]),
            markdown_row(["---", "---", "---:"]),
        ]
        lines += [markdown_row([a, b, str(n)]) for a, b, n, _ in _labels(summary, rubric)]
    return "\n".join(lines) + "\n"


def as_json(summaries: Sequence[Summary], heading: Heading) -> dict[str, Json]:
    """The same numbers for programs; a mean that does not exist is null."""
    return {
        "judge": heading.judge,
        "describes": heading.describes,
        "mode": heading.mode,
        "rubric": heading.rubric,
        **({"ablations": list(heading.ablations)} if heading.ablations else {}),
        "notes": list(heading.notes),
        "editors": [s.to_json() for s in summaries],
    }


def json_text(data: Mapping[str, Json]) -> str:
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _score_table(summary: Summary, rubric: MetricSet) -> Table:
    table = Table(title=plain(table_title(summary)), title_justify="left")
    table.add_column("Edit type", overflow="fold")
    table.add_column("Samples", justify="right")
    for column in table_columns(summary):
        table.add_column(plain(column_heading(column, rubric)), justify="right")
    rows = table_rows(summary)
    for index, row in enumerate(rows):
        table.add_row(
            plain(row.name),
            str(_samples(row.cells)),
            *(_score(c) for c in row.cells),
            style="bold" if row.strong else None,
            end_section=index + 1 < len(rows) and rows[index + 1].strong and not row.strong,
        )
    return table


def _editor_table(summaries: Sequence[Summary], rubric: MetricSet) -> Table:
    """One row an editor: means over all its samples."""
    table = Table(title="Editors (means of all samples)", title_justify="left")
    table.add_column("Editor", overflow="fold")
    table.add_column("Samples", justify="right")
    for column in table_columns(summaries[0]):
        table.add_column(plain(column_heading(column, rubric)), justify="right")
    for summary in summaries:
        cells = [summary.micro[c] for c in table_columns(summary)]
        table.add_row(plain(summary.editor or "(not named)"), str(_samples(cells)), *(_score(c) for c in cells))
    return table


def _label_table(summary: Summary, rubric: MetricSet) -> Table:
    table = Table(title="Labels", title_justify="left")
    table.add_column("Metric")
    table.add_column("Label")
    table.add_column("Samples", justify="right")
    table.add_column("")
    rows = _labels(summary, rubric)
    most = max((n for _, _, n, _ in rows), default=0)
    previous = None
    for criterion, label, count, ok in rows:
        bar = Text("█" * round(24 * count / most) if most else "", style="cyan" if ok else "red")
        first = criterion != previous
        if first and previous is not None:
            table.add_section()
        table.add_row(plain(criterion if first else ""), plain(label), str(count), bar, style=None if ok else "red")
        previous = criterion
    return table


def table_rows(summary: Summary) -> list[Row]:
    """A row an edit type, then the means; cells in the order of `table_columns`."""
    columns = table_columns(summary)
    rows = [Row(name=t, cells=tuple(cells[c] for c in columns)) for t, cells in summary.rows.items()]
    if any(summary.types_present.values()):
        name = f"Mean of {_types(summary)} of {summary.types_known} types"
        rows.append(Row(name=name, cells=tuple(summary.macro[c] for c in columns), strong=True))
    rows.append(Row(name="Mean of all samples", cells=tuple(summary.micro[c] for c in columns), strong=True))
    return rows


def table_columns(summary: Summary) -> tuple[str, ...]:
    """The criteria, and their mean where there are several."""
    return (*summary.criteria, "overall") if len(summary.criteria) > 1 else summary.criteria


def column_heading(column: str, rubric: MetricSet) -> str:
    """The short name of a criterion, "Overall" for their mean."""
    return "Overall" if column == "overall" else rubric.metric(column).short


def _types(summary: Summary) -> str:
    """How many types a mean over types rests on: "7", or "6 to 7" where the criteria differ."""
    counts = [summary.types_present[c] for c in table_columns(summary)]
    return f"{min(counts)}" if len(set(counts)) == 1 else f"{min(counts)} to {max(counts)}"


def _labels(summary: Summary, rubric: MetricSet) -> list[tuple[str, str, int, bool]]:
    """(criterion, label or status, count, is it a label) from best to worst, then what could not be judged."""
    rows: list[tuple[str, str, int, bool]] = []
    for criterion in summary.criteria:
        short = rubric.metric(criterion).short
        rows += [(short, label, n, True) for label, n in reversed(list(summary.histogram[criterion].items()))]
        rows += [(short, f"({status})", n, False) for status, n in summary.statuses.get(criterion, {}).items()]
    return rows


def _score(cell: Cell) -> str:
    """ "63.3 (10/12)": the mean, and judged of asked; a dash where nothing was judged."""
    mean = "–" if cell.mean is None else f"{cell.mean:.2f}"
    return f"{mean} ({cell.judged}/{cell.asked})"


def _samples(cells: Sequence[Cell]) -> int:
    return cells[0].asked if cells else 0


def table_title(summary: Summary) -> str:
    """What stands above the table of one editor."""
    return f"Editor: {summary.editor}" if summary.editor else "Scores"
