"""DICE: what changed, and was it asked for. A detector lists differences, then each is asked about by itself.

The detector never sees the instruction (Eq. 3). A sample has a correct edit if at least one difference was asked for; its
unwanted area is the union of the boxes of the others (section 4.2, Table 3).

Reproduced: the two questions in their order, confidences from the probabilities of the commands, boxes drawn in the paper's
colors, the figures of Tables 1 to 4, CLIP on patched images. The published weights answer through the backend
`transformers/FOLDER`. Differs: boxes are drawn on both images (marks=paper has the paper's way), prompts are in our own
words, and a reply is read entry by entry. Not covered: the paper's data set DICE-D, which is not published.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from editloupe.answers import YES_NO, Choice, Number
from editloupe.config import Words
from editloupe.imaging.targets import covered_area
from editloupe.prompts import TemplateOption, render
from editloupe.protocols.base import (
    BaseProtocol,
    Group,
    Known,
    NoValue,
    Options,
    Paper,
    missing_output,
    score_of,
    some_of,
    whole,
)
from editloupe.protocols.dice.differences import (
    DIFFERENCES,
    OPS,
    Difference,
    JudgedDifference,
    Op,
    SampleDifferences,
    detected,
    given,
    record,
)
from editloupe.protocols.dice.patching import PATCHES, patch_metrics, plan_patches, score_patches
from editloupe.protocols.dice.tables import rating_dims, tables
from editloupe.protocols.labeled_boxes import LabeledBoxes
from editloupe.replies import one_line
from editloupe.scores import Binary, Interval, Metric, Score
from editloupe.tasks import About, Budget, Recipe, Task
from editloupe.values import Box, ImageRef, Json, Sample

DETECTOR: Final = "detector"
COHERENCE: Final = "coherence"
"""Roles. The second is also the question of its role, one a difference."""
IN_MASK: Final = "mask_share"
"""The question that stands in for coherence where a mask says what was asked for."""

EDITED: Final = "Edited Image"
ORIGINAL: Final = "Original Image"

_DRAWN: Final[Mapping[Op, tuple[str, tuple[int, int, int], str]]] = {
    "ADD": ("red", (255, 0, 0), "something was added"),
    "EDIT": ("green", (0, 255, 0), "something looks different"),
    "REMOVE": ("blue", (0, 0, 255), "something was removed"),
}
"""Op → the color in which its box is drawn (section 3.3), its RGB, and what happened, in words."""
_MARKED: Final[Mapping[str, Mapping[Op, tuple[str, ...]]]] = {
    "both": dict.fromkeys(OPS, (ORIGINAL, EDITED)),
    "paper": {"ADD": (EDITED,), "EDIT": (ORIGINAL,), "REMOVE": (ORIGINAL,)},
    "official": {"ADD": (EDITED,), "EDIT": (EDITED,), "REMOVE": (ORIGINAL,)},
}
"""On which images."""
_LINE_SHARE: Final = 170
"""A line is this part of the shorter side wide, at least 2 px, so that pictures of any size look alike."""
_LONGEST_NAME: Final = 120
"""Characters of an object's name in a question. The score has all of it."""

_yes_or_no: Final = partial(Metric, domain=Binary())
_share: Final = partial(Metric, domain=Interval(low=0, high=1), unit="of the image")
OF_SAMPLES: Final = (
    _yes_or_no(id="correct", name="Correct edit", short="Correct", source="Table 3", concerns="target"),
    _share(
        id="unwanted", name="Unwanted area", short="Unwanted", better="lower", source="Table 3", concerns="surroundings"
    ),
    _yes_or_no(id="no_change", name="No change", better="lower", source="Table 3"),
)
OF_DIFFERENCES: Final = (
    _yes_or_no(id=COHERENCE, name="Coherent difference", short="Coherent", source="Eq. 2"),
    _share(id="detected", name="Area of a difference", short="Area", better=None),
    _share(id="given", name="Area of a given difference", better=None),
    _yes_or_no(id="coherence_right", name="Coherence as people say", short="Right", source="Table 2"),
)


