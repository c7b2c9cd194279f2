"""The folder of a set of differences: its splits, and its rows for judging and for training.

A split is a folder with `metadata.jsonl` (an ImageFolder, which `editloupe judge` reads), `sft.jsonl` (dialogues as
`editloupe export --sft` writes them) and `images/`, which both name.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Final, Literal, TypeAlias

from editloupe import files
from editloupe.build.base import counted
from editloupe.build.direct import DirectRecipe, Worked
from editloupe.build.places import ImagePlace
from editloupe.data.images import RGB, ImageStore
from editloupe.data.write import METADATA
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
NOT_ASKED: Final = "No edit was asked for."
"""The instruction of a pair that was built. The detector never reads it."""


def drawn(*of: Json) -> random.Random:
    """Return a source of random numbers that follows from these values alone."""
    return random.Random(int(digest(list(of))[:16], 16))


def dialogue(
    task: Ask, images: Sequence[str], sizes: Sequence[tuple[int, int]], answer: str, lineage: Json, *, reason: str = ""
) -> dict[str, Json]:
    """Return a line of sft.jsonl: the question as a judge is asked it, and the answer, after its reason if it has one."""

    def text(value: str) -> dict[str, Json]:
        return {"type": "text", "text": value}

    question: list[Json] = [text(task.prompt)]
    for view, (width, height) in zip(task.views, sizes, strict=True):
        question += [text(f"{view.alias} ({width}×{height} px):"), {"type": "image"}]
    question.append(text(render("agent/format", tools=False, answer=task.answer, native=False, held=False)))
    thought = f"<{THINKING}>{reason}</{THINKING}>\n" if reason else ""
    said: list[Json] = [text(f"{thought}<{FINAL_ANSWER}>{answer}</{FINAL_ANSWER}>")]
    messages: list[Json] = [{"role": "user", "content": question}, {"role": "assistant", "content": said}]
    return {"messages": messages, "images": list(images), "lineage": lineage}


@cache
def _detection() -> Ask:
    """Return the detector's question, which is the same of all images."""
    image = ImageRef(sha256="0" * 64, width=8, height=8, media_type="image/png")
    sample = Sample(id="any", source=image, turns=(Turn(instruction="", edited=image),))
    task = next(iter(DICE(DICEOptions(form="lines", confidence="none")).plan([sample], Known())))
    assert isinstance(task, Ask)
    return task


class SplitSet(DirectRecipe):
    """A stage of the set: its splits, and what is written of its rows."""

    keeps = True
    tallied: Sequence[str] = OPS
    """What is counted in each split."""

    def open(self) -> None:
        """Begin with no image in any split."""
        self.store, self.faults = ImageStore(), list[dict[str, Json]]()
        """faults: what of the input cannot be used, a line of left_out.jsonl each."""
        self._places = {split: ImagePlace(folder=self.folder / split, images=self.store) for split in SPLITS}

    def split(self, name: str) -> Split:
        """Return the split of a source image. It follows from its name, so that a further image moves no other."""
        return "test" if drawn(self.options.seed, "split", name).random() < self.options.test_share else "train"

    def place(self, image: ImageRef | RGB, split: Split, *, quality: int | None = None) -> str:
        """Put an image into a split and return its name there: "images/DIGEST.png".

        image: a file keeps its own bytes unless it is shown turned or otherwise decoded; pixels are written as PNG.
        quality: of JPEG, 1 to 100; None for no compression. Raises StorageError and ImageError.
        """
        with files.writing(self.folder):
            if isinstance(image, ImageRef) and quality is None and not self.store.notes(image):
                return self._places[split].image(image)
            rgb = self.store.array(image) if isinstance(image, ImageRef) else image
            return self._places[split].pixels(rgb, quality=quality)

    def pair(
        self,
        id_: str,
        name: str,
        pictures: Sequence[tuple[ImageRef | RGB, int | None]],
        differences: Sequence[tuple[Difference, str]],
        lineage: Json,
        **more: Json,
    ) -> dict[str, Json]:
        """Return what is kept of a pair: its row, its dialogue, its images, and its differences by command.

        name: of the source image.   pictures: each with the quality of JPEG, or None.
        differences: each with how it was made, "" for one that nobody made. They are written as one reads a page: from the
        top, then from the left; in the dialogue a line each, as the paper's detector writes them (3.2).
        """
        split = self.split(name)
        source, edited = (self.place(picture, split, quality=quality) for picture, quality in pictures)
        ordered = sorted(differences, key=lambda one: (one[0].box.y0, one[0].box.x0, one[0].op, one[0].object))
        listed: list[Json] = []
        for one, how in ordered:
            box: list[Json] = [round(v, 6) for v in one.box]
            listed.append({"op": one.op, "object": one.object, "box": box} | ({"how": how} if how else {}))
        lines = [f"{one.op}: {one_line(one.object)}, [{', '.join(f'{v:.3f}' for v in one.box)}]" for one, _ in ordered]
        images = {"source_file_name": source, "edited_file_name": edited}
        sizes = [(p.width, p.height) if isinstance(p, ImageRef) else p.shape[1::-1] for p, _ in pictures]
        return {
            "split": split,
            "row": {"id": id_, **images, "instruction": NOT_ASKED, DIFFERENCES: listed, "lineage": lineage},
            "dialogue": dialogue(_detection(), (source, edited), sizes, "\n".join(lines) or "no change", lineage),
            "images": [f"{split}/{source}", f"{split}/{edited}"],
            "tally": {op: sum(one.op == op for one, _ in ordered) for op in OPS},
            **more,
        }

    def write(self, worked: Worked) -> dict[str, Json]:
        """Write the rows of each split, and delete images that no row names."""
        bad = [*self.faults, *(one for one in worked.left_out if one["stage"] == "annotations")]
        worked.left_out[:0] = self.faults
        counts, names, by_split = Counter[str](), ("rows", *self.tallied), dict[str, Json]()
        for one in worked.made:
            counts.update(one.get("counts", {}))
        for split, place in self._places.items():
            own = [one for one in worked.written if one["split"] == split]
            for name, kind in ((METADATA, "row"), (SFT, "dialogue")):
                if rows := [one[kind] for one in own if kind in one]:
                    files.write_whole(place.folder / name, b"".join(map(json_line, rows)), below=self.folder)
                else:
                    (place.folder / name).unlink(missing_ok=True)
            place.keep(name.partition("/")[2] for one in own for name in one["images"])
            tally = Counter[str](rows=len(own))
            for one in own:
                tally.update(one["tally"])
            by_split[split] = {name: tally[name] for name in names}
        unusable = counted(Counter(str(one["why"]) for one in bad))
        return {"counts": counted(counts), "unusable": unusable, "stage": self.options.stage, "by_split": by_split}
