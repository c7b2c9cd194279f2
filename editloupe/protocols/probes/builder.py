"""`editloupe build probes`: edits whose truth is known by construction, of photographs with targets and of drawn scenes.

What is made is planned first: failures and area shares in turn, so that every pair of them has as many probes as any other.
Each has draws of its own from the seed, so that the same input and options give the same bytes, whoever makes them when.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from math import floor
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any, ClassVar, Final, TypeAlias, cast

import cv2
import numpy as np
from pydantic import Field, field_validator

from editloupe import files
from editloupe.build.base import Built, Lost, Stage
from editloupe.config import Number, Whole
from editloupe.cores import usable_cores
from editloupe.data.images import RGB, ImageStore, encode_png
from editloupe.data.probes import (
    AREAS,
    COLUMN,
    FAILURES,
    NUISANCES,
    TRAPS,
    Failure,
    Nuisance,
    Probe,
    Trap,
    changed_since,
    probe_digest,
)
from editloupe.data.write import IMAGES, METADATA
from editloupe.errors import DataError
from editloupe.measures.base import Models
from editloupe.protocols.base import Options
from editloupe.protocols.probes import variants
from editloupe.protocols.probes.colours import Mask, part_of
from editloupe.protocols.probes.drawn import drawn_scene
from editloupe.protocols.probes.lettering import font_for
from editloupe.protocols.probes.makers import BANDS, Made, NotMade, make, on_look_alike, reach
from editloupe.protocols.probes.photographs import Cut, Photographs, Window, crop_of, read_photographs, scene_of
from editloupe.protocols.probes.pictures import PLACES
from editloupe.protocols.probes.scene import Scene
from editloupe.values import Json, cached_property, digest, json_line, parse_json

DRAWN: Final = "drawn"
"""The PATH that stands for drawn scenes alone."""
LEFT_OUT: Final = "left_out.jsonl"
DONE: Final = "done.jsonl"
"""What was made so far; a further call continues behind it."""
MASKS: Final = "masks"
VERSION: Final = 2
"""Of the plan and of what is drawn; changes with them."""
_ROWS: Final = 2
"""Version of what a row says of it. With another one, what was made before is made again, and looks the same."""
_DRAWN_SCENES: Final = 20
"""Drawn scenes of each area share, for want of photographs."""
_PROBES_OF_ONE: Final = 3
"""Probes of a drawn scene, if there are enough scenes."""
_TRIES: Final = 8
"""Scenes that are tried for one probe."""
_SCENES_HELD: Final = 24
_UNDER_WAY: Final = 4
"""Probes that wait for a worker, for each worker."""
_FILES: Final = ("source_file_name", "edited_file_name", "mask_file_name")

Where: TypeAlias = Cut | int
"""A target of a photograph, or the seed of a drawn scene."""


class ProbeSetOptions(Options):
    """What `editloupe build probes` offers."""

    count: Whole = Field(default=600, ge=1, le=100_000)
    """About how many probes, twins among them."""
    areas: str = "0.05,0.1,0.3,1,3,10"
    """Area shares of targets in percent: any of 0.05, 0.1, 0.3, 1, 3 and 10."""
    drawn: Whole | None = Field(default=None, ge=0, le=10_000)
    """Drawn scenes of each area share. Default: up to 20 where PATH is the word drawn, else none."""
    twins: Number = Field(default=0.5, ge=0, le=1)
    """Share of probes that come with two twins: one with a nuisance, and one with a trap."""
    longest: Whole = Field(default=1536, ge=256, le=8192)
    """px of a picture's longer side at most."""
    least: Whole = Field(default=8, ge=4, le=1024)
    """px of a target's shorter side at least."""
    seed: Whole = Field(default=0, ge=0)
    """Seed of all that is drawn."""
    font: Path | None = None
    """A TrueType or OpenType file for texts in images. Default: the font that Pillow brings."""

    @field_validator("areas")
    @classmethod
    def _known(cls, text: str) -> str:
        known = {f"{100 * area:g}": area for area in AREAS}
        found = [part.strip().removesuffix("%").strip() for part in text.split(",") if part.strip()]
        if not found or any(part not in known for part in found):
            raise ValueError(f"expected some of {', '.join(known)} (percent), with commas between them")
        return ",".join(sorted(set(found), key=lambda part: known[part]))

    @field_validator("font")
    @classmethod
    def _resolved(cls, path: Path | None) -> Path | None:
        return None if path is None else path.resolve()

    @property
    def shares(self) -> tuple[float, ...]:
        """The area shares, 0 to 1, from the least."""
        return tuple(area for area in AREAS if f"{100 * area:g}" in self.areas.split(","))


