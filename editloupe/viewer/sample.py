"""Make what one sample's page shows, as values: its images with the boxes on them, and each finding step by step."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from editloupe.answers import Boxes, Record
from editloupe.backends.base import NOT_LMMS, parse_uri
from editloupe.backends.prices import Prices
from editloupe.chat import ToolCall, Usage
from editloupe.errors import ConfigError, TraceError
from editloupe.findings import Finding, Observation
from editloupe.replies import Parsed
from editloupe.runs.judges import titled
from editloupe.scores import Metric
from editloupe.tasks import Recipe, Task, task_from_json
from editloupe.traces.events import Event, FindingEvent, Header
from editloupe.traces.read import Step, Trace, read_trace
from editloupe.values import Box, ImageRef, Json, Sample, View, digest
from editloupe.viewer.compared import Compared
from editloupe.viewer.listed import Listing, counted, dropped, items, listings
from editloupe.viewer.marks import Mark
from editloupe.viewer.reader import RunReader, RunSample
from editloupe.viewer.rows import OwnScore, finding_tone, question_name, short_answer

SMALL: Final = 0.01
"""Share of the image below which a page opens zoomed to its place."""

_RAW = 2_000
"""Characters of one raw event on a page. The trace file itself is linked; pages of long traces stay light."""

_SENTENCE: Final = re.compile(r".+?(?:[.!?](?=\s|$)|[。！？])")
_REASON: Final = 160
"""Characters of a reason in the grid of labels."""


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


class SampleVerdict:
    """One finding, or a trace that is still being written. A trace that cannot be read costs its steps and nothing else."""

    def __init__(
        self,
        reader: RunReader,
        sample: RunSample,
        metrics: Mapping[str, Metric],
        prices: Prices,
        finding: Finding | None,
        path: str | None,
        family: Mapping[str | None, str] | None = None,
    ) -> None:
        """path: of the trace in the run.   family: for a fork, trace → id of its verdict."""
        trace, problems = _trace(reader, path)
        header = trace.header if trace else None
        parent = (header.parent or {}) if header else {}
        if family is not None and trace is not None:
            # How the fork ended; None where it has not.
            ended = [e.finding for e in trace.events if isinstance(e, FindingEvent)]
            finding = Finding.from_json(ended[-1]) if ended else None
        task = _task(header, problems)
        asked, answered = finding or task, finding or header
        judge_id = answered.judge_id if answered else ""
        known = reader.judge_names().get(judge_id)

        self.finding = finding
        """None while the trace is being written."""

        self.repeat = answered.repeat if answered else 0
        """From 0."""

        self.id = _id(answered.task_id if answered else "", judge_id, self.repeat, path if parent else None)
        """For links, the same in every visit."""

        self.metric = asked.metric if asked else ""
        """Id of the metric or of the intermediate question."""

        self.name = question_name(self.metric, metrics)
        """The metric's name in words, or the intermediate question's id."""

        self.scope = "" if asked is None else asked.about.scope if asked.about.key == sample.key else str(asked.about)
        """For example "turn 2, target 3"; "" for the sample as a whole. Of a pair in which it is second, with the first."""

        self.part = asked.about.part if asked else ""
        self.role = asked.role if asked else "judge"
        self.task_id = answered.task_id if answered else ""

        self.judge = (
            str(header.judge.get("backend", "")) if header else reader.info.judges().get(judge_id, known or judge_id)
        )
        """The judge's URI."""

        self.by = known or self.judge
        """What the run calls the judge. A fork may have another judge than those of the run."""

        self.judge_title = titled(self.by, self.judge)
        self.tone = finding_tone(finding, metrics) if finding else "tone-none"

        self.judge_id = judge_id
        self.ask = task if task is not None and task.kind == "ask" else None
        """The question; None for a measure, and where it is not known."""

        self.beside = ""
        """Id of the first of the verdicts that can be read beside this one; "" for none."""

        self.parting = 0
        """Number of the first step at which those differ; 0 if they do not."""

        self.parting_words = ""
        """How they differ there."""

        self.measure = task if task is not None and task.kind == "measure" else None
        self.compared = Compared.of(self.measure, trace) if self.measure is not None and trace is not None else None
        """What the measure compared; None if its trace does not say."""

        self.made = _picture(finding) if self.measure is not None else None
        """The picture that the measure made; None for none."""

        self.version = str(header.judge.get("backend_version", "")) if header else ""
        """Of the measure."""

        self.inputs = None if task is None else tuple(_recipe(task, sample.sample))
        """The pictures that were shown, in words; None if that is not known."""

        self.rests_on = [] if task is None else list(_origins(reader, sample, task, judge_id, metrics))
        """The findings from which the question was planned: (name, address from the sample's page or "")."""

        self.rests = None if task is None else task.rests_on
        """Ids of their tasks; None if that is not known."""

        answer = finding.answer if finding else None
        self.items = tuple(items(answer.data)) if isinstance(answer, Record) else ()
        """The items with a box in the lists of a JSON answer."""

        self.dropped = dropped(answer.data) if isinstance(answer, Record) else []
        """What the answer says was not read, as (entry, why)."""

        self.listing: Listing | None = None
        """The list that the page shows of the items; None where there are none."""

        self.of_item = 0
        """Of a question about one item of a list, that item's number; 0 for others."""

        inputs = _inputs(sample, task)
        self._names = {ref.sha256: alias for alias, ref in reversed(inputs.items())}
        kept = parent.get("step")
        self.steps = list(self._steps(trace, prices, 1 + (kept if isinstance(kept, int) else 0))) if trace else []
        """Of a fork its own only."""

        self.opening = trace.opening() if trace else ()
        """What was remarked before the first step: on the pictures, and on how they are sent."""

        self.marks = [*self._evidence(inputs), *self._found(task, sample.sample), *self._crops()]
        self.parent_id = family.get(str(parent.get("trace")), "") if family else ""
        """For a fork, the verdict that it continues."""

        self.fork = _parted(parent) if self.parent_id else ""
        """For a fork, where it parts and what was changed, in words."""

        self.trace = path if trace else None
        self.problems = (*problems, *(trace.problems if trace else ()))
        """What is wrong with the trace."""

        self._events = trace.events if trace else ()

    @property
    def events(self) -> tuple[tuple[str, str, str], ...]:
        """(kind, time, JSON) of each event of the trace."""
        return tuple(_raw(self._events))

    @property
    def label(self) -> str:
        """The answer on one line, or the status in brackets."""
        if self.finding is None:
            return "(in progress)"
        if self.items:
            first, more = self.items[0].words, len(self.items) - 1
            return f"{first} and {more} more" if more else first
        return short_answer(self.finding)

    @property
    def text(self) -> str:
        """An answer that needs more than a line, whole; "" for others."""
        answer = None if self.finding is None else self.finding.answer
        if isinstance(answer, Record):
            return json.dumps(answer.data, indent=2, ensure_ascii=False)
        return "" if answer is None or str(answer) == self.label else str(answer)

    @property
    def begins(self) -> str:
        """The first sentence of its reason, or as much of it as a cell of the grid has room for; "" without one."""
        words = " ".join(self.finding.reason.split()) if self.finding else ""
        first = _SENTENCE.match(words)
        words = first[0] if first else words
        return words if len(words) <= _REASON else f"{words[: _REASON - 1].rsplit(' ', 1)[0]} …"

    @property
    def usage(self) -> Usage:
        return sum((step.step.usage for step in self.steps), Usage())

    @property
    def cost(self) -> float | None:
        """USD of all steps; None if one of them has no price."""
        costs = [step.cost for step in self.steps if step.cost is not None]
        return sum(costs) if costs and len(costs) == len(self.steps) else None

    def _steps(self, trace: Trace, prices: Prices, first: int) -> Iterator[TimelineStep]:
        """first: the number of the first step, which a fork counts on from its parent."""
        steps = trace.steps()
        under_way = not any(isinstance(e, FindingEvent) for e in trace.events)
        for number, step in enumerate(steps, start=first):
            id_ = f"{self.id}-s{number}"
            calls = [
                Call(call=c, observation=o, cached=cached, pictures=tuple(self._pictures(o, aliases, id_)))
                for c, o, aliases, cached in zip(step.calls, step.observations, step.aliases, step.cached, strict=True)
            ]
            if under_way and number == first + len(steps) - 1:
                calls += [Call(call=call) for call in step.parsed.calls[len(calls) :]]
            cost = _cost(self.judge, step.usage, prices)
            yield TimelineStep(id=id_, number=number, step=step, parsed=step.parsed, calls=tuple(calls), cost=cost)

    def _pictures(self, observation: Observation, aliases: Sequence[str], step: str) -> Iterator[ShownPicture]:
        for image, alias in zip(observation.images, aliases, strict=False):
            yield self._shown(image, alias, [v for v in observation.views if v.image == image], step)
        for image in dict.fromkeys(v.image for v in observation.kept):
            views = [v for v in observation.kept if v.image == image]
            yield self._shown(image, "Plain crop", views, step, kept=True)

    def _shown(self, image: ImageRef, alias: str, views: list[View], step: str, *, kept: bool = False) -> ShownPicture:
        found: dict[tuple[str, Box], Mark] = {}
        for view in views:
            if view.origin == image:
                continue
            sha = view.origin.sha256
            place = Mark(
                kind="crop",
                image=view.origin,
                box=view.region,
                name=f"{alias} on {self._names.get(sha, f'image {sha[:8]}')}",
                id=f"m{digest([step, alias, sha, list(view.region)])[:8]}",
                verdict=self.id,
                step=step,
            )
            found.setdefault((sha, view.region), place)
        op = views[0].op.replace("_", " ") if views else ""
        return ShownPicture(image=image, name=alias, op=op, on=tuple(found.values()), kept=kept)

    def _crops(self) -> Iterator[Mark]:
        """The boxes of all crops, for the images at the top; a picture of a whole image has none."""
        pictures = (picture for step in self.steps for call in step.calls for picture in call.pictures)
        for place in (place for picture in pictures if not picture.kept for place in picture.on):
            if place.box != Box.whole(width=place.image.width, height=place.image.height):
                yield place

    def _evidence(self, inputs: Mapping[str, ImageRef]) -> Iterator[Mark]:
        for number, evidence in enumerate(self.finding.evidence if self.finding else (), start=1):
            image = inputs.get(evidence.image)
            if image is not None:
                yield Mark(
                    kind="evidence",
                    image=image,
                    box=evidence.box,
                    name=f"Evidence {number} in {evidence.image}",
                    id=f"{self.id}-e{number}",
                    verdict=self.id,
                )

    def _found(self, task: Task | None, sample: Sample | None) -> Iterator[Mark]:
        """The places that the answer gives, on the picture that was asked about."""
        answer = self.finding.answer if self.finding else None
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
        last = list(views)[-1]
        if isinstance(answer, Boxes):
            for number, place in enumerate(answer.boxes, start=1):
                yield from self._drawn(str(number), number, list(place), views.get(last))
        for item in self.items:
            given = views.get(item.image or last)
            yield from self._drawn(item.words, item.number, item.box, given)
            # What happened there is seen in both images of the edit.
            edit = None if sample is None or item.op == "" or item.image else (sample.source, sample.edited)
            for image in filter(None, edit or ()):
                if given is None or image != given.origin:
                    yield from self._drawn(item.words, item.number, item.box, Recipe(alias="", origin=image))

    def _drawn(self, name: str, number: int, thousandths: Sequence[float], view: Recipe | None) -> Iterator[Mark]:
        """A place of the answer on the image that a view shows; nothing where it cannot be drawn."""
        box = None if view is None else _on_origin(thousandths, view)
        if view is not None and box is not None:
            id_ = f"{self.id}-f{number}"
            yield Mark(kind="found", image=view.origin, box=box, name=name, id=id_, verdict=self.id, item=number)

    @property
    def counted(self) -> str | None:
        """WORD of a question about the part "WORD 3"; None for others."""
        return counted(self.part)

    def list_items(self, listing: Listing) -> None:
        """Take over what was said of the items, and give their boxes the signs."""
        self.listing = listing
        told = {entry.item.number: entry for entry in listing.entries if entry.told is not None}
        self.marks = [
            replace(m, told=told[m.item].told or "", sign=told[m.item].sign) if m.kind == "found" and m.item in told else m
            for m in self.marks
        ]


