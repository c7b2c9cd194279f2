"""`editloupe check`: look at the data before anything is spent."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from editloupe.cli.options import editors
from editloupe.cli.output import out, plain

if TYPE_CHECKING:
    from editloupe.data.check import DataReport


def check(
    path: Annotated[Path, typer.Argument(help="Folder of edits, or a metadata file.")],
    edited: Annotated[list[str] | None, typer.Option(help="NAME=DIR: an editor's outputs; may be repeated.")] = None,
    format: Annotated[str, typer.Option(help="auto, imagefolder, pairs or dlebench.")] = "auto",
    fields: Annotated[Path | None, typer.Option(help="Field mapping (TOML) for the DLEBench importer.")] = None,
    json_: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> int:
    """Validate a folder of edits without a model. Exit code 0: no error (warnings may stand); 1: errors."""
    from editloupe.data.check import check as check_data
    from editloupe.data.images import ImageStore

    report = check_data(path, store=ImageStore(), format=format, edited=editors(edited or []), fields=fields)
    if json_:
        typer.echo(json.dumps(report.to_json(), indent=2, ensure_ascii=False))
    else:
        _show(path, report)
    return 1 if report.errors else 0


def _show(path: Path, report: DataReport) -> None:
    console = out()
    if report.problems:
        table = Table("", "Kind", "Sample", "What", show_lines=False)
        for problem in report.problems:
            style = "red" if problem.severity == "error" else "yellow"
            kind = problem.kind.replace("_", " ")
            table.add_row(plain(problem.severity, style=style), kind, plain(problem.sample), plain(problem.message))
        console.print(table)
    missing = report.counts.get("missing_output", 0)
    usable = report.usable - missing
    for line in report.notes:
        console.print(plain(line))
    console.print(
        plain(
            f"{path}: {report.format}; {usable} of {report.rows} samples can be judged, {report.images} images; "
            f"{missing} outputs missing, errors: {report.errors}, warnings: {report.warnings}."
        ),
        soft_wrap=True,
    )
