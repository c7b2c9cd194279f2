"""Finds a detector's weights and opens it: a folder, a checkpoint, the local Hugging Face cache, the hub. No torch here."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Final

from editloupe.models.detect.base import FAMILIES, Detector
from editloupe.models.hub import Kind, Weights
from editloupe.models.weights import SUFFIXES, digest_of, find_file

DEFAULT_DETECTOR: Final = "IDEA-Research/grounding-dino-tiny"
DEFAULT_REVISION: Final = "a2bb814dd30d776dcf7e30523b00659f4f141c71"


class _Detectors(Kind):
    """Folders and hub ids, and original checkpoints of GroundingDINO, which are files."""

    def find(self, name: str) -> Weights:
        path = Path(name).expanduser()
        if path.is_dir() or not (path.is_file() or path.suffix.lower() in SUFFIXES):
            return super().find(name)
        file = find_file(name, self.name)
        return Weights(path=file.resolve(), identity=f"{file.name} sha256:{digest_of([file])}", family="grounding-dino")


DETECTORS: Final = _Detectors(
    name="detector",
    need="an object detector",
    option="detector",
    families=FAMILIES,
    default=DEFAULT_DETECTOR,
    revision=DEFAULT_REVISION,
)


def open_detector(name: str | None, device: str) -> Detector:
    """Return the detector of that name, found and not yet loaded. None takes DEFAULT_DETECTOR from the local cache.

    name: a folder that transformers saved, a hub id, or the file of an original GroundingDINO checkpoint.
    Raises as `Kind.wanted`.
    """
    return _shared(DETECTORS.wanted(name, device), device)


@cache
def _shared(weights: Weights, device: str) -> Detector:
    from editloupe.models.detect.transformers import TransformersDetector

    return TransformersDetector(weights, device=device)
