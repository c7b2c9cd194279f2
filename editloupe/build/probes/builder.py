"""`editloupe build probes`: edits whose truth is known by construction, of photographs with targets.

What is made is planned first: failures and area shares in turn, so that every pair of them has as many probes as any other.
Each has draws of its own from the seed, so that the same input and options give the same bytes, whoever makes them when.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import floor
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Final, cast

import cv2
import numpy as np
from pydantic import Field, field_validator

from editloupe import files
from editloupe.build.base import Built, LeftOut, stages_of
from editloupe.build.direct import Worked, WorkItem, work
from editloupe.build.probes.colours import part_of
from editloupe.build.probes.makers import ELSEWHERE, FAILURES, NotMade, from_afar, make
from editloupe.build.probes.photographs import Cut, Photographs, Scene, Window, crop_of, read_photographs, scene_of
from editloupe.build.probes.placing import sized
from editloupe.build.probes.twins import TRAPS, TwinPair, plain, with_nuisance, with_trap
from editloupe.config import Number, Whole
from editloupe.cores import usable_cores
from editloupe.data.images import RGB, encode_png
from editloupe.data.probes import AREAS, COLUMN, NUISANCES, Failure, Probe, probe_digest
from editloupe.data.write import IMAGES, METADATA
from editloupe.errors import DataError
from editloupe.measures.base import Models
from editloupe.protocols.base import Options
from editloupe.values import Json, digest, json_line, parse_json

LEFT_OUT: Final = "left_out.jsonl"
MASKS: Final = "masks"
_VERSION: Final = 3
"""Of the plan and of what is made; changes with them."""
_AGAIN: Final = "the same pair was made before"
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
        found = [part.strip().removesuffix("%").strip() for part in text.split(",") if part.strip()]
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

    @property
    def about(self) -> dict[str, Json]:
        """What left_out.jsonl calls it."""
        return {"what": self.id, "failure": self.failure, "area": self.area}


class ProbeSet:
    """The builder."""

    summary: ClassVar[str] = (
        "Make probes: edits whose truth is known because they were made that way, by how they fail and by how much of the "
        "image the target covers; to put judges on trial."
    )
    protocol: ClassVar[None] = None
    reads: ClassVar[str] = (
        "An ImageFolder of photographs with a mask of each target and its target_name. Default: twenty photographs that "
        "come with editloupe."
    )
    default: ClassVar[Path] = Path(__file__).parent / "pictures"
    """What is read without a PATH."""
    weights: ClassVar[Sequence[str]] = ()
    Options: ClassVar[type[ProbeSetOptions]] = ProbeSetOptions

    def build(
        self, path: Path, options: ProbeSetOptions, *, models: Models, folder: Path, stopped: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> Built | None:  # fmt: skip
        """Build the set. Raises as `DirectBuilder.build`."""
        photos = read_photographs(path, stopped=stopped, tell=tell)
        if photos is None:
            return None
        source = _Source(photos, options)
        # Those of one share together, so that its scenes are at hand.
        plan = sorted(planned(options, source.shares()), key=lambda slot: (slot.area, slot.number))
        items = [WorkItem(about=slot.about, make=partial(_made, slot, source, folder)) for slot in plan]
        threads = min(8, usable_cores())
        worked = work(items, None, unit="probe", threads=threads, stopped=stopped, tell=tell)
        return None if worked is None else _written(plan, worked, source, folder)


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


class _Source:
    """Scenes by area share: crops of photographs."""

    def __init__(self, photos: Photographs, options: ProbeSetOptions) -> None:
        self.photos, self.options = photos, options
        self.unfit: dict[tuple[str, float], LeftOut] = {}
        """(target, area share) → why there is no such crop."""
        self._windows: dict[tuple[str, float], Window] = {}
        for cut in photos.cuts:
            for area in options.shares:
                try:
                    self._windows[cut.id, area] = crop_of(cut, self._beside(cut), area=area, longest=options.longest)
                except LeftOut as error:
                    self.unfit[cut.id, area] = error.kept("area")
        self.scene = lru_cache(maxsize=24)(self._scene)

    def _beside(self, cut: Cut) -> list[Cut]:
        return [one for one in self.photos.cuts if one is not cut and one.photo.sha256 == cut.photo.sha256]

    def shares(self) -> list[float]:
        """Return the area shares that there are scenes of. Raises DataError where there is none."""
        if found := [area for area in self.options.shares if self.at(area)]:
            return found
        lost = [*self.photos.lost, *((id_, one) for (id_, _), one in self.unfit.items())]
        counts = Counter(one.why for _, one in lost)
        # One example of each reason: nothing is written that would say more.
        shown = {one.why: f"  {counts[one.why]:,} {one.why}, such as {id_}: {one}" for id_, one in lost}
        raise DataError("\n".join(["no target can be used, so that nothing is made:", *shown.values()]))

    def at(self, area: float) -> list[Cut]:
        """Return the targets of which there is a scene of this share."""
        return [cut for cut in self.photos.cuts if (cut.id, area) in self._windows]

    def _scene(self, cut: Cut, area: float) -> Scene:
        window, own = self._windows[cut.id, area], self.photos.store.array(cut.photo)
        scene = scene_of(cut, own, self._beside(cut), window, area=area, longest=self.options.longest)
        return replace(scene, elsewhere=lambda by: self._elsewhere(cut, own, scene.image.shape[:2], by))

    def _elsewhere(self, cut: Cut, own: RGB, shape: tuple[int, ...], by: Random) -> tuple[str, RGB] | None:
        """Return the middle of another photograph, H×W; None for one that could be of the same room, and for none."""
        others = {one.photo.sha256: one for one in self.photos.cuts if one.photo.sha256 != cut.photo.sha256}
        if not others:
            return None
        other, (height, width) = others[by.choice(sorted(others))], shape
        rgb = self.photos.store.array(other.photo)
        if from_afar(own, rgb) < ELSEWHERE:
            return None
        scale = max(height / rgb.shape[0], width / rgb.shape[1])
        large = sized(rgb, (max(width, round(rgb.shape[1] * scale)), max(height, round(rgb.shape[0] * scale))))
        top, left = (large.shape[0] - height) // 2, (large.shape[1] - width) // 2
        return _stem(other), np.ascontiguousarray(large[top : top + height, left : left + width])


def _stem(cut: Cut) -> str:
    return cut.photo.path.stem if cut.photo.path is not None else cut.photo.sha256[:12]


def _made(slot: Slot, source: _Source, folder: Path) -> dict[str, Any]:
    """Return the rows of a slot, their images written. Raises LeftOut where no target allows it, and StorageError."""
    by = Random(digest([_VERSION, source.options.seed, slot.number, slot.failure, slot.area]))
    cuts, faults = source.at(slot.area), list[Json]()
    for cut in by.sample(cuts, min(_TRIES, len(cuts))):
        scene, seed = source.scene(cut, slot.area), by.randrange(2**32)
        try:
            made = make(slot.failure, scene, Random(seed))
        except NotMade as error:
            faults.append({**slot.about, "stage": "made", "of": cut.id, "why": str(error)})
            continue
        pairs, faults = {slot.id: plain(scene, made)}, []
        # Of traps the look-alike first, which others cannot have.
        traps = sorted(by.sample(TRAPS, len(TRAPS)), key=lambda name: name != "look_alike")
        kinds: Mapping[str, tuple[Any, Sequence[str]]] = {
            "n": (with_nuisance, by.sample(NUISANCES, len(NUISANCES))),
            "t": (with_trap, traps),
        }
        for letter, (varied, names) in kinds.items() if slot.twins else ():
            for name in names:
                try:
                    pairs[slot.id + letter] = varied(name, scene, made, by)
                    break
                except NotMade as error:
                    faults.append({**slot.about, "stage": "varied", "of": name, "why": str(error)})
        rows = [_row(id_, pair, slot, scene, _stem(cut), seed, folder) for id_, pair in pairs.items()]
        return {"rows": rows, "target": cut.id, "faults": faults}
    raise LeftOut("not_made", cast(Any, faults[-1])["why"], at="made", told={"faults": faults})


def _row(id_: str, pair: TwinPair, slot: Slot, scene: Scene, photo: str, seed: int, folder: Path) -> Mapping[str, Json]:
    """Return a line of metadata.jsonl, with its digest; its images are written."""
    made = pair.edit
    mask = cv2.imencode(".png", made.allowed.astype(np.uint8) * 255)[1].tobytes()
    placed = (
        _placed(encode_png(pair.source), folder, IMAGES, "png"),
        _placed(pair.jpeg or encode_png(pair.edited), folder, IMAGES, "jpg" if pair.jpeg else "png"),
        _placed(mask, folder, MASKS, "png"),
    )
    rows, columns = part_of(scene.target.mask, 0)
    varied: dict[str, Json] = {"variant": dict(pair.parameters)} if pair.nuisance or pair.trap else {}
    probe = Probe(
        truth=pair.truth,
        bands=pair.bands,
        failure=pair.failure,
        area=slot.area,
        area_found=round(float(scene.target.mask.mean()), 8),
        nuisance=pair.nuisance,
        trap=pair.trap,
        twin=None if id_ == slot.id else slot.id,
        asks_for=pair.asks_for,
        scene=photo,
        maker=made.maker,
        seed=seed,
        parameters={**made.parameters, **varied},
        digest="",
    )
    row: dict[str, Any] = {
        "id": id_,
        **{column: file for column, (file, _) in zip(_FILES, placed, strict=True)},
        "instruction": made.instruction,
        "edit_type": made.edit_type,
        "target_name": scene.target.name,
        "bboxes": [[columns.start, rows.start, columns.stop, rows.stop]],
        "bbox_format": "xyxy",
        COLUMN: probe.to_json(),
    }
    # As it is read back: what the digest is of.
    row = cast("dict[str, Any]", parse_json(json_line(row)))
    row[COLUMN]["digest"] = probe_digest(row, {column: sha for column, (_, sha) in zip(_FILES, placed, strict=True)})
    return row


def _placed(data: bytes, folder: Path, below: str, ending: str) -> tuple[str, str]:
    """Write an image, and return its name in the folder and the SHA-256 of its bytes. Raises StorageError."""
    sha = hashlib.sha256(data).hexdigest()
    file = f"{below}/{sha[:24]}.{ending}"
    with files.writing(folder):
        files.write_whole(folder / file, data, below=folder)
    return file, sha


def _written(plan: Sequence[Slot], worked: Worked, source: _Source, folder: Path) -> Built:
    """Write the rows and what was left out, delete images that no row names, and return what the set holds."""
    seen, kept, missing = set[tuple[Json, ...]](), list[Mapping[str, Any]](), Counter[str]()
    left_out: list[dict[str, Json]] = [{"what": id_, **lost.to_json()} for id_, lost in source.photos.lost]
    left_out += [{"what": id_, "area": area, **lost.to_json()} for (id_, area), lost in sorted(source.unfit.items())]
    left_out += worked.left_out
    for slot, one in sorted(zip(plan, worked.made, strict=True), key=lambda both: both[0].number):
        key = tuple(one["rows"][0][name] for name in (*_FILES[:2], "instruction")) if "rows" in one else ()
        if key and key not in seen:
            seen.add(key)
            kept.append(one)
        else:
            missing[one.get("detail", _AGAIN)] += 1
            if key:
                left_out.append({**slot.about, **LeftOut("made_before", _AGAIN, at="made").to_json()})
    rows = [row for one in kept for row in one["rows"]]
    named = {str(row[column]) for row in rows for column in _FILES}
    with files.writing(folder):
        files.write_whole(folder / METADATA, b"".join(map(json_line, rows)), below=folder)
        files.write_whole(folder / LEFT_OUT, b"".join(map(json_line, left_out)), below=folder)
        for path in (*(folder / IMAGES).glob("*"), *(folder / MASKS).glob("*")):
            if f"{path.parent.name}/{path.name}" not in named:
                files.unlink(path, below=folder)
    probes, used = [Probe.from_json(row[COLUMN]) for row in rows], {str(one["target"]) for one in kept}
    return _built(probes, used, missing, source)


_STAGES: Final = {
    "read": "names its target, and has a mask",
    "mask": "a mask that fits the target",
    "area": "gives at least one area share",
    "made": "at least one probe",
}


def _built(probes: Sequence[Probe], used: Collection[str], missing: Counter[str], source: _Source) -> Built:
    """Return what the set holds.   used: targets of which there is a probe.   missing: why → planned probes not made."""
    shares, photos = source.options.shares, source.photos
    left = Counter((lost.at, lost.why) for _, lost in photos.lost)
    for cut in photos.cuts:
        if all((cut.id, area) in source.unfit for area in shares):
            left["area", source.unfit[cut.id, shares[0]].why] += 1
        elif cut.id not in used:
            left["made", "none_made"] += 1
    plainly = Counter((one.failure, one.area) for one in probes if one.twin is None)
    notes = list(photos.notes)
    if missing:
        why = "; ".join(f"{count:,} {why}" for why, count in sorted(missing.items()))
        notes.append(f"Planned probes that no photograph allows: {missing.total():,} ({why}); more photographs help.")
    none = [area for area in shares if all(one.area != area for one in probes)]
    notes += [f"No probe has {100 * area:g} %: {LEFT_OUT} says why." for area in none]
    head, rows = [f"{100 * area:g} %" for area in shares], []
    for name in FAILURES:
        rows.append([name, *(str(plainly[name, area]) for area in shares)])
    return Built(
        read=len(photos.cuts) + len(photos.lost),
        written=len(probes),
        noun="probe",
        unit="target",
        stages=stages_of(_STAGES, left),
        counts={
            "plain": plainly.total(),
            "by_failure": {name: sum(one.failure == name for one in probes) for name in FAILURES},
            "by_area": {f"{100 * area:g}": sum(one.area == area for one in probes) for area in shares},
            "twins": dict(sorted(Counter(one.nuisance or one.trap or "" for one in probes if one.twin).items())),
            "scenes": len({one.scene for one in probes}),
            "not_made": dict(sorted(missing.items())),
        },
        tables=[[["Failure", *head], *rows]],
        notes=notes,
    )
