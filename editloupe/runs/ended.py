"""Remember the end of a visit that left nothing to ask, so that the same command on a large run need not plan it again.

`ended.json` in the run folder is derived and may be deleted. It says for each judge which findings answer all questions,
and what their scores come to. One digest covers all that questions and scores are made of: samples, settings, findings and
code. Where it differs, everything is made anew. The data are read, and the run's files are checked, all the same.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import editloupe
from editloupe import files
from editloupe.data.samples import Loaded
from editloupe.errors import EditLoupeError
from editloupe.findings import PENDING, Finding
from editloupe.runs.schedule import Schedule, ScheduledTask
from editloupe.runs.setup import Setup
from editloupe.runs.store import RunStore
from editloupe.values import Json, Sample, Serialisable, digest, json_bytes, parse_json

FILE: Final = "ended.json"

MANY: Final = 1000
"""Samples from which it is worth remembering what came of them."""
_SETTLED: Final = 3 * 10**9
"""Ns since a file of the program was last written, below which other code than it holds may run."""
_BEGAN: Final = time.time_ns()


@dataclass(frozen=True, kw_only=True)
class Ended(Serialisable):
    """What came of one judge's questions."""

    inputs: str
    """Digest of all that it was made of."""
    findings: tuple[int, ...]
    """Of the run's findings in the order of writing, the numbers of those that answer: sample by sample, task by task."""
    small_targets: str = ""
    """What is to be said of targets that are small in the images as they are sent; "" for nothing."""
    closing: Mapping[str, Json] = field(default_factory=dict)
    """What reports made of the scores."""


class Finished:
    """A schedule in which every task is answered: what `execute` asks of a `Schedule`."""

    grows: Final = False
    places: Final[Mapping[tuple[str, int], ScheduledTask]] = {}
    """Whom the tasks were asked is known: no measure and no key is among them."""

    def __init__(self, findings: Sequence[Finding]) -> None:
        self.findings = list(findings)
        self.total = self.reused = len(self.findings)
        self.ready: list[ScheduledTask] = []

    def next(self) -> ScheduledTask | None:
        """Return None: nothing is left."""
        return None

    def arrived(self, finding: Finding) -> None:
        """Raise AssertionError: nothing was asked."""
        raise AssertionError(f"{finding} has arrived, and nothing was asked")

    def problems(self) -> list[Finding]:
        """Return no finding: all was planned."""
        return []


class EndMemory:
    """What a visit may be remembered by.

    The visit's own code and data are looked at when this is made: before anything is planned.
    """

    def __init__(self, store: RunStore, setup: Setup, loaded: Loaded, redo: frozenset[str]) -> None:
        self._store, self._setup, self._redo = store, setup, redo | PENDING
        code = _code_of(setup.protocol) if len(loaded.samples) >= MANY else ""
        self._given = code and _given(code, setup, loaded, redo)
        self._ended: Ended | None = None

    def recall(self) -> Ended | None:
        """Return the end of an earlier visit to the same; None where none is known."""
        if not (inputs := self._inputs()):
            return None
        found: Any = _read(self._store.folder).get(self._setup.judge.id)
        with suppress(ValueError):
            ended = Ended.from_json(found)
            if ended.inputs == inputs and not any(f.status in self._redo for f in self.findings_of(ended)):
                return ended
        return None

    def findings_of(self, ended: Ended) -> list[Finding]:
        """Return the findings that an end rests on. Raises ValueError for numbers that are none of the run's."""
        found = list(self._store.findings.values())
        if any(not 0 <= number < len(found) for number in ended.findings):
            raise ValueError("there is no such finding")
        return [found[number] for number in ended.findings]

    def of(self, schedule: Schedule | Finished, judged: Sequence[Finding], *, small_targets: str) -> EndMemory | None:
        """Return by what the end of this visit can be remembered; None where it must not be.

        It must not where something is left to ask, where what was asked depends on the order in which answers came, and
        where measures or known answers, whose own identity would have to be looked up, are among the findings.
        """
        judges = {one.spec.id for one in self._setup.respondents.values()}
        if (
            not (isinstance(schedule, Schedule) and (inputs := self._inputs()))
            or schedule.total != len(judged)
            or (schedule.consults and schedule.reused < schedule.total)
            or any(f.status in self._redo or f.judge_id not in judges or f.role == "measure" for f in judged)
        ):
            return None
        numbers = {key: number for number, key in enumerate(self._store.findings)}
        self._ended = Ended(inputs=inputs, findings=tuple(numbers[f.key] for f in judged), small_targets=small_targets)
        return self

    def keep(self, closing: Mapping[str, Json]) -> None:
        """Write down the end of this visit. A folder that cannot be written stays as it is."""
        folder = self._store.folder
        if self._ended is None:
            return
        listed = self._store.info.get("judges")
        judges = listed if isinstance(listed, Mapping) else {}
        known = {id_: one for id_, one in _read(folder).items() if id_ in judges}
        known[self._setup.judge.id] = replace(self._ended, closing=closing).to_json()
        with suppress(OSError, EditLoupeError, ValueError):
            files.write_whole(folder / FILE, json.dumps(known, allow_nan=False).encode(), below=folder)

    def _inputs(self) -> str:
        """Return the digest of all that plan and scores are made of; "" where it cannot be told."""
        path, found = self._store.folder / "findings.jsonl", self._store.findings_digest()
        if not (self._given and found):
            return ""
        at = path.lstat()
        # A copy lies elsewhere: what it brings along is not believed.
        return digest([self._given, found, at.st_dev, at.st_ino])


