"""EdiVal-Bench's own making: the objects of an image, then a chain of instructions about them, turn by turn.

The role `decompose` lists the objects, a detector confirms them, the role `instruct` says what an edit brings. What is
drawn at random follows from the seed and the image's content, so that no image changes the chain of another.

Reproduced:
- the decomposition (paper, 2.2 and I.1): objects by material, colour and name, people by what they wear;
- the grounding filter (I.1): detections from 0.35, without oversized boxes;
- the instructions (2.3 and I.2): nine types, a new one each turn, pools that follow the edits, counts 3 to 5.

Differs:
- the prompts and the word lists are ours;
- the paper names no number for a large area; the official code drops a box that is wider or higher than 0.9 of the image
  and covers more than 0.4 of it (`max_side`, `max_area`);
- a change of background needs an object that stays; in the benchmark's file 7 name none, and its own evaluator cannot read
  these;
- what an edit brings or renames is in the foreground; in the benchmark's file it can no longer be edited after a change of
  background, although the sentence names it;
- an object whose number is what would be asked for is not chosen for a change of its number.

Not covered:
- sensitive images, which people took out (34 of 606); texts in Chinese.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal

import numpy as np
from PIL import Image
from pydantic import Field

from editloupe import files
from editloupe.build.base import LeftOut, Lost
from editloupe.build.edival.drawing import OBJECTS_ANSWER, EditedScene, SceneObject, decomposition_prompt, draw, listed
from editloupe.build.engine import Drafted, RowStep, SetMade, SetRecipe, SetRow, SetTold
from editloupe.build.engine import answered as with_answer
from editloupe.build.made import SetBuilder
from editloupe.build.made import listed as in_words
from editloupe.build.places import ImagePlace
from editloupe.config import Whole
from editloupe.data.folders import RowError
from editloupe.data.image_lists import list_images
from editloupe.data.images import ImageStore, encode_png
from editloupe.data.rows import Loaded, RejectedRow
from editloupe.errors import ImageError
from editloupe.findings import PENDING, Finding
from editloupe.protocols.base import Options
from editloupe.protocols.edival.chain import BRACKETED, PAPER, SENTENCES, TYPES, Chain, Pools, columns
from editloupe.protocols.edival.instructions import EDIT_TYPES, Edit
from editloupe.protocols.edival.loader import COLUMNS, INDEX, TURN
from editloupe.protocols.edival.rules import Share
from editloupe.protocols.edival.sights import RECORDED, detect, sights_of
from editloupe.scores import NOT_JUDGED
from editloupe.values import Box, ImageRef, Json, Sample, Turn

BENCHMARK: Final = "edival"
RESIZED: Final = "resized"
"""Folder of images that were resized before anybody saw them."""


class EdiValBuildOptions(Options):
    """What a run may set."""

    turns: Annotated[Whole, Field(ge=1, le=len(EDIT_TYPES))] = 3
    """Instructions of a chain; each turn has a type of its own, of which there are nine."""
    seed: Annotated[Whole, Field(ge=0)] = 42
    """What types, objects and words are drawn by."""
    grounding: Literal["detector", "none"] = "detector"
    """detector: an object counts if the detector finds it. none: every listed object counts, and no detector is needed."""
    box_threshold: Annotated[float, Field(ge=RECORDED, le=1)] = 0.35
    """Least score of a detection."""
    max_side: Share = 0.9
    """A box is oversized if a side is a larger share of the image's side, and its area exceeds max_area."""
    max_area: Share = 0.4
    """Share of the image's area; see max_side."""


class EdiValSetOptions(EdiValBuildOptions):
    """What `editloupe build edival` offers."""

    size: Whole | None = Field(default=None, ge=64, le=4096)
    """Fit images into a square of N px, with black bars where they are none (the benchmark: 512). Default: as they are."""


@dataclass(frozen=True, kw_only=True)
class ChainStep:
    """One turn of a chain."""

    edit: Edit
    pools: Pools
    """After the edit."""
    drawn: str
    """The type that was drawn; the edit has another one where no object allowed it."""
    words: str = ""
    """Why the edit's words come from the word lists; "" if a model chose them, or there was nothing to choose."""

    @property
    def fallback(self) -> str | None:
        """What is not as it was meant, and why; None for nothing."""
        drawn = "" if self.drawn == self.edit.edit_type else f"no object allows {self.drawn}"
        words = f"from the word lists: {self.words}" if self.words else ""
        return "; ".join(filter(None, (drawn, words))) or None


