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

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from editloupe.build.base import LeftOut
from editloupe.build.dlebench import texts
from editloupe.build.dlebench.review import DLEBenchReview
from editloupe.build.dlebench.texts import Metadata, NamedTarget
from editloupe.build.engine import RowStep, SetMade, SetRecipe, SetRow, SetTold, answered
from editloupe.build.made import SetBuilder
from editloupe.build.places import ImagePlace
from editloupe.config import Whole
from editloupe.data.folders import RowError
from editloupe.data.rows import DataRow
from editloupe.data.write import file_stem
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.imaging.targets import covered_area
from editloupe.prompts import render
from editloupe.protocols.base import Options
from editloupe.protocols.dlebench.protocol import PAPER
from editloupe.protocols.dlebench.tables import EDIT_TYPES
from editloupe.replies import one_line
from editloupe.tasks import Ask
from editloupe.values import Box, ImageRef, Json, box_from_json, digest

SOURCES: Final = "Source_Images"
REFERENCES: Final = "Reference_Images"

Share = Annotated[float, Field(ge=0, le=1)]


class DLEBenchBuildOptions(Options):
    """What a run may set."""

    most_targets: Annotated[Whole, Field(ge=1, le=20)] = 3
    """Most targets of an image."""
    grounding: Literal["detector", "given"] = "detector"
    """What becomes of an image without boxes in the data: a detector confirms the model's, or it is left out."""
    least_area: Share = 0.0
    """Least share of the image that a target covers."""
    most_area: Share = 0.1
    """Share of the image that a target stays under."""
    seed: Annotated[Whole, Field(ge=0)] = 42
    """What types and wrong options are drawn by."""
    tries: Annotated[Whole, Field(ge=1, le=10)] = 3
    """Most edits for one reference, if what comes back cannot be used."""


REGENERATIONS: Final = 3
"""How often people may have a reference made again (3.1)."""
_IOU: Final = 0.5
"""Least overlap of a box of the model and one of the detector."""
_DETECTION: Final[dict[str, Json]] = {"box_threshold": 0.35, "text_threshold": 0.25}


@dataclass(kw_only=True)
class TargetDraft:
    """What is known of one target's edit."""

    target: NamedTarget
    """With the boxes that the model named, until others are confirmed."""
    caption: Finding | None
    """What the image shows, as the model says."""
    area: float = 0.0
    """Share of the image that the target covers, 0 to 1."""
    drawn: str = ""
    """The type that was drawn; "" for a row with a question."""
    wrong: str = ""
    """The option that holds after the edit; "" for a row without a question."""
    metadata: Metadata | None = None
    """As people have corrected it."""
    reference: ImageRef | None = None
    facts: Mapping[str, Any] | None = None
    """What `crop_edit` says of the reference."""
    tries: int = 0
    """Edits so far."""
    sent_back: int = 0
    """How often people had the reference made again."""


