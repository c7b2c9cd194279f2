"""Annotated photographs as the builder sees them: identified, opened, and the pixels of their objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from editloupe.build.base import LeftOut
from editloupe.data.coco import AnnotatedImage, CocoAnnotation, Mask, mask_of, read_coco
from editloupe.data.folders import Folder, RowError, open_folder
from editloupe.data.images import RGB, ImageStore
from editloupe.errors import DataError, ImageError
from editloupe.values import ImageRef, Json


@dataclass(frozen=True, kw_only=True)
class Photos:
    """A file of annotations with its folder of images."""

    folder: Folder
    store: ImageStore
    images: tuple[AnnotatedImage, ...]
    """In the order of the file."""
    categories: Mapping[int, str]
    """Id → name."""
    faults: list[dict[str, Json]]
    """What of the file cannot be used, a line of left_out.jsonl each."""

    @classmethod
    def open(cls, file: Path, folder: Path | None) -> Photos:
        """Read the annotations.   folder: of the images; None for the file's own. Raises DataError."""
        found, store = read_coco(file), ImageStore()
        root = open_folder(folder or file.parent, store, what="the folder of the annotated images (--set images=…)")
        left: list[dict[str, Json]] = [
            {"what": one.what, "stage": "annotations", "why": one.why, "detail": one.detail} for one in found.faults
        ]
        if not found.images:
            raise DataError(f"{file}: none of its images can be used; for example {left[0]['what']}: {left[0]['detail']}")
        return cls(folder=root, store=store, images=found.images, categories=found.categories, faults=left)

    def ref(self, image: AnnotatedImage) -> ImageRef:
        """Return an image's file, identified. LVIS names "val2017/1.jpg"; the folder may be val2017 itself.

        Raises LeftOut.
        """
        try:
            ref = self.folder.image(image.name)
        except RowError as error:
            try:
                ref = self.folder.image(image.name.rpartition("/")[2])
            except RowError:
                raise LeftOut(error.kind, str(error), failed="input_error") from error
        if (ref.width, ref.height) != (image.width, image.height):
            sizes = f"{image.width}×{image.height} px in the annotations, {ref.width}×{ref.height} px in the file"
            raise LeftOut("size_differs", f"{image.name}: {sizes}; the boxes would be wrong", failed="input_error")
        return ref

    def pixels(self, image: AnnotatedImage) -> RGB:
        """Return an image's pixels. Raises LeftOut."""
        try:
            return self.store.array(self.ref(image))
        except ImageError as error:
            raise LeftOut("unreadable_image", str(error), failed="input_error") from error

    def mask(self, image: AnnotatedImage, annotation: CocoAnnotation) -> Mask:
        """Return an object's pixels: its segmentation, else its box. Raises LeftOut."""
        try:
            mask = mask_of(annotation, width=image.width, height=image.height)
        except ValueError as error:
            raise LeftOut("segmentation", f"annotation {annotation.id}: {error}") from error
        if mask is None:
            mask = np.zeros((image.height, image.width), np.bool_)
            x0, y0, x1, y1 = annotation.box.ints()
            mask[y0:y1, x0:x1] = True
        return mask
