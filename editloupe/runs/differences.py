"""What makes a run the same run, and what two runs differ in, in the user's words: an option as it is given."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from editloupe.config import ALIASES, SHORTHANDS
from editloupe.values import Json

_LONGEST: Final = 80
"""Characters of a value."""
_RUBRIC: Final = "options.rubric."

_FLAGS: Final = {field: name for name, field in ALIASES.items()}
_NAMES: Final[Mapping[str, str]] = {
    "protocol": "--protocol",
    "ablations": "--set ablate",
    "absent_tools": "tools that are absent",
    "imported": "importer",
}
"""Fields of an identity whose name is no option's."""


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run as a value."""

    identity: Mapping[str, Json]
    """What two visits to one folder must share: protocol, options, roles, tools, budget of a task."""
    record: Mapping[str, Json] = field(default_factory=dict)
    """How this visit was made: version, repeats. Never compared."""

    def differs_from(self, other: RunSpec) -> list[tuple[str, Json, Json]]:
        """Return (field, ours, theirs) for every field of identity that differs; of an object each key."""
        return list(_differences("", self.identity, other.identity))


def differences(ours: RunSpec, theirs: RunSpec) -> list[tuple[str, str, str]]:
    """Return (setting, our value, their value) for each setting that differs. Of another rubric its id stands for all."""
    found = ours.differs_from(theirs)
    if any(name == f"{_RUBRIC}id" for name, _, _ in found):
        found = [row for row in found if row[0] == f"{_RUBRIC}id" or not row[0].startswith(_RUBRIC)]
    rows = [(_setting(name), _short(before), _short(now)) for name, before, now in found]
    # What the user gave comes first; which tools there are often follows from it.
    return sorted(rows, key=lambda row: not row[0].startswith("--"))


def _setting(name: str) -> str:
    """Return the option that sets a field of an identity."""
    head, _, rest = name.partition(".")
    match head:
        case "options":
            option, dot, key = rest.removesuffix(".id").partition(".")
            flag = option in SHORTHANDS and option != "asks"
            return (f"--{option}" if flag else f"--set {option}") + dot + key
        case "budget":
            return "--max-turns" if rest == "max_turns" else f"--set {_FLAGS.get(rest, rest)}"
        case "roles":
            return f"--set role.{rest}"
        case "tools" if rest:
            return f"version of the tool {rest}"
    return _NAMES.get(name, name)


def _short(value: Json) -> str:
    """Return a value on one line: of what has a name, such as a prompt, the name; a sentence stands in quotes."""
    if isinstance(value, Mapping) and "name" in value:
        value = value["name"]
    text = "not set" if value is None else " ".join((value if isinstance(value, str) else json.dumps(value)).split())
    text = text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
    return f'"{text}"' if isinstance(value, str) and " " in text else text


def _differences(prefix: str, ours: Mapping[str, Json], theirs: Mapping[str, Json]) -> Iterator[tuple[str, Json, Json]]:
    for name in sorted({*ours, *theirs}):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, list) and isinstance(b, list):
            # A rubric's criteria and labels are lists: one that is reworded is named, and not the whole list.
            a, b = _named_entries(a, b)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(f"{prefix}{name}.", a, b)
        elif a != b:
            yield f"{prefix}{name}", a, b


def _named_entries(ours: list[Json], theirs: list[Json]) -> tuple[Json, Json]:
    """Return two lists of objects by the objects' ids or names; others, and lists in which these differ, as they are."""
    found: list[dict[str, Json]] = []
    for entries in (ours, theirs):
        names = [str(one.get("id") or one.get("name") or "") for one in entries if isinstance(one, Mapping)]
        if not all(names) or len(names) != len(entries) or len(set(names)) != len(names):
            return ours, theirs
        found.append(dict(zip(names, entries, strict=True)))
    return (found[0], found[1]) if list(found[0]) == list(found[1]) else (ours, theirs)
