"""Ask `reports` for the tables and plots that pages show. No other module of the viewer knows reports."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from markupsafe import Markup

from editloupe.backends.prices import Prices
from editloupe.errors import EditLoupeError
from editloupe.reports.closing import score_tables
from editloupe.reports.compare import Comparison, compare, human_column
from editloupe.reports.compare_tables import tables
from editloupe.reports.judged import Judged, judged_in, read_judged
from editloupe.reports.label_plot import label_plot
from editloupe.reports.render import html
from editloupe.reports.report import Report, make_report
from editloupe.reports.summary import summarise
from editloupe.runs.judges import titled
from editloupe.scores import Score
from editloupe.viewer.reader import RunReader


@dataclass(frozen=True, kw_only=True)
class JudgeNumbers:
    """What a run's page shows of one judge."""

    judge: str
    """Its name with its URI."""
    tables: tuple[Markup, ...] = ()
    """Scores: a table an editor, or of many editors one with a row each and one of all together."""
    plots: tuple[Markup, ...] = ()
    """How often each label was given, a plot a metric."""
    problem: str = ""
    """Why there are no tables; "" if there are."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """What a report says of one judge."""

    name: str
    description: str
    notes: tuple[str, ...]
    tables: tuple[Markup, ...]
    plots: tuple[tuple[str, str], ...]
    """(name of the file without its ending, name in words)."""


@dataclass(kw_only=True)
class Numbers:
    """Tables and plots of runs, kept until a run changes."""

    prices: Prices = field(default_factory=Prices)
    _judged: dict[RunReader, tuple[int, dict[str, Judged], str]] = field(default_factory=dict)
    _scores: dict[RunReader, tuple[int, dict[str, list[tuple[str, Score]]]]] = field(default_factory=dict)
    _reports: dict[RunReader, tuple[int, Report | None]] = field(default_factory=dict)
    _compared: dict[tuple[RunReader, ...], tuple[list[int], Comparison | str | None]] = field(default_factory=dict)

    def judges(self, reader: RunReader) -> list[JudgeNumbers]:
        """Return tables and plots of each judge of a run, or why there are none."""
        names, found = reader.info.judge_names(), []
        known, problem = self._judges(reader)
        for id_, uri in reader.info.judges().items():
            title = titled(names[id_], uri)
            if id_ not in known:
                found.append(JudgeNumbers(judge=title, problem=problem))
                continue
            judged = known[id_]
            summaries = summarise(judged.protocol, judged.scores)
            found.append(
                JudgeNumbers(
                    judge=title,
                    tables=tuple(map(html, score_tables(judged.protocol, judged.scores))),
                    plots=tuple(label_plot(summaries, metric) for metric in judged.asked if metric.levels),
                )
            )
        return found

    def scores(self, reader: RunReader) -> dict[str, list[tuple[str, Score]]]:
        """Return every judge's scores of each sample: sample key → (judge id, score); empty if there are none."""
        kept = self._scores.get(reader)
        if kept is None or kept[0] != reader.version:
            version = reader.version
            found: dict[str, list[tuple[str, Score]]] = {}
            for judged in self._judges(reader)[0].values():
                for score in judged.scores:
                    found.setdefault(score.key, []).append((judged.judge_id, score))
            kept = self._scores[reader] = version, found
        return kept[1]

    def report(self, reader: RunReader) -> list[Section]:
        """Return what the report says of each judge; empty if nothing can be said yet."""
        report = self._report(reader)
        return [
            Section(
                name=section.judged.name,
                description=section.judged.describe(),
                notes=section.judged.notes,
                tables=tuple(map(html, section.tables)),
                plots=tuple((f"{n}-{name}", name.replace("-", " ")) for name in section.plots),
            )
            for n, section in enumerate(report.sections if report else (), start=1)
        ]

    def plots(self, reader: RunReader) -> dict[str, str]:
        """Return the report's plots as SVG, by the name of their file without its ending."""
        report = self._report(reader)
        sections = report.sections if report else ()
        return {f"{n}-{name}": svg for n, section in enumerate(sections, start=1) for name, svg in section.plots.items()}

    def comparison(self, readers: Sequence[RunReader]) -> Comparison | str | None:
        """Return all judges of all runs against each other, or why they cannot be compared; None for one judge."""
        key, versions = tuple(readers), [reader.version for reader in readers]
        kept = self._compared.get(key)
        if kept is None or kept[0] != versions:
            found: Comparison | str | None
            try:
                judges = read_judged([reader.folder for reader in readers])
                people, notes = human_column(judges)
                found = compare(judges, prices=self.prices, people=people)
                found = replace(found, notes=(*found.notes, *notes))
            except EditLoupeError as error:
                found = str(error) if several_judges(readers) else None
            kept = self._compared[key] = versions, found
        return kept[1]

    def _report(self, reader: RunReader) -> Report | None:
        kept = self._reports.get(reader)
        if kept is None or kept[0] != reader.version:
            version, judged = reader.version, self._judges(reader)[0]
            kept = self._reports[reader] = version, make_report(list(judged.values())) if judged else None
        return kept[1]

    def _judges(self, reader: RunReader) -> tuple[dict[str, Judged], str]:
        """The judges of a run by id with their scores, or why there are none."""
        kept = self._judged.get(reader)
        if kept is None or kept[0] != reader.version:
            version = reader.version
            try:
                kept = version, {j.judge_id: j for j in judged_in(reader.store)}, ""
            except EditLoupeError as error:
                kept = version, {}, str(error)
            self._judged[reader] = kept
        return kept[1], kept[2]


def comparison_tables(found: Comparison) -> list[Markup]:
    """Return the tables of a comparison, but for the list of disagreements."""
    return [html(table) for table in tables(found) if table.name != "disagreements"]


def several_judges(readers: Sequence[RunReader]) -> bool:
    """Return whether there is something to compare, without comparing: every page asks, for its link."""
    return sum(len(reader.info.judges()) for reader in readers) > 1
