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
from editloupe.build.engine import RowStep, SetMade, SetRecipe, SetRow, SetTold, corners
from editloupe.build.made import SetBuilder
from editloupe.build.names import plain_name, target_name
from editloupe.build.places import ImagePlace
from editloupe.build.shown import boxes_of, close_up
from editloupe.config import Whole
from editloupe.data.folders import RowError
from editloupe.data.rows import DataRow
from editloupe.data.write import file_stem
from editloupe.errors import ConfigError
from editloupe.imaging.targets import covered_area
from editloupe.prompts import render
from editloupe.protocols.base import Options
from editloupe.protocols.dlebench.protocol import PAPER
from editloupe.protocols.dlebench.tables import EDIT_TYPES
from editloupe.replies import one_line
from editloupe.values import ImageRef, Json, box_from_json

SOURCES: Final = "Source_Images"
REFERENCES: Final = "Reference_Images"
REGENERATIONS: Final = 3
"""How often people may have a reference made again (3.1)."""
_IOU: Final = 0.5
"""Least overlap of a box of the model and one of the detector."""
_DETECTION: Final[dict[str, Json]] = {"box_threshold": 0.35, "text_threshold": 0.25}
_BENCHMARK: Final = {"target_name": "target_object", "source_caption": "prompt_clean"}
"""Column → the benchmark's name for it."""

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