class DICEOptions(Options):
    """What a run may set."""

    gone: ClassVar[Mapping[str, Json]] = {"given_boxes": "unit", "area_side": None}
    patch: Annotated[Words, some_of("patch", PATCHES)] = ()
    """Comma-separated, for CLIP-I and CLIP-T: none, coherent, incoherent, all, random. Default: CLIP is not measured."""
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
        chosen: DICEOptions = self.options
        # A run names no backend for a role that it does not ask.
        wanted = {DETECTOR: chosen.detector == "lmm", COHERENCE: chosen.coherence == "judge"}
        self.roles = {role: does for role, does in DICE.roles.items() if wanted[role]}  # type: ignore[misc]
        of_some = (*OF_DIFFERENCES, *patch_metrics(chosen.patch))
        self.metrics = (*OF_SAMPLES, *of_some)
        self.of_some = frozenset(metric.id for metric in of_some)  # type: ignore[misc]
        self.tables = tables(chosen.detector, patches=chosen.patch)

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError for given differences that cannot be read."""
        for sample in samples:
            given(sample)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the detector's task of each sample and, once that has ended, a task for each difference."""
        for sample in group:
            first = self._detection(sample)
            yield first
            listed = self._listed(sample, known)
            ask = self._coherence if self.options.coherence == "judge" else self._in_mask
            yield from (ask(sample, one, first) for one in listed.asked)
            yield from plan_patches(self.name, sample, listed, self.options.patch)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return what changed and was asked for, for the sample and for each difference, and what was measured."""
        for sample in group:
            listed, truth = self._listed(sample, known), given(sample)
            areas = _of_people(truth)
            yield from _given_scores(sample, areas or [])
            # Where people say that nothing changed, no area tells the tables so: the number does.
            dims: dict[str, Any] = {"edit_type": sample.edit_type, **rating_dims(sample)}
            yield from score_patches(sample, known, listed, self.options.patch, dims)
            yield from self._of_sample(sample, listed, {**dims, "areas_given": None if areas is None else len(areas)})
            told = truth if truth is not None and self.options.detector == "given" else None
            for one in listed.differences or ():
                yield from _of_difference(sample, one, listed, None if told is None else told[one.number - 1].coherent)

    def _detection(self, sample: Sample) -> Task:
        """Return the task that lists what differs."""
        options, blocked = self.options, missing_output(sample)
        measured = partial(self.measurement, DIFFERENCES, sample)
        if options.detector == "given":
            listed = given(sample)
            if listed is None and blocked is None:
                blocked = ("input_error", f"the data gives no column {DIFFERENCES!r} for this sample")
            return measured("key", args={"answer": record(listed or []).to_json()}, blocked=blocked)
        if options.detector == "localize":
            views = whole({"source": sample.source, "edited": sample.edited})
            return measured("difference_regions", views=views, blocked=blocked)
        answer = LabeledBoxes(
            labels=OPS,
            list_key=DIFFERENCES,
            label_key="op",
            name_key="object",
            form=options.form,
            asks_confidence=options.confidence == "asked",
            wants_logprobs=options.confidence == "logprob",
            image=EDITED,
            none="no change",
        )
        prompt = render(options.detector_prompt or "dice/differences")
        views = whole({ORIGINAL: sample.source, EDITED: sample.edited})
        return self.question(DIFFERENCES, sample, prompt, answer, views, role=DETECTOR, blocked=blocked)

    def _coherence(self, sample: Sample, one: JudgedDifference, first: Task) -> Task:
        """Return the question whether a difference was asked for."""
        difference = one.difference
        on, (color, rgb, change) = _MARKED[self.options.marks][difference.op], _DRAWN[difference.op]
        assert sample.edited is not None  # without it nothing is detected
        images = {ORIGINAL: sample.source, EDITED: sample.edited}
        prompt = render(
            self.options.coherence_prompt or "dice/coherence",
            instruction=one_line(sample.instruction),
            op=difference.op,
            change=change,
            object=_hint(difference.object),
            color=color,
            marked=" and ".join(on),
        )
        view = partial(_view, box=difference.box, rgb=rgb)
        views = [view(alias, image, drawn=alias in on) for alias, image in images.items()]
        about, more = About.of(sample, part=one.part), {"role": COHERENCE, "rests_on": (first.id,)}
        return self.question(COHERENCE, about, prompt, YES_NO, views, **more)

    def _in_mask(self, sample: Sample, one: JudgedDifference, first: Task) -> Task:
        """Return the measure of how much of a difference lies where change was allowed."""
        mask, box = sample.masks.get("edit"), one.difference.box
        return self.measurement(
            IN_MASK,
            About.of(sample, part=one.part),
            "mask_share",
            args={"box": [round(v * 1000, 3) for v in box], "of": "changed"},
            views=whole({"source": sample.source, "edited": sample.edited, "mask": mask}),
            rests_on=(first.id,),
            blocked=("not_defined", "the sample has no mask of the edit") if mask is None else None,
        )

    def _listed(self, sample: Sample, known: Known) -> SampleDifferences:
        """Return what is known of a sample's differences."""
        detection = known.finding(DIFFERENCES, sample)
        found = None if detection is None else detected(detection)
        if found is None:
            return SampleDifferences(detection=detection)
        numbered = dict(enumerate(found.differences, start=1))
        surest = sorted(numbered, key=lambda n: (-(numbered[n].confidence or 0.0), -numbered[n].box.area))
        kept = {*surest[: self.options.max_differences]}
        judged = [
            self._judged(sample, n, one, known) if n in kept else JudgedDifference(number=n, difference=one, left_out=True)
            for n, one in numbered.items()
        ]
        return SampleDifferences(detection=detection, differences=tuple(judged), source=found.source)

    def _judged(self, sample: Sample, number: int, difference: Difference, known: Known) -> JudgedDifference:
        """Return a difference with the verdict on it."""
        one = JudgedDifference(number=number, difference=difference)
        question = COHERENCE if self.options.coherence == "judge" else IN_MASK
        finding = known.finding(question, About.of(sample, part=one.part))
        if finding is None:
            return one
        said: bool | None = None
        if isinstance(finding.answer, Number):
            said = finding.answer.value >= self.options.mask_threshold
        elif isinstance(finding.answer, Choice):
            said = {"yes": True, "no": False}.get(finding.answer.name)
        status = None if said is not None else "off_menu" if finding.status == "ok" else finding.status
        why: dict[str, Any] = {"status": status, "reason": finding.reason, "findings": (finding.task_id,)}
        return JudgedDifference(number=number, difference=difference, coherent=said, **why)

    def _of_sample(self, sample: Sample, listed: SampleDifferences, dims: Mapping[str, Any]) -> Iterator[Score]:
        """Return the three figures of Table 3 for one sample."""
        ids = (*listed.detection_id, *listed.coherence_ids)
        if listed.differences is None:
            for metric in OF_SAMPLES:
                yield score_of(metric.id, sample, listed.missing, findings=ids, dims=dims)
            return
        asked, failed, count = listed.asked, listed.failed, len(listed.differences)
        none = failed and NoValue(str(failed.status), f"{failed.part}: {failed.reason}".rstrip(": "))
        unwanted = [one.difference.box for one in asked if not one.coherent]
        values: dict[str, float | NoValue] = {
            "correct": 1.0 if any(one.coherent for one in asked) else none or 0.0,
            "unwanted": none or min(1.0, covered_area(unwanted)),
            "no_change": float(not count),
        }
        out, most = count - len(asked), self.options.max_differences
        note = f"{out} of {count} differences were left out by max_differences={most}" if out else ""
        notes = {"correct": note if values["correct"] == 0 else "", "unwanted": note}
        shared: dict[str, Any] = {"findings": ids, "parts": tuple(one.said for one in asked)}
        for id_, value in values.items():
            reason = value.reason if isinstance(value, NoValue) else notes.get(id_, "")
            yield score_of(id_, sample, value, reason=reason, dims={**dims, "left_out": out}, **shared)


