"""Stage 1: pairs of similar photographs, and what one shows and the other does not (3.3 and the supplement)."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix

from editloupe import files, models
from editloupe.data.coco import AnnotatedImage
from editloupe.data.images import RGB
from editloupe.data.tables import read_table
from editloupe.errors import ConfigError, DataError, ModelAbsent, PhraseError, ToolError
from editloupe.measures.base import Models
from editloupe.models.detect.base import Detector
from editloupe.models.detect.search import cleaned, search
from editloupe.models.features.base import Features
from editloupe.build.base import Built
from editloupe.protocols.dice.dataset_annotations import Photos, told_faults
from editloupe.protocols.dice.dataset_options import DifferenceSetOptions
from editloupe.protocols.dice.dataset_rows import (
    LeftOut,
    SetFolder,
    Split,
    columns,
    detection_dialogue,
    drawn,
    metadata_row,
    ops_of,
    split_of,
    stage_of,
)
from editloupe.protocols.dice.differences import OPS, Difference
from editloupe.values import Box, ImageRef, Json, digest

Floats = NDArray[np.float32]
FEATURES: Final = "features"
"""Folder of the encoder's vectors, which a further call takes from there."""
_CHUNK: Final = 256
"""Images in a file of vectors."""
_BATCH: Final = 32
_ROWS: Final = 512
_COLUMNS: Final = 4096
"""Images that are compared at once."""


@dataclass(frozen=True)
class Object:
    """An annotated object that is large enough."""

    category: int
    box: Box
    """In fractions of the image."""


@dataclass(frozen=True)
class Pair:
    """Two photographs, by their places in the file."""

    source: int
    edited: int
    similarity: float | None = None
    """Cosine of their features; None where the pair was given."""


@dataclass(kw_only=True)
class Compared:
    """What differs between the objects of two images."""

    removed: list[Object] = field(default_factory=list)
    added: list[Object] = field(default_factory=list)
    changed: list[tuple[Object, Object]] = field(default_factory=list)
    """The same category at about the same place, in the source and in the edited image."""


def compare(source: Sequence[Object], edited: Sequence[Object], *, there: Sequence[frozenset[int]], iou: float) -> Compared:
    """Return what differs between two images.

    there: categories that the source and the edited image show, also as objects that are too small.
    iou: two objects of one category that overlap more than this are one that differs. Each is taken once, best first.
    """
    found = Compared(
        removed=[one for one in source if one.category not in there[1]],
        added=[one for one in edited if one.category not in there[0]],
    )
    overlaps = [
        (one.box.iou(other.box), i, j)
        for i, one in enumerate(source)
        for j, other in enumerate(edited)
        if one.category == other.category
    ]
    left: set[int] = set()
    right: set[int] = set()
    for value, i, j in sorted(overlaps, key=lambda o: (-o[0], o[1], o[2])):
        if value > iou and i not in left and j not in right:
            left.add(i)
            right.add(j)
            found.changed.append((source[i], edited[j]))
    return found


def similar_pairs(
    features: Floats,
    categories: Sequence[frozenset[int]],
    splits: Sequence[Split],
    *,
    above: float,
    differing_below: int,
    partners: int,
) -> list[tuple[int, int, float]]:
    """Return (i, j, cosine) with i < j: each image with its nearest `partners` of the same split, every pair once.

    features: n×D, of length 1.   categories: of each image.
    above: least cosine.   differing_below: categories that one of the two shows alone are fewer; at least one is common.
    Images are compared in blocks, so that memory does not grow with n².
    """
    count, sizes = len(features), np.array([len(one) for one in categories])
    known = {number: place for place, number in enumerate(sorted(set().union(*categories)))}
    places = [known[number] for one in categories for number in sorted(one)]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    shows = csr_matrix((np.ones(len(places), np.int32), places, starts), shape=(count, max(1, len(known))))
    test = np.array([split == "test" for split in splits])
    found: dict[tuple[int, int], float] = {}
    for top in range(0, count, _ROWS):
        rows = np.arange(top, min(top + _ROWS, count))
        best = np.full((len(rows), partners), -np.inf, np.float32)
        who = np.full((len(rows), partners), -1)
        for left in range(0, count, _COLUMNS):
            others = np.arange(left, min(left + _COLUMNS, count))
            cosine = features[rows] @ features[others].T
            fits = (cosine > above) & (test[rows][:, None] == test[others]) & (rows[:, None] != others)
            if not fits.any():
                continue
            common = (shows[rows] @ shows[others].T).toarray()
            differing = sizes[rows][:, None] + sizes[others] - 2 * common
            fits &= (common >= 1) & (differing < differing_below)
            values = np.concatenate([best, np.where(fits, cosine, -np.inf)], axis=1)
            names = np.concatenate([who, np.broadcast_to(others, fits.shape)], axis=1)
            for place in range(partners):
                # Of equals the first, whatever the blocks.
                top_one = values.argmax(axis=1)[:, None]
                best[:, place] = np.take_along_axis(values, top_one, axis=1)[:, 0]
                who[:, place] = np.take_along_axis(names, top_one, axis=1)[:, 0]
                np.put_along_axis(values, top_one, -np.inf, axis=1)
        for row, (those, close) in enumerate(zip(who, best, strict=True)):
            for other, value in zip(those, close, strict=True):
                if np.isfinite(value):
                    i, j = sorted((int(rows[row]), int(other)))
                    found[i, j] = float(value)
    return [(i, j, value) for (i, j), value in sorted(found.items())]


