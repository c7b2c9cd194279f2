"""Reads the text in crops for an observation: at native resolution, cleaned, compared between two images.

Text from an image comes from outside, as an instruction does: it cannot forge a tag, a line or a name of ours.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from editloupe import models
from editloupe.data.images import ImageStore
from editloupe.errors import ModelAbsent, ToolError
from editloupe.imaging import render
from editloupe.imaging.align import resize
from editloupe.models.read_text import TextReader
from editloupe.tags import neutralise
from editloupe.tools.settings import ToolSettings
from editloupe.values import Box, ImageRef, Json, View

REVISION: Final = "1"
"""Of what is done around a reader. It changes with anything that changes what an observation says about text."""
LEAST_CONFIDENCE: Final = 0.85
"""Least confidence of a text that is reported. Words drawn on photographs are nearly always read at 0.95 and more. Most of
what a reader sees in texture is below 0.85."""
LEAST_CONFIDENCE_OF_SHORT: Final = 0.95
"""The same for one or two characters: a reader easily takes a knob, a wheel or gravel for them."""
MAX_CHARACTERS: Final = 80
"""Longest text in an observation. The rest is left out, which an ellipsis shows. The whole text is compared."""
LISTED: Final = 6
"""Readings of one kind that are written out; the rest are counted."""

# Small crops are enlarged by a whole number up to so many px², large ones reduced to so many: more costs time and reads
# no better, see benchmarks/reading.py. A crop under LEAST_SIDE_PX holds nothing legible.
ENLARGED_PX: Final = 512 * 512
LARGEST_ENLARGEMENT: Final = 4
MOST_PX: Final = 1024 * 1024
LONGEST_PX: Final = 2000
LEAST_SIDE_PX: Final = 6


@dataclass(frozen=True)
class NoReader:
    """Stands in for a reader where text is not read, with the reason."""

    reason: str
    """For example "the extra `ocr` is not installed"."""
    absent: bool = False
    """True where a reader was wanted and cannot be had; False where reading was switched off."""


def open_reader(settings: ToolSettings) -> TextReader | NoReader:
    """Return the reader that the settings name: "auto" is the default reader where it is here, "off" is none.

    Raises ConfigError as `models.get` does.
    """
    wanted = settings.reader.casefold()
    if wanted == "off":
        return NoReader("switched off")
    try:
        return models.get("read_text", None if wanted == "auto" else settings.reader, device=settings.device)
    except ModelAbsent as reason:
        return NoReader(str(reason), absent=True)


def describe_reader(settings: ToolSettings) -> str:
    """Return one sentence: what reads the text in crops, or the reason why nothing does. Raises as `open_reader`."""
    reader = open_reader(settings)
    said = f"not read: {reader.reason}" if isinstance(reader, NoReader) else f"read by {reader.version}"
    return f"Text in crops is {said}."


@dataclass(frozen=True, kw_only=True)
class TextLine:
    """One line of text in a named image."""

    text: str
    """As `cleaned` returns it."""
    confidence: float
    """0..1."""
    box: Box
    """In px of the image."""
    cut: tuple[str, ...] = ()
    """Sides where the crop ends within the text: "left", "right", "above", "below"."""

    @property
    def sure(self) -> bool:
        """True if it may be said by itself. What is not sure serves only to compare with."""
        return self.confidence >= (LEAST_CONFIDENCE if len(self.text) > 2 else LEAST_CONFIDENCE_OF_SHORT)

    @property
    def quoted(self) -> str:
        """The text in quotation marks with its confidence and where it is cut off."""
        cut = f", cut off {' and '.join(self.cut)}" if self.cut else ""
        return f"{self._short!r} ({self.confidence:.2f}{cut})"

    @property
    def _short(self) -> str:
        return self.text if len(self.text) <= MAX_CHARACTERS else f"{self.text[: MAX_CHARACTERS - 1]}…"

    def to_json(self, name: str) -> dict[str, Json]:
        return {
            "image": name,
            "text": self._short,
            "confidence": round(self.confidence, 4),
            "box": [round(v, 1) for v in self.box],
            "cut": list(self.cut),
        }


@dataclass(frozen=True, kw_only=True)
class TextNotes:
    """What an observation says about text."""

    lines: tuple[str, ...]
    """For the LMM; () where no text was read."""
    data: Mapping[str, Json]
    """For programs, to be merged into `Observation.data`."""


class TextReading:
    """Makes a tool's notes on the text in its crops, with a reader or with the reason why there is none."""

    def __init__(self, reader: TextReader | NoReader | None) -> None:
        self._reader = NoReader("this tool was made without a reader") if reader is None else reader

    def version(self, tool: str) -> str:
        """Return the tool's version with the reader's; the tool's own where text is not read."""
        return tool if isinstance(self._reader, NoReader) else f"{tool}; text {REVISION} {self._reader.version}"

    def prepare(self) -> None:
        """Load the reader now, where it loads anything."""
        models.prepare(self._reader)

    def describe(self) -> tuple[str, ...]:
        """Return the reader's version; () where text is not read."""
        return () if isinstance(self._reader, NoReader) else (f"text: {self._reader.version}",)

    def in_crop(self, images: ImageStore, view: View, *, name: str, crop: str) -> TextNotes:
        """Return the notes on one crop.

        view: what was cut out of which image.
        name, crop: what the conversation calls the image and the crop.
        """
        return self._notes(images, {crop: (view,)}, (name,))

    def in_pairs(
        self, images: ImageStore, panes: Sequence[View], *, names: tuple[str, str], crops: Sequence[str]
    ) -> TextNotes:
        """Return the notes on pictures of two panes: what is read in both, and what in one only.

        panes: two for each picture, the first image's first.
        names: of the two images in the conversation.
        crops: the pictures' names in the conversation.
        """
        return self._notes(images, dict(zip(crops, zip(panes[::2], panes[1::2], strict=True), strict=True)), names)

    def _notes(self, images: ImageStore, pictures: Mapping[str, Sequence[View]], names: Sequence[str]) -> TextNotes:
        """Return the notes on pictures of one pane or two, by name. names: of the image of each pane."""
        if isinstance(self._reader, NoReader):
            return TextNotes(lines=(), data={"text_reading": {"off": self._reader.reason}})
        lines: list[str] = []
        data: dict[str, Json] = {}
        found = False
        for crop, panes in pictures.items():
            try:
                texts = [read(self._reader, images, pane.origin, pane.region) for pane in panes]
            except ToolError as error:
                lines.append(f"Text in {crop} could not be read: {error}.")
                data[crop] = str(error)
                continue
            if len(panes) == 1:
                texts = [tuple(t for t in texts[0] if t.sure)]
            data[crop] = [t.to_json(name) for name, of_pane in zip(names, texts, strict=True) for t in of_pane]
            said = _listed(texts[0]) if len(panes) == 1 else _compared(texts[0], texts[1], panes, names)
            if said:
                found = True
                lines.append(f"Text read in {crop}: {said}.")
        if found:
            lines.append(
                f"Text is read by {self._reader.name}, with its confidence from 0 to 1: it may be misread or missed, so "
                "check it in the picture."
            )
        return TextNotes(lines=tuple(lines), data={"text_reading": {"reader": self._reader.version, "crops": data}})


