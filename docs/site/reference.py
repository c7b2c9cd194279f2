"""Write the reference pages of the site from the program itself: commands, Python names, files of a run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final, get_args

import typer.main

import editloupe
from editloupe.cli import OF_TOOLS, PANELS, app, variable
from editloupe.exports.schema import File, schema

MODULES: Final[Mapping[str, str]] = {
    "editloupe.testing": "The test kit: scripted models, and checks of what you write yourself.",
    "editloupe.tools": "The visual tools without a judge.",
    "editloupe.values": "Values: samples, images, boxes, views.",
    "editloupe.answers": "Which form an answer has.",
    "editloupe.tasks": "Questions and measurements.",
    "editloupe.findings": "What a judge says, and who it is.",
    "editloupe.scores": "Metrics, scores, tables.",
    "editloupe.chat": "Messages, requests and replies.",
    "editloupe.backends.base": "What a backend offers.",
    "editloupe.protocols.base": "What a protocol offers.",
    "editloupe.measures.base": "What a measure offers.",
    "editloupe.tools.base": "What a tool offers.",
    "editloupe.models.edit.base": "What an image editor offers.",
    "editloupe.data.loaders.base": "What a loader of data offers.",
    "editloupe.errors": "Errors, by who must act.",
}
"""Modules for those who write a tool, a measure, a protocol, a backend or a loader."""


def commands_page() -> str:
    """Return the page of all commands, in the groups of `editloupe --help`."""
    group = typer.main.get_command(app)
    context: Any = typer.Context(group, info_name="editloupe")
    parts = [
        "# Commands",
        "Made from the commands themselves. Every option can be set by an environment variable, too: an option on the "
        "command line stands above its variable, and a variable above `editloupe.yaml`. [Exit codes](../exit-codes.md) and "
        "[variables](../environment.md) have pages of their own.",
    ]
    for panel, names in PANELS.items():
        parts.append(f"## {panel}")
        for name in names:
            _, command, _ = group.resolve_command(context, [name])  # type: ignore[attr-defined]
            parts += _command(command, f"editloupe {name}", context, level=3)
    return "\n\n".join(parts) + "\n"


def _command(command: Any, name: str, parent: Any, *, level: int) -> Iterator[str]:
    inner = typer.Context(command, info_name=name.rpartition(" ")[2], parent=parent)
    yield f"{'#' * level} {name}"
    yield _help(command.help or "")
    yield f"```text\n{command.get_usage(inner).removeprefix('Usage: ')}\n```"
    panels: dict[str, list[str]] = {}
    for parameter in command.params:
        record = parameter.get_help_record(inner)
        if record is not None:
            kind = "Arguments" if parameter.param_type_name == "argument" else "Options"
            row = f"| `{_cell(record[0])}` | {_cell(' '.join(record[1].split()))} | {_variable(parameter)} |"
            panels.setdefault(parameter.rich_help_panel or kind, []).append(row)
    for panel, rows in panels.items():
        yield "\n".join((f"| {panel} | | variable |", "|---|---|---|", *rows))
    for below, one in getattr(command, "commands", {}).items():
        yield from _command(one, f"{name} {below}", inner, level=level + 1)


def _variable(parameter: Any) -> str:
    given = parameter.envvar or ()
    if parameter.name in OF_TOOLS and not given:
        given = variable(parameter.opts[0])
    return ", ".join(f"`{name}`" for name in ([given] if isinstance(given, str) else given))


def _help(text: str) -> str:
    """Return a help text for Markdown: its examples as a block of commands."""
    lines = [line.strip("\b ") for line in inspect.cleandoc(text).splitlines()]
    words = "\n".join(line for line in lines if not line.startswith("editloupe "))
    examples = "\n".join(line for line in lines if line.startswith("editloupe "))
    plain = re.sub(r"\n{2,}", "\n\n", words).strip().replace("<", "&lt;")
    return f"{plain}\n\n```sh\n{examples}\n```" if examples else plain


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def python_page() -> str:
    """Return the page of Python names, which mkdocstrings fills from their docstrings."""
    parts = [
        "# Python",
        "Made from the docstrings. [Python first](../python.md) shows how these go together.",
        "## editloupe",
        "What `from editloupe import …` gives.",
    ]
    for name in sorted(editloupe.__all__):
        found = getattr(editloupe, name)
        if not name.startswith("__"):
            parts.append(f"::: {found.__module__}.{name}\n    options:\n      heading_level: 3")
    for module, what in MODULES.items():
        import_module(module)
        parts += [
            f"## {module}",
            what,
            f"::: {module}\n    options:\n      show_root_heading: false\n      heading_level: 3",
        ]
    return "\n\n".join(parts) + "\n"


_FILES: Final[Mapping[str, str]] = {
    "run": "run.json",
    "samples": "A line of samples.jsonl",
    "findings": "A line of findings.jsonl",
    "trace": "A line of a trace",
}


def schemas_page() -> str:
    """Return the page of the fields of a run's files, from their JSON Schemas."""
    parts = [
        "# Fields of a run's files",
        "Made from the JSON Schemas that `editloupe schema NAME` prints. [Files](../files.md) says which file holds what.",
    ]
    for name in get_args(File):
        made = schema(name)
        parts += [f"## {_FILES[name]}", f"`editloupe schema {name}`"]
        for title, one in sorted(made["$defs"].items()):
            if "properties" not in one:
                continue
            needed = one.get("required", ())
            rows = [
                f"| `{field}` | {_cell(_type(of))} | {'' if field in needed else 'left out if it says nothing'} |"
                for field, of in one["properties"].items()
            ]
            parts += [f"### {title}", _help(one.get("description", ""))]
            parts.append("\n".join(("| field | type | |", "|---|---|---|", *rows)))
    return "\n\n".join(parts) + "\n"


def _type(of: Mapping[str, Any]) -> str:
    """Return a field's type in words."""
    if "$ref" in of:
        return str(of["$ref"]).rpartition("/")[2]
    for joined in ("anyOf", "oneOf"):
        if joined in of:
            return " or ".join(dict.fromkeys(map(_type, of[joined])))
    if "const" in of:
        return f"`{of['const']}`"
    if "enum" in of:
        return ", ".join(f"`{value}`" for value in of["enum"])
    kind = of.get("type", "anything")
    if isinstance(kind, list):
        return " or ".join(kind)
    if kind == "array" and isinstance(of.get("items"), Mapping):
        return f"list of {_type(of['items'])}"
    if kind == "object" and isinstance(of.get("additionalProperties"), Mapping):
        return f"object of {_type(of['additionalProperties'])}"
    return str(kind)
