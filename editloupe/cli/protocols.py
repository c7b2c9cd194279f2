"""`editloupe protocols`: which benchmarks can be asked, and what one reports and takes."""

from __future__ import annotations

import functools
import types
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer
from typer import Argument

from editloupe import plugins
from editloupe.cli.options import AsJson, kind_of
from editloupe.cli.output import print_json, say, table, warn
from editloupe.errors import ConfigError
from editloupe.protocols.base import make_protocol
from editloupe.stats.spec import TableSpec
from editloupe.values import Json


def protocols(context: typer.Context) -> None:
    """List the protocols that --protocol takes, or show one with its roles, metrics, tables and options."""
    if context.invoked_subcommand:
        return
    rows: list[tuple[str, ...]] = []
    for name in plugins.names("protocols"):
        try:
            described = _described(name)
        except ConfigError as error:
            warn([str(error)])
            rows.append((name, plugins.origin("protocols", name), "–", "–"))
            continue
        metrics = ", ".join(str(metric["short"] or metric["id"]) for metric in described["metrics"]) or "–"
        rows.append((name, described["package"], described["paper"] or "–", metrics))
    table("Protocol", "Package", "Paper", "Metrics", rows=rows)


def show(name: Annotated[str, Argument(metavar="NAME", help="As --protocol takes it.")], as_json: AsJson = False) -> int:
    """Show the roles, metrics, tables and options of a protocol."""
    described = _described(name)
    if as_json:
        print_json(described)
        return 0
    say(f"{name} ({described['package']})", "bold")
    if described["paper"]:
        say(f"{described['paper']} {described['url']}".rstrip())
    if described["problem"]:
        say(f"Without options: {described['problem']}", "yellow")
    _print("Roles", ("Role", "What it does"), [(role, text) for role, text in described["roles"].items()])
    metrics = [(m["id"], m["short"] or m["id"], _domain(m), m["better"] or "–", m["unit"]) for m in described["metrics"]]
    _print("Metrics", ("Metric", "Short", "Values", "Better", "Unit"), metrics)
    tables = [
        (t["title"], ", ".join(t["metrics"]) or "all", t["rows"], t["cell"], t["source"]) for t in described["tables"]
    ]
    _print("Tables", ("Table", "Metrics", "Rows", "Cell", "Source"), tables)
    options = [(o["name"], o["type"], o["shown"], o["help"]) for o in described["options"]]
    _print("Options (--option NAME=VALUE)", ("Option", "Type", "Default", "What it does"), options)
    return 0


def _print(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        say(f"\n{title}: none")
        return
    say("")
    table(*head, rows=rows, title=title)


def _described(name: str) -> dict[str, Any]:
    """Everything about a protocol as JSON. Raises ConfigError (unknown, or no protocol)."""
    cls: Any = plugins.load("protocols", name)
    problem, metrics, tables = "", [], []
    try:
        protocol = make_protocol(name)
        metrics = [metric.to_json() for metric in protocol.metrics]
        tables = [_table(one) for one in protocol.tables]
    except ConfigError as error:
        if not hasattr(cls, "Options"):
            raise
        # An option without a default: metrics and tables depend on it.
        problem = str(error)
    paper = getattr(cls, "paper", None)
    return {
        "name": name,
        "package": plugins.origin("protocols", name),
        "paper": "" if paper is None else paper.title,
        "url": "" if paper is None else paper.url,
        "roles": dict(getattr(cls, "roles", {})),
        "metrics": metrics,
        "tables": tables,
        "options": [_option(field.alias or own, field) for own, field in cls.Options.model_fields.items()],
        "problem": problem,
    }


def _table(table: Any) -> dict[str, Json]:
    """A table of a protocol: a TableSpec, or a function of the protocol."""
    if isinstance(table, TableSpec):
        return table.to_json()
    # A partial's own docstring is Python's.
    made = table.func if isinstance(table, functools.partial) else table
    text = str(getattr(made, "__doc__", None) or getattr(made, "__name__", "a function")).strip().partition("\n")[0]
    words = text.removeprefix("Return the ").removeprefix("Return ").partition(";")[0].rstrip(".")
    if isinstance(table, functools.partial) and table.keywords:
        words += f": {', '.join(f'{name}={value}' for name, value in table.keywords.items())}"
    return {"title": words[:1].upper() + words[1:], "metrics": [], "rows": "–", "cell": "–", "source": ""}


def _option(name: str, field: Any) -> dict[str, Json]:
    required = field.is_required()
    default = None if required else field.get_default(call_default_factory=True)
    if isinstance(default, tuple):
        default = ",".join(map(str, default)) or None
    known: Json = default if isinstance(default, int | float | str | None) else str(default)
    return {
        "name": name,
        "type": _type(field.annotation),
        "required": required,
        "default": known,
        "shown": "(required)" if required else "–" if known is None else str(known),
        "help": " ".join((field.description or "").split()),
    }


def _type(annotation: Any) -> str:
    """ "tool|oracle|plain" for a Literal; else the name of the type."""
    if get_origin(annotation) in (Union, types.UnionType):
        return "|".join(_type(part) for part in get_args(annotation) if part is not types.NoneType)
    kind = kind_of(annotation)
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) is tuple:
        return "words"
    # A class of the protocol's own is written as text too; its help says what.
    return {int: "integer", float: "number", bool: "true|false", Path: "file"}.get(kind, "text")


def _domain(metric: Any) -> str:
    domain = metric["domain"]
    if domain["kind"] == "levels":
        return ", ".join(f"{level['name']} {level['value']:g}" for level in domain["levels"])
    return f"{domain['low']:g} to {domain['high']:g}" if domain["kind"] == "interval" else str(domain["kind"])
