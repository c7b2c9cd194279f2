"""DLEBench's own making: small targets of an image, an instruction for each, and a reference image edited in a crop.

The role `describe` names small things, a detector confirms their boxes, the role `instruct` writes what is to be edited,
and an image editor edits the crop about the target. What is drawn at random follows from the seed and the image's content.

Reproduced (paper, 3.1): the metadata, from a question with its answer and a wrong option where the data has one; the
reference image, edited in a crop about the target's boxes (Eq. 1) and put back; what people verify (`dlebench-review`),
after which a reference is made again at the most three times.
Differs: the prompts are ours; a model names targets where the data has no question, and the type of an edit is drawn where
the target allows it; a detector confirms the model's boxes, which in the paper people draw; the seam of a crop is measured,
and blended where it would show; a crop that cannot be used is made again before anybody sees it.
Not covered: the choice of images; faces and license plates in them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from editloupe.build.base import LeftOut
from editloupe.build.dlebench import texts
from editloupe.build.dlebench.review import DLEBenchReview
from editloupe.build.engine import RowStep, SetRecipe, SetRow, corners
from editloupe.build.places import ImagePlace
from editloupe.build.shown import boxes_of, close_up, plain_name, target_name
from editloupe.config import Whole
from editloupe.data.folders import RowError
from editloupe.data.images import ImageStore
from editloupe.data.rows import DataRow
from editloupe.data.write import file_stem
from editloupe.imaging.targets import covered_area
from editloupe.prompts import render
from editloupe.protocols.base import Options
from editloupe.protocols.dlebench.protocol import PAPER
from editloupe.protocols.dlebench.tables import EDIT_TYPES
from editloupe.replies import one_line
from editloupe.values import Box, ImageRef, Json, box_from_json

SOURCES: Final = "Source_Images"
REFERENCES: Final = "Reference_Images"
REGENERATIONS: Final = 3
"""How often people may have a reference made again (3.1)."""
_IOU: Final = 0.5
"""Least overlap of a box of the model and one of the detector."""
_DETECTION: Final[dict[str, Json]] = {"box_threshold": 0.35, "text_threshold": 0.25}


class DLEBenchBuildOptions(Options):
    """What a run may set."""

    most_targets: Annotated[Whole, Field(ge=1, le=20)] = 3
    """Most targets of an image."""
    grounding: Literal["detector", "given"] = "detector"
    """What becomes of an image without boxes in the data: a detector confirms the model's, or it is left out."""
    least_area: Annotated[float, Field(ge=0, le=1)] = 0.0
    """Share of the image that a target covers at least; 0.01 is the paper's."""
    most_area: Annotated[float, Field(gt=0, le=1)] = 0.1
    """Share of the image that a target stays under."""
    seed: Annotated[Whole, Field(ge=0)] = 42
    """What types and wrong options are drawn by."""
    tries: Annotated[Whole, Field(ge=1, le=10)] = 3
    """Most edits for one reference, if what comes back cannot be used."""


@dataclass(kw_only=True)
class TargetDraft:
    """What is known of one target's edit."""

    name: str
    boxes: tuple[Box, ...]
    """In px: of one thing, or of several of one name; those that the model named, until others are confirmed."""
    said: dict[str, Json] = field(default_factory=dict)
    """What both layouts say of it, by the columns of the ImageFolder."""
    reference: ImageRef | None = None
    """The edited image; None while there is none."""
    tries: int = 0
    """Edits so far."""
    sent_back: int = 0
    """How often people had the reference made again."""


