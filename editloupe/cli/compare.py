"""`editloupe compare`: judges of the same edits set against each other and against people, or people among themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, TypeAlias, cast

from typer import Argument

from editloupe.backends.prices import Prices, read_prices
from editloupe.cli.arguments import (
    Full,
    HumanColumns,
    HumanFile,
    JudgeNames,
    OutFolder,
    PricesFile,
    Resamples,
    TableName,
    opt,
)
from editloupe.cli.options import words
from editloupe.cli.output import Form, command, for_programs, in_brief, note, say, show_table, show_whole, warn
from editloupe.config import RunConfig, pairs
from editloupe.data.human import Known, names_of
from editloupe.errors import ConfigError
from editloupe.figures import plots
from editloupe.figures.columns import Dimension, Readings, column_of_table, join, with_facts
from editloupe.figures.compare import Comparison, rated_by_people, raters_apart
from editloupe.figures.compare import compare as compare_judges
from editloupe.figures.compare_tables import markdown, tables, write_comparison
from editloupe.figures.equal_cost import at_equal_cost
from editloupe.figures.human_labels import read_label_table, read_people
from editloupe.figures.judged import Judged, on_shared_metrics, protocol_of, read_judged
from editloupe.figures.labels import column_names
from editloupe.figures.people import MetricAgreement, PeopleOptions, agreement, check_raters
from editloupe.protocols.base import make_protocol
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.stats.bootstrap import RESAMPLES, Averaging, Drawing

_PEOPLE = "With people"
Group: TypeAlias = Literal["editor", "edit_type", "none"]
_BRIEF = 3
"""Tables of a comparison that a terminal shows without --full."""
Unit: TypeAlias = Literal["sample", "editor"]
_NAME_RATERS = (
    "name raters in a column rater, in the names of columns (if_anna, if_ben) with --rubric, or with --columns "
    "CRITERION@RATER=COLUMN"
)
"""What to do about a table with one rater."""


def compare(
    runs: Annotated[list[Path] | None, Argument(help="Run folders.", metavar="RUN", show_default=False)] = None,
    judges: JudgeNames = None,
    human: HumanFile = None,
    columns: HumanColumns = None,
    criteria: Annotated[str | None, opt("--criteria", "A,B,…", "Only these. Default: all that both have.", _PEOPLE)] = None,
    scores: Annotated[list[Path] | None, opt("--scores", "FILE", "A judge's scores from elsewhere.", _PEOPLE)] = None,
    score_columns: Annotated[
        str | None, opt("--score-columns", "ROLE=COLUMN,…", "What the columns of --scores hold.", _PEOPLE)
    ] = None,
    rubric: Annotated[str | None, opt("--rubric", "NAME|FILE", "Without RUN: the labels of the tables.", _PEOPLE)] = None,
    pair: Annotated[str | None, opt("--pair", "METRIC=RATING,…", "Hold a metric against this rating.", _PEOPLE)] = None,
    group: Annotated[Group | None, opt("--group", None, "Average the correlations of these groups.", _PEOPLE)] = None,
    aggregate: Annotated[Averaging, opt("--aggregate", None, "How they are averaged.", _PEOPLE)] = "fisher",
    unit: Annotated[Unit, opt("--unit", None, "Compare samples, or editors by their means.", _PEOPLE)] = "sample",
    good_from: Annotated[str | None, opt("--good-from", "LABEL", "Good from this label on: accuracy, F1.", _PEOPLE)] = None,
    equal_cost: Annotated[bool, opt("--equal-cost", None, "Use as many repeats as the dearest other judge costs.")] = False,
    out_dir: OutFolder = None,
    prices: PricesFile = None,
    resamples: Resamples = RESAMPLES,
    name: TableName = None,
    full: Full = False,
    form: Form = "table",
) -> int:
    """Compare judges with each other and with people: agreement, leniency, cost. No model is asked.

    People's labels come from --human FILE or from the data. With --human FILE alone, or a RUN that only people answered,
    people are compared among themselves.

    Examples:

    \b
    editloupe compare runs/a runs/b --human labels.csv
    editloupe compare --scores judge.csv --human labels.csv
    editloupe compare --human labels.csv --rubric dlebench
    """
    runs = runs or []
    options = PeopleOptions(how=aggregate, good=good_from, drawing=Drawing(resamples=resamples))
    given = _Given(
        human=human,
        columns=column_names(columns, "--columns"),
        scores=tuple(scores or ()),
        score_columns=column_names(score_columns, "--score-columns"),
        metrics=None if rubric is None else tuple(make_protocol(RunConfig().protocol, {"rubric": rubric}).metrics),
        rubric=rubric or "",
        wanted=words(criteria),
        group=group,
        options=options,
    )
    of_judges = {"--judges": judges, "--pair": pair, "--group": group, "--good-from": good_from, "--equal-cost": equal_cost}
    if pair:
        _only("--pair", {"--criteria": criteria, "--good-from": good_from, "--scores": scores}, "excludes")
    if unit == "editor":
        _only("--unit editor", {"--scores": scores, "--group": group, "--good-from": good_from}, "excludes")
    found: list[Judged] = []
    if not runs:
        _only("without RUN", {"--judges": judges, "--pair": pair, "--equal-cost": equal_cost}, "there is no")
        if not scores:
            _only("--human FILE alone compares people among themselves, which", of_judges, "excludes")
        comparison = _of_tables(given) if scores else _of_raters(given)
    else:
        _only("RUN", {"--rubric": rubric}, "knows its own rubric, which excludes")
        if len(runs) == 1 and RunStore.read_info(runs[0]).info.get("judges") == {}:
            _only(f"{runs[0]} has no judge, so that people are compared among themselves, which", of_judges, "excludes")
            comparison = _of_people(runs[0], columns, given)
        else:
            read = read_judged(runs, same_metrics=False)
            found, shared = on_shared_metrics(chosen_judges(read, words(judges)))
            paired = pairs(words(pair) or (), "--pair", "METRIC=RATING, such as psnr=preservation")
            priced = read_prices(prices)
            notes: Sequence[str] = ()
            if equal_cost:
                found, notes = at_equal_cost(found, priced)
            comparison = _of_judges(found, paired, priced, given, by_editor=unit == "editor")
            unread = dict.fromkeys(problem for judged in found for problem in judged.notes)
            comparison = replace(comparison, notes=(*unread, *shared, *notes, *comparison.notes))
    _show(comparison, found, name, full=full)
    if out_dir is not None:
        written = write_comparison(comparison, out_dir)
        note(f"{len(written)} files in {out_dir}: compare.md, compare.json, tables as CSV, {plots.written()}")
    return 0


@dataclass(frozen=True, kw_only=True)
class _Given:
    """What the command line says of people, tables and criteria."""

    human: Path | None
    columns: Mapping[str, str]
    scores: tuple[Path, ...]
    score_columns: Mapping[str, str]
    metrics: tuple[Metric, ...] | None
    """Those of --rubric; None without it."""
    rubric: str
    wanted: tuple[str, ...] | None
    group: str | None
    options: PeopleOptions

    def table(self, file: Path, known: Known | None, *, judge: bool, only: str | None = None) -> Readings:
        """Read a table of scores or of people's ratings."""
        columns, option = (self.score_columns, "--score-columns") if judge else (self.columns, "--columns")
        return read_label_table(file, known=known, columns=columns, option=option, only=only)

    def people(self, known: Known | None, only: str | None = None) -> Readings:
        """Read the table of --human. Raises ConfigError without one."""
        if self.human is None:
            raise ConfigError(
                "name a run folder, or a table of scores with --scores FILE and people's ratings with --human FILE; or "
                "--human FILE alone, for the agreement of people among themselves"
            )
        return self.table(self.human, known, judge=False, only=only)

    def grouped(self, people: Readings | None) -> PeopleOptions:
        """Return the options with the groups to average over: by default editors, where people rated edits of several."""
        over = self.group or ("editor" if people is not None and len(people.editors) > 1 else "none")
        return replace(self.options, over=None if over == "none" else cast(Dimension, over))


