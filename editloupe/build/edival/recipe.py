"""EdiVal-Bench's own making: the objects of an image, then a chain of instructions about them, turn by turn.

The role `decompose` lists the objects, a detector confirms them, the role `instruct` says what an edit brings. What is
drawn at random follows from the seed and the image's content, so that no image changes the chain of another.

Reproduced: the decomposition (paper, 2.2 and I.1); detections from 0.35 without oversized boxes (I.1);
the instructions, nine types, a new one each turn, pools that follow the edits, counts 3 to 5 (2.3 and I.2).
Differs: the prompts and the list of colors are ours; a box is oversized as in the official code, since the paper names no
number; a change of background needs an object that stays; what an edit brings or renames is in the foreground, where in the
benchmark's file it can no longer be edited after a change of background; an object whose number is what would be asked for
is not chosen for a change of its number.
Not covered: sensitive images, which people took out (34 of 606); texts in Chinese.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field

from editloupe.build.base import LeftOut, counted
from editloupe.build.edival import drawing
from editloupe.build.edival.drawing import EditedScene, SceneObject
from editloupe.build.engine import RowStep, SetRecipe, SetRow, answered
from editloupe.build.places import ImagePlace
from editloupe.config import Whole
from editloupe.findings import PENDING, Finding
from editloupe.prompts import render
from editloupe.protocols.base import Options
from editloupe.protocols.edival.chain import BRACKETED, PAPER, SENTENCES, TYPES, Chain, columns
from editloupe.protocols.edival.instructions import EDIT_TYPES
from editloupe.protocols.edival.loader import COLUMNS, INDEX, TURN
from editloupe.protocols.edival.sights import detect, sights_of
from editloupe.values import Json

BENCHMARK: Final = "edival"
BOX_THRESHOLD: Final = 0.35
"""Least score of a detection (I.1)."""
MAX_SIDE, MAX_AREA = 0.9, 0.4
"""A box is oversized if a side is a larger share of the image's side, and its area a larger share of the image's."""
_CUMULATIVE: Final = (TYPES, SENTENCES, BRACKETED)


class EdiValBuildOptions(Options):
    """What a run may set."""

    turns: Annotated[Whole, Field(ge=1, le=len(EDIT_TYPES))] = 3
    """Instructions of a chain; each turn has a type of its own, of which there are nine."""
    seed: Annotated[Whole, Field(ge=0)] = 42
    """What types, objects and words are drawn by."""
    grounding: Literal["detector", "none"] = "detector"
    """detector: an object counts if the detector finds it. none: every listed object counts, and no detector is needed."""


@dataclass(kw_only=True)
class ChainDraft:
    """What is known of an image's chain."""

    listed: Sequence[SceneObject] = ()
    """Usable objects."""
    grounded: Sequence[SceneObject] = ()
    """Those that a detector confirms, or all where none is asked."""
    scenes: list[EditedScene] = field(default_factory=list)
    """After each edit."""

    def columns(self) -> dict[str, Any]:
        """Return the chain as columns."""
        pools = tuple(scene.pools for scene in self.scenes)
        return dict(columns(Chain(mode="multipass", edits=self.scenes[-1].edits, pools=pools)))


