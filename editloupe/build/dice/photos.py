"""What begins with annotated photographs: they are identified, opened, and the pixels of their objects found."""

from __future__ import annotations

import numpy as np

from editloupe.build.base import LeftOut, leaving_out
from editloupe.build.dice.rows import SplitSet
from editloupe.data.coco import AnnotatedImage, CocoAnnotation, Mask, mask_of, read_coco
from editloupe.data.folders import RowError, open_folder
from editloupe.data.images import RGB
from editloupe.errors import DataError, ImageError
from editloupe.values import ImageRef


class PhotoSet(SplitSet):
    """A stage that begins with annotated photographs. Its constructor raises DataError for annotations without any."""

    def open(self) -> None:
        """Read what the path holds."""
        super().open()
        found, what = read_coco(self.path), "the folder of the annotated images (--set images=…)"
        self._folder = open_folder(self.options.images or self.path.parent, self.store, what=what)
        self.images, self.categories = found.images, found.categories
        """images: in the order of the file.   categories: id → name."""
        self.faults += [
            {"what": one.what, "stage": "annotations", "why": one.why, "detail": one.detail} for one in found.faults
        ]
        if not found.images:
            first = found.faults[0]
            raise DataError(f"{self.path}: none of its images can be used; for example {first.what}: {first.detail}")

    def ref(self, image: AnnotatedImage) -> ImageRef:
        """Return an image's file, identified. LVIS names "val2017/1.jpg"; the folder may be val2017 itself.

        Raises LeftOut.
        """
        try:
            ref = self._folder.image(image.name)
        except RowError as error:
            try:
                ref = self._folder.image(image.name.rpartition("/")[2])
            except RowError:
                raise LeftOut(error.kind, str(error), failed="input_error") from error
        if (ref.width, ref.height) != (image.width, image.height):
            sizes = f"{image.width}×{image.height} px in the annotations, {ref.width}×{ref.height} px in the file"
            raise LeftOut("size_differs", f"{image.name}: {sizes}; the boxes would be wrong", failed="input_error")
        return ref

    def pixels(self, image: AnnotatedImage) -> RGB:
        """Return an image's pixels. Raises LeftOut."""
        with leaving_out("unreadable_image", ImageError, failed="input_error"):
            return self.store.array(self.ref(image))

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
