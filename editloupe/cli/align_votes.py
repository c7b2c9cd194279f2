"""The part of `editloupe align` that sets a judge beside people's votes on pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from editloupe.errors import ConfigError
from editloupe.reports.columns import JudgeColumn, column_of, column_of_table
from editloupe.reports.human_labels import read_label_table
from editloupe.reports.judged import chosen as chosen_judges
from editloupe.reports.label_tables import column_names
from editloupe.reports.votes import PairAgreement, VoteAgreement, VoteTable, agree_on_pairs, read_votes
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.stats.bootstrap import Drawing


def vote_agreements(
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
) -> list[VoteAgreement]:
    """Return one agreement a judge: of a run, of a table of scores, or of the verdicts that the votes' own table has."""
    if run is not None and scores is not None:
        raise ConfigError("name a run folder or --scores, not both")
    table = read_votes(votes, column_names(columns, "--columns"), "--columns")
    if run is None and scores is None:
        if table.verdicts is None:
            raise ConfigError(
                f"{votes} has no column with a judge's own votes; name it with --columns verdict=COLUMN, "
                "or name a run folder, or --scores FILE"
            )
        for name, given in (("--tie", tie), ("--good-from", good_from), ("--criteria", chosen)):
            if given is not None:
                raise ConfigError(f"{name} is about scores; the judge of {votes} votes itself")
        one = agree_on_pairs(table.votes, "The judge's own votes", drawing=drawing)
        judges: dict[str, list[PairAgreement]] = {f"column {table.verdicts}": [one]}
        notes: tuple[str, ...] = ()
    else:
        if not table.votes[0].a:
            raise ConfigError(
                f"{votes} names no editors, so that no scores can be looked up; expected columns editor_a and editor_b"
            )
        read, notes = _judges(run, scores, score_columns, judge)
        judges = {
            name: _pairs(table, column, metrics, chosen, good_from, tie, drawing, where=str(run or scores))
            for name, (column, metrics) in read.items()
        }
    remarks = (*table.notes, *notes)
    return [
        VoteAgreement(judge=name, people=str(votes), pairs=tuple(pairs), bootstrap=drawing, notes=remarks)
        for name, pairs in judges.items()
    ]


def _judges(
    run: Path | None, scores: Path | None, score_columns: str | None, judge: str | None
) -> tuple[dict[str, tuple[JudgeColumn, Sequence[Metric | str]]], tuple[str, ...]]:
    """Judge → its column and metrics; and what of a table could not be used."""
    if run is not None:
        found = chosen_judges(RunStore.read(run), judge)
        return {f"{j.backend} ({j.judge_id})": (column_of(j), j.metrics.metrics) for j in found}, ()
    assert scores is not None
    named = column_names(score_columns, "--score-columns")
    table = read_label_table(scores, known=None, columns=named, option="--score-columns")
    return {scores.name: (column_of_table(table), table.metrics)}, table.notes


def _pairs(
    table: VoteTable,
    column: JudgeColumn,
    metrics: Sequence[Metric | str],
    chosen: tuple[str, ...] | None,
    good_from: str | None,
    tie: str | None,
    drawing: Drawing,
    *,
    where: str,
) -> list[PairAgreement]:
    """One for each metric, and one for the mean of a run's metrics (on 0 to 100) if there are several."""
    values: dict[str, dict[tuple[str, str], float]] = {}
    titles: dict[str, str] = {}
    names: dict[str, str] = {}
    for metric in metrics:
        name, short, title = (metric,) * 3 if isinstance(metric, str) else (metric.id, metric.short, metric.name)
        titles[name] = title
        names |= {short.casefold(): name, name.casefold(): name}
        values[name] = {key[:2]: v for key, v in column.of(name).items() if isinstance(v, float) and not any(key[2:])}
    bounded = [m for m in metrics if not isinstance(m, str)]
    if len(bounded) > 1 and all(m.domain.bounds is not None for m in bounded):
        titles["overall"] = "Overall (mean of the criteria, 0 to 100)"
        names["overall"] = "overall"
        shared = set.intersection(*(set(values[m.id]) for m in bounded))
        values["overall"] = {
            key: sum(n for m in bounded if (n := m.normalise(values[m.id][key])) is not None) / len(bounded)
            for key in shared
        }
    wanted = list(titles)
    if chosen is not None:
        unknown = next((word for word in chosen if word.casefold() not in names), None)
        if unknown is not None:
            raise ConfigError(f"--criteria {unknown}: expected one of {', '.join(titles)}")
        wanted = [names[word.casefold()] for word in chosen]
    known = {key[:2] for key in column.items}
    if not any((vote.a, vote.item) in known or (vote.b, vote.item) in known for vote in table.votes):
        first, ours = table.votes[0], next(iter(known), ("", ""))
        raise ConfigError(
            f"none of the pairs of {table.file} is in {where}: people voted on item {first.item!r} by {first.a!r} and "
            f"{first.b!r}, and it has item {ours[1]!r} by {ours[0]!r}"
        )
    difference, good = _difference(tie), None if good_from is None else _finite(good_from, "--good-from")
    return [
        agree_on_pairs(
            table.votes,
            titles[name],
            score=lambda editor, item, own=values[name]: own.get((editor, item)),  # type: ignore[misc]
            tie=difference,
            good=good,
            drawing=drawing,
        )
        for name in wanted
    ]


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