class EdiValBuild(SetRecipe):
    """Objects, detections and instructions of each image, each from the findings before it."""

    name = "edival-build"
    summary = (
        "List the objects of images, confirm them with a detector, and write chains of instructions for editing them, as "
        "EdiVal-Bench has them. PATH is a folder of images, or an ImageFolder."
    )
    paper = PAPER
    noun, unit, first = "chain", "image", "read"
    Options = EdiValBuildOptions
    roles: ClassVar[Mapping[str, str]] = {
        "decompose": "lists the objects of an image",
        "instruct": "says what an edit brings",
    }
    file, folders, header = f"{BENCHMARK}/instructions.csv", (BENCHMARK,), COLUMNS
    aside = ("bbox", "bboxes", "bbox_format", "mask_file_name", "target_name")

    def steps(self) -> Sequence[RowStep]:
        """Return the steps of a chain."""
        asks = self.options.grounding == "detector"
        return (
            RowStep("decomposed", "the model lists a usable object", self._decompose),
            RowStep("grounded", "the detector confirms an object" if asks else "(no detector was asked)", self._ground),
            RowStep("instructed", "each turn has an instruction", self._instruct),
        )

    def needed(self) -> Mapping[str, str]:
        """Return a detector where objects are to be grounded."""
        if self.options.grounding == "none":
            return {}
        return {
            "detect": "grounding needs a detector, and there is none: {reason}. Name one with --detector, or choose "
            "--set grounding=none: then every object counts that the model lists, seen or not"
        }

    def rows(self, image: SetRow[None]) -> list[SetRow[Any]]:
        """Return the image's one chain."""
        return [image.becomes(1, ChainDraft())]

    def _decompose(self, row: SetRow[ChainDraft]) -> None:
        """Add the objects that the model lists."""
        prompt = render("build/edival/decompose", most=drawing.MOST_OBJECTS)
        row.data.listed, others = drawing.listed(row.ask("objects", prompt, drawing.OBJECTS_ANSWER, role="decompose"))
        _leave(row, others)
        if not row.data.listed:
            raise LeftOut("no_objects", "the list has no usable object" if others else "the list is empty")

    def _ground(self, row: SetRow[ChainDraft]) -> None:
        """Keep the objects that the detector confirms, once all searches have ended."""
        objects, rests_on = row.data.listed, row.rests_on()
        if self.options.grounding == "none":
            row.data.grounded = objects
            return
        searches = [replace(detect(self, row.sample, 0, one.name), rests_on=rests_on) for one in objects]
        found = [row.look(search) for search in searches]
        for finding in found:
            if finding is None or (finding.status in PENDING and finding.status != "input_error"):
                # What failed may be mended: the same command searches again. A phrase that cannot be looked for stays so.
                answered(finding)
        refused = {one.name: why for one, said in zip(objects, found, strict=True) if said and (why := _refused(said))}
        _leave(row, refused)
        row.data.grounded = [one for one in objects if one.name not in refused]
        if not row.data.grounded:
            raise LeftOut("not_found", "the detector confirms no listed object")

    def _instruct(self, row: SetRow[ChainDraft]) -> None:
        """Add the turns, each once the one before is settled."""
        scene = EditedScene.of(row.data.grounded)
        for turn in range(1, self.options.turns + 1):
            edit = drawing.draw(scene, f"{self.options.seed} {row.sample.source.sha256} {turn}")
            if asked := drawing.question(edit, scene):
                edit = drawing.read(edit, scene, row.ask("suggestion", *asked, role="instruct", part=f"turn {turn}"))
            scene = scene.after(edit)
            row.data.scenes.append(scene)

    def columns(self, row: SetRow[ChainDraft], place: ImagePlace, number: int) -> dict[str, Json]:
        """Return a row of the ImageFolder. Chains count from 0 in the order of the images."""
        return {**row.data.columns(), "id": str(number)}

    def lines(self, row: SetRow[ChainDraft], place: ImagePlace, number: int) -> Iterable[dict[str, Json]]:
        """Yield the turns of a chain: instructions up to that turn, and the objects after it."""
        place.as_is(row.sample.source, BENCHMARK, f"{number}_input_raw")
        held = {name: those for name, those in row.data.columns().items() if name in COLUMNS}
        for turn in range(1, len(row.data.scenes) + 1):
            own = {name: those[:turn] if name in _CUMULATIVE else those[turn - 1] for name, those in held.items()}
            yield {INDEX: number, TURN: turn, **own}

    def counts(self, rows: Sequence[SetRow[Any]], kept: Sequence[SetRow[Any]]) -> dict[str, Json]:
        """Return the counts of objects, and of instructions by turn and type."""
        drafts = [row.data for row in rows]
        types = [Counter(row.data.scenes[turn].edits[turn].edit_type for row in kept) for turn in range(self.options.turns)]
        return {
            "objects": {
                "listed": sum(len(one.listed) for one in drafts),
                "grounded": sum(len(one.grounded) for one in drafts),
                "left_out": counted(Counter(str(one["why"]) for row in rows for one in row.others)),
            },
            "instructions": {str(turn): counted(of) for turn, of in enumerate(types, start=1)},
        }


def _leave(row: SetRow[ChainDraft], whys: Mapping[str, str]) -> None:
    """Say that objects do not count.   whys: name → why."""
    row.others += [{"stage": "object", "object": name, "why": why} for name, why in whys.items()]


def _refused(finding: Finding) -> str:
    """Return why a search does not confirm its object: a status, "not_found" or "oversized"; "" where it does."""
    sights = sights_of(finding)
    if sights is None:
        return finding.status
    boxes = [sight.box for sight in sights if sight.score >= BOX_THRESHOLD]
    if any(max(box.width, box.height) <= MAX_SIDE or box.area <= MAX_AREA for box in boxes):
        return ""
    return "oversized" if boxes else "not_found"
