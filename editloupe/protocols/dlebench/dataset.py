"""`editloupe build dlebench`: images in; targets, instructions and reference images out, as the benchmark has them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, cast

from editloupe import files, models
from editloupe.data.folders import RowError
from editloupe.data.image_lists import load_images
from editloupe.data.images import ImageStore
from editloupe.data.rows import DataRow, Loaded, RejectedRow
from editloupe.data.write import IMAGES, METADATA, file_stem, remove_others, write_as_is
from editloupe.errors import ConfigError, ModelAbsent
from editloupe.measures.base import Models
from editloupe.protocols.builders import Answered, Built, Reviewed, Stage
from editloupe.protocols.dlebench.builder import (
    DLEBenchBuild,
    DLEBenchBuildOptions,
    Draft,
    RowDraft,
    boxes_json,
)
from editloupe.protocols.dlebench.generate import read_question
from editloupe.protocols.dlebench.review import DLEBenchReview
from editloupe.protocols.dlebench.tables import EDIT_TYPES
from editloupe.protocols.dlebench.verdicts import verdict
from editloupe.protocols.reviews import REVIEW, TO_REVIEW, open_note, with_reviews
from editloupe.values import ImageRef, Json, Sample, digest, json_line

DATA: Final = "data.jsonl"
SOURCES: Final = "Source_Images"
REFERENCES: Final = "Reference_Images"
"""The benchmark's layout."""
IMAGEFOLDER: Final = "imagefolder"
LEFT_OUT: Final = "left_out.jsonl"

Rows = Sequence[tuple[Sample, Draft, RowDraft]]


class DLEBenchSet:
    """The builder."""

    summary: ClassVar[str] = (
        "Name small targets of images, confirm them with a detector, write an instruction for each, and make its reference "
        "image with an image editor in a crop. IMAGES is a folder of images, or an ImageFolder."
    )
    protocol: ClassVar[str] = DLEBenchBuild.name
    Options: ClassVar[type[DLEBenchBuildOptions]] = DLEBenchBuildOptions
    weights: ClassVar[tuple[str, ...]] = ("editor",)
    review: ClassVar[str] = DLEBenchReview.name

    def check(self, options: DLEBenchBuildOptions, models_: Models) -> None:
        """Raise ConfigError without an image editor, and without a detector where one is to confirm boxes."""
        if options.least_area >= options.most_area:
            raise ConfigError(
                f"--least-area {options.least_area:g} and --most-area {options.most_area:g} leave no target; the first has "
                "to be the smaller one"
            )
        try:
            models.prepare(models_.get("edit"))
        except ModelAbsent as reason:
            raise ConfigError(f"reference images need an editor: {reason}") from reason
        if options.grounding != "detector":
            return
        try:
            models.prepare(models_.get("detect"))
        except ModelAbsent as reason:
            raise ConfigError(
                f"targets need a detector, and there is none: {reason}. Name one with --detector, or choose --grounding "
                "given (only images with boxes in the metadata) or --grounding model (the model's own boxes, unconfirmed)"
            ) from reason

    def load(self, path: Path, options: DLEBenchBuildOptions, *, store: ImageStore, folder: Path) -> Loaded:
        """Return a sample for each image, or for each row of the metadata; every image is decoded once.

        Of a folder without metadata, an image that occurs again, byte for byte, is taken once. Raises DataError where there
        is no image.
        """
        checked = partial(_checked, boxes_only=options.grounding == "given")
        return load_images(path, store, checked=checked, aside=("mask_file_name", REVIEW))

    def reviewed(self, loaded: Loaded, reviews: Sequence[Reviewed]) -> Loaded:
        """Return the images with the verdicts on their rows, as far as they are of this set."""

        def seen(row: Sample) -> str:
            return "" if row.reference is None else row.reference.sha256

        return with_reviews(loaded, reviews, seen=seen, verdict=verdict)

    def write(self, run: Answered, options: DLEBenchBuildOptions, *, folder: Path) -> Built:
        """Write the rows in the order of the images, and what was left out with its reason."""
        protocol = cast(DLEBenchBuild, run.protocol)
        drafts = [(sample, protocol.draft(sample, known)) for sample, known in run.known()]
        looked = any(REVIEW in sample.extra for sample, _ in drafts)
        whole = [(sample, draft, row) for sample, draft in drafts for row in draft.rows if row.lost is None]
        kept = [one for one in whole if one[2].passed or not looked]
        waiting = [one for one in whole if not one[2].passed]
        with files.writing(folder):
            _write_benchmark(kept, folder, run.images)
            for name, rows in ((IMAGEFOLDER, kept), (TO_REVIEW, waiting)):
                _write_imagefolder(rows, folder / name, run)
            left = _left_out(run.rejected, drafts, waiting if looked else ())
            files.write_whole(folder / LEFT_OUT, b"".join(map(json_line, left)), below=folder)
        return _built(run, drafts, options, kept, waiting, looked=looked)


