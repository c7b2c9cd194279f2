"""The pictures of a question, made from their recipes by view ops: whole, crop, mask, fill, outline, patch, spotlight.

An op is a function of (pixels, region, params) that returns the pixels to show and the place that they show. `OPS` is the
one registry: a protocol names an op in a `Recipe`, and nothing else has to know it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import cv2
import numpy as np

from editloupe.data.images import RGB, ImageStore
from editloupe.errors import EditLoupeError, ProtocolError
from editloupe.imaging import render
from editloupe.imaging.align import resize
from editloupe.imaging.masked import outside
from editloupe.tasks import Recipe
from editloupe.values import Box, ImageRef, Json, View, box_from_json

LONG_SIDE: Final = 2048
"""A longer crop is reduced to this many px, as the tools' crops are."""
_LINES: Final = 170
"""The shorter side of an image, in lines of an outline with the width "auto"."""
_DARK: Final = 4
"""What lies outside a spotlight is so many times darker."""
Op: TypeAlias = Callable[[RGB, Box | None, Mapping[str, Json], ImageStore], tuple[RGB, Box]]
"""Takes H×W×3 uint8 RGB, the recipe's region in px and its params; returns the picture and the region that it shows."""


def make_view(recipe: Recipe, images: ImageStore) -> View:
    """Return the view of a recipe and put its picture into `images`. The same recipe always gives the same bytes.

    Raises ImageError for an image that cannot be decoded, ProtocolError for an op that is not known or cannot use its
    region and parameters.
    """
    if recipe.op not in OPS:
        raise ProtocolError(f"unknown view op {recipe.op!r}; known: {', '.join(OPS)}")
    # Before a model is asked, so that a damaged file is found in time.
    rgb = None if recipe.op == "whole" else images.array(recipe.origin)
    images.notes(recipe.origin)
    images.keep(recipe.origin)
    if rgb is None:
        return View.whole(recipe.origin)
    try:
        picture, region = OPS[recipe.op](rgb, recipe.region, recipe.params, images)
        image = images.add_array(picture)
    except (EditLoupeError, OSError):
        raise
    except Exception as error:  # an op meets whatever a plan gives it, down to faults of cv2
        problem = " ".join(f"{type(error).__name__}: {error}".split())
        raise ProtocolError(f"view {recipe.alias!r}: op {recipe.op!r} cannot use its parameters ({problem})") from error
    window = Box.whole(width=image.width, height=image.height)
    return View(image=image, origin=recipe.origin, region=region, window=window, op=recipe.op, params=recipe.params)


def size_of(recipe: Recipe) -> ImageRef:
    """Return a stand-in of the size of a recipe's picture. Nothing is decoded, and the stand-in has no bytes."""
    if recipe.op != "crop" or recipe.region is None:
        return recipe.origin
    width, height = _shown_size(recipe.region, recipe.params)
    return replace(recipe.origin, width=width, height=height, media_type="image/png")


def _whole(rgb: RGB, region: Box | None, params: Mapping[str, Json], images: ImageStore) -> tuple[RGB, Box]:
    return rgb, _all_of(rgb)


def _crop(rgb: RGB, region: Box | None, params: Mapping[str, Json], images: ImageStore) -> tuple[RGB, Box]:
    """Show the region; a small one is enlarged by a whole factor (Lanczos) to 256 px a side.

    `size` ([width, height] in px) sets another size; `marks` are boxes to be outlined, in px of the picture shown.
    """
    if region is None:
        raise ValueError("a crop needs a region")
    width, height = _shown_size(region, params)
    shown = resize(render.crop(rgb, region), width=width, height=height)
    marks = _boxes(params["marks"]) if "marks" in params else []
    return (render.marked(shown, marks) if marks else shown), region


def _mask(rgb: RGB, region: Box | None, params: Mapping[str, Json], images: ImageStore) -> tuple[RGB, Box]:
    """Show the image with the `boxes` painted white."""
    return render.filled(rgb, _boxes(params["boxes"]), (255, 255, 255)), _all_of(rgb)


