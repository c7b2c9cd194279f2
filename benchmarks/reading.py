"""How well text in crops is read: words drawn on pictures, by height; one letter changed; nothing changed.

    python -m benchmarks.reading
    python -m benchmarks.reading --calls FOLDER

The second looks at what reading adds to a call of `localize_differences`, over the pairs of a folder with metadata.jsonl
(source_file_name, edited_file_name): CPU seconds without reading, with it, and with every crop read; and what is then read
that is missed otherwise.

Every truth is known by construction. Fonts: DejaVu's faces as far as this machine has them (DEJAVU names another
folder), and OpenCV's Hershey; pictures: scikit-image's where it is installed, else this repository's examples.
"""

from __future__ import annotations

import difflib
import json
import os
import string
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from editloupe.data.images import RGB, ImageStore
from editloupe.imaging.align import resize
from editloupe.models.read_text import RapidReader, Reading, TextReader
from editloupe.tools.base import ToolContext
from editloupe.tools.localize_differences import LocalizeDifferences
from editloupe.tools.reading import NoReader, TextReading, open_reader, read, working_scale
from editloupe.tools.settings import ToolSettings
from editloupe.values import Box, View

HEIGHTS = (8, 10, 12, 16, 20, 24, 32, 48)
PAIR_HEIGHTS = (8, 12, 20, 32)
WORDS = (
    "OPEN", "Bakery", "EXIT 12", "Hotel", "No Parking", "SALE", "Coffee", "Route 66", "Museum", "1984", "Platform",
    "Harbour", "PULL", "Tickets", "Market", "Please wait",
)  # fmt: skip
_NAMES = ("Original Image", "Edited Image")
_DEJAVU = Path(os.environ.get("DEJAVU", "/usr/share/fonts/truetype/dejavu"))
_FACES = ("Sans", "Sans-Bold", "Serif", "Serif-Bold", "SansMono", "Serif-Italic", "SansCondensed")
_HERSHEY = (cv2.FONT_HERSHEY_SIMPLEX, cv2.FONT_HERSHEY_DUPLEX, cv2.FONT_HERSHEY_COMPLEX)

Font = Path | int


@dataclass(frozen=True)
class Look:
    """How a word is drawn: everything but the word itself."""

    photo: RGB
    font: Font
    height: int
    ink: tuple[int, int, int]
    board: tuple[int, int, int] | None


@cache
def photos() -> tuple[RGB, ...]:
    found = find_spec("skimage")
    if found is not None and found.origin is not None:
        folder, names = Path(found.origin).parent / "data", ("astronaut.png", "coffee.png", "rocket.jpg", "chelsea.png")
    else:
        folder = Path(__file__).parents[1] / "examples" / "edits" / "images"
        names = ("harbour.png", "kitchen.png", "study.png")
    return tuple(np.asarray(Image.open(folder / name).convert("RGB")) for name in names)


@cache
def fonts() -> tuple[Font, ...]:
    return (*(file for face in _FACES if (file := _DEJAVU / f"DejaVu{face}.ttf").exists()), *_HERSHEY)


def look(rng: np.random.Generator, height: int) -> Look:
    """A place on a photograph, half of the time with a board; the ink is dark on light ground, light on dark."""
    photo = photos()[rng.integers(len(photos()))]
    side_y, side_x = min(4 * height + 64, photo.shape[0]), min(20 * height + 64, photo.shape[1])
    y, x = rng.integers(0, photo.shape[0] - side_y + 1), rng.integers(0, photo.shape[1] - side_x + 1)
    ground = photo[y : y + side_y, x : x + side_x]
    board = None
    if rng.random() < 0.5:
        board = _colour(rng, *((170, 256) if rng.random() < 0.5 else (0, 80)))
    dark = (np.mean(board) if board else float(ground.mean())) > 127
    return Look(
        ground, fonts()[rng.integers(len(fonts()))], height, _colour(rng, *((0, 50) if dark else (205, 256))), board
    )


def _colour(rng: np.random.Generator, low: int, high: int) -> tuple[int, int, int]:
    r, g, b = rng.integers(low, high, 3)
    return int(r), int(g), int(b)


def drawn(how: Look, word: str) -> tuple[RGB, Box]:
    """The picture with the word in its middle, capitals `height` px high, and the word's box."""
    rgb = how.photo.copy()
    height, width = rgb.shape[:2]
    if isinstance(how.font, Path):
        font = _sized(how.font, how.height)
        x0, y0, x1, y1 = font.getbbox(word)
        w, h = x1 - x0, y1 - y0
    else:
        scale, thick = how.height / 21, max(1, round(how.height / 12))
        (w, h), _ = cv2.getTextSize(word, how.font, scale, thick)
    left, top = (width - w) / 2, (height - h) / 2
    box = Box(left, top, left + w, top + h)
    if how.board is not None:
        pad = how.height // 2
        bx0, by0, bx1, by1 = box.ints()
        cv2.rectangle(rgb, (bx0 - pad, by0 - pad), (bx1 + pad, by1 + pad), how.board, cv2.FILLED)
    if isinstance(how.font, Path):
        picture = Image.fromarray(rgb)
        ImageDraw.Draw(picture).text((left - x0, top - y0), word, font=font, fill=how.ink)
        return np.asarray(picture), box
    origin = (round(left), round(top + h))
    return cv2.putText(rgb, word, origin, how.font, scale, how.ink, thick, cv2.LINE_AA), box