@dataclass(kw_only=True)
class ChainDraft:
    """What is known of an image's chain."""

    others: list[dict[str, Json]]
    """Objects that do not count, for left_out.jsonl."""
    listed: tuple[SceneObject, ...] | None = None
    """Usable objects; None while nobody has listed any."""
    grounded: tuple[SceneObject, ...] | None = None
    """Those that a detector confirms, or all where none is asked; None while that is unknown."""
    steps: list[ChainStep] = field(default_factory=list)

    def leave(self, name: str, why: str) -> None:
        """Say that an object does not count."""
        self.others.append({"stage": "object", "object": name, "why": why})

    @property
    def chain(self) -> Chain:
        """The chain, once it is whole."""
        edits, pools = tuple(step.edit for step in self.steps), tuple(step.pools for step in self.steps)
        return Chain(mode="multipass", edits=edits, pools=pools)


class EdiValBuild(SetRecipe):
    """Objects, detections and instructions of each image, each from the findings before it."""

    name = "edival-build"
    summary = (
        "List the objects of images, confirm them with a detector, and write chains of instructions for editing them, as "
        "EdiVal-Bench has them. IMAGES is a folder of images, or an ImageFolder."
    )
    paper, source = PAPER, "2.2"
    noun, unit, first = "chain", "image", "decomposed"
    Options = EdiValBuildOptions
    SetOptions = EdiValSetOptions
    roles: ClassVar[Mapping[str, str]] = {
        "decompose": "lists the objects of an image",
        "instruct": "says what an edit brings",
    }
    counted: ClassVar[Mapping[str, tuple[str, str]]] = {
        "objects_listed": ("Objects listed", "decomposed"),
        "objects_grounded": ("Objects grounded", "grounded"),
        "instructions": ("Instructions", "instructed"),
        "fallbacks": ("Fallbacks", "instructed"),
    }
    file, folders, header = f"{BENCHMARK}/instructions.csv", (BENCHMARK,), COLUMNS

    def steps(self) -> Sequence[RowStep]:
        """Return the steps of a chain."""
        asks = self.options.grounding == "detector"
        grounded = "the detector confirms an object" if asks else "(no detector was asked)"
        return (
            RowStep("decomposed", "the model lists a usable object", self._decompose),
            RowStep("grounded", grounded, self._ground),
            RowStep("instructed", "each turn has an instruction", self._instruct),
        )

    def needed(self) -> Mapping[str, str]:
        """Return a detector where objects are to be grounded."""
        if self.options.grounding == "none":
            return {}
        return {
            "detect": "grounding needs a detector, and there is none: {reason}. Name one with --detector, or choose "
            "--grounding none: then every object counts that the model lists, seen or not"
        }

    def loaded(self, path: Path, store: ImageStore, folder: Path) -> Loaded:
        """Return each image once, of the size that is wanted, in the order of their names, 2 before 10.

        What metadata says of an image is left aside. Raises DataError where there is none.
        """
        found = list_images(path, store)
        samples: dict[str, Sample] = {}
        rejected = []
        named, size = found.identified(), getattr(self.options, "size", None)
        for id_, name in named:
            try:
                ref = found.folder.image(name)
                store.array(ref)
            except (RowError, ImageError) as error:
                kind = error.kind if isinstance(error, RowError) else "unreadable_image"
                rejected.append(RejectedRow(id=id_, kind=kind, message=str(error), file=found.folder.root / name))
                continue
            if ref.sha256 not in samples:
                samples[ref.sha256] = Sample(
                    id=id_,
                    dataset=found.folder.root.resolve().name,
                    source=ref if size is None else _resized(ref, size, folder, store),
                    turns=(Turn(instruction="", edited=None),),
                    extra={"file_name": name, "width": ref.width, "height": ref.height},
                )
        again = len(named) - len(samples) - len(rejected)
        notes = (f"{again:,} of {len(named):,} images occur a second time and are taken once",) if again else ()
        return Loaded(format="images", samples=tuple(samples.values()), rejected=tuple(rejected), notes=notes)

    def rows(self, image: SetRow[None], others: list[dict[str, Json]]) -> list[SetRow[Any]]:
        """Return the image's one chain."""
        return [replace(image, data=ChainDraft(others=others))]  # type: ignore[arg-type]

    def _decompose(self, row: SetRow[ChainDraft]) -> None:
        """Add the objects that the model lists."""
        finding = row.take(row.ask("objects", decomposition_prompt(), OBJECTS_ANSWER, role="decompose"))
        objects, others = listed(finding.answer)
        row.data.listed = tuple(objects)
        for name, why in others:
            row.data.leave(name, why)
        if not objects:
            raise LeftOut("no_objects", "the list has no usable object" if others else "the list is empty")

    def _ground(self, row: SetRow[ChainDraft]) -> None:
        """Keep the objects that the detector confirms, once all searches have ended."""
        objects = row.data.listed or ()
        if self.options.grounding == "none":
            row.data.grounded = objects
            return
        rests_on = row.rests_on()
        searches = [replace(detect(self.name, row.sample, 0, one.name), rests_on=rests_on) for one in objects]
        found = [row.look(search) for search in searches]
        ended = [finding for finding in found if finding is not None]
        if len(ended) < len(found):
            raise LeftOut(NOT_JUDGED, failed=NOT_JUDGED)
        for finding in ended:
            # A phrase that cannot be looked for stays so. What else failed may be mended: the same command searches again.
            if finding.status in PENDING and finding.status != "input_error":
                with_answer(finding)
        why = [self._refused(finding) for finding in ended]
        row.data.grounded = tuple(one for one, reason in zip(objects, why, strict=True) if not reason)
        for one, reason in zip(objects, why, strict=True):
            if reason:
                row.data.leave(one.name, reason)
        if not row.data.grounded:
            detail = ended[0].reason or "the detector confirms no listed object"
            if any(finding.status == "ok" for finding in ended):
                raise LeftOut("not_found", detail)
            raise LeftOut(ended[0].status, detail, failed=ended[0].status)

    def _refused(self, finding: Finding) -> str:
        """Return why a search does not confirm its object: a status, "not_found" or "oversized"; "" where it does."""
        sights = sights_of(finding)
        if sights is None:
            return finding.status
        boxes = [sight.box for sight in sights if sight.score >= self.options.box_threshold]
        return "" if any(not self._oversized(box) for box in boxes) else "oversized" if boxes else "not_found"

    def _oversized(self, box: Box) -> bool:
        """Return whether a box, in fractions of the image, is too large to be an object of its own."""
        options: EdiValBuildOptions = self.options
        return max(box.width, box.height) > options.max_side and box.area > options.max_area

    def _instruct(self, row: SetRow[ChainDraft]) -> None:
        """Add the turns, each once the one before is settled."""
        scene = EditedScene.of(row.data.grounded or ())
        for turn in range(1, self.options.turns + 1):
            next_ = draw(scene, f"{self.options.seed} {row.sample.source.sha256} {turn}")
            edit, words, spec = next_.edit, "", next_.answer
            if spec is not None:
                finding = row.look(row.ask("suggestion", next_.prompt, spec, role="instruct", part=f"turn {turn}"))
                if finding is None or finding.status in PENDING:
                    # The world may mend it: the same command asks again.
                    with_answer(finding)
                assert finding is not None
                said = finding.reason or finding.status if finding.answer is None else next_.read(finding.answer)
                edit, words = (said, "") if isinstance(said, Edit) else (next_.fall_back(), said)
            scene = scene.after(edit)
            row.data.steps.append(ChainStep(edit=edit, pools=scene.pools, drawn=next_.drawn, words=words))

    def count(self, metric: str, found: Drafted) -> int | Lost:
        """Return how many objects, instructions or fallbacks an image has."""
        (row,) = found.rows
        draft: ChainDraft = row.data
        known = {"objects_listed": draft.listed, "objects_grounded": draft.grounded}.get(metric)
        if known is not None:
            return len(known)
        if row.lost is not None:
            return row.lost
        return len(draft.steps) if metric == "instructions" else sum(step.fallback is not None for step in draft.steps)

    def columns(self, row: SetRow[ChainDraft], place: ImagePlace, number: int) -> dict[str, Json]:
        """Return a row of the ImageFolder. Chains count from 0 in the order of the images."""
        return {
            **columns(row.data.chain),
            "id": str(number),
            "source_file_name": place.image(row.sample.source),
            "image": row.sample.extra.get("file_name"),
            "fallbacks": [step.fallback for step in row.data.steps],
        }

    def lines(self, row: SetRow[ChainDraft], place: ImagePlace, number: int) -> Iterable[dict[str, Json]]:
        """Yield the turns of a chain: instructions up to that turn, and the objects after it."""
        place.as_is(row.sample.source, BENCHMARK, f"{number}_input_raw")
        held: Mapping[str, Any] = {name: those for name, those in columns(row.data.chain).items() if name in COLUMNS}
        for turn in range(1, len(row.data.steps) + 1):
            own = {
                name: held[name][:turn] if name in _CUMULATIVE else held[name][turn - 1] for name in COLUMNS if name in held
            }
            yield {INDEX: number, TURN: turn, **own}

    def told(self, made: SetMade) -> SetTold:
        """Return the counts of objects, instructions by turn and type, and fallbacks."""
        options, drafts = self.options, [row.data for row in made.rows]
        steps = [step for row in made.kept for step in row.data.steps]
        turns = range(1, options.turns + 1)
        types = {turn: Counter(row.data.steps[turn - 1].edit.edit_type for row in made.kept) for turn in turns}
        listed_, grounded = (sum(len(getattr(one, name) or ()) for one in drafts) for name in ("listed", "grounded"))
        others = Counter(str(one["why"]) for draft in drafts for one in draft.others)
        fallen = {
            "type": sum(step.drawn != step.edit.edit_type for step in steps),
            "words": sum(bool(step.words) for step in steps),
        }
        bars = sum(row.sample.extra.get("width") != row.sample.extra.get("height") for row in made.rows)
        seen = [kind for kind in EDIT_TYPES if any(types[turn][kind] for turn in turns)]
        rows = [[kind, *(str(types[t][kind]) for t in turns), str(sum(types[t][kind] for t in turns))] for kind in seen]
        left = in_words(others)
        notes = [
            f"Objects: {listed_:,} listed, {grounded:,} grounded" + (f"; left out: {left}" if left else ""),
            f"Instructions: {len(steps):,}; {fallen['type']:,} fell back to subject_add, "
            f"{fallen['words']:,} to the word lists",
        ]
        if options.grounding == "none":
            notes.append("No detector was asked: whether the listed objects are there is the model's word alone.")
        size = getattr(options, "size", None)
        if size is not None:
            notes.append(f"Images are {size}×{size} px. {bars:,} have black bars, which editors fill.")
        return SetTold(
            counts={
                "grounding": options.grounding,
                "seed": options.seed,
                "turns": options.turns,
                "objects": {"listed": listed_, "grounded": grounded, "left_out": dict(sorted(others.items()))},
                "instructions": {str(t): {kind: types[t][kind] for kind in EDIT_TYPES if types[t][kind]} for t in turns},
                "fallbacks": {**fallen},
                "size": size,
                "with_black_bars": 0 if size is None else bars,
            },
            tables=[[["Instructions by type", *(f"Turn {turn}" for turn in turns), "All"], *rows]],
            notes=notes,
        )


_CUMULATIVE: Final = (TYPES, SENTENCES, BRACKETED)


def _resized(ref: ImageRef, side: int, folder: Path, store: ImageStore) -> ImageRef:
    """Return an image fitted into a square, centred on black, and kept in the set's folder."""
    scale = side / max(ref.width, ref.height)
    inner = max(1, round(ref.width * scale)), max(1, round(ref.height * scale))
    square = Image.new("RGB", (side, side))
    fitted = Image.fromarray(store.array(ref)).resize(inner, Image.Resampling.LANCZOS)
    square.paste(fitted, ((side - inner[0]) // 2, (side - inner[1]) // 2))
    file = folder / RESIZED / f"{ref.sha256[:24]}-{side}.png"
    with files.writing(folder):
        files.write_whole(file, encode_png(np.asarray(square)), below=folder)
    return store.add_file(file)


BUILDER: Final = SetBuilder(EdiValBuild)
