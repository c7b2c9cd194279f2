"""What one sample's page shows, as values: its images with the boxes on them, and each verdict step by step."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editloupe.agent.answer import parse_reply
from editloupe.backends.base import NOT_LMMS, parse_uri
from editloupe.backends.prices import Prices
from editloupe.chat import Reply, Usage
from editloupe.errors import ConfigError, TraceError
from editloupe.findings import Finding, Observation, Step
from editloupe.reports.fragments import tone
from editloupe.rubrics.model import Rubric
from editloupe.runs.judges import titled
from editloupe.traces.events import FindingEvent, Header
from editloupe.traces.read import Trace, read_trace
from editloupe.values import Box, ImageRef, Json, View, digest
from editloupe.viewer.index import Entry, RunIndex
from editloupe.viewer.rows import answered, finding_tone

_RAW = 2_000
"""Characters of one raw event on a page; the trace file itself is linked, and pages of long traces stay light."""


@dataclass(frozen=True, kw_only=True)
class Mark:
    """A box in px of one image: a target, a crop's place, or what a verdict rests on.

    verdict, step: ids of page parts that it belongs to; "" for a target.
    """

    kind: str
    image: ImageRef
    box: Box
    name: str
    id: str = ""
    verdict: str = ""
    step: str = ""


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A picture of an observation. on: where its pixels come from, a mark an origin.   kept: the model did not see it."""

    image: ImageRef
    name: str
    op: str
    on: tuple[Mark, ...]
    kept: bool = False


@dataclass(frozen=True, kw_only=True)
class Call:
    """One tool call. observation: "" while it runs."""

    name: str
    arguments: tuple[tuple[str, str], ...]
    observation: str = ""
    error: bool = False
    pictures: tuple[Shown, ...] = ()
    running: bool = False


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One step of the timeline. cost: USD, None where no price is known."""

    id: str
    number: int
    thought: str
    calls: tuple[Call, ...]
    malformed: tuple[tuple[str, str], ...]
    answer: str | None
    usage: Usage
    cost: float | None
    seconds: float
    note: str


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One finding, or a trace that is still being written (`finding` is None). id: for links, the same in every visit.

    judge: its URI.   by: what the run calls it.   repeat: from 0.
    parent: for a fork where it parts and what was changed, in words; its turns are its own only, and `parent_id` is the
    verdict that it continues.   problems: of the trace, in words.   events: (kind, time, JSON).
    """

    id: str
    criterion: str
    short: str
    judge: str
    by: str
    repeat: int
    finding: Finding | None
    tone: str
    turns: tuple[Turn, ...] = ()
    marks: tuple[Mark, ...] = ()
    parent: str = ""
    parent_id: str = ""
    trace: str | None = None
    problems: tuple[str, ...] = ()
    events: tuple[tuple[str, str, str], ...] = ()

    @property
    def told(self) -> str:
        """The judge's name with its URI."""
        return titled(self.by, self.judge)

    @property
    def label(self) -> str:
        """The label, or the status in brackets."""
        if self.finding is None:
            return "(in progress)"
        if self.finding.status != "ok":
            return f"({self.finding.status})"
        return answered(self.finding)

    @property
    def usage(self) -> Usage:
        return sum((t.usage for t in self.turns), Usage())

    @property
    def cost(self) -> float | None:
        """USD of all turns; None where one of them has no price."""
        costs = [t.cost for t in self.turns if t.cost is not None]
        return sum(costs) if costs and len(costs) == len(self.turns) else None


@dataclass(frozen=True, kw_only=True)
class Names:
    """What images are called on the page, by digest."""

    by_sha: Mapping[str, str] = field(default_factory=dict)

    def of(self, image: ImageRef) -> str:
        return self.by_sha.get(image.sha256, f"image {image.sha256[:8]}")


def verdicts(index: RunIndex, entry: Entry, rubric: Rubric | None, prices: Prices) -> list[Verdict]:
    """Every verdict on a sample, each with the forks that continue it behind it; then what is being judged just now."""
    found: list[Verdict] = []
    for finding in entry.findings:
        found.append(_verdict(index, entry, rubric, prices, finding, finding.trace))
        family = {finding.trace: found[-1].id}
        for path in index.forks(finding.trace) if finding.trace else ():
            fork = _verdict(index, entry, rubric, prices, None, path, family)
            if fork is not None and fork.parent:
                family[path] = fork.id
                found.append(fork)
    return found + [_verdict(index, entry, rubric, prices, None, path) for path in entry.open]


