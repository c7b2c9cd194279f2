"""`editloupe compare`: two or more judges of the same edits, set against each other and against people."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from editloupe.backends.prices import read_prices
from editloupe.cli.options import words
from editloupe.cli.output import note, out, plain
from editloupe.errors import ConfigError
from editloupe.reports import render
from editloupe.reports.compare import compare as compare_judges
from editloupe.reports.compare import human_column
from editloupe.reports.compare_tables import tables, write_comparison
from editloupe.reports.equal_cost import at_equal_cost
from editloupe.reports.judged import Judged, read_judged
from editloupe.reports.label_tables import column_names
from editloupe.stats.bootstrap import Drawing


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN…", show_default=False)],
    judges: Annotated[
        str | None, typer.Option(metavar="A,B,…", help="Only these judges, by name, id or URI, in this order.")
    ] = None,
    human: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="People's ratings, as for align. Default: those in the runs' samples, if any."),
    ] = None,
    columns: Annotated[
        str | None, typer.Option(metavar="ROLE=COLUMN,…", help="What columns of --human hold, where names do not say it.")
    ] = None,
    equal_cost: Annotated[
        bool, typer.Option("--equal-cost", help="Of judges with repeats count as many as the dearest other one spends.")
    ] = False,
    out_dir: Annotated[Path | None, typer.Option("--out", help="Keep tables and plots in this folder.")] = None,
    prices: Annotated[Path | None, typer.Option(help="Prices (TOML) of models that no list has.")] = None,
    resamples: Annotated[int, typer.Option(min=100, help="Bootstrap resamples.")] = 2000,
    level: Annotated[float, typer.Option(min=0.5, max=0.999, help="Level of the intervals.")] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the resamples.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="All figures as JSON on standard output; no files.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown on standard output; no files.")] = False,
) -> int:
    """Do the judges agree, which is the more lenient, what does each cost, and which is nearer to people?"""
    found = _chosen(read_judged(runs), words(judges))
    people, notes = human_column(found, human, column_names(columns, "--columns"))
    priced = read_prices(prices)
    if equal_cost:
        found, spent = at_equal_cost(found, priced)
        notes = (*spent, *notes)
    drawing = Drawing(resamples=resamples, level=level, seed=seed)
    comparison = compare_judges(found, prices=priced, people=people, drawing=drawing)
    comparison = replace(comparison, notes=(*comparison.notes, *notes))
    if as_json:
        typer.echo(json.dumps(comparison.to_json(), ensure_ascii=False, allow_nan=False))
        return 0
    if as_markdown:
        typer.echo("\n".join(map(render.markdown, tables(comparison))), nl=False)
        return 0
    console = out()
    for number, judge in enumerate(found, start=1):
        console.print(plain(f"{number} {judge.name}: {judge.describe()}", "bold"), soft_wrap=True)
    for text in comparison.notes:
        note(text)
    for table in tables(comparison, whole=False):
        console.print(render.terminal(table))
    if out_dir is not None:
        written = write_comparison(comparison, out_dir)
        console.print(plain(f"\n{len(written)} files in {out_dir}: compare.md, compare.json, tables as CSV, plots as SVG"))
    return 0


def _chosen(found: list[Judged], wanted: tuple[str, ...] | None) -> list[Judged]:
    if wanted is None:
        return found
    chosen = []
    for name in wanted:
        named = [j for j in found if name in (j.name, j.title, j.judge_id, j.backend) or j.judge_id.startswith(name)]
        if len(named) != 1:
            known = ", ".join(f"{j.name} ({j.judge_id})" for j in found)
            what = "no judge" if not named else "several judges"
            raise ConfigError(f"--judges {name}: {what} of that name; there are {known}")
        chosen.append(named[0])
    return chosen
