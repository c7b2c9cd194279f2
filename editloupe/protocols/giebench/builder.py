"""GIE-Bench's own making: edits of drawn types with a question each, and masks of what they are about.

The role `write` writes instruction, question, options and answer, the role `target` names what has to be edited, a detector
and a segmenter make its mask, and the role `answer` is asked the question before anything was edited. What is drawn at
random follows from the seed and the image's content.

Reproduced (section 3.1 of the paper and its figures 8 and 9):
- three types of edit for each image, drawn from nine, Textual Edit only for an image with text;
- one prompt for each type, for an instruction, a question, its options and the answer, in one reply;
- the target as a phrase for what the original shows, "entire image" for an edit of all of it;
- the mask: of the box that the detector is surest of, by a segmenter;
- the question about the unedited image, and people who look through all (`giebench-review`).

Differs:
- the prompts are ours, and Scene and Background Change have one together;
- a question that is answered right before the edit is dropped; the paper reports how many are;
- options stand in the order of a seed: in the published set the right one is first in 52 % of rows;
- the option that says it cannot be told is added by rule;
- options that are alike, or an answer that is none of them, leave the row out: the published set has such rows.

Not covered:
- the choice of images; as many edits of each type as of any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Literal, get_args

from pydantic import Field

from editloupe.answers import YES_NO, Boxes, Choice, Record
from editloupe.config import Whole
from editloupe.findings import FAILURES, Finding
from editloupe.prompts import render
from editloupe.protocols.base import BaseProtocol, Group, Known, Options
from editloupe.protocols.builders import Lost
from editloupe.protocols.giebench import edits
from editloupe.protocols.giebench.edits import SCENE, TEXTUAL, WHOLE, Edit
from editloupe.protocols.giebench.protocol import PAPER, PROMPT
from editloupe.protocols.giebench.questions import shown
from editloupe.protocols.reviews import Verdict, verdicts_of
from editloupe.scores import NOT_JUDGED, Metric, Real, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import About, Ask, Budget, Measure, Recipe, Task
from editloupe.values import Box, ImageRef, Json, Sample, digest

WRITE: Final = "write"
TARGET: Final = "target"
ANSWER: Final = "answer"

TEXT: Final = "has_text"
EDIT: Final = "edit"
PHRASE: Final = "phrase"
FOUND: Final = "found"
MASK: Final = "mask"
UNEDITED: Final = "unedited"
"""Questions. All but the first are asked of each edit: their part is its type."""

WRITTEN: Final = "edits_written"
MASKED: Final = "edits_masked"
KEPT: Final = "edits_kept"

IMAGE: Final = "Image"
_EDITED: Final = "Edited Image"
_ORIGINAL: Final = "Original Image"
_ORDER_SEED: Final = 0
"""Of the order in which options are shown: the judge's own default."""

Stage = Literal["drawn", "written", "named", "located", "masked", "unedited", "reviewed"]


class GIEBenchBuildOptions(Options):
    """What a run may set."""

    edits: Annotated[Whole, Field(ge=1, le=9)] = 3
    """Edits of an image, each of another type."""
    masks: Literal["segmenter", "given"] = "segmenter"
    """What makes masks that the data lacks: a detector and a segmenter, or nothing (given: masks and boxes of the data)."""
    unedited: Literal["drop", "keep"] = "drop"
    """What becomes of a question that is answered right before the edit."""
    seed: Annotated[Whole, Field(ge=0)] = 42
    """What types and the order of options are drawn by."""