def targets(entry: Entry) -> list[Mark]:
    """The targets' boxes on the source and the edited image; one that is not given for the edited image is scaled."""
    sample, found = entry.sample, []
    for number, target in enumerate(() if sample is None else sample.targets, start=1):
        assert sample is not None
        name = target.name or ("Target" if len(sample.targets) == 1 else f"Target {number}")
        source = target.boxes.get("source")
        if source is not None:
            found.append(Mark(kind="target", image=sample.source, box=source, name=name))
        if sample.edited is None or sample.edited == sample.source:
            continue
        edited = target.boxes.get("edited")
        if edited is None and source is not None:
            sx, sy = sample.edited.width / sample.source.width, sample.edited.height / sample.source.height
            edited, name = source.scaled(sx, sy), f"{name} (box of the source)"
        if edited is not None:
            found.append(Mark(kind="target", image=sample.edited, box=edited, name=name))
    return found


def _verdict(
    index: RunIndex,
    entry: Entry,
    rubric: Rubric | None,
    prices: Prices,
    finding: Finding | None,
    relative: str | None,
    family: Mapping[str | None, str] | None = None,
) -> Verdict:
    """A trace that cannot be read costs its steps and nothing else. family: for a fork, trace → id of its verdict."""
    problems: list[str] = []
    trace: Trace | None = None
    if relative is not None:
        path = index.inside(relative)
        try:
            if path is None:
                problems.append(f"the trace {relative!r} is not in the run folder")
            else:
                trace = read_trace(path)
        except TraceError as error:
            problems.append(str(error))
    header = trace.header if trace else None
    parent = (header.parent or {}) if header else {}
    if family is not None and trace is not None:
        finding = _ending(trace)
    criterion = finding.metric if finding else str(header.task.get("criterion", "")) if header else ""
    judge_id = finding.judge_id if finding else header.judge_id if header else ""
    repeat = finding.repeat if finding else header.repeat if header else 0
    task_id = finding.task_id if finding else header.task_id if header else ""
    known = {c.id: c.short for c in rubric.criteria} if rubric else {}
    mark = f"v{digest([task_id, judge_id, repeat, relative if parent else ''])[:8]}"
    names = _names(entry, header)
    judge = str(header.judge.get("backend", "")) if header else index.store.judges().get(judge_id, judge_id)
    kept = parent.get("step")
    first = 1 + (kept if isinstance(kept, int) else 0)
    try:
        turns = tuple(_turns(trace, mark, names, judge, prices, first)) if trace else ()
    except (KeyError, TypeError, ValueError, AssertionError) as error:
        turns = ()
        problems.append(f"the steps cannot be told: an event is not of the expected shape ({error!r})")
    return Verdict(
        id=mark,
        criterion=criterion,
        short=known.get(criterion, criterion.replace("_", " ")),
        judge=judge,
        # A fork may have another judge than those of the run.
        by=index.store.judge_names().get(judge_id, judge),
        repeat=repeat,
        finding=finding,
        tone=tone(None) if finding is None or rubric is None else finding_tone(finding, rubric),
        turns=turns,
        marks=(*_evidence(finding, _inputs(entry, header), mark), *_crops(turns, mark)),
        parent=_parted(parent) if family and parent.get("trace") in family else "",
        parent_id=family.get(str(parent.get("trace")), "") if family else "",
        trace=relative if trace else None,
        problems=(*problems, *(trace.problems if trace else ())),
        events=tuple(_raw(trace)) if trace else (),
    )


def _names(entry: Entry, header: Header | None) -> Names:
    inputs = _inputs(entry, header)
    return Names(by_sha={ref.sha256: alias for alias, ref in reversed(inputs.items())})


def _inputs(entry: Entry, header: Header | None) -> dict[str, ImageRef]:
    """The images of the first message by alias; without a trace those of the sample."""
    views = header.task.get("views") if header else None
    found: dict[str, ImageRef] = {}
    if entry.sample is not None:
        found["Original Image"] = entry.sample.source
        if entry.sample.edited is not None:
            found["Edited Image"] = entry.sample.edited
    for view in views if isinstance(views, list) else []:
        try:
            found[str(view["alias"])] = ImageRef.from_json(view["origin"])
        except (KeyError, TypeError, ValueError):
            continue  # the rest of the page does not need it; the raw header shows what it is
    return found


def _turns(trace: Trace, mark: str, names: Names, judge: str, prices: Prices, first: int) -> Iterator[Turn]:
    """first: the number of the first step, which a fork counts on from its parent."""
    steps = trace.steps()
    under_way = not any(isinstance(e, FindingEvent) for e in trace.events)
    for number, step in enumerate(steps, start=first):
        parsed = parse_reply(Reply(text=step.reply, reasoning=step.thought), turn=number)
        id_ = f"{mark}-s{number}"
        calls = list(_calls(step, id_, mark, names))
        if under_way and number == first + len(steps) - 1:
            done = len(calls)
            calls += [Call(name=c.name, arguments=_arguments(c.arguments), running=True) for c in parsed.calls[done:]]
        yield Turn(
            id=id_,
            number=number,
            thought=parsed.thought,
            calls=tuple(calls),
            malformed=tuple((m.raw, m.error) for m in parsed.malformed),
            answer=parsed.answer,
            usage=step.usage,
            cost=_cost(judge, step.usage, prices),
            seconds=step.seconds,
            note=step.note,
        )


