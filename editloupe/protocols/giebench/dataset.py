"""`editloupe build giebench`: images in; instructions, questions and masks out, as the benchmark has them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import Any, ClassVar, Final, cast

import numpy as np
from numpy.typing import NDArray

from editloupe import files, models
from editloupe.data.folders import RowError
from editloupe.data.image_lists import load_images
from editloupe.data.images import ImageStore, encode_png
from editloupe.data.rows import DataRow, Loaded, RejectedRow
from editloupe.data.write import IMAGES, METADATA, file_stem, remove_others, write_as_is
from editloupe.errors import ConfigError, ImageError, ModelAbsent
from editloupe.imaging.masked import inside
from editloupe.measures.base import Models
from editloupe.protocols.builders import Answered, Built, Reviewed, Stage
from editloupe.protocols.giebench.builder import Draft, GIEBenchBuild, GIEBenchBuildOptions, RowDraft
from editloupe.protocols.giebench.edits import has_text
from editloupe.protocols.giebench.loader import FILE, MASK_PX
from editloupe.protocols.giebench.questions import KEY, OPTIONS, QUESTION
from editloupe.protocols.giebench.review import DIGEST, GIEBenchReview, seen, verdict
from editloupe.protocols.giebench.tables import EDIT_TYPES
from editloupe.protocols.reviews import REVIEW, TO_REVIEW, open_note, with_reviews
from editloupe.values import Json, Sample, digest, json_line

IMAGEFOLDER: Final = "imagefolder"
MASKS: Final = "masks"
"""Folder of an ImageFolder's masks."""
LEFT_OUT: Final = "left_out.jsonl"
PAPERS_SHARE: Final = 0.17
"""Of the published set's questions, so many are answered right before the edit (paper, section 3.1)."""

Rows = Sequence[tuple[Sample, RowDraft]]


class GIEBenchSet:
    """The builder."""

    summary: ClassVar[str] = (
        "Write edits of drawn types for images, each with a multiple-choice question; mask what they are about with a "
        "detector and a segmenter; drop questions that are answered right before the edit. IMAGES is a folder of images, "
        "or an ImageFolder."
    )
    protocol: ClassVar[str] = GIEBenchBuild.name
    Options: ClassVar[type[GIEBenchBuildOptions]] = GIEBenchBuildOptions
    weights: ClassVar[tuple[str, ...]] = ("segmenter",)
    review: ClassVar[str] = GIEBenchReview.name

    def check(self, options: GIEBenchBuildOptions, models_: Models) -> None:
        """Raise ConfigError where masks are to be made and a detector or a segmenter is missing."""
        if options.masks == "given":
            return
        for kind, what in (("detect", "detector"), ("segment", "segmenter")):
            try:
                models.prepare(models_.get(kind))
            except ModelAbsent as reason:
                raise ConfigError(
                    f"masks need a {what}, and there is none: {reason}. Name one with --{what}, or choose --masks given: "
                    "then masks and boxes of the metadata count, and other rows have no mask"
                ) from reason

    def load(self, path: Path, options: GIEBenchBuildOptions, *, store: ImageStore, folder: Path) -> Loaded:
        """Return the images, as `load_images`. A row of the metadata whose mask is empty or full is rejected."""
        loaded = load_images(path, store, checked=_checked, aside=(REVIEW,))
        samples, refused = [], list(loaded.rejected)
        for sample in loaded.samples:
            if problem := _mask_problem(sample, store):
                refused.append(RejectedRow(id=sample.id, message=problem))
            else:
                samples.append(sample)
        return replace(loaded, samples=tuple(samples), rejected=tuple(refused), order=())

    def reviewed(self, loaded: Loaded, reviews: Sequence[Reviewed]) -> Loaded:
        """Return the images with the verdicts on their rows, as far as they are of this set."""
        return with_reviews(loaded, reviews, seen=seen, verdict=verdict)

    def write(self, run: Answered, options: GIEBenchBuildOptions, *, folder: Path) -> Built:
        """Write the rows in the order of the images, and what was left out with its reason."""
        protocol = cast(GIEBenchBuild, run.protocol)
        drafts = [(sample, protocol.draft(sample, known)) for sample, known in run.known()]
        looked = any(REVIEW in sample.extra for sample, _ in drafts)
        whole = [(sample, row) for sample, draft in drafts for row in draft.rows if row.lost is None]
        kept = [one for one in whole if one[1].passed or not looked]
        waiting = [one for one in whole if not one[1].passed]
        with files.writing(folder):
            _write_benchmark(kept, folder, run.images)
            for name, rows in ((IMAGEFOLDER, kept), (TO_REVIEW, waiting)):
                _write_imagefolder(rows, folder / name, run)
            left = _left_out(run.rejected, drafts, waiting if looked else ())
            files.write_whole(folder / LEFT_OUT, b"".join(map(json_line, left)), below=folder)
        return _built(run, drafts, options, kept, waiting, looked=looked)


