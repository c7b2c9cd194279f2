"""`editloupe compare`: two or more judges of the same edits, set against each other and against people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from editloupe.backends.prices import read_prices
from editloupe.cli.options import (
    Columns,
    Full,
    HumanFile,
    JsonFigures,
    Level,
    MarkdownFigures,
    PricesFile,
    Resamples,
    Seed,
    words,
)
from editloupe.cli.output import command, in_brief, note, out, print_json, say, write
from editloupe.errors import ConfigError
from editloupe.reports import render
from editloupe.reports.compare import Comparison, human_column
from editloupe.reports.compare import compare as compare_judges
from editloupe.reports.compare_tables import answers, tables, write_comparison
from editloupe.reports.equal_cost import at_equal_cost
from editloupe.reports.judged import Judged, on_shared_metrics, read_judged
from editloupe.reports.label_tables import column_names
from editloupe.stats.bootstrap import LEVEL, RESAMPLES, SEED, Drawing


def compare(
    runs: Annotated[list[Path], Argument(help="Run folders.", metavar="RUN", show_default=False)],
    judges: Annotated[
        str | None,
        Option(
            metavar="A,B,…", help="Only these judges, each by its name, its URI, or the beginning of its id, in this order."
        ),
    ] = None,
    human: HumanFile = None,
    columns: Columns = None,
    equal_cost: Annotated[
        bool, Option("--equal-cost", help="Of judges with repeats count as many as the dearest other one spends.")
    ] = False,
    out_dir: Annotated[Path | None, Option("--out", help="Keep tables and plots in this folder.")] = None,
    prices: PricesFile = None,
    resamples: Resamples = RESAMPLES,
    level: Level = LEVEL,
    seed: Seed = SEED,
    full: Full = False,
    as_json: JsonFigures = False,
    as_markdown: MarkdownFigures = False,
) -> int:
    """Do the judges agree, which is the more lenient, what does each cost, and which is nearer to people?"""
    found, shared = on_shared_metrics(chosen_judges(read_judged(runs, same_metrics=False), words(judges)))
    people, notes = human_column(found, human, column_names(columns, "--columns"))
    notes = (*shared, *notes)
    priced = read_prices(prices)
    if equal_cost:
        found, spent = at_equal_cost(found, priced)
        notes = (*spent, *notes)
    drawing = Drawing(resamples=resamples, level=level, seed=seed)
    comparison = compare_judges(found, prices=priced, people=people, drawing=drawing)
    unread = dict.fromkeys(problem for judged in found for problem in judged.notes)
    comparison = replace(comparison, notes=(*unread, *comparison.notes, *notes))
    if as_json:
        print_json(comparison.to_json())
        return 0
    if as_markdown:
        write("\n".join(map(render.markdown, tables(comparison))))
        return 0
    for number, judge in enumerate(found, start=1):
        say(f"{number} {judge.name}: {judge.describe()}", "bold")
    for text in comparison.notes:
        note(text)
    made = list(tables(comparison, whole=False))
    if in_brief(full):
        for text in answers(comparison):
            say(text)
        say(f"{len(made)} tables with --full: {', '.join(table.title for table in made)}", "dim")
    else:
        for table in made:
            out().print(render.terminal(table))
    if comparison.disagreements:
        say(f"\nThe furthest apart, step by step: {command('show', *_look(comparison))}")
    if out_dir is not None:
        written = write_comparison(comparison, out_dir)
        say(f"\n{len(written)} files in {out_dir}: compare.md, compare.json, tables as CSV, plots as SVG")
    return 0


def _look(found: Comparison) -> list[str]:
    """The words behind `show` for the disagreement at the top: of two runs that differ on it, one beside the other."""
    worst = found.disagreements[0]
    runs = list(dict.fromkeys(judge.run for judge in found.judges if judge.name in worst.labels))
    return [runs[0], worst.sample, *(["--diff", runs[1]] if len(runs) > 1 else [])]


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