def _calls(step: Step, id_: str, mark: str, names: Names) -> Iterator[Call]:
    for call, observation, aliases in zip(step.calls, step.observations, step.aliases, strict=True):
        yield Call(
            name=call.name,
            arguments=_arguments(call.arguments),
            observation=observation.text,
            error=observation.error,
            pictures=tuple(_pictures(observation, aliases, id_, mark, names)),
        )


def _pictures(observation: Observation, aliases: Sequence[str], id_: str, mark: str, names: Names) -> Iterator[Shown]:
    for image, alias in zip(observation.images, aliases, strict=False):
        yield _shown(image, alias, [v for v in observation.views if v.image == image], id_, mark, names)
    for image in dict.fromkeys(v.image for v in observation.kept):
        views = [v for v in observation.kept if v.image == image]
        yield _shown(image, "Plain crop", views, id_, mark, names, kept=True)


def _shown(
    image: ImageRef, alias: str, views: list[View], id_: str, mark: str, names: Names, *, kept: bool = False
) -> Shown:
    found: dict[tuple[str, Box], Mark] = {}
    for view in views:
        if view.origin == image:
            continue
        place = Mark(
            kind="crop",
            image=view.origin,
            box=view.region,
            name=f"{alias} on {names.of(view.origin)}",
            id=f"m{digest([id_, alias, view.origin.sha256, list(view.region)])[:8]}",
            verdict=mark,
            step=id_,
        )
        found.setdefault((view.origin.sha256, view.region), place)
    op = views[0].op.replace("_", " ") if views else ""
    return Shown(image=image, name=alias, op=op, on=tuple(found.values()), kept=kept)


def _crops(turns: Iterable[Turn], mark: str) -> Iterator[Mark]:
    """The boxes of all crops, for the images at the top; a picture of a whole image has none."""
    for turn in turns:
        for call in turn.calls:
            for picture in call.pictures:
                for place in picture.on:
                    whole = Box.whole(width=place.image.width, height=place.image.height)
                    if place.box != whole and not picture.kept:
                        yield place


def _evidence(finding: Finding | None, inputs: Mapping[str, ImageRef], mark: str) -> Iterator[Mark]:
    for number, evidence in enumerate(finding.evidence if finding else (), start=1):
        image = inputs.get(evidence.image)
        if image is not None:
            yield Mark(
                kind="evidence",
                image=image,
                box=evidence.box,
                name=f"Evidence {number} in {evidence.image}",
                id=f"{mark}-e{number}",
                verdict=mark,
            )


def _arguments(arguments: Mapping[str, Json]) -> tuple[tuple[str, str], ...]:
    def text(value: Json) -> str:
        return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

    return tuple((str(name), text(value)) for name, value in arguments.items())


def _cost(judge: str, usage: Usage, prices: Prices) -> float | None:
    """USD of one step; None for an embedded judge, which has no price, and where none is known."""
    try:
        return None if not usage.total or parse_uri(judge).provider in NOT_LMMS else prices.of_uri(judge, usage)
    except ConfigError:
        return None


def _ending(trace: Trace) -> Finding | None:
    """How a fork ended; None where it has not."""
    last = next((e.finding for e in reversed(trace.events) if isinstance(e, FindingEvent)), None)
    try:
        return None if last is None else Finding.from_json(last)
    except (KeyError, TypeError, ValueError, AssertionError):
        return None  # the raw events show what stands there


def _parted(parent: Mapping[str, Any]) -> str:
    """Where a fork parts and with what, in words."""
    step, changes = parent.get("step"), parent.get("changes")
    where = f"after step {step}" if step else "from the question"
    told = [f"{name}: {words}" for name, words in changes.items()] if isinstance(changes, Mapping) else []
    return "; ".join([f"{parent.get('why', 'fork')} {where}", *told])


def _raw(trace: Trace) -> Iterator[tuple[str, str, str]]:
    for event in trace.events:
        text = json.dumps(event.model_dump(), indent=1, ensure_ascii=False)
        if len(text) > _RAW:
            text = f"{text[:_RAW]}\n… {len(text) - _RAW:,} more characters in the trace file"
        yield event.kind, event.time, text
