"""`editloupe build edival`: images in, chains of edits out, as the benchmark's file and as an ImageFolder."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import numpy as np
from PIL import Image
from pydantic import Field

from editloupe import files, models
from editloupe.config import Whole
from editloupe.data.folders import RowError
from editloupe.data.image_lists import list_images
from editloupe.data.images import ImageStore, encode_png
from editloupe.data.rows import Loaded, RejectedRow
from editloupe.data.write import IMAGES, METADATA, remove_others, write_as_is
from editloupe.errors import ConfigError, ImageError, ModelAbsent
from editloupe.measures.base import Models
from editloupe.build.base import Answered, Built, Stage
from editloupe.protocols.edival.builder import ChainStep, Draft, EdiValBuild, EdiValBuildOptions
from editloupe.protocols.edival.chain import BRACKETED, SENTENCES, TYPES, Chain, columns
from editloupe.protocols.edival.instructions import EDIT_TYPES
from editloupe.protocols.edival.loader import COLUMNS, INDEX, TURN
from editloupe.values import ImageRef, Json, Sample, Turn, json_line

BENCHMARK: Final = "edival"
IMAGEFOLDER: Final = "imagefolder"
RESIZED: Final = "resized"
"""Folders of a set: the benchmark's layout, the ImageFolder, and images that were resized before anybody saw them."""
TABLE: Final = "instructions.csv"
LEFT_OUT: Final = "left_out.jsonl"

_CUMULATIVE: Final = (TYPES, SENTENCES, BRACKETED)


class EdiValSetOptions(EdiValBuildOptions):
    """What `editloupe build edival` offers."""

    size: Whole | None = Field(default=None, ge=64, le=4096)
    """Fit images into a square of N px, with black bars where they are none (the benchmark: 512). Default: as they are."""


class EdiValSet:
    """The builder."""

    summary: ClassVar[str] = (
        "List the objects of images, confirm them with a detector, and write chains of instructions for editing them, as "
        "EdiVal-Bench has them. IMAGES is a folder of images, or an ImageFolder."
    )
    protocol: ClassVar[str] = EdiValBuild.name
    Options: ClassVar[type[EdiValSetOptions]] = EdiValSetOptions

    def check(self, options: EdiValSetOptions, models_: Models) -> None:
        """Raise ConfigError where objects are to be grounded and there is no detector."""
        if options.grounding == "none":
            return
        try:
            models.prepare(models_.get("detect"))
        except ModelAbsent as reason:
            raise ConfigError(
                f"grounding needs a detector, and there is none: {reason}. Name one with --detector, or choose --grounding "
                "none: then every object counts that the model lists, seen or not"
            ) from reason

    def load(self, path: Path, options: EdiValSetOptions, *, store: ImageStore, folder: Path) -> Loaded:
        """Return a sample for each image, in the order of their names, 2 before 10; every image is decoded once.

        An image that occurs again, byte for byte, is taken once. Raises DataError where there is none.
        """
        listed = list_images(path, store)
        root, named = listed.folder, listed.identified()
        samples: dict[str, Sample] = {}
        rejected: list[RejectedRow] = []
        again = 0
        for id_, name in named:
            try:
                ref = root.image(name)
                pixels = store.array(ref)
            except RowError as error:
                rejected.append(RejectedRow(id=id_, kind=error.kind, message=str(error), file=error.path))
                continue
            except ImageError as error:
                rejected.append(RejectedRow(id=id_, kind="unreadable_image", message=str(error), file=root.root / name))
                continue
            if ref.sha256 in samples:
                again += 1
                continue
            shown = ref if options.size is None else _resized(pixels, ref, options.size, folder, store)
            extra: dict[str, Json] = {"file_name": name, "width": ref.width, "height": ref.height}
            samples[ref.sha256] = Sample(
                id=id_,
                dataset=root.root.resolve().name,
                source=shown,
                turns=(Turn(instruction="", edited=None),),
                extra=extra,
            )
        notes = (f"{again:,} of {len(named):,} images occur a second time and are taken once",) if again else ()
        return Loaded(format="images", samples=tuple(samples.values()), rejected=tuple(rejected), notes=notes)

    def write(self, run: Answered, options: EdiValSetOptions, *, folder: Path) -> Built:
        """Write the chains, and what was left out with its reason. Chains count from 0 in the order of the images."""
        protocol = cast(EdiValBuild, run.protocol)
        drafts = [(sample, protocol.draft(sample, known)) for sample, known in run.known()]
        chains = [(sample, draft, draft.chain) for sample, draft in drafts]
        whole = [(sample, draft, chain) for sample, draft, chain in chains if chain is not None]
        with files.writing(folder):
            _write_benchmark([(sample, chain) for sample, _, chain in whole], folder / BENCHMARK, run.images)
            _write_imagefolder(whole, folder / IMAGEFOLDER, run)
            left = _left_out(run.rejected, drafts)
            files.write_whole(folder / LEFT_OUT, b"".join(map(json_line, left)), below=folder)
        return _built(run, drafts, options)