def _fill(rgb: RGB, region: Box | None, params: Mapping[str, Json], images: ImageStore) -> tuple[RGB, Box]:
    """Show the image with the `boxes` painted in `color` ([r, g, b]), or in the mean color of the image `like`.

    Boxes are in px of the image, rounded outward and clipped. like: an ImageRef as JSON; the image need not have this size.
    """
    if ("color" in params) == ("like" in params):
        raise ValueError("expected either color or like")
    if "color" in params:
        return render.filled(rgb, _boxes(params["boxes"]), _color(params["color"])), _all_of(rgb)
    like = ImageRef.from_json(params["like"])
    mean = cv2.mean(images.array(like))[:3]
    images.keep(like)
    return render.filled(rgb, _boxes(params["boxes"]), _color([round(v) for v in mean])), _all_of(rgb)


def _outline(rgb: RGB, region: Box | None, params: Mapping[str, Json], images: ImageStore) -> tuple[RGB, Box]:
    """Show the image with the `boxes` outlined in `color` ([r, g, b], default red), `width` px wide (default 3).

    width: "auto" for a line that looks the same at every size: the shorter side ÷ 170, at least 2 px.
    """
    drawn, width = rgb.copy(), params.get("width", 3)
    line = max(2, round(min(rgb.shape[:2]) / _LINES)) if width == "auto" else int(width)  # type: ignore[arg-type]
    for box in _boxes(params["boxes"]):
        x0, y0, x1, y1 = box.ints()
        cv2.rectangle(drawn, (x0, y0), (x1 - 1, y1 - 1), _color(params.get("color", [255, 0, 0])), line)
    return drawn, _all_of(rgb)


def _patch(rgb: RGB, region: Box | None, params: Mapping[str, Json], images: ImageStore) -> tuple[RGB, Box]:
    """Show the image with `region` taken from the image `source` (an ImageRef as JSON), scaled to the same size."""
    if region is None:
        raise ValueError("a patch needs a region")
    source = images.array(ImageRef.from_json(params["source"]))
    if source.shape != rgb.shape:
        source = np.asarray(cv2.resize(source, (rgb.shape[1], rgb.shape[0]), interpolation=cv2.INTER_AREA), np.uint8)
    patched = rgb.copy()
    x0, y0, x1, y1 = region.clipped(width=rgb.shape[1], height=rgb.shape[0]).ints()
    patched[y0:y1, x0:x1] = source[y0:y1, x0:x1]
    return patched, _all_of(rgb)


def _spotlight(rgb: RGB, region: Box | None, params: Mapping[str, Json], images: ImageStore) -> tuple[RGB, Box]:
    """Show the image, dark but for what lies inside the image `mask` (an ImageRef as JSON), which may have another size."""
    mask = ImageRef.from_json(params["mask"])
    dark = outside(images.array(mask), rgb.shape[:2], dilate=False)
    images.keep(mask)
    return np.where(dark[:, :, None], rgb // _DARK, rgb), _all_of(rgb)


OPS: Final[dict[str, Op]] = {
    "whole": _whole,
    "crop": _crop,
    "mask": _mask,
    "fill": _fill,
    "outline": _outline,
    "patch": _patch,
    "spotlight": _spotlight,
}
"""Name → op."""


def _color(color: Json) -> tuple[int, int, int]:
    if isinstance(color, str) or not isinstance(color, list | tuple) or len(color) != 3:
        raise ValueError(f"expected a color [r, g, b], found {color!r}")
    red, green, blue = (int(v) for v in color)  # type: ignore[arg-type]
    if not all(0 <= v <= 255 for v in (red, green, blue)):
        raise ValueError(f"expected a color of three numbers from 0 to 255, found {color!r}")
    return red, green, blue


def _boxes(boxes: Json) -> list[Box]:
    if isinstance(boxes, str) or not isinstance(boxes, list | tuple):
        raise ValueError(f"expected a list of boxes, found {boxes!r}")
    return [box_from_json(box) for box in boxes]


def _all_of(rgb: RGB) -> Box:
    return Box.whole(width=rgb.shape[1], height=rgb.shape[0])


def _shown_size(region: Box, params: Mapping[str, Json]) -> tuple[int, int]:
    """Return (width, height) in px of the picture of a crop."""
    given = params.get("size")
    if given is None:
        scale = render.display_scale(region.width, region.height, long_side=LONG_SIDE)
        given = [max(1, round(side * scale)) for side in (region.width, region.height)]
    width, height = (int(side) for side in given)  # type: ignore[union-attr, arg-type]
    return width, height
