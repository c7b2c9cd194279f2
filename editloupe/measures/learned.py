"""Measures by networks with weights: CLIP, DINO, CLIP of a text, LPIPS, an aesthetic head (UnicEdit, E), HPSv3 (EdiVal).

Without weights they say why they have no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import cv2
import numpy as np

from editloupe.answers import Number
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MeasureError
from editloupe.imaging.masked import inside, outside
from editloupe.imaging.warp import aligned
from editloupe.measures import base
from editloupe.measures.base import Measured
from editloupe.measures.pair import PairArgs, check_kept, compared, cosine, pictures, told
from editloupe.models.features.base import Features, Patches
from editloupe.models.lpips import SMALLEST_SIDE
from editloupe.models.preference import Preference
from editloupe.scores import Interval, Metric, Real


class FeatureArgs(PairArgs):
    """The arguments."""

    pool: Literal["pure", "any"] = "pure"
    """Patches that count with a mask.   pure: those wholly outside it.   any: those with any pixel outside it."""


class _Similarity(base.BaseMeasure):
    """The cosine of an encoder's vectors for two images, -1 to 1 (higher is better)."""

    Args = FeatureArgs
    needs: ClassVar[tuple[str, ...]]

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the cosine: of whole images, or outside the mask of the mean of the patches that count.

        Without a mask, and with one that holds nothing, the two whole images are compared and nothing is aligned.
        Raises MeasureError if no patch counts or a picture is missing, and ModelAbsent without weights.
        """
        source, edited, mask = pictures(args, images)
        encoder: Features = models.get(self.needs[0])
        official = args.mask == "official"
        patches: Patches | None = None
        plain = mask is None or (not official and not inside(mask).any())
        found = aligned(source, edited, mask, "none" if official or plain else args.align, dilate=args.dilate)
        if mask is not None and not plain:
            side = encoder.side_px
            kept = outside(mask, (side, side), args.dilate and not official)
            check_kept(kept)
            if found.accepted:
                edited = found.image
                seen = cv2.resize(found.valid.astype(np.float32), (side, side), interpolation=cv2.INTER_AREA)
                kept &= seen > 1 - 1e-4
            patches = _pooled(kept, encoder.grid, pure=args.pool == "pure" and not official)
        one, other = encoder([source, edited], [patches, patches])
        value = cosine(one, other)
        return told(Number(value=value), 1.0 if patches is None else float(patches.mean()), found, what="patches")


class CLIP(_Similarity):
    """CLIP similarity of the two images, or of what lies outside the mask."""

    name = "clip"
    needs = ("clip",)
    metric = Metric(id="clip", name="CLIP similarity", short="CLIP", domain=Interval(low=-1, high=1))


class DINO(_Similarity):
    """DINO similarity of the two images, or of what lies outside the mask."""

    name = "dino"
    needs = ("dino",)
    metric = Metric(id="dino", name="DINO similarity", short="DINO", domain=Interval(low=-1, high=1))


class CLIPText(base.BaseMeasure):
    """The cosine of CLIP's vectors for the edited image and a text, -1 to 1 (higher is better); CLIP-T in many papers."""

    name = "clip_text_similarity"
    needs = ("clip", "clip_text")
    metric = Metric(
        id="clip_text_similarity", name="CLIP similarity of image and text", short="CLIP-T", domain=Interval(low=-1, high=1)
    )

    class Args(base.Args):
        """The text."""

        text: str
        """What the edited image should show, for example "a red cup on a table"."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Number:
        """Return the cosine for the whole edited image; other pictures are not looked at.

        Raises MeasureError for an empty text and without an edited image, and ModelAbsent without weights.
        """
        if not args.text.strip():
            raise MeasureError("the text is empty, so that there is nothing to compare with", status="input_error")
        if "edited" not in images:
            found = ", ".join(images) or "none"
            raise MeasureError(f"expected a picture called edited, found {found}", status="input_error")
        encoder, reader = models.get("clip"), models.get("clip_text")
        (image,), (text,) = encoder([images["edited"]], [None]), reader([args.text])
        return Number(value=cosine(image, text))


class LPIPSMeasure(base.BaseMeasure):
    """Learned perceptual image patch similarity: a distance, 0 for equal images (lower is better).

    With a mask, what lies inside it is made equal in both images, and features count by the share of kept pixels there.
    """

    name = "lpips"
    Args = PairArgs
    needs = ("lpips",)
    metric = Metric(id="lpips", name="LPIPS", domain=Real(), better="lower")

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the distance. Raises MeasureError if it is not defined, and ModelAbsent without weights."""
        network = models.get("lpips")
        pair = compared(args, images)
        height, width = pair.source.shape[:2]
        if min(height, width) < SMALLEST_SIDE:
            raise MeasureError(f"{width}×{height} px is smaller than LPIPS needs ({SMALLEST_SIDE} px a side)")
        edited = pair.edited if pair.kept is None else np.where(pair.kept[..., None], pair.edited, pair.source)
        return pair.answered(Number(value=network(pair.source, edited, pair.kept)))


class Aesthetic(base.BaseMeasure):
    """The score that an aesthetic head gives to CLIP's vector of an image, of two to the edited one (higher is better)."""

    name = "aesthetic"
    needs = ("aesthetic", "clip")
    Args = base.Args
    metric = Metric(id="aesthetic", name="Aesthetics", domain=Real(), source="E")

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the score. Raises MeasureError where the head does not fit to CLIP, and ModelAbsent without weights."""
        rgb = images["edited"] if "edited" in images else base.only(images)
        head, encoder = models.get("aesthetic"), models.get("clip")
        try:
            score = head(encoder([rgb], [None])[0])
        except ConfigError as error:
            raise MeasureError(str(error), status="input_error") from error
        return Measured(answer=Number(value=score), reason=f"{head.name} over {encoder.name}")


class HumanPreference(base.BaseMeasure):
    """The mean score that a model of preference gives to one image (higher is better). Its σ stands in the reason."""

    name = "preference"
    needs = ("preference",)
    metric = Metric(id="preference", name="Human preference", short="HPS", domain=Real(), source="2.4")

    class Args(base.Args):
        """What the image is scored as."""

        prompt: str
        """What the image was asked for; "" for the image alone."""

    def __call__(self, args: Any, images: Mapping[str, RGB], models: Any) -> Measured:
        """Return the mean. Raises MeasureError unless there is one image that the model scores, and ModelAbsent."""
        rgb = base.only(images)
        model: Preference = models.get("preference")
        found = model(rgb, args.prompt)
        return Measured(answer=Number(value=found.mean), reason=f"σ {found.sigma:.4g}", data={"sigma": found.sigma})


def _pooled(kept: np.ndarray[Any, np.dtype[np.bool_]], grid: int, *, pure: bool) -> Patches:
    """Return grid×grid: the patches that count. Raises MeasureError if none does."""
    patch = kept.shape[0] // grid
    cells = kept.reshape(grid, patch, grid, patch)
    found: Patches = np.asarray(cells.all((1, 3)) if pure else cells.any((1, 3)))
    if not found.any():
        raise MeasureError(f"no patch of {patch}×{patch} px lies {'wholly ' if pure else ''}outside the mask")
    return found
