"""What is seen of a named object in one picture of a chain: by the detector, or by boxes that the data gives.

A picture is named by its turn: 0 for the base image, t for the image after turn t. The picture before an edit of turn t is
that of turn t - 1, so that no picture is searched twice for one object.

Given boxes stand in the column `boxes`: a list with an item for each picture, the base image first. An item is an object
from a name to its boxes [x0, y0, x1, y1] in px of that picture, or null. An empty list says that the object is not there;
of a name that is not listed nothing is given, and the detector is asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from editloupe.answers import Record
from editloupe.data.boxes import inside, read_quads, to_px
from editloupe.data.tables import shown
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.protocols.base import BaseProtocol, Known, NoValue, whole
from editloupe.scores import NOT_JUDGED
from editloupe.tasks import About, Measure, Status, Task
from editloupe.values import Box, ImageRef, Json, Sample, box_from_json

DETECTIONS: Final = "detections"
"""The question; also the name of the measure."""
RECORDED: Final = 0.25
"""Boxes that score above it are recorded, as are words of their labels. Rules cannot have a lower threshold."""
BOXES: Final = "boxes"
"""Column with given boxes."""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """One box in which something was seen."""

    box: Box
    """In fractions, 0 to 1, of the picture's width and height."""
    score: float
    """0 to 1; higher is surer. 1 for a given box."""


@dataclass(kw_only=True)
class Eyes:
    """What is seen in the pictures of a sample. What is not known is noted as a task, and ends the way there."""

    protocol: BaseProtocol
    """Who asks, with its rules."""
    sample: Sample
    known: Known
    tasks: dict[str, Task] = field(default_factory=dict)
    """What is to be found out, by id."""
    found: dict[str, None] = field(default_factory=dict)
    """Task ids of the findings that were needed, in their order."""

    def note(self, *tasks: Task) -> None:
        """Note tasks as needed."""
        self.tasks |= {task.id: task for task in tasks}

    def see(self, *wanted: tuple[int, str]) -> list[list[Sight]]:
        """Return what is seen of each phrase in the picture of its turn; what was not looked for is noted as needed.

        Raises NoValue where one of them was not looked for yet, or could not be.
        """
        findings = [self.known.finding(DETECTIONS, about_picture(self.sample, *one)) for one in wanted]
        for one, finding in zip(wanted, findings, strict=True):
            if finding is None:
                self.note(detect(self.protocol, self.sample, *one))
            else:
                self.found[finding.task_id] = None
        if None in findings:
            raise NoValue(NOT_JUDGED)
        return [_sights(finding, *one) for finding, one in zip(findings, wanted, strict=True) if finding is not None]


def _sights(finding: Finding, turn: int, phrase: str) -> list[Sight]:
    """Return what a finding says was seen. Raises NoValue for one that does not say it."""
    sights = sights_of(finding)
    if sights is None:
        status = "input_error" if finding.answer is not None else finding.status
        why = finding.reason or "its answer cannot be read"
        raise NoValue(status, f"{spelled(phrase)!r} could not be looked for in {_named(turn)}: {why}")
    return sights


def _named(turn: int) -> str:
    return f"the image after turn {turn}" if turn else "the base image"


def detect(protocol: BaseProtocol, sample: Sample, turn: int, phrase: str) -> Measure:
    """Return the task that finds a phrase in a picture: by the detector or, where boxes are given, by those.

    turn: 0 for the base image.   Raises DataError for given boxes that cannot be read.
    """
    text, picture = spelled(phrase), picture_of(sample, turn)
    boxes = given_boxes(sample, turn).get(text)
    measure = partial(protocol.measurement, DETECTIONS, about_picture(sample, turn, text))
    if boxes is not None and picture is not None:
        sizes = {"width": picture.width, "height": picture.height}
        seen: list[Json] = [
            {"box": [round(v * 1000, 3) for v in box.to_unit(**sizes)], "score": 1.0, "label": text} for box in boxes
        ]
        answer = Record(data={"phrase": text, "detections": seen}).to_json()
        return measure("key", args={"answer": answer})
    args: dict[str, Json] = {"phrase": text, "box_threshold": RECORDED, "text_threshold": RECORDED}
    blocked: tuple[Status, str] = "missing_output", f"{_named(turn)} is missing"
    views = whole({"image": picture})
    return measure(DETECTIONS, args=args, views=views, blocked=None if picture else blocked)


def sights_of(finding: Finding) -> list[Sight] | None:
    """Return what a finding says was seen; None for one without such an answer."""
    data = finding.answer.data if isinstance(finding.answer, Record) else None
    found = data.get("detections") if isinstance(data, Mapping) else None
    if not isinstance(found, list | tuple):
        return None
    try:
        return [Sight(box=box_from_json(one["box"]).scaled(0.001, 0.001), score=float(one["score"])) for one in found]
    except (KeyError, TypeError, ValueError):
        return None


def picture_of(sample: Sample, turn: int) -> ImageRef | None:
    """Return the base image (turn 0) or the image after a turn; None where that is missing."""
    return sample.source if turn == 0 else sample.turns[turn - 1].edited


def about_picture(sample: Sample, turn: int, phrase: str) -> About:
    """Return what a search for a phrase in a picture is about: the part is "base: red cup" or "after: red cup"."""
    return About.of(sample, turn=turn, part=f"{'after' if turn else 'base'}: {spelled(phrase)}")


def spelled(phrase: str) -> str:
    """Return a phrase in the one spelling in which it is looked for: lower case, single spaces, no full stop around it."""
    return " ".join(phrase.lower().split()).strip(" .")


def given_boxes(sample: Sample, turn: int) -> dict[str, list[Box]]:
    """Return the boxes that the data gives for a picture, in px, by name. Raises DataError for what cannot be read.

    A picture that is the base image has the boxes of that, so that a null edit is not judged by those of an output.
    """
    picture, listed, count = picture_of(sample, turn), sample.extra.get(BOXES), len(sample.turns) + 1
    if picture is None or listed is None:
        return {}
    where = f"sample {sample.key!r}: column {BOXES!r}"
    if not isinstance(listed, list | tuple) or len(listed) != count:
        due = f"needs a list with an item for each of its {count} pictures, the base image first"
        raise DataError(f"{where} {due}; found {shown(listed)}")
    turn = 0 if picture == sample.source else turn
    names, where = listed[turn] if listed[turn] is not None else {}, f"{where}, item {turn}"
    if not isinstance(names, Mapping):
        raise DataError(f"{where}: expected an object from a name to its boxes, or null; found {listed[turn]!r}")
    size = {"width": picture.width, "height": picture.height}
    found: dict[str, list[Box]] = {}
    for name, boxes in names.items():
        try:
            quads = read_quads(boxes) if isinstance(boxes, list | tuple) else None
            if quads is None:
                raise ValueError(f"found {boxes!r}")
            inner = [inside(to_px(quad, "xyxy", **size), **size) for quad in quads]
        except ValueError as error:
            raise DataError(f"{where}, {name!r}: expected a list of boxes [x0, y0, x1, y1] in px: {error}") from error
        found.setdefault(spelled(name), []).extend(inner)
    return found
