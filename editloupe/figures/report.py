"""Everything that `editloupe report` shows of one or several runs: the tables, the plots, and how they are written down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from pydantic import TypeAdapter

from editloupe import files
from editloupe.errors import ConfigError, StorageError
from editloupe.figures import plots, render
from editloupe.figures.judged import Judged, incomplete
from editloupe.figures.label_tables import consistency_table, label_tables
from editloupe.figures.published import published_table
from editloupe.figures.run_frame import frame
from editloupe.figures.side_by_side import not_side_by_side, side_by_side
from editloupe.figures.summary import specs
from editloupe.figures.tables import spec_table
from editloupe.protocols.base import described
from editloupe.stats.bootstrap import DRAWING
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Plot, Table
from editloupe.values import Json

LISTED: Final = ".files.json"
"""Beside the files of a report: their names, so that the next one knows which are stale."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """What is told of one judge."""

    judged: Judged
    tables: tuple[Table, ...]

    @property
    def plots(self) -> tuple[Plot, ...]:
        """The plots of all tables; () where none can be drawn."""
        return tuple(plot for table in self.tables for plot in table.plots)

    def to_json(self) -> dict[str, Json]:
        """Return who judged how, and all figures, unrounded."""
        one = self.judged
        return {
            **{name: getattr(one, name) for name in ("backend", "judge_id", "mode")},
            "judge": one.name,
            "protocol": one.protocol.name,
            "ablations": list(one.ablations),
            "rubric": one.metrics.id,
            "repeats": one.repeats.to_json(),
            "run": str(one.folder),
            "notes": list(one.notes),
            "tables": {table.name: table.to_json() for table in self.tables},
        }


@dataclass(frozen=True, kw_only=True)
class Report:
    """One or several judges, each by itself and, where there are several, side by side; or a note why they are not."""

    sections: tuple[Section, ...]
    together: Table | None = None
    notes: tuple[str, ...] = ()
    incomplete: tuple[str, ...] = ()
    """A line for each judge that has not been asked everything yet."""

    def to_json(self) -> dict[str, Json]:
        """Return all figures, unrounded."""
        return {
            "together": None if self.together is None else self.together.to_json(),
            "notes": [*self.incomplete, *self.notes],
            "judges": [section.to_json() for section in self.sections],
        }

    def markdown(self) -> str:
        """Return all tables as one document."""
        parts = ["# Report\n", *(f"> {note}\n" for note in (*self.incomplete, *self.notes))]
        if self.together is not None:
            parts.append(render.markdown(self.together))
        for section in self.sections:
            parts.append(f"# {section.judged.name}\n\n{section.judged.describe()}\n")
            parts += [f"> {note}\n" for note in section.judged.notes]
            parts += map(render.markdown, section.tables)
        return "\n".join(parts)

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield (path below the report's folder, text): report.md, report.json, a CSV a table, an SVG a plot."""
        yield "report.md", self.markdown()
        yield "report.json", render.json_text(self.to_json())
        yield from table_files([self.together] if self.together else [])
        for below, section in self._folders():
            yield from table_files(section.tables, below)

    def pictures(self) -> Iterator[tuple[str, bytes]]:
        """Yield (path below a folder, bytes): a PDF and a PNG a plot, for a paper."""
        for below, section in self._folders():
            for plot in section.plots:
                for form in ("pdf", "png"):
                    yield f"{below}{plot.name}.{form}", plots.picture(plot, form)

    def _folders(self) -> Iterator[tuple[str, Section]]:
        """Each section with the path of its files below the report's folder."""
        for number, section in enumerate(self.sections, start=1):
            yield f"judge-{number}/" if len(self.sections) > 1 else "", section


def make_report(all_judged: Sequence[Judged]) -> Report:
    """Return the report of what was read. Raises ConfigError if there is nothing to show."""
    sections = tuple(Section(judged=judged, tables=tuple(map(drawable, tables_of(judged)))) for judged in all_judged)
    if not any(section.tables for section in sections):
        names = ", ".join(judged.name for judged in all_judged)
        raise ConfigError(f"there is nothing to show of {names}: no score of a metric that the protocol declares")
    notes = filter(None, (not_side_by_side(all_judged), "" if plots.available() else plots.NO_PLOTS))
    together, waiting = side_by_side(all_judged), incomplete(all_judged)
    return Report(sections=sections, together=together, notes=tuple(notes), incomplete=waiting)


