"""DICE: what changed, and was it asked for. A detector lists differences, then each is asked about by itself.

The detector never sees the instruction (Eq. 3). A sample has a correct edit if at least one difference was asked for; its
unwanted area is the union of the boxes of the others (section 4.2, Table 3).

Reproduced: the two questions in their order, confidences from the probabilities of the commands, boxes drawn in the paper's
colours, the figures of Tables 1 to 4, CLIP on patched images. The published weights answer through the backend
`transformers/FOLDER`. Differs: boxes are drawn on both images (marks=paper has the paper's way), prompts are in our own
words, and a reply is read entry by entry. Not covered: the paper's data set DICE-D, which is not published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field, model_validator

from editloupe.answers import YES_NO, Choice, Number
from editloupe.data.boxes import known_format
from editloupe.imaging.targets import covered_area
from editloupe.prompts import TemplateOption, render
from editloupe.protocols.base import BaseProtocol, Group, Known, Paper, missing_output
from editloupe.protocols.dice.differences import (
    DIFFERENCES,
    OPS,
    ConfidenceSource,
    Detected,
    Difference,
    Op,
    detected,
    given,
    record,
)
from editloupe.protocols.dice.patching import Areas, PatchOptions, patch_metrics, plan_patches, score_patches
from editloupe.protocols.dice.tables import rating_dims, tables
from editloupe.protocols.labelled_boxes import LabelledBoxes
from editloupe.replies import one_line
from editloupe.scores import NOT_JUDGED, Binary, Interval, Metric, Score
from editloupe.tasks import About, Ask, Budget, Measure, Recipe, Task
from editloupe.values import Box, ImageRef, Json, Sample

DETECTOR: Final = "detector"
COHERENCE: Final = "coherence"
"""Roles. The second is also the question of its role, one a difference."""
IN_MASK: Final = "mask_share"
"""The question that stands in for coherence where a mask says what was asked for."""

CORRECT: Final = "correct"
UNWANTED: Final = "unwanted"
NO_CHANGE: Final = "no_change"
DETECTED: Final = "detected"
GIVEN: Final = "given"
RIGHT: Final = "coherence_right"

EDITED: Final = "Edited Image"
ORIGINAL: Final = "Original Image"

COLORS: Final[Mapping[Op, tuple[str, tuple[int, int, int]]]] = {
    "ADD": ("red", (255, 0, 0)),
    "EDIT": ("green", (0, 255, 0)),
    "REMOVE": ("blue", (0, 0, 255)),
}
"""In which a box is drawn (section 3.3)."""
_MARKED: Final[Mapping[str, Mapping[Op, tuple[str, ...]]]] = {
    "both": dict.fromkeys(OPS, (ORIGINAL, EDITED)),
    "paper": {"ADD": (EDITED,), "EDIT": (ORIGINAL,), "REMOVE": (ORIGINAL,)},
    "official": {"ADD": (EDITED,), "EDIT": (EDITED,), "REMOVE": (ORIGINAL,)},
}
"""On which images."""
_SAID: Final[Mapping[Op, str]] = {
    "ADD": "something was added",
    "EDIT": "something looks different",
    "REMOVE": "something was removed",
}
_LINE_SHARE: Final = 170
"""A line is this part of the shorter side wide, at least 2 px, so that pictures of any size look alike."""

_LONGEST_NAME: Final = 120
"""Characters of an object's name in a question. The score has all of it."""


