"""GIE-Bench's own making: edits of drawn types with a question each, and masks of what they are about.

The role `write` writes instruction, question, options and answer, the role `target` names what has to be edited, a detector
and a segmenter make its mask, and the role `answer` is asked the question before anything was edited. What is drawn at
random follows from the seed and the image's content.

Reproduced (section 3.1 of the paper, figures 8 and 9): three types of edit for each image, drawn from nine, Textual Edit
only for an image with text; one prompt for each type; the target as a phrase, "entire image" for an edit of all of it; the
mask of the box that the detector is surest of; the question about the unedited image; people who look through all.
Differs: the prompts are ours, and Scene and Background Change have one together; a question that is answered right before
the edit is dropped; options stand in the order of a seed, where in the published set the right one is first in 52 % of
rows; the option that it cannot be told is added by rule; options that are alike, or an answer that is none of them, leave
the row out.
Not covered: the choice of images; as many edits of each type as of any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from editloupe.answers import YES_NO, Boxes, fold
from editloupe.build.base import LeftOut, counted
from editloupe.build.engine import RowStep, SetRecipe, SetRow, corners
from editloupe.build.giebench import masks, texts
from editloupe.build.giebench.review import GIEBenchReview
from editloupe.build.giebench.texts import SCENE, TEXTUAL, WHOLE
from editloupe.build.places import ImagePlace
from editloupe.build.shown import PAIR, boxes_of, target_name
from editloupe.config import Whole
from editloupe.data.images import ImageStore
from editloupe.data.rows import DataRow
from editloupe.data.write import IMAGES, file_stem
from editloupe.imaging.masked import inside
from editloupe.prompts import render
from editloupe.protocols.base import Options
from editloupe.protocols.giebench.loader import FILE
from editloupe.protocols.giebench.protocol import PAPER, PROMPT
from editloupe.protocols.giebench.questions import KEY, OPTIONS, QUESTION, MultipleChoice, shown
from editloupe.protocols.giebench.tables import EDIT_TYPES
from editloupe.replies import one_line
from editloupe.tasks import Recipe
from editloupe.values import Box, ImageRef, Json, Sample, digest

_ORDER_SEED: Final = 0
"""Of the order in which options are shown: the judge's own default."""


class GIEBenchBuildOptions(Options):
    """What a run may set."""

    edits: Annotated[Whole, Field(ge=1, le=9)] = 3
    """Edits of an image, each of another type."""
    masks: Literal["segmenter", "given"] = "segmenter"
    """What makes masks that the data lacks: a detector and a segmenter, or nothing (given: masks and boxes of the data)."""
    seed: Annotated[Whole, Field(ge=0)] = 42
    """What types and the order of options are drawn by."""


@dataclass(kw_only=True)
class EditDraft:
    """What is known of one edit."""

    edit_type: str
    instruction: str = ""
    question: MultipleChoice = field(default_factory=lambda: MultipleChoice(text="", options=(), key=0))
    """Its options in the order of the set."""
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

    @property
    def answer(self) -> str:
        """The right option."""
        return self.question.options[self.question.key]


