"""What the settings of two runs differ in, in the user's words: an option as it is given, a value as it is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from editloupe.config import ALIASES, SHORTHANDS, RunSpec
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
