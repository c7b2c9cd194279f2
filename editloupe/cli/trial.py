"""`editloupe trial`: judges held against probes, edits whose truth is known."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from editloupe.backends.prices import read_prices
from editloupe.cli.compare import chosen_judges
from editloupe.cli.options import Full, JsonFigures, Level, MarkdownFigures, PricesFile, Resamples, Seed, words
from editloupe.cli.output import in_brief, note, out, print_json, say, write
from editloupe.errors import ConfigError
from editloupe.reports import render
from editloupe.reports.judged import incomplete, read_judged
from editloupe.reports.leaderboard import lines_of, write_leaderboard
from editloupe.reports.trial import put_on_trial
from editloupe.reports.trial_tables import answers, heading, markdown, tables, write_trial
from editloupe.stats.bootstrap import LEVEL, RESAMPLES, SEED, Drawing


def trial(
    runs: Annotated[list[Path], Argument(help="Run folders.", metavar="RUN", show_default=False)],
    judges: Annotated[
        str | None,
        Option(metavar="A,B,…", help="Only these judges, each by its name, its URI, or the beginning of its id."),
    ] = None,
    out_dir: Annotated[Path | None, Option("--out", help="Keep tables and plots in this folder.")] = None,
    leaderboard: Annotated[
        Path | None,
        Option(metavar="FILE", help="Add a line a judge to this file (.md or .json), or replace the judge's line."),
    ] = None,
    prices: PricesFile = None,
    resamples: Resamples = RESAMPLES,
    level: Level = LEVEL,
    seed: Seed = SEED,
    full: Full = False,
    as_json: JsonFigures = False,
    as_markdown: MarkdownFigures = False,
) -> int:
    """Hold judges against probes, edits whose truth is known: accuracy, thresholds, leniency, traps, cost.

    RUN is a run over probes: editloupe build probes PATH --out FOLDER, then editloupe judge FOLDER --protocol probes.
    No model is asked. What could not be judged is counted and is part of no figure.
    """
    if leaderboard is not None and leaderboard.suffix not in (".md", ".json"):
        raise ConfigError(f"--leaderboard {leaderboard}: expected a file that ends with .md or .json")
    found = chosen_judges(read_judged(runs, same_metrics=False), words(judges))
    drawing = Drawing(resamples=resamples, level=level, seed=seed)
    told = put_on_trial(found, prices=read_prices(prices), drawing=drawing)
    added = "" if leaderboard is None else write_leaderboard(leaderboard, lines_of(told))
    if as_json:
        print_json(told.to_json())
    elif as_markdown:
        write(markdown(told))
    else:
        for line in incomplete(found):
            say(line, "yellow")
        say(heading(told))
        for judge in told.judges:
            say(judge.description, "bold")
        for text in told.notes:
            note(text)
        made = list(tables(told))
        if in_brief(full):
            for text in answers(told):
                say(text)
            say(f"{len(made)} tables with --full: {', '.join(table.title for table in made)}", "dim")
        else:
            for table in made:
                out().print(render.terminal(table))
    if added:
        note(added)
    if out_dir is not None:
        written = write_trial(told, out_dir)
        note(f"{len(written)} files in {out_dir}: trial.md, trial.json, tables as CSV, plots as SVG")
    return 0