def _checked(row: DataRow, *, boxes_only: bool) -> DataRow:
    """Return a row of the metadata. Raises RowError where its question cannot be read, or it has no box and needs one."""
    if boxes_only and not row.quads:
        raise RowError("box", "there is no box (bbox), and --grounding given takes no others")
    try:
        read_question(row.extra)
    except ValueError as error:
        raise RowError("row", str(error)) from error
    # Several rows may ask about one image.
    asked = digest([row.extra.get("question"), row.target_name, [list(quad.values) for quad in row.quads]])
    return replace(row, hints=(row.source.stem, row.source.name, f"{row.source.stem}-{asked[:8]}"))


def _write_benchmark(rows: Rows, folder: Path, images: ImageStore) -> None:
    """Write the benchmark's file with its images."""
    lines, sources, references = [], dict[str, str](), set[str]()
    for sample, draft, row in rows:
        if sample.id not in sources:
            stem = file_stem(sample.id)
            sources[sample.id] = write_as_is(sample.source, folder / SOURCES, stem, store=images)
        reference = f"{file_stem(row.id)}.png"
        assert row.reference is not None
        files.write_whole(folder / REFERENCES / reference, images.data(row.reference), below=folder)
        references.add(reference)
        texts = _texts(sample, draft, row)
        # The benchmark's name for it.
        caption = texts.pop("source_caption")
        lines.append(
            json_line(
                {
                    "id": row.id,
                    "image": sources[sample.id],
                    "reference_image": reference,
                    "instruction": texts.pop("instruction"),
                    "edit_type": texts.pop("edit_type"),
                    "target_object": texts.pop("target_name"),
                    "bbox": boxes_json(row.target.boxes),
                    "bbox_format": "xyxy",
                    "prompt_clean": caption,
                    **texts,
                }
            )
        )
    files.write_whole(folder / DATA, b"".join(lines), below=folder)
    remove_others(folder / SOURCES, sources.values())
    remove_others(folder / REFERENCES, references)


def _texts(sample: Sample, draft: Draft, row: RowDraft) -> dict[str, Json]:
    """Return what both layouts say of a row in words and numbers."""
    metadata, edit = row.metadata, row.edit
    assert metadata is not None and edit is not None and row.area is not None
    question = read_question(sample.extra)
    asked: dict[str, Json] = (
        {} if question is None else {"question": question.text, "answer": question.answer, "wrong": row.wrong}
    )
    return {
        "instruction": metadata.instruction,
        "edit_type": metadata.edit_type,
        "target_name": metadata.target,
        "source_caption": metadata.source_caption,
        "reference_caption": metadata.reference_caption,
        "caption": draft.caption,
        **asked,
        "target_area": round(row.area, 6),
        "crop": edit["crop"],
        "seam_levels": edit["seam_levels"],
        "feather_px": edit["feather_px"],
        "tries": row.tries,
        "reviewed": row.passed,
    }


def _write_imagefolder(rows: Rows, folder: Path, run: Answered) -> None:
    """Write a row for each target, with the findings that it rests on, and its images."""
    lines, placed = [], set[str]()

    def place(image: ImageRef) -> str:
        name = run.place(image, folder)
        placed.add(Path(name).name)
        return name

    for sample, draft, row in rows:
        assert row.reference is not None
        line: dict[str, Json] = {
            "id": row.id,
            "source_file_name": place(sample.source),
            "reference_file_name": place(row.reference),
            **_texts(sample, draft, row),
            "bboxes": boxes_json(row.target.boxes),
            "bbox_format": "xyxy",
            "image": sample.source.path.name if sample.source.path else None,
            "lineage": {"run": run.identity, "sample": sample.id, "task_ids": [one.task_id for one in row.findings]},
        }
        lines.append(json_line(line))
    files.write_whole(folder / METADATA, b"".join(lines), below=folder.parent)
    remove_others(folder / IMAGES, placed)


