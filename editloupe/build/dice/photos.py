"""Annotated photographs as the builder sees them: opened, cut to a square where that is wanted, their objects in px."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from editloupe.build.base import LeftOut
from editloupe.data.coco import AnnotatedImage, Annotation, Fault, Mask, mask_of, read_coco
from editloupe.data.folders import Folder, RowError, open_folder
from editloupe.data.images import RGB, ImageStore
from editloupe.errors import DataError, ImageError
from editloupe.values import Box, ImageRef, Json


@dataclass(frozen=True, kw_only=True)
class Photos:
    """A file of annotations with its folder of images."""

    folder: Folder
    store: ImageStore
    images: tuple[AnnotatedImage, ...]
    """In the order of the file."""
    categories: Mapping[int, str]
    """Id → name."""
    faults: tuple[Fault, ...]
    """What of the file cannot be used."""
    crop: bool
    """Whether each image is cut to its middle square."""

    @classmethod
    def open(cls, file: Path, folder: Path | None, *, crop: bool) -> Photos:
        """Read the annotations.   folder: of the images; None for the file's own. Raises DataError."""
        found, store = read_coco(file), ImageStore()
        root = open_folder(folder or file.parent, store, what="the folder of the annotated images (--images)")
        if not found.images:
            first = found.faults[0]
            raise DataError(f"{file}: none of its images can be used; for example {first.what}: {first.detail}")
        return cls(
            folder=root,
            store=store,
            images=found.images,
            categories=found.categories,
            faults=found.faults,
            crop=crop,
        )

    def name(self, image: AnnotatedImage) -> str:
        """Return a file's name in the folder. LVIS names "val2017/1.jpg"; the folder may be val2017 itself."""
        short, root = image.name.rpartition("/")[2], self.folder.root
        try:
            return short if not (root / image.name).exists() and (root / short).exists() else image.name
        except OSError:  # no file can have this name; `ref` says so
            return image.name

    def ref(self, image: AnnotatedImage) -> ImageRef:
        """Return an image's file, identified. Raises LeftOut."""
        try:
            ref = self.folder.image(self.name(image))
        except RowError as error:
            raise LeftOut(error.kind, str(error), failed="input_error") from error
        if (ref.width, ref.height) != (image.width, image.height):
            sizes = f"{image.width}×{image.height} px in the annotations, {ref.width}×{ref.height} px in the file"
            raise LeftOut("size_differs", f"{image.name}: {sizes}; the boxes would be wrong", failed="input_error")
        return ref

    def pixels(self, image: AnnotatedImage) -> RGB:
        """Return an image's pixels, cut where that is wanted. Raises LeftOut."""
        try:
            rgb = self.store.array(self.ref(image))
        except ImageError as error:
            raise LeftOut("unreadable_image", str(error), failed="input_error") from error
        x0, y0, x1, y1 = self.window(image).ints()
        return rgb[y0:y1, x0:x1]

    def window(self, image: AnnotatedImage) -> Box:
        """Return the part of an image that is used, in px of the file."""
        width, height = image.width, image.height
        if not self.crop:
            return Box.whole(width=width, height=height)
        side = min(width, height)
        left, top = (width - side) // 2, (height - side) // 2
        return Box(left, top, left + side, top + side)

    def box(self, image: AnnotatedImage, annotation: Annotation) -> Box | None:
        """Return an object's box in px of the part that is used; None where it lies outside."""
        window = self.window(image)
        common = annotation.box.intersection(window)
        return None if common is None else common.shifted(-window.x0, -window.y0)

    def mask(self, image: AnnotatedImage, annotation: Annotation) -> Mask:
        """Return an object's pixels in the part that is used: its segmentation, else its box. Raises LeftOut."""
        try:
            whole = mask_of(annotation, width=image.width, height=image.height)
        except ValueError as error:
            raise LeftOut("segmentation", f"annotation {annotation.id}: {error}") from error
        if whole is None:
            whole = np.zeros((image.height, image.width), np.bool_)
            x0, y0, x1, y1 = annotation.box.ints()
            whole[y0:y1, x0:x1] = True
        x0, y0, x1, y1 = self.window(image).ints()
        return whole[y0:y1, x0:x1]

    def left_out(self) -> list[dict[str, Json]]:
        """Return what of the file cannot be used, for left_out.jsonl."""
        return [{"what": one.what, "stage": "annotations", "why": one.why, "detail": one.detail} for one in self.faults]
