"""Plug-ins by group and name, through entry points. Built-ins come through the same door; nothing is imported before use.

Groups: `editloupe.backends` (URI provider → factory), `editloupe.models` (kind → opener), `editloupe.tools` (name → tool
class), `editloupe.protocols` (name → protocol class). Another distribution adds one with
`[project.entry-points."editloupe.tools"]`.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Literal, TypeAlias

from editloupe.errors import ConfigError, UnknownPlugin

Group: TypeAlias = Literal["backends", "models", "tools", "protocols"]


def names(group: Group) -> tuple[str, ...]:
    """The names that are installed, sorted."""
    return tuple(sorted(_found(group)))


def load(group: Group, name: str) -> object:
    """The object that the entry point names, imported now.

    Raises UnknownPlugin (which lists the known) and ConfigError where importing it fails.
    """
    found = _found(group)
    if name not in found:
        raise UnknownPlugin(group.removesuffix("s"), name, tuple(sorted(found)))
    try:
        return found[name].load()
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"{group.removesuffix('s')} {name!r} ({found[name].value}) cannot be imported: {error}"
        ) from error


def origin(group: Group, name: str) -> str:
    """The distribution that brings a plug-in, with its version: "editloupe 0.1.0"."""
    dist = _found(group)[name].dist
    return "unknown" if dist is None else f"{dist.name} {dist.version}"


@cache
def _found(group: Group) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=f"editloupe.{group}")}
