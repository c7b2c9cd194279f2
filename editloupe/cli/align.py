"""`editloupe align`: how well a judge agrees with people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast, get_args

import typer

from editloupe.cli.align_votes import pair_reports
from editloupe.cli.options import words
from editloupe.cli.output import note, out
from editloupe.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from editloupe.reports.agreement_table import Report
    from editloupe.reports.align import Dimension, Entry, Options
    from editloupe.reports.pairwise_table import PairReport
    from editloupe.reports.ratings import RatingTable
    from editloupe.reports.sheets import Page
    from editloupe.scores import Metric
    from editloupe.values import Json


def align(
    run: Annotated[Path | None, typer.Argument(metavar="RUN", help="A run folder.")] = None,
    human: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="People's ratings: CSV, JSONL or Parquet. Default: those in the run's samples."),
    ] = None,
    scores: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A judge's scores from elsewhere, in place of RUN.")
    ] = None,
    votes: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="People's votes on pairs of edits (A>B, B>A, both good, both bad, tie)."),
    ] = None,
    columns: Annotated[
        str | None,
        typer.Option(metavar="ROLE=COLUMN,…", help="What columns of --human or --votes hold, where names do not say it."),
    ] = None,
    score_columns: Annotated[
        str | None, typer.Option(metavar="ROLE=COLUMN,…", help="The same for the columns of --scores.")
    ] = None,
    rubric: Annotated[
        str | None, typer.Option(help="With --scores: the rubric whose labels both tables use, a name or a file.")
    ] = None,
    criteria: Annotated[str | None, typer.Option(help="Comma-separated criteria. Default: all that both have.")] = None,
    judge: Annotated[
        str | None, typer.Option(help="One judge of the run, by name, id or URI. Default: each in turn.")
    ] = None,
    aggregate: Annotated[
        str, typer.Option(help="How correlations of groups are averaged: fisher, mean or tanh-mean.")
    ] = "fisher",
    group: Annotated[
        str | None,
        typer.Option(help="Groups to average over: editor, edit_type, area or none. Default: editor, where there are two."),
    ] = None,
    good_from: Annotated[
        str | None, typer.Option(metavar="LABEL", help="The label from which on an edit is good: for accuracy and F1.")
    ] = None,
    tie: Annotated[
        str | None,
        typer.Option(metavar="DIFFERENCE", help="With --votes: scores up to this far apart tie; or best. Default: 0."),
    ] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2000,
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="JSON on standard output.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="CSV on standard output, one row a figure.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Markdown on standard output.")] = False,
) -> int:
    """Measure how well a judge agrees with people: a run's findings, or any table of scores, against human ratings.

    Correlations, errors, kappas, alpha, exact match, accuracy and F1, overall, by edit type, target area and editor, with
    bootstrap intervals over source images, beside what people reach among themselves. No model is asked.
    """
    from editloupe.reports.align import Options
    from editloupe.stats.bootstrap import Aggregate, Drawing

    if votes is None and (run is None) == (scores is None):
        raise ConfigError("name a run folder, or a table of scores with --scores FILE: one of the two")
    if sum((as_json, as_csv, as_markdown)) > 1:
        raise ConfigError("--json, --csv and --markdown exclude each other")
    if aggregate not in get_args(Aggregate):
        raise ConfigError(f"--aggregate {aggregate}: expected {', '.join(get_args(Aggregate))}")
    if group not in (None, "editor", "edit_type", "area", "none"):
        raise ConfigError(f"--group {group}: expected editor, edit_type, area or none")
    drawing = Drawing(resamples=resamples, level=level, seed=seed)
    options = Options(how=cast(Aggregate, aggregate), good=good_from, drawing=drawing)
    chosen = words(criteria)
    if votes is not None:
        for name, given in (("--human", human), ("--group", group), ("--rubric", rubric)):
            if given is not None:
                raise ConfigError(f"{name} does not go with --votes")
        pairs = pair_reports(votes, run, scores, columns, score_columns, judge, chosen, good_from, tie, drawing)
        _print_pairs(pairs, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
        return 0
    if tie is not None:
        raise ConfigError("--tie goes with --votes")
    if scores is not None:
        if human is None:
            raise ConfigError("--scores needs --human FILE with people's ratings of the same items")
        reports = [_of_tables(scores, human, columns, score_columns, rubric, chosen, group, options)]
    else:
        assert run is not None
        for name, given in (("--score-columns", score_columns), ("--rubric", rubric)):
            if given is not None:
                raise ConfigError(f"{name} goes with --scores; a run knows its own")
        reports = _of_run(run, human, columns, judge, chosen, group, options)
    _print(reports, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
    return 0


def _of_run(
    folder: Path,
    human: Path | None,
    columns: str | None,
    judge: str | None,
    chosen: tuple[str, ...] | None,
    group: str | None,
    options: Options,
) -> list[Report]:
    from editloupe.reports.entries import entries_of_run, join, knows, ratings_of_run
    from editloupe.reports.judged import chosen as chosen_judges
    from editloupe.reports.ratings import column_names, read_ratings
    from editloupe.runs.store import RunStore

    store = RunStore.read(folder)
    for problem in store.problems:
        note(f"warning: {problem}")
    rubric = store.metric_set().metrics
    known = knows(rubric)
    if human is None:
        people = ratings_of_run(store, known)
    else:
        only = rubric[0].id if len(rubric) == 1 else None
        named = column_names(columns, "--columns")
        people = read_ratings(human, known=known, columns=named, option="--columns", only=only)
    reports = []
    for judged in chosen_judges(store, judge):
        entries, notes = join(entries_of_run(judged), people, where=f"the run {folder}", closed=True)
        asked = [c for c in rubric if c.id in people.criteria]
        wanted = asked if chosen is None else [_one(c, rubric) for c in chosen]
        reports.append(_report(f"{judged.title} ({judged.judge_id})", people, entries, notes, wanted, group, options))
    return reports


def _of_tables(
    scores: Path,
    human: Path,
    columns: str | None,
    score_columns: str | None,
    rubric: str | None,
    chosen: tuple[str, ...] | None,
    group: str | None,
    options: Options,
) -> Report:
    from dataclasses import replace

    from editloupe.config import RunConfig
    from editloupe.protocols.base import make_protocol
    from editloupe.reports.entries import entries_of_table, join, knows, knows_names
    from editloupe.reports.ratings import column_names, read_ratings

    bound = None if rubric is None else tuple(make_protocol(RunConfig().protocol, {"rubric": rubric}).metrics)
    known = None if bound is None else knows(bound)
    theirs = column_names(score_columns, "--score-columns")
    judged = read_ratings(scores, known=known, columns=theirs, option="--score-columns")
    if known is None:
        known = knows_names(judged.criteria)
    only = judged.criteria[0] if len(judged.criteria) == 1 else None
    named = column_names(columns, "--columns")
    people = read_ratings(human, known=known, columns=named, option="--columns", only=only)
    both = [c for c in judged.criteria if c in people.criteria]
    if chosen is not None:
        unknown = [c for c in chosen if known(c) not in both]
        if unknown:
            raise ConfigError(f"--criteria {', '.join(unknown)}: not in both tables; they share {_listed(both)}")
        both = [c for c in both if c in {known(w) for w in chosen}]
    wanted: list[Metric | str] = list(both)
    if bound is not None:
        wanted = [c for c in bound if c.id in both]
    entries, notes = join(entries_of_table(judged), people, where=str(scores), closed=False)
    people = replace(people, notes=(*judged.notes, *people.notes))
    return _report(scores.name, people, entries, notes, wanted, group, options)


def _report(
    judge: str,
    people: RatingTable,
    entries: list[Entry],
    notes: list[str],
    criteria: Sequence[Metric | str],
    group: str | None,
    options: Options,
) -> Report:
    from dataclasses import replace

    from editloupe.reports.agreement_table import Report
    from editloupe.reports.align import align as align_one

    if not criteria:
        raise ConfigError(f"{people.file}: no criterion that the judge has scores for; it rates {_listed(people.criteria)}")
    over = group
    if over is None:
        over = "editor" if len({e.key[0] for e in entries if e.ratings}) > 1 else "none"
    options = replace(options, over=None if over == "none" else cast("Dimension", over))
    return Report(
        judge=judge,
        people=str(people.file),
        alignments=tuple(align_one(entries, c, options) for c in criteria),
        drawing=options.drawing,
        notes=(*people.notes, *notes),
    )


def _print(reports: Sequence[Report], *, as_json: bool, as_csv: bool, as_markdown: bool) -> None:
    from editloupe.reports.agreement_table import csv_text, page

    data = {"judges": [report.to_json() for report in reports]}
    _show(
        [page(report) for report in reports], data if as_json else None, csv_text(reports) if as_csv else None, as_markdown
    )


def _show(pages: Sequence[Page], data: Mapping[str, Json] | None, table: str | None, as_markdown: bool) -> None:
    from editloupe.reports.sheets import markdown, terminal

    if data is not None:
        typer.echo(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
    elif table is not None:
        typer.echo(table, nl=False)
    elif as_markdown:
        typer.echo("\n".join(map(markdown, pages)), nl=False)
    else:
        for index, page in enumerate(pages):
            if index:
                out().print()
            out().print(terminal(page))


def _print_pairs(reports: Sequence[PairReport], *, as_json: bool, as_csv: bool, as_markdown: bool) -> None:
    from editloupe.reports.pairwise_table import csv_text, page

    data = {"judges": [report.to_json() for report in reports]}
    _show(
        [page(report) for report in reports], data if as_json else None, csv_text(reports) if as_csv else None, as_markdown
    )


def _one(name: str, rubric: Sequence[Metric]) -> Metric:
    for criterion in rubric:
        if name.casefold() in (criterion.id.casefold(), criterion.short.casefold()):
            return criterion
    raise ConfigError(f"--criteria {name}: the rubric has {_listed([f'{c.id} ({c.short})' for c in rubric])}")


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"
