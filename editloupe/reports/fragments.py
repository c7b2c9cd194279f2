"""Fragments of pages: the tables of `table` and a plot of the labels as HTML, for the viewer to set into its pages.

Colours are classes (tone-0 worst to tone-3 best, tone-none for what could not be judged), so that a page's own style
sheet serves light and dark, and nothing here needs a style of its own. Every text goes through markupsafe's escaping.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup

from editloupe.reports.escape import safe
from editloupe.reports.grid import Grid
from editloupe.reports.summary import Cell, Summary
from editloupe.reports.table import CAPTION, Row, column_heading, table_columns, table_rows, table_title
from editloupe.scores import Metric, MetricSet

WIDTH: Final = 640
_ROW: Final = 34
_BAR: Final = 20


def tone(normalised: float | None) -> str:
    """The class of a score of 0..100: tone-0 (worst) to tone-3 (best), tone-none without one."""
    return "tone-none" if normalised is None else f"tone-{min(3, max(0, round(normalised / 100 * 3)))}"


def score_table(summary: Summary, rubric: MetricSet) -> Markup:
    """Scores by edit type, with judged of asked in every cell."""
    return _table(table_title(summary), "Edit type", table_rows(summary), table_columns(summary), rubric)


def editor_table(summaries: Sequence[Summary], rubric: MetricSet) -> Markup:
    """One row an editor: means of all its samples."""
    names = table_columns(summaries[0])
    found = [Row(name=s.editor or "(not named)", cells=tuple(s.micro[c] for c in names)) for s in summaries]
    return _table("Editors (means of all samples)", "Editor", found, names, rubric)


def grid_table(grid: Grid) -> Markup:
    """A grid as a table; a row that sums up stands out."""
    head = Markup("").join(
        Markup('<th scope="col"{}>{}</th>').format(Markup("") if i < grid.fixed else Markup(' class="number"'), safe(name))
        for i, name in enumerate(grid.head)
    )
    body = Markup("").join(
        Markup("<tr{}>{}</tr>").format(
            Markup(' class="strong"') if row.strong else "",
            Markup("").join(
                Markup('<th scope="row">{}</th>').format(safe(cell))
                if i == 0
                else Markup("<td{}>{}</td>").format(Markup("") if i < grid.fixed else Markup(' class="number"'), safe(cell))
                for i, cell in enumerate(row.cells)
            ),
        )
        for row in grid.rows
    )
    return Markup(
        '<div class="scroll"><table class="scores"><caption>{}<span class="dim">{}</span></caption>'
        "<thead><tr>{}</tr></thead><tbody>{}</tbody></table></div>"
    ).format(safe(grid.title), safe(grid.caption), head, body)


def _table(caption: str, first: str, rows: Sequence[Row], names: Sequence[str], rubric: MetricSet) -> Markup:
    cell = Markup('<th scope="col" class="number">{}</th>')
    head = Markup("").join(cell.format(column_heading(c, rubric)) for c in names)
    body = Markup("").join(
        Markup('<tr{}><th scope="row">{}</th><td class="number">{}</td>{}</tr>').format(
            Markup(' class="strong"') if row.strong else "",
            safe(row.name),
            row.cells[0].asked if row.cells else 0,
            Markup("").join(map(_cell, row.cells)),
        )
        for row in rows
    )
    return Markup(
        '<div class="scroll"><table class="scores"><caption>{}<span class="dim">{}</span></caption><thead><tr>'
        '<th scope="col">{}</th><th scope="col" class="number">Samples</th>{}</tr></thead><tbody>{}</tbody>'
        "</table></div>"
    ).format(safe(caption), CAPTION, first, head, body)


def _cell(cell: Cell) -> Markup:
    if cell.mean is None:
        return Markup('<td class="number dim">– <small>{}/{}</small></td>').format(cell.judged, cell.asked)
    # A bar under the number, 100 wide; SVG, since a style attribute would need a laxer security policy.
    bar = Markup(
        '<svg class="meter" viewBox="0 0 100 3" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="ground" width="100" height="3"/><rect class="{}" width="{:.1f}" height="3"/></svg>'
    ).format(tone(cell.mean), cell.mean)
    return Markup('<td class="number">{:.2f} <small>{}/{}</small>{}</td>').format(cell.mean, cell.judged, cell.asked, bar)


def label_plot(summaries: Sequence[Summary], criterion: Metric) -> Markup:
    """How often each label of one criterion was given, as an SVG: one stacked bar an editor, worst label first.

    What could not be judged stands at the end of a bar. The numbers are in the bars, their tooltips and the description.
    """
    tones = {level.name: tone(criterion.normalise(level.value)) for level in criterion.levels}
    counted: list[tuple[str, list[tuple[str, str, int]]]] = []
    for summary in summaries:
        parts = [(name, tones.get(name, "tone-none"), n) for name, n in summary.histogram[criterion.id].items()]
        parts += [(f"({status})", "tone-none", n) for status, n in summary.statuses.get(criterion.id, {}).items()]
        counted.append((summary.editor, [part for part in parts if part[2]]))
    named = any(editor for editor, _ in counted)
    left, height = (150 if named else 0), _ROW * len(counted)
    told = "; ".join(f"{editor or 'all'}: " + ", ".join(f"{name} {n}" for name, _, n in parts) for editor, parts in counted)
    drawn = Markup("").join(
        _stacked(editor if named else "", parts, left=left, top=_ROW * i) for i, (editor, parts) in enumerate(counted)
    )
    return Markup(
        '<figure class="plot"><figcaption>{}</figcaption>'
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>{}</figure>'
    ).format(criterion.name, WIDTH, height, safe(f"{criterion.name}: {told}"), drawn, _legend(tones.items(), counted))


def _stacked(editor: str, parts: Sequence[tuple[str, str, int]], *, left: int, top: int) -> Markup:
    total = sum(n for _, _, n in parts)
    at, found = float(left), [Markup("")]
    if editor:
        shown = editor if len(editor) <= 20 else editor[:19] + "…"
        found.append(Markup('<text x="0" y="{}">{}<title>{}</title></text>').format(top + 21, safe(shown), safe(editor)))
    for name, class_, n in parts:
        width = (WIDTH - left) * n / total
        fits = width > 9 * len(str(n)) + 4
        number = Markup('<text class="in" x="{:.1f}" y="{}">{}</text>').format(at + width / 2, top + 21, n) if fits else ""
        bar = Markup('<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>')
        drawn = bar.format(at, top + (_ROW - _BAR) // 2, max(width - 1.5, 0.5), _BAR)
        told = Markup("<title>{}: {} of {}</title>").format(safe(name), n, total)
        found.append(Markup('<g class="{}">{}{}{}</g>').format(class_, told, drawn, number))
        at += width
    return Markup("").join(found)


def _legend(tones: Iterable[tuple[str, str]], counted: Sequence[tuple[str, Sequence[tuple[str, str, int]]]]) -> Markup:
    missing = dict.fromkeys(name for _, parts in counted for name, class_, _ in parts if class_ == "tone-none")
    items = [*tones, *((name, "tone-none") for name in missing)]
    return Markup('<ul class="legend">{}</ul>').format(
        Markup("").join(Markup('<li><span class="dot {}"></span>{}</li>').format(c, safe(name)) for name, c in items)
    )
