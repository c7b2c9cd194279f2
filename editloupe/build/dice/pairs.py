"""Stage 1: pairs of similar photographs, and what one shows and the other does not (3.3 and the supplement)."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from editloupe import files, models
from editloupe.build.base import LeftOut
from editloupe.build.dice.photos import Photos
from editloupe.build.dice.rows import Split, SplitFolder, drawn, pair_record, split_of
from editloupe.build.direct import WorkItem
from editloupe.build.made import need
from editloupe.data.coco import AnnotatedImage
from editloupe.data.images import RGB
from editloupe.errors import PhraseError, ToolError
from editloupe.measures.base import Models
from editloupe.models.detect.base import Detector
from editloupe.models.detect.search import cleaned, search
from editloupe.protocols.dice.differences import OPS, Difference
from editloupe.values import Box, Json, digest

Floats = NDArray[np.float32]
DIFFERING_BELOW: Final = 15
"""Fewer categories than this may be in one of two photographs alone."""
LEAST_SIDE: Final = 16
"""Objects with a side of fewer px are left out."""
_CHUNK, _BATCH, _ROWS = 256, 32, 128
_ADVICE: Final = "stage 1 finds similar photographs by DINO's features: {reason}. Name weights with --set dino=…"


def similar_pairs(
    vectors: Floats, categories: Sequence[frozenset[int]], splits: Sequence[Split], *, above: float
) -> list[tuple[int, int, float]]:
    """Return (i, j, cosine) with i < j: each image with its nearest one that fits, every pair once.

    vectors: n×D, of length 1.   above: least cosine. Both are of one split, with a common category and few others.
    """
    found: dict[tuple[int, int], float] = {}
    for top in range(0, len(vectors), _ROWS):
        for i, cosines in enumerate(vectors[top : top + _ROWS] @ vectors.T, start=top):
            near = np.nonzero(cosines > above)[0]
            for j in map(int, near[np.argsort(-cosines[near], kind="stable")]):
                few = len(categories[i] ^ categories[j]) < DIFFERING_BELOW
                if j != i and splits[i] == splits[j] and categories[i] & categories[j] and few:
                    found[min(i, j), max(i, j)] = float(cosines[j])
                    break
    return [(i, j, value) for (i, j), value in sorted(found.items())]


def edited_places(
    source: Sequence[tuple[int, Box]], edited: Sequence[tuple[int, Box]], *, iou: float
) -> list[tuple[int, Box]]:
    """Return the edited image's objects that overlap one of their category by more than this, each once, best first."""
    overlaps = [
        (-box.iou(other), i, j)
        for i, (category, box) in enumerate(source)
        for j, (same, other) in enumerate(edited)
        if category == same and box.iou(other) > iou
    ]
    left, right = set[int](), dict[int, None]()
    for _, i, j in sorted(overlaps):
        if i not in left and j not in right:
            left.add(i)
            right[j] = None
    return [edited[j] for j in right]


