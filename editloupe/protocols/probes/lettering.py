"""Text in pictures: fonts that are checked before they are used, and notes that are laid where nothing else is."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont, features

from editloupe.data.images import RGB
from editloupe.errors import ConfigError
from editloupe.protocols.probes.colours import Mask

LEAST_CAP_PX: Final = 14
"""px of a capital's height at least."""
LEAST_CAP: Final = 0.02
"""Of a capital's height, as a share of the image's, at least."""
_PAPERS: Final = (
    ((250, 248, 242), (34, 34, 40)), ((250, 232, 140), (44, 36, 20)), ((44, 48, 56), (244, 244, 240)),
    ((206, 226, 240), (20, 36, 60)), ((178, 36, 40), (255, 248, 240)),
)  # fmt: skip
"""Colours of a note and of its ink, sRGB."""
_NO_CHARACTER: Final = "\U0010ffff"
"""Unicode has no such character, so that a font shows what it shows for those it lacks."""


@dataclass(frozen=True, kw_only=True)
class Note:
    """A piece of paper with a text, as it is pasted."""

    colours: RGB
    """h×w×3 uint8."""
    alpha: NDArray[np.float32]
    """h×w float32, 0..1; its shadow is not among it."""


def cap_px(height: int) -> int:
    """Return the height of capitals, in px, at which a text in an image of this height is read."""
    return max(LEAST_CAP_PX, round(LEAST_CAP * height))


def font_for(text: str, cap: float, *, path: Path | None = None) -> ImageFont.FreeTypeFont:
    """Return a font whose capitals have a height of so many px and that has a glyph for each character of a text.

    path: a TrueType or OpenType file; None: the font that Pillow brings, the same on every machine.
    Raises ConfigError that names the font: it is not there, is no font, or lacks characters.
    """
    trial = _opened(path, 200)
    lacking = _lacking(trial, text)
    if lacking:
        listed = ", ".join(f"{c!r} (U+{ord(c):04X})" for c in lacking[:5])
        raise ConfigError(
            f"{_named(path)} has no glyph for {listed}{' and more' if len(lacking) > 5 else ''}; "
            "name a font that has it with the option font"
        )
    box = trial.getbbox("H")
    return _opened(path, max(1, round(200 * cap / (box[3] - box[1]))))


def _named(path: Path | None) -> str:
    return "the font that Pillow brings" if path is None else f"font {str(path)!r}"


@functools.lru_cache(maxsize=32)
def _opened(path: Path | None, px: int) -> ImageFont.FreeTypeFont:
    if not features.check("freetype2"):
        raise ConfigError("this Pillow was built without FreeType and draws no text; install the wheel: pip install pillow")
    if path is None:
        font = ImageFont.load_default(px)
        if not isinstance(font, ImageFont.FreeTypeFont):
            raise ConfigError("this Pillow brings no TrueType font; name one with the option font")
        return font
    if not path.is_file():
        raise ConfigError(
            f"font {str(path)!r} is no file; name a TrueType or OpenType file (.ttf, .otf), or leave font out"
        )
    try:
        return ImageFont.truetype(path, px)
    except OSError as error:
        raise ConfigError(
            f"font {str(path)!r} cannot be read ({error}); name a TrueType or OpenType file (.ttf, .otf), or leave font out"
        ) from error


def _lacking(font: ImageFont.FreeTypeFont, text: str) -> list[str]:
    def shown(character: str) -> tuple[tuple[int, ...], bytes]:
        mask = font.getmask(character)
        return mask.size, bytes(mask)

    nothing = shown(_NO_CHARACTER)
    return [c for c in dict.fromkeys(text) if not c.isspace() and shown(c) == nothing]


def wrapped(text: str, lines: int) -> str:
    """Return a text in at most so many lines of about equal length."""
    words = text.split()
    for width in range(max(map(len, words)), len(text) + 1):
        rows, row = list[str](), ""
        for word in words:
            if row and len(row) + 1 + len(word) > width:
                rows.append(row)
                row = word
            else:
                row = f"{row} {word}".strip()
        rows.append(row)
        if len(rows) <= lines:
            return "\n".join(rows)
    return text


def note(text: str, by: Random, *, cap: int, font: Path | None = None) -> Note:
    """Return a piece of paper with a text, a little turned and shaded. cap: px of a capital. Raises ConfigError."""
    face = font_for(text, cap, path=font)
    paper, ink = by.choice(_PAPERS)
    spacing, margin = round(0.6 * cap), round(0.8 * cap)
    x0, y0, x1, y1 = ImageDraw.Draw(Image.new("L", (1, 1))).multiline_textbbox((0, 0), text, font=face, spacing=spacing)
    size = (round(x1 - x0) + 2 * margin, round(y1 - y0) + 2 * margin)
    image = Image.new("RGB", size, paper)
    ImageDraw.Draw(image).multiline_text((margin - x0, margin - y0), text, fill=ink, font=face, spacing=spacing)
    light = np.linspace(by.uniform(0.96, 1.0), by.uniform(0.9, 1.0), size[0], dtype=np.float32)
    lit = np.asarray(image, np.float32) * light[:, None]
    turn = cv2.getRotationMatrix2D((size[0] / 2, size[1] / 2), by.uniform(-2.0, 2.0), 1.0)
    wide, high = (int(v) for v in np.ceil(np.abs(turn[:, :2]) @ size) + 2)
    turn[:, 2] += np.array(((wide - size[0]) / 2, (high - size[1]) / 2))
    colours = cv2.warpAffine(lit, turn, (wide, high), flags=cv2.INTER_LINEAR, borderMode=cv2.BORDER_REPLICATE)
    alpha = cv2.warpAffine(np.ones(size[::-1], np.float32), turn, (wide, high), flags=cv2.INTER_LINEAR)
    return Note(colours=np.asarray(np.rint(colours), np.uint8), alpha=np.asarray(alpha, np.float32))


def free_spot(free: Mask, size: tuple[int, int], by: Random) -> tuple[int, int] | None:
    """Return x, y of the upper left corner of a rectangle in which all is free; None where there is none.

    free: H×W bool. size: width and height in px. One of all places is drawn, in steps of 4 px.
    """
    width, height = size
    if height > free.shape[0] or width > free.shape[1]:
        return None
    taken = cv2.integral((~free).astype(np.uint8))
    sums = taken[height:, width:] - taken[:-height, width:] - taken[height:, :-width] + taken[:-height, :-width]
    ys, xs = np.nonzero(sums[::4, ::4] == 0)
    if not len(ys):
        return None
    index = by.randrange(len(ys))
    return int(xs[index]) * 4, int(ys[index]) * 4


def pasted(rgb: RGB, what: Note, at: tuple[int, int]) -> RGB:
    """Return an image with a note at x, y of its upper left corner. The note lies in the image."""
    x, y = at
    made = rgb.copy()
    part = made[y : y + what.alpha.shape[0], x : x + what.alpha.shape[1]]
    own = part.astype(np.float32)
    part[:] = np.rint(own + what.alpha[..., None] * (what.colours.astype(np.float32) - own)).astype(np.uint8)
    return made
