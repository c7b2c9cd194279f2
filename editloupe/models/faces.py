"""Faces: where they are, and a vector of who each one is. OpenCV's YuNet and SFace, or a kind of another package.

`--set faces=FOLDER` names OpenCV's two ONNX files, `--set faces=KIND=WEIGHTS` a kind that opens a `FaceEmbedder`.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Final, Protocol, cast

import cv2
import numpy as np
from numpy.typing import NDArray

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, ModelAbsent, ToolError, first_words
from editloupe.models.opening import of_kind
from editloupe.models.weights import digest_of
from editloupe.values import Box

MOST_FACES: Final = 100
"""Of one image; the surest ones."""
_FILES: Final = (
    "face_detection_yunet_….onnx (MIT) and face_recognition_sface_….onnx (Apache-2.0) of OpenCV's model zoo, "
    "https://github.com/opencv/opencv_zoo"
)
_HEADS: Final = {"cls": 1, "obj": 1, "bbox": 4, "kps": 10}
"""What YuNet says for each cell of 8, 16 and 32 px, in as many numbers: the score twice, the box and five landmarks."""


@dataclass(frozen=True, kw_only=True)
class Face:
    """One face of an image."""

    box: Box
    """In px of the image."""
    score: float
    """0 to 1; higher is surer."""
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

        rgb: H×W×3 uint8.   score: the least score of a face, 0 to 1.   side: px; a larger image is reduced to it first.
        Raises ToolError where it cannot look at all.
        """


class OpenCVFaces:
    """YuNet and SFace on the CPU. Faces are aligned by their landmarks and embedded in the image's own resolution."""

    def __init__(self, detector: Path, recognizer: Path) -> None:
        self.detector, self.recognizer = detector, recognizer
        self.name = f"YuNet and SFace ({detector.name}, {recognizer.name})"
        self.version = f"opencv yunet sface sha256:{digest_of([detector, recognizer])}"
        self._lock = threading.Lock()

    def __call__(self, rgb: RGB, *, score: float, side: int) -> tuple[Face, ...]:
        height, width = rgb.shape[:2]
        scale = min(1.0, side / max(height, width))
        small = (max(1, round(width * scale)), max(1, round(height * scale)))
        bgr = np.ascontiguousarray(rgb[..., ::-1])
        seen = bgr if small == (width, height) else cv2.resize(bgr, small, interpolation=cv2.INTER_AREA)
        # OpenCV's networks keep their state between calls.
        with self._lock:
            detector, recognizer = self._networks
            try:
                detector.setInputSize(small)
                detector.setScoreThreshold(score)
                rows = detector.detect(seen)[1]
                rows = np.empty((0, 15), np.float32) if rows is None else rows[:MOST_FACES]
                # x, y, width, height, five landmarks and a score, in px of the image's own size.
                rows[:, :14] *= np.tile((width / small[0], height / small[1]), 7)
                rows = [row for row in rows if np.isfinite(row).all()]
                vectors = [np.array(recognizer.feature(recognizer.alignCrop(bgr, row))[0], np.float32) for row in rows]
            except cv2.error as error:
                raise ToolError(f"{self.name} failed on {width}×{height} px: {first_words(error)}") from error
        return tuple(
            Face(box=box, score=min(float(row[14]), 1.0), vector=vector)
            for row, vector in zip(rows, vectors, strict=True)
            if (box := Box(*row[:2], *(row[:2] + row[2:4])).intersection(Box(0, 0, width, height))) is not None
        )

    def prepare(self) -> None:
        """Load both networks. Raises ConfigError for a file that is no ONNX file, or another network's."""
        with self._lock:
            assert self._networks

    @cached_property
    def _networks(self) -> tuple[Any, Any]:
        # OpenCV's own lines on networks are off: what matters of them is raised.
        cv2.utils.logging.setLogLevel(cv2.utils.logging.LOG_LEVEL_SILENT)
        file = self.detector
        try:
            _check_outputs(cv2.dnn.readNetFromONNX(str(file)))
            detector = cv2.FaceDetectorYN.create(str(file), "", (64, 128))
            file = self.recognizer
            recognizer = cv2.FaceRecognizerSF.create(str(file), "")
            given = recognizer.feature(np.zeros((112, 112, 3), np.uint8))
            if given.shape != (1, 128) or given.dtype != np.float32:
                raise ValueError(f"its output is {given.shape}, expected (1, 128) as SFace's")
        except (cv2.error, ValueError) as error:
            problem = f"is damaged, or not the network that its name says ({first_words(error)[:200]})"
            raise ConfigError(f"faces {str(file)!r}: {problem}; expected {_FILES}") from error
        return detector, recognizer


def _check_outputs(net: Any) -> None:
    """Raise ValueError unless a detector's outputs are YuNet's: OpenCV reads past the end of smaller ones."""
    width, height = 64, 128
    cells = {stride: height // stride * (width // stride) for stride in (8, 16, 32)}
    expected = {f"{head}_{stride}": (1, n, numbers) for head, numbers in _HEADS.items() for stride, n in cells.items()}
    net.setInput(np.zeros((1, 3, height, width), np.float32))
    for (name, shape), values in zip(expected.items(), net.forward(list(expected)), strict=True):
        if values.shape != shape or values.dtype != np.float32:
            raise ValueError(f"its output {name} is {values.shape} of {width}×{height} px, not {shape}")


@cache
def open_faces(name: str | None, device: str) -> FaceEmbedder:
    """Return the embedder of a folder or of KIND=WEIGHTS, found and not yet loaded.   device: for a kind.

    Raises ModelAbsent where no name was given, ConfigError where a name was given and cannot be had.
    """
    if name is None:
        raise ModelAbsent(f"it needs {_FILES}, in one folder, named by --set faces=… or EDITLOUPE_FACES (docs/measures.md)")
    if (made := of_kind("faces", name, device)) is not None:
        return cast("FaceEmbedder", made)
    files = []
    for network in ("yunet", "sface"):
        found = sorted(f for f in Path(name).expanduser().glob("*.onnx") if network in f.name.lower() and f.is_file())
        if len(found) != 1:
            there = ", ".join(f.name for f in found) or "none"
            raise ConfigError(f"faces {name!r}: expected a folder with one *{network}*.onnx of {_FILES}; found {there}")
        files.append(found[0].resolve())
    return OpenCVFaces(*files)
