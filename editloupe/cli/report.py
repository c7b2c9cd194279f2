"""`editloupe report`: the tables of one or several runs. No model is asked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from editloupe import files
from editloupe.cli.options import OUTPUT, RunFolders, TableName, opt
from editloupe.cli.output import Form, note, say, warn
from editloupe.cli.tables import show_table, show_whole
from editloupe.errors import ConfigError
from editloupe.figures import plots
from editloupe.figures.judged import read_judged
from editloupe.figures.report import make_report, write_report


def report(
    runs: RunFolders,
    name: TableName = None,
    out_dir: Annotated[
        Path | None, opt("--out", "DIR", "With plots as SVG. Default: report/ in the one run, without.", OUTPUT)
    ] = None,
    figures: Annotated[Path | None, opt("--figures", "DIR", "Keep each plot as PDF and PNG.", OUTPUT)] = None,
    form: Form = "table",
) -> int:
    """Show the protocol's tables, labels and failures of runs; several judges side by side.

    \b
    editloupe report runs/a runs/b
    editloupe report runs/a --format csv --table scores-instruction-following
    """
    if figures is not None and not plots.available():
        raise ConfigError(f"--figures: {plots.NO_PLOTS}")
    # Nothing of a report rests on findings but the scores, and those of a large run take most of the memory.
    found = make_report([replace(judged, findings=()) for judged in read_judged(runs)])
    if figures is not None:
        written = [files.write_whole(figures / picture, data) for picture, data in found.pictures()]
        note(f"{len(written)} plots in {figures}, as PDF and PNG")
    together = [found.together] if found.together else []
    tables = [table for section in found.sections for table in section.tables]
    folder = out_dir
    if not show_whole([*tables, *together], name, found.to_json, found.markdown):
        for line in found.incomplete:
            say(line, "yellow")
        for section in found.sections:
            say(section.judged.describe(), "bold")
            warn(section.judged.notes)
            for table in section.tables:
                show_table(table)
            say("")
        for table in together:
            show_table(table)
        warn(found.notes)
        folder = out_dir or (runs[0] / "report" if len(runs) == 1 else None)
    if folder is not None:
        written = write_report(found, folder, below=out_dir or runs[0], drawn=out_dir is not None)
        drawn = "" if out_dir is None else f", {plots.written()}"
        say(f"\n{len(written)} files in {folder}: report.md, report.json, tables as CSV{drawn}")
    return 0
