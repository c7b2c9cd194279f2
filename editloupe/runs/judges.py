"""The judges of one run: their names, and the options by which each can be asked again.

What a judge of a run may have for itself is what its JudgeSpec holds and the run's identity does not. The rest (mode,
rubric, prompt, tools, budget) is the run's: judges that differ in it answer another question.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from editloupe.backends.base import parse_uri
from editloupe.errors import ConfigError, RunMismatch
from editloupe.findings import JudgeSpec
from editloupe.runs.differences import RunSpec, differences
from editloupe.values import Json


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
