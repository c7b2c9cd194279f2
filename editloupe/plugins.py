"""Plug-ins by group and name, through entry points. Built-ins come through the same door; nothing is imported before use.

Groups: `editloupe.backends` (URI provider → factory), `editloupe.models` (kind → opener), `editloupe.tools` (name → tool
class), `editloupe.measures` (name → measure class), `editloupe.protocols` (name → protocol class), `editloupe.answers`
(kind → class of an answer's spec), `editloupe.loaders` (format → module or object that loads a layout),
`editloupe.importers` (name → module or object that reads result files), `editloupe.builders` (name → recipe of a data
set), `editloupe.editors` (name → opener of an image editor), and `editloupe.detectors`, `upscalers`,
`segmenters`, `encoders` and `faces` (KIND of KIND=WEIGHTS → opener of such a model), and `editloupe.doors` (name → opener
of a wire of the HTTP service).
Another distribution adds one with `[project.entry-points."editloupe.tools"]`.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint, EntryPoints, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Literal, TypeAlias, cast

from editloupe.errors import ConfigError, MissingExtra, UnknownPlugin

Group: TypeAlias = Literal[
    "backends", "models", "tools", "measures", "protocols", "answers", "loaders", "importers", "builders", "editors",
    "detectors", "upscalers", "segmenters", "encoders", "faces", "doors",
]  # fmt: skip


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
    point, *others = found[name]
    if others:
        packages = " and ".join(sorted({_package(one) for one in found[name]}))
        raise ConfigError(f"{group.removesuffix('s')} {name!r} comes from two packages, {packages}; uninstall one of them")
    try:
        return point.load()
    except MissingExtra:
        raise
    except Exception as error:  # a module of any package may raise anything
        where = f"{group.removesuffix('s')} {name!r} ({_package(point)}, {point.value})"
        raise ConfigError(f"{where} cannot be imported: {type(error).__name__}: {error}") from error


@cache
def origin(group: Group, name: str) -> str:
    """Return the distribution that brings a plug-in, with its version: "editloupe 0.1.0"."""
    return _package(_found(group)[name][0])


def described(group: Group, name: str) -> str:
    """Return "measure 'toy' (toy-package 0.1)"."""
    return f"{group.removesuffix('s')} {name!r} ({origin(group, name)})"


def forget() -> None:
    """Look again for installed plug-ins at the next call, for tests and notebooks that install one."""
    _installed.cache_clear()
    _found.cache_clear()
    origin.cache_clear()


def folder(group: Group, name: str) -> Path | None:
    """Return the folder in which the module of a plug-in lies; None where that cannot be told. Nothing is imported."""
    package, *parts = _found(group)[name][0].module.split(".")
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    module = Path(spec.submodule_search_locations[0], *parts)
    return module if module.is_dir() else module.parent


@cache
def _installed() -> EntryPoints:
    """Return the entry points of all packages, read once: looking one group up takes as long as reading all."""
    # Before Python 3.12 it is of another class, which selects alike.
    return cast(EntryPoints, entry_points())


@cache
def _found(group: Group) -> dict[str, list[EntryPoint]]:
    """Return the entry points of each name. One package twice on the path is one."""
    found: dict[str, list[EntryPoint]] = {}
    for point in _installed().select(group=f"editloupe.{group}"):
        others = found.setdefault(point.name, [])
        # A package is named only where a name comes twice: its metadata is a text that has to be parsed.
        if not any(other.value == point.value and _package(other) == _package(point) for other in others):
            others.append(point)
    return found


def _package(point: EntryPoint) -> str:
    return "unknown" if point.dist is None else f"{point.dist.name} {point.dist.version}"