class DICEOptions(PatchOptions):
    """What a run may set."""

    mode: Literal["plain", "tool"] = "plain"
    """plain: a model has one look, as in the paper. tool: it is an agent with tools."""
    detector: Literal["lmm", "localize", "given"] = "lmm"
    """Who lists differences: a model; the embedded comparison of pixels, without words; or the data's column."""
    coherence: Literal["judge", "mask"] = "judge"
    """Who says what was asked for: a model, or the mask of the edit, inside which change was allowed."""
    form: Literal["json", "lines"] = "json"
    """How a model lists differences: json, or lines as in the paper."""
    confidence: Literal["logprob", "asked", "none"] = "logprob"
    """Of a model: from token probabilities where the backend has them; asked for, with form=json; or none."""
    marks: Literal["both", "paper", "official"] = "both"
    """Images with the box: both; paper, the edited one of ADD, else the original; official, EDIT on the edited one."""
    max_differences: Annotated[int, Field(ge=1)] = 20
    """Most differences that are judged, surest first, else largest first. Scores say how many were left out."""
    mask_threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Least share of a difference inside the mask, with coherence=mask."""
    skip_identical: bool = False
    """Ask no detector about two images of the same bytes: nothing changed."""
    given_boxes: Annotated[str, AfterValidator(known_format)] = "unit"
    """How boxes of the column `differences` are written: unit (0 to 1), thousandths, xyxy in px of the source, …"""
    area_side: Annotated[int, Field(ge=32)] | None = None
    """Table 1 counts areas as those of images of so many px a side, such as 512. Default: the source's own size."""
    detector_prompt: TemplateOption = None
    """Your own template (.md) of the detector's question, without variables. Trained detectors know their own wording."""
    coherence_prompt: TemplateOption = None
    """Your own template (.md) of the other question: `instruction`, `op`, `change`, `object`, `color`, `marked`."""

    @model_validator(mode="after")
    def _asked_in_json(self) -> DICEOptions:
        if self.form == "lines" and self.confidence == "asked":
            raise ValueError(
                "confidence=asked needs form=json: a line has no place for it; choose logprob or none, or form=json"
            )
        return self


@dataclass(frozen=True, kw_only=True)
class _Judged:
    """One difference and what is known of it."""

    number: int
    """From 1, in the detector's order."""
    difference: Difference
    coherent: bool | None = None
    status: str | None = NOT_JUDGED
    """Why `coherent` is missing; None where it is not."""
    reason: str = ""
    findings: tuple[str, ...] = ()
    left_out: bool = False
    """Whether it is one too many for max_differences."""

    @property
    def part(self) -> str:
        return f"difference {self.number}"