def _only(what: str, others: Mapping[str, object], why: str) -> None:
    """Raise ConfigError for options that do not go with what is asked."""
    if given := [name for name, value in others.items() if value]:
        raise ConfigError(f"{what} {why} {', '.join(given)}")


def _of_judges(
    found: Sequence[Judged], paired: Mapping[str, str], prices: Prices, given: _Given, *, by_editor: bool
) -> Comparison:
    """Judges of runs, beside each other and beside people.   paired: metric → people's rating."""
    known = found[0].metrics
    ratings = {known.metric(metric).id: names_of([name, *known.metrics])(name) or name for metric, name in paired.items()}
    people, notes = rated_by_people(found, given.human, given.columns, ratings=ratings)
    options = given.grouped(None if people is None else people.labels)
    held = None if given.wanted is None else [known.metric(name) for name in given.wanted]
    made = compare_judges(found, prices=prices, people=people, options=options, criteria=held, editors=by_editor)
    more: list[MetricAgreement] = []
    if people is not None:
        rated = [m for m in known.metrics if m.id in people.labels.metrics]
        for file in given.scores:
            table = given.table(file, names_of(known.metrics), judge=True, only=rated[0].id if len(rated) == 1 else None)
            column = column_of_table(table, file.name)
            more += [agreement(column, people.labels, m, options) for m in rated if m.id in table.metrics]
    return replace(made, human_agreement=(*made.human_agreement, *more), notes=(*made.notes, *notes))