def verdicts(
    reader: RunReader,
    sample: RunSample,
    metrics: Mapping[str, Metric],
    prices: Prices,
    scores: Sequence[OwnScore] = (),
) -> list[SampleVerdict]:
    """Return every verdict on a sample, each followed by the forks that continue it.

    Lists whose items are asked about come first, then answers to metrics. Behind them stands what is being judged just now.
    scores: all of the sample, for what is said of items.
    """
    found: list[SampleVerdict] = []
    for finding in sorted((*sample.findings, *sample.beside), key=lambda f: f.metric not in metrics):
        found.append(SampleVerdict(reader, sample, metrics, prices, finding, finding.trace))
        family = {finding.trace: found[-1].id}
        for path in reader.forks(finding.trace) if finding.trace else ():
            fork = SampleVerdict(reader, sample, metrics, prices, None, path, family)
            if fork.fork:
                family[path] = fork.id
                found.append(fork)
    _list_items(found, scores, metrics)
    return found + [SampleVerdict(reader, sample, metrics, prices, None, path) for path in sample.open]


def _list_items(found: list[SampleVerdict], scores: Sequence[OwnScore], metrics: Mapping[str, Metric]) -> None:
    """Give each list what is said of its items. Such lists come first, the questions about single items last, by number."""
    lists = listings(found, scores, metrics)
    for verdict in found:
        if verdict.id in lists:
            verdict.list_items(lists[verdict.id])
    about = {said.verdict: entry.item.number for one in lists.values() for entry in one.entries for said in entry.said}
    first = {id_ for id_, one in lists.items() if any(entry.told is not None for entry in one.entries)}
    root: dict[str, str] = {}
    for verdict in found:
        # A fork stays behind what it continues.
        root[verdict.id] = root.get(verdict.parent_id, verdict.id)
        verdict.of_item = about.get(root[verdict.id], 0)
    found.sort(key=lambda v: (root[v.id] not in first, v.of_item))