class DICE(BaseProtocol):
    """Wave 1 lists the differences of a sample, wave 2 asks about each."""

    name = "dice"
    paper = Paper(
        title="What Changed? Detecting and Evaluating Instruction-Guided Image Edits with Multimodal LLMs",
        url="https://arxiv.org/abs/2505.20405",
    )
    Options = DICEOptions
    roles: ClassVar = {
        DETECTOR: "lists what differs, without the instruction; with detector=lmm alone",
        COHERENCE: "says of each difference whether it was asked for; with coherence=judge alone",
    }

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        given_: DICEOptions = self.options
        # A run names no backend for a role that it does not ask.
        wanted = {DETECTOR: given_.detector == "lmm", COHERENCE: given_.coherence == "judge"}
        self.roles = {role: does for role, does in DICE.roles.items() if wanted[role]}  # type: ignore[misc]
        share = Interval(low=0, high=1)
        self.metrics = [
            Metric(id=CORRECT, name="Correct edit", short="Correct", domain=Binary(), source="Table 3", concerns="target"),
            Metric(
                id=UNWANTED,
                name="Unwanted area",
                short="Unwanted",
                domain=share,
                better="lower",
                unit="of the image",
                source="Table 3",
                concerns="surroundings",
            ),
            Metric(id=NO_CHANGE, name="No change", domain=Binary(), better="lower", source="Table 3"),
            Metric(id=COHERENCE, name="Coherent difference", short="Coherent", domain=Binary(), source="Eq. 2"),
            Metric(id=DETECTED, name="Area of a difference", short="Area", domain=share, better=None, unit="of the image"),
            Metric(id=GIVEN, name="Area of a given difference", domain=share, better=None, unit="of the image"),
            Metric(id=RIGHT, name="Coherence as people say", short="Right", domain=Binary(), source="Table 2"),
            *patch_metrics(given_),
        ]
        self.of_some = frozenset(metric.id for metric in self.metrics[3:])  # type: ignore[misc]
        self.tables = tables(given_.detector, side=given_.area_side)

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError for given differences that cannot be read."""
        for sample in samples:
            given(sample, self.options.given_boxes)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the detector's task of each sample and, once that has ended, a task for each difference."""
        for sample in group:
            first = self._detection(sample)
            yield first
            found = self._detected(sample, known)
            judged = [] if found is None else self._judged(sample, found, known)
            for one in judged:
                if not one.left_out:
                    yield self._question(sample, one, first)
            yield from plan_patches(self.name, sample, self._areas(sample, known), self.options)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return what changed and was asked for, for the sample and for each difference, and what was measured."""
        for sample in group:
            yield from self._scores(sample, known)

    def _detection(self, sample: Sample) -> Task:
        """Return the task that lists what differs."""
        about, options = About.of(sample), self.options
        images = {ORIGINAL: sample.source} | ({} if sample.edited is None else {EDITED: sample.edited})
        views = tuple(Recipe(alias=alias, origin=image) for alias, image in images.items())
        blocked = missing_output(sample)
        if options.detector == "given":
            listed = given(sample, options.given_boxes)
            if listed is None and blocked is None:
                blocked = ("input_error", f"the data gives no column {DIFFERENCES!r} for this sample")
            return self._answered(about, listed or [], blocked=blocked)
        if options.skip_identical and sample.edited is not None and sample.edited.sha256 == sample.source.sha256:
            return self._answered(about, [])
        if options.detector == "localize":
            named = {"source": sample.source} | ({} if sample.edited is None else {"edited": sample.edited})
            return Measure(
                protocol=self.name,
                metric=DIFFERENCES,
                about=about,
                measure="difference_regions",
                views=tuple(Recipe(alias=alias, origin=image) for alias, image in named.items()),
                blocked=blocked,
            )
        return Ask(
            protocol=self.name,
            metric=DIFFERENCES,
            about=about,
            role=DETECTOR,
            prompt=render(options.detector_prompt or "dice/differences"),
            views=views,
            answer=LabelledBoxes(
                labels=OPS,
                list_key=DIFFERENCES,
                label_key="op",
                name_key="object",
                form=options.form,
                asks_confidence=options.confidence == "asked",
                wants_logprobs=options.confidence == "logprob",
                image=EDITED,
                none="no change",
            ),
            tools=self.tools,
            budget=self.budget,
            blocked=blocked,
        )

    def _answered(self, about: About, listed: Sequence[Difference], **more: Any) -> Measure:
        """Return the task whose answer is known."""
        source: ConfidenceSource | None = "detector" if any(one.confidence is not None for one in listed) else None
        args: dict[str, Json] = {"answer": record(listed, source).to_json()}
        return Measure(protocol=self.name, metric=DIFFERENCES, about=about, measure="key", args=args, **more)

    def _detected(self, sample: Sample, known: Known) -> Detected | None:
        finding = known.finding(DIFFERENCES, sample)
        return None if finding is None else detected(finding)

    def _question(self, sample: Sample, one: _Judged, first: Task) -> Task:
        """Return the task that says whether a difference was asked for."""
        about = About.of(sample, part=one.part)
        assert sample.edited is not None  # without it nothing is detected
        if self.options.coherence == "mask":
            mask = sample.masks.get("edit")
            images = {"source": sample.source, "edited": sample.edited} | ({} if mask is None else {"mask": mask})
            return Measure(
                protocol=self.name,
                metric=IN_MASK,
                about=about,
                measure="mask_share",
                args={"box": _thousandths(one.difference.box), "of": "changed"},
                views=tuple(Recipe(alias=alias, origin=image) for alias, image in images.items()),
                rests_on=(first.id,),
                blocked=("not_defined", "the sample has no mask of the edit") if mask is None else None,
            )
        op = one.difference.op
        on = _MARKED[self.options.marks][op]
        color, rgb = COLORS[op]
        prompt = render(
            self.options.coherence_prompt or "dice/coherence",
            instruction=one_line(sample.instruction),
            op=op,
            change=_SAID[op],
            object=_hint(one.difference.object),
            color=color,
            marked=" and ".join(on),
        )
        images = {ORIGINAL: sample.source, EDITED: sample.edited}
        return Ask(
            protocol=self.name,
            metric=COHERENCE,
            about=about,
            role=COHERENCE,
            prompt=prompt,
            views=tuple(_view(alias, image, one.difference.box, rgb, drawn=alias in on) for alias, image in images.items()),
            answer=YES_NO,
            tools=self.tools,
            budget=self.budget,
            rests_on=(first.id,),
        )

    def _judged(self, sample: Sample, found: Detected, known: Known) -> list[_Judged]:
        """Return each difference with what is known of it, in the detector's order."""
        order = sorted(
            range(len(found.differences)),
            key=lambda i: (-(found.differences[i].confidence or 0.0), -found.differences[i].box.area, i),
        )
        kept = set(order[: self.options.max_differences])
        return [
            self._verdict(sample, number, one, known)
            if number - 1 in kept
            else _Judged(number=number, difference=one, left_out=True, reason="left out by max_differences")
            for number, one in enumerate(found.differences, start=1)
        ]

    def _verdict(self, sample: Sample, number: int, difference: Difference, known: Known) -> _Judged:
        about = About.of(sample, part=f"difference {number}")
        finding = known.finding(IN_MASK if self.options.coherence == "mask" else COHERENCE, about)
        if finding is None:
            return _Judged(number=number, difference=difference)
        said: bool | None = None
        if isinstance(finding.answer, Number):
            said = finding.answer.value >= self.options.mask_threshold
        elif isinstance(finding.answer, Choice):
            said = {"yes": True, "no": False}.get(finding.answer.name)
        status = None if said is not None else "off_menu" if finding.status == "ok" else finding.status
        return _Judged(
            number=number,
            difference=difference,
            coherent=said,
            status=status,
            reason=finding.reason,
            findings=(finding.task_id,),
        )

    def _scores(self, sample: Sample, known: Known) -> Iterator[Score]:
        truth = given(sample, self.options.given_boxes)
        areas = _of_people(truth)
        # Where people say that nothing changed, no area tells the tables so.
        count: dict[str, int | None] = {"areas_given": None if areas is None else len(areas)}
        yield from _given_scores(sample, areas or [])
        dims = {**_dims(sample), **rating_dims(sample)}
        yield from score_patches(sample, known, self._areas(sample, known), self.options, dims)
        finding, found = known.finding(DIFFERENCES, sample), self._detected(sample, known)
        if finding is None or found is None:
            unread = "input_error" if finding is not None and finding.status == "ok" else None
            for metric in (CORRECT, UNWANTED, NO_CHANGE):
                more_dims = count if metric == NO_CHANGE else {}
                score = self.missing(metric, sample, known, question=DIFFERENCES, dims={**dims, **more_dims})
                yield score if unread is None else Score(**{**vars(score), "missing": unread})
            return
        judged = self._judged(sample, found, known)
        yield from self._of_sample(sample, judged, finding.task_id, count)
        for one in judged:
            own: dict[str, str | int | float | None] = {
                **_place(sample, one.difference),
                "confidence": one.difference.confidence,
            }
            own["confidence_source"] = found.source
            about = vars(About.of(sample, part=one.part))
            yield Score(
                **about, metric=DETECTED, value=min(1.0, one.difference.box.area), findings=(finding.task_id,), dims=own
            )
            if one.left_out:
                continue
            value = None if one.coherent is None else float(one.coherent)
            more: dict[str, Any] = {"missing": one.status, "reason": one.reason, "findings": one.findings}
            yield Score(**about, metric=COHERENCE, value=value, dims=own, **more)
            people = truth[one.number - 1].coherent if truth is not None and self.options.detector == "given" else None
            if people is not None:
                right = None if one.coherent is None else float(one.coherent == people)
                yield Score(**about, metric=RIGHT, value=right, dims={**own, "coherent": int(people)}, **more)

    def _areas(self, sample: Sample, known: Known) -> Areas:
        """Return the differences that are judged, for the measures on patched images."""
        finding, found = known.finding(DIFFERENCES, sample), self._detected(sample, known)
        if finding is None:
            return Areas()
        if found is None:
            status = "input_error" if finding.status == "ok" else finding.status
            return Areas(detection=(finding.task_id,), missing=(status, finding.reason))
        asked = [one for one in self._judged(sample, found, known) if not one.left_out]
        failed = next((one for one in asked if one.coherent is None), None)
        ended = failed is None or failed.status == NOT_JUDGED
        return Areas(
            differences=[one.difference for one in asked],
            coherent=[bool(one.coherent) for one in asked] if failed is None else None,
            detection=(finding.task_id,),
            coherence=tuple(id_ for one in asked for id_ in one.findings),
            missing=None if failed is None or ended else (str(failed.status), failed.reason),
        )

    def _of_sample(
        self, sample: Sample, judged: Sequence[_Judged], first: str, count: Mapping[str, int | None]
    ) -> Iterator[Score]:
        """Return the three figures of Table 3 for one sample.   count: `areas_given`, a dimension of `no_change`."""
        asked = [one for one in judged if not one.left_out]
        out = len(judged) - len(asked)
        findings = (first, *(id_ for one in asked for id_ in one.findings))
        note = f"{out} of {len(judged)} differences were left out by max_differences={self.options.max_differences}"
        parts = tuple({True: "coherent", False: "incoherent"}.get(one.coherent, f"[{one.status}]") for one in asked)  # type: ignore[arg-type]
        about = {
            **vars(About.of(sample)),
            "findings": findings,
            "parts": parts,
            "dims": {**_dims(sample), **rating_dims(sample), "left_out": out},
        }
        failed = next((one for one in asked if one.coherent is None), None)
        why: dict[str, Any] = {}
        if failed is not None:
            why = {"missing": failed.status, "reason": f"{failed.part}: {failed.reason}".rstrip(": ")}
        if any(one.coherent for one in asked):
            yield Score(**about, metric=CORRECT, value=1.0)
        elif failed is not None:
            yield Score(**about, metric=CORRECT, value=None, **why)
        else:
            yield Score(**about, metric=CORRECT, value=0.0, reason=note if out else "")
        if failed is not None:
            yield Score(**about, metric=UNWANTED, value=None, **why)
        else:
            area = min(1.0, covered_area([one.difference.box for one in asked if not one.coherent]))
            yield Score(**about, metric=UNWANTED, value=area, reason=note if out else "")
        about["dims"] = {**about["dims"], **count}
        yield Score(**about, metric=NO_CHANGE, value=float(not judged))


