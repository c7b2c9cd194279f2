"""`editloupe report`: the tables of one or several runs, from what was judged and with no model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from editloupe import files
from editloupe.cli.options import Full, JsonFigures, MarkdownFigures
from editloupe.cli.output import in_brief, note, out, print_json, say, warn, write
from editloupe.errors import ConfigError
from editloupe.figures import plots, render
from editloupe.figures.closing import brief_tables
from editloupe.figures.judged import read_judged
from editloupe.figures.report import make_report, write_report


def report(
    runs: Annotated[list[Path], Argument(help="Run folders.", metavar="RUN", show_default=False)],
    out_dir: Annotated[
        Path | None, Option("--out", help="Where the files go. Default: report/ in the run, where there is one run.")
    ] = None,
    figures: Annotated[
        Path | None, Option("--figures", metavar="DIR", help="Keep each plot as PDF and PNG in this folder, for a paper.")
    ] = None,
    full: Full = False,
    as_json: JsonFigures = False,
    as_markdown: MarkdownFigures = False,
) -> int:
    """Show the protocol's tables, labels and failures of runs; several judges side by side."""
    if figures is not None and not plots.available():
        raise ConfigError(f"--figures: {plots.NO_PLOTS}")
    brief = in_brief(full)
    found = make_report(read_judged(runs))
    if figures is not None:
        written = [files.write_whole(figures / name, data) for name, data in found.pictures()]
        note(f"{len(written)} plots in {figures}, as PDF and PNG")
    if as_json:
        print_json(found.to_json())
        return 0
    if as_markdown:
        write(found.markdown())
        return 0
    for line in found.incomplete:
        say(line, "yellow")
    for section in found.sections:
        say(section.judged.describe(), "bold")
        warn(section.judged.notes)
        first = brief_tables(section.judged.protocol, section.judged.frame) if brief else []
        for table in first or section.tables:
            out().print(render.terminal(table))
        if first:
            say(f"{len(section.tables)} tables with --full: {', '.join(table.title for table in section.tables)}", "dim")
        say("")
    if found.together is not None:
        out().print(render.terminal(found.together))
    warn(found.notes)
    folder = out_dir or (runs[0] / "report" if len(runs) == 1 else None)
    if folder is None:
        note("Give --out DIR to keep tables and plots of several runs.")
        return 0
    written = write_report(found, folder, below=out_dir or runs[0])
    say(f"\n{len(written)} files in {folder}: report.md, report.json, tables as CSV, {plots.written()}")
    return 0
