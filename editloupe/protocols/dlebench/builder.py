"""DLEBench's own making: small targets of an image, an instruction for each, and a reference image edited in a crop.

The role `describe` names small things, a detector confirms their boxes, the role `instruct` writes what is to be edited,
and an image editor edits the crop about the target. What is drawn at random follows from the seed and the image's content.

Reproduced:
- the metadata (paper, 3.1): source caption, target, type, instruction and reference caption, from a question with its
  answer and a wrong option where the data has one;
- the reference image (3.1, Eq. 1): edited in a crop about the target's boxes and put back;
- what people verify (3.1): boxes, texts and reference, which is made again at the most three times (`dlebench-review`).

Differs:
- the prompts are ours;
- the paper starts from questions about images; here a model names targets where the data has no question, and the type of
  an edit is drawn where the target allows it;
- the paper's boxes are drawn by people; here a detector confirms the model's, unless the data has boxes;
- the seam of a crop that was put back is measured, and blended where it would show;
- a crop in which the editor changed nothing, or that came back in another shape, is made again before anybody sees it.

Not covered:
- the choice of images; faces and licence plates in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import Field

from editloupe.answers import Record
from editloupe.config import Whole
from editloupe.findings import FAILURES, Finding
from editloupe.imaging.targets import covered_area
from editloupe.measures.crop_edit import MOST_SEAM, SEAM
from editloupe.protocols.base import BaseProtocol, Group, Known, Options
from editloupe.protocols.builders import Lost
from editloupe.protocols.dlebench import generate
from editloupe.protocols.dlebench.generate import Metadata, Question, Target
from editloupe.protocols.dlebench.protocol import PAPER
from editloupe.protocols.reviews import Verdict, verdicts_of
from editloupe.scores import NOT_JUDGED, Metric, Real, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import About, Ask, Budget, Measure, Recipe, Task
from editloupe.values import Box, ImageRef, Json, Sample, box_from_json

DESCRIBE: Final = "describe"
INSTRUCT: Final = "instruct"

CAPTION: Final = "caption"
TARGETS: Final = "targets"
NAME: Final = "target_name"
"""Questions of the role `describe`."""
DETECTIONS: Final = "detections"
"""The search for a target; its part is the name. Also the name of the measure."""
METADATA: Final = "metadata"
"""The question of the role `instruct`; its part is "target 2"."""
REFERENCE: Final = "reference"
"""The edit of a crop; its part is "target 2, try 1"."""

LISTED: Final = "targets_listed"
SMALL: Final = "targets_small"
INSTRUCTIONS: Final = "instructions"
REFERENCES: Final = "references"

Share = Annotated[float, Field(ge=0, le=1)]
Stage = Literal["described", "listed", "grounded", "small", "instructed", "edited", "reviewed"]


class DLEBenchBuildOptions(Options):
    """What a run may set."""

    most_targets: Annotated[Whole, Field(ge=1, le=20)] = 3
    """Most targets of an image."""
    grounding: Literal["detector", "given", "model"] = "detector"
    """Whose boxes count where the data has none: a detector's that agree with the model's, nobody's, or the model's own."""
    box_threshold: Annotated[float, Field(ge=0.05, le=1)] = 0.35
    """Least score of a detection."""
    iou: Share = 0.5
    """Least overlap (IoU) of a box of the model and one of the detector."""
    least_area: Share = 0.0
    """Least share of the image that a target covers."""
    most_area: Share = 0.1
    """Share of the image that a target stays under."""
    seed: Annotated[Whole, Field(ge=0)] = 42
    """What types and wrong options are drawn by."""
    tries: Annotated[Whole, Field(ge=1, le=10)] = 3
    """Most edits for one reference, if what comes back cannot be used."""
    regenerations: Annotated[Whole, Field(ge=0, le=10)] = 3
    """How often people may have a reference made again."""
    seam: Annotated[float, Field(ge=0, le=255)] = SEAM
    """Difference along a crop's border, in levels of 255, above which it is blended."""
    most_seam: Annotated[float, Field(ge=0, le=255)] = MOST_SEAM
    """The same, above which the edit is not used."""


