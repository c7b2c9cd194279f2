"""Photographs with known edits, and the nuisances under which editors deliver them. A function of the seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

import cv2
import numpy as np
from numpy.random import Generator
from skimage import data as photographs
from sklearn.datasets import load_sample_image

from editloupe.data.images import RGB
from editloupe.values import Box

SIDE = (1200, 832)
"""px, 1 MP."""

_GAP = 60
_VISIBLE = 6


@dataclass(frozen=True, kw_only=True)
class Scene:
    """before, after: H×W×3 uint8 RGB, the same size.   boxes: what differs between them, px."""

    before: RGB
    after: RGB
    boxes: tuple[Box, ...]


def draw(seed: int, *, edits: int) -> Scene:
    """A photograph with so many edits, 0.05 to 4 % of it each."""
    rng = np.random.default_rng([seed, edits])
    before = _photograph(rng, *SIDE)
    after, boxes = before.copy(), list[Box]()
    for _ in range(60):
        if len(boxes) == edits:
            break
        area = float(np.exp(rng.uniform(np.log(0.0005), np.log(0.04)))) * SIDE[0] * SIDE[1]
        width = int(np.sqrt(area * np.exp(rng.uniform(-0.5, 0.5))))
        height = int(area / width)
        x, y = int(rng.integers(8, SIDE[0] - width - 8)), int(rng.integers(8, SIDE[1] - height - 8))
        place = Box(x, y, x + width, y + height)
        near = Box(x - _GAP, y - _GAP, x + width + _GAP, y + height + _GAP)
        if any(near.intersection(b) for b in boxes):
            continue
        here = (slice(y, y + height), slice(x, x + width))
        edit = _EDITS[int(rng.integers(len(_EDITS)))]
        after[here] = edit(before[here], rng)
        changed = np.abs(after[here].astype(int) - before[here]).max(axis=2) > _VISIBLE
        if changed.mean() < 0.15:
            after[here] = before[here]
            continue
        ys, xs = np.flatnonzero(changed.any(axis=1)), np.flatnonzero(changed.any(axis=0))
        boxes.append(Box(x + xs[0], y + ys[0], x + xs[-1] + 1, y + ys[-1] + 1) if changed.any() else place)
    return Scene(before=before, after=after, boxes=tuple(boxes))


def delivered(after: RGB, nuisance: str, seed: int) -> RGB:
    """The edited picture as an editor hands it over."""
    return NUISANCES[nuisance](after, np.random.default_rng([seed, sorted(NUISANCES).index(nuisance)]))


@cache
def _library() -> tuple[RGB, ...]:
    shipped = (photographs.astronaut, photographs.coffee, photographs.rocket)
    return (*(np.asarray(load()[..., :3], dtype=np.uint8) for load in shipped), load_sample_image("flower.jpg"))


def _photograph(rng: Generator, width: int, height: int) -> RGB:
    photo = _library()[int(rng.integers(len(_library())))]
    scale = min(photo.shape[1] / width, photo.shape[0] / height) * rng.uniform(0.4, 1.0)
    w, h = max(4, int(width * scale)), max(4, int(height * scale))
    x, y = int(rng.integers(0, photo.shape[1] - w + 1)), int(rng.integers(0, photo.shape[0] - h + 1))
    large = cv2.resize(photo[y : y + h, x : x + w], (width, height), interpolation=cv2.INTER_CUBIC)
    return _noisy(large, rng, 1.5)


def _noisy(rgb: RGB, rng: Generator, sigma: float) -> RGB:
    return np.clip(np.rint(rgb + rng.normal(0, sigma, rgb.shape)), 0, 255).astype(np.uint8)


def _blended(patch: RGB, other: RGB) -> RGB:
    """`other` in an ellipse that fills the patch."""
    height, width = patch.shape[:2]
    mask = np.zeros((height, width), dtype=np.uint8)
    cv2.ellipse(mask, (width // 2, height // 2), (width // 2 - 1, height // 2 - 1), 0, 0, 360, 255, -1, cv2.LINE_AA)
    share = mask[..., None] / 255
    return np.rint(patch * (1 - share) + other * share).astype(np.uint8)


def _recoloured(patch: RGB, rng: Generator) -> RGB:
    lab = cv2.cvtColor(patch, cv2.COLOR_RGB2LAB).astype(int)
    angle = rng.uniform(0, 2 * np.pi)
    lab[..., 1:] += np.rint(rng.uniform(20, 50) * np.array([np.cos(angle), np.sin(angle)])).astype(int)
    return _blended(patch, cv2.cvtColor(np.clip(lab, 0, 255).astype(np.uint8), cv2.COLOR_LAB2RGB))


def _pasted(patch: RGB, rng: Generator) -> RGB:
    return _blended(patch, _photograph(rng, patch.shape[1], patch.shape[0]))


def _erased(patch: RGB, rng: Generator) -> RGB:
    mask = np.zeros(patch.shape[:2], dtype=np.uint8)
    mask[2:-2, 2:-2] = 255
    return _noisy(cv2.inpaint(patch, mask, 3, cv2.INPAINT_TELEA), rng, 1.5)


def _lettered(patch: RGB, rng: Generator) -> RGB:
    out = patch.copy()
    letter = "ABEGHKMRSX3579"[int(rng.integers(14))]
    height, width = patch.shape[:2]
    thick = max(2, min(width, height) // 8)
    size = min(width, height) / 26
    ink = (0, 0, 0) if patch.mean() > 127 else (255, 255, 255)
    cv2.putText(out, letter, (thick, height - thick), cv2.FONT_HERSHEY_SIMPLEX, size, ink, thick, cv2.LINE_AA)
    return out


def _reshaped(patch: RGB, rng: Generator) -> RGB:
    """A coloured thing of the patch's size in the first picture is not there to cut: what is pasted fills a part only."""
    height, width = patch.shape[:2]
    out, part = patch.copy(), rng.uniform(0.4, 0.7)
    thing = _blended(patch, np.full_like(patch, rng.integers(0, 256, 3, dtype=np.uint8)))
    if rng.random() < 0.5:
        out[: int(part * height)] = thing[: int(part * height)]
    else:
        out[:, : int(part * width)] = thing[:, : int(part * width)]
    return out


