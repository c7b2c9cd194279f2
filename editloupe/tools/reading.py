"""Reads the text in crops for an observation: at native resolution, cleaned, compared between two images.

Text from an image comes from outside, as an instruction does: it cannot forge a tag, a line or a name of ours.
"""

from __future__ import annotations

import difflib
import math
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from editloupe import models
from editloupe.data.images import RGB, ImageStore
from editloupe.errors import ModelAbsent, ToolError
from editloupe.imaging import render
from editloupe.imaging.align import resize
from editloupe.models.read_text import SkimmingReader, TextReader
from editloupe.replies import neutralise
from editloupe.tools.settings import ToolSettings
from editloupe.values import Box, ImageRef, Json, View

REVISION: Final = "2"
"""Of what is done around a reader. It changes with anything that changes what an observation says about text."""
LEAST_CONFIDENCE: Final = 0.85
"""Least confidence of a text that is reported. Words drawn on photographs are nearly always read at 0.95 and more. Most of
what a reader sees in texture is below 0.85."""
LEAST_CONFIDENCE_OF_SHORT: Final = 0.95
"""The same for one or two characters: a reader easily takes a knob, a wheel or gravel for them."""
MAX_CHARACTERS: Final = 80
"""Longest text in an observation. The rest is left out, which an ellipsis shows. The whole text is compared."""
SKIPPED: Final = "no place that may hold letters"
"""Why a crop was not read."""
LISTED: Final = 6
"""Readings of one kind that are written out; the rest are counted."""

ALIKE: Final = 0.6
"""Least share of letters, in order, that two readings of one place have in common to be readings of one text."""
CONTAINED: Final = 4
"""Letters from which a text counts as seen where it is part of a longer line."""

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
        self,
        images: ImageStore,
        panes: Sequence[View],
        *,
        names: tuple[str, str],
        crops: Sequence[str],
        upright: bool = True,
    ) -> TextNotes:
        """Return the notes on pictures of two panes: what is read in both, and what in one only.

        panes: two for each picture, the first image's first.
        names: of the two images in the conversation.
        crops: the pictures' names in the conversation.
        upright: False where one image is mirrored or turned: the same place of a pane is then another of the picture.
        """
        pictures = dict(zip(crops, zip(panes[::2], panes[1::2], strict=True), strict=True))
        return self._notes(images, pictures, names, again=upright)

    def _notes(
        self, images: ImageStore, pictures: Mapping[str, Sequence[View]], names: Sequence[str], *, again: bool = False
    ) -> TextNotes:
        """Return the notes on pictures of one pane or two, by name. names: of the image of each pane."""
        if isinstance(self._reader, NoReader):
            return TextNotes(lines=(), data={"text_reading": {"off": self._reader.reason}})
        lines: list[str] = []
        data: dict[str, Json] = {}
        skipped: list[Json] = []
        looks: dict[str, Json] = {}
        found = False
        for crop, panes in pictures.items():
            try:
                if not any(may_hold_text(self._reader, images, pane.origin, pane.region) for pane in panes):
                    skipped.append(crop)
                    data[crop] = []
                    continue
                texts = [read(self._reader, images, pane.origin, pane.region) for pane in panes]
                if len(panes) == 1:
                    texts = [tuple(t for t in texts[0] if t.sure)]
                    said = _listed(texts[0])
                else:
                    comparison = _Comparison(self._reader, images, panes, names, texts, again=again)
                    said = comparison.in_words()
                    if comparison.looks:
                        looks[crop] = comparison.looks
            except ToolError as error:
                lines.append(f"Text in {crop} could not be read: {error}.")
                data[crop] = str(error)
                continue
            data[crop] = [t.to_json(name) for name, of_pane in zip(names, texts, strict=True) for t in of_pane]
            if said:
                found = True
                lines.append(f"Text read in {crop}: {said}.")
        if found:
            lines.append(
                f"Text is read by {self._reader.name}, with its confidence from 0 to 1: it may be misread or missed, so "
                "check it in the picture."
            )
        said_of: dict[str, Json] = {"reader": self._reader.version, "crops": data}
        said_of |= {"skipped": {"crops": skipped, "reason": SKIPPED}} if skipped else {}
        said_of |= {"second_looks": looks} if looks else {}
        return TextNotes(lines=tuple(lines), data={"text_reading": said_of})


