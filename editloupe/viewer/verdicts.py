"""Read the verdicts on one sample as values: each finding with its steps and the boxes that it draws on the images."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from editloupe.answers import Boxes, Record
from editloupe.chat import ToolCall, Usage
from editloupe.errors import ConfigError, TraceError
from editloupe.findings import Finding, Observation
from editloupe.replies import Parsed
from editloupe.runs.judges import titled
from editloupe.scores import Metric
from editloupe.tasks import Recipe, Task, task_from_json
from editloupe.traces.events import FindingEvent, Header
from editloupe.traces.read import Step, Trace, read_trace
from editloupe.values import Box, ImageRef, Json, Sample, View, digest, finite
from editloupe.viewer.marks import Mark
from editloupe.viewer.numbers import Numbers
from editloupe.viewer.reader import RunSample
from editloupe.viewer.rows import finding_tone, question_name, short_answer
from editloupe.viewer.site_run import SiteRun

_REASON: Final = 400
"""Characters of a reason beside its label; the verdict below has all of it."""
_NAMES: Final = ("label", "name", "object", "phrase", "confidence")
_COUNTED: Final = re.compile(r".+ (\d{1,6})")
_DROPPED: Final = "dropped"
"""The list of entries that were not read, in an answer that has one."""


@dataclass(frozen=True, kw_only=True)
class ShownPicture:
    """A picture of an observation."""

    image: ImageRef
    name: str
    op: str
    on: tuple[Mark, ...]
    """Where its pixels come from, a mark an origin."""
    kept: bool = False
    """The model did not see it."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call."""

    call: ToolCall
    observation: Observation | None = None
    """None while it runs."""
    cached: bool = False
    """Whether the answer to an equal call of the run was taken."""
    pictures: tuple[ShownPicture, ...] = ()


@dataclass(frozen=True, kw_only=True)
class TimelineStep:
    """One step of the timeline."""

    id: str
    number: int
    step: Step
    parsed: Parsed
    """The reply in its parts."""
    calls: tuple[Call, ...]
    cost: float | None
    """USD; None if no price is known."""


@dataclass(kw_only=True)
class VerdictView:
    """One finding, or a trace that is still being written. A trace that cannot be read costs its steps and nothing else."""

    run: SiteRun
    at: str
    """From the page to its run's folder."""
    id: str
    """For links, the same in every visit."""
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
    part: str
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
    opening: tuple[str, ...] = ()
    """What was remarked before the first step: on the pictures, and on how they are sent."""
    steps: list[TimelineStep] = field(default_factory=list)
    """Of a fork its own only."""
    marks: list[Mark] = field(default_factory=list)
    inputs: tuple[str, ...] | None = None
    """The pictures that were shown, in words; None if that is not known."""
    beside: str = ""
    """Id of the first of the verdicts that can be read beside this one; "" for none."""
    parting: int = 0
    """Number of the first step at which those differ; 0 if they do not."""
    parting_words: str = ""

    @property
    def judged_by(self) -> str:
        """The judge, another one in each run."""
        return f"{self.run.folder}{self.judge_id}"

    @property
    def measure(self) -> Task | None:
        return self.task if self.task is not None and self.task.kind == "measure" else None

    @property
    def number(self) -> int:
        """N of a question about the part "WORD N"; 0 for others."""
        found = _COUNTED.fullmatch(self.part)
        return int(found[1]) if found else 0

    @property
    def judge_title(self) -> str:
        return titled(self.by, self.judge)

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
    def made(self) -> ImageRef | None:
        """The picture that a measure made; None for none."""
        answer = self.finding.answer if self.finding is not None and self.measure is not None else None
        data = answer.data if isinstance(answer, Record) else None
        try:
            return ImageRef.from_json(data["picture"]) if isinstance(data, Mapping) and "picture" in data else None
        except ValueError:
            return None

    @property
    def usage(self) -> Usage:
        return sum((step.step.usage for step in self.steps), Usage())

    @property
    def cost(self) -> float | None:
        """USD of all steps; None if one of them has no price."""
        costs = [step.cost for step in self.steps if step.cost is not None]
        return sum(costs) if costs and len(costs) == len(self.steps) else None


def verdicts(
    run: SiteRun, sample: RunSample, metrics: Mapping[str, Metric], numbers: Numbers, *, at: str, named: Mapping[str, str]
) -> list[VerdictView]:
    """Return every verdict on a sample, each followed by the forks that continue it.

    Answers to metrics come first.
    at: from the page to the run's folder.   named: what the page calls the judges, by id.
    """
    made, reader = _Maker(run, sample, metrics, numbers, at, named), run.reader
    found: list[VerdictView] = []
    for finding in sorted((*sample.findings, *sample.beside), key=lambda f: f.metric not in metrics):
        found.append(made.verdict(finding, finding.trace))
        family = {finding.trace: found[-1].id}
        for path in reader.forks(finding.trace) if finding.trace else ():
            fork = made.verdict(None, path, family)
            if fork.fork:
                family[path] = fork.id
                found.append(fork)
    return found


