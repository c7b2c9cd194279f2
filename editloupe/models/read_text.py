"""Reads the text in a picture. The one reader is RapidOCR, where the extra `ocr` is installed.

Its detector takes 1.2 s for each megapixel, nearly all of a reading's time. So it can also skim a picture: the detector
then sees only the few places that look like letters, reduced.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Generic, Protocol, TypeVar, runtime_checkable

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MissingExtra, ModelAbsent, ToolError
from editloupe.imaging.lettering import LetterRow, lettering
from editloupe.values import Box

_Found = TypeVar("_Found")
_PACKAGES: Final = ("rapidocr", "onnxruntime")

# The files that rapidocr 3.10 ships, by what they do; with others the readings, and so the judge, would be others.
_MODELS: Final = {
    "Det": ("PP-OCRv6_det_small.onnx", "090f04abcd9d9a7498bc4ebf677e4cb9bdce1fe4197ddb7e529f1ef44e1ff94f"),
    "Cls": ("ch_ppocr_mobile_v2.0_cls_mobile.onnx", "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c"),
    "Rec": ("PP-OCRv6_rec_small.onnx", "6f327246b50388f3c176ae304bd95767ea6dc0c9ae92153ef8cbe210b3c14884"),
}

_REMEMBERED: Final = 256
"""Pictures whose readings are kept: the criteria of a sample ask for the same crops."""

# To skim: the detector sees each of the likeliest places by itself, so small that it only just finds letters. What it takes
# for a line is read, a little larger: half of what it finds in pictures without text gives no reading.
_SKIMMED_PLACES: Final = 3
_SKIMMED_HEIGHT: Final = 10
"""Px of a letter, to be found."""
_TRIED_HEIGHT: Final = 20
"""Px of a letter, to be read."""
_SKIMMED_AROUND: Final = 1.5
"""What is seen around a place, as a multiple of its letters' height."""
_SKIMMED_LENGTH: Final = 22
"""Most of a place, as a multiple of its letters' height; the rest of a line is left out."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One line of text as it was read."""

    text: str
    """Untrusted, as the reader gives it."""
    confidence: float
    """0..1; higher is surer."""
    box: Box
    """Upright, in px of the picture that was read."""


class TextReader(Protocol):
    """Reads lines of text. The same pixels give the same readings. It is called from several threads."""

    name: str
    """What the LMM and the trace call it."""
    version: str
    """Its part of a judge's identity."""

    def __call__(self, rgb: RGB) -> tuple[Reading, ...]:
        """Return the lines in H×W×3 uint8 RGB, in reading order; () where there is no text.

        Raises ToolError where it cannot read at all.
        """


@runtime_checkable
class SkimmingReader(TextReader, Protocol):
    """A reader that tells cheaply where there is nothing to read. One that does not is called with every picture."""

    def skim(self, rgb: RGB) -> bool:
        """Return False where a quick look at H×W×3 uint8 RGB finds no place that may hold letters.

        The same pixels give the same answer. Raises ToolError where it cannot look at all.
        """


def open_reader(name: str | None, device: str) -> TextReader:
    """Return the reader of that name, found and not yet loaded. None and "rapidocr" are RapidOCR.

    device: not used; RapidOCR runs on the CPU.
    Raises ModelAbsent where no name is given and RapidOCR cannot be had.
    Raises ConfigError for an unknown name, and for a named reader whose models are missing or others.
    Raises MissingExtra where the named reader is not installed.
    """
    if name is not None and name.casefold() != "rapidocr":
        raise ConfigError(f"unknown reader {name!r}; expected auto, off or rapidocr")
    missing = [package for package in _PACKAGES if find_spec(package) is None]
    if missing and name is not None:
        raise MissingExtra(f"Reader {name!r}", "ocr")
    if missing:
        raise ModelAbsent(f"{' and '.join(missing)} not installed (pip install 'editloupe[ocr]')")
    try:
        return _shared()
    except ConfigError as error:
        if name is None:
            raise ModelAbsent(str(error)) from error
        raise


