"""`editloupe align`: how well judges agree with people."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, cast

from typer import Argument, Option

from editloupe.cli.options import Columns, HumanFile, JsonFigures, Level, MarkdownFigures, Resamples, Seed, words
from editloupe.cli.output import out, warn, write
from editloupe.config import RunConfig, pairs
from editloupe.data.human import Known, names_of
from editloupe.errors import ConfigError
from editloupe.protocols.base import make_protocol
from editloupe.reports import pages, render
from editloupe.reports.align import AlignOptions, JudgeAgreement, side_by_side
from editloupe.reports.align import align as agreement_on
from editloupe.reports.columns import (
    Answer,
    Dimension,
    HumanLabels,
    Item,
    JudgeColumn,
    Key,
    column_of,
    column_of_table,
    editors_of,
    join,
    rated_editors,
    with_facts,
)
from editloupe.reports.human_labels import read_label_table, read_people
from editloupe.reports.judged import chosen as chosen_judges
from editloupe.reports.judged import protocol_of
from editloupe.reports.label_tables import column_names
from editloupe.reports.raters import RaterAgreement, agreement_between_raters
from editloupe.reports.votes import PairAgreement, VoteAgreement, VoteTable, agree_on_pairs, read_votes
from editloupe.runs.store import RunStore
from editloupe.scores import Metric, MetricSet
from editloupe.stats.bootstrap import LEVEL, RESAMPLES, SEED, Aggregate, Drawing
from editloupe.stats.table import Table
from editloupe.values import Json


def align(
    runs: Annotated[list[Path] | None, Argument(metavar="RUN", help="Run folders.")] = None,
    human: HumanFile = None,
    scores: Annotated[
        list[Path] | None,
        Option(metavar="FILE", help="A judge's scores from elsewhere, beside RUN or in place of it; may be repeated."),
    ] = None,
    votes: Annotated[
        Path | None, Option(metavar="FILE", help="People's votes on pairs of edits (A>B, B>A, both good, both bad, tie).")
    ] = None,
    columns: Columns = None,
    score_columns: Annotated[
        str | None, Option(metavar="ROLE=COLUMN,…", help="The same for the columns of --scores.")
    ] = None,
    rubric: Annotated[
        str | None, Option(help="With tables alone: the rubric whose labels they use, a name or a file.")
    ] = None,
    criteria: Annotated[str | None, Option(help="Comma-separated criteria. Default: all that both have.")] = None,
    pair: Annotated[
        str | None,
        Option(
            metavar="METRIC=RATING,…",
            help="Metrics of RUN, and which of people's ratings each is held against, on a scale of its own.",
        ),
    ] = None,
    judge: Annotated[
        str | None,
        Option(help="One judge of the run: its name, its URI, or the beginning of its id. Default: each in turn."),
    ] = None,
    aggregate: Annotated[
        Aggregate, Option(help="How correlations of groups are averaged: fisher, mean or tanh-mean.")
    ] = "fisher",
    group: Annotated[
        Literal["editor", "edit_type", "area", "none"] | None,
        Option(help="Groups to average over: editor, edit_type, area or none. Default: editor, where there are two."),
    ] = None,
    unit: Annotated[
        Literal["sample", "editor"], Option(help="What is compared: samples, or editors by their means.")
    ] = "sample",
    good_from: Annotated[
        str | None, Option(metavar="LABEL", help="The label from which on an edit is good: for accuracy and F1.")
    ] = None,
    yes_from: Annotated[
        str | None,
        Option(metavar="NUMBER", help="With --scores: numbers from this one on are a yes, where they are not 0 and 1."),
    ] = None,
    tie: Annotated[
        str | None, Option(metavar="DIFFERENCE", help="With --votes: scores up to this far apart tie; or best. Default: 0.")
    ] = None,
    among: Annotated[
        bool, Option("--people", help="How far people agree among themselves, without the judges of RUN.")
    ] = False,
    resamples: Resamples = RESAMPLES,
    level: Level = LEVEL,
    seed: Seed = SEED,
    as_json: JsonFigures = False,
    as_csv: Annotated[bool, Option("--csv", help="CSV on standard output, one row a figure.")] = False,
    as_markdown: MarkdownFigures = False,
) -> int:
    """Measure how well judges agree with people: runs' findings or any tables of scores against human ratings.

    Correlations, errors, kappas, alpha, exact match, accuracy and F1, overall, by edit type, target area and editor, with
    bootstrap intervals over source images, beside what people reach among themselves. No model is asked.

    Several judges that say yes or no also stand side by side. --human FILE alone, RUN --people and a RUN without judges:
    how far people agree among themselves (DLEBench, Table 2).

    --pair sets a metric beside ratings of another name and scale, such as a similarity beside stars from 1 to 5.
    """
    runs, scores = runs or [], scores or []
    if votes is None and not runs and not scores and human is None:
        raise ConfigError(
            "name a run folder, or a table of scores with --scores FILE; or people's ratings alone with --human FILE, for "
            "the agreement of people among themselves"
        )
    if among and (not runs or votes is not None):
        raise ConfigError("--people takes RUN, and no --votes; for a table alone give --human FILE")
    if sum((as_json, as_csv, as_markdown)) > 1:
        raise ConfigError("--json, --csv and --markdown exclude each other")
    drawing = Drawing(resamples=resamples, level=level, seed=seed)
    options = AlignOptions(how=aggregate, good=good_from, drawing=drawing)
    if unit == "editor" and (not runs or scores or votes is not None or group is not None or good_from is not None):
        raise ConfigError(
            "--unit editor takes RUN and people's ratings, and neither --scores, --votes, --group nor --good-from"
        )
    threshold = None if yes_from is None else _finite(yes_from, "--yes-from")
    if threshold is not None and (votes is not None or not scores):
        raise ConfigError("--yes-from goes with --scores")
    chosen, paired = words(criteria), pairs(words(pair) or (), "--pair", "METRIC=RATING, such as psnr=preservation")
    if paired:
        _check_pairs(runs, scores, votes=votes, criteria=criteria, good_from=good_from)
    found: Sequence[JudgeAgreement | VoteAgreement | RaterAgreement]
    if votes is not None:
        for name, given in (("--human", human), ("--group", group), ("--rubric", rubric)):
            if given is not None:
                raise ConfigError(f"{name} does not go with --votes")
        if len(runs) + len(scores) > 1:
            raise ConfigError("--votes goes with one judge: name one run folder or one table of --scores")
        table = read_votes(votes, column_names(columns, "--columns"), "--columns")
        judges = [_of_table(file, score_columns) for file in scores]
        for run in runs:
            store = RunStore.read(run)
            warn(store.problems)
            judges = _of_run(store, judge, store.metric_set().metrics)
        found = _vote_agreements(table, judges, chosen, good_from, tie, drawing)
    elif tie is not None:
        raise ConfigError("--tie goes with --votes")
    elif scores and not runs:
        if human is None:
            raise ConfigError("--scores needs --human FILE with people's ratings of the same items")
        bound = _metrics_of(rubric)
        found = [
            _between_tables(
                _of_table(file, score_columns, None if bound is None else names_of(bound), yes_from=threshold),
                human,
                columns,
                bound,
                chosen,
                group,
                options,
            )
            for file in scores
        ]
    elif not runs:
        assert human is not None
        of_a_judge = {"--judge": judge, "--group": group, "--good-from": good_from, "--score-columns": score_columns}
        for name, given in of_a_judge.items():
            if given is not None:
                raise ConfigError(f"{name} is about a judge; --human alone compares people among themselves")
        found = [_between_raters(human, columns, rubric, chosen, options)]
    else:
        for name, given in (("--score-columns", None if scores else score_columns), ("--rubric", rubric)):
            if given is not None:
                raise ConfigError(f"{name} goes with --scores; a run knows its own")
        tables = [partial(_of_table, file, score_columns, yes_from=threshold) for file in scores]
        by_editor = unit == "editor"
        if among or (len(runs) == 1 and RunStore.read_info(runs[0]).info.get("judges") == {}):
            others = {"--scores": scores, "--pair": paired, "--unit editor": by_editor, "--judge": judge, "--group": group}
            others |= {"--good-from": good_from, "a second RUN": runs[1:]}
            if taken := [name for name, value in others.items() if value]:
                why = "--people compares" if among else f"{runs[0]} has no judge, so that align compares"
                raise ConfigError(f"{why} people among themselves, which does not go with {', '.join(taken)}")
            found = [_among_people(runs[0], human, columns, chosen, options)]
        else:
            found = list(_of_runs(runs, tables, human, columns, judge, chosen, paired, group, options, by_editor=by_editor))
    _print(found, as_json=as_json, as_csv=as_csv, as_markdown=as_markdown)
    return 0


@dataclass(frozen=True, kw_only=True)
class _Judge:
    """One judge to be set beside people."""

    name: str
    column: JudgeColumn
    metrics: Sequence[Metric | str]
    where: str
    """What the column is from, for messages."""
    notes: tuple[str, ...] = ()


def _of_run(store: RunStore, judge: str | None, metrics: Sequence[Metric]) -> list[_Judge]:
    where = f"the run {store.folder}"
    return [
        _Judge(name=f"{one.title} ({one.judge_id})", column=column_of(one), metrics=metrics, where=where)
        for one in chosen_judges(store, judge)
    ]


def _of_runs(
    runs: Sequence[Path],
    tables: Sequence[Callable[..., _Judge]],
    human: Path | None,
    columns: str | None,
    judge: str | None,
    chosen: tuple[str, ...] | None,
    paired: Mapping[str, str],
    group: str | None,
    options: AlignOptions,
    *,
    by_editor: bool,
) -> Iterator[JudgeAgreement]:
    """Yield the agreement of every judge of the runs, and of tables of scores of the same items.

    tables: make a judge of a table, given the metrics that there are and the one that is meant if it names none.
    """
    facts: dict[Key, Item] = {}
    for run in runs:
        store = RunStore.read(run)
        warn(store.problems)
        known, people = store.metric_set(), read_people(store, human, columns, ratings=tuple(paired.values()))
        wanted = [m for m in known.metrics if m.id in people.metrics]
        if chosen is not None:
            wanted = [known.metric(name) for name in chosen]
        ratings = _ratings(paired, known, people)
        if ratings:
            wanted = [known.metric(name) for name in ratings]
        judged = _of_run(store, judge, wanted)
        for one in judged:
            facts |= one.column.items
        if by_editor:
            people = rated_editors(people)
            # A mean, or a rank, need not be a value of the metric's own scale.
            judged = [replace(j, column=editors_of(j.column), metrics=[m.id for m in wanted]) for j in judged]
        for one in judged:
            named = one if len(runs) == 1 else replace(one, name=f"{one.name} in {run}")
            yield _agreement(named, people, group, options, closed=True, ratings=ratings)
    for table in tables:
        one = table(names_of(known.metrics), only=wanted[0].id if len(wanted) == 1 else None)
        # The runs know which image and edit type an item is of, and which items the table leaves out.
        column = replace(one.column, items={**one.column.items, **facts})
        one = replace(one, column=column, metrics=[m for m in wanted if m.id in one.metrics])
        yield _agreement(one, replace(people, notes=(*one.notes, *people.notes)), group, options, closed=True)


def _of_table(
    scores: Path, columns: str | None, known: Known | None = None, *, only: str | None = None, yes_from: float | None = None
) -> _Judge:
    named = column_names(columns, "--score-columns")
    table = read_label_table(scores, known=known, columns=named, option="--score-columns", only=only)
    column, name = column_of_table(table), scores.name
    if yes_from is not None and (numbers := [m for m in table.metrics if not _zero_or_one(column, m)]):
        answers = {
            m: {key: _yes(a, yes_from) if m in numbers else a for key, a in column.of(m).items()} for m in table.metrics
        }
        column, name = replace(column, answers=answers), f"{name}, yes from {yes_from:g}"
    return _Judge(name=name, column=column, metrics=table.metrics, where=str(scores), notes=table.notes)


def _zero_or_one(column: JudgeColumn, metric: str) -> bool:
    return {answer for answer in column.of(metric).values() if isinstance(answer, float)} <= {0.0, 1.0}


def _yes(answer: Answer, least: float) -> Answer:
    """A number as 1 for yes or 0 for no; anything else as it is."""
    return float(answer >= least) if isinstance(answer, float) else answer


def _between_tables(
    judge: _Judge,
    human: Path,
    columns: str | None,
    bound: Sequence[Metric] | None,
    chosen: tuple[str, ...] | None,
    group: str | None,
    options: AlignOptions,
) -> JudgeAgreement:
    known = names_of(judge.metrics if bound is None else bound)
    only = str(judge.metrics[0]) if len(judge.metrics) == 1 else None
    named = column_names(columns, "--columns")
    people = read_label_table(human, known=known, columns=named, option="--columns", only=only)
    both = [name for name in judge.metrics if name in people.metrics]
    if chosen is not None:
        if unknown := [name for name in chosen if known(name) not in both]:
            shared = ", ".join(map(str, both)) or "none"
            raise ConfigError(f"--criteria {', '.join(unknown)}: not in both tables; they share {shared}")
        both = [name for name in both if name in {known(word) for word in chosen}]
    judge = replace(judge, metrics=both if bound is None else [m for m in bound if m.id in both])
    return _agreement(judge, replace(people, notes=(*judge.notes, *people.notes)), group, options, closed=False)


def _metrics_of(rubric: str | None) -> tuple[Metric, ...] | None:
    return None if rubric is None else tuple(make_protocol(RunConfig().protocol, {"rubric": rubric}).metrics)


def _between_raters(
    human: Path, columns: str | None, rubric: str | None, chosen: tuple[str, ...] | None, options: AlignOptions
) -> RaterAgreement:
    bound = _metrics_of(rubric)
    known = None if bound is None else names_of(bound)
    people = read_label_table(human, known=known, columns=column_names(columns, "--columns"), option="--columns")
    metrics: Sequence[Metric | str] = people.metrics if bound is None else [m for m in bound if m.id in people.metrics]
    if not metrics:
        known_ones = ", ".join(m.short for m in bound or ())
        rated = ", ".join(people.metrics) or "none"
        raise ConfigError(f"{human}: no criterion of --rubric {rubric} ({known_ones}); it rates {rated}")
    if chosen is not None:
        named = names_of(metrics)
        wanted = {word: named(word) for word in chosen}
        if unknown := [word for word, name in wanted.items() if name is None]:
            raise ConfigError(f"--criteria {', '.join(unknown)}: {human} rates {', '.join(people.metrics) or 'none'}")
        metrics = [m for m in metrics if (m if isinstance(m, str) else m.id) in wanted.values()]
    return agreement_between_raters(people, metrics, options)


def _among_people(
    run: Path, human: Path | None, columns: str | None, chosen: tuple[str, ...] | None, options: AlignOptions
) -> RaterAgreement:
    store = RunStore.read(run)
    warn(store.problems)
    known, people = store.metric_set(), read_people(store, human, columns)
    metrics = [m for m in known.metrics if m.id in people.metrics]
    if chosen is not None:
        metrics = [known.metric(name) for name in chosen]
    people = with_facts(people, store.samples, protocol_of(store))
    if human is not None:
        return agreement_between_raters(people, metrics, options)
    advice = f"let another one answer: editloupe annotate {run} --raters A,B"
    return agreement_between_raters(people, metrics, options, advice=advice)


def _agreement(
    judge: _Judge,
    people: HumanLabels,
    group: str | None,
    options: AlignOptions,
    *,
    closed: bool,
    ratings: Mapping[str, str] | None = None,
) -> JudgeAgreement:
    """ratings: metric's id → what of people's ratings it is held against; None where they rated the metrics themselves."""
    items, joined = join(judge.column.items, people, where=judge.where, closed=closed)
    if not judge.metrics:
        rated = ", ".join(people.metrics) or "none"
        raise ConfigError(f"{people.source}: no criterion that the judge has scores for; it rates {rated}")
    several = len({key[0] for key, ratings in joined.ratings.items() if ratings}) > 1
    over = group or ("editor" if several else "none")
    options = replace(options, over=None if over == "none" else cast(Dimension, over))
    return JudgeAgreement(
        judge=judge.name,
        people=people.source,
        criteria=tuple(
            agreement_on(judge.column, items, joined, metric, options, rating=(ratings or {}).get(_id(metric)))
            for metric in judge.metrics
        ),
        bootstrap=options.drawing,
        notes=joined.notes,
    )


def _id(metric: Metric | str) -> str:
    return metric if isinstance(metric, str) else metric.id


def _check_pairs(runs: Sequence[Path], scores: Sequence[Path], **others: object) -> None:
    """Raise ConfigError for what does not go with --pair."""
    if not runs or scores:
        raise ConfigError("--pair goes with RUN, and not with --scores")
    if given := next((name for name, value in others.items() if value is not None), None):
        raise ConfigError(f"--pair and --{given.replace('_', '-')} exclude each other")


def _ratings(paired: Mapping[str, str], known: MetricSet, people: HumanLabels) -> dict[str, str]:
    """Return metric's id → what of people's ratings it is held against. Raises ConfigError for a name that is none."""
    named = names_of([*paired.values(), *known.metrics])
    found = {known.metric(metric).id: named(rating) or rating for metric, rating in paired.items()}
    if unknown := next((rating for rating in found.values() if rating not in people.metrics), None):
        rated = ", ".join(people.metrics) or "nothing that is named"
        raise ConfigError(f"--pair {unknown}: {people.source} has no rating of this name; it rates {rated}")
    return found


def _vote_agreements(
    table: VoteTable,
    judges: Sequence[_Judge],
    chosen: tuple[str, ...] | None,
    good_from: str | None,
    tie: str | None,
    drawing: Drawing,
) -> list[VoteAgreement]:
    """One agreement a judge; without judges that of the verdicts that the votes' own table has."""
    votes = table.file
    found: list[tuple[str, list[PairAgreement], tuple[str, ...]]]
    if not judges:
        if table.verdicts is None:
            raise ConfigError(
                f"{votes} has no column with a judge's own votes; name it with --columns verdict=COLUMN, "
                "or name a run folder, or --scores FILE"
            )
        for name, given in (("--tie", tie), ("--good-from", good_from), ("--criteria", chosen)):
            if given is not None:
                raise ConfigError(f"{name} is about scores; the judge of {votes} votes itself")
        one = agree_on_pairs(table.votes, "The judge's own votes", drawing=drawing)
        found = [(f"column {table.verdicts}", [one], ())]
    elif not table.votes[0].a:
        raise ConfigError(
            f"{votes} names no editors, so that no scores can be looked up; expected columns editor_a and editor_b"
        )
    else:
        found = [(one.name, _pairs(table, one, chosen, good_from, tie, drawing), one.notes) for one in judges]
    return [
        VoteAgreement(judge=name, people=str(votes), pairs=tuple(pairs), bootstrap=drawing, notes=(*table.notes, *notes))
        for name, pairs, notes in found
    ]


