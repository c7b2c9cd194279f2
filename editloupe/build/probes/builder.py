"""`editloupe build probes`: edits whose truth is known by construction, of photographs with targets.

What is made is planned first: failures and area shares in turn, so that every pair of them has as many probes as any other.
Each has draws of its own from the seed, so that the same input and options give the same bytes, whoever makes them when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import sha256
from math import floor
from pathlib import Path
from random import Random
from typing import Any, Final, cast

from pydantic import Field, field_validator

from editloupe import files
from editloupe.build.base import LEFT_OUT, LeftOut
from editloupe.build.direct import DirectRecipe, Worked, WorkItem
from editloupe.build.paint import part_of
from editloupe.build.places import ImagePlace
from editloupe.build.probes.makers import FAILURES, Made, NotMade, make
from editloupe.build.probes.scenes import Cut, Scene, Window, crop_of, read_photographs, scene_of
from editloupe.build.probes.twins import TRAPS, with_nuisance, with_trap
from editloupe.config import Number, Whole
from editloupe.cores import usable_cores
from editloupe.data.sealed import COLUMN, seal_of
from editloupe.data.write import METADATA
from editloupe.errors import DataError
from editloupe.protocols.base import Options
from editloupe.protocols.probes.probe import AREAS, NUISANCES, Failure
from editloupe.values import Json, digest, json_line, parse_json

_VERSION: Final = 4
"""Of the plan and of what is made; changes with them."""
_TRIES: Final = 8
"""Targets that are tried for one probe."""
_FILES: Final = ("source_file_name", "edited_file_name", "mask_file_name")


class ProbeSetOptions(Options):
    """What `editloupe build probes` offers."""

    count: Whole = Field(default=600, ge=1, le=100_000)
    """About how many probes, twins among them."""
    areas: str = "0.05,0.1,0.3,1,3,10"
    """Area shares of targets in percent: any of 0.05, 0.1, 0.3, 1, 3 and 10."""
    twins: Number = Field(default=0.5, ge=0, le=1)
    """Share of probes that come with two twins: one with a nuisance, and one with a trap."""
    longest: Whole = Field(default=1536, ge=256, le=8192)
    """px of a picture's longer side at most."""
    seed: Whole = Field(default=0, ge=0)
    """Seed of all that is drawn."""

    @field_validator("areas")
    @classmethod
    def _known(cls, text: str) -> str:
        known = {f"{100 * area:g}": area for area in AREAS}
        found = [part.strip() for part in text.split(",") if part.strip()]
        if not found or any(part not in known for part in found):
            raise ValueError(f"expected some of {', '.join(known)} (percent), with commas between them")
        return ",".join(sorted(set(found), key=lambda part: known[part]))

    @property
    def shares(self) -> tuple[float, ...]:
        """The area shares, 0 to 1, from the least."""
        return tuple(area for area in AREAS if f"{100 * area:g}" in self.areas.split(","))


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A probe that is planned."""

    number: int
    failure: Failure
    area: float
    twins: bool

    @property
    def id(self) -> str:
        """Tells nothing of the truth."""
        return f"p{self.number:05d}"


_STAGES: Final = {"made": "a target allows it, and no probe before it is the same pair"}


class ProbeSet(DirectRecipe):
    """Probes of photographs with targets."""

    summary = (
        "Make probes: edits whose truth is known because they were made that way, by how they fail and by how much of the "
        "image the target covers; to put judges on trial."
    )
    reads = (
        "An ImageFolder of photographs with a mask of each target and its target_name. Default: twenty photographs that "
        "come with editloupe."
    )
    default = Path(__file__).parent / "pictures"
    Options = ProbeSetOptions
    noun, unit = "probe", "planned probe"
    passes = _STAGES

    def open(self) -> None:
        """Read what the path holds."""
        self.threads = min(8, usable_cores())
        self._photos = photos = read_photographs(self.path)
        self._place = ImagePlace(folder=self.folder, images=photos.store)
        self._windows: dict[tuple[str, float], Window] = {}
        self._unfit: dict[tuple[str, float], LeftOut] = {}
        """(target, area share) → why there is no such crop."""
        for cut in photos.cuts:
            for area in self.options.shares:
                try:
                    self._windows[cut.id, area] = crop_of(cut, area=area, longest=self.options.longest)
                except LeftOut as error:
                    self._unfit[cut.id, area] = error
        self._scene = lru_cache(maxsize=24)(self._scene_of)
        if not self._windows:
            lost = [*photos.lost, *((id_, one) for (id_, _), one in self._unfit.items())]
            # One example of each reason: nothing is written that would say more.
            shown = {one.why: f"  {one.why}, such as {id_}: {one}" for id_, one in lost}
            raise DataError("\n".join(["no target can be used, so that nothing is made:", *shown.values()]))

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem]:
        """Return the plan. Those of one share stand together, so that its scenes are at hand."""
        plan = planned(self.options, [area for area in self.options.shares if self._at(area)])
        return [
            WorkItem(about={"what": slot.id, "failure": slot.failure, "area": slot.area}, make=partial(self._made, slot))
            for slot in sorted(plan, key=lambda slot: (slot.area, slot.number))
        ]

    def write(self, worked: Worked) -> dict[str, Json]:
        """Write the rows, each pair once, and delete images that no row names."""
        photos, place = self._photos, self._place
        worked.left_out += [{"what": id_, **lost.to_json()} for id_, lost in photos.lost]
        unfit = sorted(self._unfit.items())
        worked.left_out += [{"what": id_, "area": area, **lost.to_json()} for (id_, area), lost in unfit]
        kept: dict[tuple[str, ...], Mapping[str, Any]] = {}
        for made in sorted(worked.written, key=lambda one: str(one["rows"][0]["id"])):
            first = made["rows"][0]
            if kept.setdefault(tuple(first[name] for name in (*_FILES[:2], "instruction")), made) is not made:
                worked.made.remove(made)
                lost: dict[str, Any] = {"why": "made_before", "at": "made", "detail": ""}
                worked.add(WorkItem(about={"what": first["id"]}, make=dict), lost)
        rows = [row for one in kept.values() for row in one["rows"]]
        files.write_whole(self.folder / METADATA, b"".join(map(json_line, rows)), below=self.folder)
        place.keep(name for one in kept.values() for name in one["images"])
        return {"probes": len(rows), "targets": {"read": len(photos.cuts), "left_out": len(photos.lost)}}

    def notes(self) -> Sequence[str]:
        """Return which sizes no probe has."""
        none = [f"{100 * area:g} %" for area in self.options.shares if not self._at(area)]
        return [f"No probe has {area}: {LEFT_OUT} says why." for area in none]

    def _at(self, area: float) -> list[Cut]:
        """Return the targets of which there is a scene of this share."""
        return [cut for cut in self._photos.cuts if (cut.id, area) in self._windows]

    def _scene_of(self, cut: Cut, area: float) -> Scene:
        window, own = self._windows[cut.id, area], self._photos.store.array(cut.photo)
        return scene_of(cut, own, self._photos.beside(cut), window, longest=self.options.longest)

    def _made(self, slot: Slot) -> dict[str, Any]:
        """Return the rows of a slot, their images written. Raises LeftOut where no target allows it, and StorageError."""
        by = Random(digest([_VERSION, self.options.seed, slot.number, slot.failure, slot.area]))
        cuts, why = self._at(slot.area), ""
        for cut in by.sample(cuts, min(_TRIES, len(cuts))):
            scene, seed = self._scene(cut, slot.area), by.randrange(2**32)
            try:
                made = make(slot.failure, scene, Random(seed))
            except NotMade as error:
                why = str(error)
                continue
            pairs = {slot.id: made}
            kinds: Mapping[str, tuple[Any, Sequence[str]]] = {"n": (with_nuisance, NUISANCES), "t": (with_trap, TRAPS)}
            for letter, (varied, names) in kinds.items() if slot.twins else ():
                for name in by.sample(names, len(names)):
                    with suppress(NotMade):  # the next kind
                        pairs[slot.id + letter] = varied(name, scene, made, by)
                        break
            rows = [_row(id_, pair, slot, scene, cut, seed, self._place) for id_, pair in pairs.items()]
            return {"rows": rows, "images": [row[column] for row in rows for column in _FILES]}
        raise LeftOut("not_made", why, at="made")


def planned(options: ProbeSetOptions, shares: Sequence[float]) -> list[Slot]:
    """Return what is to be made. Failures and area shares take turns, so that any two of them meet equally often."""
    each, twins = len(FAILURES), options.twins
    slots = list[Slot]()
    for number in range(max(1, round(options.count / (1 + 2 * twins)))):
        turn = number // each
        # The share moves on by one from turn to turn, whether or not it has a divisor in common with the failures.
        area = shares[(number % each + turn) % len(shares)]
        twin = floor((number + turn + 1) * twins) > floor((number + turn) * twins)
        slots.append(Slot(number=number, failure=FAILURES[number % each], area=area, twins=twin))
    return slots


def _row(id_: str, made: Made, slot: Slot, scene: Scene, cut: Cut, seed: int, place: ImagePlace) -> dict[str, Any]:
    """Return a line of metadata.jsonl, with its digest; its images are written."""
    with files.writing(place.folder):
        edited = place.file(made.jpeg, "jpg") if made.jpeg else place.pixels(made.edited)
        names = dict(zip(_FILES, (place.pixels(made.source), edited, place.mask(made.allowed)), strict=True))
    rows, columns = part_of(scene.target.mask, 0)
    twin = None if id_ == slot.id else slot.id
    probe = replace(made.probe, area=slot.area, twin=twin, scene=cut.scene, seed=seed)
    row: dict[str, Any] = {
        "id": id_,
        **names,
        "instruction": made.instruction,
        "edit_type": made.edit_type,
        "target_name": scene.target.name,
        "bboxes": [[columns.start, rows.start, columns.stop, rows.stop]],
        "bbox_format": "xyxy",
        COLUMN: probe.to_json(),
    }

    # As it is read back: what the digest is of.
    row = cast("dict[str, Any]", parse_json(json_line(row)))
    written = {column: sha256(files.read_bytes(place.folder / name)).hexdigest() for column, name in names.items()}
    row[COLUMN]["digest"] = seal_of(row, written)
    return row
