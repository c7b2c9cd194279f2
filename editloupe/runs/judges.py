"""What makes a run the same run, who its judges are, and config.yaml, which asks them all again.

What a judge of a run may have for itself is what its JudgeSpec holds and the run's identity does not. The rest (mode,
rubric, prompt, tools, budget) is the run's: judges that differ in it answer another question.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from editloupe import files
from editloupe.backends.base import parse_uri
from editloupe.config import ALIASES, OF_A_JUDGE, SHORTHANDS
from editloupe.errors import ConfigError, RunMismatch
from editloupe.findings import JudgeSpec
from editloupe.runs.jsonl import object_of
from editloupe.values import Json

CONFIG: Final = "config.yaml"
_CONFIG_HEAD: Final = "# editloupe judge --config THIS_FILE runs this again.\n"
_LONGEST: Final = 80
"""Characters of a value."""
_FLAGS: Final = {field: name for name, field in ALIASES.items()}


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run as a value."""

    identity: Mapping[str, Json]
    """What two invocations on one folder must share: protocol, options, roles, tools, budget of a task."""
    record: Mapping[str, Json] = field(default_factory=dict)
    """How this invocation was made: version, repeats. Never compared."""


def differences(ours: RunSpec, theirs: RunSpec) -> str:
    """Return in words what two runs differ in; "" for nothing."""
    before, now = _fields(ours.identity), _fields(theirs.identity)
    differing = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    rows = [(_setting(name), _shown(before.get(name)), _shown(now.get(name))) for name in differing]
    # What the user gave comes first; which tools there are often follows from it.
    rows.sort(key=lambda row: not row[0].startswith("--"))
    same = "was another one of this name"
    return "; ".join(f"{name}: {same if was == now else f'was {was}, is {now}'}" for name, was, now in rows)


def _fields(identity: Mapping[str, Json]) -> dict[str, Json]:
    """Return what an identity holds by name, the entries of an object as OBJECT.KEY."""
    objects = {name: value for name, value in identity.items() if isinstance(value, Mapping)}
    entries = {f"{name}.{key}": value for name, held in objects.items() for key, value in held.items()}
    return {name: value for name, value in identity.items() if name not in objects} | entries


def _setting(name: str) -> str:
    """Return the option that sets a field of an identity."""
    head, _, rest = name.partition(".")
    match head:
        case "options":
            return f"--{rest}" if rest in SHORTHANDS and rest != "asks" else f"--set {rest}"
        case "budget":
            return "--max-turns" if rest == "max_turns" else f"--set {_FLAGS.get(rest, rest)}"
        case "roles":
            return f"--set role.{rest}"
        case "tools":
            return f"version of the tool {rest}"
    return {"protocol": "--protocol", "ablations": "--set ablate", "imported": "importer"}.get(
        name, re.sub("[._]", " ", name)
    )


def _shown(value: Json) -> str:
    """Return a value on one line: of what has a name or an id, such as a rubric, the name; a sentence stands in quotes."""
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("id") or value
    text = "not set" if value is None else " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f'"{text}"' if isinstance(value, str) and " " in text else text


@dataclass(frozen=True, kw_only=True)
class JudgeEntry:
    """A judge as run.json lists it."""

    judge: JudgeSpec
    name: str = ""
    """As the user gave it; "" for none."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Those of OF_A_JUDGE that were set, to ask it again."""
    role: str = "judge"
    """What it answers."""

    def to_json(self) -> dict[str, Json]:
        """Return the judge's identity with its name, options and role beside it."""
        return {
            **self.judge.to_json(),
            **({"name": self.name} if self.name else {}),
            **({"options": dict(self.options)} if self.options else {}),
            **({"role": self.role} if self.role != "judge" else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> JudgeEntry:
        """Return the entry that `to_json` wrote. Raises ValueError for data of another shape."""
        options = data.get("options", {})
        if not isinstance(options, Mapping):
            raise ValueError(f"expected options by name, found {options!r}")
        return cls(
            judge=JudgeSpec.from_json(data),
            name=str(data.get("name") or ""),
            options=options,
            role=str(data.get("role") or "judge"),
        )


def joined(known: Json, entries: Iterable[JudgeEntry], folder: Path) -> dict[str, Json]:
    """Return the judges of a run with these: id → entry, in the order in which they came.

    Raises RunMismatch if a name is another judge's already.
    """
    found = dict(known) if isinstance(known, Mapping) else {}
    for entry in entries:
        earlier = found.get(entry.judge.id)
        found[entry.judge.id] = {**(earlier if isinstance(earlier, Mapping) else {}), **entry.to_json()}
        for id_, other in found.items():
            if entry.name and id_ != entry.judge.id and isinstance(other, Mapping) and other.get("name") == entry.name:
                now = entry.judge.to_json()
                before = {field: other.get(field) for field in now}
                changes = differences(RunSpec(identity=before), RunSpec(identity=now))
                raise RunMismatch(
                    f"{folder} has a judge {entry.name!r} already, and it is another one: {changes}. "
                    "Give the new one a name of its own"
                )
    return found


def names_of(judges: Json) -> dict[str, str]:
    """Return what judges are called everywhere: id → given name, else the model, "gpt-4.1" for "openai/gpt-4.1?base_url=…".

    If two would be called the same, those without a given name have their provider in front, then the beginning of the id
    behind.
    """
    found = {id_: j for id_, j in (judges if isinstance(judges, Mapping) else {}).items() if isinstance(j, Mapping)}
    names = {id_: str(j.get("name") or _model(str(j.get("backend")))) for id_, j in found.items()}
    for id_ in _shared(names):
        if not found[id_].get("name"):
            names[id_] = str(found[id_].get("backend")).partition("?")[0]
    return names | {id_: f"{names[id_]} ({id_[:6]})" for id_ in _shared(names)}


def _shared(names: Mapping[str, str]) -> list[str]:
    often = Counter(names.values())
    return [id_ for id_, name in names.items() if often[name] > 1]


def _model(uri: str) -> str:
    try:
        parsed = parse_uri(uri)
    except ConfigError:
        return uri
    return parsed.model.rstrip("/").rpartition("/")[2] or parsed.provider


def titled(name: str, uri: str) -> str:
    """Return a judge's name, with its URI if the name does not say it."""
    return name if name.startswith(uri) else f"{name}, {uri}"


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
