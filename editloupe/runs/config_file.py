"""config.yaml of a run: its last visit, asked of every judge and about every metric of the run."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final, cast

from editloupe import files
from editloupe.config import OF_A_JUDGE, SHORTHANDS, folded
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
    listed = {id_: object_of(judge) for id_, judge in object_of(judges).items()}
    known = {id_: judge for id_, judge in listed.items() if isinstance(judge.get("options"), Mapping)}
    options = {id_: dict(object_of(judge["options"])) for id_, judge in known.items()}
    rest = {name: value for name, value in config.items() if name not in ("judges", *OF_A_JUDGE)}
    if len(known) <= 1 and not any(judge.get("name") for judge in known.values()):
        several = config.get("judges") or isinstance(config.get("backend"), list)
        return {**rest, **next(iter(options.values()))} if known and several else dict(config)
    named: dict[str, Json] = {}
    for id_, judge in known.items():
        # A judge without a name stands under its backend as it was asked for, by which it is known to have none.
        key = str(judge.get("name") or options[id_].get("backend") or judge.get("backend"))
        named[f"{key} ({id_[:6]})" if key in named else key] = options[id_]
    return {**rest, "judges": named}


def with_earlier(before: Mapping[str, Json], now: Mapping[str, Json], free: Collection[str]) -> dict[str, Json]:
    """Return the options of a visit, widened to all samples and to the metrics that earlier visits asked about.

    free: options of the protocol in which visits may differ. Who names none, such as no criteria, asks for all.
    """
    try:
        options, earlier = folded(now)["option"], folded(before)["option"]
    except ConfigError:
        return dict(now)  # of options that nobody can read nothing stays
    for name in free:
        if name in options and name in earlier:
            options[name] = ",".join(dict.fromkeys((*_listed(earlier[name]), *_listed(options[name]))))
        else:
            options.pop(name, None)
    # A part of the data is asked about once all of it was.
    whole = () if {"limit", "sample"} & before.keys() else ("limit", "sample")
    # In the order of the file.
    found = {**now, "option": options or None, **dict.fromkeys((*SHORTHANDS, *whole))}
    return {name: value for name, value in found.items() if value is not None}


def _listed(value: Json) -> list[str]:
    return [word.strip() for word in (value.split(",") if isinstance(value, str) else map(str, cast("list[Json]", value)))]