def _checked(row: DataRow) -> DataRow:
    """Return a row of the metadata. Raises RowError for a box or a mask of nobody knows what, and an unclear `has_text`."""
    named = row.target_name or row.extra.get("target_name")
    if (row.quads or row.masks) and not named:
        what = "a box" if row.quads else "a mask"
        raise RowError("row", f"column 'target_name': there is {what}; expected the name of what it is of")
    try:
        has_text(row.extra)
    except ValueError as error:
        raise RowError("row", str(error)) from error
    # Several rows may be about one image.
    about = digest([named, [list(quad.values) for quad in row.quads], [one.name for one in row.masks.values()]])
    return replace(row, hints=(row.source.stem, row.source.name, f"{row.source.stem}-{about[:8]}"))


def _mask_problem(sample: Sample, store: ImageStore) -> str:
    """Return why a sample's mask is none; "" for no mask, and for one that tells two parts of the image apart."""
    if (mask := sample.masks.get("edit")) is None:
        return ""
    try:
        share = float(inside(store.array(mask)).mean())
    except ImageError as error:
        return f"the mask cannot be read: {error}"
    return {0.0: "the mask is empty", 1.0: "the mask is full: nothing lies outside it"}.get(share, "")


def _mask_of(sample: Sample, row: RowDraft, images: ImageStore) -> NDArray[np.bool_] | None:
    """Return where change is allowed, at the size of the image or of the mask that there is; None without a mask."""
    if row.mask is not None:
        return inside(images.array(row.mask))
    if row.masked_by == "absent":
        return None
    found = np.full((sample.source.height, sample.source.width), row.masked_by == "entire image")
    for box in row.boxes:
        x0, y0, x1, y1 = box.clipped(width=sample.source.width, height=sample.source.height).ints()
        found[y0:y1, x0:x1] = True
    return found


def reduced(mask: NDArray[np.bool_], side: int = MASK_PX) -> NDArray[np.bool_]:
    """Return a mask as side×side cells, True where any pixel of a cell is: what is small is never lost."""
    found = mask
    for axis in (0, 1):
        length, cells = found.shape[axis], np.arange(side)
        # Each cell has whole pixels, at least one: those that it touches.
        low, high = cells * length // side, -(-(cells + 1) * length // side)
        sums = np.insert(np.cumsum(found, axis=axis, dtype=np.int64), 0, 0, axis=axis)
        found = np.take(sums, high, axis=axis) > np.take(sums, low, axis=axis)
    return found


def _write_benchmark(rows: Rows, folder: Path, images: ImageStore) -> None:
    """Write the benchmark's file, a row at a time since masks are large, with its images."""
    named: dict[str, str] = {}
    with files.whole(folder / FILE, below=folder) as file:
        file.write(b"[")
        for count, (sample, row) in enumerate(rows):
            if sample.id not in named:
                stem = file_stem(sample.id)
                named[sample.id] = write_as_is(sample.source, folder / IMAGES, stem, store=images)
            mask = _mask_of(sample, row, images)
            line = {
                **_texts(sample, row),
                "image": f"/{named[sample.id]}",
                "object_mask": None if mask is None else reduced(mask).astype(int).tolist(),
            }
            line["edit_instruction"] = line.pop("instruction")
            file.write(b",\n" if count else b"\n")
            file.write(json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode())
        file.write(b"\n]\n")
    remove_others(folder / IMAGES, named.values())


