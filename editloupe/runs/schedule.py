"""The growing set of a run's tasks. `plan` of a group is asked again once findings of it have arrived.

It is asked when no task is left that was planned before, since a new one would wait behind those: a group of many samples
is planned a few times and not once a finding. There is no barrier between waves: nobody waits while something can be
planned. Resume is the same path: a finding that stands from an earlier invocation arrives at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count

from editloupe.errors import EditLoupeError, ProtocolError
from editloupe.findings import Finding
from editloupe.protocols.base import BaseProtocol, EvalProtocol, Group, described, groups, known_of, planned
from editloupe.protocols.repeats import Repeats
from editloupe.tasks import Task
from editloupe.values import Sample, digest

TASKS_PER_SAMPLE = 1000
"""A group in which a protocol plans more tasks than this for each sample is given up."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScheduledTask:
    """One task to be answered once."""

    task: Task
    repeat: int
    """Which time it is asked, from 0."""


@dataclass(slots=True)
class _Group:
    number: int
    """Its place among the groups."""
    samples: Group
    tasks: dict[str, Task] = field(default_factory=dict)
    findings: dict[tuple[str, int], Finding] = field(default_factory=dict)
    depths: dict[str, int] = field(default_factory=dict)
    """Task → how many follow one from another's finding up to it: 1 for what is planned at first."""
    fresh: list[Task] = field(default_factory=list)
    """Those whose findings are complete since `plan` was asked. What it plans now for the first time follows from these."""
    consults: bool = True
    """False once `plan` was seen to look at no finding: it need not be asked again."""
    problem: str = ""


