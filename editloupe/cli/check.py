"""`editloupe check`: look at the data, or at what a model can do, before anything is spent."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final

from rich.text import Text
from typer import Option

from editloupe import plugins
from editloupe.backends.base import open_backend
from editloupe.backends.probe import probe
from editloupe.cli import options
from editloupe.cli.options import editors
from editloupe.cli.output import Form, in_brief, many, note, plain, print_json, say, table
from editloupe.config import RunConfig
from editloupe.data.check import DataReport
from editloupe.data.check import check as check_data
from editloupe.data.hub import local_data
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError
from editloupe.protocols.base import Known, groups, make_protocol, planned
from editloupe.values import Sample

FEW: Final = 5
"""Problems of one kind in a terminal."""


def check(
    path: options.DataPath = None,
    layout: options.Layout = None,
    edited: options.Edited = None,
    columns: options.DataColumns = None,
    fields: options.FieldsFile = None,
    backend: Annotated[str | None, Option(metavar="URI", help="Ask this model what it can do: about five calls.")] = None,
    full: options.Full = False,
    format: Form = "table",
) -> int:
    """Check a folder of edits without a model; with --backend URI, ask a model what it can do.

    Of data: exit code 0 where no error is found (warnings may stand), 1 with errors. A model is asked to answer, see, tell
    pictures apart, call a tool and keep to a JSON schema, with small drawn pictures, at the provider's price: exit code 0
    where it can judge, 1 where it cannot.
    """
    if path is None and backend is None:
        raise ConfigError("name a folder of edits, or a model with --backend provider/model, or both")
    code = 0
    if path is not None:
        run = RunConfig.make(**{"format": layout or "auto", "columns": columns or {}})
        report = check_data(
            local_data(path),
            store=ImageStore(),
            format=run.format,
            edited=editors(edited or []),
            fields=fields,
            columns=run.columns,
            blocked=_blocked,
        )
        if format == "json":
            print_json(report.to_json(), indent=2)
        else:
            _show(path, report, brief=in_brief(full))
        code = 1 if report.errors else 0
    return code if backend is None else max(code, _probe(backend, as_json=format == "json"))


def _probe(uri: str, *, as_json: bool) -> int:
    """Ask a backend live what it can do, and return the exit code."""
    lmm = open_backend(uri)
    report = probe(lmm, listener=lambda name: None if as_json else note(f"asking: {name}"))
    code = 0 if report.can_judge else 1
    if as_json:
        print_json(report.to_json(), indent=2)
        return code
    if not report.probes:
        say(f"{lmm.uri}: {report.verdict}")
        return code
    say(f"{lmm.uri} at {lmm.endpoint}")
    styles = {"yes": "green", "no": "yellow", "failed": "red"}
    rows = [
        [plain(cell, styles.get(row.result, "dim")) for cell in (row.name, row.result, row.asked, row.answered)]
        for row in report.probes
    ]
    table("Can it …", "", "Asked", "Answered", rows=rows)
    tokens = f"{report.usage.total:,} tokens" if report.usage.total else "tokens not told"
    say(f"{report.verdict} ({report.questions_answered} questions answered, {tokens})")
    return code


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