class DLEBenchBuild(SetRecipe):
    """Targets, boxes, instructions and reference images of each image, each from the findings before it."""

    name = "dlebench-build"
    summary = (
        "Name small targets of images, confirm them with a detector, write an instruction for each, and make its reference "
        "image with an image editor in a crop. IMAGES is a folder of images, or an ImageFolder."
    )
    paper, source = PAPER, "3.1"
    unit, first = "target", "described"
    Options = DLEBenchBuildOptions
    weights = ("editor",)
    review = DLEBenchReview
    roles: ClassVar[Mapping[str, str]] = {
        "describe": "names small targets of an image, and what it shows",
        "instruct": "writes the instruction and the captions of an edit",
    }
    file, folders = "data.jsonl", (SOURCES, REFERENCES)
    aside = ("mask_file_name",)

    def steps(self) -> Sequence[RowStep]:
        """Return the steps of a target."""
        options: DLEBenchBuildOptions = self.options
        detects = self.options.grounding == "detector"
        grounded = ("a box of the detector agrees with the model's, or " if detects else "") + "the data has the box"
        share = f"{100 * options.least_area:g} to {100 * options.most_area:g} %"
        return (
            RowStep("listed", "its name and its box can be read", lambda row: answered(row.data.caption)),
            RowStep("grounded", grounded, self._ground),
            RowStep("small", f"it covers {share} of the image", self._size),
            RowStep("instructed", "it has an instruction and two captions", self._instruct),
            RowStep("edited", "it has a reference image", self._edit),
        )

    def check_options(self) -> None:
        """Raise ConfigError for areas that leave no target."""
        least, most = self.options.least_area, self.options.most_area
        if least >= most:
            raise ConfigError(
                f"--least-area {least:g} and --most-area {most:g} leave no target; the first has to be the smaller one"
            )

    def needed(self) -> Mapping[str, str]:
        """Return an image editor, and a detector where one is to confirm boxes."""
        found = {"edit": "reference images need an editor: {reason}"}
        if self.options.grounding == "detector":
            found["detect"] = (
                "targets need a detector, and there is none: {reason}. Name one with --detector, or choose --grounding "
                "given: then images without boxes in the metadata are left out"
            )
        return found

    def checked(self, row: DataRow) -> DataRow:
        """Return a row. Raises RowError where its question cannot be read, or it has no box and needs one."""
        if self.options.grounding == "given" and not row.quads:
            raise RowError("box", "there is no box (bbox), and --grounding given takes no others")
        try:
            texts.read_question(row.extra)
        except ValueError as error:
            raise RowError("row", str(error)) from error
        # Several rows may ask about one image.
        asked = digest([row.extra.get("question"), row.target_name, [list(quad.values) for quad in row.quads]])
        return replace(row, hints=(row.source.stem, row.source.name, f"{row.source.stem}-{asked[:8]}"))

    def rows(self, image: SetRow[None], others: list[dict[str, Json]]) -> list[SetRow[Any]]:
        """Return a row for each target: those of the data, or those that a model names."""
        sample, options = image.sample, self.options
        caption = image.ask(
            "caption", render("build/dlebench/caption", most=texts.CAPTION_WORDS), texts.CAPTION, role="describe"
        )
        given = tuple(target.boxes["source"] for target in sample.targets if "source" in target.boxes)
        if given:
            targets = [NamedTarget(name=self._name(image, caption, given), boxes=given)]
        else:
            percent = f"{100 * options.most_area:g}"
            prompt = render("build/dlebench/targets", most=options.most_targets, percent=percent)
            ask = image.ask("targets", prompt, texts.TARGETS, role="describe")
            # Both are asked at once.
            image.look(caption)
            said = image.take(ask)
            targets, left = texts.read_targets(said.answer, sample.source, most=options.most_targets)
            others += [{"target": name, "stage": "listed", "why": why, "detail": detail} for name, why, detail in left]
            if not targets:
                why = "nothing that was listed can be used" if left else "the model names no small target"
                raise LeftOut("no_targets", why)
        finding = image.known.finding(caption.metric, caption.about)
        return [
            image.becomes(number, TargetDraft(target=target, caption=finding), part=f"target {number}")
            for number, target in enumerate(targets, start=1)
        ]

    def _name(self, image: SetRow[None], caption: Ask, boxes: tuple[Box, ...]) -> str:
        """Return the name of what the data's boxes mark: the data's, or the model's. Raises LeftOut."""
        name = texts.plain_name(image.sample.targets[0].name or "")
        view = texts.close_up(image.sample.source, boxes)
        ask = image.ask("target_name", render("build/dlebench/name", boxes=len(boxes)), texts.NAME, view, role="describe")
        image.look(caption)
        if name:
            return name
        name = texts.plain_name(texts.read_text(image.take(ask).answer))
        if not name or len(name) > texts.LONGEST_NAME:
            raise LeftOut("unusable_name", f"{name[:80]!r}")
        return name

    def _ground(self, row: SetRow[TargetDraft]) -> None:
        """Take the detector's boxes, which agree with the model's."""
        sample, target = row.sample, row.data.target
        if sample.targets:
            return
        args = {"phrase": target.name, **_DETECTION}
        found: Any = row.take(row.measure("detections", "detections", args, part=target.name)).answer
        width, height = sample.source.width, sample.source.height
        seen = [box_from_json(one["box"]).scaled(width / 1000, height / 1000) for one in found.data["detections"]]
        boxes = texts.matched(target.boxes, seen, iou=_IOU)
        if boxes is None:
            best = max((a.iou(b) for a in target.boxes for b in seen), default=0.0)
            detail = f"{len(seen)} boxes seen, {len(target.boxes)} named; the best overlap is {best:.2f}"
            raise LeftOut("disagrees" if seen else "not_found", detail)
        row.data.target = replace(target, boxes=boxes)

    def _size(self, row: SetRow[TargetDraft]) -> None:
        """Measure the share of the image that the boxes cover; what overlaps counts once."""
        image = row.sample.source
        area = row.data.area = covered_area(row.data.target.boxes) / (image.width * image.height)
        why = "too_large" if area >= self.options.most_area else "too_small" if area < self.options.least_area else ""
        if why:
            raise LeftOut(why, f"{100 * area:.3g} % of the image")

    def _instruct(self, row: SetRow[TargetDraft]) -> None:
        """Add the instruction and the captions."""
        edit, question = row.data, texts.read_question(row.sample.extra)
        seed = f"{self.options.seed} {row.sample.source.sha256} {edit.target.name}"
        if question is None:
            edit.drawn = Random(f"{seed} type").choice(EDIT_TYPES)
        elif question.wrong:
            edit.wrong = Random(f"{seed} {question.text} wrong").choice(question.wrong)
        caption = texts.read_text(answered(edit.caption).answer)
        prompt = render(
            "build/dlebench/instruct",
            target=one_line(edit.target.name),
            caption=one_line(caption),
            boxes=len(edit.target.boxes),
            types=texts.TYPES,
            drawn=edit.drawn,
            question="" if question is None else one_line(question.text),
            answer="" if question is None else one_line(question.answer),
            wrong=one_line(edit.wrong),
        )
        view = texts.close_up(row.sample.source, edit.target.boxes)
        finding = row.take(row.ask("metadata", prompt, texts.METADATA, view, role="instruct"))
        edit.metadata = texts.read_metadata(finding.answer)

    def _edit(self, row: SetRow[TargetDraft]) -> None:
        """Add the reference: of the first edit that can be used and that nobody has sent back."""
        edit, options, unusable = row.data, self.options, 0
        while True:
            found = self._tried(row)
            if found["outcome"] != "edited":
                unusable += 1
                if unusable == options.tries:
                    raise LeftOut(found["outcome"], row.findings[-1].reason)
                continue
            edit.reference, edit.facts = ImageRef.from_json(found["picture"]), found
            verdict = row.verdict(edit.reference.sha256)
            if verdict is None:
                return
            assert edit.metadata is not None
            edit.metadata = replace(edit.metadata, **verdict.corrections)
            if verdict.kind != "again" or edit.sent_back == REGENERATIONS:
                return
            edit.sent_back, unusable = edit.sent_back + 1, 0

    def _tried(self, row: SetRow[TargetDraft]) -> Mapping[str, Any]:
        """Return what came of the next edit. Raises LeftOut while it is not known, and where the editor failed."""
        edit = row.data
        assert edit.metadata is not None
        number = edit.tries + 1
        args: dict[str, Json] = {
            "instruction": edit.metadata.instruction,
            "boxes": boxes_json(edit.target.boxes),
            "seed": number,
        }
        task = row.measure("reference", "crop_edit", args, part=f"{row.part}, try {number}")
        try:
            answer: Any = row.take(task).answer
        except LeftOut as error:
            # The world may mend it: the same command edits again.
            raise LeftOut(_EDITOR.get(str(error).partition(":")[0], error.why), str(error), failed=error.failed) from error
        edit.tries = number
        return dict(answer.data)

    def seen(self, row: SetRow[TargetDraft]) -> str:
        """Return the digest of the reference."""
        return "" if row.data.reference is None else row.data.reference.sha256

    def about(self, row: SetRow[TargetDraft]) -> dict[str, Json]:
        """Return the target and how often it was edited."""
        return {"target": row.data.target.name, "tries": row.data.tries}

    def columns(self, row: SetRow[TargetDraft], place: ImagePlace, number: int) -> dict[str, Json]:
        """Return a row of the ImageFolder."""
        assert row.data.reference is not None
        return {
            "source_file_name": place.image(row.sample.source),
            "reference_file_name": place.image(row.data.reference),
            **_said(row),
            "bboxes": boxes_json(row.data.target.boxes),
            "bbox_format": "xyxy",
            "image": row.sample.source.path.name if row.sample.source.path else None,
        }

    def lines(self, row: SetRow[TargetDraft], place: ImagePlace, number: int) -> Iterable[dict[str, Json]]:
        """Yield the row by the benchmark's names."""
        assert row.data.reference is not None
        said = {_BENCHMARK.get(name, name): value for name, value in _said(row).items()}
        yield {
            "id": row.id,
            "image": place.as_is(row.sample.source, SOURCES, file_stem(row.sample.id)),
            "reference_image": place.as_is(row.data.reference, REFERENCES, file_stem(row.id)),
            "bbox": boxes_json(row.data.target.boxes),
            "bbox_format": "xyxy",
            **said,
        }

    def told(self, made: SetMade) -> SetTold:
        """Return the counts of images, types and tries."""
        kept: list[TargetDraft] = [row.data for row in made.kept]
        types = Counter(one.metadata.edit_type for one in kept if one.metadata is not None)
        blended = sum(bool(one.facts and one.facts["feather_px"]) for one in kept)
        tries = sum(row.data.tries for row in made.rows)
        listed = [kind for kind in EDIT_TYPES if types[kind]]
        return SetTold(
            counts={
                "types": {kind: types[kind] for kind in listed},
                "blended": blended,
                "tries": tries,
                "made_again_for_people": sum(row.data.sent_back for row in made.rows),
            },
            tables=[[["Rows by type", "Rows"], *([kind, str(types[kind])] for kind in listed)]] if types else [],
            notes=[f"Edits: {tries:,}; crops that are blended with their surroundings: {blended:,} of {len(kept):,}"],
        )


