"""`editloupe check`: look at the data before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final

from rich.text import Text
from typer import Argument, Option

from editloupe import plugins
from editloupe.cli.options import AsJson, DataColumns, FieldsFile, editors
from editloupe.cli.output import in_brief, many, plain, print_json, say, table
from editloupe.config import RunConfig
from editloupe.data.check import DataReport
from editloupe.data.check import check as check_data
from editloupe.data.hub import local_data
from editloupe.data.images import ImageStore
from editloupe.protocols.base import Known, groups, make_protocol, planned
from editloupe.values import Sample

FEW: Final = 5
"""Problems of one kind in a terminal."""


def check(
    path: Annotated[Path, Argument(help="Folder of edits, a metadata file, or hf://OWNER/NAME:SPLIT.")],
    edited: Annotated[list[str] | None, Option(help="NAME=DIR: an editor's outputs; may be repeated.")] = None,
    format: Annotated[
        str,
        Option("--layout", metavar="NAME", help="auto, imagefolder, pairs, or that of a benchmark, such as edival."),
    ] = "auto",
    fields: FieldsFile = None,
    columns: DataColumns = None,
    full: Annotated[
        bool, Option("--full", help="List every problem in a terminal too. A pipe and a file always get all.")
    ] = False,
    as_json: AsJson = False,
) -> int:
    """Validate a folder of edits without a model. Exit code 0: no error (warnings may stand); 1: errors."""
    run = RunConfig.make(columns=columns or {})
    report = check_data(
        local_data(path),
        store=ImageStore(),
        format=format,
        edited=editors(edited or []),
        fields=fields,
        columns=run.columns,
        blocked=_blocked,
    )
    if as_json:
        print_json(report.to_json(), indent=2)
    else:
        _show(path, report, brief=in_brief(full))
    return 1 if report.errors else 0


def _blocked(layout: str, samples: Sequence[Sample]) -> set[str]:
    """Return the keys of samples about which the protocol of the layout's name cannot ask anything."""
    if layout not in plugins.names("protocols"):
        return set()
    protocol, found = make_protocol(layout), set()
    for group in groups(samples):
        asks: dict[str, list[bool]] = {}
        for task in planned(protocol, group, Known()):
            if task.kind == "ask":
                asks.setdefault(task.about.key, []).append(task.blocked is not None and task.blocked[0] == "input_error")
        found |= {key for key, wrong in asks.items() if all(wrong)}
    return found


def _show(path: Path, report: DataReport, *, brief: bool) -> None:
    rows: list[Sequence[str | Text]] = []
    for (severity, kind), alike in groupby(report.problems, key=lambda one: (one.severity, one.kind)):
        problems = list(alike)
        first = problems[:FEW] if brief and len(problems) > FEW + 1 else problems
        head = plain(severity, {"error": "red", "warning": "yellow"}[severity]), kind.replace("_", " ")
        rows += [(*head, one.sample, one.message) for one in first]
        if left := len(problems) - len(first):
            rows.append((*head, f"… {left} more", "of the same kind; --full lists them"))
    if rows:
        table("", "Kind", "Sample", "What", rows=rows)
    missing = report.counts.get("missing_output", 0)
    partly = f" ({report.partly} of them in part, since turns have no output)" if report.partly else ""
    for line in report.notes:
        say(line)
    mute = f"{many(report.blocked, 'question')} cannot be asked, " if report.blocked else ""
    # A path keeps one slash of an address.
    name = str(path).replace("hf:/", "hf://", 1) if str(path).startswith("hf:/") else path
    say(
        f"{name}: {report.format}; {report.usable} of {many(report.rows, 'sample')} can be judged{partly}, "
        f"{many(report.images, 'image')}; "
        f"{missing} outputs missing, {mute}errors: {report.errors}, warnings: {report.warnings}."
    )