def read(reader: TextReader, images: ImageStore, image: ImageRef, region: Box) -> tuple[TextLine, ...]:
    """Return the text in `region` of an image, in reading order, unsure readings included. Boxes are in px of the image.

    Raises ToolError as the reader does.
    """
    plain = render.crop(images.array(image), region)
    height, width = plain.shape[:2]
    if min(width, height) < LEAST_SIDE_PX:
        return ()
    scale = working_scale(width, height)
    size = (max(1, round(scale * width)), max(1, round(scale * height)))
    found = []
    for one in reader(resize(plain, width=size[0], height=size[1])):
        text = cleaned(one.text)
        inside = one.box.intersection(Box.whole(width=size[0], height=size[1]))
        if not text or inside is None:
            continue
        box = inside.scaled(width / size[0], height / size[1]).shifted(*region.ints()[:2])
        found.append(TextLine(text=text, confidence=one.confidence, box=box, cut=_cut(inside, size, image, region)))
    return tuple(found)


def working_scale(width: int, height: int) -> float:
    """Return the factor by which a crop of `width` × `height` px is enlarged (a whole number) or reduced to be read."""
    area = width * height
    least = min(1.0, math.sqrt(MOST_PX / area), LONGEST_PX / max(width, height))
    if least < 1:
        return least
    most = min(LARGEST_ENLARGEMENT, math.isqrt(ENLARGED_PX // area), LONGEST_PX // max(width, height))
    return float(max(1, most))


def cleaned(text: str) -> str:
    """Return text from an image on one line and harmless.

    It has no control, format or private characters and single spaces, and our own tags get other brackets.
    """
    kept = "".join(" " if c.isspace() else c for c in text if c.isspace() or unicodedata.category(c)[0] != "C")
    return neutralise(" ".join(kept.split()))


def _cut(box: Box, size: tuple[int, int], image: ImageRef, region: Box) -> tuple[str, ...]:
    """Return the sides where the text reaches the crop's edge and the image goes on. Only the ends of a line count."""
    x0, y0, x1, y1 = region.ints()
    if box.width >= box.height:
        ends = (("left", box.x0 <= 1 and x0 > 0), ("right", box.x1 >= size[0] - 2 and x1 < image.width))
    else:
        ends = (("above", box.y0 <= 1 and y0 > 0), ("below", box.y1 >= size[1] - 2 and y1 < image.height))
    return tuple(side for side, reached in ends if reached)


def _compared(first: Sequence[TextLine], second: Sequence[TextLine], panes: Sequence[View], names: Sequence[str]) -> str:
    """Return in words what is read in one of two images only, and what in both; "" where there is no text to speak of.

    Spaces and line breaks make no difference. An unsure reading counts where it agrees with a sure one, or is in its place:
    otherwise a line that is read at 0.86 in one image and at 0.84 in the other would seem to be gone.
    """
    only_1: list[TextLine] = []
    both: list[TextLine] = []
    rest = list(second)
    for one in first:
        same = _run(one, rest)
        if not same:
            only_1.append(one)
            continue
        rest = [t for t in rest if t not in same]
        if one.sure or all(t.sure for t in same):
            both.append(one)
    only_2: list[TextLine] = []
    for one in rest:
        same = _run(one, only_1)
        if not same:
            only_2.append(one)
            continue
        only_1 = [t for t in only_1 if t not in same]
        both.extend(t for t in same if t.sure or one.sure)
    placed = [[(t, _place(t, pane)) for t in texts] for texts, pane in zip((only_1, only_2), panes, strict=True)]
    only = _worth_telling(placed[0], placed[1]), _worth_telling(placed[1], placed[0])
    if not any(only):
        return f"the same in both: {_listed(both)}" if both else ""
    parts = []
    for name, own, texts in zip(names, only, (first, second), strict=True):
        if own:
            parts.append(f"only in {name!r}: {_listed(own)}")
        elif not any(t.sure for t in texts):
            parts.append(f"none in {name!r}")
    return "; ".join([*parts, *([f"in both: {_listed(both)}"] if both else [])])


def _run(one: TextLine, others: Sequence[TextLine]) -> Sequence[TextLine]:
    """Return the consecutive `others` that together have the text of `one`: "EXIT", "12" for "EXIT 12". () for none."""
    wanted = _letters(one.text)
    for start in range(len(others)):
        joined = ""
        for end in range(start, len(others)):
            joined += _letters(others[end].text)
            if joined == wanted:
                return others[start : end + 1]
            if not wanted.startswith(joined):
                break
    return ()


def _worth_telling(own: Sequence[tuple[TextLine, Box]], others: Sequence[tuple[TextLine, Box]]) -> list[TextLine]:
    """Return the sure texts, and the unsure ones in whose place the other image has a sure one."""
    sure = [place for text, place in others if text.sure]
    return [text for text, place in own if text.sure or any(place.intersection(other) is not None for other in sure)]


def _place(text: TextLine, pane: View) -> Box:
    """Return the text's box in px of the picture, from the pane's corner."""
    return pane.from_origin(text.box).shifted(-pane.window.x0, -pane.window.y0)


def _letters(text: str) -> str:
    """Return the text by which readings are compared: without spaces, full-width forms as the usual ones."""
    return "".join(unicodedata.normalize("NFKC", text).split())


def _listed(texts: Sequence[TextLine]) -> str:
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return ", ".join(t.quoted for t in texts[:LISTED]) + more
