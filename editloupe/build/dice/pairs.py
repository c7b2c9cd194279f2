"""Stage 1: pairs of similar photographs, and what one shows and the other does not (3.3 and the supplement)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from editloupe.build.base import LeftOut, need
from editloupe.build.dice.photos import PhotoSet
from editloupe.build.dice.rows import Split, drawn
from editloupe.build.direct import WorkItem
from editloupe.data.coco import AnnotatedImage
from editloupe.data.images import RGB
from editloupe.errors import PhraseError, ToolError
from editloupe.models import prepare
from editloupe.models.detect.base import Detector
from editloupe.models.detect.search import cleaned, search
from editloupe.protocols.dice.differences import OPS, Difference
from editloupe.values import Box, Json, digest

Floats: TypeAlias = NDArray[np.float32]
Place: TypeAlias = tuple[int, Box]
"""A category, and a box in fractions of its image."""
SIMILAR: Final = 0.6
"""Cosine of two photographs' features that must be exceeded."""
SAME_PLACE: Final = 0.5
"""Two objects of a category that overlap more than this (intersection over union) are one EDIT."""
DIFFERING_BELOW: Final = 15
"""Fewer categories than this may be in one of two photographs alone."""
LEAST_SIDE: Final = 16
"""Objects with a side of fewer px are left out."""
_BATCH, _ROWS = 32, 128
_ADVICE: Final = "stage 1 finds similar photographs by DINO's features: {reason}. Name weights with --set dino=…"


def similar_pairs(
    vectors: Floats, categories: Sequence[frozenset[int]], splits: Sequence[Split]
) -> list[tuple[int, int, float]]:
    """Return (i, j, cosine) with i < j: each image with its nearest one that fits, every pair once.

    vectors: n×D, of length 1. Both are of one split, with a common category and few others.
    """
    found: dict[tuple[int, int], float] = {}
    for top in range(0, len(vectors), _ROWS):
        for i, cosines in enumerate(vectors[top : top + _ROWS] @ vectors.T, start=top):
            near = np.nonzero(cosines > SIMILAR)[0]
            for j in map(int, near[np.argsort(-cosines[near], kind="stable")]):
                few = len(categories[i] ^ categories[j]) < DIFFERING_BELOW
                if j != i and splits[i] == splits[j] and categories[i] & categories[j] and few:
                    found[min(i, j), max(i, j)] = float(cosines[j])
                    break
    return [(i, j, value) for (i, j), value in sorted(found.items())]


def edited_places(source: Sequence[Place], edited: Sequence[Place]) -> list[Place]:
    """Return the edited image's objects that lie where one of their category lies, each once, the best overlap first."""
    overlaps = [
        (-box.iou(other), i, j)
        for i, (category, box) in enumerate(source)
        for j, (same, other) in enumerate(edited)
        if category == same and box.iou(other) > SAME_PLACE
    ]
    left, right = set[int](), dict[int, None]()
    for _, i, j in sorted(overlaps):
        if i not in left and j not in right:
            left.add(i)
            right[j] = None
    return [edited[j] for j in right]


class Pairs(PhotoSet):
    """Pairs of similar photographs. Raises ConfigError for a detector that cannot be had, DataError for the annotations."""

    noun = unit = "pair"

    def open(self) -> None:
        """Read what the path holds."""
        super().open()
        self.detector: Detector | None = self.models.get("detect") if self.models.names.get("detect") is not None else None
        if self.detector is not None:
            prepare(self.detector)
        self.passes = {
            "read": "both images can be read",
            "checked": "no detector was named" if self.detector is None else f"{self.detector.name} answers",
            "different": "at least one difference",
        }

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem] | None:
        """Return each pair; None where it was stopped before they were found. Raises ConfigError without an encoder."""
        encoder, images = need(self.models, "dino", _ADVICE), self.images
        found = list[tuple[AnnotatedImage, Floats]]()
        for start in range(0, len(images), _BATCH):
            if stopped():
                return None
            tell(f"Looking at image {start + 1:,} of {len(images):,}")
            found += self._encoded(encoder, images[start : start + _BATCH])
        if not found:
            return []
        usable, vectors = [image for image, _ in found], np.stack([vector for _, vector in found])
        splits, shown = [self.split(one.name) for one in usable], [one.categories for one in usable]
        items, detector = [], "" if self.detector is None else self.detector.version
        for i, j, cosine in similar_pairs(vectors, shown, splits):
            pair = sorted((usable[i], usable[j]), key=lambda one: one.name)
            first = drawn(self.options.seed, "pair", *(one.name for one in pair)).randrange(2)
            source, edited = pair[first], pair[1 - first]
            items.append(
                WorkItem(
                    about={"source": source.name, "edited": edited.name},
                    make=partial(self._record, source, edited, round(cosine, 6)),
                    key=digest(["pair", repr(source), repr(edited), repr(self.categories), detector]),
                )
            )
        return items

    def _encoded(self, encoder: Any, images: Sequence[AnnotatedImage]) -> list[tuple[AnnotatedImage, Floats]]:
        """Return the images that can be read, with their vectors of length 1."""
        usable, pictures = list[AnnotatedImage](), list[RGB]()
        for image in images:
            try:
                pictures.append(self.pixels(image))
                usable.append(image)
            except LeftOut as error:
                self.faults.append({"source": image.name, **error.kept("read").to_json()})
        found = encoder(pictures, [None] * len(pictures)) if pictures else []
        return [(image, one / max(np.linalg.norm(one), 1e-12)) for image, one in zip(usable, found, strict=True)]

    def _record(self, source: AnnotatedImage, edited: AnnotatedImage, similarity: float) -> dict[str, Json]:
        """Return the row of a pair. Raises LeftOut."""
        pictures = [(self.ref(image), None) for image in (source, edited)]
        names, counts, left, right = self.categories, Counter[str](), _objects(source), _objects(edited)
        added, removed = self._absent(right, source, counts), self._absent(left, edited, counts)
        differences = [
            (Difference(op=op, object=names[category], box=box), "")
            for op, objects in zip(OPS, (added, edited_places(left, right), removed), strict=True)
            for category, box in objects
        ]
        told: Json = dict(sorted(counts.items()))
        if not differences:
            raise LeftOut("no_difference", at="different", told={"counts": told})
        lineage: Json = {"stage": 1, "source": source.name, "edited": edited.name, "similarity": similarity}
        id_ = digest([source.name, edited.name])[:16]
        return self.pair(id_, source.name, pictures, differences, lineage, counts=told)

    def _absent(self, objects: Sequence[Place], other: AnnotatedImage, counts: Counter[str]) -> list[Place]:
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
            found = search(self.detector, self.pixels(image), cleaned(self.categories[category]))
        except PhraseError:
            return "no_phrase"
        except ToolError as error:
            raise LeftOut("detector_failed", str(error), at="checked", failed="tool_failed") from error
        return "seen_by_detector" if found.detections else "absent_by_detector"


def _objects(image: AnnotatedImage) -> list[Place]:
    """Return the categories of the objects that are large enough, and their boxes in fractions of the image."""
    size = {"width": image.width, "height": image.height}
    large = [one for one in image.annotations if not one.crowd and min(one.box.width, one.box.height) >= LEAST_SIDE]
    return [(one.category, Box(*one.box.to_unit(**size))) for one in large]
