"""The images of a task's first message, made from their recipes: whole, cut to a crop, or with places masked."""

from __future__ import annotations

from dataclasses import replace

from editloupe.data.images import RGB, ImageStore
from editloupe.errors import ConfigError
from editloupe.imaging import render
from editloupe.records import Recipe
from editloupe.values import Box, ImageRef, View, box_from_json

LONG_SIDE = 2048
"""A crop that is longer is reduced to so many px, as the tools' crops are."""


def make_view(recipe: Recipe, images: ImageStore) -> View:
    """The view of a recipe, its picture put into `images`; the same recipe always gives the same bytes.

    "whole": the image itself.   "crop": `region`, small ones enlarged (Lanczos, a whole factor) to 256 px a side.
    "mask": the boxes of `params` painted white.
    Raises ImageError for an image that cannot be decoded, ConfigError for an `op` that is not known.
    """
    # Decoded here, so that a damaged file is found before a model is asked.
    rgb = images.array(recipe.origin)
    images.keep(recipe.origin)
    match recipe.op:
        case "whole":
            return View.whole(recipe.origin)
        case "crop" if recipe.region is not None:
            cut = render.crop(rgb, recipe.region)
            scale = _scale(recipe.region)
            return _derived(recipe, render.scaled(cut, scale) if scale != 1 else cut, recipe.region, images)
        case "mask":
            boxes = recipe.params["boxes"]
            assert isinstance(boxes, list | tuple)
            masked = render.masked(rgb, [box_from_json(box) for box in boxes])
            return _derived(recipe, masked, Box.whole(width=rgb.shape[1], height=rgb.shape[0]), images)
        case _:
            raise ConfigError(f"no way is known to make a view by {recipe.op!r}")


def size_of(recipe: Recipe) -> ImageRef:
    """What stands in for a recipe's picture where only its size counts: nothing is decoded, and it has no bytes."""
    if recipe.op != "crop" or recipe.region is None:
        return recipe.origin
    scale = _scale(recipe.region)
    width, height = (max(1, round(side * scale)) for side in (recipe.region.width, recipe.region.height))
    return replace(recipe.origin, width=width, height=height, media_type="image/png")


def _scale(region: Box) -> float:
    return render.display_scale(region.width, region.height, long_side=LONG_SIDE)


def _derived(recipe: Recipe, rgb: RGB, region: Box, images: ImageStore) -> View:
    image = images.add_array(rgb)
    window = Box.whole(width=image.width, height=image.height)
    return View(image=image, origin=recipe.origin, region=region, window=window, op=recipe.op, params=recipe.params)