@dataclass(frozen=True, kw_only=True)
class Home:
    """The place that a sample's page is about."""

    box: tuple[float, float, float, float]
    """Shares of the image, 0 to 1: x0, y0, x1, y1."""
    name: str
    opens: bool
    """Whether it is so small that the page opens there."""


def home(edit: Sample | None, marks: Sequence[Mark]) -> Home | None:
    """Return where the targets are, else the places that the first answer with any names; None where nothing is known."""
    if edit is None:
        return None
    shown = [m for m in marks if m.image in (edit.source, edit.edited)]
    found = [m for m in shown if m.kind == "target" and m.image == edit.source]
    name = "the target" if len(found) == 1 else "the targets"
    if not found:
        named = [m for m in shown if m.kind in ("evidence", "found")]
        found = [m for m in named if m.verdict == named[0].verdict]
        name = "what the answer names"
    if not found:
        return None
    boxes = [m.box.scaled(1 / m.image.width, 1 / m.image.height) for m in found]
    x0, y0 = min(b.x0 for b in boxes), min(b.y0 for b in boxes)
    x1, y1 = max(b.x1 for b in boxes), max(b.y1 for b in boxes)
    return Home(box=(x0, y0, x1, y1), name=name, opens=(x1 - x0) * (y1 - y0) < SMALL)


