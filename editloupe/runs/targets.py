"""Target objects and their share of the image, for data with boxes and without (DLEBench, appendix 11 and Figure 3).

Where the data have boxes, these are taken. Else the object's name is read from the instruction (`target_phrase`), and an
object detector looks for it in the source image. What cannot be found out is counted and has no number.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, ImageError, StorageError, ToolError
from editloupe.models.detect.base import Detector
from editloupe.runs.executors import in_threads
from editloupe.runs.target_phrase import WHOLE_IMAGE, Phrase, PhraseFinder
from editloupe.tools.search import cleaned, search
from editloupe.values import Box, ImageRef, Json, Sample, digest

How: TypeAlias = Literal["boxes", "detector", "whole image", ""]


@dataclass(frozen=True, kw_only=True)
class TargetArea:
    """One target of one edit.

    item: the sample's id; samples of several editors that share source and instruction count once.
    box: px of the source image, x0 y0 x1 y1.   area_ratio: its area ÷ the image's, above 0 up to 1; None exactly when
    status is not "ok".   how: from the data's "boxes", by the "detector", or the "whole image".
    score, detections: of the best box and how many there were; None where no detector was asked.
    status: "ok", "input_error", what a phrase ends in (`Phrase`), "no_detector", "not_found", "tool_failed", "not_reached".
    """

    item: str
    instruction: str = ""
    source: ImageRef | None = None
    phrase: str | None = None
    phrase_by: str = ""
    box: Box | None = None
    area_ratio: float | None = None
    how: How = ""
    score: float | None = None
    detections: int | None = None
    status: str = "ok"
    reason: str = ""

    def to_json(self) -> dict[str, Json]:
        return {
            "item": self.item,
            "instruction": self.instruction,
            "phrase": self.phrase,
            "phrase_by": self.phrase_by,
            "box": None if self.box is None else [round(v, 2) for v in self.box],
            "area_ratio": self.area_ratio,
            "how": self.how,
            "score": self.score,
            "detections": self.detections,
            "status": self.status,
            "reason": self.reason,
        }


class Kept:
    """Answers as they come, a JSON line each, so that the same search again pays for none twice. Thread-safe.

    path: None keeps nothing beyond this process. A line that was cut off is asked again.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._lock = path, threading.Lock()
        self._known: dict[str, Mapping[str, Json]] = {}
        if path is not None and path.exists():
            for line in path.read_bytes().splitlines():
                try:
                    row = json.loads(line)
                    self._known[row["key"]] = row["value"]
                except (ValueError, KeyError, TypeError):
                    continue  # cut off, or none of ours

    def get(self, key: str) -> Mapping[str, Json] | None:
        return self._known.get(key)

    def put(self, key: str, value: Mapping[str, Json]) -> None:
        """Raises StorageError where the file cannot be written."""
        with self._lock:
            self._known[key] = value
            if self._path is None:
                return
            line = json.dumps({"key": key, "value": value}, ensure_ascii=True)
            try:
                with self._path.open("a", encoding="utf-8") as file:
                    # The line break comes first: what stands before may have been cut off.
                    file.write(f"\n{line}")
            except OSError as error:
                raise StorageError(f"{self._path} cannot be written: {error.strerror or error}") from error


