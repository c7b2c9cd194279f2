"""Target objects and their share of the image, in two waves: a model names the object, then a detector finds it.

Boxes in the data are taken as they are, and nobody is asked. Samples that share source and instruction, as those of several
editors do, share one answer.

Reproduced:
- DLEBench, appendix 11: an LMM reads the instruction alone and names the object; "image" is the whole of it (Table 6);
- DLEBench, Figure 3: the area of the object's box ÷ the area of the image.

Differs:
- the wording of the prompt is ours, since the paper publishes none;
- of several boxes the best one counts; a detector's box is not checked by a person.

Not covered:
- several objects in one instruction: one is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, ClassVar, Final

from editloupe.answers import Boxes, FreeText, Text
from editloupe.findings import Finding
from editloupe.models.detect.search import means_whole_image
from editloupe.prompts import render
from editloupe.protocols.base import BaseProtocol, Group, Known, NoValue, Paper, score_of, whole
from editloupe.replies import one_line
from editloupe.scores import Interval, Metric, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import About, Task
from editloupe.values import Box, Sample

PROMPT: Final = "targets/name"
NAME: Final = "target_phrase"
PLACE: Final = "detect_target"
AREA: Final = "target_area"
WHOLE_IMAGE: Final = "image"

_WRAPPED: Final = "\"'`“”‘’«»<>[]*_ \t."


class Targets(BaseProtocol):
    """One area for each box of the data; without boxes one for each sample."""

    name = "targets"
    paper = Paper(title="DLEBench: evaluating small-scale object editing", url="https://arxiv.org/abs/2602.23622")
    roles: ClassVar[Mapping[str, str]] = {"judge": "names the object of an instruction"}
    outputs = False
    offers_tools = False
    metrics = (
        Metric(
            id=AREA,
            name="Target area",
            domain=Interval(low=0, high=1),
            better=None,
            unit="share of the image",
            source="DLEBench, Figure 3",
        ),
    )
    tables = (TableSpec(title="Target objects by their share of the image", rows="how", overall=True),)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the question for the object's name and, once it is known, the search for the object."""
        sample = _asked(group)
        if _boxes(sample):
            return
        prompt = render(PROMPT, instruction=one_line(sample.instruction))
        ask = self.question(NAME, sample, prompt, FreeText(max_words=12))
        yield ask
        name = known.answer(NAME, sample)
        if isinstance(name, Text) and (phrase := _bare(name)) != WHOLE_IMAGE:
            views = whole({"Original Image": sample.source})
            given = {"views": views, "args": {"phrase": phrase}, "rests_on": (ask.id,)}
            yield self.measurement(PLACE, sample, "detect_target", **given)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return the area of each target, with its name, its box in px and where they come from as dimensions."""
        asked = _asked(group)
        given = _boxes(asked)
        for sample in group:
            for number, (name, box) in enumerate(given, start=1):
                part = f"target {number}" if len(given) > 1 else ""
                yield _score(sample, box, how="boxes", part=part, phrase=name)
            if not given:
                yield _found(sample, known.finding(NAME, asked), known.finding(PLACE, asked))


def _found(sample: Sample, named: Finding | None, placed: Finding | None) -> Score:
    """Return the area by what was found out of the name and of the place."""
    findings = tuple(finding.task_id for finding in (named, placed) if finding is not None)
    phrase = _bare(named.answer) if named is not None and isinstance(named.answer, Text) else None
    score = partial(_score, sample, findings=findings, phrase=phrase)
    if phrase == WHOLE_IMAGE:
        return score(Box.whole(width=sample.source.width, height=sample.source.height), how="whole image")
    last = named if phrase is None else placed
    if last is None or not isinstance(last.answer, Text | Boxes):
        return score(NoValue.of(last))
    if not isinstance(last.answer, Boxes) or not last.answer.boxes:
        why = "no box reached the detector's least score, in the image or its tiles"
        return score(NoValue("not_defined", why), detections=0)
    boxes = last.answer.boxes
    box = boxes[0].scaled(sample.source.width / 1000, sample.source.height / 1000)
    sure = None if last.answer.confidence is None else round(last.answer.confidence.value, 4)
    return score(box, how="detector", score=sure, detections=len(boxes))


def _score(sample: Sample, found: Box | NoValue, *, part: str = "", findings: tuple[str, ...] = (), **dims: Any) -> Score:
    """Return the share of the source image that a box takes, as far as it lies inside."""
    size = {"width": sample.source.width, "height": sample.source.height}
    value: float | NoValue
    if isinstance(found, NoValue):
        value = found
    else:
        value = found.clipped(**size).area / Box.whole(**size).area
        dims |= {name: round(v, 2) for name, v in zip(("x0", "y0", "x1", "y1"), found, strict=True)}
    return score_of(AREA, About.of(sample, part=part), value, findings=findings, dims=dims)


def _asked(group: Group) -> Sample:
    """Return the sample that stands for its group: one with boxes, where there is one."""
    return next((sample for sample in group if _boxes(sample)), group[0])


def _boxes(sample: Sample) -> list[tuple[str | None, Box]]:
    return [(target.name, target.boxes["source"]) for target in sample.targets if "source" in target.boxes]


def _bare(name: Text) -> str:
    """Return an object's name without article, quotes and brackets; WHOLE_IMAGE for the whole image."""
    bare = re.sub(r"^(the|an?)\s+", "", name.text.strip(_WRAPPED), flags=re.IGNORECASE).strip(_WRAPPED)
    return WHOLE_IMAGE if means_whole_image(bare) else bare