@dataclass(kw_only=True)
class TargetDraft:
    """What is known of one target's edit."""

    target: NamedTarget
    """With the boxes that the model named, until others are confirmed."""
    area: float = 0.0
    """Share of the image that the target covers, 0 to 1."""
    asked: Mapping[str, Json] | None = None
    """The question, its answer, and the wrong option that the edit makes true ("" without one). None without a question."""
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
        "describe": "names small targets of an image",
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
            RowStep("listed", "its name and its box can be read", lambda row: None),
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
                f"--set least_area={least:g} and most_area={most:g} leave no target; the first has to be the smaller one"
            )

    def needed(self) -> Mapping[str, str]:
        """Return an image editor, and a detector where one is to confirm boxes."""
        found = {"edit": "reference images need an editor: {reason}"}
        if self.options.grounding == "detector":
            found["detect"] = (
                "targets need a detector, and there is none: {reason}. Name one with --detector, or choose "
                "--set grounding=given: then images without boxes in the metadata are left out"
            )
        return found

    def checked(self, row: DataRow) -> DataRow:
        """Return a row. Raises RowError where its question cannot be read, or it has no box and needs one."""
        if self.options.grounding == "given" and not row.quads:
            raise RowError("box", "there is no box (bbox), and --set grounding=given takes no others")
        try:
            texts.read_question(row.extra)
        except ValueError as error:
            raise RowError("row", str(error)) from error
        return super().checked(row)

    def rows(self, image: SetRow[None], others: list[dict[str, Json]]) -> list[SetRow[Any]]:
        """Return a row for each target: that of the data, or those that a model names."""
        sample, most = image.sample, self.options.most_targets
        targets = [NamedTarget(name=plain_name(target_name(sample)), boxes=boxes_of(sample))]
        if not targets[0].boxes:
            prompt = render("build/dlebench/targets", most=most, percent=f"{100 * self.options.most_area:g}")
            said = image.take(image.ask("targets", prompt, texts.TARGETS, role="describe"))
            targets, left = texts.read_targets(said.answer, sample.source, most=most)
            others += left
            if not targets:
                why = "nothing that was listed can be used" if left else "the model names no small target"
                raise LeftOut("no_targets", why)
        return [
            image.becomes(number, TargetDraft(target=target), part=f"target {number}")
            for number, target in enumerate(targets, start=1)
        ]

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
        if question is not None:
            wrong = Random(f"{seed} {question.text} wrong").choice(question.wrong or ("",))
            edit.asked = {"question": question.text, "answer": question.answer, "wrong": wrong}
        prompt = render(
            "build/dlebench/instruct",
            target=one_line(edit.target.name),
            boxes=len(edit.target.boxes),
            types=texts.TYPES,
            drawn=Random(f"{seed} type").choice(EDIT_TYPES),
            **(edit.asked or {"question": ""}),
        )
        view = close_up(row.sample.source, edit.target.boxes)
        finding = row.take(row.ask("metadata", prompt, texts.METADATA, view, role="instruct"))
        edit.metadata = texts.read_metadata(finding.answer)

    def _edit(self, row: SetRow[TargetDraft]) -> None:
        """Add the reference: of the first edit that can be used and that nobody has sent back."""
        edit, unusable = row.data, 0
        assert edit.metadata is not None
        while True:
            number, instruction = edit.tries + 1, edit.metadata.instruction
            args: dict[str, Json] = {"instruction": instruction, "boxes": corners(edit.target.boxes), "seed": number}
            task = row.measure("reference", "crop_edit", args, part=f"{row.part}, try {number}")
            # An editor that failed may be mended: the same command edits again.
            answer: Any = row.take(task).answer
            edit.tries = number
            if answer.data["outcome"] != "edited":
                unusable += 1
                if unusable == self.options.tries:
                    raise LeftOut(answer.data["outcome"], row.findings[-1].reason)
                continue
            edit.reference, edit.facts = ImageRef.from_json(answer.data["picture"]), answer.data
            verdict = row.verdict(edit.reference.sha256)
            if verdict is None:
                return
            edit.metadata = replace(edit.metadata, **verdict.corrections)
            if verdict.kind != "again" or edit.sent_back == REGENERATIONS:
                return
            edit.sent_back, unusable = edit.sent_back + 1, 0

    def seen(self, row: SetRow[TargetDraft]) -> str:
        """Return the digest of the reference."""
        return "" if row.data.reference is None else row.data.reference.sha256

    def about(self, row: SetRow[TargetDraft]) -> dict[str, Json]:
        """Return the target and how often it was edited."""
        return {"target": row.data.target.name, "tries": row.data.tries}

    def columns(self, row: SetRow[TargetDraft], place: ImagePlace, number: int) -> dict[str, Json]:
        """Return a row of the ImageFolder."""
        assert row.data.reference is not None
        boxes = {"bboxes": corners(row.data.target.boxes), "bbox_format": "xyxy"}
        return {"reference_file_name": place.image(row.data.reference), **_said(row), **boxes}

    def lines(self, row: SetRow[TargetDraft], place: ImagePlace, number: int) -> Iterable[dict[str, Json]]:
        """Yield the row by the benchmark's names."""
        assert row.data.reference is not None
        yield {
            "id": row.id,
            "image": place.as_is(row.sample.source, SOURCES, file_stem(row.sample.id)),
            "reference_image": place.as_is(row.data.reference, REFERENCES, file_stem(row.id)),
            "bbox": corners(row.data.target.boxes),
            "bbox_format": "xyxy",
            **{_BENCHMARK.get(name, name): value for name, value in _said(row).items()},
        }

    def told(self, made: SetMade) -> SetTold:
        """Return the counts of types and tries."""
        kept, tries = [row.data for row in made.kept], sum(row.data.tries for row in made.rows)
        types = Counter(one.metadata.edit_type for one in kept)
        blended = sum(bool(one.facts["feather_px"]) for one in kept)
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


def _said(row: SetRow[TargetDraft]) -> dict[str, Json]:
    """Return what both layouts say of a row in words and numbers."""
    edit, metadata, facts = row.data, row.data.metadata, row.data.facts
    assert metadata is not None and facts is not None
    return {
        "instruction": metadata.instruction,
        "edit_type": metadata.edit_type,
        "target_name": metadata.target,
        "source_caption": metadata.source_caption,
        "reference_caption": metadata.reference_caption,
        **(edit.asked or {}),
        "target_area": round(edit.area, 6),
        **{name: facts[name] for name in ("crop", "seam_levels", "feather_px")},
        "tries": edit.tries,
        "reviewed": row.passed,
    }


BUILDER: Final = SetBuilder(DLEBenchBuild)
