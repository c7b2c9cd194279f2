"""config.yaml of a run: its last invocation, asked of every judge of the run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from editloupe import files
from editloupe.config import OF_A_JUDGE
from editloupe.errors import ConfigError
from editloupe.runs.contents import object_of
from editloupe.values import Json

CONFIG: Final = "config.yaml"
_CONFIG_HEAD: Final = "# editloupe judge --config THIS_FILE runs this again.\n"


def read_config(folder: Path) -> dict[str, Json]:
    """Return the options of config.yaml; empty without one, or where it cannot be read."""
    path = folder / CONFIG
    with suppress(ConfigError):
        found = files.read_yaml(path) if path.exists() else None
        return dict(found) if isinstance(found, Mapping) else {}
    return {}


def write_config(folder: Path, options: Mapping[str, Json], judges: Json) -> None:
    """Write config.yaml with all of a run's judges, unless it says so already. Raises OSError."""
    # Only those who write need it.
    import yaml

    path = folder / CONFIG
    text = _CONFIG_HEAD + yaml.safe_dump(_with_judges(options, judges), sort_keys=False, allow_unicode=True)
    data = text.encode("utf-8", "backslashreplace")
    if not path.exists() or files.read_bytes(path) != data:
        files.write_whole(path, data, below=folder)


def _with_judges(config: Mapping[str, Json], judges: Json) -> dict[str, Json]:
    """Return options that ask all of a run's judges again; those whose options were never recorded are left out.

    A single judge without a name stands as `backend` with its options, else all stand under `judges`.
    """
    listed = ((id_, object_of(judge)) for id_, judge in object_of(judges).items())
    known = {id_: judge for id_, judge in listed if isinstance(judge.get("options"), Mapping)}
    if len(known) <= 1 and not any(judge.get("name") for judge in known.values()):
        return dict(config)
    named: dict[str, Json] = {}
    for id_, judge in known.items():
        options = dict(object_of(judge["options"]))
        # A judge without a name stands under its backend as it was asked for, by which it is known to have none.
        key = str(judge.get("name") or options.get("backend") or judge.get("backend"))
        named[f"{key} ({id_[:6]})" if key in named else key] = options
    return {**{name: value for name, value in config.items() if name not in ("judges", *OF_A_JUDGE)}, "judges": named}