_EDITOR: Final = {"failed": "editor_failed", "timed out": "editor_timed_out"}
"""How the reason of a failed edit begins → why there is no reference."""
_BENCHMARK: Final = {"target_name": "target_object", "source_caption": "prompt_clean"}
"""Column → the benchmark's name for it."""


def boxes_json(boxes: Iterable[Box]) -> list[Json]:
    """Return boxes as lists of four numbers in px, to a hundredth."""
    return [[round(v, 2) for v in box] for box in boxes]


def _said(row: SetRow[TargetDraft]) -> dict[str, Json]:
    """Return what both layouts say of a row in words and numbers."""
    edit, question = row.data, texts.read_question(row.sample.extra)
    metadata, facts = edit.metadata, edit.facts
    assert metadata is not None and facts is not None
    asked: dict[str, Json] = {}
    if question is not None:
        asked = {"question": question.text, "answer": question.answer, "wrong": edit.wrong}
    return {
        "instruction": metadata.instruction,
        "edit_type": metadata.edit_type,
        "target_name": metadata.target,
        "source_caption": metadata.source_caption,
        "reference_caption": metadata.reference_caption,
        "caption": texts.read_text(answered(edit.caption).answer),
        **asked,
        "target_area": round(edit.area, 6),
        "crop": facts["crop"],
        "seam_levels": facts["seam_levels"],
        "feather_px": facts["feather_px"],
        "tries": edit.tries,
        "reviewed": row.passed,
    }


BUILDER: Final = SetBuilder(DLEBenchBuild)
