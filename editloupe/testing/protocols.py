"""The contract of protocols, checked."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from editloupe.answers import Answer, BoxList, FreeText, Labels, OneOf, RecordOf, Scale
from editloupe.data.images import ImageStore
from editloupe.errors import MeasureError, ProtocolError
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.measures.base import run_measure
from editloupe.protocols.base import EvalProtocol, Known, group_scores, groups, known_of, planned, scored
from editloupe.protocols.labeled_boxes import LabeledBoxes
from editloupe.protocols.repeats import Repeats
from editloupe.runs.schedule import Schedule
from editloupe.scores import Score
from editloupe.tasks import Ask, Status, Task, task_from_json
from editloupe.testing.contracts import requirement
from editloupe.values import Box, ImageRef, Json, Sample, Target, Turn

Answering = Callable[[Ask], str]


def check_protocol(
    protocol: Any,
    *,
    options: Mapping[str, Json] | None = None,
    samples: Sequence[Sample] | None = None,
    images: ImageStore | None = None,
    answers: Answering | None = None,
) -> list[Score]:
    """Check that a protocol keeps its contract. Return the scores of a run in which all was answered.

    protocol: the protocol's class.   options: its options; None for the defaults.
    samples: what to ask about, with their pictures in `images`; None draws some: three turns, two editors, a sample with a
    target, one whose output is missing.
    answers: the text that answers a question; None makes one up from the question's AnswerSpec.

    Checked: `plan` is pure, ends, and never plans two tasks for one question; task ids are stable and survive JSON; the
    order of findings does not matter; every declared metric but those of `of_some` is scored for every sample, with a value
    in the metric's domain or a reason; n judged + n missing = n asked; a question that failed and a missing output are
    never a number; what is asked is a declared metric, or something that `plan` or `score` reads.

    Raises AssertionError, which names the protocol and what it broke.
    """
    store = images or ImageStore()
    asked = list(samples) if samples is not None else drawn_samples(store)
    given = protocol.Options.model_validate(dict(options or {}))
    made: EvalProtocol = protocol(given)

    require = requirement(f"protocol {made.name!r}")
    ids = [metric.id for metric in made.metrics]
    require(bool(made.name), "expected a name")
    require(bool(ids) and len(set(ids)) == len(ids), f"expected metrics with different ids, found {ids}")
    made.check(asked)

    for group in groups(asked):
        first, again = ([task.to_json() for task in planned(one, group, Known())] for one in (made, protocol(given)))
        require(first == again, "plan is not pure: the same samples and findings gave other tasks")

    answering = answers or example
    findings, tasks = _answered(made, asked, lambda task: _outcome(task, store, answering))
    for task in tasks:
        back = task_from_json(task.to_json())
        require(back == task and back.id == task.id, f"task {task.metric}, {task.about} does not survive JSON")
    read = set(ids)
    for group in groups(asked):
        known = _known(group, findings)
        new = {t.id for t in planned(made, group, known)} - {t.id for t in tasks}
        require(not new, "plan does not end: it wants more tasks when all findings are there")
        read |= known.read

    def checked_scores(findings: Sequence[Finding]) -> list[Score]:
        """Return the scores of these findings, once they are known to be whole and inside their domains."""
        try:
            given = []
            for group in groups(asked):
                known = _known(group, findings)
                given += group_scores(made, group, known)
                read.update(known.read)
        except ProtocolError as error:
            raise AssertionError(str(error)) from error
        there = {(score.key, score.metric) for score in given}
        for sample in asked:
            for id_ in set(ids).difference(getattr(made, "of_some", ())):
                scored_ = (sample.key, id_) in there
                require(scored_, f"sample {sample.key!r} has no score of {id_!r}, not even a missing one")
        return scored(made, asked, findings)

    scores = checked_scores(findings)
    unread = sorted({task.metric for task in tasks} - read)
    require(not unread, f"it asks {unread}, which it neither declares as metrics nor reads in plan or score")
    shuffled = list(findings)
    random.Random(0).shuffle(shuffled)
    require(_bare(scored(made, asked, shuffled)) == _bare(scores), "the order of findings changes scores")
    require(_bare(scored(made, asked, findings)) == _bare(scores), "score is not pure")

    shown = {(task.about.key, view.origin) for task in tasks for view in task.views}
    showing = any((sample.key, turn.edited) in shown for sample in asked for turn in sample.turns)
    for sample in asked:
        if showing and all(turn.edited is None for turn in sample.turns):
            numbers = [s for s in scores if s.key == sample.key and s.value is not None]
            require(not numbers, f"sample {sample.key!r} has no output, and a score: {numbers[:1]}")

    failed, _ = _answered(made, asked, lambda task: None)
    numbers = [s for s in checked_scores(failed) if s.value is not None]
    require(not numbers, f"every question failed, and yet there is a number: {numbers[:1]}")
    return scores


def _known(group: Sequence[Sample], findings: Iterable[Finding]) -> Known:
    keys = {sample.key for sample in group}
    return known_of(f for f in findings if f.about.key in keys)


def _bare(scores: Iterable[Score]) -> list[str]:
    return sorted(repr((s.key, s.turn, s.part, s.metric, s.value, s.label, s.missing)) for s in scores)


def _answered(
    protocol: EvalProtocol, samples: Sequence[Sample], outcome: Callable[[Task], Answer | None]
) -> tuple[list[Finding], list[Task]]:
    """Return all findings and tasks of a run; a task without an outcome fails."""
    schedule = Schedule(protocol, samples, Repeats(), lambda task, repeat: None)
    while (place := schedule.next()) is not None:
        task = place.task
        answer = None if task.blocked is not None else outcome(task)
        failed: tuple[Status, str] = ("unparsed" if task.kind == "ask" else "not_defined"), "made to fail"
        status, reason = task.blocked or (failed if answer is None else ("ok", ""))
        schedule.arrived(
            Finding.of(task, judge_id="check", repeat=0, status=status, ending="answer", answer=answer, reason=reason)
        )
    problems = schedule.problems()
    assert not problems, problems[0].reason
    return list(schedule.findings), [place.task for place in schedule.places.values()]


def _outcome(task: Task, images: ImageStore, answering: Answering) -> Answer | None:
    views = {recipe.alias: make_view(recipe, images) for recipe in task.views}
    if task.kind == "ask":
        return task.answer.parse(answering(task))
    try:
        return run_measure(task.measure, task.args, {alias: images.array(view.image) for alias, view in views.items()})
    except MeasureError:
        return None


def example(task: Ask) -> str:
    """Return a text that answers a question. Equal questions get equal answers, different ones differ where they can."""
    spec, number = task.answer, int(task.id[:8], 16)
    match spec:
        case Labels():
            return spec.labels[number % len(spec.labels)].name
        case OneOf():
            options = [option for option in spec.options if option != spec.abstain]
            return options[number % len(options)]
        case Scale():
            steps = int(spec.high - spec.low)
            return f"{spec.low + (number % (steps + 1) if steps >= 1 else (spec.high - spec.low) / 2):g}"
        case FreeText():
            return "mug"
        case BoxList():
            return "[[100, 100, 500, 500]]"
        case LabeledBoxes():
            label, far = spec.labels[number % len(spec.labels)], 4 + number % 5
            if spec.form == "lines":
                return f"{label}: mug, [0.1, 0.1, 0.{far}, 0.{far}]"
            sure = {"confidence": 0.5} if spec.asks_confidence else {}
            entry = {spec.label_key: label, spec.name_key: "mug", "box": [100, 100, 100 * far, 100 * far], **sure}
            return json.dumps({spec.list_key: [entry]})
        case RecordOf():
            return json.dumps(_instance(spec.schema, spec.schema))
        case _:
            raise AssertionError(f"no answer of kind {spec.kind!r} can be made up: give check_protocol one by answers=…")


def _instance(schema: Any, root: Mapping[str, Json]) -> Any:
    """Return a small instance of a JSON Schema as pydantic writes them."""
    match schema:
        case {"$ref": str(ref)}:
            found: Any = root
            for name in ref.removeprefix("#/").split("/"):
                found = found[name]
            return _instance(found, root)
        case {"const": value} | {"default": value} | {"enum": [value, *_]}:
            return value
        case {"anyOf": [first, *_]} | {"oneOf": [first, *_]} | {"allOf": [first, *_]}:
            return _instance(first, root)
        case {"type": "object"}:
            return {name: _instance(schema["properties"][name], root) for name in schema.get("required", [])}
        case {"type": "array"}:
            return [_instance(schema["items"], root)] * max(1, int(schema.get("minItems", 1)))
        case {"type": "integer" | "number"}:
            return schema.get("minimum", 1)
    return {"boolean": True, "null": None}.get(schema.get("type"), "mug")


def drawn_samples(images: ImageStore) -> list[Sample]:
    """Return drawn samples: two editors on one source, targets, three turns, a missing output."""
    base = np.random.default_rng(0).integers(90, 150, (60, 80, 3), dtype=np.uint8)

    def picture(spots: int) -> ImageRef:
        rgb = base.copy()
        for i in range(spots):
            rgb[8 + 14 * i : 16 + 14 * i, 20:44] = ((220, 20, 20), (20, 160, 20), (20, 20, 220))[i]
        return images.add_array(rgb)

    extra: dict[str, Json] = {
        "options": ["red", "green", "blue", "cannot tell"],
        "answer": "red",
        "question": "Which color?",
    }
    sample = partial(Sample, targets=(Target(name="mug", boxes={"source": Box(20, 8, 44, 16)}),), extra=extra)
    source, second = picture(0), images.add_array(base[::-1].copy())
    one, two = (Turn(instruction="Make the mug red.", edited=picture(n)) for n in (1, 2))
    turns = tuple(Turn(instruction=f"Add spot {n}.", edited=picture(n)) for n in (1, 2, 3))
    return [
        sample(id="one", editor="a", source=source, turns=(one,), edit_type="Change Color"),
        sample(id="one", editor="b", source=source, turns=(two,), edit_type="Change Color"),
        sample(id="turns", editor="a", source=second, turns=turns, edit_type="Change Count"),
        sample(id="gone", editor="a", source=second, turns=(Turn(instruction="Remove it.", edited=None),)),
    ]
