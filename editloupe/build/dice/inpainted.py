"""Stage 2: photographs of which a few objects are removed, recoloured or replaced (3.3 and the supplement)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Final

import numpy as np

from editloupe import models
from editloupe.build.base import LeftOut
from editloupe.build.dice.options import DifferenceSetOptions
from editloupe.build.dice.painting import Chosen, choose, edited_pair
from editloupe.build.dice.photos import Photos
from editloupe.build.dice.rows import SPLITS, SplitFolder, drawn, pair_record, split_of, told_of
from editloupe.build.direct import Worked, WorkItem
from editloupe.build.engine import SetTold
from editloupe.data.coco import AnnotatedImage, Annotation, Mask
from editloupe.errors import ConfigError, ToolError
from editloupe.measures.base import Models
from editloupe.models.inpaint.base import Inpainter
from editloupe.protocols.dice.differences import OPS, Difference
from editloupe.values import Box, Json, digest

_QUALITY: Final = (50, 95)
"""Of JPEG; the paper says 15 % and 50 % "magnitude", which may be a probability or a quality."""


class Inpainted:
    """Inpainted photographs. Raises ConfigError for an inpainter that cannot be had, DataError for the annotations."""

    noun, unit = "pair", "image"

    def __init__(self, path: Path, options: DifferenceSetOptions, out: SplitFolder, models_: Models) -> None:
        self.options, self.out = options, out
        self.remover: Inpainter = models_.get("inpaint", options.inpainter)
        self.replacer: Inpainter | None = None if options.replacer is None else models_.get("inpaint", options.replacer)
        if self.replacer is not None and not self.replacer.takes_words:
            raise ConfigError(
                f"--replacer {options.replacer}: {self.replacer.name} takes no words, so that it cannot put in another "
                "object; name one such as diffusers:MODEL, or leave --replacer out: then every EDIT is a change of colour"
            )
        self.photos = Photos.open(path, options.images, crop=options.crop)
        if self.replacer is not None and len(self.photos.categories) < 2:
            raise ConfigError("--replacer: the annotations have one category, and nothing else to put in its place")
        for one in filter(None, (self.remover, self.replacer)):
            models.prepare(one)
        self.left_out = self.photos.left_out()
        self.stages = {
            "read": "the image can be read",
            "objects": f"an object of at least {100 * options.least_area:g} % of the image",
            "inpainted": "the inpainter answers",
        }

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem]:
        """Return each annotated image."""
        return [
            WorkItem(about={"source": image.name}, make=partial(self._record, image), key=self._key(image))
            for image in self.photos.images
        ]

    def _key(self, image: AnnotatedImage) -> str:
        """Return what names an image: its file, all that is known of its objects, and who paints."""
        objects: list[Json] = [
            [one.id, one.category, list(one.box), one.crowd, one.segmentation] for one in image.annotations
        ]
        named: list[Json] = [[number, name] for number, name in sorted(self.photos.categories.items())]
        painters: list[Json] = [one.version for one in (self.remover, self.replacer) if one is not None]
        return digest(["inpainted", image.name, image.width, image.height, objects, named, painters])

    def _record(self, image: AnnotatedImage) -> dict[str, Json]:
        """Return the rows of an image. Raises LeftOut."""
        options, photos = self.options, self.photos
        rgb = np.ascontiguousarray(photos.pixels(image))
        by = drawn(options.seed, "inpainted", image.name)
        objects, masks, faults = self._objects(image)
        taken, large = choose(
            masks, by, most=options.most_objects, least_area=options.least_area, most_overlap=options.most_overlap
        )
        told: dict[str, Json] = {"counts": {"objects": len(masks), "large": large}, "faults": faults}
        if not taken:
            detail = f"{len(masks):,} objects, none of at least {100 * options.least_area:g} % of the image"
            raise LeftOut("no_large_object", detail, at="objects", told=told)
        unchanged = by.random() < options.unchanged
        chosen = [] if unchanged else [self._drawn(objects[place], masks[place], by) for place in taken]
        try:
            pair = edited_pair(rgb, chosen, by, remover=self.remover, replacer=self.replacer, grow=options.grow)
        except ToolError as error:
            raise LeftOut("inpainter_failed", str(error), at="inpainted", failed="tool_failed") from error
        height, width = rgb.shape[:2]
        differences = [
            Difference(
                op=one.op,
                object=photos.categories[one.category],
                box=Box(*one.box.to_unit(width=width, height=height)),
            )
            for one in chosen
        ]
        split = split_of(image.name, options)
        ref, names, qualities = photos.ref(image), list[str](), list[int | None]()
        for pixels in (pair.source, pair.edited):
            quality = by.randint(*_QUALITY) if by.random() < options.jpeg else None
            # The file itself, where nothing was done to it.
            own = not photos.crop and np.array_equal(pixels, rgb)
            names.append(self.out.place(ref if own else pixels, split, quality=quality))
            qualities.append(quality)
        lineage: dict[str, Json] = {
            "stage": 2,
            "source": image.name,
            "seed": options.seed,
            "inpainter": self.remover.version,
            "replacer": None if self.replacer is None else self.replacer.version,
            "jpeg": qualities,
        }
        kinds = Counter(text.partition(" ")[0] for one, text in zip(chosen, pair.how, strict=True) if one.op == "EDIT")
        return pair_record(
            split,
            image.id,
            (names[0], names[1]),
            [(width, height)] * 2,
            differences,
            lineage,
            options.reply,
            {id(one): said for one, said in zip(differences, pair.how, strict=True)},
            counts={"objects": len(masks), "large": large, "drawn": len(chosen)},
            faults=faults,
            edits=dict(sorted(kinds.items())),
            unchanged=unchanged,
            compressed=sum(quality is not None for quality in qualities),
        )

    def _objects(self, image: AnnotatedImage) -> tuple[list[Annotation], list[Mask], list[Json]]:
        """Return the objects with their masks, and what is wrong with others."""
        objects, masks, faults = list[Annotation](), list[Mask](), list[Json]()
        for one in image.annotations:
            if one.crowd:
                continue
            try:
                mask = self.photos.mask(image, one)
            except LeftOut as error:
                faults.append({"source": image.name, "stage": "annotations", "why": error.why, "detail": str(error)})
                continue
            if mask.any():
                objects.append(one)
                masks.append(mask)
        return objects, masks, faults

    def _drawn(self, annotation: Annotation, mask: Mask, by: Random) -> Chosen:
        """Return what is done to an object. The draws are the same whether or not there is a replacer."""
        op = by.choice(OPS)
        colour = by.random() < self.options.colour_share
        others = [name for number, name in sorted(self.photos.categories.items()) if number != annotation.category]
        target = by.choice(others) if others else ""
        colour = colour or self.replacer is None
        return Chosen(category=annotation.category, mask=mask, op=op, colour=colour, target="" if colour else target)

    def told(self, worked: Worked) -> SetTold:
        """Return the counts of objects and of edits by kind."""
        objects, edits = Counter[str](), Counter[str]()
        for one in worked.made:
            objects.update(one.get("counts", {}))
            edits.update(one.get("edits", {}))
        same: dict[str, Json] = {
            split: sum(one["unchanged"] for one in worked.written if one["split"] == split) for split in SPLITS
        }
        told = told_of(worked, self.photos, {"Of these unchanged": same})
        notes = [
            f"Objects: {objects['objects']:,} annotated, {objects['large']:,} of at least "
            f"{100 * self.options.least_area:g} % of the image, {objects['drawn']:,} drawn to differ."
        ]
        if self.replacer is None:
            notes.append(
                f"Every EDIT is a change of colour ({edits['coloured']:,}): nothing was named that puts in another object "
                "(--replacer)."
            )
        else:
            notes.append(
                f"EDIT: {edits['coloured']:,} changes of colour, {edits['replaced']:,} replacements by "
                f"{self.replacer.name}; what comes in is drawn from the annotations' categories."
            )
        told.notes = [*notes, *told.notes]
        told.counts |= {
            "unchanged": same,
            "edits": dict(sorted(edits.items())),
            "objects": dict(sorted(objects.items())),
            "compressed_images": sum(one["compressed"] for one in worked.written),
            "inpainter": self.remover.version,
            "replacer": None if self.replacer is None else self.replacer.version,
        }
        return told
