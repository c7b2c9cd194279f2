"""Answers a protocol's measures in a test, wave by wave, as a run does, without a run folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from editloupe.data.images import RGB, ImageStore
from editloupe.errors import MeasureError
from editloupe.findings import Finding
from editloupe.measures.base import measured
from editloupe.protocols.base import Known
from editloupe.protocols.edival.chain import Chain, columns
from editloupe.tasks import Measure
from editloupe.values import Json, Sample, Turn

STORE = ImageStore()


def chain_sample(chain: Chain, base: RGB, *edited: RGB | None, **extra: Json) -> Sample:
    """Return a sample of these pictures: the base image, then one for each turn."""
    turns = tuple(
        Turn(instruction=f"edit {i + 1}", edited=None if rgb is None else STORE.add_array(rgb))
        for i, rgb in enumerate(edited)
    )
    return Sample(id="0", source=STORE.add_array(base), turns=turns, extra={**columns(chain), **extra})


def answered(plan: Callable[[Known], Iterable[Measure]], door: Any) -> tuple[Known, list[Measure]]:
    """Return all findings, and their tasks in the order of their planning.   door: what measures open models by."""
    findings: dict[str, Finding] = {}
    tasks: dict[str, Measure] = {}
    while new := [task for task in plan(Known(findings.values())) if task.id not in findings]:
        assert len({task.id for task in new}) == len(new), "a task is planned twice at once"
        for task in new:
            tasks[task.id], findings[task.id] = task, _finding(task, door)
    return Known(findings.values()), list(tasks.values())


def _finding(task: Measure, door: Any) -> Finding:
    def of(status: Any, **more: Any) -> Finding:
        return Finding.of(task, judge_id="j", repeat=0, status=status, ending="measure", **more)

    if task.blocked is not None:
        return of(task.blocked[0], reason=task.blocked[1])
    images = {view.alias: STORE.array(view.origin) for view in task.views}
    try:
        found = measured(task.measure, task.args, images, door)
    except MeasureError as error:
        return of(error.status, reason=str(error))
    return of("ok", answer=found.answer, reason=found.reason)
