"""What editors do to a whole picture while they edit a place in it. A function of the random generator."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import cv2
import numpy as np
from numpy.random import Generator

from benchmarks.localize.scenes import Scene
from editloupe.data.images import RGB
from editloupe.values import Box

Delivery = Callable[[RGB, Generator], RGB]
"""Returns the edited picture, H×W×3 uint8, as an editor hands it over; of the same size where nothing else is said."""


def as_is(rgb: RGB, rng: Generator) -> RGB:
    """Return the picture itself."""
    return rgb


def jpeg(quality: int) -> Delivery:
    """Return a delivery by JPEG of this quality."""

    def compressed(rgb: RGB, rng: Generator) -> RGB:
        data = cv2.imencode(".jpg", cv2.cvtColor(rgb, cv2.COLOR_RGB2BGR), [cv2.IMWRITE_JPEG_QUALITY, quality])[1]
        return cv2.cvtColor(cv2.imdecode(data, cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)

    return compressed


def shifted(rgb: RGB, rng: Generator) -> RGB:
    """Shift it by up to 2.5 px."""
    motion = np.array([[1, 0, rng.uniform(-2.5, 2.5)], [0, 1, rng.uniform(-2.5, 2.5)]])
    return _warped(rgb, motion)


def turned(rgb: RGB, rng: Generator) -> RGB:
    """Turn it by 1° to 6°, either way."""
    degrees = float(rng.uniform(1, 6) * rng.choice([-1, 1]))
    return _warped(rgb, cv2.getRotationMatrix2D((rgb.shape[1] / 2, rgb.shape[0] / 2), degrees, 1.0))


def gamma(*spans: tuple[float, float]) -> Delivery:
    """Return a delivery with a gamma from one of the spans."""

    def toned(rgb: RGB, rng: Generator) -> RGB:
        exponent = float(rng.uniform(*spans[int(rng.integers(len(spans)))]))
        return _by_table(rgb, 255 * (np.arange(256) / 255) ** exponent)

    return toned


def exposed(rgb: RGB, rng: Generator) -> RGB:
    """Change gain and offset of each channel: by up to 20 %, by up to 20 levels."""
    table = np.arange(256)[:, None] * rng.uniform(0.8, 1.2) * rng.uniform(0.95, 1.05, 3) + rng.uniform(-20, 20)
    return _by_table(rgb, table)


def saturated(rgb: RGB, rng: Generator) -> RGB:
    """Change saturation by 15 to 40 %, either way."""
    factor = 1 + float(rng.uniform(0.15, 0.4) * rng.choice([-1, 1]))
    gray = cv2.cvtColor(rgb, cv2.COLOR_RGB2GRAY)[..., None].astype(np.float32)
    return _levels(gray + factor * (rgb - gray))


def resized(rgb: RGB, rng: Generator) -> RGB:
    """Deliver it at 0.6 to 1.25 times its size."""
    factor = float(rng.choice([0.6, 0.75, 1.25]))
    kind = cv2.INTER_AREA if factor < 1 else cv2.INTER_LANCZOS4
    return np.asarray(cv2.resize(rgb, None, fx=factor, fy=factor, interpolation=kind), dtype=np.uint8)


def decoded(rgb: RGB, rng: Generator) -> RGB:
    """Leave what an autoencoder does: softer light, much softer color, a little noise."""
    ycc = cv2.cvtColor(rgb, cv2.COLOR_RGB2YCrCb)
    light, color = cv2.GaussianBlur(ycc[..., 0], (0, 0), 0.8), cv2.GaussianBlur(ycc[..., 1:], (0, 0), 1.7)
    return cv2.cvtColor(noisy(np.dstack([light, color]), rng, 1.2), cv2.COLOR_YCrCb2RGB)


def redrawn(px: float) -> Delivery:
    """Return a delivery that draws every place beside where it was, smoothly, by so many px (one standard deviation)."""

    def drawn(rgb: RGB, rng: Generator) -> RGB:
        height, width = rgb.shape[:2]
        y, x = np.mgrid[0:height, 0:width].astype(np.float32)
        dx, dy = (
            cv2.resize(rng.normal(0, px, (5, 7)).astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC)
            for _ in range(2)
        )
        moved = cv2.remap(rgb, x + dx, y + dy, cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
        return jpeg(95)(decoded(moved, rng), rng)

    return drawn


def noisy(rgb: RGB, rng: Generator, sigma: float) -> RGB:
    """Return it with independent noise of `sigma` levels."""
    return _levels(rgb + rng.normal(0, sigma, rgb.shape))


def mirrored_or_turned(rgb: RGB, rng: Generator) -> RGB:
    """Mirror it, or turn it by quarter turns."""
    turn = int(rng.integers(4))
    return np.ascontiguousarray(rgb[:, ::-1] if turn == 0 else np.rot90(rgb, turn))


def cropped(scene: Scene, part: Box) -> Scene:
    """Deliver a part of the edited picture, enlarged so that it has about as many px as the whole had."""
    x0, y0, x1, y1 = part.ints()
    factor = (scene.after.shape[0] * scene.after.shape[1] / part.area) ** 0.5
    cut = cv2.resize(scene.after[y0:y1, x0:x1], None, fx=factor, fy=factor, interpolation=cv2.INTER_CUBIC)
    return replace(scene, after=np.asarray(cut, dtype=np.uint8))


def outpainted(scene: Scene, part: Box) -> Scene:
    """Take a part of the picture for the source, so that the edited picture shows more around it."""
    x0, y0, x1, y1 = part.ints()
    boxes = tuple(box.shifted(-x0, -y0) for box in scene.boxes)
    return replace(scene, before=np.ascontiguousarray(scene.before[y0:y1, x0:x1]), boxes=boxes)


def with_bars(rgb: RGB, rng: Generator) -> RGB:
    """Put bars of one color, or a mirrored and blurred rim, at two sides or at four of it."""
    height, width = rgb.shape[:2]
    across, down = (int(rng.uniform(0.06, 0.2) * side) for side in (width, height))
    across, down = ((across, 0), (0, down), (across, down))[int(rng.integers(3))]
    sides = (down, down, across, across)
    if rng.random() < 0.3:
        soft = cv2.copyMakeBorder(cv2.GaussianBlur(rgb, (0, 0), 12), *sides, cv2.BORDER_REFLECT)
        soft[down : down + height, across : across + width] = rgb
        return np.asarray(soft, dtype=np.uint8)
    color = [0, 255, int(rng.integers(256))][int(rng.integers(3))]
    framed = cv2.copyMakeBorder(rgb, *sides, cv2.BORDER_CONSTANT, value=(color, color, color))
    return np.asarray(framed, dtype=np.uint8)


def _warped(rgb: RGB, motion: np.ndarray) -> RGB:
    size = (rgb.shape[1], rgb.shape[0])
    moved = cv2.warpAffine(rgb, motion, size, flags=cv2.INTER_CUBIC, borderMode=cv2.BORDER_REFLECT)
    return np.asarray(moved, dtype=np.uint8)


def _levels(values: np.ndarray) -> RGB:
    return np.clip(np.rint(values), 0, 255).astype(np.uint8)


def _by_table(rgb: RGB, table: np.ndarray) -> RGB:
    """Return the levels of each channel by a table of 256 or 256×3 rows."""
    three = table if table.ndim == 2 else np.repeat(table[:, None], 3, axis=1)
    return np.asarray(cv2.LUT(rgb, _levels(three).reshape(1, 256, 3)), dtype=np.uint8)
