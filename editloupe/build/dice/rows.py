"""The folder of a set of differences: its splits, and its rows for judging and for training.

A split is a folder with `metadata.jsonl` (an ImageFolder, which `editloupe judge` reads), `sft.jsonl` (dialogues as
`editloupe export --to sft` writes them) and `images/`, which both name.
"""

from __future__ import annotations

import hashlib
import io
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from PIL import Image

from editloupe import files
from editloupe.build.direct import Worked
from editloupe.build.engine import SetTold
from editloupe.data.images import RGB, ImageStore, encode_png
from editloupe.data.write import IMAGES, METADATA, place_image
from editloupe.prompts import render
from editloupe.protocols.base import Known
from editloupe.protocols.dice.differences import DIFFERENCES, OPS, Difference
from editloupe.protocols.dice.protocol import DICE, DICEOptions
from editloupe.replies import FINAL_ANSWER, THINKING, one_line
from editloupe.tasks import Ask
from editloupe.values import ImageRef, Json, Sample, Turn, digest, json_line

Split: TypeAlias = Literal["train", "test"]
SPLITS: Final[tuple[Split, ...]] = ("train", "test")
SFT: Final = "sft.jsonl"
LEFT_OUT: Final = "left_out.jsonl"
NO_CHANGE: Final = "no change"
"""The answer where nothing differs."""
NOT_ASKED: Final = "No edit was asked for."
"""The instruction of a pair that was built. The detector never reads it."""
Reply: TypeAlias = Literal["tags", "plain"]
"""tags: the answer between the tags of `editloupe.replies`, as judges write it.   plain: the answer alone."""


def drawn(*of: Json) -> random.Random:
    """Return a source of random numbers that follows from these values alone."""
    return random.Random(int(digest(list(of))[:16], 16))


def split_of(name: str, options: Any) -> Split:
    """Return the split of a source image. It follows from its name, so that a further image moves no other."""
    return "test" if drawn(options.seed, "split", name).random() < options.test_share else "train"


def lines(differences: Sequence[Difference]) -> str:
    """Return differences as the paper's detector writes them (3.2): a line each, coordinates 0 to 1 with three decimals."""
    if not differences:
        return NO_CHANGE
    return "\n".join(
        f"{one.op}: {one_line(one.object)}, [{', '.join(f'{v:.3f}' for v in one.box)}]" for one in in_order(differences)
    )


def in_order(differences: Sequence[Difference]) -> list[Difference]:
    """Return differences as one reads a page: from the top, then from the left."""
    return sorted(differences, key=lambda one: (one.box.y0, one.box.x0, one.op, one.object))


def columns(differences: Sequence[Difference], how: Mapping[int, str] | None = None) -> list[Json]:
    """Return the column `differences`, boxes in fractions of the image, as the protocol reads them.

    how: by `id()` of a difference, how it was made.
    """
    rows: list[Json] = []
    for one in in_order(differences):
        box: list[Json] = [round(v, 6) for v in one.box]
        row: dict[str, Json] = {"op": one.op, "object": one.object, "box": box}
        rows.append(row if how is None else {**row, "how": how[id(one)]})
    return rows


def coherence_dialogue(
    task: Ask,
    images: tuple[str, str],
    sizes: Sequence[tuple[int, int]],
    verdict: bool,
    reason: str,
    lineage: Json,
    reply: Reply,
) -> dict[str, Json]:
    """Return a line of sft.jsonl that teaches to say whether a difference was asked for.

    reason: in words, written before the verdict; "" for none.
    """
    if reply == "plain":
        said = [f"Reasoning: {reason}"] if reason else []
        answer = "\n".join([*said, f"Decision: {'yes' if verdict else 'no'}"])
    else:
        said = [f"<{THINKING}>{reason}</{THINKING}>"] if reason else []
        answer = "\n".join([*said, _final("yes" if verdict else "no")])
    return dialogue(task, images, sizes, answer, lineage, reply)


def dialogue(
    task: Ask, images: tuple[str, str], sizes: Sequence[tuple[int, int]], answer: str, lineage: Json, reply: Reply
) -> dict[str, Json]:
    """Return a line of sft.jsonl: the question as a judge is asked it, and the answer."""

    def text(value: str) -> dict[str, Json]:
        return {"type": "text", "text": value}

    question: list[Json] = [text(task.prompt)]
    for view, (width, height) in zip(task.views, sizes, strict=True):
        question += [text(f"{view.alias} ({width}×{height} px):"), {"type": "image"}]
    if reply == "tags":
        question.append(text(render("agent/format", tools=False, answer=task.answer, native=False, held=False)))
    else:
        question.append(text(render("agent/bare", answer=task.answer)))
    messages: list[Json] = [
        {"role": "user", "content": question},
        {"role": "assistant", "content": [text(answer)]},
    ]
    return {"messages": messages, "images": list(images), "lineage": lineage}


@cache
def _detection() -> Ask:
    """Return the detector's question, which is the same of all images."""
    image = ImageRef(sha256="0" * 64, width=8, height=8, media_type="image/png")
    sample = Sample(id="any", source=image, turns=(Turn(instruction="", edited=image),))
    task = next(iter(DICE(DICEOptions(form="lines", confidence="none")).plan([sample], Known())))
    assert isinstance(task, Ask)
    return task


