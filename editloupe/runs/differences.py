"""What makes a run the same run, and what two runs differ in, in the user's words: an option as it is given."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from editloupe.config import ALIASES, SHORTHANDS
from editloupe.values import Json

_LONGEST: Final = 80
"""Characters of a value."""
_FIELDS: Final = 3
"""Changed fields of a rubric that are told one by one."""
_RUBRIC: Final = "options.rubric."

_FLAGS: Final = {field: name for name, field in ALIASES.items()}
_NAMES: Final[Mapping[str, str]] = {
    "protocol": "--protocol",
    "ablations": "--ablate",
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
    """Return (setting, our value, their value) for each setting that differs, in words."""
    found = ours.differs_from(theirs)
    mine, others = (_object(spec.identity.get("options")).get("rubric") for spec in (ours, theirs))
    rows = []
    if changed := [(name.removeprefix(_RUBRIC), a, b) for name, a, b in found if name.startswith(_RUBRIC)]:
        rows += _rubrics(_object(mine), _object(others), changed)
    rows += [(_setting(name), _words(a), _words(b)) for name, a, b in found if not name.startswith((_RUBRIC, "tools."))]
    # What the user gave comes first; which tools there are often follows from it.
    rows.sort(key=lambda row: not row[0].startswith("--"))
    before, now = (_object(spec.identity.get("tools")) for spec in (ours, theirs))
    if set(before) != set(now):
        rows.append(("tools", _words(sorted(before)), _words(sorted(now))))
    return rows + [
        (f"version of the tool {name}", _words(before[name]), _words(now[name]))
        for name in before
        if name in now and before[name] != now[name]
    ]


def _rubrics(
    ours: Mapping[str, Json], theirs: Mapping[str, Json], changed: Sequence[tuple[str, Json, Json]]
) -> list[tuple[str, str, str]]:
    a, b = str(ours.get("id")), str(theirs.get("id"))
    if a != b:
        return [("--rubric", a, b)]
    rows = [(f"{name} of --rubric {a}", _quoted(before), _quoted(now)) for name, before, now in changed[:_FIELDS]]
    if (more := len(changed) - _FIELDS) > 0:
        setting, before, now = rows[-1]
        rows[-1] = setting, before, f"{now} (and {more} more of its fields)"
    return rows


def _setting(name: str) -> str:
    """Return the option that sets a field of an identity."""
    head, _, rest = name.partition(".")
    match head:
        case "options":
            option, dot, key = rest.partition(".")
            return (f"--{option}" if option in SHORTHANDS else f"--option {option}") + dot + key
        case "budget":
            return f"--{_FLAGS.get(rest, rest).replace('_', '-')}"
        case "roles":
            return f"--role {rest}"
    return _NAMES.get(name, name)


def _words(value: Json) -> str:
    match value:
        case None:
            return "not set"
        case bool():
            return "yes" if value else "no"
        case list():
            text = ", ".join(map(_words, value)) or "none"
        case Mapping() if "name" in value:
            text = str(value["name"])
        case Mapping():
            text = ", ".join(f"{name} {_words(one)}" for name, one in value.items()) or "none"
        case _:
            text = " ".join(str(value).split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _quoted(value: Json) -> str:
    return f'"{_words(value)}"' if isinstance(value, str) else _words(value)


def _object(value: Json) -> Mapping[str, Json]:
    return value if isinstance(value, Mapping) else {}


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