@dataclass(frozen=True, kw_only=True)
class RowDraft:
    """What is known of one target's row."""

    id: str
    """Of the row: the sample's, with the target's number."""
    number: int
    """Of the target, from 1."""
    target: Target
    """With the boxes that the model named, until others are confirmed."""
    area: float | None = None
    """Share of the image that it covers, 0 to 1; None while its boxes are not confirmed."""
    drawn: str = ""
    """The type that was drawn; "" for a row with a question."""
    wrong: str = ""
    """The option that holds after the edit; "" for a row without a question."""
    metadata: Metadata | None = None
    """As people have corrected it."""
    reference: ImageRef | None = None
    edit: Mapping[str, Json] | None = None
    """What `crop_edit` says of the reference."""
    tries: int = 0
    """Edits so far."""
    sent_back: int = 0
    """How often people had the reference made again."""
    passed: bool = False
    """Whether people passed this reference."""
    findings: tuple[Finding, ...] = ()
    """What it rests on."""
    lost: Lost | None = None
    """None for a whole row."""


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What is known of an image's rows."""

    tasks: tuple[Task, ...]
    """All that can be asked by now."""
    caption: str = ""
    rows: tuple[RowDraft, ...] = ()
    others: tuple[tuple[str, str, str], ...] = ()
    """(name, why, detail) of what was listed and cannot be a target."""
    lost: Lost | None = None
    """Why the image has no target; None where it has one."""