def compared_in(reader: RunReader, path: str) -> Compared | None:
    """Return what the measure of a trace compared; None if it is none, or does not say."""
    trace, problems = _trace(reader, path)
    task = _task(trace.header if trace else None, problems)
    return Compared.of(task, trace) if trace is not None and task is not None and task.kind == "measure" else None


def _picture(finding: Finding | None) -> ImageRef | None:
    """Return the picture that an answer names as `picture`; None for any other answer."""
    data = finding.answer.data if finding is not None and isinstance(finding.answer, Record) else None
    try:
        return ImageRef.from_json(data["picture"]) if isinstance(data, Mapping) and "picture" in data else None
    except ValueError:
        return None


def arguments(given: Mapping[str, Json]) -> list[tuple[str, str]]:
    """Return what a tool or a measure was given, as (name, text)."""
    return [(n, v if isinstance(v, str) else json.dumps(v, ensure_ascii=False)) for n, v in given.items()]


def targets(edit: Sample | None) -> list[Mark]:
    """Return the targets' boxes on source and edited image. A box not given for the edited image is scaled."""
    found: list[Mark] = []
    for number, target in enumerate(() if edit is None else edit.targets, start=1):
        assert edit is not None
        name = target.name or ("Target" if len(edit.targets) == 1 else f"Target {number}")
        source = target.boxes.get("source")
        if source is not None:
            found.append(Mark(kind="target", image=edit.source, box=source, name=name))
        if edit.edited is None or edit.edited == edit.source:
            continue
        edited = target.boxes.get("edited")
        if edited is None and source is not None:
            sx, sy = edit.edited.width / edit.source.width, edit.edited.height / edit.source.height
            edited, name = source.scaled(sx, sy), f"{name} (box of the source)"
        if edited is not None:
            found.append(Mark(kind="target", image=edit.edited, box=edited, name=name))
    return found


