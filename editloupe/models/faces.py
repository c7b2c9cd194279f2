"""Faces: where they are, and a vector of who each one is. OpenCV's YuNet and SFace, or what another package brings.

Another package brings another embedder as a kind of model (`editloupe.models`), such as "arcface". `--faces arcface` or
`--faces arcface=WEIGHTS` takes it. Its opener returns a `FaceEmbedder`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Protocol

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe import plugins
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, ModelAbsent, ToolError
from editloupe.models.weights import digest_of
from editloupe.values import Box

MOST_FACES: Final = 100
"""Of one image; the surest ones."""

_FILES: Final = (
    "face_detection_yunet_….onnx (MIT) and face_recognition_sface_….onnx (Apache-2.0) of OpenCV's model zoo, "
    "https://github.com/opencv/opencv_zoo"
)
_WIDTHS: Final = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
_STRIDES: Final = (8, 16, 32)
_OUTPUTS: Final = tuple(f"{head}_{stride}" for head in _WIDTHS for stride in _STRIDES)
"""What YuNet says: for each cell of 8, 16 and 32 px the score twice, the box and five landmarks."""
_PADDED: Final = 32
"""px; OpenCV pads an image to a multiple of this side."""
_ALIGNED: Final = 112
"""px; the side of an aligned face."""
_VECTOR: Final = 128
"""Numbers of SFace's vector."""


@dataclass(frozen=True, kw_only=True)
class Face:
    """One face of an image."""

    box: Box
    """In px of the image."""
    score: float
    """How sure the detector is, 0 to 1."""
    vector: NDArray[np.float32]
    """Of one length for all faces of an embedder. The cosine of two vectors says how much two faces are one person's."""


class FaceEmbedder(Protocol):
    """Finds faces and embeds them. The same pixels give the same faces. It is called from several threads."""

    name: str
    """For messages."""
    version: str
    """With the identity of the weights; part of a judge's identity."""

    def __call__(self, rgb: RGB, *, score: float, side: int) -> Sequence[Face]:
        """Return the faces of an image, the surest first; () for none.

        rgb: H×W×3 uint8.   score: the least score of a face, 0 to 1.   side: px; a larger image is reduced to this side
        before faces are looked for, and no image is enlarged.
        Raises ToolError where it cannot look at all.
        """


