"""Pages of tables that read alike in a terminal and in Markdown."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from editloupe.reports.escape import markdown_row, plain, safe


@dataclass(frozen=True, kw_only=True)
class Sheet:
    """One table.

    strong: (row, column) of cells that stand out.   words: columns that hold words; the others hold figures.
    note: below it.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: frozenset[tuple[int, int]] = frozenset()
    words: tuple[int, ...] = (0,)
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Section:
    """Tables under one title; notes stand above them."""

    title: str
    sheets: tuple[Sheet, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """heading, notes: what a reader must know first.   caption: how to read the figures."""

    heading: str
    sections: tuple[Section, ...]
    notes: tuple[str, ...] = ()
    caption: str = ""


def terminal(page: Page) -> RenderableType:
    """The page for a Rich console."""
    parts: list[RenderableType] = [plain(page.heading, "bold"), *(plain(note, "yellow") for note in page.notes)]
    for section in page.sections:
        parts += [Text(), plain(section.title, "bold cyan"), *(plain(note, "yellow") for note in section.notes)]
        for sheet in section.sheets:
            parts += [Text(), _table(sheet), *([plain(sheet.note, "dim")] if sheet.note else [])]
    return Group(*parts, Text(), plain(page.caption, "dim"))


def markdown(page: Page) -> str:
    lines = [safe(page.heading), *(f"\n> {safe(note)}" for note in page.notes)]
    for section in page.sections:
        lines += ["", f"## {safe(section.title)}", *(f"\n> {safe(note)}" for note in section.notes)]
        for sheet in section.sheets:
            lines += ["", f"### {safe(sheet.title)}", "", markdown_row(sheet.columns)]
            lines += [markdown_row(["---" if i in sheet.words else "---:" for i in range(len(sheet.columns))])]
            for i, row in enumerate(sheet.rows):
                lines.append(
                    markdown_row([f"**{cell}**" if (i, j) in sheet.strong else cell for j, cell in enumerate(row)])
                )
            lines += ["", safe(sheet.note)] if sheet.note else []
    return "\n".join([*lines, "", page.caption]) + "\n"


def _table(sheet: Sheet) -> Table:
    table = Table(title=plain(sheet.title), title_justify="left")
    for index, column in enumerate(sheet.columns):
        if index in sheet.words:
            table.add_column(plain(column), overflow="fold")
        else:
            table.add_column(plain(column), justify="right")
    for i, row in enumerate(sheet.rows):
        cells = [plain(cell, "bold" if (i, j) in sheet.strong else "") for j, cell in enumerate(row)]
        table.add_row(*cells, style="dim" if "undefined" in row else None)
    return table