def _of_people(listed: Sequence[Difference] | None) -> list[Difference] | None:
    """Return the areas that people gave; None where they gave no list, also where a detector wrote all of it."""
    areas = [one for one in listed or () if one.confidence is None]
    return areas if areas or listed == [] else None


def _given_scores(sample: Sample, truth: Sequence[Difference]) -> Iterator[Score]:
    """Yield a score for each area that people gave, by which tables judge the detector."""
    for number, one in enumerate(truth, start=1):
        dims = {**_place(sample, one), "coherent": None if one.coherent is None else int(one.coherent)}
        about = vars(About.of(sample, part=f"area {number}"))
        yield Score(**about, metric=GIVEN, value=min(1.0, one.box.area), dims=dims)


def _view(alias: str, image: ImageRef, box: Box, rgb: tuple[int, int, int], *, drawn: bool) -> Recipe:
    """Return the view of an image, with the box drawn on it or without."""
    if not drawn:
        return Recipe(alias=alias, origin=image)
    size = {"width": image.width, "height": image.height}
    place: list[Json] = list(box.scaled(image.width, image.height).clipped(**size).rounded_out())
    width = max(2, round(min(image.width, image.height) / _LINE_SHARE))
    return Recipe(alias=alias, origin=image, op="outline", params={"boxes": [place], "color": list(rgb), "width": width})


def _hint(name: str) -> str:
    """Return a detector's name of an object as it may stand between quotation marks: on one line, and no long text."""
    said = one_line(name.replace('"', "'"))
    return said if len(said) <= _LONGEST_NAME else f"{said[:_LONGEST_NAME]}…"


def _place(sample: Sample, one: Difference) -> dict[str, str | int | float | None]:
    box = dict(zip(("x0", "y0", "x1", "y1"), one.box, strict=True))
    size = {"width": sample.source.width, "height": sample.source.height}
    return {**_dims(sample), "op": one.op, "object": one.object, **box, **size}


def _thousandths(box: Box) -> list[Json]:
    return [round(v * 1000, 3) for v in box]


def _dims(sample: Sample) -> dict[str, str | int | float | None]:
    return {"edit_type": sample.edit_type}
