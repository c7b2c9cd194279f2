"""Read the verdicts on one sample as values: each finding with its steps and the boxes that it draws on the images."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from editloupe.answers import Record
from editloupe.chat import ToolCall, Usage
from editloupe.errors import ConfigError, TraceError
from editloupe.findings import Finding, Observation
from editloupe.scores import Metric
from editloupe.tasks import Task, task_from_json
from editloupe.traces.events import FindingEvent, Header
from editloupe.traces.read import Step, Trace, read_trace
from editloupe.values import Box, ImageRef, Sample, digest
from editloupe.viewer.marks import Mark, evidence, places
from editloupe.viewer.numbers import Numbers
from editloupe.viewer.reader import RunSample, SiteRun
from editloupe.viewer.rows import finding_tone, question_name, short_answer

_REASON: Final = 400
"""Characters of a reason beside its label; the verdict below has all of it."""


@dataclass(frozen=True, kw_only=True)
class ShownPicture:
    """A picture of an observation."""

    image: ImageRef
    name: str
    op: str
    on: tuple[Mark, ...]
    """Where its pixels come from, a mark an origin."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call."""

    call: ToolCall
    observation: Observation
    cached: bool = False
    """Whether the answer to an equal call of the run was taken."""
    pictures: tuple[ShownPicture, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TimelineStep:
    """One step of the timeline."""

    id: str
    number: int
    step: Step
    calls: tuple[Call, ...]


@dataclass(kw_only=True)
class VerdictView:
    """One finding, or a trace that is still being written. A trace that cannot be read costs its steps and nothing else."""

    run: SiteRun
    at: str
    """From the page to its run's folder."""
    id: str
    """For links, the same whenever the page is opened."""
    finding: Finding | None
    """None while the trace is being written."""
    task: Task | None
    trace: str | None
    """Its path in the run; None where it cannot be read."""
    metric: str
    """Id of the metric or of the intermediate question."""
    name: str
    """The metric's name in words, or the intermediate question's id."""
    scope: str
    """For example "turn 2, target 3"; "" for the sample as a whole. Of a pair in which it is second, with the first."""
    role: str
    repeat: int
    """From 0."""
    judge_id: str
    judge: str
    """The judge's URI."""
    by: str
    """What the run calls the judge. A fork may have another judge than those of the run."""
    tone: str
    version: str
    """Of a measure."""
    fork: str
    """For a fork, where it parts and what was changed, in words."""
    parent_id: str
    """For a fork, the verdict that it continues."""
    problems: tuple[str, ...]
    """What is wrong with the trace."""
    cost: float | None = None
    """USD; None if no price is known."""
    steps: list[TimelineStep] = field(default_factory=list)
    """Of a fork its own only."""
    marks: list[Mark] = field(default_factory=list)
    inputs: tuple[str, ...] | None = None
    """The pictures that were shown, in words; None if that is not known."""
    beside: str = ""
    """Id of the first of the verdicts that can be read beside this one; "" for none."""

    @property
    def judged_by(self) -> str:
        """The judge, another one in each run."""
        return f"{self.run.folder}{self.judge_id}"

    @property
    def measure(self) -> Task | None:
        return self.task if self.task is not None and self.task.kind == "measure" else None

    @property
    def label(self) -> str:
        """The answer on one line, or the status in brackets."""
        return "(in progress)" if self.finding is None else short_answer(self.finding)

    @property
    def text(self) -> str:
        """An answer that needs more than a line, whole; "" for others."""
        answer = None if self.finding is None else self.finding.answer
        if isinstance(answer, Record):
            return json.dumps(answer.data, indent=2, ensure_ascii=False)
        return "" if answer is None or str(answer) == self.label else str(answer)

    @property
    def begins(self) -> str:
        """As much of its reason as stands beside its label."""
        words = " ".join(self.finding.reason.split()) if self.finding else ""
        return words if len(words) <= _REASON else f"{words[: _REASON - 1].rsplit(' ', 1)[0]} …"

    @property
    def usage(self) -> Usage:
        return Usage.total_of(step.step.usage for step in self.steps)


def verdicts(
    run: SiteRun, sample: RunSample, metrics: Mapping[str, Metric], numbers: Numbers, *, at: str, named: Mapping[str, str]
) -> list[VerdictView]:
    """Return every verdict on a sample, each followed by the forks that continue it.

    Answers to metrics come first.
    at: from the page to the run's folder.   named: what the page calls the judges, by id.
    """
    made = _Page(run=run, sample=sample, metrics=metrics, numbers=numbers, at=at, named=named)
    found: list[VerdictView] = []
    for finding in sorted((*sample.findings, *sample.beside), key=lambda f: f.metric not in metrics):
        found.append(made.verdict(finding, finding.trace))
        family = {finding.trace: found[-1].id}
        for path in run.reader.forks(finding.trace) if finding.trace else ():
            fork = made.verdict(None, path, family)
            if fork.fork:
                family[path] = fork.id
                found.append(fork)
    return found


@dataclass(frozen=True, kw_only=True)
class _Page:
    """What the verdicts of one sample are made from."""

    run: SiteRun
    sample: RunSample
    metrics: Mapping[str, Metric]
    numbers: Numbers
    at: str
    named: Mapping[str, str]

    def verdict(
        self, finding: Finding | None, path: str | None, family: Mapping[str | None, str] | None = None
    ) -> VerdictView:
        """path: of the trace in the run.   family: for a fork, trace → id of its verdict."""
        trace, problems = self._trace(path)
        header = trace.header if trace else None
        parent = (header.parent or {}) if header else {}
        if family is not None and trace is not None:
            # How the fork ended; None where it has not.
            ended = [e.finding for e in trace.events if isinstance(e, FindingEvent)]
            finding = Finding.from_json(ended[-1]) if ended else None
        task = _task(header, problems)
        asked, answered = finding or task, finding or header
        judge_id, repeat = (answered.judge_id, answered.repeat) if answered else ("", 0)
        known, spec = self.named.get(judge_id), header.judge if header else {}
        uri = str(spec.get("backend", "")) or self.run.reader.info.judges().get(judge_id, known or judge_id)
        parent_id = family.get(str(parent.get("trace")), "") if family else ""
        about, metric = (asked.about, asked.metric) if asked else (None, "")
        task_id = answered.task_id if answered else ""
        made = VerdictView(
            run=self.run,
            at=self.at,
            # The same whenever the page is opened, and another one in each run.
            id=f"v{digest([task_id, judge_id, repeat, (path or '') if parent else '', self.run.folder])[:8]}",
            finding=finding,
            task=task,
            trace=path if trace else None,
            metric=metric,
            name=question_name(metric, self.metrics),
            scope="" if about is None else about.scope if about.key == self.sample.key else str(about),
            role=asked.role if asked else "judge",
            repeat=repeat,
            judge_id=judge_id,
            judge=uri,
            by=known or uri,
            tone=finding_tone(finding, self.metrics) if finding else "tone-none",
            version=str(spec.get("backend_version", "")),
            fork=_parted(parent) if parent_id else "",
            parent_id=parent_id,
            problems=(*problems, *(trace.problems if trace else ())),
            inputs=None if task is None else tuple(_shown(task, self.sample.sample)),
        )
        inputs = _inputs(self.sample, task)
        if trace is not None:
            kept = parent.get("step")
            # A fork counts on from its parent.
            made.steps = list(_steps(made.id, trace, inputs, 1 + (kept if isinstance(kept, int) else 0)))
        made.cost = self.numbers.price(uri, made.usage)
        if finding is not None:
            made.marks += evidence(finding, inputs, made.id)
            made.marks += places(finding, task, self.sample.sample, made.id)
        made.marks += _crops(made)
        return made

    def _trace(self, path: str | None) -> tuple[Trace | None, list[str]]:
        """A trace, or what is wrong with it."""
        if path is None:
            return None, []
        found = self.run.reader.inside(path)
        if found is None:
            return None, [f"the trace {path!r} is not in the run folder"]
        try:
            return read_trace(found), []
        except TraceError as error:
            return None, [str(error)]


def _steps(verdict: str, trace: Trace, inputs: Mapping[str, ImageRef], first: int) -> Iterator[TimelineStep]:
    """The steps of a trace, numbered from `first`.   verdict: its id."""
    names = {ref.sha256: alias for alias, ref in reversed(list(inputs.items()))}
    for number, step in enumerate(trace.steps(), start=first):
        id_ = f"{verdict}-s{number}"
        calls = [
            Call(call=c, observation=o, cached=cached, pictures=tuple(_pictures(o, aliases, verdict, id_, names)))
            for c, o, aliases, cached in zip(step.calls, step.observations, step.aliases, step.cached, strict=True)
        ]
        yield TimelineStep(id=id_, number=number, step=step, calls=tuple(calls))


def _pictures(
    seen: Observation, aliases: Sequence[str], verdict: str, step: str, names: Mapping[str, str]
) -> Iterator[ShownPicture]:
    """The pictures of an observation. names: of the inputs, by hash."""
    for image, alias in zip(seen.images, aliases, strict=False):
        views = [view for view in seen.views if view.image == image]
        on: dict[tuple[str, Box], Mark] = {}
        for view in (view for view in views if view.origin != image):
            sha = view.origin.sha256
            name = f"{alias} on {names.get(sha, f'image {sha[:8]}')}"
            id_ = f"m{digest([step, alias, sha, list(view.region)])[:8]}"
            on.setdefault(
                (sha, view.region),
                Mark(kind="crop", image=view.origin, box=view.region, name=name, id=id_, verdict=verdict, step=step),
            )
        op = views[0].op.replace("_", " ") if views else ""
        yield ShownPicture(image=image, name=alias, op=op, on=tuple(on.values()))


def _crops(made: VerdictView) -> Iterator[Mark]:
    """The boxes of all crops, for the images at the top; a picture of a whole image has none."""
    pictures = (picture for step in made.steps for call in step.calls for picture in call.pictures)
    for place in (place for picture in pictures for place in picture.on):
        if place.box != Box.whole(width=place.image.width, height=place.image.height):
            yield place


def _task(header: Header | None, problems: list[str]) -> Task | None:
    try:
        return None if header is None else task_from_json(header.task)
    except (ValueError, ConfigError) as error:
        problems.append(f"the question cannot be shown: {error}")
        return None


def _shown(task: Task, sample: Sample | None) -> Iterator[str]:
    """The pictures of a question, in words."""
    turns = sample.turns if sample is not None and len(sample.turns) > 1 else ()
    after = {turn.edited.sha256: f" (after turn {n})" for n, turn in enumerate(turns, start=1) if turn.edited is not None}
    for view in task.views:
        yield f"{view.alias}{after.get(view.origin.sha256, '')}: {view.op.replace('_', ' ')}"


def _inputs(sample: RunSample, task: Task | None) -> dict[str, ImageRef]:
    """The images of the question by alias, after those of the sample."""
    found: dict[str, ImageRef] = {}
    if sample.sample is not None:
        found |= sample.sample.originals
        if sample.sample.edited is not None:
            found["Edited Image"] = sample.sample.edited
    return found | {view.alias: view.origin for view in (task.views if task else ())}


def _parted(parent: Mapping[str, Any]) -> str:
    """Where a fork parts and with what, in words."""
    step, changes = parent.get("step"), parent.get("changes")
    where = f"after step {step}" if step else "from the question"
    changed = [f"{name}: {words}" for name, words in changes.items()] if isinstance(changes, Mapping) else []
    return "; ".join([f"{parent.get('why', 'fork')} {where}", *changed])
