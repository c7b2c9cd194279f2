"""Options that commands share, and their words as values."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import typer
import yaml

from editloupe.errors import ConfigError
from editloupe.values import Json, canonical_json


def words(text: str | None) -> tuple[str, ...] | None:
    """ "if,vc" as ("if", "vc"); None where nothing was given."""
    if text is None:
        return None
    found = tuple(word for part in text.split(",") if (word := part.strip()))
    if not found:
        raise ConfigError(f"expected comma-separated words, found {text!r}")
    return found


def editors(values: list[str]) -> dict[str, Path]:
    """`--edited nameA=DIR --edited nameB=DIR`; a bare DIR is the editor of that folder's name."""
    found: dict[str, Path] = {}
    for value in values:
        name, equals, folder = value.partition("=")
        if not equals:
            name, folder = Path(value).name, value
        if not name or not folder:
            raise ConfigError(f"--edited {value!r}: expected NAME=DIR, for example --edited qwen=outputs/qwen")
        if name in found:
            raise ConfigError(f"--edited names the editor {name!r} twice")
        found[name] = Path(folder)
    return found


def read_config(path: Path) -> dict[str, Json]:
    """A config.yaml as option values. Raises ConfigError for a file that is missing, broken or no mapping."""
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror or error}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, Mapping):
        raise ConfigError(f"{path}: expected option names with values, as a run writes them to config.yaml")
    return {str(name): value for name, value in data.items() if value is not None}


def use_config(context: typer.Context, value: Path | None) -> Path | None:
    """Take option values from a file; what stands on the command line wins. Unknown names are refused."""
    if value is not None:
        config = read_config(value)
        known = {p.name for p in context.command.params}
        unknown = sorted(set(config) - known)
        if unknown:
            raise ConfigError(f"{value}: unknown option {', '.join(unknown)}; see editloupe judge --help")
        for param in context.command.params:
            given = config.get(str(param.name))
            if getattr(param, "multiple", False) and isinstance(given, str):
                config[str(param.name)] = [given]
            elif isinstance(given, Mapping):
                config[str(param.name)] = canonical_json(given)
        context.default_map = {**(context.default_map or {}), **config}
    return value