def _of_difference(
    sample: Sample, one: JudgedDifference, listed: SampleDifferences, people: bool | None
) -> Iterator[Score]:
    """Return the area of a difference, whether it was asked for, and whether people say so too.

    people: what they say; None where they do not.
    """
    about, sure = vars(About.of(sample, part=one.part)), one.difference.confidence
    dims: dict[str, Any] = {**_place(sample, one.difference), "confidence": sure, "confidence_source": listed.source}
    area = min(1.0, one.difference.box.area)
    yield Score(**about, metric="detected", value=area, findings=listed.detection_id, dims=dims)
    if one.left_out:
        return
    more: dict[str, Any] = {"missing": one.status, "reason": one.reason, "findings": one.findings}
    yield Score(**about, metric=COHERENCE, value=None if one.coherent is None else float(one.coherent), dims=dims, **more)
    if people is not None:
        right = None if one.coherent is None else float(one.coherent == people)
        kind = "coherent" if people else "incoherent"
        yield Score(**about, metric="coherence_right", value=right, dims={**dims, "given_kind": kind}, **more)


def _of_people(listed: Sequence[Difference] | None) -> list[Difference] | None:
    """Return the areas that people gave; None where they gave no list, also where a detector wrote all of it."""
    areas = [one for one in listed or () if one.confidence is None]
    return areas if areas or listed == [] else None


def _given_scores(sample: Sample, truth: Sequence[Difference]) -> Iterator[Score]:
    """Yield a score for each area that people gave, by which tables judge the detector."""
    for number, one in enumerate(truth, start=1):
        dims = {**_place(sample, one), "coherent": None if one.coherent is None else int(one.coherent)}
        about = vars(About.of(sample, part=f"area {number}"))
        yield Score(**about, metric="given", value=min(1.0, one.box.area), dims=dims)


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
    return {"edit_type": sample.edit_type, "op": one.op, "object": one.object, **box, **size}
