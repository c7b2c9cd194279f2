"""Plug-ins by group and name, through entry points. Built-ins come through the same door; nothing is imported before use.

Groups: `editloupe.backends` (URI provider → factory), `editloupe.models` (kind → opener), `editloupe.tools` (name → tool
class), `editloupe.measures` (name → measure class), `editloupe.protocols` (name → protocol class) and `editloupe.loaders`
(format → module or object that loads a layout). Another distribution adds one with
`[project.entry-points."editloupe.tools"]`.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias

from editloupe.errors import ConfigError, MissingExtra, UnknownPlugin

Group: TypeAlias = Literal["backends", "models", "tools", "measures", "protocols", "loaders"]


def names(group: Group) -> tuple[str, ...]:
    """Return the names that are installed, sorted."""
    return tuple(sorted(_found(group)))


def load(group: Group, name: str) -> object:
    """Return the object that the entry point names, imported now.

    Raises UnknownPlugin (which lists the known), and ConfigError if importing it fails or two packages bring the name.
    """
    found = _found(group)
    if name not in found:
        raise UnknownPlugin(group.removesuffix("s"), name, tuple(sorted(found)))
    if (group, name) in _CLASHES:
        packages = _CLASHES[group, name]
        raise ConfigError(f"{group.removesuffix('s')} {name!r} comes from two packages, {packages}; uninstall one of them")
    try:
        return found[name].load()
    except MissingExtra:
        raise
    except Exception as error:  # a module of any package may raise anything
        where = f"{group.removesuffix('s')} {name!r} ({_package(found[name])}, {found[name].value})"
        raise ConfigError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error


def origin(group: Group, name: str) -> str:
    """Return the distribution that brings a plug-in, with its version: "editloupe 0.1.0"."""
    return _package(_found(group)[name])


def forget() -> None:
    """Look again for installed plug-ins at the next call, for tests and notebooks that install one."""
    _found.cache_clear()
    _CLASHES.clear()


def folder(group: Group, name: str) -> Path | None:
    """Return the folder in which the module of a plug-in lies; None where that cannot be told. Nothing is imported."""
    package, *parts = _found(group)[name].module.split(".")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    module = Path(spec.submodule_search_locations[0], *parts)
    return module if module.is_dir() else module.parent


@cache
def _found(group: Group) -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=f"editloupe.{group}"):
        other = found.setdefault(point.name, point)
        if (other.value, _package(other)) != (point.value, _package(point)):
            packages = " and ".join(sorted({_package(other), _package(point)}))
            _CLASHES[group, point.name] = packages
    return found


_CLASHES: dict[tuple[Group, str], str] = {}
"""Names that two packages bring, with the packages."""


def _package(point: EntryPoint) -> str:
    return "unknown" if point.dist is None else f"{point.dist.name} {point.dist.version}"
