"""`editloupe report`: the paper's tables of one or several runs, from what was judged and with no model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.output import note, out, plain


def report(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.", metavar="RUN…", show_default=False)],
    out_dir: Annotated[
        Path | None, typer.Option("--out", help="Where the files go. Default: report/ in the run, where there is one run.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All figures as JSON on standard output; no files.")] = False,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="As Markdown on standard output; no files.")] = False,
) -> int:
    """Scores by edit type and editor, labels, and the effect of target size; several runs side by side."""
    import json

    from editloupe.reports import grid
    from editloupe.reports.judged import read_judged
    from editloupe.reports.report import make_report, write_report

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
        for one in section.grids:
            console.print(grid.terminal(one, at_once=6 if one.name.startswith("labels") else grid.COLUMNS_AT_ONCE))
        console.print()
    if found.together is not None:
        console.print(grid.terminal(found.together, at_once=3))
    for told in found.notes:
        note(f"warning: {told}")
    folder = out_dir or (runs[0] / "report" if len(runs) == 1 else None)
    if folder is None:
        note("Give --out DIR to keep tables and plots of several runs.")
        return 0
    written = write_report(found, folder)
    console.print(plain(f"\n{len(written)} files in {folder}: report.md, report.json, tables as CSV, plots as SVG"))
    return 0