class OpenCVFaces:
    """YuNet (detector) and SFace (embedder) through OpenCV, on the CPU. Faces are aligned by their landmarks and embedded
    in the image's own resolution."""

    def __init__(self, detector: Path, recogniser: Path) -> None:
        self.detector, self.recogniser = detector, recogniser
        self.name = f"YuNet and SFace ({detector.name}, {recogniser.name})"
        self.version = f"opencv yunet sface sha256:{digest_of([detector, recogniser])}"
        self._lock = threading.Lock()
        self._loaded: tuple[Any, Any, Any] | None = None
        self._checked: set[tuple[int, int]] = set()

    def __call__(self, rgb: RGB, *, score: float, side: int) -> tuple[Face, ...]:
        """Return the faces, as `FaceEmbedder` says. Raises ConfigError where a file is not what it must be."""
        height, width = rgb.shape[:2]
        scale = min(1.0, side / max(height, width))
        small = (max(1, round(width * scale)), max(1, round(height * scale)))
        bgr = np.ascontiguousarray(rgb[..., ::-1])
        seen = bgr if small == (width, height) else cv2.resize(bgr, small, interpolation=cv2.INTER_AREA)
        # OpenCV's networks keep their state between calls.
        with self._lock, _quiet():
            net, detector, recogniser = self._ready()
            try:
                self._check(net, small)
                detector.setInputSize(small)
                detector.setScoreThreshold(score)
                rows = detector.detect(seen)[1]
                found = () if rows is None else _scaled(rows[:MOST_FACES], width / small[0], height / small[1])
                return tuple(
                    Face(box=box, score=min(float(row[14]), 1.0), vector=_vector(recogniser, bgr, row))
                    for row in found
                    if (box := _box(row, width, height)) is not None
                )
            except cv2.error as error:
                raise ToolError(f"{self.name} failed on {width}×{height} px: {_short(error)}") from error

    def prepare(self) -> None:
        """Load both networks. Raises ConfigError for a file that is no ONNX file, or another network's."""
        with self._lock, _quiet():
            self._ready()

    def _ready(self) -> tuple[Any, Any, Any]:
        if self._loaded is None:
            with _reading(self.detector):
                net = cv2.dnn.readNetFromONNX(str(self.detector))
                self._check(net, (96, 64))
                detector = cv2.FaceDetectorYN.create(str(self.detector), "", (96, 64))
            with _reading(self.recogniser):
                recogniser = cv2.FaceRecognizerSF.create(str(self.recogniser), "")
                given = recogniser.feature(np.zeros((_ALIGNED, _ALIGNED, 3), np.uint8))
            if given.shape != (1, _VECTOR) or given.dtype != np.float32:
                raise _other(self.recogniser, f"its output is {given.shape}, expected (1, {_VECTOR}) as SFace's")
            self._loaded = net, detector, recogniser
        return self._loaded

    def _check(self, net: Any, size: tuple[int, int]) -> None:
        """Raise ConfigError unless the detector's outputs are YuNet's: OpenCV reads past the end of smaller ones."""
        width, height = (-(-side // _PADDED) * _PADDED for side in size)
        if (width, height) in self._checked:
            return
        names = set(net.getUnconnectedOutLayersNames())
        if names != set(_OUTPUTS):
            found = ", ".join(sorted(names)[:4])
            raise _other(self.detector, f"its outputs are {found}, …, expected YuNet's cls_8, obj_8, bbox_8, kps_8, …")
        net.setInput(np.zeros((1, 3, height, width), np.float32))
        for name, values in zip(_OUTPUTS, net.forward(list(_OUTPUTS)), strict=True):
            head, stride = name.split("_")
            expected = (1, (height // int(stride)) * (width // int(stride)), _WIDTHS[head])
            if values.shape != expected or values.dtype != np.float32:
                raise _other(self.detector, f"its output {name} is {values.shape} of {width}×{height} px, not {expected}")
        self._checked.add((width, height))


def open_faces(name: str | None, device: str) -> FaceEmbedder:
    """Return the embedder of that name, found and not yet loaded.

    name: a folder with one ONNX file of YuNet and one of SFace, or KIND or KIND=WEIGHTS of a kind of model that another
    package brings.   device: for such a kind; OpenCV's networks run on the CPU.
    Raises ModelAbsent where no name was given, ConfigError where a name was given and cannot be had.
    """
    if name is None:
        raise ModelAbsent(
            f"it needs a detector and an embedder of faces: put {_FILES}, into one folder, and name the folder by "
            "--faces or EDITLOUPE_FACES (docs/measures.md)"
        )
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _shared(_file(folder, "yunet").resolve(), _file(folder, "sface").resolve())
    kind, _, weights = name.partition("=")
    if kind in plugins.names("models") and kind != "faces":
        opener: Any = plugins.load("models", kind)
        made = opener(weights or None, device)
        if not callable(made) or not hasattr(made, "version"):
            raise ConfigError(f"faces {name!r}: {kind} is a kind of model that finds no faces; see FaceEmbedder")
        embedder: FaceEmbedder = made
        return embedder
    what = "is a file" if folder.exists() else "no such folder"
    raise ConfigError(f"faces {name!r}: {what}; expected a folder with {_FILES}, or a kind of model of another package")


def _file(folder: Path, network: str) -> Path:
    """Return the one ONNX file of a network. Raises ConfigError for none and for several."""
    found = sorted(f for f in folder.iterdir() if f.suffix.lower() == ".onnx" and network in f.name.lower() and f.is_file())
    if len(found) != 1:
        there = ", ".join(f.name for f in found) or "none"
        raise ConfigError(
            f"faces {str(folder)!r}: expected one file *{network}*.onnx, found {there}; the folder must hold {_FILES}"
        )
    return found[0]


@cache
def _shared(detector: Path, recogniser: Path) -> OpenCVFaces:
    return OpenCVFaces(detector, recogniser)


def _scaled(rows: NDArray[np.float32], by_x: float, by_y: float) -> NDArray[np.float32]:
    """Return rows of x, y, width, height, five landmarks and score in px of the image's own size, without broken ones."""
    scaled = rows.copy()
    scaled[:, 0:14:2] *= by_x
    scaled[:, 1:14:2] *= by_y
    return scaled[np.isfinite(scaled).all(axis=1)]


def _box(row: NDArray[np.float32], width: int, height: int) -> Box | None:
    """Return the part of a face's box that lies in the image; None for none."""
    x, y, w, h = (float(v) for v in row[:4])
    sides = max(x, 0.0), max(y, 0.0), min(x + w, width), min(y + h, height)
    return Box(*sides) if sides[0] < sides[2] and sides[1] < sides[3] else None


def _vector(recogniser: Any, bgr: RGB, row: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.array(recogniser.feature(recogniser.alignCrop(bgr, row))[0], np.float32)


@contextmanager
def _reading(file: Path) -> Iterator[None]:
    try:
        yield
    except cv2.error as error:
        raise _other(file, _short(error)) from error


def _other(file: Path, problem: str) -> ConfigError:
    return ConfigError(
        f"faces {str(file)!r}: is damaged, or not the network that its name says ({problem}); expected {_FILES}"
    )


def _short(error: cv2.error) -> str:
    """Return OpenCV's reason without its file names, on one line."""
    text = " ".join(str(getattr(error, "err", "") or error).split())
    return text[:200]


@contextmanager
def _quiet() -> Iterator[None]:
    """Turn off what OpenCV prints of networks. What matters of it is raised."""
    logging = cv2.utils.logging
    level = logging.getLogLevel()
    logging.setLogLevel(logging.LOG_LEVEL_SILENT)
    try:
        yield
    finally:
        logging.setLogLevel(level)
