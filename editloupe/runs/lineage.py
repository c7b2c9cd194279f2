"""The traces of one task in a run: forks with their parents, earlier sessions, and traces that were set aside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

from editloupe import files
from editloupe.errors import TraceError
from editloupe.findings import TRACE_NAME, Finding
from editloupe.traces.events import Event, FindingEvent, Header, MessageEvent, ModelCall, ToolResult
from editloupe.traces.read import Trace, read_trace
from editloupe.values import Serializable

FORKS = "forks"
"""Folder of a run with the traces that continue another one."""

_DEEPEST = 100
_LONGEST = 300
"""Characters of what is said of a parent."""


@dataclass(frozen=True, kw_only=True)
class Parent(Serializable):
    """The point where a fork leaves the trace that it continues."""

    trace: str
    """Path of the parent trace inside the run folder."""
    head: str
    """Hash of the last shared message."""
    step: int
    """Number of shared model replies."""
    tools: int
    """Number of shared tool results."""
    why: str
    """"fork" or "replay"."""
    changes: dict[str, str]
    """What was changed at this point: name → text."""

    @classmethod
    def of(cls, header: Header) -> Parent | None:
        """Parse the parent of a header; None without one. Raises TraceError: another shape, a path outside the run."""
        if header.parent is None:
            return None
        try:
            found = cls.from_json(header.parent)
        except ValueError as error:
            raise TraceError(f"the header names its parent in an unknown form ({error})") from error
        if not TRACE_NAME.fullmatch(found.trace):
            raise TraceError(f"the header names a parent that is no trace of its run: {found.trace!r}")
        return found


def read_whole(folder: Path, path: Path, *, deep: int = 0) -> Trace:
    """Read a trace with the events that it shares with its parents in front.

    folder: the run folder, which holds the parents.   deep: how many traces continue it here.
    Raises TraceError as `read_trace` does, and if a parent is missing or no longer holds the shared events.
    """
    trace = read_trace(path)
    if (at := Parent.of(trace.header)) is None:
        return trace
    if deep >= _DEEPEST:
        raise TraceError(f"{path}: its parents lead in a circle")
    try:
        above = read_whole(folder, folder / at.trace, deep=deep + 1)
    except TraceError as error:
        raise TraceError(f"{path} continues {at.trace}, which cannot be read: {str(error)[:_LONGEST]}") from error
    return replace(
        trace,
        events=(trace.events[0], *_shared(above, at, path), *trace.events[1:]),
        problems=(*above.problems, *trace.problems),
        tampering=(*above.tampering, *trace.tampering),
    )


def family(name: str) -> str:
    """Return the name that a trace shares with its forks: TASK.REPEAT."""
    return ".".join(Path(name).name.split(".")[:2])


def mismatches(trace: Trace, listed: Finding | None, run: str | None = None) -> list[str]:
    """Return why a trace does not belong to a finding of the run; empty if it does.

    run: digest of the run's identity; None does not check it.
    """
    header, name = trace.header, trace.path.name
    if listed is not None and (header.task_id, header.judge_id) != (listed.task_id, listed.judge_id):
        return [
            f"{name}: this is the trace of another task or judge (task {header.task_id[:12]}, judge {header.judge_id}; the "
            f"finding is of task {listed.task_id[:12]}, judge {listed.judge_id})"
        ]
    if run is not None and header.run != run:
        return [f"{name}: this trace comes from another run ({header.run}; this one is {run})"]
    return []


def _shared(trace: Trace, at: Parent, path: Path) -> Iterable[Event]:
    """Yield the parent's events up to the point where the child leaves it."""
    parents = {e.hash: e.parent for e in trace.events if isinstance(e, MessageEvent)}
    if at.head not in parents:
        raise TraceError(f"{path} continues {at.trace} after message {at.head[:12]}, which is not there")
    kept: set[str | None] = set()
    head: str | None = at.head
    while head is not None and head not in kept:
        kept.add(head)
        head = parents.get(head)
    for event in trace.events:
        if (
            (isinstance(event, MessageEvent) and event.hash in kept)
            or (isinstance(event, ModelCall) and event.ordinal < at.step)
            or (isinstance(event, ToolResult) and event.ordinal < at.tools)
        ):
            yield event


def seconds_spent(events: Iterable[Event]) -> float:
    """Return the seconds that the sessions of a task took so far; the time between them is not counted.

    A session that ended has them in its finding. Of one that did not, the calls count that were recorded.
    """
    spent = 0.0
    for event in events:
        if isinstance(event, FindingEvent):
            spent = event.content.seconds
        elif isinstance(event, ModelCall | ToolResult):
            spent += event.seconds
    return spent


def set_aside(path: Path, *, below: Path | None) -> Path | None:
    """Rename a trace so that its task can start again. Return the new path; None if there is no file.

    below: as in `TraceWriter`. Raises OSError.
    """
    if not path.exists():
        return None
    names = (f"{path.name.removesuffix('.jsonl')}.aside-{number}.jsonl" for number in count(1))
    return files.rename(path, next(n for n in names if not path.with_name(n).exists()), below=below or path.parent)