class DLEBenchBuild(BaseProtocol):
    """Targets, boxes, instructions and reference images of each image, each from the findings before it."""

    name = "dlebench-build"
    paper = PAPER
    Options = DLEBenchBuildOptions
    roles: ClassVar[Mapping[str, str]] = {
        DESCRIBE: "names small targets of an image, and what it shows",
        INSTRUCT: "writes the instruction and the captions of an edit",
    }
    outputs = False
    metrics = tuple(
        Metric(id=id_, name=name, domain=Real(), better=None, source="3.1")
        for id_, name in (
            (LISTED, "Targets listed"),
            (SMALL, "Small targets"),
            (INSTRUCTIONS, "Instructions"),
            (REFERENCES, "References"),
        )
    )
    tables = (
        TableSpec(
            title="Targets and references of an image", metrics=(LISTED, SMALL, INSTRUCTIONS, REFERENCES), rows="editor"
        ),
    )

    def __init__(self, options: Any = None, *, tools: Any = (), budget: Budget | None = None) -> None:
        super().__init__(options, budget=budget)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the questions about the image, then for each target its search, its instruction and its edits."""
        for sample in group:
            yield from self.draft(sample, known).tasks

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return what was counted for each image."""
        for sample in group:
            draft = self.draft(sample, known)
            for metric, stages in _COUNTED.items():
                # What failed, or is not known yet, is not counted as left out.
                lost = (draft.lost, *(row.lost for row in draft.rows))
                losses = [one for one in lost if one is not None and one.stage in stages]
                unknown = next((one for one in losses if one.why in _UNKNOWN), None)
                count = sum(row.lost is None or row.lost.stage not in stages for row in draft.rows)
                yield Score(
                    sample_id=sample.id,
                    editor=sample.editor,
                    metric=metric,
                    value=None if unknown else float(count),
                    missing=("tool_failed" if unknown.why in _EDITOR.values() else unknown.why) if unknown else None,
                    reason=unknown.detail if unknown else "",
                    findings=tuple(finding.task_id for row in draft.rows for finding in row.findings),
                )

    def draft(self, sample: Sample, known: Known) -> Draft:
        """Return what is known of an image's rows, and what can be asked. Pure."""
        caption = self._ask(sample, CAPTION, generate.caption_prompt(), generate.CAPTION)
        draft = Draft(tasks=(caption,), caption=generate.read_text(known.answer(CAPTION, sample)))
        draft = self._listed(sample, draft, known)
        said = known.finding(CAPTION, sample)
        if draft.lost is not None or said is None or said.answer is None:
            return replace(draft, rows=tuple(replace(row, lost=_of(said, "described")) for row in draft.rows))
        rows, tasks, taken = [], list(draft.tasks), verdicts_of(sample)
        for row in draft.rows:
            found, new = self._row(sample, row, draft.caption, known, taken)
            rows.append(replace(found, findings=(said, *found.findings)))
            tasks += new
        return replace(draft, rows=tuple(rows), tasks=tuple(tasks))

    def _ask(
        self, sample: Sample, metric: str, prompt: str, answer: Any, *views: Recipe, part: str = "", **more: Any
    ) -> Ask:
        image = Recipe(alias=generate.IMAGE, origin=sample.source)
        return Ask(
            protocol=self.name,
            metric=metric,
            about=About.of(sample, part=part),
            role=more.pop("role", DESCRIBE),
            prompt=prompt,
            views=(image, *views),
            answer=answer,
            budget=self.budget,
            **more,
        )

    def _listed(self, sample: Sample, draft: Draft, known: Known) -> Draft:
        """Return a draft with its targets: those of the data, or those that a model names."""
        options: DLEBenchBuildOptions = self.options
        given = tuple(target.boxes["source"] for target in sample.targets if "source" in target.boxes)
        if given:
            name = generate.plain_name(sample.targets[0].name or "")
            if name:
                return replace(draft, rows=(_row_of(sample, 1, Target(name=name, boxes=given)),))
            view = generate.close_up(sample.source, given)
            ask = self._ask(sample, NAME, generate.name_prompt(boxes=len(given)), generate.NAME, view)
            finding = known.finding(NAME, sample)
            draft = replace(draft, tasks=(*draft.tasks, ask))
            if finding is None or finding.answer is None:
                return replace(draft, lost=_of(finding, "described"))
            name = generate.plain_name(generate.read_text(finding.answer))
            if not name or len(name) > generate.LONGEST_NAME:
                return replace(draft, lost=Lost(stage="described", why="unusable_name", detail=f"{name[:80]!r}"))
            row = replace(_row_of(sample, 1, Target(name=name, boxes=given)), findings=(finding,))
            return replace(draft, rows=(row,))
        prompt = generate.targets_prompt(most=options.most_targets, most_area=options.most_area)
        ask = self._ask(sample, TARGETS, prompt, generate.TARGETS)
        finding = known.finding(TARGETS, sample)
        draft = replace(draft, tasks=(*draft.tasks, ask))
        if finding is None or not isinstance(finding.answer, Record):
            return replace(draft, lost=_of(finding, "described"))
        targets, others = generate.read_targets(finding.answer, sample.source, most=options.most_targets)
        rows = tuple(replace(_row_of(sample, i, one), findings=(finding,)) for i, one in enumerate(targets, start=1))
        why = "nothing that was listed can be used" if others else "the model names no small target"
        lost = None if rows else Lost(stage="described", why="no_targets", detail=why)
        return replace(draft, rows=rows, others=tuple(others), lost=lost)

    def _row(
        self, sample: Sample, row: RowDraft, caption: str, known: Known, taken: Mapping[tuple[str, str], Verdict]
    ) -> tuple[RowDraft, list[Task]]:
        """Return a target's row as far as it is known, and what can be asked about it."""
        tasks: list[Task] = []
        if not sample.targets and self.options.grounding == "detector":
            row = self._grounded(sample, row, known, tasks)
        if row.lost is None:
            row = self._sized(sample, row)
        if row.lost is None:
            row = self._instructed(sample, row, caption, known, tasks)
        if row.lost is None:
            row = self._edited(sample, row, known, taken, tasks)
        return row, tasks

    def _grounded(self, sample: Sample, row: RowDraft, known: Known, tasks: list[Task]) -> RowDraft:
        """Return the row with the detector's boxes, which agree with the model's."""
        options: DLEBenchBuildOptions = self.options
        threshold = options.box_threshold
        search = Measure(
            protocol=self.name,
            metric=DETECTIONS,
            about=About.of(sample, part=row.target.name),
            measure=DETECTIONS,
            args={"phrase": row.target.name, "box_threshold": threshold, "text_threshold": min(0.25, threshold)},
            views=(Recipe(alias="image", origin=sample.source),),
            rests_on=tuple(finding.task_id for finding in row.findings),
        )
        tasks.append(search)
        finding = known.finding(DETECTIONS, search.about)
        if finding is None or not isinstance(finding.answer, Record):
            return replace(row, lost=_of(finding, "grounded"))
        row = replace(row, findings=(*row.findings, finding))
        data: Any = finding.answer.data
        width, height = sample.source.width, sample.source.height
        seen = [box_from_json(one["box"]).scaled(width / 1000, height / 1000) for one in data["detections"]]
        found = generate.matched(row.target.boxes, seen, iou=options.iou)
        if found is None:
            best = max((a.iou(b) for a in row.target.boxes for b in seen), default=0.0)
            why = "disagrees" if seen else "not_found"
            detail = f"{len(seen)} boxes seen, {len(row.target.boxes)} named; the best overlap is {best:.2f}"
            return replace(row, lost=Lost(stage="grounded", why=why, detail=detail))
        return replace(row, target=replace(row.target, boxes=found))

    def _sized(self, sample: Sample, row: RowDraft) -> RowDraft:
        """Return the row with the share of the image that its boxes cover; what overlaps counts once."""
        options: DLEBenchBuildOptions = self.options
        area = covered_area(row.target.boxes) / (sample.source.width * sample.source.height)
        row = replace(row, area=area)
        why = "too_large" if area >= options.most_area else "too_small" if area < options.least_area else ""
        return replace(row, lost=Lost(stage="small", why=why, detail=f"{100 * area:.3g} % of the image")) if why else row

    def _instructed(self, sample: Sample, row: RowDraft, caption: str, known: Known, tasks: list[Task]) -> RowDraft:
        """Return the row with its instruction and captions."""
        question: Question | None = generate.read_question(sample.extra)
        seed = f"{self.options.seed} {sample.source.sha256} {row.target.name}"
        wrong = "" if question is None else generate.draw_wrong(question, f"{seed} {question.text}")
        row = replace(row, drawn="" if question else generate.draw_type(seed), wrong=wrong)
        prompt = generate.instruct_prompt(row.target, caption, drawn=row.drawn, question=question, wrong=wrong)
        view = generate.close_up(sample.source, row.target.boxes)
        rests_on = tuple(finding.task_id for finding in row.findings)
        part = f"target {row.number}"
        ask = self._ask(sample, METADATA, prompt, generate.METADATA, view, part=part, role=INSTRUCT, rests_on=rests_on)
        tasks.append(ask)
        finding = known.finding(METADATA, ask.about)
        if finding is None or finding.answer is None:
            return replace(row, lost=_of(finding, "instructed"))
        row, read = replace(row, findings=(*row.findings, finding)), generate.read_metadata(finding.answer)
        if not isinstance(read, Metadata):
            return replace(row, lost=Lost(stage="instructed", why=read[0], detail=read[1]))
        return replace(row, metadata=read)

    def _edited(
        self,
        sample: Sample,
        row: RowDraft,
        known: Known,
        taken: Mapping[tuple[str, str], Verdict],
        tasks: list[Task],
    ) -> RowDraft:
        """Return the row with its reference: of the first edit that can be used and that nobody has sent back."""
        options: DLEBenchBuildOptions = self.options
        metadata, unusable = row.metadata, 0
        assert metadata is not None
        while True:
            edit = self._edit(sample, row, row.tries + 1)
            tasks.append(edit)
            finding = known.finding(REFERENCE, edit.about)
            if finding is None or not isinstance(finding.answer, Record):
                # The world may mend it: the same command edits again.
                return replace(row, lost=_of(finding, "edited"))
            data: Any = finding.answer.data
            row = replace(row, tries=row.tries + 1, findings=(*row.findings, finding))
            if data["outcome"] != "edited":
                unusable += 1
                if unusable == options.tries:
                    return replace(row, lost=Lost(stage="edited", why=data["outcome"], detail=finding.reason))
                continue
            reference = ImageRef.from_json(data["picture"])
            row = replace(row, reference=reference, edit=data)
            verdict = taken.get((row.id, reference.sha256))
            if verdict is None:
                return row
            metadata = replace(metadata, **verdict.corrections)
            row = replace(row, metadata=metadata)
            if verdict.kind == "passed":
                return replace(row, passed=True)
            if verdict.kind == "rejected" or row.sent_back == options.regenerations:
                return replace(row, lost=Lost(stage="reviewed", why=verdict.why, detail=verdict.detail))
            row, unusable = replace(row, sent_back=row.sent_back + 1, reference=None, edit=None), 0

    def _edit(self, sample: Sample, row: RowDraft, number: int) -> Measure:
        options: DLEBenchBuildOptions = self.options
        assert row.metadata is not None
        return Measure(
            protocol=self.name,
            metric=REFERENCE,
            about=About.of(sample, part=f"target {row.number}, try {number}"),
            measure="crop_edit",
            args={
                "instruction": row.metadata.instruction,
                "boxes": boxes_json(row.target.boxes),
                "seed": number,
                "seam": options.seam,
                "most_seam": options.most_seam,
            },
            views=(Recipe(alias="image", origin=sample.source),),
            rests_on=tuple(finding.task_id for finding in row.findings),
        )


def _row_of(sample: Sample, number: int, target: Target) -> RowDraft:
    return RowDraft(id=f"{sample.id}-{number}", number=number, target=target)


_EDITOR: Final = {"failed": "editor_failed", "timed out": "editor_timed_out"}
"""How the reason of a failed edit begins → why there is no reference."""
_UNKNOWN: Final = FAILURES | {*_EDITOR.values(), NOT_JUDGED}
"""Reasons that leave open whether there is a row."""
_STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
_COUNTED: Final = {
    LISTED: _STAGES[:2],
    SMALL: _STAGES[:4],
    INSTRUCTIONS: _STAGES[:5],
    REFERENCES: _STAGES,
}
"""Metric → the stages that what is counted has passed."""


def _of(finding: Finding | None, stage: Stage) -> Lost:
    """Return why something gets no further, of an edit also what became of its editor."""
    lost = Lost.of(finding, stage)
    return replace(lost, why=_EDITOR.get(lost.detail.partition(":")[0], lost.why)) if stage == "edited" else lost


def boxes_json(boxes: Iterable[Box]) -> list[Json]:
    """Return boxes as lists of four numbers in px, to a hundredth."""
    return [[round(v, 2) for v in box] for box in boxes]
