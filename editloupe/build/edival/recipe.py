"""EdiVal-Bench's own making: the objects of an image, then a chain of instructions about them, turn by turn.

The role `decompose` lists the objects, a detector confirms them, the role `instruct` says what an edit brings. What is
drawn at random follows from the seed and the image's content, so that no image changes the chain of another.

Reproduced:
- the decomposition (paper, 2.2 and I.1): objects by material, colour and name, people by what they wear;
- the grounding filter (I.1): detections from 0.35, without oversized boxes;
- the instructions (2.3 and I.2): nine types, a new one each turn, pools that follow the edits, counts 3 to 5.

Differs:
- the prompts and the list of colours are ours;
- the paper names no number for a large area; the official code drops a box that is wider or higher than 0.9 of the image
  and covers more than 0.4 of it;
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

from pydantic import Field

from editloupe.build.base import LeftOut
from editloupe.build.edival.drawing import (
    MOST_OBJECTS,
    OBJECTS_ANSWER,
    EditedScene,
    SceneObject,
    draw,
    listed,
    question,
    read,
)
from editloupe.build.engine import RowStep, SetMade, SetRecipe, SetRow, SetTold, answered
from editloupe.build.made import SetBuilder
from editloupe.build.places import ImagePlace
from editloupe.config import Whole
from editloupe.data.folders import RowError
from editloupe.data.image_lists import list_images
from editloupe.data.images import ImageStore
from editloupe.data.rows import Loaded, RejectedRow
from editloupe.errors import ImageError
from editloupe.findings import PENDING, Finding
from editloupe.prompts import render
from editloupe.protocols.base import Options
from editloupe.protocols.edival.chain import BRACKETED, PAPER, SENTENCES, TYPES, Chain, Pools, columns
from editloupe.protocols.edival.instructions import EDIT_TYPES, Edit
from editloupe.protocols.edival.loader import COLUMNS, INDEX, TURN
from editloupe.protocols.edival.sights import detect, sights_of
from editloupe.scores import NOT_JUDGED
from editloupe.values import Json, Sample, Turn

BENCHMARK: Final = "edival"


class EdiValBuildOptions(Options):
    """What a run may set."""

    turns: Annotated[Whole, Field(ge=1, le=len(EDIT_TYPES))] = 3
    """Instructions of a chain; each turn has a type of its own, of which there are nine."""
    seed: Annotated[Whole, Field(ge=0)] = 42
    """What types, objects and words are drawn by."""
    grounding: Literal["detector", "none"] = "detector"
    """detector: an object counts if the detector finds it. none: every listed object counts, and no detector is needed."""


@dataclass(frozen=True, kw_only=True)
class ChainStep:
    """One turn of a chain."""

    edit: Edit
    pools: Pools
    """After the edit."""
    drawn: str
    """The type that was drawn; the edit has another one where no object allowed it."""

    @property
    def fallback(self) -> str | None:
        """Why the edit is not of the type that was drawn; None where it is."""
        return None if self.drawn == self.edit.edit_type else f"no object allows {self.drawn}"


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
    roles: ClassVar[Mapping[str, str]] = {
        "decompose": "lists the objects of an image",
        "instruct": "says what an edit brings",
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
        """Return each image once, in the order of their names, 2 before 10.

        What metadata says of an image is left aside. Raises DataError where there is none.
        """
        found = list_images(path, store)
        samples: dict[str, Sample] = {}
        rejected = []
        named = found.identified()
        for id_, name in named:
            try:
                ref = found.folder.image(name)
                store.array(ref)
            except (RowError, ImageError) as error:
                kind = error.kind if isinstance(error, RowError) else "unreadable_image"
                rejected.append(RejectedRow(id=id_, kind=kind, message=str(error), file=found.folder.root / name))
                continue
            turn, dataset = Turn(instruction="", edited=None), found.folder.root.resolve().name
            sample = Sample(id=id_, dataset=dataset, source=ref, turns=(turn,), extra={"file_name": name})
            samples.setdefault(ref.sha256, sample)
        again = len(named) - len(samples) - len(rejected)
        notes = (f"{again:,} of {len(named):,} images occur a second time and are taken once",) if again else ()
        return Loaded(format="images", samples=tuple(samples.values()), rejected=tuple(rejected), notes=notes)

    def rows(self, image: SetRow[None], others: list[dict[str, Json]]) -> list[SetRow[Any]]:
        """Return the image's one chain."""
        return [replace(image, data=ChainDraft(others=others))]  # type: ignore[arg-type]

    def _decompose(self, row: SetRow[ChainDraft]) -> None:
        """Add the objects that the model lists."""
        finding = row.take(
            row.ask("objects", render("build/edival/decompose", most=MOST_OBJECTS), OBJECTS_ANSWER, role="decompose")
        )
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
        if None in found:
            raise LeftOut(NOT_JUDGED, failed=NOT_JUDGED)
        confirmed = []
        for one, finding in zip(objects, found, strict=True):
            assert finding is not None
            if finding.status in PENDING and finding.status != "input_error":
                # What failed may be mended: the same command searches again. A phrase that cannot be looked for stays so.
                answered(finding)
            if why := _refused(finding):
                row.data.leave(one.name, why)
            else:
                confirmed.append(one)
        row.data.grounded = tuple(confirmed)
        if not confirmed:
            raise LeftOut("not_found", "the detector confirms no listed object")

    def _instruct(self, row: SetRow[ChainDraft]) -> None:
        """Add the turns, each once the one before is settled."""
        scene = EditedScene.of(row.data.grounded or ())
        for turn in range(1, self.options.turns + 1):
            edit, drawn = draw(scene, f"{self.options.seed} {row.sample.source.sha256} {turn}")
            if asked := question(edit, scene):
                finding = row.take(row.ask("suggestion", *asked, role="instruct", part=f"turn {turn}"))
                assert finding.answer is not None
                edit = read(edit, scene, finding.answer)
            scene = scene.after(edit)
            row.data.steps.append(ChainStep(edit=edit, pools=scene.pools, drawn=drawn))

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
        """Return the counts of objects, and of instructions by turn and type."""
        drafts, turns = [row.data for row in made.rows], range(1, self.options.turns + 1)
        steps = [row.data.steps for row in made.kept]
        types = {turn: Counter(chain[turn - 1].edit.edit_type for chain in steps) for turn in turns}
        listed_, grounded = (sum(len(getattr(one, name) or ()) for one in drafts) for name in ("listed", "grounded"))
        others = Counter(str(one["why"]) for draft in drafts for one in draft.others)
        fallen = sum(step.fallback is not None for chain in steps for step in chain)
        seen = [kind for kind in EDIT_TYPES if any(types[turn][kind] for turn in turns)]
        rows = [[kind, *(str(types[turn][kind]) for turn in turns)] for kind in seen]
        notes = [f"Objects: {listed_:,} listed, {grounded:,} grounded; {fallen:,} instructions fell back to subject_add"]
        if self.options.grounding == "none":
            notes.append("No detector was asked: whether the listed objects are there is the model's word alone.")
        return SetTold(
            counts={
                "objects": {"listed": listed_, "grounded": grounded, "left_out": dict(sorted(others.items()))},
                "instructions": {str(turn): dict(sorted(types[turn].items())) for turn in turns},
                "fallbacks": fallen,
            },
            tables=[[["Instructions by type", *(f"Turn {turn}" for turn in turns)], *rows]],
            notes=notes,
        )


_CUMULATIVE: Final = (TYPES, SENTENCES, BRACKETED)
BOX_THRESHOLD: Final = 0.35
"""Least score of a detection (I.1)."""
MAX_SIDE, MAX_AREA = 0.9, 0.4
"""A box is oversized if a side is a larger share of the image's side, and its area a larger share of the image's."""


def _refused(finding: Finding) -> str:
    """Return why a search does not confirm its object: a status, "not_found" or "oversized"; "" where it does."""
    sights = sights_of(finding)
    if sights is None:
        return finding.status
    boxes = [sight.box for sight in sights if sight.score >= BOX_THRESHOLD]
    if any(max(box.width, box.height) <= MAX_SIDE or box.area <= MAX_AREA for box in boxes):
        return ""
    return "oversized" if boxes else "not_found"


BUILDER: Final = SetBuilder(EdiValBuild)