class _Maker:
    """Makes the verdicts of one sample."""

    def __init__(
        self,
        run: SiteRun,
        sample: RunSample,
        metrics: Mapping[str, Metric],
        numbers: Numbers,
        at: str,
        named: Mapping[str, str],
    ) -> None:
        self.run, self.reader, self.sample, self.metrics, self.numbers = run, run.reader, sample, metrics, numbers
        self.at, self.named = at, named

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
        judge_id = answered.judge_id if answered else ""
        known = self.named.get(judge_id)
        uri = str(header.judge.get("backend", "")) if header else ""
        uri = uri or self.reader.info.judges().get(judge_id, known or judge_id)
        repeat = answered.repeat if answered else 0
        parent_id = family.get(str(parent.get("trace")), "") if family else ""
        about = asked.about if asked else None
        made = VerdictView(
            run=self.run,
            at=self.at,
            id=self._id(answered.task_id if answered else "", judge_id, repeat, path if parent else None),
            finding=finding,
            task=task,
            trace=path if trace else None,
            metric=asked.metric if asked else "",
            name=question_name(asked.metric if asked else "", self.metrics),
            scope="" if about is None else about.scope if about.key == self.sample.key else str(about),
            part=about.part if about else "",
            role=asked.role if asked else "judge",
            repeat=repeat,
            judge_id=judge_id,
            judge=uri,
            by=known or uri,
            tone=finding_tone(finding, self.metrics) if finding else "tone-none",
            version=str(header.judge.get("backend_version", "")) if header else "",
            fork=_parted(parent) if parent_id else "",
            parent_id=parent_id,
            problems=(*problems, *(trace.problems if trace else ())),
            opening=tuple(trace.opening()) if trace else (),
            inputs=None if task is None else tuple(_recipe(task, self.sample.sample)),
        )
        inputs = _inputs(self.sample, task)
        if trace is not None:
            kept = parent.get("step")
            made.steps = list(self._steps(made, trace, inputs, 1 + (kept if isinstance(kept, int) else 0)))
        made.marks = [*_evidence(made, inputs), *_found(made, self.sample.sample), *_crops(made)]
        return made

    def _trace(self, path: str | None) -> tuple[Trace | None, list[str]]:
        """A trace, or what is wrong with it."""
        if path is None:
            return None, []
        found = self.reader.inside(path)
        if found is None:
            return None, [f"the trace {path!r} is not in the run folder"]
        try:
            return read_trace(found), []
        except TraceError as error:
            return None, [str(error)]

    def _id(self, task_id: str, judge_id: str, repeat: int, fork: str | None = None) -> str:
        """The id of a verdict. fork: the path of its trace, for a fork."""
        return f"v{digest([task_id, judge_id, repeat, fork or '', *([self.at] if self.at != '../' else [])])[:8]}"

    def _steps(self, made: VerdictView, trace: Trace, inputs: Mapping[str, ImageRef], first: int) -> Iterator[TimelineStep]:
        """first: the number of the first step, which a fork counts on from its parent."""
        steps = trace.steps()
        names = {ref.sha256: alias for alias, ref in reversed(list(inputs.items()))}
        under_way = not any(isinstance(e, FindingEvent) for e in trace.events)
        for number, step in enumerate(steps, start=first):
            id_ = f"{made.id}-s{number}"
            calls = [
                Call(call=c, observation=o, cached=cached, pictures=tuple(_pictures(o, aliases, made.id, id_, names)))
                for c, o, aliases, cached in zip(step.calls, step.observations, step.aliases, step.cached, strict=True)
            ]
            if under_way and number == first + len(steps) - 1:
                calls += [Call(call=call) for call in step.parsed.calls[len(calls) :]]
            cost = self.numbers.price(made.judge, step.usage)
            yield TimelineStep(id=id_, number=number, step=step, parsed=step.parsed, calls=tuple(calls), cost=cost)


def _pictures(
    seen: Observation, aliases: Sequence[str], verdict: str, step: str, names: Mapping[str, str]
) -> Iterator[ShownPicture]:
    """The pictures of an observation, then those that the model did not see. names: of the inputs, by hash."""
    shown = [(image, alias, False) for image, alias in zip(seen.images, aliases, strict=False)]
    shown += [(image, "Plain crop", True) for image in dict.fromkeys(v.image for v in seen.kept)]
    for image, alias, kept in shown:
        views: list[View] = [v for v in (seen.kept if kept else seen.views) if v.image == image]
        on: dict[tuple[str, Box], Mark] = {}
        for view in views:
            sha = view.origin.sha256
            if view.origin != image and (sha, view.region) not in on:
                on[sha, view.region] = Mark(
                    kind="crop",
                    image=view.origin,
                    box=view.region,
                    name=f"{alias} on {names.get(sha, f'image {sha[:8]}')}",
                    id=f"m{digest([step, alias, sha, list(view.region)])[:8]}",
                    verdict=verdict,
                    step=step,
                )
        op = views[0].op.replace("_", " ") if views else ""
        yield ShownPicture(image=image, name=alias, op=op, on=tuple(on.values()), kept=kept)