@dataclass(frozen=True, kw_only=True)
class RowDraft:
    """What is known of one edit."""

    id: str
    """Of the row: the sample's, with the edit's number."""
    edit_type: str
    edit: Edit | None = None
    phrase: str = ""
    """What has to be edited."""
    boxes: tuple[Box, ...] = ()
    """Of it, in px; () for an edit of the entire image, and where the data has a mask."""
    score: float | None = None
    """The detector's, of the box; None where none was asked."""
    mask: ImageRef | None = None
    """White where change is allowed; None where it is the boxes, the entire image, or absent."""
    masked_by: Literal["", "data", "boxes", "segmenter", "entire image", "absent"] = ""
    unedited: Literal["", "right", "other", "abstained"] = ""
    """What the answer to the question was before the edit."""
    passed: bool = False
    """Whether people passed the row as it is."""
    findings: tuple[Finding, ...] = ()
    """What it rests on."""
    lost: Lost | None = None
    """None for a whole row."""

    @property
    def digest(self) -> str:
        """Of what people look at."""
        edit = self.edit
        assert edit is not None
        question = [edit.question.text, list(edit.question.options), edit.answer]
        place = [self.masked_by, None if self.mask is None else self.mask.sha256, [list(box) for box in self.boxes]]
        return digest([self.edit_type, edit.instruction, question, self.phrase, place])


@dataclass(frozen=True, kw_only=True)
class Draft:
    """What is known of an image's edits."""

    tasks: tuple[Task, ...] = ()
    """All that can be asked by now."""
    rows: tuple[RowDraft, ...] = ()


@dataclass(kw_only=True)
class _Row:
    """A row under way, with what can be asked about it by now."""

    sample: Sample
    draft: RowDraft
    tasks: list[Task] = field(default_factory=list)

    def about(self) -> About:
        return About.of(self.sample, part=self.draft.edit_type)

    def rests_on(self) -> tuple[str, ...]:
        return tuple(finding.task_id for finding in self.draft.findings)

    def now(self, **changes: Any) -> None:
        self.draft = replace(self.draft, **changes)

    def lose(self, stage: Stage, why: str, detail: str = "") -> None:
        self.now(lost=Lost(stage=stage, why=why, detail=detail))

    def take(self, task: Task, known: Known, stage: Stage) -> Finding | None:
        """Return the finding on a task that has an answer; else say why the row gets no further."""
        self.tasks.append(task)
        finding = known.finding(task.metric, task.about)
        if finding is None or finding.answer is None:
            self.now(lost=Lost.of(finding, stage))
            return None
        self.now(findings=(*self.draft.findings, finding))
        return finding


