"""`editloupe report`: the tables of one or several runs, from what was judged and with no model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.output import note, out, plain
from editloupe.reports import render
from editloupe.reports.judged import read_judged
from editloupe.reports.report import make_report, write_report


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN…", show_default=False)],
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Where the files go. Default: report/ in the run, where there is one run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All figures as JSON on standard output; no files.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown on standard output; no files.")] = False,
) -> int:
    """Show the protocol's tables, labels and failures of runs; several judges side by side."""
    found = make_report(read_judged(runs))
    if as_json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False, allow_nan=False))
        return 0
    if as_markdown:
        typer.echo(found.markdown(), nl=False)
        return 0
    console = out()
    for section in found.sections:
        console.print(plain(section.judged.describe(), "bold"), soft_wrap=True)
        for told in section.judged.notes:
            note(f"warning: {told}")
        for table in section.tables:
            console.print(render.terminal(table))
        console.print()
    if found.together is not None:
        console.print(render.terminal(found.together))
    for told in found.notes:
        note(f"warning: {told}")
    folder = out_dir or (runs[0] / "report" if len(runs) == 1 else None)
    if folder is None:
        note("Give --out DIR to keep tables and plots of several runs.")
        return 0
    written = write_report(found, folder)
    console.print(plain(f"\n{len(written)} files in {folder}: report.md, report.json, tables as CSV, plots as SVG"))
    return 0
