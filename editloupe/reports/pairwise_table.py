"""Votes on pairs beside a judge's, as a person reads them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from editloupe.reports.agreement_table import FIGURES, caption, row
from editloupe.reports.pairwise import Duel, Strength
from editloupe.reports.sheets import Page, Section, Sheet
from editloupe.stats.bootstrap import Drawing
from editloupe.values import Json

_SETS = {
    "four": "A, B, both good, both bad",
    "three": "A, B, tie",
    "decided": "where people chose A or B",
}


@dataclass(frozen=True, kw_only=True)
class PairReport:
    """One judge beside people's votes: a duel a criterion, or one for the judge's own votes."""

    judge: str
    people: str
    duels: tuple[Duel, ...]
    drawing: Drawing
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {
            "judge": self.judge,
            "people": self.people,
            "bootstrap": self.drawing.to_json(),
            "notes": list(self.notes),
            "duels": [duel.to_json() for duel in self.duels],
        }


def page(report: PairReport) -> Page:
    """All tables of a report."""
    return Page(
        heading=f"Judge: {report.judge}; people: {report.people}",
        notes=report.notes,
        sections=tuple(
            Section(title=_title(duel), notes=_notes(duel), sheets=tuple(_sheets(duel, report.drawing)))
            for duel in report.duels
        ),
        caption=caption(report.drawing),
    )


def csv_text(reports: Sequence[PairReport]) -> str:
    """One row a figure, and one an editor's strength."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = "value", "low", "high", "judged", "asked", "adjusted", "why"
    writer.writerow(["judge", "criterion", "figure", "editor", *names])
    for report in reports:
        for duel in report.duels:
            for name, figure in duel.figures.items():
                e, inside = figure.estimate, figure.estimate.interval
                low, high = (None, None) if inside is None else (inside.low, inside.high)
                cells = [e.value, low, high, e.judged, e.asked, figure.adjusted, e.why or None]
                writer.writerow([report.judge, duel.title, name, None, *cells])
            of_people = duel.people if duel.people_judged is None else duel.people_judged
            for who, ranking in (("people", duel.people), ("people_judged", of_people), ("judge", duel.judge)):
                for s in ranking.strengths:
                    low, high = (None, None) if s.interval is None else (s.interval.low, s.interval.high)
                    cells = [s.value, low, high, ranking.votes, None, None, None]
                    writer.writerow([report.judge, duel.title, f"strength_{who}", s.editor, *cells])
                if ranking.why:
                    cells = [None, None, None, ranking.votes, None, None, ranking.why]
                    writer.writerow([report.judge, duel.title, f"strength_{who}", None, *cells])
    return text.getvalue()


def _sheets(duel: Duel, drawing: Drawing) -> Iterator[Sheet]:
    inside = f"{100 * drawing.level:g} % interval"
    for prefix, answers in _SETS.items():
        named = {n.removeprefix(f"{prefix}_"): f for n, f in duel.figures.items() if n.startswith(f"{prefix}_")}
        if named:
            rows = [
                row("Accuracy" if name == "exact" else FIGURES[name], figure.estimate, figure.adjusted)
                for name, figure in named.items()
            ]
            columns = ("Figure", "Value", inside, "Judged", "Adjusted")
            yield Sheet(title=f"Answers: {answers}", columns=columns, rows=tuple(rows))
    names = duel.scale.names
    yield Sheet(
        title="Votes: people's in rows, the judge's in columns",
        columns=("", *names, "none"),
        rows=tuple((name, *map(str, counts)) for name, counts in zip(names, duel.confusion, strict=True)),
        strong=frozenset((i, i + 1) for i in range(len(names))),
    )
    if duel.people.strengths or duel.judge.strengths:
        yield _rankings(duel)


def _notes(duel: Duel) -> tuple[str, ...]:
    why = {"people": duel.people.why, "the judge": duel.judge.why}
    if duel.people_judged is not None and duel.judge.strengths:
        why["people on the pairs that the judge judged"] = duel.people_judged.why
    return (*duel.notes, *(f"No ranking of the editors by {who}: {reason}" for who, reason in why.items() if reason))


def _rankings(duel: Duel) -> Sheet:
    """Editors in people's order; people's also on the pairs that the judge judged, where these are not all."""
    title = "Editors: Bradley–Terry strength (log, mean 0), by people and by the judge; n: votes"
    both = {"People": duel.people, "Judge": duel.judge}
    if duel.people_judged is not None:
        both = {"People": duel.people, "People, judged pairs": duel.people_judged, "Judge": duel.judge}
    first = duel.people.strengths or duel.judge.strengths
    rows = []
    for strength in first:
        cells = []
        for ranking in both.values():
            at = next((i for i, s in enumerate(ranking.strengths) if s.editor == strength.editor), None)
            cells += ["–", ""] if at is None else [_strength(ranking.strengths[at]), str(at + 1)]
        rows.append((strength.editor, *cells))
    heads = (head for who, ranking in both.items() for head in (f"{who} (n = {ranking.votes})", "Rank"))
    return Sheet(title=title, columns=("Editor", *heads), rows=tuple(rows))


def _strength(strength: Strength) -> str:
    inside = strength.interval
    return f"{strength.value:.2f}" + ("" if inside is None else f" [{inside.low:.2f},{inside.high:.2f}]")


def _title(duel: Duel) -> str:
    if duel.tie is None:
        return duel.title
    fitted = ", chosen on these votes: its accuracy is flattered" if duel.fitted else ""
    return f"{duel.title}: scores up to {duel.tie:g} apart tie{fitted}"