class GIEBenchBuild(BaseProtocol):
    """Instruction, question, target, mask and the answer before the edit, each from the findings before it."""

    name = "giebench-build"
    paper = PAPER
    Options = GIEBenchBuildOptions
    roles: ClassVar[Mapping[str, str]] = {
        WRITE: "writes an instruction, and a question by which the edit is told",
        TARGET: "names what an instruction is about",
        ANSWER: "answers the question about the image as it is",
    }
    outputs = False
    metrics = tuple(
        Metric(id=id_, name=name, domain=Real(), better=None, source="3.1")
        for id_, name in ((WRITTEN, "Edits written"), (MASKED, "With their mask"), (KEPT, "Kept"))
    )
    tables = (TableSpec(title="Edits of an image", metrics=(WRITTEN, MASKED, KEPT), rows="editor"),)

    def __init__(self, options: Any = None, *, tools: Any = (), budget: Budget | None = None) -> None:
        super().__init__(options, budget=budget)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return what can be asked about each edit of an image."""
        for sample in group:
            yield from self.draft(sample, known).tasks

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return what was counted for each image."""
        for sample in group:
            draft = self.draft(sample, known)
            for metric, stages in _COUNTED.items():
                losses = [row.lost for row in draft.rows if row.lost is not None and row.lost.stage in stages]
                # What failed, or is not known yet, is not counted as left out.
                unknown = next((one for one in losses if one.why in _UNKNOWN), None)
                yield Score(
                    sample_id=sample.id,
                    editor=sample.editor,
                    metric=metric,
                    value=None if unknown else float(len(draft.rows) - len(losses)),
                    missing=unknown.why if unknown else None,
                    reason=unknown.detail if unknown else "",
                    findings=tuple(finding.task_id for row in draft.rows for finding in row.findings),
                )

    def draft(self, sample: Sample, known: Known) -> Draft:
        """Return what is known of an image's edits, and what can be asked. Pure."""
        options: GIEBenchBuildOptions = self.options
        types = edits.drawn_types(f"{options.seed} {sample.source.sha256}")
        first = list(types[: options.edits])
        tasks: list[Task] = []
        of_text: Finding | None = None
        unknown: Lost | None = None
        if TEXTUAL in first and (reads := edits.has_text(sample.extra)) is not True:
            if reads is None:
                ask = self._ask(sample, TEXT, edits.text_prompt(), YES_NO)
                tasks.append(ask)
                of_text = known.finding(TEXT, ask.about)
                answer = None if of_text is None else of_text.answer
                unknown = None if isinstance(answer, Choice) else Lost.of(of_text, "drawn")
                reads = isinstance(answer, Choice) and answer.name == "yes"
            if not reads and unknown is None:
                # The next one that was drawn takes its place; of nine edits eight are left.
                at = first.index(TEXTUAL)
                first[at : at + 1] = types[options.edits : options.edits + 1]
        verdicts, rows = verdicts_of(sample), []
        for number, edit_type in enumerate(first, start=1):
            row = _Row(sample=sample, draft=RowDraft(id=f"{sample.id}-{number}", edit_type=edit_type))
            if edit_type == TEXTUAL and unknown is not None:
                row.now(lost=unknown)
            else:
                if of_text is not None and (edit_type == TEXTUAL or edit_type not in types[: options.edits]):
                    row.now(findings=(of_text,))
                self._follow(row, known, verdicts)
            rows.append(row.draft)
            tasks += row.tasks
        return Draft(tasks=tuple(tasks), rows=tuple(rows))

    def _follow(self, row: _Row, known: Known, verdicts: Mapping[tuple[str, str], Verdict]) -> None:
        """Take a row as far as it is known."""
        for step in (self._write, self._name, self._locate, self._segment, self._answer):
            step(row, known)
            if row.draft.lost is not None:
                return
        verdict = verdicts.get((row.draft.id, row.draft.digest))
        if verdict is not None:
            row.now(passed=verdict.kind == "passed")
            if not row.draft.passed:
                row.lose("reviewed", verdict.why, verdict.detail)

    def _ask(self, sample: Sample, metric: str, prompt: str, answer: Any, *, part: str = "", **more: Any) -> Ask:
        given = {"role": WRITE, "views": (Recipe(alias=IMAGE, origin=sample.source),), **more}
        about = About.of(sample, part=part)
        return Ask(
            protocol=self.name, metric=metric, about=about, prompt=prompt, answer=answer, budget=self.budget, **given
        )

    def _write(self, row: _Row, known: Known) -> None:
        """Add the instruction and its question."""
        sample, edit_type = row.sample, row.draft.edit_type
        prompt = edits.write_prompt(edit_type, target=_given_name(sample, edit_type))
        task = self._ask(sample, EDIT, prompt, edits.EDIT, part=edit_type, rests_on=row.rests_on())
        if (finding := row.take(task, known, "written")) is None:
            return
        assert finding.answer is not None
        found = edits.read_edit(finding.answer, seed=f"{self.options.seed} {sample.source.sha256} {edit_type}")
        if isinstance(found, Edit):
            row.now(edit=found)
        else:
            row.lose("written", *found)

    def _name(self, row: _Row, known: Known) -> None:
        """Add the phrase for what has to be edited."""
        if name := _given_name(row.sample, row.draft.edit_type):
            row.now(phrase=edits.plain_phrase(name))
            return
        assert row.draft.edit is not None
        prompt = edits.target_prompt(row.draft.edit_type, row.draft.edit.instruction)
        part, rests_on = row.draft.edit_type, row.rests_on()
        task = self._ask(row.sample, PHRASE, prompt, edits.PHRASE, part=part, role=TARGET, rests_on=rests_on)
        if (finding := row.take(task, known, "named")) is None:
            return
        assert finding.answer is not None
        found = edits.read_phrase(finding.answer)
        if isinstance(found, str):
            row.now(phrase=found)
        else:
            row.lose("named", *found)

    def _locate(self, row: _Row, known: Known) -> None:
        """Add the box of the target: the data's, or the one that the detector is surest of."""
        draft, sample = row.draft, row.sample
        if draft.edit_type != SCENE:
            given = tuple(target.boxes["source"] for target in sample.targets if "source" in target.boxes)
            if mask := sample.masks.get("edit"):
                row.now(mask=mask, masked_by="data", boxes=given)
                return
            row.now(boxes=given)
        if draft.phrase == WHOLE:
            row.now(masked_by="entire image")
        elif self.options.masks == "given":
            row.now(masked_by="boxes" if row.draft.boxes else "absent")
        elif not row.draft.boxes:
            search = self._measure(row, FOUND, "detect_target", {"phrase": draft.phrase})
            if (finding := row.take(search, known, "located")) is None:
                return
            answer = finding.answer
            assert isinstance(answer, Boxes)
            if not answer.boxes:
                row.lose("located", "not_found", f"the detector found no {draft.phrase!r}")
                return
            width, height = sample.source.width, sample.source.height
            best = answer.boxes[0].scaled(width / 1000, height / 1000)
            row.now(boxes=(best,), score=None if answer.confidence is None else answer.confidence.value)

    def _segment(self, row: _Row, known: Known) -> None:
        """Add the mask of what is in the boxes."""
        if row.draft.masked_by:
            return
        boxes: list[Json] = [[round(v, 2) for v in box] for box in row.draft.boxes]
        task = self._measure(row, MASK, "segmentation", {"boxes": boxes})
        if (finding := row.take(task, known, "masked")) is None:
            return
        data: Any = finding.answer.data if isinstance(finding.answer, Record) else {}
        if data["outcome"] == "mask":
            row.now(mask=ImageRef.from_json(data["picture"]), masked_by="segmenter")
        else:
            row.lose("masked", f"{data['outcome']}_mask", finding.reason)

    def _answer(self, row: _Row, known: Known) -> None:
        """Add what is answered before the edit."""
        edit, source = row.draft.edit, row.sample.source
        assert edit is not None
        question = edit.question
        form = shown(question, question.order(_ORDER_SEED, about=edit.instruction), letters=True)
        images = (_ORIGINAL, _EDITED) if question.compares else (_EDITED,)
        prompt = render(
            PROMPT,
            question=question.text,
            options=form.lines,
            letters=form.letters,
            images=list(images),
            compares=question.compares,
            abstain=form.abstain,
        )
        views = tuple(Recipe(alias=alias, origin=source) for alias in images)
        part, rests_on = row.draft.edit_type, row.rests_on()
        ask = self._ask(row.sample, UNEDITED, prompt, form.answer, part=part, role=ANSWER, views=views, rests_on=rests_on)
        finding = known.finding(UNEDITED, ask.about)
        if finding is not None and finding.status == "abstained":
            row.tasks.append(ask)
            row.now(unedited="abstained", findings=(*row.draft.findings, finding))
        elif (finding := row.take(ask, known, "unedited")) is not None:
            right = isinstance(finding.answer, Choice) and finding.answer.name == form.key.name
            row.now(unedited="right" if right else "other")
            if right and self.options.unedited == "drop":
                row.lose("unedited", "answered_unedited", f"{edit.answer!r} is the answer before the edit too")

    def _measure(self, row: _Row, metric: str, measure: str, args: Mapping[str, Json]) -> Measure:
        return Measure(
            protocol=self.name,
            metric=metric,
            about=row.about(),
            measure=measure,
            args=args,
            views=(Recipe(alias="image", origin=row.sample.source),),
            rests_on=row.rests_on(),
        )


_UNKNOWN: Final = FAILURES | {NOT_JUDGED}
"""Reasons that leave open whether there is a row."""
_STAGES: Final[tuple[Stage, ...]] = get_args(Stage)
_COUNTED: Final = {WRITTEN: _STAGES[:2], MASKED: _STAGES[:5], KEPT: _STAGES}
"""Metric → the stages that what is counted has passed."""


def _given_name(sample: Sample, edit_type: str) -> str:
    """Return what the data says that an edit is about; "" where it says nothing, and for an edit of the surroundings."""
    if edit_type == SCENE:
        return ""
    named = next((target.name for target in sample.targets if target.name), None)
    return str(named or sample.extra.get("target_name") or "").strip()