def may_hold_text(reader: TextReader, images: ImageStore, image: ImageRef, region: Box) -> bool:
    """Return False where a reader that can skim sees no place for text in `region` of an image.

    The region is seen as it is, or as far reduced as it would be to be read. Raises ToolError as the reader does.
    """
    if not isinstance(reader, SkimmingReader):
        return True
    cut = _for_reader(images, image, region, most=1.0)
    return cut is not None and reader.skim(cut)


def read(reader: TextReader, images: ImageStore, image: ImageRef, region: Box) -> tuple[TextLine, ...]:
    """Return the text in `region` of an image, in reading order, unsure readings included. Boxes are in px of the image.

    Raises ToolError as the reader does.
    """
    cut = _for_reader(images, image, region)
    if cut is None:
        return ()
    x0, y0, x1, y1 = region.ints()
    size = (cut.shape[1], cut.shape[0])
    found = []
    for one in reader(cut):
        text = cleaned(one.text)
        inside = one.box.intersection(Box.whole(width=size[0], height=size[1]))
        if not text or inside is None:
            continue
        box = inside.scaled((x1 - x0) / size[0], (y1 - y0) / size[1]).shifted(x0, y0)
        found.append(TextLine(text=text, confidence=one.confidence, box=box, cut=_cut(inside, size, image, region)))
    return tuple(found)


def _for_reader(images: ImageStore, image: ImageRef, region: Box, *, most: float = math.inf) -> RGB | None:
    """Return a region of an image at the size at which it is read, enlarged at most so many times.

    None where it is too small to hold text.
    """
    plain = render.crop(images.array(image), region)
    height, width = plain.shape[:2]
    if min(width, height) < LEAST_SIDE_PX:
        return None
    scale = min(most, working_scale(width, height))
    return resize(plain, width=max(1, round(scale * width)), height=max(1, round(scale * height)))


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