def _pairs(
    table: VoteTable,
    judge: _Judge,
    chosen: tuple[str, ...] | None,
    good_from: str | None,
    tie: str | None,
    drawing: Drawing,
) -> list[PairAgreement]:
    """One for each metric, and one for the mean of a run's metrics (on 0 to 100) if there are several."""
    values: dict[str, dict[tuple[str, str], float]] = {}
    titles: dict[str, str] = {}
    names: dict[str, str] = {}
    for metric in judge.metrics:
        name, short, title = (metric,) * 3 if isinstance(metric, str) else (metric.id, metric.short, metric.name)
        titles[name] = title
        names |= {short.casefold(): name, name.casefold(): name}
        answers = judge.column.of(name)
        values[name] = {key[:2]: v for key, v in answers.items() if isinstance(v, float) and not any(key[2:])}
    bounded = [m for m in judge.metrics if not isinstance(m, str)]
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
        if unknown := next((word for word in chosen if word.casefold() not in names), None):
            raise ConfigError(f"--criteria {unknown}: expected one of {', '.join(titles)}")
        wanted = [names[word.casefold()] for word in chosen]
    known = {key[:2]: None for key in judge.column.items}
    if not any((vote.a, vote.item) in known or (vote.b, vote.item) in known for vote in table.votes):
        first, ours = table.votes[0], next(iter(known), ("", ""))
        raise ConfigError(
            f"none of the pairs of {table.file} is in {judge.where}: people voted on item {first.item!r} by {first.a!r} "
            f"and {first.b!r}, and it has item {ours[1]!r} by {ours[0]!r}"
        )
    difference = None if tie == "best" else _finite(tie or "0", "--tie")
    if difference is not None and difference < 0:
        raise ConfigError(f"--tie {tie}: expected a difference of 0 or more, or best")
    good = None if good_from is None else _finite(good_from, "--good-from")

    def agreement(name: str) -> PairAgreement:
        def score(editor: str, item: str) -> float | None:
            return values[name].get((editor, item))

        return agree_on_pairs(table.votes, titles[name], score=score, tie=difference, good=good, drawing=drawing)

    return [agreement(name) for name in wanted]


