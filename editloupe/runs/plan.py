"""What a visit to a run has to do: the edits that are asked for, their tasks, and which of these are still due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.errors import DataError, TraceError
from editloupe.protocols.base import groups
from editloupe.records import PENDING, Finding, Task
from editloupe.runs.spec import Bench, Source
from editloupe.runs.store import RunStore
from editloupe.traces.events import FindingEvent
from editloupe.traces.read import read_trace
from editloupe.traces.record import set_aside
from editloupe.values import digest


@dataclass(frozen=True, kw_only=True)
class Due:
    """A task to be run.

    repeat: which time it is asked, from 0.   anew: its earlier trace is set aside when it begins, and a new one written.
    """

    task: Task
    repeat: int
    anew: bool


def selected(source: Source, images: ImageStore) -> Loaded:
    """The edits of a source that its `only` and `limit` leave.

    Raises DataError for an id that is not there, and what `load` raises.
    """
    loaded = load(source.path, store=images, format=source.format, edited=source.edited, fields=source.fields)
    samples, rejected = list(loaded.samples), list(loaded.rejected)
    if source.only:
        wanted = set(source.only)
        samples = [s for s in samples if s.id in wanted or s.key in wanted]
        rejected = [r for r in rejected if r.id in wanted or r.key in wanted]
        missing = wanted - {s.id for s in samples} - {s.key for s in samples} - {r.id for r in rejected}
        if missing - {r.key for r in rejected}:
            known = ", ".join(s.id for s in loaded.samples[:5])
            raise DataError(f"{source.path}: no sample {', '.join(sorted(missing))}; the first ones are {known}, …")
    if source.limit is not None:
        samples = samples[: source.limit]
        rejected = rejected[: max(0, source.limit - len(samples))]
    return Loaded(format=loaded.format, samples=tuple(samples), rejected=tuple(rejected), notes=loaded.notes)


def tasks_of(bench: Bench, loaded: Loaded) -> list[Task]:
    """The tasks of all samples, in their order."""
    return [task for group in groups(loaded.samples) for task in bench.protocol.plan(group, {})]


def places_of(tasks: Sequence[Task], count: int) -> list[tuple[Task, int]]:
    """Every task as often as it is to be asked: all of them once before any a second time, so that a run that is stopped
    covers as many samples as it can. One that cannot be asked ends the same each time, and counts once.
    """
    return [(task, repeat) for repeat in range(count) for task in tasks if repeat == 0 or task.blocked is None]


def due_tasks(
    places: Sequence[tuple[Task, int]], store: RunStore, judge_id: str, redo: frozenset[str]
) -> tuple[list[Due], dict[tuple[str, int], Finding]]:
    """The tasks to be run, and by task id and repeat the findings that stand.

    places: as `places_of` gives them.   redo: statuses of earlier findings that are judged again.
    """
    due: list[Due] = []
    standing: dict[tuple[str, int], Finding] = {}
    for task, repeat in places:
        finding = store.findings.get((task.id, judge_id, repeat))
        if finding is not None and finding.status not in redo:
            standing[task.id, repeat] = finding
        else:
            due.append(Due(task=task, repeat=repeat, anew=finding is not None and _ends_the_same(finding)))
    return due, standing


def _ends_the_same(finding: Finding) -> bool:
    """Whether its trace, replayed, could only end as before: by what a model or a broken tool did, or by a spent budget."""
    if finding.status == "over_budget":
        return finding.reason.startswith(("turns", "tokens"))
    return finding.status not in PENDING or finding.status == "tool_failed"


def set_stuck_aside(trace: Path) -> None:
    """Set a trace aside whose finding is pending and could, replayed, only be the same again."""
    try:
        events = read_trace(trace).events
    except TraceError:
        return  # a worker that opens it says what is wrong, and begins anew
    last = next((Finding.from_json(e.finding) for e in reversed(events) if isinstance(e, FindingEvent)), None)
    if last is not None and last.status in PENDING and _ends_the_same(last):
        set_aside(trace)


def rejected_findings(bench: Bench, loaded: Loaded) -> list[Finding]:
    """One finding a criterion for each row that cannot be judged."""
    return [
        Finding(
            task_id=digest({"rejected": row.key, "criterion": criterion, "mode": bench.settings.mode}),
            judge_id=bench.judge.id,
            repeat=0,
            sample_id=row.id,
            editor=row.editor,
            criterion=criterion,
            status="input_error",
            reason=row.message,
        )
        for row in loaded.rejected
        for criterion in criteria_of(bench)
    ]


def criteria_of(bench: Bench) -> list[str]:
    """Ids of the criteria that are asked, in the rubric's order."""
    return [c.id for c in bench.criteria]
