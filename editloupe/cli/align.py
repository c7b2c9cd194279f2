"""`editloupe align`: how well a judge agrees with people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, cast, get_args

import typer

from editloupe.cli.align_votes import vote_agreements
from editloupe.cli.options import words
from editloupe.cli.output import note, out
from editloupe.config import RunConfig
from editloupe.data.human import names_of
from editloupe.errors import ConfigError
from editloupe.protocols.base import make_protocol
from editloupe.reports import pages, render
from editloupe.reports.align import AlignOptions, JudgeAgreement
from editloupe.reports.align import align as agreement_on
from editloupe.reports.columns import Dimension, HumanLabels, JudgeColumn, column_of, column_of_table, join
from editloupe.reports.human_labels import read_label_table, read_people
from editloupe.reports.judged import chosen as chosen_judges
from editloupe.reports.label_tables import column_names
from editloupe.reports.votes import VoteAgreement
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.stats.bootstrap import Aggregate, Drawing
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
    if votes is None and (run is None) == (scores is None):
        raise ConfigError("name a run folder, or a table of scores with --scores FILE: one of the two")
    if sum((as_json, as_csv, as_markdown)) > 1:
        raise ConfigError("--json, --csv and --markdown exclude each other")
    if aggregate not in get_args(Aggregate):
        raise ConfigError(f"--aggregate {aggregate}: expected {', '.join(get_args(Aggregate))}")
    if group not in (None, "editor", "edit_type", "area", "none"):
        raise ConfigError(f"--group {group}: expected editor, edit_type, area or none")
    drawing = Drawing(resamples=resamples, level=level, seed=seed)
    options = AlignOptions(how=cast(Aggregate, aggregate), good=good_from, drawing=drawing)
    chosen = words(criteria)
    if votes is not None:
        for name, given in (("--human", human), ("--group", group), ("--rubric", rubric)):
            if given is not None:
                raise ConfigError(f"{name} does not go with --votes")
        pairs = vote_agreements(votes, run, scores, columns, score_columns, judge, chosen, good_from, tie, drawing)
        _print(pairs, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
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
    options: AlignOptions,
) -> list[JudgeAgreement]:
    store = RunStore.read(folder)
    for problem in store.problems:
        note(f"warning: {problem}")
    metrics, people = store.metric_set(), read_people(store, human, columns)
    wanted = [m for m in metrics.metrics if m.id in people.metrics]
    if chosen is not None:
        wanted = [metrics.metric(name) for name in chosen]
    return [
        _agreement(
            f"{one.title} ({one.judge_id})", column_of(one), people, wanted, group, options, where=f"the run {folder}"
        )
        for one in chosen_judges(store, judge)
    ]


def _of_tables(
    scores: Path,
    human: Path,
    columns: str | None,
    score_columns: str | None,
    rubric: str | None,
    chosen: tuple[str, ...] | None,
    group: str | None,
    options: AlignOptions,
) -> JudgeAgreement:
    bound = None if rubric is None else tuple(make_protocol(RunConfig().protocol, {"rubric": rubric}).metrics)
    theirs = column_names(score_columns, "--score-columns")
    known = None if bound is None else names_of(bound)
    judged = read_label_table(scores, known=known, columns=theirs, option="--score-columns")
    known = known or names_of(judged.metrics)
    only = judged.metrics[0] if len(judged.metrics) == 1 else None
    named = column_names(columns, "--columns")
    people = read_label_table(human, known=known, columns=named, option="--columns", only=only)
    both = [name for name in judged.metrics if name in people.metrics]
    if chosen is not None:
        unknown = [name for name in chosen if known(name) not in both]
        if unknown:
            raise ConfigError(
                f"--criteria {', '.join(unknown)}: not in both tables; they share {', '.join(both) or 'none'}"
            )
        both = [name for name in both if name in {known(word) for word in chosen}]
    wanted: list[Metric | str] = [*both] if bound is None else [m for m in bound if m.id in both]
    people = replace(people, notes=(*judged.notes, *people.notes))
    return _agreement(scores.name, column_of_table(judged), people, wanted, group, options, where=str(scores), closed=False)


def _agreement(
    judge: str,
    column: JudgeColumn,
    people: HumanLabels,
    metrics: Sequence[Metric | str],
    group: str | None,
    options: AlignOptions,
    *,
    where: str,
    closed: bool = True,
) -> JudgeAgreement:
    items, joined = join(column.items, people, where=where, closed=closed)
    if not metrics:
        rated = ", ".join(people.metrics) or "none"
        raise ConfigError(f"{people.source}: no criterion that the judge has scores for; it rates {rated}")
    several = len({key[0] for key, ratings in joined.ratings.items() if ratings}) > 1
    over = group or ("editor" if several else "none")
    options = replace(options, over=None if over == "none" else cast("Dimension", over))
    return JudgeAgreement(
        judge=judge,
        people=people.source,
        criteria=tuple(agreement_on(column, items, joined, metric, options) for metric in metrics),
        bootstrap=options.drawing,
        notes=joined.notes,
    )


def _print(found: Sequence[JudgeAgreement | VoteAgreement], *, as_json: bool, as_csv: bool, as_markdown: bool) -> None:
    if as_json:
        data: Mapping[str, Json] = {"judges": [one.to_json() for one in found]}
        typer.echo(render.json_text(data), nl=False)
    elif as_csv:
        typer.echo(render.records_csv([record for one in found for record in one.records()]), nl=False)
    elif as_markdown:
        typer.echo("\n".join(pages.markdown(one.page) for one in found), nl=False)
    else:
        for index, one in enumerate(found):
            if index:
                out().print()
            out().print(pages.terminal(one.page))