class GIEBenchBuild(SetRecipe):
    """Instruction, question, target, mask and the answer before the edit, each from the findings before it."""

    name = "giebench-build"
    summary = (
        "Write edits of drawn types for images, each with a multiple-choice question; mask what they are about with a "
        "detector and a segmenter; drop questions that are answered right before the edit. PATH is a folder of images, "
        "or an ImageFolder."
    )
    paper = PAPER
    unit, first = "edit", "drawn"
    Options = GIEBenchBuildOptions
    review = GIEBenchReview
    roles: ClassVar[Mapping[str, str]] = {
        "write": "writes an instruction, and a question by which the edit is told",
        "target": "names what an instruction is about",
        "answer": "answers the question about the image as it is",
    }
    file, folders = FILE, (IMAGES,)

    def steps(self) -> Sequence[RowStep]:
        """Return the steps of an edit."""
        given = self.options.masks == "given"
        where = "the data says where it is" + (
            ", or the row has no mask" if given else ", or a model, or it is the entire image"
        )
        return (
            RowStep("written", "it has an instruction, and a question with 2 to 5 options, one of them right", self._write),
            RowStep("named", "what has to be edited has a name", self._name),
            RowStep("located", where, self._locate),
            RowStep("masked", where, self._segment),
            RowStep("unedited", "the question is not answered right before the edit", self._answer),
        )

    def needed(self) -> Mapping[str, str]:
        """Return a detector and a segmenter where masks are to be made."""
        if self.options.masks == "given":
            return {}
        advice = (
            "masks need a {what}, and there is none: {{reason}}. Name one with --set {what}=…, or choose "
            "--set masks=given: then masks and boxes of the metadata count, and other rows have no mask"
        )
        return {"detect": advice.format(what="detector"), "segment": advice.format(what="segmenter")}

    def checked(self, row: DataRow, store: ImageStore) -> DataRow:
        """Return a row. Raises RowError where its mask cannot be read, or does not tell two parts of the image apart."""
        for mask in row.masks.values():
            masks.check(store, mask.image())
        return super().checked(row, store)

    def rows(self, image: SetRow[None]) -> list[SetRow[Any]]:
        """Return a row for each type that is drawn. Of an image without text the next type takes Textual Edit's place."""
        sample, count = image.sample, self.options.edits
        types = texts.drawn_types(f"{self.options.seed} {sample.source.sha256}")
        asks = partial(image.ask, "has_text", render("build/giebench/has_text"), YES_NO, role="write")
        if TEXTUAL in types[:count] and asks() == "no":
            types = tuple(kind for kind in types if kind != TEXTUAL)
        drawn = enumerate(types[:count], start=1)
        return [image.becomes(number, EditDraft(edit_type=kind), part=kind) for number, kind in drawn]

    def _write(self, row: SetRow[EditDraft]) -> None:
        """Add the instruction and its question."""
        kind = row.data.edit_type
        prompt = render(
            "build/giebench/write",
            edit_type=kind,
            guide=render(f"build/giebench/edits/{fold(kind.replace('/', ' ')).replace(' ', '_')}").strip(),
            target=one_line(_given_name(row.sample, kind)),
            least=2,
            most=texts.MOST_OPTIONS,
        )
        said = row.ask("edit", prompt, texts.EDIT, role="write")
        seed = f"{self.options.seed} {row.sample.source.sha256} {kind}"
        row.data.instruction, row.data.question = texts.read_edit(said, seed=seed)

    def _name(self, row: SetRow[EditDraft]) -> None:
        """Add the phrase for what has to be edited."""
        kind = row.data.edit_type
        if name := _given_name(row.sample, kind):
            row.data.phrase = texts.plain_phrase(name)
            return
        instruction = one_line(row.data.instruction)
        prompt = render("build/giebench/target", edit_type=kind, instruction=instruction, whole=WHOLE)
        row.data.phrase = texts.read_phrase(row.ask("phrase", prompt, texts.PHRASE, role="target"))

    def _locate(self, row: SetRow[EditDraft]) -> None:
        """Add the box of the target: the data's, or the one that the detector is surest of."""
        draft, sample = row.data, row.sample
        if draft.edit_type != SCENE:
            draft.boxes = boxes_of(sample)
            if mask := sample.masks.get("edit"):
                draft.mask, draft.masked_by = mask, "data"
                return
        if draft.phrase == WHOLE:
            draft.masked_by = "entire image"
        elif self.options.masks == "given":
            draft.masked_by = "boxes" if draft.boxes else "absent"
        elif not draft.boxes:
            answer = row.measure("found", "detect_target", {"phrase": draft.phrase}).answer
            assert isinstance(answer, Boxes)
            if not answer.boxes:
                raise LeftOut("not_found", f"the detector found no {draft.phrase!r}")
            width, height = sample.source.width, sample.source.height
            draft.boxes = (answer.boxes[0].scaled(width / 1000, height / 1000),)
            draft.score = None if answer.confidence is None else answer.confidence.value

    def _segment(self, row: SetRow[EditDraft]) -> None:
        """Add the mask of what is in the boxes."""
        if row.data.masked_by:
            return
        finding = row.measure("mask", "segmentation", {"boxes": corners(row.data.boxes)})
        found: Any = finding.answer
        if found.data["outcome"] != "mask":
            raise LeftOut(f"{found.data['outcome']}_mask", finding.reason)
        row.data.mask, row.data.masked_by = ImageRef.from_json(found.data["picture"]), "segmenter"

    def _answer(self, row: SetRow[EditDraft]) -> None:
        """Add what is answered before the edit."""
        question = row.data.question
        form = shown(question, question.order(_ORDER_SEED, about=row.data.instruction), letters=True)
        images = PAIR if question.compares else PAIR[1:]
        prompt = render(
            PROMPT,
            question=question.text,
            options=form.lines,
            letters=form.letters,
            images=list(images),
            compares=question.compares,
            abstain=form.abstain,
        )
        views = [Recipe(alias=alias, origin=row.sample.source) for alias in images]
        try:
            said = row.ask("unedited", prompt, form.answer, *views, role="answer", alone=True)
        except LeftOut as lost:
            if lost.why != "abstained":
                raise
            row.data.unedited = "abstained"
            return
        row.data.unedited = "right" if said == form.key.name else "other"
        if row.data.unedited == "right":
            raise LeftOut("answered_unedited", f"{row.data.answer!r} is the answer before the edit too")

    def seen(self, row: SetRow[EditDraft]) -> str:
        """Return the digest of what people look at."""
        draft = row.data
        question = [draft.question.text, list(draft.question.options), draft.answer]
        place = [draft.masked_by, None if draft.mask is None else draft.mask.sha256, [list(box) for box in draft.boxes]]
        return digest([draft.edit_type, draft.instruction, question, draft.phrase, place])

    def about(self, row: SetRow[EditDraft]) -> dict[str, Json]:
        """Return the type and the instruction."""
        written: dict[str, Json] = {"instruction": row.data.instruction} if row.data.instruction else {}
        return {"edit_type": row.data.edit_type, **written}

    def columns(self, row: SetRow[EditDraft], place: ImagePlace, number: int) -> dict[str, Json]:
        """Return a row of the ImageFolder."""
        mask, boxes = _mask(row, place.images), corners(row.data.boxes)
        return {
            "mask_file_name": None if mask is None else place.mask(mask),
            **_said(row),
            "target_name": row.data.phrase,
            **({"bboxes": boxes, "bbox_format": "xyxy"} if boxes else {}),
        }

    def lines(self, row: SetRow[EditDraft], place: ImagePlace, number: int) -> Iterable[dict[str, Json]]:
        """Yield the row by the benchmark's names."""
        mask, said = _mask(row, place.images), _said(row)
        image = place.as_is(row.sample.source, IMAGES, file_stem(row.sample.id))
        yield {
            "row_id": row.id,
            "edit_instruction": said.pop("instruction"),
            **said,
            "image": f"/{image}",
            "object_mask": None if mask is None else masks.reduced(mask).astype(int).tolist(),
        }

    def counts(self, rows: Sequence[SetRow[Any]], kept: Sequence[SetRow[Any]]) -> dict[str, Json]:
        """Return the counts of types, masks and answers before the edit. Of the paper's, 17 % were right before it."""
        drawn, types = (Counter(row.data.edit_type for row in those) for those in (rows, kept))
        return {
            "types": {kind: {"drawn": drawn[kind], "kept": types[kind]} for kind in EDIT_TYPES if drawn[kind]},
            "masks": counted(Counter(row.data.masked_by for row in kept)),
            "before_the_edit": counted(Counter(row.data.unedited for row in rows if row.data.unedited)),
        }