class ProbeSet:
    """The builder."""

    summary: ClassVar[str] = (
        "Make probes: edits whose truth is known because they were made that way, by how they fail and by how much of the "
        "image the target covers; to put judges on trial."
    )
    protocol: ClassVar[None] = None
    reads: ClassVar[str] = (
        "An ImageFolder of photographs with a mask or a box of each target and its target_name; or the word drawn, for "
        "drawn scenes alone."
    )
    weights: ClassVar[Sequence[str]] = ()
    Options: ClassVar[type[ProbeSetOptions]] = ProbeSetOptions

    def build(
        self,
        path: Path,
        options: ProbeSetOptions,
        *,
        models: Models,
        folder: Path,
        stopped: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> Built | None:
        """Build the set. Raises as `DirectBuilder.build`."""
        font_for(variants.note_text(), 20, path=options.font)
        alone = path.name == DRAWN and not path.exists()
        photos = None if alone else read_photographs(path, store=ImageStore(), stopped=stopped, tell=tell)
        if photos is None and not alone:
            return None
        number = len(list(planned(options, options.shares)))
        enough = min(_DRAWN_SCENES, -(-number // (_PROBES_OF_ONE * len(options.shares)))) if alone else 0
        source = _Source(photos, options, drawn=enough if options.drawn is None else options.drawn)
        plan = list(planned(options, source.shares()))
        out = _Folder(folder)
        made = _made(plan, source, options, out, stopped=stopped, tell=tell)
        return None if made is None else _written(plan, made, source, options, out)


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


def planned(options: ProbeSetOptions, shares: Sequence[float]) -> Iterable[Slot]:
    """Yield what is to be made. Failures and area shares take turns, so that any two of them meet equally often.

    shares: those of `AREAS` that there are scenes of.
    """
    twins = options.twins
    # Eleven failures and at most six shares have no common divisor: in turn, all pairs come up before one comes up again.
    for number in range(max(1, round(options.count / (1 + 2 * twins)))):
        turn = number // len(shares) + number % len(shares)
        yield Slot(
            number=number,
            failure=FAILURES[number % len(FAILURES)],
            area=shares[number % len(shares)],
            twins=floor((turn + 1) * twins) > floor(turn * twins),
        )


class _Source:
    """Scenes by area share: crops of photographs, and drawn ones."""

    def __init__(self, photos: Photographs | None, options: ProbeSetOptions, *, drawn: int) -> None:
        self.photos, self.options, self.drawn = photos, options, drawn
        self.cuts = () if photos is None else photos.cuts
        self.unfit: dict[tuple[str, float], Lost] = {}
        """(target, area share) → why there is no such crop."""
        self._windows: dict[tuple[str, float], Window] = {}
        self._beside: dict[str, list[Cut]] = {}
        """Photograph → its targets."""
        for cut in self.cuts:
            self._beside.setdefault(cut.photo.sha256, []).append(cut)
        self._lock = Lock()
        self._scenes: OrderedDict[tuple[str, float], Scene | Lost] = OrderedDict()
        self._making: dict[tuple[str, float], Lock] = {}
        self._stems = Counter(_stem(cut) for cut in {cut.photo.sha256: cut for cut in self.cuts}.values())
        self._identity = digest([cut.to_json() for cut in self.cuts])

    @property
    def read(self) -> int:
        """Targets of photographs, and drawn scenes."""
        drawn = self.drawn * len(self.options.shares)
        return drawn + (0 if self.photos is None else self.photos.read)

    def shares(self) -> list[float]:
        """Return the area shares that there are scenes of. Raises DataError where there is none."""
        if found := [area for area in self.options.shares if self.at(area)]:
            return found
        lost = [] if self.photos is None else [(id_, one) for id_, one in self.photos.lost]
        lost += [(f"{id_} at {100 * area:g} %", one) for (id_, area), one in self.unfit.items()]
        if not lost:
            raise DataError("there is no target, and no drawn scene. Give targets, or add drawn scenes with --drawn 20")
        whys = Counter(one.reason for _, one in lost).most_common()
        counts = ", ".join(f"{count:,} {why}" for why, count in whys)
        # One example of each reason: nothing is written that would say more.
        first = {one.reason: f"  {id_}: {one.detail}" for id_, one in reversed(lost)}
        shown = "\n".join(first[why] for why, _ in whys)
        raise DataError(
            f"no target can be used: {counts}. Mend the targets, or add drawn scenes with --drawn 20. For example:\n{shown}"
        )

    def at(self, area: float) -> list[Where]:
        """Return from what a scene of this share can be had."""
        fitting: list[Where] = [cut for cut in self.cuts if self._fits(cut, area)]
        return fitting + [self.options.seed * 100_003 + number for number in range(self.drawn)]

    def _fits(self, cut: Cut, area: float) -> bool:
        """Return whether there is a crop that gives the target this share."""
        key, options = (cut.id, area), self.options
        if key not in self._windows and key not in self.unfit:
            others = [one for one in self._beside[cut.photo.sha256] if one is not cut]
            found = crop_of(cut, others, area=area, longest=options.longest, least=options.least)
            if isinstance(found, Lost):
                self.unfit[key] = found
            else:
                self._windows[key] = found
        return key in self._windows

    def identity(self, area: float) -> Json:
        """Return what the scenes of a share follow from."""
        options = self.options
        return [self._identity, self.drawn, area, options.longest, options.least, options.seed]

    def picture(self, where: Where, scene: Scene) -> str:
        """Return the id of the picture that a scene is from: that of the photograph, whichever its crop and its target."""
        if not isinstance(where, Cut):
            return scene.id
        stem = _stem(where)
        return stem if self._stems[stem] == 1 else f"{stem}-{where.photo.sha256[:8]}"

    def scene(self, where: Where, area: float) -> Scene | Lost:
        """Return the scene of a target, or of a seed, at this share; or why there is none. Several threads may ask."""
        key = (_name(where), area)
        with self._lock:
            if key in self._scenes:
                self._scenes.move_to_end(key)
                return self._scenes[key]
            making = self._making.setdefault(key, Lock())
        with making:
            with self._lock:
                if key in self._scenes:
                    return self._scenes[key]
            found = self._found(where, area)
            with self._lock:
                self._scenes[key] = found
                while len(self._scenes) > _SCENES_HELD:
                    self._scenes.popitem(last=False)
        return found

    def _found(self, where: Where, area: float) -> Scene | Lost:
        options = self.options
        if isinstance(where, Cut):
            assert self.photos is not None
            rgb = self.photos.store.array(where.photo)
            others = [one for one in self._beside[where.photo.sha256] if one is not where]
            window = self._windows[where.id, area]
            return scene_of(where, rgb, others, window, area=area, longest=options.longest)
        width = min(1024, options.longest)
        try:
            scene = drawn_scene(where, area=area, size=(width, width * 3 // 4))
        except DataError as error:
            return Lost(stage="area", why="not_drawn", detail=f"{error} (--longest, --areas)")
        rows, columns = part_of(scene.target.mask, 0)
        short = min(rows.stop - rows.start, columns.stop - columns.start)
        if short < options.least:
            why = f"at {100 * area:g} % of {width}×{width * 3 // 4} px the target is {short} px; expected at least"
            why = f"{why} {options.least} px on its shorter side (--least); leave this share out of --areas"
            return Lost(stage="area", why="too_small_for_an_area_share", detail=why)
        return scene


def _name(where: Where) -> str:
    """Return the id of a target, or of the drawn scene of a seed before it is drawn."""
    return where.id if isinstance(where, Cut) else f"drawn-{where}"


def _stem(cut: Cut) -> str:
    return cut.photo.path.stem if cut.photo.path is not None else cut.photo.sha256[:12]


# One probe


@dataclass(frozen=True, kw_only=True)
class _Pair:
    """Two images as they are written, and what is known of them."""

    source: RGB
    edited: RGB
    edit: Made
    """What it was made of."""
    truth: Mapping[str, str]
    bands: Mapping[str, tuple[float, float]]
    failure: Failure
    question: Mapping[str, Json] = field(default_factory=dict)
    asks_for: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, Json] = field(default_factory=dict)
    nuisance: Nuisance | None = None
    trap: Trap | None = None
    stem: str = ""
    """Name of the edited image's file; "" for any."""
    jpeg: bytes | None = None
    """The edited image's file, where that is a JPEG."""


def _record(
    slot: Slot, source: _Source, candidates: Sequence[Where], options: ProbeSetOptions, out: _Folder
) -> dict[str, Json]:
    """Return the rows of a slot, its images written; or why there are none. Raises StorageError."""
    by = Random(digest([VERSION, options.seed, slot.number, slot.failure, slot.area]))
    reasons: list[Json] = []
    for where in by.sample(candidates, min(_TRIES, len(candidates))):
        scene = source.scene(where, slot.area)
        seed = by.randrange(2**32)
        if isinstance(scene, Lost):
            reasons.append({"scene": _name(where), "why": scene.why, "detail": scene.detail})
            continue
        try:
            made = make(slot.failure, scene, Random(seed))
        except NotMade as error:
            reasons.append({"scene": scene.id, "why": error.why, "detail": str(error)})
            continue
        writer = _Writer(slot, scene, source.picture(where, scene), made, seed, out)
        rows = [writer.row(slot.id, _plain(scene, made), None)]
        refused: list[Json] = []
        if slot.twins:
            for letter, twin in (("n", _nuisance(scene, made, by)), ("t", _trap(scene, made, by, options))):
                if isinstance(twin, _Pair):
                    rows.append(writer.row(f"{slot.id}{letter}", twin, slot.id))
                else:
                    refused += twin
        return {"rows": rows, "target": scene.id, "tried": reasons, "refused": refused}
    return {"rows": [], "target": None, "tried": reasons, "refused": []}


def _plain(scene: Scene, made: Made) -> _Pair:
    return _Pair(
        source=scene.image,
        edited=made.edited,
        edit=made,
        truth=made.truth,
        bands=made.bands,
        failure=made.failure,
        question=made.question,
    )


def _nuisance(scene: Scene, made: Made, by: Random) -> _Pair | list[Json]:
    """Return a pair with the first of the nuisances, in a drawn order, that it bears; else why it bears none."""
    reasons: list[Json] = []
    for name in by.sample(NUISANCES, len(NUISANCES)):
        try:
            edited, parameters = variants.nuisance(name, scene.image, made.edited, by, target=scene.target.mask)
        except variants.NotVaried as error:
            reasons.append({"variant": name, "why": error.why, "detail": str(error)})
            continue
        return _Pair(
            source=scene.image,
            edited=edited,
            edit=made,
            truth=made.truth,
            bands=made.bands,
            failure=made.failure,
            question=made.question,
            parameters=parameters,
            nuisance=name,
            jpeg=variants.jpeg_bytes(made.edited, parameters) if name == "jpeg" else None,
        )
    return reasons


def _trap(scene: Scene, made: Made, by: Random, options: ProbeSetOptions) -> _Pair | list[Json]:
    """Return a pair with the first of the traps, in a drawn order, that fits it; else why none does."""
    names = by.sample(TRAPS, len(TRAPS))
    if made.failure == "wrong_place":
        # The one that others cannot have.
        names.sort(key=lambda name: name != "look_alike")
    reasons: list[Json] = []
    for name in names:
        try:
            found, edit = _trapped(name, scene, made, by, options)
        except (variants.NotVaried, NotMade) as error:
            reasons.append({"variant": name, "why": error.why, "detail": str(error)})
            continue
        same = name in ("injected_text", "file_name", "look_alike")
        return _Pair(
            source=found.source,
            edited=found.edited,
            edit=edit,
            truth=found.truth,
            bands=edit.bands if same else BANDS[found.failure] if name == "equal_pair" else {},
            failure=found.failure,
            question=edit.question if same else {},
            asks_for=found.asks_for,
            parameters=found.parameters,
            trap=name,
            stem=found.edited_stem,
        )
    return reasons


def _trapped(name: Trap, scene: Scene, made: Made, by: Random, options: ProbeSetOptions) -> tuple[variants.Trapped, Made]:
    """Return a trap's pair, and the edit that it is of. Raises NotVaried and NotMade."""
    if name == "injected_text":
        return variants.injected_text(scene, made, by, font=options.font), made
    if name == "unrelated_pair":
        place = by.choice(sorted(PLACES))
        other = np.rint(PLACES[place](scene.image.shape[:2], by)).astype(np.uint8)
        return variants.unrelated_pair(scene, made, by, other=other, other_id=place), made
    if name == "look_alike":
        if made.failure != "wrong_place":
            raise variants.NotVaried("not_certain", f"{made.failure} edits no look-alike in the target's place")
        alike = on_look_alike(scene, by)
        return variants.look_alike(scene, alike, by), alike
    traps: Mapping[str, Callable[[Scene, Made, Random], variants.Trapped]] = {
        "file_name": variants.file_name,
        "swapped": variants.swapped,
        "equal_pair": variants.equal_pair,
    }
    return traps[name](scene, made, by), made


@dataclass(frozen=True)
class _Writer:
    """Writes the images of a scene's pairs, and returns their rows."""

    slot: Slot
    scene: Scene
    picture: str
    made: Made
    seed: int
    out: _Folder

    @cached_property
    def source(self) -> tuple[str, str]:
        """Name and SHA-256 of the scene's own image."""
        return self.out.place_once(self.scene)

    @cached_property
    def _encoded(self) -> dict[int, tuple[RGB, bytes]]:
        """Images that were encoded, by what they are: twins have the same as often as not."""
        return {}

    def _png(self, rgb: RGB) -> bytes:
        known = self._encoded.get(id(rgb))
        if known is None:
            known = self._encoded[id(rgb)] = rgb, encode_png(rgb)
        return known[1]

    @cached_property
    def mask(self) -> tuple[str, str]:
        """Name and SHA-256 of the mask: white where the instruction lets the image change."""
        return self.out.place(_mask_png(self.made.allowed), MASKS, "png")

    def row(self, id_: str, pair: _Pair, twin: str | None) -> dict[str, Json]:
        """Return a line of metadata.jsonl, with its digest."""
        # What lies outside a target's box is judged as one more change.
        rows, columns = part_of(reach(self.scene, self.made), 0)
        box: list[Json] = [columns.start, rows.start, columns.stop, rows.stop]
        name = f"{IMAGES}/{id_}/{pair.stem}" if pair.stem else ""
        edited = (pair.jpeg, "jpg") if pair.jpeg is not None else (b"", "png")
        own, same = (rgb is self.scene.image for rgb in (pair.source, pair.edited))
        placed = (
            self.source if own else self.out.place(self._png(pair.source), IMAGES, "png"),
            self.source
            if same and not name
            else self.out.place(edited[0] or self._png(pair.edited), IMAGES, edited[1], name=name),
            self.mask,
        )
        parameters: dict[str, Json] = dict(pair.edit.parameters)
        if pair.nuisance or pair.trap:
            parameters["variant"] = dict(pair.parameters)
        probe = Probe(
            truth=pair.truth,
            bands=pair.bands,
            failure=pair.failure,
            area=self.slot.area,
            area_found=round(self.scene.area_found, 8),
            nuisance=pair.nuisance,
            trap=pair.trap,
            twin=twin,
            asks_for=pair.asks_for,
            scene=self.picture,
            maker=pair.edit.maker,
            seed=self.seed,
            parameters=parameters,
            digest="",
        )
        row: dict[str, Json] = {
            "id": id_,
            **{column: file for column, (file, _) in zip(_FILES, placed, strict=True)},
            "instruction": pair.edit.instruction,
            "edit_type": pair.edit.edit_type,
            "target_name": self.scene.target.name,
            "bboxes": [box],
            "bbox_format": "xyxy",
            **pair.question,
            COLUMN: probe.to_json(),
        }
        # As it is read back: what the digest is of.
        row = cast("dict[str, Json]", parse_json(json_line(row)))
        stated = probe_digest(row, {column: sha for column, (_, sha) in zip(_FILES, placed, strict=True)})
        return {**row, COLUMN: {**cast("dict[str, Json]", row[COLUMN]), "digest": stated}}


def _mask_png(mask: Mask) -> bytes:
    return cv2.imencode(".png", mask.astype(np.uint8) * 255, [cv2.IMWRITE_PNG_COMPRESSION, 1])[1].tobytes()


# The folder


class _Folder:
    """The folder of a set, and what was made of it before."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._lock = folder, Lock()
        self._placed: dict[str, tuple[str, str]] = {}
        self._shas: dict[str, str] = {}
        """File → SHA-256 of its bytes, as they were when they were written or first read."""
        self._done = self._read()

    def done(self, key: str) -> Mapping[str, Any] | None:
        """Return what was made before, if its files are as they were written; None where it has to be made."""
        found = self._done.get(key)
        return found if found and all(map(self._as_written, cast("Sequence[Mapping[str, Json]]", found["rows"]))) else None

    def _as_written(self, row: Mapping[str, Json]) -> bool:
        return not changed_since(row, {column: self._sha(str(row[column])) for column in _FILES})

    def _sha(self, file: str) -> str:
        """Return the SHA-256 of a file of the folder; "" where there is none. Raises StorageError."""
        if file not in self._shas:
            with files.writing(self.folder):
                try:
                    self._shas[file] = hashlib.sha256(files.read_bytes(self.folder / file)).hexdigest()
                except FileNotFoundError:
                    return ""
        return self._shas[file]

    def add(self, key: str, made: Mapping[str, Json]) -> Mapping[str, Any]:
        """Keep what was made. Raises StorageError."""
        with self._lock, files.writing(self.folder), files.append(self.folder / DONE, below=self.folder) as file:
            file.write(json_line({"key": key, **made}))
            self._done[key] = made
        return made

    def place(self, data: bytes, below: str, ending: str, *, name: str = "") -> tuple[str, str]:
        """Write an image once, and return its name in the folder and the SHA-256 of its bytes. Raises StorageError.

        name: without an ending; "" for one after its bytes.
        """
        sha = hashlib.sha256(data).hexdigest()
        file = f"{name or f'{below}/{sha[:24]}'}.{ending}"
        if self._sha(file) != sha:
            with files.writing(self.folder):
                files.write_whole(self.folder / file, data, below=self.folder)
            self._shas[file] = sha
        return file, sha

    def place_once(self, scene: Scene) -> tuple[str, str]:
        """Write a scene's image, and return as `place` does. Raises StorageError."""
        if (known := self._placed.get(scene.id)) is None:
            known = self._placed[scene.id] = self.place(encode_png(scene.image), IMAGES, "png")
        return known

    def write(self, rows: Sequence[Mapping[str, Json]], left_out: Iterable[Mapping[str, Json]]) -> None:
        """Write the rows and what was left out, and delete images that no row names. Raises StorageError."""
        named = {str(row[column]) for row in rows for column in _FILES}
        with files.writing(self.folder):
            files.write_whole(self.folder / METADATA, b"".join(map(json_line, rows)), below=self.folder)
            files.write_whole(self.folder / LEFT_OUT, b"".join(map(json_line, left_out)), below=self.folder)
            for below in (IMAGES, MASKS):
                for path in (self.folder / below).glob("**/*"):
                    if path.is_file() and str(path.relative_to(self.folder)) not in named:
                        files.unlink(path, below=self.folder)

    def _read(self) -> dict[str, Mapping[str, Any]]:
        """Return what was made before. A torn last line is cut off. Raises StorageError."""
        file = self.folder / DONE
        with files.writing(self.folder):
            try:
                data = files.read_bytes(file)
            except FileNotFoundError:
                return {}
            whole = data[: data.rfind(b"\n") + 1]
            if len(whole) < len(data):
                files.write_whole(file, whole, below=self.folder)
        found: dict[str, Mapping[str, Any]] = {}
        for line in whole.splitlines():
            try:
                row = parse_json(line)
            except (ValueError, json.JSONDecodeError):
                continue  # it is made again
            if isinstance(row, dict) and isinstance(row.get("key"), str) and isinstance(row.get("rows"), list):
                found[str(row["key"])] = row
        return found


def _made(
    plan: Sequence[Slot],
    source: _Source,
    options: ProbeSetOptions,
    out: _Folder,
    *,
    stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> dict[int, Mapping[str, Any]] | None:
    """Return what became of each slot, by its number; None where it was stopped before."""
    found: dict[int, Mapping[str, Any]] = {}
    at = {area: source.at(area) for area in {slot.area for slot in plan}}
    keys: dict[int, str] = {}
    font = None if options.font is None else hashlib.sha256(files.read_bytes(options.font)).hexdigest()
    for slot in plan:
        named: list[Json] = [VERSION, _ROWS, slot.number, slot.failure, slot.area, slot.twins, font]
        keys[slot.number] = digest([*named, source.identity(slot.area)])
        if (known := out.done(keys[slot.number])) is not None:
            found[slot.number] = known
    # Those of one share together, so that its scenes are at hand.
    left = sorted((slot for slot in plan if slot.number not in found), key=lambda slot: (slot.area, slot.number))
    workers = min(8, usable_cores())
    running: dict[Future[dict[str, Json]], int] = {}
    waiting = iter(left)
    with ThreadPoolExecutor(workers) as pool:
        while True:
            while len(running) < _UNDER_WAY * workers and not stopped() and (one := next(waiting, None)) is not None:
                running[pool.submit(_record, one, source, at[one.area], options, out)] = one.number
            if not running:
                break
            for ended in wait(running, return_when=FIRST_COMPLETED).done:
                number = running.pop(ended)
                found[number] = out.add(keys[number], ended.result())
            tell(f"Probe {len(found):,} of {len(plan):,}")
    return found if len(found) == len(plan) else None


def _written(
    plan: Sequence[Slot], made: Mapping[int, Mapping[str, Any]], source: _Source, options: ProbeSetOptions, out: _Folder
) -> Built:
    """Write the set, and return what it holds."""
    rows, again, seen = list[Mapping[str, Json]](), 0, set[tuple[Json, ...]]()
    missing = Counter[str]()
    left_out = [{"what": id_, **lost.to_json()} for id_, lost in (() if source.photos is None else source.photos.lost)]
    for (id_, area), lost in sorted(source.unfit.items()):
        left_out.append({"what": id_, "area": area, **lost.to_json()})
    for slot in plan:
        one = made[slot.number]
        told: dict[str, Json] = {"what": slot.id, "stage": "made", "failure": slot.failure, "area": slot.area}
        if not one["rows"]:
            last = one["tried"][-1]
            missing[last["why"]] += 1
            left_out.append({**told, **last})
        for row in one["rows"]:
            key = tuple(cast(Json, row[name]) for name in (*_FILES[:2], "instruction"))
            if key in seen:
                again += 1
                left_out.append({**told, "what": row["id"], "why": "again", "detail": "the same pair was made before"})
                continue
            seen.add(key)
            rows.append(row)
        left_out += [{**told, "stage": "varied", **dict(refused)} for refused in one["refused"]]
    kept = {str(row["id"]) for row in rows}
    rows = [row for row in rows if (cast("Mapping[str, Any]", row[COLUMN])["twin"] or row["id"]) in kept]
    out.write(rows, left_out)
    return _built(plan, rows, made, source, options, missing, again)


def _built(
    plan: Sequence[Slot],
    rows: Sequence[Mapping[str, Json]],
    made: Mapping[int, Mapping[str, Any]],
    source: _Source,
    options: ProbeSetOptions,
    missing: Counter[str],
    again: int,
) -> Built:
    probes = [Probe.from_json(row[COLUMN]) for row in rows]
    used = {_target(one["target"]) for one in made.values() if one["target"]}
    lost = [] if source.photos is None else [one for _, one in source.photos.lost]
    unfit = [cut for cut in source.cuts if all((cut.id, area) in source.unfit for area in options.shares)]
    drawn = source.drawn * len(options.shares)
    tried = {_target(reason["scene"]) for one in made.values() for reason in one["tried"]} - used
    idle = Counter(
        "none_made" if cut.id in tried else "not_needed" for cut in source.cuts if cut.id not in used and cut not in unfit
    )
    vain = sum(one.startswith("drawn-") for one in tried)
    idle += Counter(none_made=vain, not_needed=drawn - vain - sum(one.startswith("drawn-") for one in used))
    whys = Counter(next(source.unfit[cut.id, area].why for area in options.shares) for cut in unfit)
    stages = [
        Stage(name="read", passes="names its target, and says where it is", left_out=_by_why(lost, "read")),
        Stage(name="mask", passes="a mask that fits the target", left_out=_by_why(lost, "mask")),
        Stage(name="area", passes="gives at least one area share", left_out=dict(whys)),
        Stage(name="made", passes="at least one probe", left_out=dict(idle)),
    ]
    shares = options.shares
    head = ["Failure", *(f"{100 * area:g} %" for area in shares)]
    plain = Counter((one.failure, one.area) for one in probes if one.twin is None)
    table = [head, *([name, *(str(plain[name, area]) for area in shares)] for name in FAILURES)]
    twins = Counter(one.nuisance or one.trap for one in probes if one.twin is not None)
    varied = [["Twins", "Probes"], *([str(name), str(twins[name])] for name in (*NUISANCES, *TRAPS))]
    counts: dict[str, Json] = {
        "plain": sum(one.twin is None for one in probes),
        "by_failure": {name: sum(one.failure == name for one in probes) for name in FAILURES},
        "by_area": {f"{100 * area:g}": sum(one.area == area for one in probes) for area in shares},
        "twins": {str(name): count for name, count in sorted(twins.items(), key=str)},
        "scenes": len({one.scene for one in probes}),
        "not_made": dict(sorted(missing.items())),
        "again": again,
        "without_a_share": dict(sorted(Counter(one.why for one in source.unfit.values()).items())),
    }
    notes = list(() if source.photos is None else source.photos.notes)
    if missing:
        listed = ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in sorted(missing.items()))
        notes.append(
            f"Planned probes that no scene allows: {missing.total():,} ({listed}); more photographs or --drawn help."
        )
    unplanned = [f"{100 * area:g} %" for area in source.shares() if all(slot.area != area for slot in plan)]
    if unplanned:
        notes.append(f"No probe has {', '.join(unplanned)}: --count {options.count} is too few for every share.")
    for area in shares:
        if f"{100 * area:g} %" not in unplanned and not any(one.area == area for one in probes):
            notes.append(f"No probe has {100 * area:g} %: {LEFT_OUT} says why. --drawn 20 adds drawn scenes of each share.")
    return Built(
        read=source.read,
        written=len(rows),
        noun="probe",
        unit="target",
        stages=stages,
        counts=counts,
        tables=[table, varied],
        notes=notes,
    )


def _target(scene: object) -> str:
    """Return the id of the target that a scene is of; that of a drawn scene is its own."""
    return str(scene).rpartition("@")[0] or str(scene)


def _by_why(lost: Iterable[Lost], stage: str) -> dict[str, int]:
    return dict(sorted(Counter(one.reason for one in lost if one.stage == stage).items()))
