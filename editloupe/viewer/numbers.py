"""Ask `reports` for the tables and plots that pages show, and keep them until a run changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from markupsafe import Markup

from editloupe.backends.prices import Prices
from editloupe.errors import EditLoupeError
from editloupe.reports.closing import score_tables
from editloupe.reports.compare import Comparison, compare, human_column
from editloupe.reports.judged import Judged, judged_in, read_judged
from editloupe.reports.label_plot import label_plot
from editloupe.reports.report import Report, make_report
from editloupe.reports.summary import summarise
from editloupe.runs.judges import titled
from editloupe.scores import Score
from editloupe.tables import Table
from editloupe.viewer.reader import RunReader

Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class JudgeNumbers:
    """What a run's page shows of one judge."""

    judge: str
    """Its name with its URI."""
    tables: Sequence[Table] = ()
    """Scores: a table an editor, or of many editors one with a row each and one of all together."""
    plots: Sequence[Markup] = ()
    """How often each label was given, a plot a metric."""
    problem: str = ""
    """Why there are no tables; "" if there are."""


@dataclass(kw_only=True)
class Numbers:
    """Tables and plots of runs."""

    prices: Prices = field(default_factory=Prices)
    _kept: dict[tuple[object, ...], tuple[list[int], Any]] = field(default_factory=dict)

    def judges(self, reader: RunReader) -> list[JudgeNumbers]:
        """Return tables and plots of each judge of a run, or why there are none."""
        names, found = reader.info.judge_names(), []
        known, problem = self._judges(reader)
        for id_, uri in reader.info.judges().items():
            title, judged = titled(names[id_], uri), known.get(id_)
            if judged is None:
                found.append(JudgeNumbers(judge=title, problem=problem))
                continue
            summaries = summarise(judged.protocol, judged.scores)
            tables = list(score_tables(judged.protocol, judged.scores))
            plots = [label_plot(summaries, metric) for metric in judged.asked if metric.levels]
            found.append(JudgeNumbers(judge=title, tables=tables, plots=plots))
        return found

    def scores(self, reader: RunReader) -> dict[str, list[tuple[str, Score]]]:
        """Return every judge's scores of each sample: sample key → (judge id, score); empty if there are none."""

        def by_sample() -> dict[str, list[tuple[str, Score]]]:
            found: dict[str, list[tuple[str, Score]]] = {}
            for judged in self._judges(reader)[0].values():
                for score in judged.scores:
                    found.setdefault(score.key, []).append((judged.judge_id, score))
            return found

        return self._once("scores", by_sample, reader)

    def report(self, reader: RunReader) -> Report | None:
        """Return the report of a run; None if nothing can be said yet."""

        def made() -> Report | None:
            judged = self._judges(reader)[0]
            return make_report(list(judged.values())) if judged else None

        return self._once("report", made, reader)

    def plots(self, reader: RunReader) -> dict[str, str]:
        """Return the report's plots as SVG, by the name of their file without its ending."""
        report = self.report(reader)
        sections = report.sections if report else ()
        return {f"{n}-{name}": svg for n, section in enumerate(sections, start=1) for name, svg in section.plots.items()}

    def comparison(self, readers: Sequence[RunReader]) -> Comparison | str:
        """Return all judges of all runs against each other, or why they cannot be compared."""

        def made() -> Comparison | str:
            try:
                judges = read_judged([reader.folder for reader in readers])
                people, notes = human_column(judges)
                found = compare(judges, prices=self.prices, people=people)
                return replace(found, notes=(*found.notes, *notes))
            except EditLoupeError as error:
                return str(error)

        return self._once("comparison", made, *readers)

    def _judges(self, reader: RunReader) -> tuple[dict[str, Judged], str]:
        """The judges of a run by id with their scores, or why there are none."""

        def read() -> tuple[dict[str, Judged], str]:
            try:
                return {j.judge_id: j for j in judged_in(reader.store)}, ""
            except EditLoupeError as error:
                return {}, str(error)

        return self._once("judges", read, reader)

    def _once(self, what: str, make: Callable[[], Made], *readers: RunReader) -> Made:
        """What `make` returns, made anew only after a change of the runs."""
        versions = [reader.version for reader in readers]
        kept = self._kept.get((what, *readers))
        if kept is None or kept[0] != versions:
            kept = self._kept[what, *readers] = versions, make()
        made: Made = kept[1]
        return made