def _crops(made: VerdictView) -> Iterator[Mark]:
    """The boxes of all crops, for the images at the top; a picture of a whole image has none."""
    pictures = (picture for step in made.steps for call in step.calls for picture in call.pictures)
    for place in (place for picture in pictures if not picture.kept for place in picture.on):
        if place.box != Box.whole(width=place.image.width, height=place.image.height):
            yield place


def _evidence(made: VerdictView, inputs: Mapping[str, ImageRef]) -> Iterator[Mark]:
    for number, evidence in enumerate(made.finding.evidence if made.finding else (), start=1):
        image = inputs.get(evidence.image)
        if image is not None:
            name, id_ = f"Evidence {number} in {evidence.image}", f"{made.id}-e{number}"
            yield Mark(kind="evidence", image=image, box=evidence.box, name=name, id=id_, verdict=made.id)


def _found(made: VerdictView, sample: Sample | None) -> Iterator[Mark]:
    """The places that the answer gives, on the picture that was asked about."""
    answer, task = made.finding.answer if made.finding else None, made.task
    if task is None or answer is None:
        return
    views: dict[str, Recipe] = {view.alias: view for view in task.views}
    if not views and sample is not None:
        # What is known of a turn, and was not looked for in a picture.
        turn = task.about.turn
        image = sample.source if turn == 0 else sample.turns[turn - 1].edited if turn <= len(sample.turns) else None
        views = {} if image is None else {"image": Recipe(alias="image", origin=image)}
    if not views:
        return
    last = views[list(views)[-1]]
    boxes = [(str(n), list(p), None, False) for n, p in enumerate(answer.boxes, 1)] if isinstance(answer, Boxes) else []
    listed = list(_items(answer.data)) if isinstance(answer, Record) else []
    for number, (name, box, alias, changed) in enumerate([*boxes, *listed], start=1):
        given = views.get(alias or "", last)
        # What an edit changed is seen in both of its images.
        both = (sample.source, sample.edited) if sample is not None and changed and not alias else ()
        more = [Recipe(alias="", origin=image) for image in both if image and image != given.origin]
        for view in (given, *more):
            yield from _drawn(made, name, number, box, view)


def _drawn(made: VerdictView, name: str, number: int, thousandths: Sequence[float], view: Recipe) -> Iterator[Mark]:
    """A place of the answer on the image that a view shows; nothing where it is no box."""
    shown = view.region or Box.whole(width=view.origin.width, height=view.origin.height)
    try:
        box = Box.from_thousandths(thousandths, width=shown.width, height=shown.height).shifted(shown.x0, shown.y0)
    except ValueError:
        return
    yield Mark(kind="found", image=view.origin, box=box, name=name, id=f"{made.id}-f{number}", verdict=made.id, item=number)


def _items(data: Json) -> Iterator[tuple[str, list[float], str | None, bool]]:
    """The items with a box in the lists of a JSON answer.

    Their words, the box in thousandths, the picture if it is named, and whether it is said what happened there.
    """
    lists = [v for k, v in data.items() if isinstance(v, list) and k != _DROPPED] if isinstance(data, Mapping) else [data]
    for number, item in enumerate((item for one in lists if isinstance(one, list) for item in one), start=1):
        box = item.get("box") if isinstance(item, Mapping) else None
        numbers = [v for one in box if (v := finite(one)) is not None] if isinstance(box, list) else []
        if not isinstance(item, Mapping) or len(numbers) != 4:
            continue
        words = " ".join(str(item[key]) for key in ("op", *_NAMES) if item.get(key))
        image = item.get("image")
        yield words or str(number), numbers, image if isinstance(image, str) else None, bool(item.get("op"))


def _task(header: Header | None, problems: list[str]) -> Task | None:
    try:
        return None if header is None else task_from_json(header.task)
    except (ValueError, ConfigError) as error:
        problems.append(f"the question cannot be shown: {error}")
        return None


def _recipe(task: Task, sample: Sample | None) -> Iterator[str]:
    """The pictures of a question, in words."""
    turns = sample.turns if sample is not None and len(sample.turns) > 1 else ()
    after = {turn.edited.sha256: f" (after turn {n})" for n, turn in enumerate(turns, start=1) if turn.edited is not None}
    for view in task.views:
        place = ""
        if view.region is not None:
            x0, y0, x1, y1 = view.region.ints()
            place = f", x {x0}–{x1}, y {y0}–{y1}"
        yield f"{view.alias}{after.get(view.origin.sha256, '')}: {view.op.replace('_', ' ')}{place}"


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
