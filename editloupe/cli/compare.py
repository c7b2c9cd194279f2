"""`editloupe compare`: judges of the same edits set against each other and against people, or people among themselves."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

from typer import Argument

from editloupe.backends.prices import Prices, read_prices
from editloupe.cli import options
from editloupe.cli.options import check_company, opt, people_columns, words
from editloupe.cli.output import Form, command, for_programs, note, say, warn
from editloupe.cli.tables import show_table, show_whole
from editloupe.config import RunConfig, pairs
from editloupe.data.human import names_of
from editloupe.errors import ConfigError
from editloupe.figures import plots
from editloupe.figures.columns import PeopleSaid, editors_of, join, with_facts
from editloupe.figures.compare import Comparison, rated_by_people, raters_apart
from editloupe.figures.compare import compare as compare_judges
from editloupe.figures.compare_tables import markdown, tables, write_comparison
from editloupe.figures.equal_cost import at_equal_cost
from editloupe.figures.human_labels import column_names, read_label_table, read_people
from editloupe.figures.judged import Judged, on_shared_metrics, protocol_of, read_judged
from editloupe.figures.people import MetricAgreement, PeopleOptions, agreement, check_raters
from editloupe.protocols.base import make_protocol
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.stats.bootstrap import RESAMPLES, Averaging, Drawing

_PEOPLE = "With people"
_NAME_RATERS = (
    "name raters in a column rater, in the names of columns (if_anna, if_ben) with --rubric, or with --columns "
    "CRITERION@RATER=COLUMN"
)
"""What to do about a table with one rater."""


def compare(
    runs: Annotated[list[Path] | None, Argument(help="Run folders.", metavar="RUN", show_default=False)] = None,
    judges: options.JudgeNames = None,
    human: options.HumanFile = None,
    columns: options.HumanColumns = None,
    criteria: Annotated[str | None, opt("--criteria", "A,B,…", "Only these. Default: all that both have.", _PEOPLE)] = None,
    scores: Annotated[list[Path] | None, opt("--scores", "FILE", "A judge's scores from elsewhere.", _PEOPLE)] = None,
    score_columns: Annotated[str | None, opt("--score-columns", "ROLE=COLUMN,…", "What --scores has.", _PEOPLE)] = None,
    rubric: Annotated[str | None, opt("--rubric", "NAME|FILE", "Without RUN: the labels of the tables.", _PEOPLE)] = None,
    pair: Annotated[str | None, opt("--pair", "METRIC=RATING,…", "Hold a metric against this rating.", _PEOPLE)] = None,
    aggregate: Annotated[Averaging, opt("--aggregate", None, "How editors are averaged.", _PEOPLE)] = "fisher",
    equal_cost: Annotated[bool, opt("--equal-cost", None, "Use as many repeats as the dearest other judge costs.")] = False,
    out_dir: options.OutFolder = None,
    prices: options.PricesFile = None,
    resamples: options.Resamples = RESAMPLES,
    name: options.TableName = None,
    full: options.Full = False,
    form: Form = "table",
) -> int:
    """Compare judges with each other and with people: agreement, leniency, cost. No model is asked.

    People's labels come from --human FILE or from the data. With --human FILE alone, or a RUN that only people answered,
    people are compared among themselves.

    \b
    editloupe compare runs/a runs/b --human labels.csv
    editloupe compare --scores judge.csv --human labels.csv
    editloupe compare --human labels.csv --rubric dlebench
    """
    if runs and rubric:
        raise ConfigError("RUN knows its own rubric; leave --rubric out")
    of_judges = {"--judges": judges or None, "--pair": pair or None, "--equal-cost": equal_cost, "--prices": prices}
    info = RunStore.read_info(runs[0]).info if runs and len(runs) == 1 else {}
    of_people = info.get("judges") == {}
    check_company(
        ("RUN", bool(runs), of_judges),
        ("--scores FILE", bool(scores), {"--score-columns": score_columns}),
        ("judges, of which this run has none", not of_people, {**of_judges, "--scores": scores}),
    )
    given = _Given(
        human=human,
        columns=people_columns(human, columns),
        scores=tuple(scores or ()),
        score_columns=column_names(score_columns, "--score-columns"),
        metrics=None if rubric is None else tuple(make_protocol(RunConfig().protocol, {"rubric": rubric}).metrics),
        wanted=words(criteria),
        options=PeopleOptions(how=aggregate, drawing=Drawing(resamples=resamples)),
    )
    found: list[Judged] = []
    if not runs:
        comparison = _of_tables(given) if scores else _of_raters(given)
    elif of_people:
        comparison = _of_raters(given, runs[0])
    else:
        found, shared = on_shared_metrics(chosen_judges(read_judged(runs), words(judges)))
        priced, notes = read_prices(prices), tuple[str, ...]()
        if equal_cost:
            found, notes = at_equal_cost(found, priced)
        paired = pairs(words(pair) or (), "--pair", "METRIC=RATING, such as psnr=preservation")
        comparison = _of_judges(found, paired, priced, given)
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
    wanted: tuple[str, ...] | None
    options: PeopleOptions

    def table(self, file: Path | None, known: Sequence[Metric | str] | None, only: str | None = None) -> PeopleSaid:
        """Read a table of a judge's scores, or without a file that of --human. Raises ConfigError if there is none."""
        bound = None if known is None else names_of(known)
        if file is not None:
            return read_label_table(file, known=bound, columns=self.score_columns, option="--score-columns", only=only)
        if self.human is None:
            raise ConfigError(
                "name a run folder, or a table of scores with --scores FILE and people's ratings with --human FILE; or "
                "--human FILE alone, for the agreement of people among themselves"
            )
        return read_label_table(self.human, known=bound, columns=self.columns, option="--columns", only=only)

    def chosen(self, metrics: Sequence[Metric | str], there: Collection[str], where: object) -> list[Metric | str]:
        """Return those of `metrics` that are there and wanted. Raises ConfigError for a name that is not, and for none."""
        found = {_id(metric): metric for metric in metrics if _id(metric) in there}
        named = {word: names_of(list(found.values()))(word) for word in self.wanted or ()}
        unknown = [word for word, id_ in named.items() if id_ not in found]
        if unknown or not found:
            wrong = f"no criterion {', '.join(unknown)}" if unknown else "no criterion in common"
            raise ConfigError(f"{where}: {wrong}; found {', '.join(found) or 'none'}")
        return [metric for id_, metric in found.items() if self.wanted is None or id_ in named.values()]

    def grouped(self, people: PeopleSaid | None) -> PeopleOptions:
        """Return the options with what to average over: editors, if people rated edits of several."""
        return replace(self.options, over_editors=people is not None and len(editors_of(people.items)) > 1)


