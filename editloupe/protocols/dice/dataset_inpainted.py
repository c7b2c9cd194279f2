"""Stage 2: photographs of which a few objects are removed, recoloured or replaced (3.3 and the supplement)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final

import cv2
import numpy as np

from editloupe import models
from editloupe.data.coco import AnnotatedImage, Annotation, Mask
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, ToolError
from editloupe.measures.base import Models
from editloupe.models.inpaint.base import Inpainter, within
from editloupe.build.base import Built
from editloupe.protocols.dice.dataset_annotations import Photos, told_faults
from editloupe.protocols.dice.dataset_options import DifferenceSetOptions
from editloupe.protocols.dice.dataset_rows import (
    LeftOut,
    SetFolder,
    columns,
    detection_dialogue,
    drawn,
    metadata_row,
    ops_of,
    split_of,
    stage_of,
)
from editloupe.protocols.dice.differences import OPS, Difference, Op
from editloupe.values import Box, Json, digest

COLOURS: Final[Mapping[str, tuple[float, float]]] = {
    "red": (68, 48),
    "orange": (38, 62),
    "yellow": (-6, 72),
    "green": (-52, 42),
    "turquoise": (-40, -8),
    "blue": (14, -62),
    "purple": (56, -46),
    "pink": (54, -6),
}
"""Name → a* and b* of CIELAB."""
_FARTHER: Final = 40.0
"""Least distance in a* and b* between an object's mean colour and its new one."""
_LIGHTEST: Final = 75.0
_DARKEST: Final = 30.0
"""L* between which a colour can be told; lighter and darker objects are brought there."""
_QUALITY: Final = (50, 95)
"""Of JPEG; the paper says 15 % and 50 % "magnitude", which may be a probability or a quality."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """One object that differs, and how it is made to."""

    category: int
    mask: Mask
    """H×W."""
    op: Op
    colour: bool = True
    """Of an EDIT: whether it is recoloured, else replaced."""
    target: str = ""
    """Of a replacement: what comes in its place."""

    @property
    def box(self) -> Box:
        """The box of its mask, in px."""
        return box_of(self.mask)


@dataclass(kw_only=True)
class Edited:
    """A pair of images, and what differs between them."""

    source: RGB
    edited: RGB
    how: list[str] = field(default_factory=list)
    """How each chosen object came to differ."""


def box_of(mask: Mask) -> Box:
    """Return the smallest box around the True pixels, in px. Raises ValueError where there is none."""
    ys, xs = np.nonzero(mask.any(axis=1))[0], np.nonzero(mask.any(axis=0))[0]
    if not len(ys):
        raise ValueError("the mask is empty")
    return Box(int(xs[0]), int(ys[0]), int(xs[-1]) + 1, int(ys[-1]) + 1)


def choose(
    masks: Sequence[Mask], by: Random, *, most: int, least_area: float, most_overlap: float
) -> tuple[list[int], int]:
    """Return the places of the masks that are taken, in the order of the draw, and how many are large enough.

    least_area: of a mask, as a share of the image.
    most_overlap: of two masks, as a share of the smaller one. The paper does not say of what its 5 % are a share.
    """
    large = [place for place, mask in enumerate(masks) if mask.mean() >= least_area]
    taken: list[int] = []
    for place in by.sample(large, len(large)):
        mask = masks[place]
        shares = ((mask & masks[other]).sum() / min(mask.sum(), masks[other].sum()) for other in taken)
        if len(taken) < most and all(share <= most_overlap for share in shares):
            taken.append(place)
    return taken, len(large)


def recoloured(rgb: RGB, mask: Mask, by: Random) -> tuple[RGB, str]:
    """Return an image with the masked object in another colour, and that colour's name. Texture and shade stay.

    The colour is drawn from `COLOURS`, far enough from the object's own. Its edge is soft towards the inside: no pixel
    outside the mask changes.
    """
    lab = np.asarray(cv2.cvtColor(rgb.astype(np.float32) / 255, cv2.COLOR_RGB2LAB), np.float32)
    mean = lab[mask].mean(axis=0)
    name = by.choice([n for n, (a, b) in COLOURS.items() if np.hypot(a - mean[1], b - mean[2]) >= _FARTHER])
    painted = lab.copy()
    # A white or black object has no colour that could be told: its lightness moves to where there is one.
    painted[..., 0] = np.clip(lab[..., 0] + np.clip(mean[0], _DARKEST, _LIGHTEST) - mean[0], 0, 100)
    for channel, value in zip((1, 2), COLOURS[name], strict=True):
        painted[..., channel] = value + (lab[..., channel] - mean[channel]) * 0.4
    edge = max(1.0, float(np.sqrt(mask.sum())) / 40)
    # From the middle of a pixel, so that the outermost ones change a little.
    depth = cv2.distanceTransform(np.pad(mask, 1).astype(np.uint8), cv2.DIST_L2, 3)[1:-1, 1:-1]
    alpha = np.clip(depth / (edge + 1), 0, 1)[..., None]
    shown = cv2.cvtColor(painted, cv2.COLOR_LAB2RGB)
    mixed = rgb.astype(np.float32) * (1 - alpha) + np.clip(shown, 0, 1) * 255 * alpha
    return within(rgb, np.rint(np.clip(mixed, 0, 255)).astype(np.uint8), mask), name


def edited_pair(
    rgb: RGB, chosen: Sequence[Chosen], by: Random, *, remover: Inpainter, replacer: Inpainter | None, grow: int
) -> Edited:
    """Return the pair: the source lacks ADD objects, the edited image lacks REMOVE objects and has EDIT objects changed.

    grow: px by which a part that is inpainted is larger than the object, so that none of its border stays; other chosen
    objects are spared. Raises ToolError as the inpainters do.
    """
    everything = np.zeros(rgb.shape[:2], np.bool_)
    for one in chosen:
        everything |= one.mask

    def grown(mask: Mask) -> Mask:
        side = 2 * grow + 1
        wider = cv2.dilate(mask.astype(np.uint8), cv2.getStructuringElement(cv2.MORPH_ELLIPSE, (side, side))).astype(bool)
        return mask | (wider & ~everything)

    def without(op: Op) -> RGB:
        gone = np.zeros(rgb.shape[:2], np.bool_)
        for one in chosen:
            if one.op == op:
                gone |= grown(one.mask)
        return remover(rgb, gone, seed=by.randrange(2**31)) if gone.any() else rgb.copy()

    made = Edited(source=without("ADD"), edited=without("REMOVE"))
    for one in chosen:
        if one.op != "EDIT":
            made.how.append(f"removed by {remover.name} from the {'source' if one.op == 'ADD' else 'edited image'}")
        elif one.colour or replacer is None:
            made.edited, colour = recoloured(made.edited, one.mask, by)
            made.how.append(f"coloured {colour}")
        else:
            made.edited = replacer(made.edited, grown(one.mask), one.target, seed=by.randrange(2**31))
            made.how.append(f"replaced by {one.target!r} with {replacer.name}")
    return made


def build_inpainted(
    path: Path,
    options: DifferenceSetOptions,
    out: SetFolder,
    *,
    models_: Models,
    stopped: Callable[[], bool],
    tell: Callable[[str], None],
) -> Built | None:
    """Build stage 2. Raises as `DirectBuilder.build`."""
    remover: Inpainter = models_.get("inpaint", options.inpainter)
    replacer: Inpainter | None = None if options.replacer is None else models_.get("inpaint", options.replacer)
    if replacer is not None and not replacer.takes_words:
        raise ConfigError(
            f"--replacer {options.replacer}: {replacer.name} takes no words, so that it cannot put in another object; name "
            "one such as diffusers:MODEL, or leave --replacer out: then every EDIT is a change of colour"
        )
    photos = Photos.open(path, options.images, crop=options.crop)
    if replacer is not None and len(photos.categories) < 2:
        raise ConfigError("--replacer: the annotations have one category, and nothing else to put in its place")
    for one in filter(None, (remover, replacer)):
        models.prepare(one)
    making = _Making(photos=photos, options=options, remover=remover, replacer=replacer)
    left_out, lost, made = photos.left_out(), Counter[tuple[str, str]](), list[Mapping[str, Any]]()
    for number, image in enumerate(photos.images, start=1):
        if stopped():
            return None
        tell(f"Image {number:,} of {len(photos.images):,}")
        key = making.key(image)
        found = out.done(key)
        try:
            found = found or out.add(key, making.record(image, out))
        except LeftOut as error:
            # Not kept: what is wrong may be mended.
            lost["inpainted" if error.why == "inpainter_failed" else "read", error.why] += 1
            left_out.append({"source": image.name, "why": error.why, "detail": str(error)})
            continue
        made.append(found)
        left_out += found.get("faults", ())
        if why := found.get("why"):
            lost["objects", why] += 1
            left_out.append({"source": image.name, "why": why, "detail": found["detail"]})
    written = [one for one in made if not one.get("why")]
    out.write(written, left_out)
    return _built(making, made, lost)


@dataclass(frozen=True, kw_only=True)
class _Making:
    """How an image becomes rows."""

    photos: Photos
    options: DifferenceSetOptions
    remover: Inpainter
    replacer: Inpainter | None

    def key(self, image: AnnotatedImage) -> str:
        """Return what names an image: its file, all that is known of its objects, and who paints."""
        objects: list[Json] = [
            [one.id, one.category, list(one.box), one.crowd, one.segmentation] for one in image.annotations
        ]
        named: list[Json] = [[number, name] for number, name in sorted(self.photos.categories.items())]
        painters: list[Json] = [one.version for one in (self.remover, self.replacer) if one is not None]
        return digest(["inpainted", image.name, image.width, image.height, objects, named, painters])

    def record(self, image: AnnotatedImage, out: SetFolder) -> dict[str, Json]:
        """Return the rows of an image, or why it has none. Raises LeftOut where its file or an inpainter fails."""
        options, photos = self.options, self.photos
        rgb = np.ascontiguousarray(photos.pixels(image))
        by = drawn(options.seed, "inpainted", image.name)
        objects, masks, faults = self._objects(image)
        taken, large = choose(
            masks, by, most=options.most_objects, least_area=options.least_area, most_overlap=options.most_overlap
        )
        counts: dict[str, Json] = {"objects": len(masks), "large": large}
        told: dict[str, Json] = {"counts": counts, "faults": faults}
        if not taken:
            share = f"{100 * options.least_area:g} % of the image"
            return {**told, "why": "no_large_object", "detail": f"{len(masks):,} objects, none of at least {share}"}
        unchanged = by.random() < options.unchanged
        chosen = [] if unchanged else [self._drawn(objects[place], masks[place], by) for place in taken]
        try:
            pair = edited_pair(rgb, chosen, by, remover=self.remover, replacer=self.replacer, grow=options.grow)
        except ToolError as error:
            raise LeftOut("inpainter_failed", str(error)) from error
        height, width = rgb.shape[:2]
        differences = [
            Difference(
                op=one.op,
                object=photos.categories[one.category],
                box=Box(*one.box.to_unit(width=width, height=height)),
            )
            for one in chosen
        ]
        split = split_of(image.name, seed=options.seed, test_share=options.test_share)
        ref, names, qualities = photos.ref(image), list[str](), list[int | None]()
        for pixels in (pair.source, pair.edited):
            quality = by.randint(*_QUALITY) if by.random() < options.jpeg else None
            # The file itself, where nothing was done to it.
            own = not photos.crop and np.array_equal(pixels, rgb)
            names.append(out.place(ref if own else pixels, split, quality=quality))
            qualities.append(quality)
        lineage: dict[str, Json] = {
            "stage": 2,
            "source": image.name,
            "seed": options.seed,
            "inpainter": self.remover.version,
            "replacer": None if self.replacer is None else self.replacer.version,
            "jpeg": qualities,
        }
        how = {id(one): said for one, said in zip(differences, pair.how, strict=True)}
        kinds = Counter(text.partition(" ")[0] for one, text in zip(chosen, pair.how, strict=True) if one.op == "EDIT")
        images = names[0], names[1]
        return {
            **told,
            "split": split,
            "rows": [metadata_row(image.id, images, columns(differences, how), lineage)],
            "dialogues": [detection_dialogue(images, [(width, height)] * 2, differences, lineage, options.reply)],
            "images": [f"{split}/{name}" for name in images],
            "counts": {**counts, "drawn": len(chosen)},
            "ops": {op: sum(one.op == op for one in chosen) for op in OPS},
            "edits": dict(sorted(kinds.items())),
            "unchanged": unchanged,
            "compressed": sum(quality is not None for quality in qualities),
        }

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


def _built(making: _Making, made: Sequence[Mapping[str, Any]], lost: Counter[tuple[str, str]]) -> Built:
    options, photos = making.options, making.photos
    written = [one for one in made if not one.get("why")]
    unusable = Counter(fault.why for fault in photos.faults)
    unusable.update(str(fault["why"]) for one in made for fault in one.get("faults", ()))
    objects, edits = Counter[str](), Counter[str]()
    for one in made:
        objects.update(one["counts"])
        edits.update(one.get("edits", {}))

    stage = partial(stage_of, lost)

    ops = ops_of(written)
    pairs = {split: sum(one["split"] == split for one in written) for split in ops}
    same = {split: sum(one["unchanged"] for one in written if one["split"] == split) for split in ops}
    notes = [
        f"Objects: {objects['objects']:,} annotated, {objects['large']:,} of at least {100 * options.least_area:g} % of "
        f"the image, {objects['drawn']:,} drawn to differ."
    ]
    if making.replacer is None:
        notes.append(
            f"Every EDIT is a change of colour ({edits['coloured']:,}): nothing was named that puts in another object "
            "(--replacer)."
        )
    else:
        notes.append(
            f"EDIT: {edits['coloured']:,} changes of colour, {edits['replaced']:,} replacements by {making.replacer.name}; "
            "what comes in is drawn from the annotations' categories."
        )
    notes += told_faults(unusable)
    return Built(
        read=len(photos.images),
        written=len(written),
        noun="pair",
        stages=(
            stage("read", "the image can be read"),
            stage("objects", f"an object of at least {100 * options.least_area:g} % of the image"),
            stage("inpainted", "the inpainter answers"),
        ),
        counts={
            "stage": 2,
            "unusable": dict(sorted(unusable.items())),
            "pairs": {**pairs},
            "unchanged": {**same},
            "differences": {split: dict[str, Json](those) for split, those in ops.items()},
            "edits": dict(sorted(edits.items())),
            "objects": dict(sorted(objects.items())),
            "compressed_images": sum(one["compressed"] for one in written),
            "inpainter": making.remover.version,
            "replacer": None if making.replacer is None else making.replacer.version,
            "seed": options.seed,
        },
        tables=[
            [
                ["Differences", *OPS, "Pairs", "Of these unchanged"],
                *([s, *(f"{ops[s][op]:,}" for op in OPS), f"{pairs[s]:,}", f"{same[s]:,}"] for s in ops),
            ]
        ],
        notes=notes,
    )