def _given(code: str, setup: Setup, loaded: Loaded, redo: frozenset[str]) -> str:
    """Return the digest of what plan and scores are made of beside the findings; "" for data that are no JSON."""
    try:
        samples = hashlib.sha256(json_bytes(tuple[Sample, ...], loaded.samples)).hexdigest()
    except ValueError:
        return ""
    return digest(
        {
            "code": code,
            "samples": samples,
            "rejected": [row.to_json() for row in loaded.rejected],
            "notes": list(loaded.notes),
            "identity": dict(setup.spec.identity),
            "record": dict(setup.spec.record),
            "options": setup.options,
            "tools": list(getattr(setup.protocol, "tools", ())),
            "judges": {role: one.spec.id for role, one in setup.respondents.items()},
            "repeats": setup.repeats.to_json(),
            "redo": sorted(redo),
        }
    )


def _code_of(protocol: object) -> str:
    """Return the digest of the stamps of the program's files, and of those that the protocol comes from.

    Of other installed packages the versions count, of modules that lie elsewhere those that are loaded. "" where a file was
    written since this process began, which may run what it held before.
    """
    own = {Path(editloupe.__file__).parent, _place_of(type(protocol).__module__)}
    paths = {path: None for folder in sorted(filter(None, own)) for path in _files(folder)}
    paths |= dict.fromkeys(sorted(_local_modules()))
    stamps: list[Json] = []
    for path in paths:
        try:
            at = Path(path).stat()
        except OSError:
            continue  # a module of a zip file, or one that is gone
        if max(at.st_mtime_ns, at.st_ctime_ns) > _BEGAN - _SETTLED:
            return ""
        stamps.append([path, at.st_size, at.st_mtime_ns])
    return digest([sys.version, stamps, [list(one) for one in _distributions()]])


def _place_of(module: str) -> Path | None:
    """Return the folder of a module's outermost package, or of the module where it is in none."""
    top = sys.modules.get(module.partition(".")[0])
    file = getattr(top, "__file__", None) or getattr(sys.modules.get(module), "__file__", None)
    return None if file is None else Path(file).parent


def _files(folder: Path) -> Iterator[str]:
    """Yield the files of a package; of a folder that is none, the modules that lie in it."""
    if not (folder / "__init__.py").exists():
        yield from map(str, sorted(folder.glob("*.py")))
        return
    for where, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (f"{where}{os.sep}{name}" for name in sorted(names))


def _local_modules() -> Iterator[str]:
    """Yield the files of loaded modules that are neither Python's own nor installed, but for the one that began."""
    paths = sysconfig.get_paths()
    known = tuple(f"{paths[name]}{os.sep}" for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    for name, module in list(sys.modules.items()):
        file = None if name == "__main__" else getattr(module, "__file__", None)
        if isinstance(file, str) and Path(file).is_absolute() and not file.startswith(known):
            yield file


def _distributions() -> list[tuple[str, int]]:
    """Return the installed distributions with their versions, as their folders are called, and when they were written."""
    found = []
    for folder in dict.fromkeys(filter(os.path.isdir, sys.path)):
        with suppress(OSError), os.scandir(folder) as entries:
            found += [(e.name, e.stat().st_mtime_ns) for e in entries if e.name.endswith((".dist-info", ".egg-info"))]
    return sorted(found)


def _read(folder: Path) -> Mapping[str, Json]:
    with suppress(OSError, ValueError):
        data = parse_json(files.read_bytes(folder / FILE))
        return data if isinstance(data, dict) else {}
    return {}
