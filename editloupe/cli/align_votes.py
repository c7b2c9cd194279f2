"""The part of `editloupe align` that sets a judge beside people's votes on pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from editloupe.errors import ConfigError

if TYPE_CHECKING:
    from editloupe.reports.align import Entry
    from editloupe.reports.pairwise import Duel
    from editloupe.reports.pairwise_table import PairReport
    from editloupe.reports.votes import Ballots
    from editloupe.scores import Metric
    from editloupe.stats.bootstrap import Drawing


def pair_reports(
    votes: Path,
    run: Path | None,
    scores: Path | None,
    columns: str | None,
    score_columns: str | None,
    judge: str | None,
    chosen: tuple[str, ...] | None,
    good_from: str | None,
    tie: str | None,
    drawing: Drawing,
) -> list[PairReport]:
    """A report a judge: of a run, of a table of scores, or of the verdicts that the votes' own table has."""
    from editloupe.reports.pairwise import duel
    from editloupe.reports.pairwise_table import PairReport
    from editloupe.reports.ratings import column_names
    from editloupe.reports.votes import read_votes

    if run is not None and scores is not None:
        raise ConfigError("name a run folder or --scores, not both")
    ballots = read_votes(votes, column_names(columns, "--columns"), "--columns")
    if run is None and scores is None:
        if ballots.verdicts is None:
            raise ConfigError(
                f"{votes} has no column with a judge's own votes; name it with --columns verdict=COLUMN, "
                "or name a run folder, or --scores FILE"
            )
        for name, given in (("--tie", tie), ("--good-from", good_from), ("--criteria", chosen)):
            if given is not None:
                raise ConfigError(f"{name} is about scores; the judge of {votes} votes itself")
        one = duel(ballots.ballots, "The judge's own votes", drawing=drawing)
        return [
            PairReport(
                judge=f"column {ballots.verdicts}", people=str(votes), duels=(one,), drawing=drawing, notes=ballots.notes
            )
        ]
    judged, notes = _judged(run, scores, score_columns, judge)
    reports = []
    for name, (entries, criteria) in judged.items():
        duels = _duels(ballots, entries, criteria, chosen, good_from, tie, drawing, where=str(run or scores))
        told = (*ballots.notes, *notes)
        reports.append(PairReport(judge=name, people=str(votes), duels=tuple(duels), drawing=drawing, notes=told))
    return reports


def _judged(
    run: Path | None, scores: Path | None, score_columns: str | None, judge: str | None
) -> tuple[dict[str, tuple[list[Entry], Sequence[Metric | str]]], tuple[str, ...]]:
    """Judge → its scores and criteria; and what of a table could not be used."""
    from editloupe.reports.entries import entries_of_run, entries_of_table
    from editloupe.reports.judged import chosen as chosen_judges
    from editloupe.reports.ratings import column_names, read_ratings
    from editloupe.runs.store import RunStore

    if run is not None:
        store = RunStore.read(run)
        criteria = store.metric_set().metrics
        found = chosen_judges(store, judge)
        return {f"{j.backend} ({j.judge_id})": (entries_of_run(j), criteria) for j in found}, ()
    assert scores is not None
    table = read_ratings(
        scores, known=None, columns=column_names(score_columns, "--score-columns"), option="--score-columns"
    )
    return {scores.name: (entries_of_table(table), table.criteria)}, table.notes


def _duels(
    ballots: Ballots,
    entries: Sequence[Entry],
    criteria: Sequence[Metric | str],
    chosen: tuple[str, ...] | None,
    good_from: str | None,
    tie: str | None,
    drawing: Drawing,
    *,
    where: str,
) -> list[Duel]:
    """One for each criterion, and one for the mean of a rubric's criteria (on 0 to 100) where there are several."""
    from editloupe.reports.pairwise import duel

    if not ballots.editors:
        raise ConfigError(
            f"{ballots.file} names no editors, so that no scores can be looked up; expected columns editor_a and editor_b"
        )
    values: dict[str, dict[tuple[str, str], float | None]] = {}
    titles: dict[str, str] = {}
    for criterion in criteria:
        name = criterion if isinstance(criterion, str) else criterion.id
        titles[name] = criterion if isinstance(criterion, str) else criterion.name
        values[name] = {e.key: _number(e.scores.get(name)) for e in entries}
    rubric = [c for c in criteria if not isinstance(c, str)]
    if len(rubric) > 1:
        titles["overall"] = "Overall (mean of the criteria, 0 to 100)"
        values["overall"] = {}
        for entry in entries:
            found = [(c, _number(entry.scores.get(c.id))) for c in rubric]
            parts = [n for c, v in found if v is not None and (n := c.normalise(v)) is not None]
            values["overall"][entry.key] = sum(parts) / len(parts) if len(parts) == len(rubric) else None
    wanted = [*titles] if chosen is None else [_chosen(word, titles, rubric) for word in chosen]
    known = {e.key for e in entries}
    if not any((ballot.a, ballot.item) in known or (ballot.b, ballot.item) in known for ballot in ballots.ballots):
        first, ours = ballots.ballots[0], next(iter(known), ("", ""))
        raise ConfigError(
            f"none of the pairs of {ballots.file} is in {where}: people voted on item {first.item!r} by {first.a!r} and "
            f"{first.b!r}, and it has item {ours[1]!r} by {ours[0]!r}"
        )
    difference, good = _difference(tie), None if good_from is None else _finite(good_from, "--good-from")
    return [
        duel(
            ballots.ballots,
            titles[name],
            score=lambda editor, item, name=name: values[name].get((editor, item)),  # type: ignore[misc]
            tie=difference,
            good=good,
            drawing=drawing,
        )
        for name in wanted
    ]


def _chosen(word: str, titles: dict[str, str], rubric: Sequence[Metric]) -> str:
    names = {c.short.casefold(): c.id for c in rubric} | {name.casefold(): name for name in titles}
    if word.casefold() not in names:
        raise ConfigError(f"--criteria {word}: expected one of {', '.join(titles)}")
    return names[word.casefold()]


def _difference(tie: str | None) -> float | None:
    """A threshold; None stands for the best one."""
    if tie == "best":
        return None
    found = 0.0 if tie is None else _finite(tie, "--tie")
    if found < 0:
        raise ConfigError(f"--tie {tie}: expected a difference of 0 or more, or best")
    return found


def _finite(text: str, option: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ConfigError(f"{option} {text}: expected a number")
    return found


def _number(value: float | str | None) -> float | None:
    return value if isinstance(value, float) else None
