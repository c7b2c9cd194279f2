"""Ask `figures` for the tables and plots that pages show, and keep them until a run changes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import Any, TypeVar

from editloupe.backends.base import NOT_LMMS, parse_uri
from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.errors import ConfigError, EditLoupeError
from editloupe.figures.closing import means_table
from editloupe.figures.compare import Comparison, compare, rated_by_people
from editloupe.figures.judged import Judged, judged_in, on_shared_metrics, read_judged
from editloupe.figures.plots import NARROW, WIDTH, draw
from editloupe.figures.report import Report, make_report
from editloupe.findings import Finding
from editloupe.scores import NOT_JUDGED, Score
from editloupe.stats.bootstrap import DRAWING
from editloupe.stats.table import Cell, Column, Plot
from editloupe.viewer.reader import RunReader

Made = TypeVar("Made")


@dataclass(frozen=True, kw_only=True)
class RunFacts:
    """What the list of runs says of one."""

    scores: Mapping[str, Sequence[Mapping[str, Any]]]
    """Judge id → the cells of its overview for all samples."""
    cost: float | None
    """USD, of the judges with a known price; None if none has one."""
    wall_s: float
    """From the first question to the last answer."""
    scored: int
    """Scores that were asked for."""
    waiting: int
    """Scores that nobody was asked for yet."""
    failed: int
    """Findings without an answer."""
    problem: str
    """Why there are no scores; "" if there are."""

    @property
    def judged(self) -> float:
        """The share of scores that were asked for, 0 to 100."""
        return 100 * self.scored / (self.scored + self.waiting) if self.scored else 0.0

    @property
    def left_s(self) -> float | None:
        """How long what is left takes at the pace so far; None where nothing is left, or nothing was asked yet."""
        return self.wall_s * self.waiting / self.scored if self.scored and self.waiting else None


def _remembered(make: Callable[[Numbers, RunReader], Made]) -> Callable[[Numbers, RunReader], Made]:
    """Let a method make what it returns anew only after a change of the run."""

    @wraps(make)
    def remembered(self: Numbers, reader: RunReader) -> Made:
        return self.once(make.__name__, lambda: make(self, reader), reader)

    return remembered


@dataclass(kw_only=True)
class Numbers:
    """Tables and plots of runs."""

    prices: Prices = field(default_factory=Prices)
    _kept: dict[tuple[object, ...], tuple[list[int], Any]] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @_remembered
    def overview(self, reader: RunReader) -> list[dict[str, Any]]:
        """Return the means of every judge of a run, or why there are none, as JSON.

        A judge has `rows`: all samples together (its name is "") if its protocol ever puts them together, then each editor.
        """
        known, problem = self._judges(reader)
        return [
            {
                "judge": id_,
                "rows": _means(known[id_]) if id_ in known else [],
                "problem": "" if id_ in known else problem,
            }
            for id_ in reader.info.judges() or known
        ]

    @_remembered
    def facts(self, reader: RunReader) -> RunFacts:
        """Return what the list of runs says of one."""
        overview, known = self.overview(reader), self._judges(reader)[0]
        findings = [f for sample in reader.samples() for f in sample.findings]
        costs = [usd for f in findings if (usd := self.cost(reader, f)) is not None]
        missing = [score.missing == NOT_JUDGED for judged in known.values() for score in judged.scores]
        return RunFacts(
            scores={one["judge"]: one["rows"][0]["cells"] for one in overview if one["rows"]},
            cost=sum(costs) if costs else None,
            wall_s=reader.wall_s(),
            scored=len(missing) - sum(missing),
            waiting=sum(missing),
            failed=sum(f.status not in ("ok", "not_defined") for f in findings),
            problem=next((one["problem"] for one in overview if one["problem"]), "") if findings else "nothing judged yet",
        )

    def cost(self, reader: RunReader, finding: Finding) -> float | None:
        """Return what a finding cost in USD; None for a judge without a price, and for one that is no model."""
        return self.price(str(reader.info.listed_judge(finding.judge_id).get("backend") or ""), finding.usage)

    def price(self, uri: str, usage: Usage) -> float | None:
        """Return the price of a judge's tokens in USD; None for an embedded judge, and where none is known."""
        try:
            priced = usage.total and uri and parse_uri(uri).provider not in NOT_LMMS
            return self.prices.of_uri(uri, usage) if priced else None
        except ConfigError:
            return None

    @_remembered
    def scores(self, reader: RunReader) -> dict[str, list[tuple[str, Score]]]:
        """Return every judge's scores of each sample: sample key → (judge id, score); empty if there are none."""
        found: dict[str, list[tuple[str, Score]]] = {}
        for judged in self._judges(reader)[0].values():
            for score in judged.scores:
                found.setdefault(score.key, []).append((judged.judge_id, score))
        return found

    @_remembered
    def report(self, reader: RunReader) -> Report | None:
        """Return the report of a run; None if nothing can be said yet."""
        judged = self._judges(reader)[0]
        return make_report(list(judged.values())) if judged else None

    @_remembered
    def plots(self, reader: RunReader) -> dict[str, tuple[Plot, int]]:
        """Return the report's plots with their width in px, by the name of their file; of each a narrow one, too."""
        report = self.report(reader)
        return {
            f"{n}-{plot.name}{kind}": (plot, width)
            for n, section in enumerate(report.sections if report else (), start=1)
            for plot in section.plots
            for kind, width in (("", WIDTH), ("-narrow", NARROW))
        }

    def plot(self, reader: RunReader, name: str) -> str | None:
        """Return one of `plots` as SVG, which is drawn when it is first looked at; None where there is none of the name."""
        found = self.plots(reader).get(name)
        return found and self.once(f"plot {name}", lambda: draw(found[0], width=found[1]), reader)

    def comparison(self, readers: Sequence[RunReader]) -> Comparison | str:
        """Return all judges of all runs against each other, or why they cannot be compared."""

        def made() -> Comparison | str:
            try:
                judges, shared = on_shared_metrics(read_judged([r.folder for r in readers]))
                table, columns = next(((r.human, r.columns) for r in readers if r.human), (None, {}))
                people, notes = rated_by_people(judges, table, columns)
                found = compare(judges, prices=self.prices, people=people)
                return replace(found, notes=(*shared, *found.notes, *notes))
            except EditLoupeError as error:
                return str(error)

        return self.once("comparison", made, *readers)

    @_remembered
    def _judges(self, reader: RunReader) -> tuple[dict[str, Judged], str]:
        """The judges of a run by id with their scores, or why there are none."""
        try:
            return {j.judge_id: j for j in judged_in(reader.store)}, ""
        except EditLoupeError as error:
            return {}, str(error)

    def has(self, what: str, *readers: RunReader) -> bool:
        """Return whether `once` would have it at once. Waits for nobody who is making something."""
        kept = self._kept.get((what, *readers))
        return kept is not None and kept[0] == [reader.version for reader in readers]

    def once(self, what: str, make: Callable[[], Made], *readers: RunReader) -> Made:
        """Return what `make` returns, made anew only after a change of the runs."""
        # One at a time: whoever asks for the same waits for it instead of making it again.
        with self._lock:
            versions = [reader.version for reader in readers]
            found = self._kept.get((what, *readers))
            if found is None or found[0] != versions:
                found = self._kept[what, *readers] = versions, make()
            made: Made = found[1]
            return made


def _means(judged: Judged) -> list[dict[str, Any]]:
    """The means of one judge: all samples, then each editor."""
    table = means_table(judged.protocol, judged.frame, together=True, drawing=DRAWING)
    if table is None:
        return []
    rows = [
        {
            "name": "" if row.strong or len(table.rows) == 1 else str(row.cells[0].value),
            "cells": [_mean(column, cell) for column, cell in zip(table.columns[1:], row.cells[1:], strict=True)],
        }
        for row in table.rows
    ]
    return sorted(rows, key=lambda row: bool(row["name"]))


def _mean(column: Column, cell: Cell) -> dict[str, Any]:
    return {
        "metric": column.keys.get("metric", ""), "short": column.title, "value": cell.value, "low": cell.low,
        "high": cell.high, "digits": cell.interval_digits, "judged": cell.judged, "asked": cell.asked, "meter": cell.meter,
        "text": "–" if cell.value is None else f"{cell.value:.{cell.digits or 0}f}",
    }  # fmt: skip
