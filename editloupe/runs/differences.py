"""What makes a run the same run, and what two runs differ in, in the user's words: an option as it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from editloupe.config import ALIASES, SHORTHANDS
from editloupe.values import Json

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
    rows = [(_setting(name), _short(before.get(name)), _short(now.get(name))) for name in differing]
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


def _short(value: Json) -> str:
    """Return a value on one line: of what has a name or an id, such as a rubric, the name; a sentence stands in quotes."""
    if isinstance(value, Mapping):
        value = value.get("name") or value.get("id") or value
    text = "not set" if value is None else " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f'"{text}"' if isinstance(value, str) and " " in text else text