def _texts(sample: Sample, row: RowDraft) -> dict[str, Json]:
    """Return what both layouts say of a row in words and numbers."""
    assert row.edit is not None
    question = row.edit.question
    return {
        "row_id": row.id,
        "instruction": row.edit.instruction,
        QUESTION: question.text,
        KEY: row.edit.answer,
        OPTIONS: list(question.options),
        "edit_type": row.edit_type,
        "image_content_type": str(sample.extra.get("image_content_type") or ""),
        "url": str(sample.extra.get("url") or ""),
        "edit_target": row.phrase,
        "mask_by": row.masked_by,
        "box_score": row.score,
        "answered_before_the_edit": row.unedited,
        "reviewed": row.passed,
    }


def _write_imagefolder(rows: Rows, folder: Path, run: Answered) -> None:
    """Write a row for each edit, with the findings that it rests on, its image and its mask."""
    lines, placed, masks = [], set[str](), set[str]()
    for sample, row in rows:
        name = run.place(sample.source, folder)
        placed.add(Path(name).name)
        mask, file = _mask_of(sample, row, run.images), None
        if mask is not None:
            data = encode_png(np.repeat(np.where(mask, np.uint8(255), np.uint8(0))[:, :, None], 3, axis=2))
            file = f"{MASKS}/{digest([sample.id, row.id])[:24]}.png"
            files.write_whole(folder / file, data, below=folder.parent)
            masks.add(Path(file).name)
        boxes: list[Json] = [[round(v, 2) for v in box] for box in row.boxes]
        line: dict[str, Json] = {
            "id": row.id,
            "source_file_name": name,
            "mask_file_name": file,
            **{key: value for key, value in _texts(sample, row).items() if key != "row_id"},
            "target_name": row.phrase,
            **({"bboxes": boxes, "bbox_format": "xyxy"} if boxes else {}),
            DIGEST: row.digest,
            "lineage": {"run": run.identity, "sample": sample.id, "task_ids": [one.task_id for one in row.findings]},
        }
        lines.append(json_line(line))
    files.write_whole(folder / METADATA, b"".join(lines), below=folder.parent)
    remove_others(folder / IMAGES, placed)
    remove_others(folder / MASKS, masks)


def _left_out(
    rejected: Sequence[RejectedRow], drafts: Sequence[tuple[Sample, Draft]], waiting: Rows
) -> Iterator[dict[str, Json]]:
    """Yield each image that cannot be read, and each edit without a row, with the reason."""
    for image in rejected:
        yield {"image": image.id, "stage": "read", "why": image.kind, "detail": image.message}
    for sample, draft in drafts:
        for row in draft.rows:
            if row.lost is not None:
                said: dict[str, Json] = {} if row.edit is None else {"instruction": row.edit.instruction}
                yield {"image": sample.id, "id": row.id, "edit_type": row.edit_type, **said, **row.lost.to_json()}
    for sample, row in waiting:
        yield {
            "image": sample.id, "id": row.id, "edit_type": row.edit_type, "stage": "reviewed", "why": "not_reviewed",
            "detail": f"no person has answered all of {GIEBenchReview.name} about it",
        }  # fmt: skip


