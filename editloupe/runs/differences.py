"""What makes a run the same run, and what two runs differ in, in the user's words: an option as it is given."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
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
    """What two visits to one folder must share: protocol, options, roles, tools, budget of a task."""
    record: Mapping[str, Json] = field(default_factory=dict)
    """How this visit was made: version, repeats. Never compared."""

    def differs_from(self, other: RunSpec) -> Iterator[tuple[str, Json, Json]]:
        """Yield (field, ours, theirs) for every field of identity that differs; of an object each key."""
        for name in sorted({*self.identity, *other.identity}):
            ours, theirs = self.identity.get(name), other.identity.get(name)
            if isinstance(ours, Mapping) and isinstance(theirs, Mapping):
                keys = sorted(key for key in {*ours, *theirs} if ours.get(key) != theirs.get(key))
                yield from ((f"{name}.{key}", ours.get(key), theirs.get(key)) for key in keys)
            elif ours != theirs:
                yield name, ours, theirs


def differences(ours: RunSpec, theirs: RunSpec) -> str:
    """Return in words what two runs differ in; "" for nothing."""
    rows = [(_setting(name), _short(before), _short(now)) for name, before, now in ours.differs_from(theirs)]
    # What the user gave comes first; which tools there are often follows from it.
    rows.sort(key=lambda row: not row[0].startswith("--"))
    same = "was another one of this name"
    return "; ".join(f"{name}: {same if was == now else f'was {was}, is {now}'}" for name, was, now in rows)


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
