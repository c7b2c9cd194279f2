"""Stage 2: photographs of which a few objects are removed, recolored or replaced (3.3 and the supplement)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

import cv2
import numpy as np

from editloupe.build import paint
from editloupe.build.base import LeftOut, leaving_out
from editloupe.build.dice.photos import PhotoSet
from editloupe.build.dice.rows import drawn
from editloupe.build.direct import WorkItem
from editloupe.data.coco import AnnotatedImage, CocoAnnotation, Mask
from editloupe.data.images import RGB
from editloupe.errors import ToolError
from editloupe.imaging.color_names import leading
from editloupe.models import prepare
from editloupe.models.inpaint import Inpainter
from editloupe.protocols.dice.differences import OPS, Difference, Op
from editloupe.values import Box, Json, digest

MOST_OBJECTS: Final = 4
MOST_OVERLAP: Final = 0.05
"""Of two masks, as a share of the smaller one. The paper does not say of what its 5 % are a share."""
COLOR_SHARE: Final = 0.3
"""Share of EDITs that change the color, where the inpainter can put in another object."""
GROW_PX: Final = 3
"""By which a part that is inpainted is larger than its object, so that none of its border stays."""
_QUALITY: Final = (50, 95)
"""Of JPEG; the paper says 15 % and 50 % "magnitude", which may be a probability or a quality."""


@dataclass(frozen=True)
class Chosen:
    """One object that differs, and how it is made to."""

    name: str
    mask: Mask
    """H×W."""
    op: Op
    target: str
    """Of an EDIT: what comes in its place; "" for another color."""


def choose(masks: Sequence[Mask], by: Random, *, least_area: float) -> list[int]:
    """Return the places of the masks that are taken, in the order of the draw.   least_area: as a share of the image."""
    large = [place for place, mask in enumerate(masks) if mask.mean() >= least_area]
    taken: list[int] = []
    for place in by.sample(large, len(large)):
        mask = masks[place]
        shares = [(mask & masks[other]).sum() / min(mask.sum(), masks[other].sum()) for other in taken]
        if len(taken) < MOST_OBJECTS and all(share <= MOST_OVERLAP for share in shares):
            taken.append(place)
    return taken


def edited_pair(rgb: RGB, chosen: Sequence[Chosen], by: Random, inpainter: Inpainter) -> tuple[RGB, RGB, list[str]]:
    """Return the pair, and how each object came to differ.

    The source lacks ADD objects; the edited image lacks REMOVE objects and has EDIT objects changed. What is inpainted
    spares the other chosen objects. Raises ToolError as the inpainter does.
    """
    everything = np.any([one.mask for one in chosen], axis=0) if chosen else np.zeros(rgb.shape[:2], np.bool_)
    kernel = cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (2 * GROW_PX + 1, 2 * GROW_PX + 1))

    def grown(mask: Mask) -> Mask:
        wider = np.asarray(cv2.dilate(mask.astype(np.uint8), kernel), np.bool_)
        return mask | (wider & ~everything)

    def without(op: Op) -> RGB:
        gone = [grown(one.mask) for one in chosen if one.op == op]
        return inpainter(rgb, np.any(gone, axis=0), seed=by.randrange(2**31)) if gone else rgb.copy()

    source, edited, how = without("ADD"), without("REMOVE"), list[str]()
    for one in chosen:
        if one.op != "EDIT":
            how.append(f"removed by {inpainter.name} from the {'source' if one.op == 'ADD' else 'edited image'}")
        elif one.target:
            edited = inpainter(edited, grown(one.mask), one.target, seed=by.randrange(2**31))
            how.append(f"replaced by {one.target!r} with {inpainter.name}")
        else:
            own = leading(paint.shares_of(edited, one.mask))
            color = by.choice([name for name in paint.PAINTS if paint.told_apart(name, own)])
            edited = paint.recolored(edited, one.mask, paint.PAINTS[color])
            how.append(f"colored {color}")
    return source, edited, how


class Inpainted(PhotoSet):
    """Inpainted photographs. Raises ConfigError for an inpainter that cannot be had, DataError for the annotations."""

    noun, unit = "pair", "image"

    def open(self) -> None:
        """Read what the path holds."""
        super().open()
        self.inpainter: Inpainter = self.models.get("inpaint", self.options.inpainter)
        prepare(self.inpainter)
        self.passes = {
            "read": "the image can be read",
            "objects": f"an object of at least {100 * self.options.least_area:g} % of the image",
            "inpainted": "the inpainter answers",
        }

    def items(self, stopped: Callable[[], bool], tell: Callable[[str], None]) -> list[WorkItem]:
        """Return each annotated image."""
        of = repr(self.categories), self.inpainter.version
        return [
            WorkItem(
                about={"source": image.name},
                make=partial(self._record, image),
                key=digest(["inpainted", repr(image), *of]),
            )
            for image in self.images
        ]

    def _record(self, image: AnnotatedImage) -> dict[str, Json]:
        """Return the row of an image. Raises LeftOut."""
        options = self.options
        rgb, by = self.pixels(image), drawn(options.seed, "inpainted", image.name)
        objects, faults = self._objects(image)
        taken = choose([mask for _, mask in objects], by, least_area=options.least_area)
        if not taken:
            detail = f"{len(objects):,} objects, none of at least {100 * options.least_area:g} % of the image"
            raise LeftOut("no_large_object", detail, at="objects", told={"faults": faults})
        chosen = [] if by.random() < options.unchanged else [self._drawn(*objects[place], by) for place in taken]
        with leaving_out("inpainter_failed", ToolError, at="inpainted", failed="tool_failed"):
            *pair, how = edited_pair(rgb, chosen, by, self.inpainter)
        qualities = [by.randint(*_QUALITY) if by.random() < options.jpeg else None for _ in pair]
        # The file itself, where nothing was done to it.
        shown = [self.ref(image) if np.array_equal(pixels, rgb) else pixels for pixels in pair]
        differences = [
            (Difference(op=one.op, object=one.name, box=_unit_box(one.mask)), said)
            for one, said in zip(chosen, how, strict=True)
        ]
        lineage: Json = {"stage": 2, "source": image.name, "seed": options.seed, "jpeg": qualities}
        compressed = sum(one is not None for one in qualities)
        counts: Json = {"drawn": len(chosen), "unchanged": int(not chosen), "compressed": compressed}
        pictures = list(zip(shown, qualities, strict=True))
        return self.pair(image.id, image.name, pictures, differences, lineage, counts=counts, faults=faults)

    def _objects(self, image: AnnotatedImage) -> tuple[list[tuple[CocoAnnotation, Mask]], list[Json]]:
        """Return the objects with their masks, and what is wrong with others."""
        found, faults = list[tuple[CocoAnnotation, Mask]](), list[Json]()
        for one in image.annotations:
            try:
                mask = self.mask(image, one)
                found += [(one, mask)] if mask.any() and not one.crowd else []
            except LeftOut as error:
                faults.append({"source": image.name, **error.kept("annotations").to_json()})
        return found, faults

    def _drawn(self, annotation: CocoAnnotation, mask: Mask, by: Random) -> Chosen:
        """Return what is done to an object. The draws are the same whatever the inpainter can do."""
        op, color, names = by.choice(OPS), by.random() < COLOR_SHARE, self.categories
        others = [name for number, name in sorted(names.items()) if number != annotation.category]
        target = by.choice(others) if others else ""
        replaces = self.inpainter.takes_words and not color
        return Chosen(names[annotation.category], mask, op, target if replaces else "")


def _unit_box(mask: Mask) -> Box:
    """Return the smallest box around the True pixels, in fractions of the image."""
    x, y, w, h = cv2.boundingRect(mask.view(np.uint8))
    return Box(*Box(x, y, x + w, y + h).to_unit(width=mask.shape[1], height=mask.shape[0]))