def build_pairs(
    path: Path,
    options: DifferenceSetOptions,
    out: SetFolder,
    *,
    models_: Models,
    stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> Built | None:
    """Build stage 1. Raises as `DirectBuilder.build`."""
    photos = Photos.open(path, options.images, crop=options.crop)
    detector = _detector(models_)
    making = _Making(photos=photos, options=options, detector=detector)
    left_out = photos.left_out()
    if options.pairs is not None:
        pairs, refused = _given_pairs(options.pairs, photos)
        left_out += refused
        unread = Counter[str](str(one["why"]) for one in refused)
    else:
        usable, vectors = _features(photos, out, models_, left_out, stopped, tell)
        if usable is None or vectors is None:
            return None
        pairs, unread = _own_pairs(making, usable, vectors), Counter[str]()
    taken, failures = list[Mapping[str, Any]](), Counter[tuple[str, str]]()
    for number, pair in enumerate(pairs, start=1):
        if stopped():
            return None
        tell(f"Pair {number:,} of {len(pairs):,}")
        key = making.key(pair)
        made = out.done(key)
        try:
            made = made or out.add(key, making.record(pair, out))
        except LeftOut as error:
            # Not kept: what is wrong may be mended.
            failures[_STAGE_OF.get(error.why, "read"), error.why] += 1
            left_out.append({**making.about(pair), "why": error.why, "detail": str(error)})
            continue
        if made.get("why"):
            failures[made["stage"], made["why"]] += 1
            left_out.append({**making.about(pair), "why": made["why"], "detail": made["detail"]})
        taken.append(made)
    written = [made for made in taken if not made.get("why")]
    out.write(written, left_out)
    unusable = Counter(fault.why for fault in photos.faults)
    unusable.update(str(one["why"]) for one in left_out if one.get("stage") == "read")
    return _built(making, len(pairs) + unread.total(), unread, taken, failures, unusable)


_STAGE_OF: Final = {
    "no_common_category": "similar",
    "too_many_differing": "similar",
    "across_the_split": "split",
    "detector_failed": "checked",
    "no_difference": "different",
}


@dataclass(frozen=True, kw_only=True)
class _Making:
    """How a pair becomes rows."""

    photos: Photos
    options: DifferenceSetOptions
    detector: Detector | None

    def split(self, image: AnnotatedImage) -> Split:
        return split_of(image.name, seed=self.options.seed, test_share=self.options.test_share)

    def about(self, pair: Pair) -> dict[str, Json]:
        names = [self.photos.images[place].name for place in (pair.source, pair.edited)]
        return {"source": names[0], "edited": names[1]}

    def key(self, pair: Pair) -> str:
        """Return what names a pair: the files, and all that is known of the objects in them."""
        known: list[Json] = []
        for place in (pair.source, pair.edited):
            image = self.photos.images[place]
            objects: list[Json] = [[one.category, list(one.box), one.crowd] for one in image.annotations]
            known.append(
                [image.name, image.width, image.height, objects, *map(sorted, (image.absent, image.not_exhaustive))]
            )
        named: list[Json] = [[number, name] for number, name in sorted(self.photos.categories.items())]
        return digest(["pair", known, named, "" if self.detector is None else self.detector.version])

    def objects(self, image: AnnotatedImage) -> tuple[list[Object], int]:
        """Return the objects that are large enough, and how many are not."""
        window, kept, small = self.photos.window(image), list[Object](), 0
        for one in image.annotations:
            box = None if one.crowd else self.photos.box(image, one)
            if box is None:
                continue
            if min(box.width, box.height) < self.options.least_side:
                small += 1
                continue
            kept.append(Object(one.category, Box(*box.to_unit(width=window.width, height=window.height))))
        return kept, small

    def record(self, pair: Pair, out: SetFolder) -> dict[str, Json]:
        """Return the rows of a pair, or why it has none. Raises LeftOut where the files or the detector fail."""
        images = [self.photos.images[place] for place in (pair.source, pair.edited)]
        source, edited = images
        refs = [self.photos.ref(image) for image in images]
        there = [image.categories for image in images]
        common, differing = there[0] & there[1], there[0] ^ there[1]
        split = self.split(source)
        if not common:
            return _none("no_common_category")
        if len(differing) >= self.options.differing_below:
            return _none("too_many_differing", f"{len(differing)} categories")
        if split != self.split(edited):
            return _none("across_the_split", "the source is of one split, the edited image of the other")
        (left, small_left), (right, small_right) = (self.objects(image) for image in images)
        found = compare(left, right, there=there, iou=self.options.iou)
        counts = Counter[str]({"small": small_left + small_right})
        removed = self._absent(found.removed, edited, counts)
        added = self._absent(found.added, source, counts)
        told: Json = dict(sorted(counts.items()))
        named = self.photos.categories
        differences = [
            *(Difference(op="REMOVE", object=named[one.category], box=one.box) for one in removed),
            *(Difference(op="ADD", object=named[one.category], box=one.box) for one in added),
            *(Difference(op="EDIT", object=named[new.category], box=new.box) for _, new in found.changed),
        ]
        if not differences:
            return {**_none("no_difference"), "counts": told}
        pictures: Sequence[ImageRef | RGB] = [self.photos.pixels(image) for image in images] if self.photos.crop else refs
        placed = out.place(pictures[0], split), out.place(pictures[1], split)
        windows = [self.photos.window(image) for image in images]
        sizes = [(int(window.width), int(window.height)) for window in windows]
        lineage: dict[str, Json] = {"stage": 1, "source": source.name, "edited": edited.name, "similarity": pair.similarity}
        id_ = digest([source.name, edited.name])[:16]
        return {
            "split": split,
            "rows": [metadata_row(id_, placed, columns(differences), lineage)],
            "dialogues": [detection_dialogue(placed, sizes, differences, lineage, self.options.reply)],
            "images": [f"{split}/{name}" for name in placed],
            "ops": {op: sum(one.op == op for one in differences) for op in OPS},
            "counts": told,
        }

    def _absent(self, objects: Sequence[Object], other: AnnotatedImage, counts: Counter[str]) -> list[Object]:
        """Return the objects whose category the other image does not show, as far as that can be told.

        Raises LeftOut if the detector fails.
        """
        kept = []
        verdicts: dict[int, str] = {}
        for one in objects:
            if one.category not in verdicts:
                verdicts[one.category] = self._verdict(one.category, other)
            verdict = verdicts[one.category]
            counts[verdict] += 1
            if verdict != "seen_by_detector" and verdict != "no_phrase":
                kept.append(one)
        return kept

    def _verdict(self, category: int, image: AnnotatedImage) -> str:
        if category in image.absent:
            return "absent_by_annotation"
        if self.detector is None:
            return "absence_not_checked"
        try:
            found = search(self.detector, self.photos.pixels(image), cleaned(self.photos.categories[category]))
        except PhraseError:
            return "no_phrase"
        except ToolError as error:
            raise LeftOut("detector_failed", str(error)) from error
        return "seen_by_detector" if found.detections else "absent_by_detector"


def _none(why: str, detail: str = "") -> dict[str, Json]:
    return {"why": why, "stage": _STAGE_OF[why], "detail": detail}


def _detector(models_: Models) -> Detector | None:
    """Return the detector that was named; None where none was. Raises ConfigError for one that cannot be had."""
    if models_.names.get("detect") is None:
        return None
    detector: Detector = models_.get("detect")
    models.prepare(detector)
    return detector


def _given_pairs(file: Path, photos: Photos) -> tuple[list[Pair], list[dict[str, Json]]]:
    """Return the pairs of a table, and its lines that name none. Raises DataError."""
    table = read_table(file)
    if missing := [name for name in ("source", "edited") if name not in table.columns]:
        raise DataError(
            f"{file}: expected the columns source and edited, file names or ids of images; lacks {', '.join(missing)}"
        )
    places = {image.id: place for place, image in enumerate(photos.images)}
    places |= {image.name.rpartition("/")[2]: place for place, image in enumerate(photos.images)}
    places |= {image.name: place for place, image in enumerate(photos.images)}
    pairs: dict[tuple[int, int], Pair] = {}
    refused: list[dict[str, Json]] = []
    for one in table.lines:
        names = [str(one.values.get(name, "")) for name in ("source", "edited")]
        found = [places.get(name) for name in names]
        where: dict[str, Json] = {"source": names[0], "edited": names[1], "detail": f"{file}, line {one.number}"}
        if one.fault or found[0] is None or found[1] is None:
            refused.append({**where, "why": "unknown_image", **({"detail": one.fault} if one.fault else {})})
        elif found[0] == found[1]:
            refused.append({**where, "why": "one_image_twice"})
        elif (found[0], found[1]) in pairs:
            refused.append({**where, "why": "given_twice"})
        else:
            pairs[found[0], found[1]] = Pair(found[0], found[1])
    return list(pairs.values()), refused


def _own_pairs(making: _Making, usable: Sequence[int], vectors: Floats) -> list[Pair]:
    """Return the pairs of similar images, at most so many as are wanted, which is source and which is edited drawn."""
    images, options = [making.photos.images[place] for place in usable], making.options
    found = similar_pairs(
        vectors,
        [image.categories for image in images],
        [making.split(image) for image in images],
        above=options.least_similarity,
        differing_below=options.differing_below,
        partners=options.partners,
    )

    def draw(pair: tuple[int, int, float]) -> tuple[float, bool]:
        by = drawn(options.seed, "pair", *sorted(images[place].name for place in pair[:2]))
        return by.random(), by.random() < 0.5

    if options.most_pairs is not None:
        found = sorted(sorted(found, key=lambda pair: draw(pair)[0])[: options.most_pairs])
    pairs = []
    for i, j, cosine in found:
        first, second = (i, j) if (images[i].name < images[j].name) == draw((i, j, cosine))[1] else (j, i)
        pairs.append(Pair(usable[first], usable[second], round(cosine, 6)))
    return pairs


def _features(
    photos: Photos,
    out: SetFolder,
    models_: Models,
    left_out: list[dict[str, Json]],
    stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> tuple[list[int] | None, Floats | None]:
    """Return the places of the images that can be read, and their vectors, of length 1. (None, None) where stopped.

    Raises ConfigError without an encoder, StorageError.
    """
    try:
        encoder: Features = models_.get("dino")
        models.prepare(encoder)
    except ModelAbsent as reason:
        raise ConfigError(
            f"stage 1 finds similar photographs by DINO's features: {reason}. Name weights with --dino, or give the pairs "
            "with --pairs FILE (a table with the columns source and edited)"
        ) from reason
    usable: list[int] = []
    vectors: list[Floats] = []
    for start in range(0, len(photos.images), _CHUNK):
        if stopped():
            return None, None
        tell(f"Looking at image {start + 1:,} of {len(photos.images):,}")
        places = []
        bad: dict[int, LeftOut] = {}
        for place in range(start, min(start + _CHUNK, len(photos.images))):
            try:
                photos.ref(photos.images[place])
                places.append(place)
            except LeftOut as fault:
                bad[place] = fault
        named: Json = [photos.ref(photos.images[place]).sha256 for place in places]
        file = out.folder / FEATURES / f"{digest([encoder.version, photos.crop, named])[:32]}.npy"
        kept = _kept_vectors(file, len(places))
        if kept is None:
            kept, damaged = _vectors(encoder, photos, places)
            places = [place for place in places if place not in damaged]
            bad |= damaged
            if not damaged:
                held = io.BytesIO()
                np.save(held, kept.astype(np.float16), allow_pickle=False)
                with files.writing(out.folder):
                    files.write_whole(file, held.getvalue(), below=out.folder)
        left_out += [
            {"source": photos.images[place].name, "stage": "read", "why": fault.why, "detail": str(fault)}
            for place, fault in sorted(bad.items())
        ]
        kept = kept.astype(np.float16).astype(np.float32)
        usable += places
        vectors.append(kept / np.maximum(np.linalg.norm(kept, axis=1, keepdims=True), 1e-12))
    whole = [one for one in vectors if len(one)]
    return usable, np.concatenate(whole) if whole else np.zeros((0, 1), np.float32)


def _vectors(encoder: Features, photos: Photos, places: Sequence[int]) -> tuple[Floats, dict[int, LeftOut]]:
    """Return the vectors of images, and those that cannot be decoded or encoded."""
    found: list[Floats] = []
    bad: dict[int, LeftOut] = {}
    for some in _in_batches(places):
        pictures = []
        for place in some:
            try:
                pictures.append(np.ascontiguousarray(photos.pixels(photos.images[place])))
            except LeftOut as error:
                bad[place] = error
        if pictures:
            found += encoder(pictures, [None] * len(pictures))
    return np.stack(found) if found else np.zeros((0, 1), np.float32), bad


def _in_batches(places: Sequence[int]) -> Iterator[Sequence[int]]:
    for start in range(0, len(places), _BATCH):
        yield places[start : start + _BATCH]


def _kept_vectors(file: Path, count: int) -> Floats | None:
    """Return the vectors that a call before has kept; None where there are none."""
    try:
        found = np.load(io.BytesIO(files.read_bytes(file)), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return np.asarray(found, np.float32) if found.ndim == 2 and len(found) == count else None


def _built(
    making: _Making,
    read: int,
    unread: Counter[str],
    made: Sequence[Mapping[str, Any]],
    lost: Counter[tuple[str, str]],
    unusable: Counter[str],
) -> Built:
    """Return the funnel.   unread: of given pairs.   unusable: images and annotations of the file."""
    options, detector = making.options, making.detector
    counts = Counter[str]()
    for one in made:
        counts.update(one.get("counts", {}))
    written = [one for one in made if not one.get("why")]

    stage = partial(stage_of, lost)
    checked = "no detector was named" if detector is None else f"{detector.name} answers"
    ops = ops_of(written)
    pairs = {split: sum(one["split"] == split for one in written) for split in ops}
    notes = [
        f"Objects with a side under {options.least_side} px were left out: {counts['small']:,} (counted for each pair).",
    ]
    by_annotation = f"{counts['absent_by_annotation']:,} by the annotations"
    if detector is None:
        notes.append(
            f"Absences were not checked by a detector: {counts['absence_not_checked']:,} differences rest on an object "
            f"that is not annotated in the other image, {by_annotation} say so. --detector names one."
        )
    else:
        notes.append(
            f"Absences: {counts['absent_by_detector']:,} confirmed by {detector.name}, {by_annotation}; "
            f"{counts['seen_by_detector']:,} objects left out that the detector sees in the other image, "
            f"{counts['no_phrase']:,} whose name it cannot look for."
        )
    notes += told_faults(unusable)
    return Built(
        read=read,
        written=len(written),
        noun="pair",
        unit="pair",
        stages=(
            stage("read", "both images can be read", unread),
            stage("similar", f"a common category, fewer than {options.differing_below} differing ones"),
            stage("split", "both images are of one split"),
            stage("checked", checked),
            stage("different", "at least one difference"),
        ),
        counts={
            "stage": 1,
            "images": len(making.photos.images),
            "unusable": dict(sorted(unusable.items())),
            "pairs": {**pairs},
            "differences": {split: dict[str, Json](those) for split, those in ops.items()},
            "objects": dict(sorted(counts.items())),
            "iou": options.iou,
            "detector": None if detector is None else detector.version,
            "seed": options.seed,
        },
        tables=[
            [
                ["Differences", *OPS, "Pairs"],
                *([split, *(f"{ops[split][op]:,}" for op in OPS), f"{pairs[split]:,}"] for split in ops),
            ]
        ],
        notes=notes,
    )