def _left_out(
    rejected_: Sequence[RejectedRow], drafts: Sequence[tuple[Sample, Draft]], waiting: Rows
) -> Iterator[dict[str, Json]]:
    """Yield each image without a target, and each target without a row, with the reason."""
    for image in rejected_:
        yield {"image": image.id, "stage": "read", "why": image.kind, "detail": image.message}
    for sample, draft in drafts:
        if draft.lost is not None:
            yield {"image": sample.id, **draft.lost.to_json()}
        for name, why, detail in draft.others:
            yield {"image": sample.id, "target": name, "stage": "listed", "why": why, "detail": detail}
        for row in draft.rows:
            if row.lost is not None:
                yield {
                    "image": sample.id,
                    "id": row.id,
                    "target": row.target.name,
                    **row.lost.to_json(),
                    "tries": row.tries,
                }
    for sample, _, row in waiting:
        yield {"image": sample.id, "id": row.id, "target": row.target.name, "stage": "reviewed", "why": "not_reviewed"}


def _built(
    run: Answered,
    drafts: Sequence[tuple[Sample, Draft]],
    options: DLEBenchBuildOptions,
    kept: Rows,
    waiting: Rows,
    *,
    looked: bool,
) -> Built:
    """Return the funnel of targets, and the counts of images, types and tries."""
    rows = [row for _, draft in drafts for row in draft.rows]
    others = [why for _, draft in drafts for _, why, _ in draft.others]

    def lost(*stages: str) -> Counter[str]:
        return Counter(row.lost.reason for row in rows if row.lost is not None and row.lost.stage in stages)

    without = [draft.lost.reason for _, draft in drafts if draft.lost is not None]
    reasons = Counter([row.kind for row in run.rejected] + without)
    images: dict[str, Json] = {
        "read": len(run.rejected) + len(drafts),
        "left_out": dict(sorted(reasons.items())),
        "with_targets": sum(draft.lost is None for _, draft in drafts),
    }
    grounded = {
        "detector": "a box of the detector agrees with the model's, or the data has the box",
        "given": "the data has the box",
        "model": "(the model's boxes count as they are)",
    }
    share = f"{100 * options.least_area:g} to {100 * options.most_area:g} %"
    stages = [
        ("listed", "its name and its box can be read", lost("listed", "described") + Counter(others)),
        ("grounded", grounded[options.grounding], lost("grounded")),
        ("small", f"it covers {share} of the image", lost("small")),
        ("instructed", "it has an instruction and two captions", lost("instructed")),
        ("edited", "it has a reference image", lost("edited")),
    ]
    if looked:
        unseen = Counter({"not_reviewed": len(waiting)}) if waiting else Counter[str]()
        stages.append(("reviewed", "people passed it", lost("reviewed") + unseen))
    types = Counter(row.metadata.edit_type for _, _, row in kept if row.metadata is not None)
    blended = sum(bool(row.edit and row.edit["feather_px"]) for _, _, row in kept)
    counts: dict[str, Json] = {
        "images": images,
        "types": {kind: types[kind] for kind in EDIT_TYPES if types[kind]},
        "other_type_than_drawn": sum(_other_type(row) for _, _, row in kept),
        "blended": blended,
        "tries": sum(row.tries for row in rows),
        "made_again_for_people": sum(row.sent_back for row in rows),
        "reviewed": looked,
        "to_review": len(waiting),
    }
    left = ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in sorted(reasons.items()))
    notes = [
        f"Images: {images['read']:,}; with targets: {images['with_targets']:,}" + (f"; left out: {left}" if left else ""),
        f"Edits: {counts['tries']:,}; crops that are blended with their surroundings: {blended:,} of {len(kept):,}",
    ]
    if options.grounding == "model":
        notes.append("No detector was asked: boxes that the data does not have are the model's word alone.")
    if waiting:
        notes.append(open_note(len(waiting), looked=looked, protocol=DLEBenchReview.name))
    table = [["Rows by type", "Rows"], *([kind, str(types[kind])] for kind in EDIT_TYPES if types[kind])]
    return Built(
        read=len(rows) + len(others),
        written=len(kept),
        noun="row",
        unit="target",
        stages=[Stage(name=name, passes=passes, left_out=dict(sorted(why.items()))) for name, passes, why in stages],
        counts=counts,
        tables=[table] if types else [],
        notes=notes,
    )


def _other_type(row: RowDraft) -> bool:
    return bool(row.drawn) and row.metadata is not None and row.metadata.edit_type != row.drawn
