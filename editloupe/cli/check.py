"""`editloupe check`: look at the data before anything is spent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from editloupe.cli.options import editors
from editloupe.cli.output import out


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
    return _show(report, as_json=json_)


def _show(report: object, *, as_json: bool) -> int:
    out().print(report)
    return 0
