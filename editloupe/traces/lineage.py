"""A fork's file holds only what is its own; here the shared beginning is put before it again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from editloupe.errors import TraceError
from editloupe.findings import Finding
from editloupe.traces.events import End, Event, FindingEvent, Header, MessageEvent, ModelCall, ToolResult
from editloupe.traces.read import Trace, read_trace

FORKS = "forks"
"""Where in a run folder the traces lie that continue another one."""

_DEEPEST = 100


@dataclass(frozen=True, kw_only=True)
class Parent:
    """Where a fork parts from the trace that it continues.

    trace: path inside the run folder.   head: hash of the last message that both share.   step: model replies kept.
    tools: tool results kept.   why: "fork" or "replay".   changes: what was changed at that step, name → words.
    """

    trace: str
    head: str
    step: int
    tools: int
    why: str
    changes: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        return {
            "trace": self.trace,
            "head": self.head,
            "step": self.step,
            "tools": self.tools,
            "why": self.why,
            "changes": self.changes,
        }

    @classmethod
    def of(cls, header: Header) -> Parent | None:
        """Raises TraceError for a parent of another shape."""
        if header.parent is None:
            return None
        try:
            found = cls(**header.parent)
        except TypeError as error:
            raise TraceError(f"the header names its parent in an unknown form ({error})") from error
        if Path(found.trace).is_absolute() or ".." in Path(found.trace).parts:
            raise TraceError(f"the header names a parent outside its run: {found.trace!r}")
        return found


def read_whole(folder: Path, path: Path) -> Trace:
    """A trace with what it shares with its parents before its own events. `folder`: the run's, which parents are in.

    Raises TraceError as `read_trace`, and where a parent is missing or no longer holds what is shared.
    """
    chain = [read_trace(path)]
    while (parent := Parent.of(chain[-1].header)) is not None:
        if len(chain) > _DEEPEST:
            raise TraceError(f"{path}: its parents lead in a circle")
        try:
            chain.append(read_trace(folder / parent.trace))
        except TraceError as error:
            raise TraceError(f"{path} continues {parent.trace}, which cannot be read: {error}") from error
    trace = chain.pop()
    while chain:
        child = chain.pop()
        at = Parent.of(child.header)
        assert at is not None, "only the first of the line has no parent"
        shared = list(_shared(trace, at, path))
        trace = Trace(
            path=child.path,
            header=child.header,
            events=(child.events[0], *shared, *child.events[1:]),
            problems=(*trace.problems, *child.problems),
        )
    return trace


def family(name: str) -> str:
    """What a trace and all that continue it have in common: TASK.REPEAT."""
    return ".".join(Path(name).name.split(".")[:2])


def strangers(trace: Trace, listed: Finding | None, run: str | None = None) -> list[str]:
    """What says that a trace is not that of a run's finding. run: digest of the run's identity, where it is known."""
    header, name = trace.header, "" if trace.path is None else trace.path.name
    if listed is not None and (header.task_id, header.judge_id) != (listed.task_id, listed.judge_id):
        return [
            f"{name}: this is the trace of another task or judge (task {header.task_id[:12]}, judge {header.judge_id}; the "
            f"finding is of task {listed.task_id[:12]}, judge {listed.judge_id})"
        ]
    if run is not None and header.run != run:
        return [f"{name}: this trace comes from another run ({header.run}; this one is {run})"]
    return []


def _shared(trace: Trace, at: Parent, path: Path) -> Iterable[Event]:
    """The parent's events up to where the child parts from it."""
    parents = {e.hash: e.parent for e in trace.events if isinstance(e, MessageEvent)}
    if at.head not in parents:
        raise TraceError(f"{path} continues {at.trace} after message {at.head[:12]}, which is not there")
    kept: set[str | None] = set()
    head: str | None = at.head
    while head is not None and head not in kept:
        kept.add(head)
        head = parents.get(head)
    for event in trace.events:
        match event:
            case MessageEvent():
                wanted = event.hash in kept
            case ModelCall():
                wanted = event.ordinal < at.step
            case ToolResult():
                wanted = event.ordinal < at.tools
            case Header() | FindingEvent() | End():
                wanted = False
            case _:
                continue
        if wanted:
            yield event
