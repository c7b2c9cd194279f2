"""One judge beside people, as `align` shows it: a section a metric, with tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field
from rich.console import Group, RenderableType
from rich.text import Text

from editloupe.reports import render
from editloupe.reports.escape import plain, safe
from editloupe.stats.bootstrap import Drawing
from editloupe.stats.table import Table
from editloupe.values import Serialisable


@dataclass(frozen=True, kw_only=True)
class TableSection:
    """Tables under one title."""

    title: str
    tables: tuple[Table, ...]
    notes: tuple[str, ...] = ()
    """Warnings, above the tables."""


@dataclass(frozen=True, kw_only=True)
class Agreement(Serialisable):
    """One judge beside people, of ratings (`align`) or votes on pairs (`votes`); or people among themselves (`raters`)."""

    judge: Annotated[str | None, Field(exclude_if=lambda judge: judge is None)] = None
    """None for people among themselves."""
    people: str
    """Where the labels are from."""
    bootstrap: Drawing
    notes: tuple[str, ...]
    """Warnings, above the sections."""

    def sections(self) -> Iterator[TableSection]:
        """Yield the tables of each metric."""
        raise NotImplementedError

    @property
    def heading(self) -> str:
        """Who is compared with whom."""
        return f"People: {self.people}" if self.judge is None else f"Judge: {self.judge}; people: {self.people}"

    @property
    def caption(self) -> str:
        """How to read the figures."""
        drawing = self.bootstrap
        return (
            "Judged: items with a score, of those with a human label. Adjusted: the same with the unjudged against the "
            f"judge. Intervals: bootstrap over source images, {drawing.resamples} resamples, seed {drawing.seed}."
        )


def terminal(found: Agreement) -> RenderableType:
    """Return the tables for a Rich console."""
    parts: list[RenderableType] = [plain(found.heading, "bold"), *(plain(note, "yellow") for note in found.notes)]
    for section in found.sections():
        parts += [Text(), plain(section.title, "bold cyan"), *(plain(note, "yellow") for note in section.notes)]
        parts += [render.terminal(table, at_once=len(table.columns)) for table in section.tables]
    return Group(*parts, Text(), plain(found.caption, "dim"))


def markdown(found: Agreement) -> str:
    """Return the tables as Markdown."""
    lines = [safe(found.heading), *(f"\n> {safe(note)}" for note in found.notes)]
    for section in found.sections():
        lines += ["", f"## {safe(section.title)}", *(f"\n> {safe(note)}" for note in section.notes)]
        lines += ["\n" + render.markdown(table, level=3).rstrip("\n") for table in section.tables]
    return "\n".join([*lines, "", found.caption]) + "\n"