def _final(answer: str) -> str:
    return f"<{FINAL_ANSWER}>{answer}</{FINAL_ANSWER}>"


def pair_record(
    split: Split,
    id_: str,
    images: tuple[str, str],
    sizes: Sequence[tuple[int, int]],
    differences: Sequence[Difference],
    lineage: Json,
    reply: Reply,
    how: Mapping[int, str] | None = None,
    **more: Json,
) -> dict[str, Json]:
    """Return what is kept of a pair: its row, its dialogue, its images, and its differences by command."""
    row: dict[str, Json] = {
        "id": id_,
        "source_file_name": images[0],
        "edited_file_name": images[1],
        "instruction": NOT_ASKED,
        DIFFERENCES: columns(differences, how),
        "lineage": lineage,
    }
    answer = lines(differences)
    answer = answer if reply == "plain" else _final(answer)
    return {
        "split": split,
        "rows": [row],
        "dialogues": [dialogue(_detection(), images, sizes, answer, lineage, reply)],
        "images": [f"{split}/{name}" for name in images],
        "ops": {op: sum(one.op == op for one in differences) for op in OPS},
        **more,
    }


def told_of(
    worked: Worked, photos: Any, more: Mapping[str, Mapping[str, Json]], faults: Sequence[Mapping[str, Json]] = ()
) -> SetTold:
    """Return what is said of pairs: differences by command, and what of the annotations could not be used.

    more: further columns of the table → by split.   faults: images that cannot be used.
    """
    made = worked.written
    ops: dict[str, dict[str, Json]] = {
        split: {op: sum(one["ops"][op] for one in made if one["split"] == split) for op in OPS} for split in SPLITS
    }
    pairs: dict[str, Json] = {split: sum(one["split"] == split for one in made) for split in SPLITS}
    unusable = Counter(fault.why for fault in photos.faults)
    unusable.update(str(one["why"]) for one in worked.left_out if one["stage"] == "annotations")
    unusable.update(str(one["why"]) for one in faults)
    table = [["Differences", *OPS, "Pairs", *more]]
    for split in SPLITS:
        counted = [*ops[split].values(), pairs[split], *(by[split] for by in more.values())]
        table.append([split, *(f"{count:,}" for count in counted)])
    notes = []
    if unusable:
        listed = ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in sorted(unusable.items()))
        notes = [f"Images and annotations that could not be used: {unusable.total():,} ({listed})."]
    counts: dict[str, Json] = {
        "unusable": dict(sorted(unusable.items())),
        "pairs": pairs,
        "differences": {**ops},
    }
    return SetTold(counts=counts, tables=[table], notes=notes)


class SplitFolder:
    """The folder of a set, with its splits."""

    def __init__(self, folder: Path, store: ImageStore) -> None:
        self.folder, self.store = folder, store

    def place(self, image: ImageRef | RGB, split: Split, *, quality: int | None = None) -> str:
        """Put an image into a split and return its name there: "images/DIGEST.png".

        image: a file keeps its own bytes unless it is shown turned or otherwise decoded; pixels are written as PNG.
        quality: of JPEG, 1 to 100; None for no compression. Raises StorageError and ImageError.
        """
        with files.writing(self.folder):
            if isinstance(image, ImageRef) and quality is None and not self.store.notes(image):
                return place_image(image, self.folder / split, store=self.store)
            rgb = self.store.array(image) if isinstance(image, ImageRef) else image
            data, ending = (encode_png(rgb), "png") if quality is None else (_jpeg(rgb, quality), "jpg")
            name = f"{IMAGES}/{hashlib.sha256(data).hexdigest()[:24]}.{ending}"
            if not (self.folder / split / name).exists():
                files.write_whole(self.folder / split / name, data, below=self.folder)
        return name

    def write(self, made: Iterable[Mapping[str, Any]], left_out: Iterable[Mapping[str, Json]]) -> None:
        """Write the rows of each split and what was left out, and delete images that no row names. Raises StorageError.

        made: in the order of the rows; each with `split`, the `rows` for metadata.jsonl, and the `dialogues` for sft.jsonl.
        """
        rows: dict[Split, list[Mapping[str, Any]]] = {split: [] for split in SPLITS}
        for one in made:
            rows[one["split"]].append(one)
        with files.writing(self.folder):
            for split, those in rows.items():
                self._write_split(self.folder / split, those)
            files.write_whole(self.folder / LEFT_OUT, b"".join(map(json_line, left_out)), below=self.folder)

    def _write_split(self, folder: Path, made: Sequence[Mapping[str, Any]]) -> None:
        written = {
            METADATA: [row for one in made for row in one.get("rows", ())],
            SFT: [row for one in made for row in one["dialogues"]],
        }
        for name, those in written.items():
            if those:
                files.write_whole(folder / name, b"".join(map(json_line, those)), below=self.folder)
            else:
                (folder / name).unlink(missing_ok=True)
        named = {name for row in written[SFT] for name in row["images"]}
        for path in (folder / IMAGES).glob("*"):
            if f"{IMAGES}/{path.name}" not in named:
                path.unlink()


def _jpeg(rgb: RGB, quality: int) -> bytes:
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "JPEG", quality=quality)
    return file.getvalue()