class DLEBenchBuild(SetRecipe):
    """Targets, boxes, instructions and reference images of each image, each from the findings before it."""

    name = "dlebench-build"
    summary = (
        "Name small targets of images, confirm them with a detector, write an instruction for each, and make its reference "
        "image with an image editor in a crop. PATH is a folder of images, or an ImageFolder."
    )
    paper = PAPER
    unit, first = "target", "described"
    Options = DLEBenchBuildOptions
    review = DLEBenchReview
    roles: ClassVar[Mapping[str, str]] = {
        "describe": "names small targets of an image",
        "instruct": "writes the instruction and the captions of an edit",
    }
    file, folders = "data.jsonl", (SOURCES, REFERENCES)
    aside = ("mask_file_name",)

    def steps(self) -> Sequence[RowStep]:
        """Return the steps of a target."""
        share = f"{100 * self.options.least_area:g} to {100 * self.options.most_area:g}"
        detects = self.options.grounding == "detector"
        grounded = ("a box of the detector agrees with the model's, or " if detects else "") + "the data has the box"
        return (
            RowStep("listed", "its name and its box can be read"),
            RowStep("grounded", grounded, self._ground),
            RowStep("small", f"it covers {share} % of the image", self._size),
            RowStep("instructed", "it has an instruction and two captions", self._instruct),
            RowStep("edited", "it has a reference image", self._edit),
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

    def checked(self, row: DataRow, store: ImageStore) -> DataRow:
        """Return a row. Raises RowError where its question cannot be read, or it has no box and needs one."""
        if self.options.grounding == "given" and not row.quads:
            raise RowError("box", "there is no box (bbox), and --set grounding=given takes no others")
        try:
            texts.read_question(row.extra)
        except ValueError as error:
            raise RowError("row", str(error)) from error
        return super().checked(row, store)

    def rows(self, image: SetRow[None]) -> list[SetRow[Any]]:
        """Return a row for each target: that of the data, or those that a model names."""
        sample, most = image.sample, self.options.most_targets
        targets = {plain_name(target_name(sample)): boxes} if (boxes := boxes_of(sample)) else {}
        if not targets:
            prompt = render("build/dlebench/targets", most=most, percent=f"{100 * self.options.most_area:g}")
            data = image.ask("targets", prompt, texts.TARGETS, role="describe")
            targets, left = texts.read_targets(data, sample.source, most=most)
            image.others += left
            if not targets:
                raise LeftOut("no_targets", "nothing that was listed can be used" if left else "the model names no target")
        return [
            image.becomes(number, TargetDraft(name=name, boxes=boxes), part=f"target {number}")
            for number, (name, boxes) in enumerate(targets.items(), start=1)
        ]

    def _ground(self, row: SetRow[TargetDraft]) -> None:
        """Take the detector's boxes, which agree with the model's."""
        draft, source = row.data, row.sample.source
        if row.sample.targets:
            return
        args = {"phrase": draft.name, **_DETECTION}
        found: Any = row.measure("detections", "detections", args, part=draft.name).answer
        scale = source.width / 1000, source.height / 1000
        seen = [box_from_json(one["box"]).scaled(*scale) for one in found.data["detections"]]
        boxes = texts.matched(draft.boxes, seen, iou=_IOU)
        if boxes is None:
            best = max((a.iou(b) for a in draft.boxes for b in seen), default=0.0)
            detail = f"{len(seen)} boxes seen, {len(draft.boxes)} named; the best overlap is {best:.2f}"
            raise LeftOut("disagrees" if seen else "not_found", detail)
        draft.boxes = boxes

    def _size(self, row: SetRow[TargetDraft]) -> None:
        """Measure the share of the image that the boxes cover; what overlaps counts once."""
        image = row.sample.source
        area = covered_area(row.data.boxes) / (image.width * image.height)
        row.data.said |= {"target_area": round(area, 6), "bboxes": corners(row.data.boxes), "bbox_format": "xyxy"}
        if not self.options.least_area <= area < self.options.most_area:
            why = "too_small" if area < self.options.least_area else "too_large"
            raise LeftOut(why, f"{100 * area:.3g} % of the image")

    def _instruct(self, row: SetRow[TargetDraft]) -> None:
        """Add the instruction and the captions."""
        draft, image, asked = row.data, row.sample.source, texts.read_question(row.sample.extra)
        seed, question = f"{self.options.seed} {image.sha256} {draft.name}", dict[str, Json]()
        if asked is not None:
            wrong = Random(f"{seed} {asked[0]} wrong").choice(asked[2] or ("",))
            question = {"question": asked[0], "answer": asked[1], "wrong": wrong}
        prompt = render(
            "build/dlebench/instruct",
            target=one_line(draft.name),
            boxes=len(draft.boxes),
            drawn=Random(f"{seed} type").choice(EDIT_TYPES),
            **({"question": ""} | question),
        )
        data = row.ask("metadata", prompt, texts.METADATA, close_up(image, draft.boxes), role="instruct")
        draft.said |= texts.read_metadata(data) | question

    def _edit(self, row: SetRow[TargetDraft]) -> None:
        """Add the reference: of the first edit that can be used and that nobody has sent back."""
        draft, unusable = row.data, 0
        while True:
            number = draft.tries + 1
            args: dict[str, Json] = {
                "instruction": draft.said["instruction"],
                "boxes": corners(draft.boxes),
                "seed": number,
            }
            # An editor that failed may be mended: the same command edits again.
            answer: Any = row.measure("reference", "crop_edit", args, part=f"{row.part}, try {number}").answer
            draft.tries = number
            if answer.data["outcome"] != "edited":
                unusable += 1
                if unusable == self.options.tries:
                    raise LeftOut(answer.data["outcome"], row.findings[-1].reason)
                continue
            draft.said |= {name: answer.data[name] for name in ("crop", "seam_levels", "feather_px")}
            draft.reference = ImageRef.from_json(answer.data["picture"])
            verdict = row.verdict(self.seen(row))
            if verdict is None or verdict.kind != "again" or draft.sent_back == REGENERATIONS:
                return
            draft.sent_back, unusable = draft.sent_back + 1, 0

    def seen(self, row: SetRow[TargetDraft]) -> str:
        """Return the digest of the reference."""
        return "" if row.data.reference is None else row.data.reference.sha256

    def about(self, row: SetRow[TargetDraft]) -> dict[str, Json]:
        """Return the target and how often it was edited."""
        return {"target": row.data.name, "tries": row.data.tries}

    def columns(self, row: SetRow[TargetDraft], place: ImagePlace, number: int) -> dict[str, Json]:
        """Return a row of the ImageFolder."""
        assert row.data.reference is not None
        return {"reference_file_name": place.image(row.data.reference), **self._said(row)}

    def lines(self, row: SetRow[TargetDraft], place: ImagePlace, number: int) -> Iterable[dict[str, Json]]:
        """Yield the row by the benchmark's names."""
        names = {"bboxes": "bbox", "target_name": "target_object", "source_caption": "prompt_clean"}
        assert row.data.reference is not None
        yield {
            "id": row.id,
            "image": place.as_is(row.sample.source, SOURCES, file_stem(row.sample.id)),
            "reference_image": place.as_is(row.data.reference, REFERENCES, file_stem(row.id)),
            **{names.get(name, name): value for name, value in self._said(row).items()},
        }

    def _said(self, row: SetRow[TargetDraft]) -> dict[str, Json]:
        return {**row.data.said, "tries": row.data.tries, "reviewed": row.passed}

    def counts(self, rows: Sequence[SetRow[Any]], kept: Sequence[SetRow[Any]]) -> dict[str, Json]:
        """Return the counts of types and tries."""
        drawn = Counter(row.data.said["edit_type"] for row in kept)
        tries, again = (sum(getattr(row.data, name) for row in rows) for name in ("tries", "sent_back"))
        types: Json = {kind: drawn[kind] for kind in EDIT_TYPES if drawn[kind]}
        return {"types": types, "tries": tries, "made_again_for_people": again}
