"""Show tables in a terminal, as Markdown, CSV, JSON and HTML."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from types import SimpleNamespace
from typing import Final, Literal

from markupsafe import Markup
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderResult
from rich.table import Table as RichTable
from rich.text import Text

from editloupe.figures.escape import csv_cell, markdown_row, plain, safe
from editloupe.stats.table import Row, Table
from editloupe.values import Json

_FIXED_SHARE = 0.4
"""Of the width for the first columns, whose words may go on below."""


def markdown(table: Table) -> str:
    """Return a heading, the table and the caption. A table without a title has no heading."""
    columns = [table.columns[i] for i in table.shown]
    lines = [f"## {safe(table.title)}", ""] if table.title else []
    lines.append(markdown_row(column.title for column in columns))
    lines.append(markdown_row("---" if column.words else "---:" for column in columns))
    for row in table.rows:
        texts = [f"**{cell.text}**" if cell.strong else cell.text for i in table.shown for cell in (row.cells[i],)]
        lines.append(markdown_row([f"**{texts[0]}**", *texts[1:]] if row.strong else texts))
    return "\n".join([*lines, *(["", safe(table.caption)] if table.caption else [])]) + "\n"


def records_csv(records: Iterable[Mapping[str, Json]], names: Sequence[str] = ()) -> str:
    """Return records as CSV, a line each; empty where something is missing. names: the columns; () as they appear.

    No cell is a formula to a spreadsheet: texts come from models and strangers (`csv_cell`).
    """
    lines: list[str] = []
    if not names:
        records = list(records)
    columns = names or list(dict.fromkeys(name for record in records for name in record))
    # Python quotes a carriage return in a cell only if lines end with one.
    writer = csv.writer(SimpleNamespace(write=lambda line: lines.append(line.removesuffix("\r\n") + "\n")))
    for row in chain([columns], ([record.get(name) for name in columns] for record in records)):
        writer.writerow([csv_cell(cell) if isinstance(cell, str) else cell for cell in row])
    return "".join(lines)


_TEX: Final = {c: f"\\{c}" for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\textquotedbl{}",
    "–": "--",
    "−": r"$-$",
    "×": r"$\times$",
    "±": r"$\pm$",
    "→": r"$\to$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "α": r"$\alpha$",
    "κ": r"$\kappa$",
    "ρ": r"$\rho$",
    "τ": r"$\tau$",
}
"""What LaTeX would read as a command, and what its fonts lack."""


def latex(table: Table) -> str:
    """Return a table of the package booktabs with its title as caption; a strong row or cell is bold."""
    columns = [table.columns[i] for i in table.shown]

    def line(texts: Iterable[str]) -> str:
        return "  " + " & ".join(texts) + r" \\"

    body: list[str] = []
    for row in table.rows:
        cells = [(_tex(row.cells[i].text), row.strong or row.cells[i].strong) for i in table.shown]
        body += [r"  \midrule"] if row.strong and body else []
        body.append(line(rf"\textbf{{{text}}}" if strong else text for text, strong in cells))
    return "\n".join(
        [
            r"\begin{table}",
            rf"  \caption{{{_tex(' '.join(filter(None, (table.title, table.caption))))}}}",
            rf"  \begin{{tabular}}{{{''.join('l' if column.words else 'r' for column in columns)}}}",
            r"  \toprule",
            line(_tex(column.title) for column in columns),
            r"  \midrule",
            *body,
            r"  \bottomrule",
            r"  \end{tabular}",
            r"\end{table}",
            "",
        ]
    )


def _tex(text: str) -> str:
    return "".join(_TEX.get(c, c) for c in " ".join(safe(text).split()))


def json_text(data: Mapping[str, Json]) -> str:
    """Return an indented JSON document."""
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def tone(normalized: float | None) -> str:
    """Return the CSS class of a score of 0 to 100: tone-0 (worst) to tone-3 (best), tone-none without one."""
    return "tone-none" if normalized is None else f"tone-{min(3, max(0, round(normalized / 100 * 3)))}"


def html(table: Table) -> Markup:
    """Return a table for a page. Colors are classes, every text is escaped."""
    columns = [table.columns[i] for i in table.shown]
    number = [Markup("") if column.words else Markup(' class="number"') for column in columns]
    # A column without a title has no header cell, which a screen reader would read as an empty one.
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(kind, safe(column.title)) if column.title else Markup("<td></td>")
        for kind, column in zip(number, columns, strict=True)
    )
    body = Markup("").join(
        Markup("<tr{}>{}</tr>").format(Markup(' class="strong"') if row.strong else "", _html_cells(table, row, number))
        for row in table.rows
    )
    return Markup(
        '<div class="scroll" tabindex="0" role="region" aria-label="{}"><table class="scores">'
        '<caption><span class="told">{}<span class="dim">{}</span></span></caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>"
    ).format(safe(table.title), safe(table.title), safe(table.caption), head, body)


def _html_cells(table: Table, row: Row, number: Sequence[Markup]) -> Markup:
    found = Markup("")
    for position, (i, kind) in enumerate(zip(table.shown, number, strict=True)):
        cell, bar = row.cells[i], Markup("")
        if cell.meter is not None:
            # SVG, since a style attribute would need a laxer security policy.
            bar = Markup(
                '<svg class="meter" width="100%" height="5" aria-hidden="true">'
                '<rect class="ground" width="100%" height="5"/><rect class="{}" width="{:.1f}%" height="5"/>{}</svg>'
            ).format(tone(cell.meter), cell.meter, _interval(cell.low, cell.high))
        shown = Markup("<strong>{}</strong>").format(safe(cell.text)) if cell.strong else safe(cell.text)
        form = "<td{}>{}{}</td>" if position else '<th scope="row"{}>{}{}</th>'
        found += Markup(form).format(kind, shown, bar)
    return found


def _interval(low: float | None, high: float | None) -> Markup:
    """The interval of a bar of 0 to 100, as a line."""
    if low is None or high is None:
        return Markup("")
    line = '<line class="interval" x1="{:.1f}%" x2="{:.1f}%" y1="2.5" y2="2.5"/>'
    return Markup(line).format(min(100.0, max(0.0, low)), min(100.0, max(0.0, high)))


@dataclass(frozen=True)
class Terminal:
    """A table for a terminal: one that is wider than it comes in parts, each with the first columns."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table, columns = self.table, [self.table.columns[i] for i in self.table.shown]
        texts = [table.text(row) for row in table.rows]
        widths = [max(map(cell_len, (column.title, *(row[i] for row in texts)))) for i, column in enumerate(columns)]
        parts = list(self._parts(widths, options.max_width))
        for number, part in enumerate(parts, start=1):
            shown = RichTable()
            for i in part:
                # Only words are broken.
                side: Literal["left", "right"] = "left" if columns[i].words else "right"
                shown.add_column(plain(columns[i].title), justify=side, overflow="fold", no_wrap=not columns[i].words)
            for index, row in enumerate(table.rows):
                follows = table.rows[index + 1] if index + 1 < len(table.rows) else None
                strong = [row.cells[i].strong for i in table.shown]
                shown.add_row(
                    *(plain(texts[index][i], "bold" if strong[i] else "") for i in part),
                    style="bold" if row.strong else "dim" if row.dim else None,
                    end_section=follows is not None and follows.strong and not row.strong,
                )
            told = f" ({number} of {len(parts)})" if len(parts) > 1 else ""
            # Not the table's own title, which would break at the table's width.
            title = [plain(table.title + told, "italic")] if table.title or told else []
            yield Group(Text(), *title, shown)
        if table.caption:
            yield plain(table.caption, "dim")

    def _parts(self, widths: Sequence[int], width: int) -> Iterator[list[int]]:
        """Yield the columns of one part after another: the fixed ones, and others while there is room."""
        fixed = list(range(min(self.table.fixed, len(widths))))
        # A frame takes 3 a column; the first columns, whose words may go on below, take at most this share.
        room = width - 1 - min(sum(widths[i] + 3 for i in fixed), int(_FIXED_SHARE * width))
        part: list[int] = []
        for i in range(len(fixed), len(widths)):
            if part and (len(part) == self.table.at_once or sum(widths[j] + 3 for j in (*part, i)) > room):
                yield fixed + part
                part = []
            part.append(i)
        yield fixed + part
