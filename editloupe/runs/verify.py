"""Verify a run in full: the digests of its traces, what findings claim of them, and the pictures.

What is not there cannot be checked; that is said and is no fault. Traces that were set aside are not looked at, since no
finding rests on them. Digests show what was changed by accident or by hand. They are no signature: who makes a whole run
anew makes its digests too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from editloupe.errors import TraceError
from editloupe.files import read_bytes
from editloupe.findings import Finding
from editloupe.runs.index import FINDINGS, SAMPLES
from editloupe.runs.jsonl import CUT_OFF
from editloupe.runs.lineage import FORKS, read_whole
from editloupe.runs.store import RunStore
from editloupe.traces.events import End, FindingEvent
from editloupe.traces.read import Trace, last_finding, read_trace
from editloupe.values import digest

_UNENDED: Final = ("recording", "fault")
"""Endings of a task whose trace could not be written to its end."""


@dataclass(kw_only=True)
class Part:
    """What was found of one part of a run."""

    name: str
    """For example "findings.jsonl"."""
    equal: int = 0
    """How many things are as they were recorded."""
    unchecked: list[tuple[str, str]] = field(default_factory=list)
    """What could not be checked: (name, reason)."""
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """What is not as it was recorded: (name, reason)."""

    def add(self, name: str, wrong: Iterable[str], unchecked: str = "") -> None:
        """Count one thing. It is wrong if anything speaks against it, else unchecked if that has a reason, else equal."""
        reasons = [(name, reason) for reason in wrong]
        self.wrong += reasons
        if not reasons and unchecked:
            self.unchecked.append((name, unchecked))
        self.equal += not reasons and not unchecked


def verify(folder: Path) -> list[Part]:
    """Check everything in a run folder. Nothing is written. Raises ConfigError if it is no run."""
    store = RunStore.read(folder)
    samples, findings, traces, pictures = parts = [Part(name=name) for name in (SAMPLES, FINDINGS, "traces", "pictures")]
    samples.equal = len(store.samples)
    for problem in store.problems:
        file, _, why = problem.partition(": ")
        part = samples if file.startswith(SAMPLES) else findings
        part.add(file.removeprefix(f"{part.name}, "), () if CUT_OFF in why else (why,), why)
    _traces(store, traces, findings)
    _pictures(store.blobs, pictures)
    return parts


def _traces(store: RunStore, traces: Part, findings: Part) -> None:
    """Check each trace by itself, and then the findings that name it."""
    claims: dict[str, list[Finding]] = {}
    for finding in store.findings.values():
        claims.setdefault(finding.trace or "", []).append(finding)
    found = [*store.folder.glob("traces/*/*/*.jsonl"), *store.folder.glob(f"{FORKS}/*/*.jsonl")]
    names = {path.relative_to(store.folder).as_posix() for path in found if ".aside-" not in path.name}
    for name in sorted(names | claims.keys()):
        path, trace = store.folder / name, None
        if path.is_file():
            try:
                trace = read_whole(store.folder, path)
                unended = "" if isinstance(trace.events[-1], End) else "it has not ended"
                traces.add(name, _changed(trace, None if store.rescored else store.identity), unended)
            except TraceError as error:
                # A process that was killed may leave a file without one whole line.
                begun = name in claims or b"\n" in read_bytes(path)
                traces.add(name, (str(error),) if begun else (), "it has not begun")
        for finding in claims.get(name, ()):
            wrong, unchecked = _held_against(path, trace, finding)
            again = f", repeat {finding.repeat + 1}" if finding.repeat else ""
            findings.add(f"{finding.about} ({finding.metric}){again}", (wrong,) if wrong else (), unchecked)


def _changed(trace: Trace, run: str | None) -> Iterator[str]:
    """Yield what speaks against a trace. run: the one that it has to come from; None for any."""
    header = trace.header
    yield from trace.tampering
    if digest(header.task) != header.task_id:
        yield "its question was changed after it was recorded (it no longer has its id)"
    if digest(header.judge)[:16] != header.judge_id:
        yield "its judge was changed after it was recorded (it no longer has its id)"
    if run not in (None, header.run):
        yield f"it comes from another run ({header.run}; this one is {run})"


def _held_against(path: Path, trace: Trace | None, finding: Finding) -> tuple[str, str]:
    """Return what is wrong with a finding, and else why its trace cannot tell. trace: None if it cannot be read."""
    if not path.is_file():
        return "", "its trace is not there" if finding.trace else f"there is no trace of it ({finding.status})"
    last = None if trace is None else last_finding(trace.events)
    if finding.status != "ok" and last != finding:
        # The task goes on, or was begun anew.
        asides = path.parent.glob(f"{path.name.removesuffix('.jsonl')}.aside-*.jsonl")
        if any(finding in _findings(one) for one in (path, *asides)):
            return "", ""
        if finding.ending in _UNENDED:
            return "", "its trace could not be written to its end"
    if trace is None or last != finding:
        return "it is not what its trace ends in", ""
    unended = finding.status == "ok" and not isinstance(trace.events[-1], End)
    return "its trace has no end" if unended else "", ""


def _findings(path: Path) -> list[Finding]:
    """Return every finding of a trace; none of one that cannot be read."""
    try:
        return [event.content for event in read_trace(path).events if isinstance(event, FindingEvent)]
    except TraceError:
        return []


def _pictures(folder: Path, part: Part) -> None:
    """Check each picture against its name."""
    for path in sorted(folder.glob("*/*")):
        if not path.is_file() or path.name.startswith("."):
            continue
        name = f"blobs/{path.parent.name}/{path.name}"
        try:
            same = hashlib.sha256(read_bytes(path)).hexdigest() == path.stem
            part.add(name, () if same else ("its content is not that of its name",))
        except OSError as error:
            part.add(name, (), f"it cannot be read: {error.strerror or error}")