def _of_tables(given: _Given) -> Comparison:
    """Tables of scores beside a table of people's ratings."""
    bound, found, notes = given.metrics, list[MetricAgreement](), list[str]()
    for file in given.scores:
        table = given.table(file, None if bound is None else names_of(bound), judge=True)
        known = names_of(table.metrics if bound is None else bound)
        people = given.people(known, str(table.metrics[0]) if len(table.metrics) == 1 else None)
        both = [name for name in table.metrics if name in people.metrics]
        if unknown := [name for name in given.wanted or () if known(name) not in both]:
            shared = ", ".join(both) or "none"
            raise ConfigError(f"--criteria {', '.join(unknown)}: not in both tables; they share {shared}")
        if given.wanted is not None:
            both = [name for name in both if name in {known(word) for word in given.wanted}]
        if not both:
            rated = ", ".join(people.metrics) or "none"
            raise ConfigError(f"{people.name}: no criterion that the judge has scores for; it rates {rated}")
        column = column_of_table(table, file.name)
        labels = join(column, people, where=str(file), closed=False)
        held: Sequence[Metric | str] = both if bound is None else [m for m in bound if m.id in both]
        found += [agreement(column, labels, metric, given.grouped(labels)) for metric in held]
        notes += [*table.notes, *labels.notes]
    return Comparison(
        bootstrap=given.options.drawing, human=str(given.human), human_agreement=tuple(found), notes=_once(notes)
    )  # fmt: skip


def _of_raters(given: _Given) -> Comparison:
    """People among themselves, of a table."""
    bound = given.metrics
    people = given.people(None if bound is None else names_of(bound))
    metrics: Sequence[Metric | str] = people.metrics if bound is None else [m for m in bound if m.id in people.metrics]
    rated = ", ".join(people.metrics) or "none"
    if not metrics:
        known = ", ".join(m.short for m in bound or ())
        raise ConfigError(f"{given.human}: no criterion of --rubric {given.rubric} ({known}); it rates {rated}")
    if given.wanted is not None:
        ids = {word: names_of(metrics)(word) for word in given.wanted}
        if unknown := [word for word, name in ids.items() if name is None]:
            raise ConfigError(f"--criteria {', '.join(unknown)}: {given.human} rates {rated}")
        metrics = [m for m in metrics if (m if isinstance(m, str) else m.id) in ids.values()]
    return _among(people, metrics, given.options, _NAME_RATERS)


def _of_people(run: Path, columns: str | None, given: _Given) -> Comparison:
    """People among themselves, of a run."""
    store = RunStore.read(run)
    warn(store.problems)
    known, people = store.metric_set(), read_people(store, given.human, columns)
    metrics = [m for m in known.metrics if m.id in people.metrics]
    if given.wanted is not None:
        metrics = [known.metric(name) for name in given.wanted]
    people = with_facts(people, store.samples, protocol_of(store))
    advice = _NAME_RATERS if given.human else f"let another one answer: editloupe annotate {run} --raters A,B"
    return _among(people, metrics, given.options, advice)


def _among(people: Readings, metrics: Sequence[Metric | str], options: PeopleOptions, advice: str) -> Comparison:
    found = [agreement(None, people, metric, options) for metric in metrics]
    check_raters(found, advice)
    return Comparison(
        bootstrap=options.drawing,
        human=people.name,
        notes=_once(people.notes),
        raters=tuple(found),
        disagreements=tuple(raters_apart(people, metrics)),
        titles=dict((m, (m, m)) if isinstance(m, str) else (m.id, (m.name, m.short)) for m in metrics),
    )


def _once(notes: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(notes))


def _show(found: Comparison, judges: Sequence[Judged], name: str | None, *, full: bool) -> None:
    made = list(tables(found, whole=full or for_programs() or name is not None))
    if show_whole(made, name, found.to_json, lambda: markdown(found)):
        return
    for number, judge in enumerate(judges, start=1):
        say(f"{number} {judge.name}: {judge.describe()}", "bold")
    if not judges:
        say(f"People: {found.human}", "bold")
    for text in found.notes:
        note(text)
    brief = in_brief(full) and found.pairs
    for table in made[: _BRIEF if brief else None]:
        show_table(table)
    if brief and len(made) > _BRIEF:
        say(f"{len(made)} tables with --full: {', '.join(table.title for table in made)}", "dim")
    if found.disagreements and judges:
        say(f"\nThe furthest apart, step by step: {command('view', *dict.fromkeys(judge.run for judge in found.judges))}")


def chosen_judges(found: list[Judged], wanted: tuple[str, ...] | None) -> list[Judged]:
    """Return the judges of these names, URIs or beginnings of ids, in their order. Raises ConfigError, which lists all."""
    if wanted is None:
        return found
    chosen = []
    for name in wanted:
        exact = [j for j in found if name in (j.name, j.title, j.judge_id, j.backend)]
        named = exact or [j for j in found if name == j.backend.partition("?")[0] or (name and j.judge_id.startswith(name))]
        if len(named) != 1:
            known = ", ".join(f"{j.name} ({j.judge_id})" for j in found)
            what = "no judge" if not named else "several judges"
            raise ConfigError(f"--judges {name}: {what} of that name; there are {known}")
        chosen.append(named[0])
    return chosen