class RapidReader:
    """RapidOCR's detector, line orientation and recogniser on onnxruntime, on the CPU, one thread a call.

    folder: has the three files of _MODELS; nothing is ever downloaded.
    Raises ConfigError where the files are missing or others.
    """

    name = "RapidOCR"

    def __init__(self, folder: Path) -> None:
        self._files = {part: _checked(folder / name, sha256) for part, (name, sha256) in _MODELS.items()}
        self.version = f"RapidOCR {metadata.version('rapidocr')} PP-OCRv6 small"
        self._loading = threading.Lock()
        self._engine: Any = None
        self._readings: _Remembered[tuple[Reading, ...]] = _Remembered()
        self._skimmed: _Remembered[bool] = _Remembered()

    def __call__(self, rgb: RGB) -> tuple[Reading, ...]:
        return self._readings.of(rgb, self._read)

    def skim(self, rgb: RGB) -> bool:
        return self._skimmed.of(rgb, self._skim)

    def prepare(self) -> None:
        """Load the three networks now (about a second)."""
        self._opened()

    def _read(self, rgb: RGB) -> tuple[Reading, ...]:
        with self._told(rgb):
            found = self._opened()(_bgr(rgb))
        if found.txts is None:
            return ()
        lines = zip(found.txts, found.scores, found.boxes, strict=True)
        return tuple(
            Reading(text=str(text), confidence=min(1.0, max(0.0, float(confidence))), box=box)
            for text, confidence, quad in lines
            if (box := _upright(quad)) is not None
        )

    def _skim(self, rgb: RGB) -> bool:
        return any(
            self._finds(_reduced(rgb, row, _SKIMMED_HEIGHT)) and self._read(_reduced(rgb, row, _TRIED_HEIGHT))
            for row in _apart(lettering(rgb))
        )

    def _finds(self, rgb: RGB) -> bool:
        with self._told(rgb):
            return self._opened().text_det(_bgr(rgb)).boxes is not None

    @contextmanager
    def _told(self, rgb: RGB) -> Iterator[None]:
        """Make onnxruntime's errors ours."""
        from rapidocr.inference_engine.onnxruntime.main import ONNXRuntimeError

        # No lock: sessions of onnxruntime are made to be called from several threads, and RapidOCR's own steps keep
        # nothing between calls as long as no parameter is passed here.
        try:
            yield
        except ONNXRuntimeError as error:
            last = str(error).strip().rpartition("\n")[2]
            raise ToolError(f"{self.name} failed on {rgb.shape[1]}×{rgb.shape[0]} px: {last[:200]}") from error

    def _opened(self) -> Any:
        with self._loading:
            if self._engine is not None:
                return self._engine
            from rapidocr import RapidOCR

            engine = RapidOCR(
                params={
                    # It warns of every picture without text.
                    "Global.log_level": "critical",
                    # Sizes are the caller's to choose (`reading.working_scale`), not the engine's.
                    "Global.min_side_len": 1,
                    "Det.limit_type": "min",
                    "Det.limit_side_len": 32,
                    # A line is read alone: in a batch it would be padded to the longest, and read otherwise beside others.
                    "Rec.rec_batch_num": 1,
                    # What stands on at most so many places is read: 25 ms each.
                    "Det.max_candidates": 100,
                    # The judge runs samples side by side; threads inside each would fight for the same cores.
                    "EngineConfig.onnxruntime.intra_op_num_threads": 1,
                    "EngineConfig.onnxruntime.inter_op_num_threads": 1,
                    **{f"{part}.model_path": str(file) for part, file in self._files.items()},
                }
            )
            # Each network is loaded when first needed, the second and third only at the first text.
            word = np.full((64, 256, 3), 255, dtype=np.uint8)
            engine(cv2.putText(word, "EDITED", (40, 44), cv2.FONT_HERSHEY_SIMPLEX, 1.2, (0, 0, 0), 2, cv2.LINE_AA))
            self._engine = engine
            return engine


class _Remembered(Generic[_Found]):
    """What was found in the last pictures, by their pixels. Thread-safe."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[tuple[int, ...], bytes], _Found] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, rgb: RGB, find: Callable[[RGB], _Found]) -> _Found:
        key = (rgb.shape, hashlib.sha256(np.ascontiguousarray(rgb).data).digest())
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                return self._known[key]
        found = find(rgb)
        with self._lock:
            self._known[key] = found
            while len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found


def _apart(rows: Sequence[LetterRow]) -> list[LetterRow]:
    """Return the first rows that are not one another, as far as they are looked at."""
    apart: list[LetterRow] = []
    for row in rows:
        if all(row.box.iou(other.box) < 0.3 for other in apart):
            apart.append(row)
        if len(apart) == _SKIMMED_PLACES:
            break
    return apart


def _reduced(rgb: RGB, row: LetterRow, height: int) -> RGB:
    """Return the row and what is around it, its letters at most `height` px high.

    The sides are multiples of 32 px, as the detector's are.
    """
    x0, y0, x1, y1 = (round(v) for v in row.box)
    around = round(_SKIMMED_AROUND * row.height)
    cut = rgb[max(0, y0 - around) : y1 + around, max(0, x0 - around) : x1 + around]
    scale = min(1.0, height / row.height)
    size = (max(1, round(scale * cut.shape[1])), max(1, round(scale * cut.shape[0])))
    most = _SKIMMED_LENGTH * height
    small = cv2.resize(cut, size, interpolation=cv2.INTER_AREA)[:most, :most]
    h, w = small.shape[:2]
    return np.asarray(cv2.copyMakeBorder(small, 0, -h % 32, 0, -w % 32, cv2.BORDER_REPLICATE), dtype=np.uint8)


def _bgr(rgb: RGB) -> NDArray[np.uint8]:
    return np.ascontiguousarray(rgb[..., ::-1])


def _checked(file: Path, sha256: str) -> Path:
    if not file.is_file():
        raise ConfigError(f"RapidOCR's model {file.name} is missing in {file.parent}; install rapidocr 3.10 again")
    with file.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != sha256:
        raise ConfigError(
            f"RapidOCR's model {file} is damaged or another (SHA-256 {found[:12]}…, expected {sha256[:12]}…); "
            "install rapidocr 3.10 again"
        )
    return file


def _upright(quad: Any) -> Box | None:
    """Return the upright box around four corners (4×2, x right, y down); None where they lie on one line."""
    (x0, y0), (x1, y1) = quad.min(axis=0), quad.max(axis=0)
    return Box(float(x0), float(y0), float(x1), float(y1)) if x0 < x1 and y0 < y1 else None


@cache
def _shared() -> RapidReader:
    spec = find_spec("rapidocr")
    assert spec is not None and spec.origin is not None
    return RapidReader(Path(spec.origin).parent / "models")