def _finite(text: str, option: str) -> float:
    try:
        found = float(text)
    except ValueError:
        found = math.nan
    if not math.isfinite(found):
        raise ConfigError(f"{option} {text}: expected a number")
    return found


def _print(
    found: Sequence[JudgeAgreement | VoteAgreement | RaterAgreement], *, as_json: bool, as_csv: bool, as_markdown: bool
) -> None:
    if as_json:
        raters = [one.to_json() for one in found if isinstance(one, RaterAgreement)]
        data: dict[str, Json] = {"raters": raters[0]} if raters else {"judges": [one.to_json() for one in found]}
        write(render.json_text(data), json_text=True)
    elif as_csv:
        write(render.records_csv([record for one in found for record in one.records()]))
    elif as_markdown:
        write("\n".join([*(pages.markdown(one) for one in found), *map(render.markdown, _side_by_side(found))]))
    else:
        for index, one in enumerate(found):
            if index:
                out().print()
            out().print(pages.terminal(one))
        for table in _side_by_side(found):
            out().print()
            out().print(render.terminal(table))


def _side_by_side(found: Sequence[JudgeAgreement | VoteAgreement | RaterAgreement]) -> list[Table]:
    return list(side_by_side([one for one in found if isinstance(one, JudgeAgreement)]))