def _given_name(sample: Sample, edit_type: str) -> str:
    """Return what the data says that an edit is about; "" where it says nothing, and for an edit of the surroundings."""
    return "" if edit_type == SCENE else target_name(sample)


def _mask(row: SetRow[EditDraft], images: ImageStore) -> masks.Mask | None:
    """Return where change is allowed, at the size of the image or of the mask that there is; None without a mask."""
    draft = row.data
    if draft.mask is not None:
        return inside(images.array(draft.mask))
    if draft.masked_by == "absent":
        return None
    return masks.of_boxes(row.sample.source, draft.boxes, whole=draft.masked_by == "entire image")


def _said(row: SetRow[EditDraft]) -> dict[str, Json]:
    """Return what both layouts say of a row in words and numbers."""
    draft, question = row.data, row.data.question
    return {
        "instruction": draft.instruction,
        QUESTION: question.text,
        KEY: draft.answer,
        OPTIONS: list(question.options),
        "edit_type": draft.edit_type,
        "image_content_type": str(row.sample.extra.get("image_content_type") or ""),
        "url": str(row.sample.extra.get("url") or ""),
        "edit_target": draft.phrase,
        "mask_by": draft.masked_by,
        "box_score": draft.score,
        "answered_before_the_edit": draft.unedited,
        "reviewed": row.passed,
    }