@cache
def _sized(file: Path, height: int) -> ImageFont.FreeTypeFont:
    for size in range(6, 300):
        font = ImageFont.truetype(str(file), size)
        _, y0, _, y1 = font.getbbox("H")
        if y1 - y0 >= height:
            return font
    raise ValueError(f"no size of {file} has capitals of {height} px")


def accuracy(word: str, text: str) -> float:
    """Share of characters that agree in order, of the longer of the two; spaces do not count."""
    truth, seen = word.replace(" ", ""), text.replace(" ", "")
    same = sum(b.size for b in difflib.SequenceMatcher(None, truth, seen, autojunk=False).get_matching_blocks())
    return same / max(len(truth), len(seen))


def jpeg(rgb: RGB, quality: int) -> RGB:
    done, data = cv2.imencode(".jpg", rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, quality])
    assert done
    return np.asarray(cv2.imdecode(data, cv2.IMREAD_COLOR)[..., ::-1])


def autoencoded(rgb: RGB, rng: np.random.Generator) -> RGB:
    """Blur and noise as a latent autoencoder leaves them."""
    soft = cv2.GaussianBlur(rgb, (0, 0), 0.6).astype(np.float32) + rng.normal(0, 2, rgb.shape)
    return np.clip(soft, 0, 255).astype(np.uint8)


def by_height(reader: TextReader, count: int) -> list[str]:
    """Rows: height, then characters right without enlargement, with ours, whole words right, CPU s a crop."""
    rows = []
    for height in HEIGHTS:
        plain, ours, words, seconds = [], [], [], 0.0
        for seed in range(count):
            rng, word = np.random.default_rng([height, seed]), WORDS[seed % len(WORDS)]
            rgb, _ = drawn(look(rng, height), word)
            store = ImageStore()
            image = store.add_array(rgb)
            start = time.thread_time()
            found = read(reader, store, image, Box.whole(width=image.width, height=image.height))
            seconds += time.thread_time() - start
            text = " ".join(t.text for t in found if t.sure)
            ours.append(accuracy(word, text))
            # After the time was taken: what is read once is remembered.
            plain.append(accuracy(word, " ".join(r.text for r in reader(rgb))))
            words.append(text.replace(" ", "") == word.replace(" ", ""))
        values = f"{np.mean(plain):.3f} | {np.mean(ours):.3f} | {np.mean(words):.2f} | {seconds / count:.3f}"
        rows.append(f"| {height} | {values} |")
    return rows


