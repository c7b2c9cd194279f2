"""Everything that `editloupe report` shows of one or several runs: the tables, the plots, and how they are written down."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe.errors import ConfigError
from editloupe.figures import plots, render
from editloupe.figures.compare import standing
from editloupe.figures.compare_tables import standing_table
from editloupe.figures.judged import Judged, incomplete, on_shared_metrics
from editloupe.figures.label_tables import label_tables
from editloupe.figures.summary import specs
from editloupe.figures.tables import spec_table
from editloupe.figures.write import table_files, write_files
from editloupe.protocols.base import described
from editloupe.protocols.imported import Published
from editloupe.scores import Score
from editloupe.stats.bootstrap import DRAWING
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Plot, Table, listed
from editloupe.values import Json


@dataclass(frozen=True, kw_only=True)
class Section:
    """What is told of one judge."""

    judged: Judged
    tables: tuple[Table, ...]

    @property
    def plots(self) -> tuple[Plot, ...]:
        """The plots of all tables; () where none can be drawn."""
        return tuple(plot for table in self.tables for plot in table.plots) if plots.available() else ()

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

    def files(self, *, drawn: bool) -> Iterator[tuple[str, str]]:
        """Yield (path below the report's folder, text): report.md, report.json, CSV tables; drawn: plots as SVG, too."""
        yield "report.md", self.markdown()
        yield "report.json", render.json_text(self.to_json())
        yield from table_files([self.together] if self.together else [])
        for below, section in self._folders():
            yield from table_files(section.tables, below, drawn=drawn)

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
    sections = tuple(Section(judged=judged, tables=tuple(tables_of(judged))) for judged in all_judged)
    if not any(section.tables for section in sections):
        names = ", ".join(judged.name for judged in all_judged)
        raise ConfigError(f"there is nothing to show of {names}: no score of a metric that the protocol declares")
    together, why = side_by_side(all_judged)
    notes = filter(None, (why, "" if plots.available() else plots.NO_PLOTS))
    return Report(sections=sections, together=together, notes=tuple(notes), incomplete=incomplete(all_judged))


def side_by_side(all_judged: Sequence[Judged]) -> tuple[Table | None, str]:
    """Return the table of several judges, on the metrics that all of them have, and a remark; None where there is none."""
    if len(all_judged) < 2:
        return None, ""
    try:
        shared, remarks = on_shared_metrics(all_judged)
        found = standing(shared, DRAWING)
    except ConfigError as error:
        return None, f"The judges do not stand side by side: {error}."
    return standing_table(found, {metric.id: metric.short for metric in shared[0].asked}), "".join(remarks)


def tables_of(judged: Judged) -> Iterator[Table]:
    """Yield the tables of one judge: declared ones, labels, published means, computed ones.

    Raises ConfigError, which names the protocol, if a table of its own cannot be made.
    """
    several = judged.frame["editor"].n_unique() > 1
    declared = [spec for spec in specs(judged.protocol) if not (spec.apart and several)]
    made = [spec_table(spec, judged.frame, judged.asked, drawing=DRAWING) for spec in declared]
    caption = next((spec.caption for spec in declared if spec.caption), "")
    made += label_tables(judged.frame, judged.asked, caption=caption)
    made.append(published_table(judged))
    for make in (table for table in judged.protocol.tables if not isinstance(table, TableSpec)):
        where = described(judged.protocol)
        try:
            table = make(judged.frame)
        except Exception as error:
            raise ConfigError(f"{where} raised in a table: {type(error).__name__}: {error}") from error
        if table is not None and not isinstance(table, Table):
            raise ConfigError(f"{where} made {type(table).__name__} for a table; expected a Table or None")
        made.append(table)
    yield from (table.with_keys({"judge": judged.name}) for table in made if table is not None)


def write_report(report: Report, folder: Path, *, below: Path | None = None, drawn: bool = True) -> list[Path]:
    """Write the report's files into `folder`. below: as in `write_files`; drawn: as in `files`. Raises StorageError."""
    return write_files(report.files(drawn=drawn), folder, below=below)


def published_table(judged: Judged) -> Table | None:
    """Return each published mean beside that of the scores that were judged; None for a run that was not imported."""
    if not judged.published:
        return None
    metrics = {metric.id: metric.short for metric in judged.metrics.metrics}
    dims = list(dict.fromkeys(dim for one in judged.published for dim in one.dims))

    by_place: dict[tuple[str, str], list[Score]] = {}
    for score in judged.scores:
        by_place.setdefault((score.editor, score.metric), []).append(score)

    def mean(one: Published) -> tuple[float | None, int, int]:
        asked = [
            score.value
            for score in by_place.get((one.editor, one.metric), ())
            if one.part in (None, score.part) and all(score.dims.get(dim) == value for dim, value in one.dims.items())
        ]
        known = [value for value in asked if value is not None]
        return math.fsum(known) / len(known) if known else None, len(known), len(asked)

    found = [(one, *mean(one)) for one in judged.published]
    made = listed(
        "published",
        "Means as published, and of what was judged",
        found,
        {
            "Editor": lambda line: line[0].editor,
            **{dim.replace("_", " ").capitalize(): lambda line, d=dim: str(line[0].dims.get(d, "")) for dim in dims},  # type: ignore[misc]
            "Metric": lambda line: metrics.get(line[0].metric, line[0].metric),
            "Published": lambda line: Cell(
                value=line[0].mean, name="published", digits=4, more={"published_count": line[0].count}
            ),
            "n": lambda line: Cell(value=line[0].count, name=""),
            "Judged": lambda line: Cell(value=line[1], name="mean", digits=4, judged=line[2], asked=line[3]),
            "Change": lambda line: Cell(
                value=None if line[1] is None or line[0].mean is None else line[1] - line[0].mean,
                name="change", digits=4, signed=True,
            ),
        },
        keys=lambda line: {"editor": line[0].editor, **line[0].dims, "metric": line[0].metric},
        fixed=2 + len(dims),
        caption="Published: as the files' own script computes it, with what it counts for a reply that could not be read. "
        "Judged: the mean over scores that are numbers on the scale (judged/asked). In the unit of the metric.",
    )  # fmt: skip
    return made.with_keys({"judge": judged.name})