@dataclass(frozen=True, kw_only=True)
class TargetSearch:
    """What a search needs.

    detector: None where there is none, and `no_detector` says why.   asking, looking: calls of LMM and detector at once.
    tell: called with (what, done, total).
    """

    phrases: PhraseFinder
    detector: Detector | None
    asking: int
    looking: int
    images: ImageStore
    no_detector: str = ""
    kept: Kept = field(default_factory=lambda: Kept(None))
    stop: threading.Event = field(default_factory=threading.Event)
    tell: Callable[[str, int, int], None] = lambda what, done, total: None

    def find(self, loaded: Loaded) -> list[TargetArea]:
        """Every target of a data set in its order, then the rows that could not be read.

        A failure is a row with its status. Once `stop` is set, what is left is "not_reached".
        """
        items = {(s.source.sha256, s.instruction): s for s in reversed(loaded.samples)}
        samples = list(reversed(items.values()))
        bare = [s for s in samples if not _boxes(s)]
        named = self._phrases(dict.fromkeys(s.instruction for s in bare))
        wanted = [(s.source, p.text) for s in bare if (p := named[s.instruction]).text not in (None, WHOLE_IMAGE)]
        placed = self._placed(dict.fromkeys((ref, text) for ref, text in wanted if text is not None))
        rows = []
        for sample in samples:
            given = _boxes(sample)
            rows += [_given(sample, name, box) for name, box in given]
            rows += [] if given else [_found(sample, named[sample.instruction], placed)]
        seen = {row.item for row in rows}
        rejected = {r.id: r.message for r in loaded.rejected if r.id not in seen}
        return rows + [TargetArea(item=id_, status="input_error", reason=why) for id_, why in rejected.items()]

    def _phrases(self, instructions: Iterable[str]) -> dict[str, Phrase]:
        finder, todo = self.phrases, list(instructions)
        late = Phrase(text=None, by=finder.by, status="not_reached", reason="the search was stopped before")
        named = dict.fromkeys(todo, late)

        def one(instruction: str) -> tuple[str, Phrase]:
            key = digest(["phrase", finder.id, instruction])
            known = self.kept.get(key)
            if known is not None:
                return instruction, Phrase(text=str(known["text"]), by=finder.by)
            phrase = finder(instruction, self.images)
            if phrase.status == "ok" and not finder.by_rules:
                self.kept.put(key, {"text": phrase.text})
            return instruction, phrase

        for done, (instruction, phrase) in enumerate(in_threads(one, todo, width=self.asking, stop=self.stop), start=1):
            named[instruction] = phrase
            self.tell("naming targets", done, len(todo))
        return named

    def _placed(self, wanted: Iterable[tuple[ImageRef, str]]) -> dict[tuple[ImageRef, str], TargetArea]:
        """What the detector says of each image and phrase, as a row that lacks its sample."""
        todo, detector = list(wanted), self.detector
        if detector is None:
            return dict.fromkeys(todo, TargetArea(item="", status="no_detector", reason=self.no_detector))
        placed = dict.fromkeys(todo, TargetArea(item="", status="not_reached", reason="the search was stopped before"))
        for done, (asked, row) in enumerate(in_threads(self._look, todo, width=self.looking, stop=self.stop), start=1):
            placed[asked] = row
            self.tell("looking for targets", done, len(todo))
        return placed

    def _look(self, asked: tuple[ImageRef, str]) -> tuple[tuple[ImageRef, str], TargetArea]:
        assert self.detector is not None
        (image, phrase), detector = asked, self.detector
        key = digest(["box", detector.version, image.sha256, phrase])
        known = self.kept.get(key)
        try:
            if known is None:
                found = search(detector, self.images.array(image), cleaned(phrase)).detections
                best: list[Json] = [*found[0].box, round(found[0].score, 4)] if found else []
                known = {"best": best, "found": len(found)}
                self.kept.put(key, known)
        except ImageError as error:
            return asked, TargetArea(item="", status="input_error", reason=str(error))
        except ToolError as error:
            return asked, TargetArea(item="", status="tool_failed", reason=str(error))
        except (ConfigError, StorageError):
            raise
        except Exception as error:  # noqa: BLE001 - one image that a network chokes on must not cost the others
            return asked, TargetArea(item="", status="tool_failed", reason=f"{type(error).__name__}: {error}")
        numbers, count = known["best"], known["found"]
        assert isinstance(numbers, list) and isinstance(count, int)
        if not numbers:
            told = f"no box reached the score {detector.threshold:.2f} in the image or its tiles"
            return asked, TargetArea(item="", status="not_found", detections=0, reason=told)
        *corners, score = (float(n) for n in numbers if isinstance(n, int | float))
        box = Box(*corners)
        return asked, TargetArea(
            item="", box=box, area_ratio=ratio(box, image), how="detector", score=score, detections=count
        )


def ratio(box: Box, image: ImageRef) -> float | None:
    """A box's share of an image's area, above 0 up to 1, as far as it lies inside; None where it does not."""
    inside = box.intersection(Box.whole(width=image.width, height=image.height))
    return None if inside is None else inside.area / (image.width * image.height)


def _boxes(sample: Sample) -> list[tuple[str | None, Box]]:
    return [(t.name, t.boxes["source"]) for t in sample.targets if "source" in t.boxes]


def _given(sample: Sample, name: str | None, box: Box) -> TargetArea:
    row = TargetArea(item=sample.id, instruction=sample.instruction, source=sample.source)
    share = ratio(box, sample.source)
    if share is None:
        return replace(row, status="input_error", reason=f"box {list(box)} lies outside the image")
    return replace(row, phrase=name, phrase_by="the data" if name else "", box=box, area_ratio=share, how="boxes")


def _found(sample: Sample, phrase: Phrase, placed: Mapping[tuple[ImageRef, str], TargetArea]) -> TargetArea:
    known = TargetArea(
        item=sample.id,
        instruction=sample.instruction,
        source=sample.source,
        phrase=phrase.text,
        phrase_by=phrase.by,
        status=phrase.status,
        reason=phrase.reason,
    )
    if phrase.text is None:
        return known
    if phrase.text == WHOLE_IMAGE:
        whole = Box.whole(width=sample.source.width, height=sample.source.height)
        return replace(known, box=whole, area_ratio=1.0, how="whole image")
    found = placed[sample.source, phrase.text]
    return replace(
        found,
        item=known.item,
        instruction=known.instruction,
        source=known.source,
        phrase=known.phrase,
        phrase_by=known.phrase_by,
    )