def pairs(reader: TextReader, count: int) -> list[str]:
    """Rows: height, then by what else differs: one-letter changes told, told rightly, unchanged pairs told to differ."""
    reading = TextReading(reader)
    nuisances: dict[str, Callable[[RGB, np.random.Generator], RGB]] = {
        "nothing": lambda rgb, rng: rgb,
        "JPEG": lambda rgb, rng: jpeg(rgb, 75),
        "autoencoder": autoencoded,
        "resized": lambda rgb, rng: resize(resize(rgb, width=rgb.shape[1] * 3 // 4, height=rgb.shape[0] * 3 // 4),
                                           width=rgb.shape[1], height=rgb.shape[0]),
    }  # fmt: skip
    rows = []
    for height in PAIR_HEIGHTS:
        told = {name: [0, 0, 0] for name in nuisances}
        for seed in range(count):
            for name, spoil in nuisances.items():
                rng, word = np.random.default_rng([height, seed]), WORDS[seed % len(WORDS)]
                how = look(rng, height)
                at = int(rng.choice([i for i, c in enumerate(word) if c != " "]))
                kind = next(k for k in (string.digits, string.ascii_uppercase, string.ascii_lowercase) if word[at] in k)
                other = word[:at] + str(rng.choice([c for c in kind if c != word[at]])) + word[at + 1 :]
                before, changed, same = (
                    drawn(how, word)[0],
                    spoil(drawn(how, other)[0], rng),
                    spoil(drawn(how, word)[0], rng),
                )
                line = _line(reading, before, changed)
                told[name][0] += _differs(line)
                told[name][1] += _names(line, other)
                told[name][2] += _differs(_line(reading, before, same))
        cells = " | ".join(f"{a / count:.2f} / {b / count:.2f} / {c / count:.2f}" for a, b, c in told.values())
        rows.append(f"| {height} | {cells} |")
    return rows


def _line(reading: TextReading, before: RGB, after: RGB) -> str:
    store = ImageStore()
    panes = [View.whole(store.add_array(rgb)) for rgb in (before, after)]
    said = reading.in_pairs(store, panes, names=_NAMES, crops=["Crop 1"])
    return said.lines[0] if said.lines else ""


def _differs(line: str) -> bool:
    return "only in" in line or "reads differently" in line


def _names(line: str, word: str) -> bool:
    """Whether the changed word itself is told as the edited image's."""
    only, differs = line.partition(f"only in {_NAMES[1]!r}: ")[2], line.partition(" but ")[2]
    edited = f"{only.partition('; ')[0]} {differs.partition('; ')[0]}"
    return word.replace(" ", "") in edited.replace(" ", "").replace("','", "")


def false_readings(reader: TextReader, count: int) -> str:
    """Of crops of photographs that hold no text: how many give any, all told and as far as observations say them."""
    quiet = [
        p for p, name in zip(photos(), ("astronaut", "coffee", "rocket", "chelsea"), strict=False) if name != "astronaut"
    ]
    any_, said = 0, 0
    for seed in range(count):
        rng = np.random.default_rng([7, seed])
        rgb = quiet[rng.integers(len(quiet))]
        side = int(rng.choice([64, 128, 256]))
        y, x = rng.integers(0, rgb.shape[0] - side), rng.integers(0, rgb.shape[1] - side)
        store = ImageStore()
        image = store.add_array(rgb[y : y + side, x : x + side].copy())
        found = read(reader, store, image, Box.whole(width=side, height=side))
        any_, said = any_ + bool(found), said + any(t.sure for t in found)
    return f"{count} crops without text: {any_} with a reading, {said} with one that is said"


class Unskimmed:
    """The reader, called with every crop."""

    def __init__(self, reader: TextReader) -> None:
        self.name, self.version, self._reader = reader.name, reader.version, reader

    def __call__(self, rgb: RGB) -> tuple[Reading, ...]:
        return self._reader(rgb)


def calls(data: Path) -> None:
    readers = {"without": NoReader("not asked for"), "with": _loaded(), "every crop read": Unskimmed(_loaded())}
    seconds: dict[str, list[float]] = {how: [] for how in readers}
    skipped = []
    for line in (data / "metadata.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        said = {}
        for how, reader in readers.items():
            tool, store = LocalizeDifferences(reader=reader), ImageStore()
            files = (row["source_file_name"], row["edited_file_name"])
            views = {name: View.whole(store.add_file(data / file)) for name, file in zip(_NAMES, files, strict=True)}
            for view in views.values():
                store.array(view.image)
            start = time.thread_time()
            args = tool.Args(comparison_image_1=_NAMES[0], comparison_image_2=_NAMES[1])
            said[how] = tool(args, ToolContext(images=store, views=views))
            seconds[how].append(time.thread_time() - start)
        told = {how: [t for t in seen.text.splitlines() if t.startswith("Text read")] for how, seen in said.items()}
        notes: Any = said["with"].data["text_reading"]
        skipped.append(len(notes.get("skipped", {}).get("crops", ())) == len(notes["crops"]))
        print(row["id"], *(f"{seconds[how][-1]:.2f}" for how in readers), "skipped" if skipped[-1] else "")
        for how in ("with", *(["every crop read"] * (told["with"] != told["every crop read"]))):
            print("".join(f"  {how}: {line}\n" for line in told[how]), end="")
    plain = np.median(seconds["without"])
    for how, values in seconds.items():
        of_a_call = np.median(np.divide(values, seconds["without"]))
        median, mean = np.median(values), np.mean(values)
        print(f"{how}: median {median:.3f} s, {median / plain:.2f} x; mean {mean:.3f} s; of a call {of_a_call:.2f} x")
    print(f"no crop is read in {np.mean(skipped):.0%} of {len(skipped)} calls")


def _loaded() -> RapidReader:
    """A reader of its own, which has read nothing."""
    spec = find_spec("rapidocr")
    assert spec is not None and spec.origin is not None
    reader = RapidReader(Path(spec.origin).parent / "models")
    reader.prepare()
    return reader


def main() -> None:
    if sys.argv[1:2] == ["--calls"]:
        calls(Path(sys.argv[2]))
        return
    reader = open_reader(ToolSettings(reader="rapidocr"))
    assert not isinstance(reader, NoReader)
    count = int(os.environ.get("COUNT", "64"))
    reader(np.zeros((64, 64, 3), dtype=np.uint8))
    print(f"{reader.version}; {count} words a row; enlarged ×{working_scale(100, 80):.0f} for 100×80 px\n")
    print("| capitals, px | characters, as it is | characters, as read | words | CPU s a crop |\n|---|---|---|---|---|")
    print("\n".join(by_height(reader, count)))
    print("\nOne letter changed: told to differ / with the right word / unchanged pairs told to differ\n")
    print("| capitals, px | nothing else differs | JPEG q75 | as an autoencoder | ×0.75 and back |\n|---|---|---|---|---|")
    print("\n".join(pairs(reader, count)))
    print(f"\n{false_readings(reader, 4 * count)}")


if __name__ == "__main__":
    main()
