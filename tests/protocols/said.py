"""Edits whose pictures nobody opens, what a judge says of them, and protocols that are asked without a run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from editloupe.answers import Answer
from editloupe.data.images import ImageStore
from editloupe.errors import MeasureError
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.measures.base import measured
from editloupe.protocols.base import EvalProtocol, Known, planned
from editloupe.tasks import About, Measure, Task
from editloupe.values import ImageRef, Sample, Turn


def edit(id: str, *, image: str | None = None, edited: bool = True, instruction: str = "?", **more: Any) -> Sample:
    """An edit of one turn. image: tells its source, which is also its output, from others; its id does by default."""
    source = ImageRef(sha256=f"{image or id:0>64}", width=64, height=64, media_type="image/png")
    turn = Turn(instruction=instruction, edited=source if edited else None)
    return Sample(id=id, source=source, turns=(turn,), **more)


def finding(sample: Sample, metric: str, said: Answer | str, **more: Any) -> Finding:
    """What judge j says of a sample: an answer, or a status for want of one."""
    about = {"task_id": f"{sample.id} {metric}", "judge_id": "j", "repeat": 0, **vars(About.of(sample)), "metric": metric}
    found = {"status": said} if isinstance(said, str) else {"status": "ok", "answer": said}
    return Finding(**{**about, **found, **more})


def found(task: Task, status: Any, **more: Any) -> Finding:
    """What a task ends with."""
    return Finding.of(task, **{"judge_id": "j", "repeat": 0, "status": status, "ending": "answer", **more})


def computed(task: Task, store: ImageStore, door: Any) -> Finding | None:
    """What a task ends with that is blocked, or that computes; None for any other."""
    if task.blocked is not None:
        return found(task, task.blocked[0], ending="blocked", reason=task.blocked[1])
    if not isinstance(task, Measure):
        return None
    pictures = {view.alias: store.array(make_view(view, store).image) for view in task.views}
    try:
        made = measured(task.measure, task.args, pictures, door)
    except MeasureError as error:
        return found(task, error.status, ending="measure", reason=str(error))
    return found(task, "ok", ending="measure", answer=made.answer, reason=made.reason)


def played(protocol: EvalProtocol, sample: Sample, answer: Callable[[Task], Finding]) -> tuple[list[Task], list[Finding]]:
    """Ask about a sample wave by wave, as a run does; return all tasks in their order, and what they end with."""
    tasks, known = list[Task](), dict[str, Finding]()
    while new := [task for task in planned(protocol, [sample], Known(known.values())) if task.id not in known]:
        tasks += new
        known |= {task.id: answer(task) for task in new}
    return tasks, list(known.values())