def _id(metric: Metric | str) -> str:
    return metric if isinstance(metric, str) else metric.id


def _of_judges(found: Sequence[Judged], paired: Mapping[str, str], prices: Prices, given: _Given) -> Comparison:
    """Compare judges of runs with each other and with people.   paired: metric → people's rating."""
    known = found[0].metrics
    ratings = {known.metric(metric).id: names_of([name, *known.metrics])(name) or name for metric, name in paired.items()}
    people, notes = rated_by_people(found, given.human, given.columns, ratings=ratings)
    check_company(
        ("people's ratings: --human FILE", people is not None, {"--scores": given.scores, "--pair": paired or None})
    )
    options = given.grouped(None if people is None else people.labels)
    held = None if given.wanted is None else [known.metric(name) for name in given.wanted]
    made = compare_judges(found, prices=prices, people=people, options=options, criteria=held)
    more = []
    if people is not None:
        rated = [m for m in known.metrics if m.id in people.labels.ratings]
        for file in given.scores:
            table = given.table(file, known.metrics, rated[0].id if len(rated) == 1 else None)
            column = table.as_column(file.name)
            more += [agreement(column, people.labels, m, options) for m in rated if m.id in table.ratings]
    return replace(made, human_agreement=(*made.human_agreement, *more), notes=(*made.notes, *notes))


