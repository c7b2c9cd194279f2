"""`editloupe check`: look at the data, or at what a model can do, before anything is spent."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Annotated, Final

from editloupe import plugins
from editloupe.backends.base import open_backend
from editloupe.backends.probe import probe
from editloupe.cli import options
from editloupe.cli.options import check_company, editors, opt
from editloupe.cli.output import Form, as_json, many, note, print_json, say
from editloupe.cli.tables import table
from editloupe.config import RunConfig
from editloupe.data.check import DataReport
from editloupe.data.check import check as check_data
from editloupe.data.hub import local_data
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.errors import ConfigError
from editloupe.protocols.base import Known, groups, make_protocol, planned

FEW: Final = 5
"""Problems of one kind that are listed for people."""


def check(
    path: options.DataPath = None,
    layout: options.Layout = None,
    edited: options.Edited = None,
    columns: options.DataColumns = None,
    fields: options.FieldsFile = None,
    backend: Annotated[str | None, opt("--backend", "URI", "Ask this model what it can do: about five calls.")] = None,
    form: Form = "table",
) -> int:
    """Check a folder of edits without a model; with --backend URI, ask a model what it can do.

    Of data: exit code 0 if there is no error (warnings may be listed), 1 with errors. A model is asked to answer, see, tell
    pictures apart, call a tool and keep to a JSON schema, with small drawn pictures, at the provider's price: exit code 0
    if it can judge, 1 if it cannot.
    """
    if path is None and backend is None:
        raise ConfigError("name a folder of edits, or a model with --backend provider/model, or both")
    of_data = {"--layout": layout, "--edited": edited, "--columns": columns, "--fields": fields}
    check_company(("a folder of edits", path is not None, of_data))
    code = 0
    if path is not None:
        run = RunConfig.make(**{"format": layout or "auto", "columns": columns or {}})
        store, place = ImageStore(), local_data(path)
        its = editors(edited or [])
        loaded = load(place, store=store, format=run.format, edited=its, fields=fields, columns=run.columns)
        report = check_data(loaded, store, mute=_mute(loaded))
        if as_json():
            print_json(report.to_json(), indent=2)
        else:
            _show(path, report)
        code = 1 if report.errors else 0
    return code if backend is None else max(code, _probe(backend))


def _probe(uri: str) -> int:
    """Ask a backend live what it can do, and return the exit code."""
    lmm = open_backend(uri)
    report = probe(lmm, listener=lambda name: None if as_json() else note(f"asking: {name}"))
    code = 0 if report.can_judge else 1
    if as_json():
        print_json(report.to_json(), indent=2)
        return code
    say(f"{lmm.uri} at {lmm.endpoint}")
    if report.probes:
        rows = [(one.name, one.result, one.asked, one.answered) for one in report.probes]
        table("Can it …", "Result", "Asked", "Answered", rows=rows)
    tokens = f"{report.usage.total:,} tokens" if report.usage.total else "tokens not reported"
    say(f"{report.verdict} ({report.questions_answered} questions answered, {tokens})")
    return code


def _mute(loaded: Loaded) -> set[str]:
    """Return the keys of samples about which the protocol of the layout's name cannot ask anything."""
    if loaded.format not in plugins.names("protocols"):
        return set()
    protocol, found = make_protocol(loaded.format), set()
    for group in groups(loaded.samples):
        asks: dict[str, list[bool]] = {}
        for task in planned(protocol, group, Known()):
            if task.kind == "ask":
                asks.setdefault(task.about.key, []).append(task.blocked is not None and task.blocked[0] == "input_error")
        found |= {key for key, wrong in asks.items() if all(wrong)}
    return found


def _show(path: Path, report: DataReport) -> None:
    rows: list[tuple[str, ...]] = []
    for (severity, kind), alike in groupby(report.problems, key=lambda one: (one.severity, one.kind)):
        problems, head = list(alike), (severity, kind.replace("_", " "))
        shown = problems if len(problems) <= FEW + 1 else problems[:FEW]
        rows += [(*head, one.sample, one.message) for one in shown]
        if left := len(problems) - len(shown):
            rows.append((*head, f"… {left} more", "of the same kind; --format json lists them"))
    if rows:
        table("Severity", "Kind", "Sample", "What", rows=rows)
    for line in report.notes:
        say(line)
    missing = report.counts.get("missing_output", 0)
    partly = f" ({report.partly} of them in part, since turns have no output)" if report.partly else ""
    mute = f"{many(report.blocked, 'question')} cannot be asked, " if report.blocked else ""
    # A path keeps one slash of an address.
    name = str(path).replace("hf:/", "hf://", 1) if str(path).startswith("hf:/") else path
    say(
        f"{name}: {report.format}; {report.usable} of {many(report.rows, 'sample')} can be judged{partly}, "
        f"{many(report.images, 'image')}; "
        f"{missing} outputs missing, {mute}errors: {report.errors}, warnings: {report.warnings}."
    )