class Schedule:
    """The tasks of one judge over some samples, as they become known.

    standing: returns the finding of a task and repeat that stands from before, or None.
    """

    def __init__(
        self,
        protocol: EvalProtocol,
        samples: Sequence[Sample],
        repeats: Repeats,
        standing: Callable[[Task, int], Finding | None],
    ) -> None:
        self.protocol, self.repeats = protocol, repeats
        self.places: dict[tuple[str, int], ScheduledTask] = {}
        self.reused = 0
        self._standing = standing
        self._groups = [_Group(number=number, samples=group) for number, group in enumerate(groups(samples))]
        self._consulting: set[int] = set()
        """Numbers of the groups from whose findings further tasks may follow."""
        self._failed: dict[int, _Group] = {}
        """By number, the groups that the protocol could not plan."""
        self._changed: dict[int, _Group] = {}
        """Groups in which findings arrived since they were planned, by identity, the first one first."""
        self._group_of: dict[str, _Group] = {}
        self._ready: list[tuple[int, int, ScheduledTask]] = []
        self._numbers = count()
        for group in self._groups:
            self._grow(group)

    @property
    def total(self) -> int:
        """How many answers are known to be needed so far; it grows."""
        return len(self.places) + len(self.problems())

    @property
    def findings(self) -> list[Finding]:
        """Findings so far, group by group, task by task."""
        return [f for group in self._groups for task in group.tasks.values() for f in self._answers(group, task)]

    def next(self) -> ScheduledTask | None:
        """Return a task to be answered now; None if all that are known are under way.

        All tasks are asked once before any is asked a second time, so that a run that is stopped covers many samples.
        """
        self._plan_changed()
        return heappop(self._ready)[2] if self._ready else None

    @property
    def ready(self) -> list[ScheduledTask]:
        """The tasks that can be answered now."""
        return [place for _, _, place in sorted(self._ready, key=lambda item: item[:2])]

    @property
    def grows(self) -> bool:
        """Return whether further tasks may follow from findings that are not there yet."""
        return bool(self._ready or self._changed) and bool(self._consulting)

    def arrived(self, finding: Finding) -> None:
        """Take a new finding in. What rests on it is planned before anything is asked a second time."""
        group = self._group_of[finding.task_id]
        group.findings[finding.task_id, finding.repeat] = finding
        if group.consults and self._complete(group, task := group.tasks[finding.task_id]):
            group.fresh.append(task)
            self._changed[id(group)] = group
        self._plan_changed()

    def problems(self) -> list[Finding]:
        """Return a finding for each sample and metric of the groups that the protocol could not plan."""
        return [
            Finding(
                task_id=digest({"unplanned": sample.key, "metric": metric.id, "protocol": self.protocol.name}),
                judge_id="",
                repeat=0,
                sample_id=sample.id,
                editor=sample.editor,
                metric=metric.id,
                status="input_error",
                ending="protocol",
                reason=group.problem,
            )
            for _, group in sorted(self._failed.items())
            for sample in group.samples
            for metric in self.protocol.metrics
        ]

    def _plan_changed(self) -> None:
        """Plan the groups in which findings arrived, if what they plan would be next."""
        while self._changed and (not self._ready or self._ready[0][0] > 0):
            self._grow(self._changed.pop(next(iter(self._changed))))

    def _grow(self, group: _Group) -> None:
        where, most = described(self.protocol), TASKS_PER_SAMPLE * len(group.samples)
        grown = True
        while grown and not group.problem:
            complete = (self._answers(group, task) for task in group.tasks.values() if self._complete(group, task))
            known = known_of(chain.from_iterable(complete), self.repeats)
            try:
                tasks = planned(self.protocol, group.samples, known, most=most)
                new = [task for task in tasks if task.id not in group.tasks]
                if len(group.tasks) + len(new) > most:
                    raise ProtocolError(
                        f"{where} plans without an end: more than {most:,} tasks for the {len(group.samples)} samples with "
                        f"the source and instructions of {group.samples[0].key!r}"
                    )
                questions = {task.question for task in group.tasks.values()}
                if again := next((task for task in new if task.question in questions), None):
                    raise ProtocolError(
                        f"{where} planned another task for a question that was planned before ({again.metric}, "
                        f"{again.about}); tell them apart by metric, turn or part"
                    )
                _deepen(group, new, where, getattr(self.protocol, "deepest", BaseProtocol.deepest))
            except EditLoupeError as error:
                group.problem = str(error)
                break
            group.consults, group.fresh = known.consulted, []
            # A finding that stands arrives at once, and may make more tasks ready.
            stood = [self._add(group, task) for task in new]
            grown = any(stood) and group.consults
        self._consulting.discard(group.number)
        if group.problem:
            self._failed[group.number] = group
        elif group.consults:
            self._consulting.add(group.number)

    def _add(self, group: _Group, task: Task) -> bool:
        """Add a task. Return whether a finding on it stands from before."""
        standing = [self._standing(task, repeat) for repeat in range(self._count(task))]
        if None not in standing:
            task = _answered(task)
            group.fresh.append(task)
        group.tasks[task.id] = task
        self._group_of[task.id] = group
        for repeat, finding in enumerate(standing):
            self.places[task.id, repeat] = place = ScheduledTask(task=task, repeat=repeat)
            if finding is None:
                heappush(self._ready, (repeat, next(self._numbers), place))
            else:
                group.findings[task.id, repeat] = finding
                self.reused += 1
        return any(standing)

    def _count(self, task: Task) -> int:
        return self.repeats.count if self.repeats.count > 1 and repeatable(task) else 1

    def _answers(self, group: _Group, task: Task) -> list[Finding]:
        """Return the findings of a task so far, by repeat."""
        found = (group.findings.get((task.id, repeat)) for repeat in range(self._count(task)))
        return [finding for finding in found if finding is not None]

    def _complete(self, group: _Group, task: Task) -> bool:
        return len(self._answers(group, task)) == self._count(task)


def _deepen(group: _Group, new: Sequence[Task], where: str, deepest: int) -> None:
    """Note how deep new tasks lie. Raises ProtocolError, which names the protocol, for one that is too deep."""
    for task in new:
        same = [one for one in group.fresh if one.about.key == task.about.key] or group.fresh
        depth = group.depths[task.id] = 1 + max((group.depths[one.id] for one in same), default=0)
        if depth > deepest:
            raise ProtocolError(
                f"{where} plans without an end: {task.metric}, {task.about} would be asked after {deepest} questions that "
                "follow one from another's answer; plan must come to an end, or the protocol say how many (deepest = …)"
            )


def _answered(task: Task) -> Task:
    """Return a task without its prompt, which nobody asks any more: prompts are most of what a large run would hold."""
    if task.kind != "ask":
        return task
    slim = object.__new__(type(task))
    # With its id, which is that of the whole task.
    vars(slim).update(vars(task), id=task.id, prompt="")
    return slim


def repeatable(task: Task) -> bool:
    """Return False for what is asked once: measures, other roles, and what cannot be asked."""
    return task.role == "judge" and task.kind == "ask" and task.blocked is None