class Pairs:
    """Pairs of similar photographs. Raises ConfigError for a detector that cannot be had, DataError for the annotations."""

    noun = unit = "pair"
    tallied = OPS

    def __init__(self, path: Path, options: Any, out: SplitFolder, models_: Models) -> None:
        self.options, self.out, self._models = options, out, models_
        self.photos = Photos.open(path, options.images)
        self.detector: Detector | None = models_.get("detect") if models_.names.get("detect") is not None else None
        if self.detector is not None:
            models.prepare(self.detector)
        self.faults: list[dict[str, Json]] = []
        self.stages = {
            "read": "both images can be read",
            "checked": "no detector was named" if self.detector is None else f"{self.detector.name} answers",
            "different": "at least one difference",
        }

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem] | None:
        """Return each pair; None where it was stopped before they were found. Raises ConfigError without an encoder."""
        encoder, images = need(self._models, "dino", _ADVICE), self.photos.images
        usable, vectors = list[AnnotatedImage](), [np.zeros((0, 1), np.float32)]
        for start in range(0, len(images), _CHUNK):
            if stopped():
                return None
            tell(f"Looking at image {start + 1:,} of {len(images):,}")
            own, found = self._encoded(encoder, images[start : start + _CHUNK])
            usable += own
            vectors += [found] if own else []
        splits = [split_of(image.name, self.options) for image in usable]
        items, shown, above = [], [one.categories for one in usable], self.options.least_similarity
        for i, j, cosine in similar_pairs(np.concatenate(vectors[bool(usable) :]), shown, splits, above=above):
            pair = sorted((usable[i], usable[j]), key=lambda one: one.name)
            first = drawn(self.options.seed, "pair", *(one.name for one in pair)).randrange(2)
            items.append(self._item(pair[first], pair[1 - first], round(cosine, 6)))
        return items

    def _encoded(self, encoder: Any, images: Sequence[AnnotatedImage]) -> tuple[list[AnnotatedImage], Floats]:
        """Return the images that can be read, and their vectors of length 1. What was encoded is kept."""
        refs: list[Json] = []
        for image in images:
            try:
                refs.append([image.name, self.photos.ref(image).sha256])
            except LeftOut as error:
                refs.append([image.name, error.why])
        file = self.out.folder / "features" / f"{digest([encoder.version, refs])[:32]}.npz"
        if not file.is_file():
            found, held = dict[str, Floats](), io.BytesIO()
            for start in range(0, len(images), _BATCH):
                pictures = dict[str, RGB]()
                for image in images[start : start + _BATCH]:
                    with suppress(LeftOut):  # its reason is told below
                        pictures[image.name] = self.photos.pixels(image)
                if pictures:
                    found |= zip(pictures, encoder(list(pictures.values()), [None] * len(pictures)), strict=True)
            np.savez(held, names=np.array(list(found), str), vectors=np.array(list(found.values()), np.float32))
            with files.writing(self.out.folder):
                files.write_whole(file, held.getvalue(), below=self.out.folder)
        with np.load(file, allow_pickle=False) as kept:
            names, vectors = kept["names"].tolist(), kept["vectors"]
        for image in images:
            try:
                if image.name not in names:
                    self.photos.pixels(image)
            except LeftOut as error:
                self.faults.append({"source": image.name, "stage": "read", "why": error.why, "detail": str(error)})
        usable = [image for image in images if image.name in names]
        return usable, vectors / np.maximum(np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)

    def _item(self, source: AnnotatedImage, edited: AnnotatedImage, similarity: float) -> WorkItem:
        detector = "" if self.detector is None else self.detector.version
        known = [repr(source), repr(edited), repr(self.photos.categories), detector]
        return WorkItem(
            about={"source": source.name, "edited": edited.name},
            make=partial(self._record, source, edited, similarity),
            key=digest(["pair", *known]),
        )

    def _record(self, source: AnnotatedImage, edited: AnnotatedImage, similarity: float) -> dict[str, Json]:
        """Return the row of a pair. Raises LeftOut."""
        refs = self.photos.ref(source), self.photos.ref(edited)
        split, names, counts = split_of(source.name, self.options), self.photos.categories, Counter[str]()
        left, right = self._objects(source, counts), self._objects(edited, counts)
        gone, come = self._absent(left, edited, counts), self._absent(right, source, counts)
        changed = edited_places(left, right, iou=self.options.iou)
        differences = [
            (Difference(op=op, object=names[category], box=box), "")
            for op, objects in zip(OPS, (come, changed, gone), strict=True)
            for category, box in objects
        ]
        told: Json = dict(sorted(counts.items()))
        if not differences:
            raise LeftOut("no_difference", at="different", told={"counts": told})
        placed = self.out.place(refs[0], split), self.out.place(refs[1], split)
        lineage: Json = {"stage": 1, "source": source.name, "edited": edited.name, "similarity": similarity}
        id_, sizes = digest([source.name, edited.name])[:16], [(ref.width, ref.height) for ref in refs]
        return pair_record(split, id_, placed, sizes, differences, lineage, counts=told)

    def _objects(self, image: AnnotatedImage, counts: Counter[str]) -> list[tuple[int, Box]]:
        """Return the categories of the objects that are large enough, and their boxes in fractions of the image."""
        found = [one for one in image.annotations if not one.crowd]
        large = [one for one in found if min(one.box.width, one.box.height) >= LEAST_SIDE]
        counts["small"] += len(found) - len(large)
        return [(one.category, Box(*one.box.to_unit(width=image.width, height=image.height))) for one in large]

    def _absent(
        self, objects: Sequence[tuple[int, Box]], other: AnnotatedImage, counts: Counter[str]
    ) -> list[tuple[int, Box]]:
        """Return the objects whose category the other image does not show, as far as that can be told. Raises LeftOut."""
        alone = [one for one in objects if one[0] not in other.categories]
        verdicts = {category: self._verdict(category, other) for category in dict.fromkeys(one for one, _ in alone)}
        counts.update(verdicts[category] for category, _ in alone)
        return [one for one in alone if verdicts[one[0]] not in ("seen_by_detector", "no_phrase")]

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
            raise LeftOut("detector_failed", str(error), at="checked", failed="tool_failed") from error
        return "seen_by_detector" if found.detections else "absent_by_detector"

    def notes(self, counts: Counter[str]) -> list[str]:
        """Return what the absences rest on."""
        unchecked = counts["absence_not_checked"]
        if self.detector is None and unchecked:
            return [f"No detector checked that an object is absent: {unchecked:,} differences. --detector names one."]
        return []