def drawable(table: Table) -> Table:
    """Return a table with its plots, or without where none can be drawn."""
    return table if plots.available() else replace(table, plots=())


def tables_of(judged: Judged) -> Iterator[Table]:
    """Yield the tables of one judge: declared ones, labels, self-consistency, published means, computed ones.

    Raises ConfigError, which names the protocol, if a table of its own cannot be made.
    """
    keys: dict[str, Json] = {"judge": judged.name}
    several = judged.frame["editor"].n_unique() > 1
    declared = [spec for spec in specs(judged.protocol) if not (spec.apart and several)]
    made = [spec_table(spec, judged.frame, judged.asked, drawing=DRAWING, keys=keys) for spec in declared]
    caption = next((spec.caption for spec in declared if spec.caption), "")
    made += label_tables(judged.frame, judged.asked, caption=caption, keys=keys)
    made.append(consistency_table(judged.frame, judged.asked, judged.repeats, keys=keys))
    made.append(published_table(judged))
    computed = [table for table in judged.protocol.tables if not isinstance(table, TableSpec)]
    scores = frame([judged]) if computed else None
    for make in computed:
        where = described(judged.protocol)
        try:
            table = make(scores)
        except Exception as error:
            raise ConfigError(f"{where} raised in a table: {type(error).__name__}: {error}") from error
        if table is not None and not isinstance(table, Table):
            raise ConfigError(f"{where} made {type(table).__name__} for a table; expected a Table or None")
        made.append(None if table is None else table.with_keys(keys))
    yield from (table for table in made if table is not None)


def write_report(report: Report, folder: Path, *, below: Path | None = None) -> list[Path]:
    """Write every file of the report into `folder`. below: as in `write_files`. Raises StorageError."""
    return write_files(report.files(), folder, kind="report", below=below)


def table_files(tables: Iterable[Table], below: str = "") -> Iterator[tuple[str, str]]:
    """Yield (path, text): a CSV a table that has figures, an SVG a plot.   below: what stands before each name."""
    for table in tables:
        if records := table.records():
            yield f"{below}{table.name}.csv", render.records_csv(records)
        for plot in drawable(table).plots:
            yield f"{below}{plot.name}.svg", plots.draw(plot)


def write_files(texts: Iterable[tuple[str, str]], folder: Path, *, kind: str, below: Path | None = None) -> list[Path]:
    """(path below the folder, text) each; what was written there under the same kind before, and is not now, is removed.

    below: no link is followed from this folder on, such as the run's; None for `folder`.
    `LISTED` in the folder names what was written, by kind; nothing else is ever removed. Raises StorageError.
    """
    below = below or folder
    listed, written = _listed(folder), {}
    try:
        for name, text in texts:
            written[name] = files.write_whole(folder / name, text.encode("utf-8", "backslashreplace"), below=below)
        others = {name for other, names in listed.items() if other != kind for name in names}
        for name in listed.get(kind, []):
            if name not in written and name not in others:
                _remove(folder, name, below)
        text = json.dumps({**listed, kind: list(written)}, indent=1) + "\n"
        files.write_whole(folder / LISTED, text.encode(), below=below)
    except OSError as error:
        raise StorageError(f"the report cannot be written to {folder}: {error.strerror or error}") from error
    return list(written.values())


def _listed(folder: Path) -> dict[str, list[str]]:
    """Names by kind; nothing where there is no list, or one that is not ours."""
    try:
        return TypeAdapter(dict[str, list[str]]).validate_json(files.read_bytes(folder / LISTED))
    except (OSError, ValueError):
        return {}


def _remove(folder: Path, name: str, below: Path) -> None:
    """A file of ours below the folder, and the folder that it alone stood in. A list from elsewhere reaches no further."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        return
    files.unlink(path, below=below)
    if path.parent != folder and not any(path.parent.iterdir()):
        path.parent.rmdir()