class _Comparison:
    """What is read in one of two images only, in both, and otherwise in each.

    Spaces and line breaks make no difference. An unsure reading counts where it agrees with a sure one: otherwise a line
    that is read at 0.86 in one image and at 0.84 in the other would seem to be gone. What only one image seems to have is
    looked for once more, in the same place of the other.
    Raises ToolError as the reader does.
    """

    def __init__(
        self,
        reader: TextReader,
        images: ImageStore,
        panes: Sequence[View],
        names: Sequence[str],
        texts: Sequence[Sequence[TextLine]],
        *,
        again: bool,
    ) -> None:
        """again: whether to look once more, in the other image, for what only one seems to have."""
        self.looks: list[Json] = []
        """The second looks, for programs."""
        self._reader, self._images, self._panes, self._names, self._texts = reader, images, panes, names, texts
        self._only: tuple[list[TextLine], list[TextLine]] = ([], [])
        self._both: list[TextLine] = []
        self._pairs: list[tuple[TextLine, TextLine]] = []
        self._match()
        for side in (0, 1) if again else ():
            for one in [t for t in self._only[side] if t.sure]:
                if one in self._only[side]:
                    self._look_again(one, side)

    def in_words(self) -> str:
        """Return "" where there is no text to speak of."""
        only = [[t for t in own if t.sure] for own in self._only]
        both = _listed(self._both)
        if not any(only) and not self._pairs:
            return both and f"the same in both: {both}"
        parts = []
        for name, own, texts in zip(self._names, only, self._texts, strict=True):
            if own:
                parts.append(f"only in {name!r}: {_listed(own)}")
            elif not (texts or self._both or self._pairs):
                parts.append(f"none in {name!r}")
        if self._pairs:
            said = ", ".join(
                f"{one.quoted} in {self._names[0]!r} but {other.quoted} in {self._names[1]!r}"
                for one, other in self._pairs[:LISTED]
            )
            more = f" and {len(self._pairs) - LISTED} more" if len(self._pairs) > LISTED else ""
            parts.append(f"reads differently: {said}{more}")
        return "; ".join([*parts, *([f"in both: {both}"] if both else [])])

    def _match(self) -> None:
        only_1, only_2 = self._only
        rest = list(self._texts[1])
        for one in self._texts[0]:
            same = _run(one, rest)
            if not same:
                only_1.append(one)
                continue
            rest = [t for t in rest if t not in same]
            if one.sure or all(t.sure for t in same):
                self._both.append(one)
        for one in rest:
            same = _run(one, only_1)
            if not same:
                only_2.append(one)
                continue
            only_1[:] = [t for t in only_1 if t not in same]
            self._both.extend(t for t in same if t.sure or one.sure)

    def _look_again(self, one: TextLine, side: int) -> None:
        """Settle a text that only one image seems to have, by what stands in its place in the other."""
        here, there = self._panes[side], self._panes[1 - side]
        place = _place(one, here)
        rivals = [t for t in self._only[1 - side] if _place(t, there).intersection(place) is not None]
        if any(t.sure for t in rivals) and _likeness(one, _as_one(rivals)) < ALIKE:
            return
        margin = 0.5 * min(place.width, place.height)
        grown = Box(place.x0 - margin, place.y0 - margin, place.x1 + margin, place.y1 + margin)
        ground = Box.whole(width=there.origin.width, height=there.origin.height)
        region = there.to_origin(grown.shifted(there.window.x0, there.window.y0)).intersection(ground)
        if region is None:
            return
        # The look is ours, not a crop that the model sees: what it cuts is not told.
        seen = [replace(t, cut=()) for t in read(self._reader, self._images, there.origin, region.rounded_out())]
        self.looks.append(
            {
                "image": self._names[1 - side],
                "for": one.to_json(self._names[side])["text"],
                "read": [t.to_json(self._names[1 - side]) for t in seen],
            }
        )
        wanted = _letters(one.text)
        if _run(one, seen) or (len(wanted) >= CONTAINED and any(wanted in _letters(t.text) for t in seen)):
            self._both.append(one)
        else:
            within = [t for t in seen if _place(t, there).intersection(place) is not None]
            others = [other for texts in (within, rivals) if texts and _likeness(one, other := _as_one(texts)) >= ALIKE]
            if not others:
                return
            other = max(others, key=lambda t: _likeness(one, t))
            self._pairs.append((one, other) if side == 0 else (other, one))
        self._only[side].remove(one)
        for rival in rivals:
            self._only[1 - side].remove(rival)


def _as_one(texts: Sequence[TextLine]) -> TextLine:
    """Return lines as one: their texts in reading order, the least of their confidences, a box around all."""
    x0, y0, x1, y1 = zip(*(t.box for t in texts), strict=True)
    cut = tuple(dict.fromkeys(side for t in texts for side in t.cut))
    return TextLine(
        text=" ".join(t.text for t in texts),
        confidence=min(t.confidence for t in texts),
        box=Box(min(x0), min(y0), max(x1), max(y1)),
        cut=cut,
    )


def _likeness(one: TextLine, other: TextLine) -> float:
    """Return the share 0..1 of the letters of both that agree in order."""
    return difflib.SequenceMatcher(None, _letters(one.text), _letters(other.text), autojunk=False).ratio()


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


def _place(text: TextLine, pane: View) -> Box:
    """Return the text's box in px of the picture, from the pane's corner."""
    return pane.from_origin(text.box).shifted(-pane.window.x0, -pane.window.y0)


def _letters(text: str) -> str:
    """Return the text by which readings are compared: without spaces, full-width forms as the usual ones."""
    return "".join(unicodedata.normalize("NFKC", text).split())


def _listed(texts: Sequence[TextLine]) -> str:
    more = f" and {len(texts) - LISTED} more" if len(texts) > LISTED else ""
    return ", ".join(t.quoted for t in texts[:LISTED]) + more
