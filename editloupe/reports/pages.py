"""Tables under headings, as `align` prints them: a page a judge, a section a metric."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Group, RenderableType
from rich.text import Text

from editloupe.reports import render
from editloupe.reports.escape import plain, safe
from editloupe.stats.bootstrap import Drawing
from editloupe.tables import Table


@dataclass(frozen=True, kw_only=True)
class TableSection:
    """Tables under one title."""

    title: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    """Warnings, above the tables."""


@dataclass(frozen=True, kw_only=True)
class TablePage:
    """One judge beside people."""

    heading: str
    sections: tuple[TableSection, ...]
    notes: tuple[str, ...]
    """Warnings, above the sections."""

    drawing: Drawing

    @property
    def caption(self) -> str:
        """How to read the figures."""
        return (
            "Judged: items with a score, of those with a human label. Adjusted: the same with the unjudged against the "
            f"judge. Intervals: bootstrap over source images, {self.drawing.resamples} resamples, seed {self.drawing.seed}."
        )


def terminal(page: TablePage) -> RenderableType:
    """Return the page for a Rich console."""
    parts: list[RenderableType] = [plain(page.heading, "bold"), *(plain(note, "yellow") for note in page.notes)]
    for section in page.sections:
        parts += [Text(), plain(section.title, "bold cyan"), *(plain(note, "yellow") for note in section.notes)]
        parts += [render.terminal(table, at_once=len(table.columns)) for table in section.tables]
    return Group(*parts, Text(), plain(page.caption, "dim"))


def markdown(page: TablePage) -> str:
    """Return the page as Markdown."""
    lines = [safe(page.heading), *(f"\n> {safe(note)}" for note in page.notes)]
    for section in page.sections:
        lines += ["", f"## {safe(section.title)}", *(f"\n> {safe(note)}" for note in section.notes)]
        lines += ["\n" + render.markdown(table, level=3).rstrip("\n") for table in section.tables]
    return "\n".join([*lines, "", page.caption]) + "\n"
