"""Stage 1: pairs of similar photographs, and what one shows and the other does not (3.3 and the supplement)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from editloupe import models
from editloupe.build.base import LeftOut
from editloupe.build.dice.options import DifferenceSetOptions
from editloupe.build.dice.photos import Photos
from editloupe.build.dice.rows import Split, SplitFolder, drawn, pair_record, split_of, told_of
from editloupe.build.dice.similar import features, similar_pairs
from editloupe.build.direct import Worked, WorkItem
from editloupe.build.engine import SetTold
from editloupe.build.made import need
from editloupe.data.coco import AnnotatedImage
from editloupe.data.images import RGB
from editloupe.data.tables import read_table
from editloupe.errors import DataError, PhraseError, ToolError
from editloupe.measures.base import Models
from editloupe.models.detect.base import Detector
from editloupe.models.detect.search import cleaned, search
from editloupe.protocols.dice.differences import Difference
from editloupe.values import Box, ImageRef, Json, digest


@dataclass(frozen=True)
class LargeObject:
    """An annotated object that is large enough."""

    category: int
    box: Box
    """In fractions of the image."""


@dataclass(kw_only=True)
class Unlike:
    """What differs between the objects of two images."""

    removed: list[LargeObject] = field(default_factory=list)
    added: list[LargeObject] = field(default_factory=list)
    changed: list[tuple[LargeObject, LargeObject]] = field(default_factory=list)
    """The same category at about the same place, in the source and in the edited image."""


def compare(
    source: Sequence[LargeObject], edited: Sequence[LargeObject], *, there: Sequence[frozenset[int]], iou: float
) -> Unlike:
    """Return what differs between two images.

    there: categories that the source and the edited image show, also as objects that are too small.
    iou: two objects of one category that overlap more than this are one that differs. Each is taken once, best first.
    """
    found = Unlike(
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


class Pairs:
    """Pairs of similar photographs. Raises ConfigError for a detector that cannot be had, DataError for the annotations."""

    noun, unit = "pair", "pair"

    def __init__(self, path: Path, options: DifferenceSetOptions, out: SplitFolder, models_: Models) -> None:
        self.options, self.out, self._models = options, out, models_
        self.photos = Photos.open(path, options.images, crop=options.crop)
        self.detector: Detector | None = None
        if models_.names.get("detect") is not None:
            self.detector = models_.get("detect")
            models.prepare(self.detector)
        self.left_out = self.photos.left_out()
        checked = "no detector was named" if self.detector is None else f"{self.detector.name} answers"
        self.stages = {
            "read": "both images can be read",
            "similar": f"a common category, fewer than {options.differing_below} differing ones",
            "split": "both images are of one split",
            "checked": checked,
            "different": "at least one difference",
        }

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem] | None:
        """Return each pair; None where it was stopped before they were found. Raises ConfigError without an encoder."""
        if self.options.pairs is not None:
            return self._given(self.options.pairs)
        advice = (
            "stage 1 finds similar photographs by DINO's features: {reason}. Name weights with --dino, or give the pairs "
            "with --pairs FILE (a table with the columns source and edited)"
        )
        found = features(self.photos, need(self._models, "dino", advice), self.out.folder, stopped, tell)
        if found is None:
            return None
        usable, vectors, bad = found
        self.left_out += [
            {"source": self.photos.images[place].name, "stage": "read", "why": fault.why, "detail": str(fault)}
            for place, fault in bad.items()
        ]
        return [self._item(*pair) for pair in self._own(usable, vectors)]

    def _own(self, usable: Sequence[int], vectors: Any) -> list[tuple[int, int, float]]:
        """Return the pairs of similar images, at most so many as are wanted, which is source and which is edited drawn."""
        images, options = [self.photos.images[place] for place in usable], self.options
        found = similar_pairs(
            vectors,
            [image.categories for image in images],
            [self._split(image) for image in images],
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
            pairs.append((usable[first], usable[second], round(cosine, 6)))
        return pairs

    def _given(self, file: Path) -> list[WorkItem]:
        """Return the pairs of a table, and its lines that name none. Raises DataError."""
        table, images = read_table(file), self.photos.images
        if missing := [name for name in ("source", "edited") if name not in table.columns]:
            raise DataError(
                f"{file}: expected the columns source and edited, file names or ids of images; lacks {', '.join(missing)}"
            )
        places = {image.id: place for place, image in enumerate(images)}
        places |= {image.name.rpartition("/")[2]: place for place, image in enumerate(images)}
        places |= {image.name: place for place, image in enumerate(images)}
        seen: set[tuple[int, int]] = set()
        items = []
        for one in table.lines:
            names = [str(one.values.get(name, "")) for name in ("source", "edited")]
            source, edited = (places.get(name) for name in names)
            known = one.fault is None and source is not None and edited is not None
            why = "" if known else "unknown_image"
            if known:
                why = "one_image_twice" if source == edited else "given_twice" if (source, edited) in seen else ""
            if why:
                where = one.fault or f"{file}, line {one.number}"
                items.append(WorkItem.refused({"source": names[0], "edited": names[1]}, why, where))
                continue
            assert source is not None and edited is not None
            seen.add((source, edited))
            items.append(self._item(source, edited, None))
        return items

    def _item(self, source: int, edited: int, similarity: float | None) -> WorkItem:
        """Return a pair by the places of its images."""
        images = [self.photos.images[place] for place in (source, edited)]
        known: list[Json] = []
        for image in images:
            objects: list[Json] = [[one.category, list(one.box), one.crowd] for one in image.annotations]
            known.append(
                [image.name, image.width, image.height, objects, *map(sorted, (image.absent, image.not_exhaustive))]
            )
        named: list[Json] = [[number, name] for number, name in sorted(self.photos.categories.items())]
        return WorkItem(
            about={"source": images[0].name, "edited": images[1].name},
            make=partial(self._record, images[0], images[1], similarity),
            key=digest(["pair", known, named, "" if self.detector is None else self.detector.version]),
        )

    def _split(self, image: AnnotatedImage) -> Split:
        return split_of(image.name, self.options)

    def _objects(self, image: AnnotatedImage) -> tuple[list[LargeObject], int]:
        """Return the objects that are large enough, and how many are not."""
        window, kept, small = self.photos.window(image), list[LargeObject](), 0
        for one in image.annotations:
            box = None if one.crowd else self.photos.box(image, one)
            if box is None:
                continue
            if min(box.width, box.height) < self.options.least_side:
                small += 1
                continue
            kept.append(LargeObject(one.category, Box(*box.to_unit(width=window.width, height=window.height))))
        return kept, small

    def _record(self, source: AnnotatedImage, edited: AnnotatedImage, similarity: float | None) -> dict[str, Json]:
        """Return the rows of a pair. Raises LeftOut."""
        images, options = (source, edited), self.options
        refs = [self.photos.ref(image) for image in images]
        there = [image.categories for image in images]
        differing = there[0] ^ there[1]
        split = self._split(source)
        if not there[0] & there[1]:
            raise LeftOut("no_common_category", at="similar")
        if len(differing) >= options.differing_below:
            raise LeftOut("too_many_differing", f"{len(differing)} categories", at="similar")
        if split != self._split(edited):
            raise LeftOut("across_the_split", "the source is of one split, the edited image of the other", at="split")
        (left, small_left), (right, small_right) = (self._objects(image) for image in images)
        found = compare(left, right, there=there, iou=options.iou)
        counts = Counter[str]({"small": small_left + small_right})
        named = self.photos.categories
        differences = [
            *(
                Difference(op="REMOVE", object=named[o.category], box=o.box)
                for o in self._absent(found.removed, edited, counts)
            ),
            *(Difference(op="ADD", object=named[o.category], box=o.box) for o in self._absent(found.added, source, counts)),
            *(Difference(op="EDIT", object=named[new.category], box=new.box) for _, new in found.changed),
        ]
        told: Json = dict(sorted(counts.items()))
        if not differences:
            raise LeftOut("no_difference", at="different", told={"counts": told})
        pictures: Sequence[ImageRef | RGB] = [self.photos.pixels(image) for image in images] if self.photos.crop else refs
        placed = self.out.place(pictures[0], split), self.out.place(pictures[1], split)
        windows = [self.photos.window(image) for image in images]
        sizes = [(int(window.width), int(window.height)) for window in windows]
        lineage: dict[str, Json] = {"stage": 1, "source": source.name, "edited": edited.name, "similarity": similarity}
        id_ = digest([source.name, edited.name])[:16]
        return pair_record(split, id_, placed, sizes, differences, lineage, options.reply, counts=told)

    def _absent(self, objects: Sequence[LargeObject], other: AnnotatedImage, counts: Counter[str]) -> list[LargeObject]:
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
            raise LeftOut("detector_failed", str(error), at="checked", failed="tool_failed") from error
        return "seen_by_detector" if found.detections else "absent_by_detector"

    def told(self, worked: Worked) -> SetTold:
        """Return the counts of objects, and what the absences rest on."""
        counts = Counter[str]()
        for one in worked.made:
            counts.update(one.get("counts", {}))
        faults = [one for one in self.left_out if one["stage"] == "read"]
        told = told_of(worked, self.photos, {}, faults)
        by_annotation = f"{counts['absent_by_annotation']:,} by the annotations"
        if self.detector is None:
            absences = (
                f"Absences were not checked by a detector: {counts['absence_not_checked']:,} differences rest on an object "
                f"that is not annotated in the other image, {by_annotation} say so. --detector names one."
            )
        else:
            absences = (
                f"Absences: {counts['absent_by_detector']:,} confirmed by {self.detector.name}, {by_annotation}; "
                f"{counts['seen_by_detector']:,} objects left out that the detector sees in the other image, "
                f"{counts['no_phrase']:,} whose name it cannot look for."
            )
        least = self.options.least_side
        small = f"Objects with a side under {least} px were left out: {counts['small']:,} (counted for each pair)."
        told.notes = [small, absences, *told.notes]
        told.counts |= {
            "images": len(self.photos.images),
            "objects": dict(sorted(counts.items())),
            "iou": self.options.iou,
            "detector": None if self.detector is None else self.detector.version,
        }
        return told