def _resized(pixels: Any, ref: ImageRef, side: int, folder: Path, store: ImageStore) -> ImageRef:
    """Return an image fitted into a square, centred on black, and kept in the set's folder."""
    scale = side / max(ref.width, ref.height)
    inner = max(1, round(ref.width * scale)), max(1, round(ref.height * scale))
    square = Image.new("RGB", (side, side))
    fitted = Image.fromarray(pixels).resize(inner, Image.Resampling.LANCZOS)
    square.paste(fitted, ((side - inner[0]) // 2, (side - inner[1]) // 2))
    file = folder / RESIZED / f"{ref.sha256[:24]}-{side}.png"
    with files.writing(folder):
        files.write_whole(file, encode_png(np.asarray(square)), below=folder)
    return store.add_file(file)


def _write_benchmark(chains: Sequence[tuple[Sample, Chain]], folder: Path, images: ImageStore) -> None:
    """Write the benchmark's file and, beside it, each base image as INDEX_input_raw.png or .jpg.

    An image is written with its own bytes, or as PNG where it is of another kind or is shown turned.
    """
    text = io.StringIO()
    table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    table.writeheader()
    names: set[str] = set()
    for index, (sample, chain) in enumerate(chains):
        table.writerows(_rows(index, chain))
        names.add(write_as_is(sample.source, folder, f"{index}_input_raw", store=images))
    files.write_whole(folder / TABLE, text.getvalue().encode("utf-8", "replace"), below=folder.parent)
    for path in folder.iterdir():
        if re.fullmatch(r"[0-9]+_input_raw\.(png|jpg)", path.name) and path.name not in names:
            path.unlink()


def _rows(index: int, chain: Chain) -> Iterator[dict[str, object]]:
    """Yield the rows of a chain, one a turn: instructions up to that turn, and the objects after it."""
    held: Mapping[str, Any] = columns(chain)
    for turn in range(1, len(chain.edits) + 1):
        row = {name: held[name][:turn] if name in _CUMULATIVE else held[name][turn - 1] for name in COLUMNS if name in held}
        yield {INDEX: index, TURN: turn, **row}


def _write_imagefolder(chains: Sequence[tuple[Sample, Draft, Chain]], folder: Path, run: Answered) -> None:
    """Write a row for each chain, with the findings that it rests on, and its image."""
    lines, placed = [], set[str]()
    for index, (sample, draft, chain) in enumerate(chains):
        name = run.place(sample.source, folder)
        placed.add(Path(name).name)
        row: dict[str, Json] = {
            **columns(chain),
            "id": str(index),
            "source_file_name": name,
            "image": sample.extra.get("file_name"),
            "fallbacks": [_fallback(step) for step in draft.steps],
            "lineage": {"run": run.identity, "sample": sample.id, "task_ids": [f.task_id for f in draft.findings]},
        }
        lines.append(json_line(row))
    files.write_whole(folder / METADATA, b"".join(lines), below=folder.parent)
    remove_others(folder / IMAGES, placed)


def _fallback(step: ChainStep) -> str | None:
    """Return what of a step is not as it was meant, and why; None for a step that is."""
    drawn = "" if step.drawn == step.edit.edit_type else f"no object allows {step.drawn}"
    word = f"from the word lists: {step.fallback}" if step.fallback else ""
    return "; ".join(filter(None, (drawn, word))) or None


def _left_out(rejected: Sequence[RejectedRow], drafts: Sequence[tuple[Sample, Draft]]) -> Iterator[dict[str, Json]]:
    """Yield each image without a chain, and each object that no instruction is about because it does not count."""
    for row in rejected:
        yield {"image": row.id, "stage": "read", "why": row.kind, "detail": row.message}
    for sample, draft in drafts:
        if draft.lost is not None:
            yield {"image": sample.id, **draft.lost.to_json()}
        for name, why in draft.left_out:
            yield {"image": sample.id, "stage": "object", "object": name, "why": why}


def _built(run: Answered, drafts: Sequence[tuple[Sample, Draft]], options: EdiValSetOptions) -> Built:
    """Return the funnel: images by stage, objects, instructions by turn and type, fallbacks."""

    def lost(stage: str) -> dict[str, int]:
        reasons = Counter(d.lost.reason for _, d in drafts if d.lost is not None and d.lost.stage == stage)
        return dict(sorted(reasons.items()))

    grounded = "the detector confirms an object" if options.grounding == "detector" else "(no detector was asked)"
    whole = [draft for _, draft in drafts if draft.lost is None]
    steps = [step for draft in whole for step in draft.steps]
    turns = range(1, options.turns + 1)
    types = {turn: Counter(draft.steps[turn - 1].edit.edit_type for draft in whole) for turn in turns}
    squares = sum(sample.extra.get("width") == sample.extra.get("height") for sample, _ in drafts)
    listed = sum(len(draft.listed or ()) for _, draft in drafts)
    confirmed = sum(len(draft.grounded or ()) for _, draft in drafts)
    others = Counter(why for _, draft in drafts for _, why in draft.left_out)
    fallen = {
        "type": sum(step.drawn != step.edit.edit_type for step in steps),
        "words": sum(bool(step.fallback) for step in steps),
    }
    counts: dict[str, Json] = {
        "grounding": options.grounding,
        "seed": options.seed,
        "turns": options.turns,
        "objects": {"listed": listed, "grounded": confirmed, "left_out": dict(sorted(others.items()))},
        "instructions": {
            str(turn): {kind: types[turn][kind] for kind in EDIT_TYPES if types[turn][kind]} for turn in turns
        },
        "fallbacks": {**fallen},
        "size": options.size,
        "with_black_bars": 0 if options.size is None else len(drafts) - squares,
    }
    seen = [kind for kind in EDIT_TYPES if any(types[turn][kind] for turn in turns)]
    rows = [[kind, *(str(types[t][kind]) for t in turns), str(sum(types[t][kind] for t in turns))] for kind in seen]
    head = ["Instructions by type", *(f"Turn {turn}" for turn in turns), "All"]
    left = ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in sorted(others.items()))
    notes = [
        f"Objects: {listed:,} listed, {confirmed:,} grounded" + (f"; left out: {left}" if left else ""),
        f"Instructions: {len(steps):,}; {fallen['type']:,} fell back to subject_add, {fallen['words']:,} to the word lists",
    ]
    if options.grounding == "none":
        notes.append("No detector was asked: whether the listed objects are there is the model's word alone.")
    if options.size is not None:
        notes.append(
            f"Images are {options.size}×{options.size} px. {len(drafts) - squares:,} have black bars, which editors fill."
        )
    return Built(
        read=len(run.rejected) + len(drafts),
        written=len(whole),
        noun="chain",
        stages=(
            Stage(name="read", passes="the image can be read", left_out=dict(Counter(row.kind for row in run.rejected))),
            Stage(name="decomposed", passes="the model lists a usable object", left_out=lost("decomposed")),
            Stage(name="grounded", passes=grounded, left_out=lost("grounded")),
            Stage(name="instructed", passes="each turn has an instruction", left_out=lost("instructed")),
        ),
        counts=counts,
        tables=[[head, *rows]],
        notes=notes,
    )