def _of_tables(given: _Given) -> Comparison:
    """Compare tables of scores with a table of people's ratings."""
    found, notes = list[MetricAgreement](), list[str]()
    for file in given.scores:
        table = given.table(file, given.metrics)
        named = tuple(table.ratings)
        every: Sequence[Metric | str] = given.metrics or named
        people = given.table(None, every, named[0] if len(named) == 1 else None)
        held = given.chosen(every, {*named} & people.ratings.keys(), f"{file} and {people.name}")
        column = table.as_column(file.name)
        labels = join(column.items, people, where=str(file), closed=False)
        found += [agreement(column, labels, metric, given.grouped(labels)) for metric in held]
        notes += [*table.notes, *labels.notes]
    noted, human = tuple(dict.fromkeys(notes)), str(given.human)
    return Comparison(bootstrap=given.options.drawing, human=human, human_agreement=tuple(found), notes=noted)


def _of_raters(given: _Given, run: Path | None = None) -> Comparison:
    """Compare people among themselves: those of a table, or those who answered a run's questions."""
    advice, options = _NAME_RATERS, given.options
    if run is None:
        people = given.table(None, given.metrics)
        metrics = given.chosen(given.metrics or tuple(people.ratings), people.ratings, given.human)
    else:
        store = RunStore.read(run)
        warn(store.problems)
        people = read_people(store, given.human, given.columns)
        metrics = given.chosen(store.metric_set().metrics, people.ratings, run)
        people = with_facts(people, store.samples, protocol_of(store))
        if given.human is None:
            advice = f"let another one answer: editloupe annotate {run} --raters A,B"
    found = [agreement(None, people, metric, options) for metric in metrics]
    check_raters(found, advice)
    return Comparison(
        bootstrap=options.drawing,
        human=people.name,
        notes=people.notes,
        raters=tuple(found),
        disagreements=tuple(raters_apart(people, metrics)),
        titles={_id(m): (m, m) if isinstance(m, str) else (m.name, m.short) for m in metrics},
    )


def _show(found: Comparison, judges: Sequence[Judged], name: str | None, *, full: bool) -> None:
    made = list(tables(found, whole=full or for_programs() or name is not None))
    if show_whole(made, name, found.to_json, lambda: markdown(found)):
        return
    for number, judge in enumerate(judges, start=1):
        say(f"{number} {judge.name}: {judge.describe()}", "bold")
    if not judges:
        say(f"People: {found.human}", "bold")
    for text in dict.fromkeys((*found.notes, *(text for one in found.human_agreement for text in one.notes))):
        note(text)
    for table in made:
        show_table(table)
    if found.disagreements and judges:
        say(f"\nThe furthest apart, step by step: {command('view', *dict.fromkeys(judge.run for judge in found.judges))}")


def chosen_judges(found: list[Judged], wanted: tuple[str, ...] | None) -> list[Judged]:
    """Return the judges of these names, URIs or beginnings of ids, in their order. Raises ConfigError, which lists all."""
    chosen = []
    for name in wanted or ():
        exact = [j for j in found if name in (j.name, j.title, j.judge_id, j.backend)]
        named = exact or [j for j in found if name == j.backend.partition("?")[0] or j.judge_id.startswith(name)]
        if len(named) != 1:
            known = ", ".join(f"{j.name} ({j.judge_id})" for j in found)
            raise ConfigError(
                f"--judges {name}: {'several judges' if named else 'no judge'} of that name; there are {known}"
            )
        chosen.append(named[0])
    return found if wanted is None else chosen