def _id(task_id: str, judge_id: str, repeat: int, fork: str | None = None) -> str:
    """The id of a verdict. fork: the path of its trace, for a fork."""
    return f"v{digest([task_id, judge_id, repeat, fork or ''])[:8]}"


def _trace(reader: RunReader, path: str | None) -> tuple[Trace | None, list[str]]:
    """A trace, or what is wrong with it."""
    if path is None:
        return None, []
    found = reader.inside(path)
    if found is None:
        return None, [f"the trace {path!r} is not in the run folder"]
    try:
        return read_trace(found), []
    except TraceError as error:
        return None, [str(error)]


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


def _origins(
    reader: RunReader, sample: RunSample, task: Task, judge_id: str, metrics: Mapping[str, Metric]
) -> Iterator[tuple[str, str]]:
    """The findings from which a question was planned. A judge's questions rest on its own findings, not on its peers'."""
    roles = reader.info.roles()
    for task_id in task.rests_on:
        there = [(sample.slug, f) for f in sample.findings if f.task_id == task_id]
        found = there or reader.of_task(task_id)
        mine = [f for f in found if f[1].judge_id == judge_id or roles.get(f[1].judge_id) != roles.get(judge_id)]
        for slug, f in mine:
            words = (question_name(f.metric, metrics), f.about.scope, "" if slug == sample.slug else f.about.key)
            page = "" if slug == sample.slug else f"{slug}.html"
            again = f"repeat {f.repeat + 1}" if f.repeat else ""
            named = ", ".join(filter(None, (*words, again)))
            yield f"{named}: {short_answer(f)}", f"{page}#{_id(f.task_id, f.judge_id, f.repeat)}"
        if not mine:
            yield f"task {task_id[:12]}, which has no finding here", ""


def _inputs(sample: RunSample, task: Task | None) -> dict[str, ImageRef]:
    """The images of the question by alias, after those of the sample."""
    found: dict[str, ImageRef] = {}
    if sample.sample is not None:
        found |= sample.sample.originals
        if sample.sample.edited is not None:
            found["Edited Image"] = sample.sample.edited
    return found | {view.alias: view.origin for view in (task.views if task else ())}


def _on_origin(thousandths: Sequence[float], view: Recipe) -> Box | None:
    """A box of the picture that a view shows, in px of the image that it was made from; None where it is no box."""
    shown = view.region or Box.whole(width=view.origin.width, height=view.origin.height)
    try:
        return Box.from_thousandths(thousandths, width=shown.width, height=shown.height).shifted(shown.x0, shown.y0)
    except ValueError:
        return None


def _cost(judge: str, usage: Usage, prices: Prices) -> float | None:
    """USD of one step; None for an embedded judge, which has no price, and where none is known."""
    try:
        return None if not usage.total or parse_uri(judge).provider in NOT_LMMS else prices.of_uri(judge, usage)
    except ConfigError:
        return None


def _parted(parent: Mapping[str, Any]) -> str:
    """Where a fork parts and with what, in words."""
    step, changes = parent.get("step"), parent.get("changes")
    where = f"after step {step}" if step else "from the question"
    changed = [f"{name}: {words}" for name, words in changes.items()] if isinstance(changes, Mapping) else []
    return "; ".join([f"{parent.get('why', 'fork')} {where}", *changed])


def _raw(events: Iterable[Event]) -> Iterator[tuple[str, str, str]]:
    for event in events:
        text = json.dumps(event.model_dump(), indent=1, ensure_ascii=False)
        if len(text) > _RAW:
            text = f"{text[:_RAW]}\n… {len(text) - _RAW:,} more characters in the trace file"
        yield event.kind, event.time, text