def _built(
    run: Answered,
    drafts: Sequence[tuple[Sample, Draft]],
    options: GIEBenchBuildOptions,
    kept: Rows,
    waiting: Rows,
    *,
    looked: bool,
) -> Built:
    """Return the funnel of edits, and the counts of images, types, masks and answers before the edit."""
    rows = [row for _, draft in drafts for row in draft.rows]

    def lost(stage: str) -> Counter[str]:
        return Counter(row.lost.reason for row in rows if row.lost is not None and row.lost.stage == stage)

    passes = {
        "drawn": "it is known whether the image has text for it",
        "written": "it has an instruction, and a question with 2 to 5 options of which one is right",
        "named": "what has to be edited has a name",
        "located": "the detector finds it, or the data says where it is, or it is the entire image",
        "masked": "its mask is neither empty nor full, or the image is edited as a whole",
        "unedited": "the question is not answered right before the edit",
    }
    if options.masks == "given":
        passes |= dict.fromkeys(("located", "masked"), "(the data says where it is, or the row has no mask)")
    if options.unedited == "keep":
        passes["unedited"] = "the question could be asked before the edit"
    left = {stage: lost(stage) for stage in passes}
    if looked:
        passes["reviewed"] = "people passed it"
        left["reviewed"] = lost("reviewed") + (Counter({"not_reviewed": len(waiting)}) if waiting else Counter())
    drawn, types = Counter(row.edit_type for row in rows), Counter(row.edit_type for _, row in kept)
    before = Counter[str](row.unedited for row in rows if row.unedited)
    asked = [row for row in rows if row.unedited and row.edit is not None]
    masks = Counter[str](row.masked_by for _, row in kept)
    refused = Counter(row.kind for row in run.rejected)
    counts: dict[str, Json] = {
        "images": {"read": len(run.rejected) + len(drafts), "left_out": dict(sorted(refused.items()))},
        "types": {kind: {"drawn": drawn[kind], "kept": types[kind]} for kind in EDIT_TYPES if drawn[kind]},
        "masks": dict(sorted(masks.items())),
        "before_the_edit": {
            "asked": len(asked),
            **{name: before[name] for name in ("right", "other", "abstained")},
            "share_right": round(before["right"] / len(asked), 4) if asked else None,
            "by_chance": round(_chance(asked), 4) if asked else None,
            "paper": PAPERS_SHARE,
        },
        "reviewed": looked,
        "to_review": len(waiting),
    }
    head = ["Type", "Drawn", "Rows", "Answered before"]
    of_type = partial(_of_type, drawn=drawn, types=types, asked=asked)
    return Built(
        read=len(rows),
        written=len(kept),
        noun="row",
        unit="edit",
        stages=[
            Stage(name=name, passes=words, left_out=dict(sorted(left[name].items()))) for name, words in passes.items()
        ],
        counts=counts,
        tables=[[head, *map(of_type, filter(drawn.__getitem__, EDIT_TYPES))]] if rows else [],
        notes=list(_notes(counts, asked, before, masks, waiting, looked=looked)),
    )


def _of_type(kind: str, *, drawn: Counter[str], types: Counter[str], asked: Sequence[RowDraft]) -> list[str]:
    own = [row for row in asked if row.edit_type == kind]
    right = sum(row.unedited == "right" for row in own)
    return [kind, str(drawn[kind]), str(types[kind]), f"{right}/{len(own)}"]


def _chance(asked: Sequence[RowDraft]) -> float:
    """Return the share of right answers of who draws one of the options."""
    return fmean(1 / len(row.edit.question.options) for row in asked if row.edit is not None)


def _notes(
    counts: dict[str, Json],
    asked: Sequence[RowDraft],
    before: Counter[str],
    masks: Counter[str],
    waiting: Rows,
    *,
    looked: bool,
) -> Iterator[str]:
    images = cast("dict[str, Any]", counts["images"])
    left = ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in images["left_out"].items())
    yield f"Images: {images['read']:,}" + (f"; left out: {left}" if left else "")
    if asked:
        yield (
            f"Answered right before the edit: {before['right']:,} of {len(asked):,} questions "
            f"({100 * before['right'] / len(asked):.0f} %; the paper reports {100 * PAPERS_SHARE:.0f} %, an answer at "
            f"random is right in {100 * _chance(asked):.0f} %)"
        )
    if masks["absent"]:
        yield f"No mask: {masks['absent']:,} rows. Nothing made one (--masks given): no masked measure has a value there."
    if masks["entire image"]:
        yield f"Entire image: {masks['entire image']:,} rows. Nothing lies outside: no masked measure has a value there."
    if waiting:
        yield open_note(len(waiting), looked=looked, protocol=GIEBenchReview.name)
