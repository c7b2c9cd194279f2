"""Write the reference pages of the site from the program itself: commands and Python names."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import typer.main

import editloupe
from editloupe.cli import COMMANDS, app
from editloupe.cli.options import SETTINGS, type_name

MODULES: Final[Mapping[str, str]] = {
    "editloupe.testing": "The test kit: scripted models, and checks of what you write yourself.",
    "editloupe.tools": "The visual tools without a judge.",
    "editloupe.values": "Values: samples, images, boxes, views.",
    "editloupe.answers": "Which form an answer has.",
    "editloupe.tasks": "Questions and measurements.",
    "editloupe.findings": "What a judge says, and who it is.",
    "editloupe.scores": "Metrics, scores, tables.",
    "editloupe.traces.events": "What a line of a trace holds.",
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
        "Made from the commands themselves. See also [settings, exit codes and variables](../reference.md).",
    ]
    for panel, names in COMMANDS.items():
        parts.append(f"## {panel}")
        for name in names:
            _, command, _ = group.resolve_command(context, [name])  # type: ignore[attr-defined]
            parts += _command(command, f"editloupe {name}", context, level=3)
    return "\n\n".join([*parts, *_settings()]) + "\n"


def _settings() -> Iterator[str]:
    """Yield the section of all settings."""
    yield "## Settings"
    yield (
        "A setting is given by its option where a command has one, by `--set NAME=VALUE`, "
        "or by a line of `editloupe.yaml`. The first of these that names it holds."
    )
    rows = (
        f"| `{name}` | {_cell(type_name(f.annotation))} | {_cell(str(f.description))} |" for name, f in SETTINGS.items()
    )
    yield "\n".join(("| setting | type | |", "|---|---|---|", *rows))


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
            row = f"| `{_cell(record[0])}` | {_cell(' '.join(record[1].split()))} |"
            panels.setdefault(parameter.rich_help_panel or kind, []).append(row)
    for panel, rows in panels.items():
        yield "\n".join((f"| {panel} | |", "|---|---|", *rows))
    for below, one in getattr(command, "commands", {}).items():
        yield from _command(one, f"{name} {below}", inner, level=level + 1)


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