_EDITS = (_recoloured, _pasted, _erased, _lettered, _reshaped)


def _jpeg(quality: int) -> Callable[[RGB, Generator], RGB]:
    def delivered_as_jpeg(rgb: RGB, rng: Generator) -> RGB:
        data = cv2.imencode(".jpg", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        return cv2.cvtColor(cv2.imdecode(data, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)

    return delivered_as_jpeg


def _shifted(rgb: RGB, rng: Generator) -> RGB:
    motion = np.array([[1, 0, rng.uniform(-2.5, 2.5)], [0, 1, rng.uniform(-2.5, 2.5)]])
    return cv2.warpAffine(rgb, motion, SIDE, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)


def _toned(rgb: RGB, rng: Generator) -> RGB:
    curve = 255 * (np.arange(256) / 255) ** rng.uniform(0.94, 1.06) * rng.uniform(0.95, 1.05)
    return np.clip(np.rint(curve), 0, 255).astype(np.uint8)[rgb]


def _decoded(rgb: RGB, rng: Generator) -> RGB:
    """What an autoencoder leaves: soft light, softer colour, a little noise."""
    ycc = cv2.cvtColor(rgb, cv2.COLOR_RGB2YCrCb)
    light = cv2.GaussianBlur(ycc[..., 0], (0, 0), 0.8)
    colour = cv2.GaussianBlur(ycc[..., 1:], (0, 0), 1.7)
    return cv2.cvtColor(_noisy(np.dstack([light, colour]), rng, 1.2), cv2.COLOR_YCrCb2RGB)


def _resized(rgb: RGB, rng: Generator) -> RGB:
    factor = float(rng.choice([0.6, 0.75, 1.25]))
    size = (round(SIDE[0] * factor), round(SIDE[1] * factor))
    return cv2.resize(rgb, size, interpolation=cv2.INTER_AREA if factor < 1 else cv2.INTER_LANCZOS4)


def _cropped(rgb: RGB, rng: Generator) -> RGB:
    factor = rng.uniform(0.965, 0.99)
    width, height = int(SIDE[0] * factor), int(SIDE[1] * factor)
    x, y = int(rng.integers(0, SIDE[0] - width + 1)), int(rng.integers(0, SIDE[1] - height + 1))
    return cv2.resize(rgb[y : y + height, x : x + width], SIDE, interpolation=cv2.INTER_CUBIC)


def _halved_and_doubled(rgb: RGB, rng: Generator) -> RGB:
    half = cv2.resize(rgb, (SIDE[0] // 2, SIDE[1] // 2), interpolation=cv2.INTER_AREA)
    return cv2.resize(half, SIDE, interpolation=cv2.INTER_LANCZOS4)


def _snapped(rgb: RGB, rng: Generator) -> RGB:
    """Sides that are multiples of 32, as many editors force them; the aspect ratio changes a little."""
    return cv2.resize(rgb, (SIDE[0] // 32 * 32, SIDE[1] // 32 * 32), interpolation=cv2.INTER_AREA)


def _redrawn(rgb: RGB, rng: Generator) -> RGB:
    """Every place a little beside where it was, smoothly: the whole picture drawn again."""
    y, x = np.mgrid[0 : SIDE[1], 0 : SIDE[0]].astype(np.float32)
    dx, dy = (
        cv2.resize(rng.normal(0, 0.6, (5, 7)).astype(np.float32), SIDE, interpolation=cv2.INTER_CUBIC) for _ in range(2)
    )
    return cv2.remap(rgb, x + dx, y + dy, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REPLICATE)


NUISANCES: Mapping[str, Callable[[RGB, Generator], RGB]] = {
    "none": lambda rgb, rng: rgb,
    "jpeg 85": _jpeg(85),
    "jpeg 50": _jpeg(50),
    "shift": _shifted,
    "tone": _toned,
    "decoder": _decoded,
    "round trip": _halved_and_doubled,
    "resize": _resized,
    "snap": _snapped,
    "crop": _cropped,
    "redrawn": lambda rgb, rng: _jpeg(95)(_decoded(_redrawn(rgb, rng), rng), rng),
    "all": lambda rgb, rng: _jpeg(90)(_decoded(_toned(_shifted(rgb, rng), rng), rng), rng),
}
