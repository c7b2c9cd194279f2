"""Finds a detector's weights and opens it: a folder, a checkpoint, the local Hugging Face cache, the hub. No torch here."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from editloupe.errors import MissingExtra, ModelAbsent
from editloupe.models.detect.base import FAMILIES, Detector
from editloupe.models.devices import check_device
from editloupe.models.hub import Kind, Weights
from editloupe.models.weights import SUFFIXES, digest_of, find_file

DEFAULT_DETECTOR: Final = "IDEA-Research/grounding-dino-tiny"
DEFAULT_REVISION: Final = "a2bb814dd30d776dcf7e30523b00659f4f141c71"

_KIND: Final = Kind(name="detector", families=FAMILIES, default=DEFAULT_DETECTOR, revision=DEFAULT_REVISION)


def open_detector(name: str | None, device: str) -> Detector:
    """Return the detector of that name, found and not yet loaded. None takes DEFAULT_DETECTOR from the local cache.

    Raises ModelAbsent where no name is given and the default is not in the local cache, or the extra is not installed.
    Raises ConfigError where the named detector or the device cannot be had. MissingExtra is such an error.
    """
    missing = [package for package in ("torch", "transformers") if find_spec(package) is None]
    if missing and name is not None:
        raise MissingExtra(f"Detector {name!r}", "vision")
    if missing:
        raise ModelAbsent("it needs an object detector: pip install 'editloupe[vision]', and weights")
    check_device(device)
    return _shared(find_weights(name), device)


def find_weights(name: str | None) -> Weights:
    """Return where the weights of that name are. None is DEFAULT_DETECTOR, which is never downloaded.

    Raises ModelAbsent where the default is not in the local cache, and ConfigError where a named one cannot be had.
    """
    if name is None:
        found = _KIND.cached_default()
        if found is None:
            raise ModelAbsent(
                f"it needs an object detector, and {DEFAULT_DETECTOR} is not in the local Hugging Face cache; name a hub "
                "id, a folder or a checkpoint by --detector or EDITLOUPE_DETECTOR"
            )
        return found
    path = Path(name).expanduser()
    if not path.is_dir() and (path.is_file() or path.suffix.lower() in SUFFIXES):
        file = find_file(name, "detector")
        return Weights(path=file.resolve(), identity=f"{file.name} sha256:{digest_of([file])}", family="grounding-dino")
    return _KIND.find(name)


@cache
def _shared(weights: Weights, device: str) -> Detector:
    from editloupe.models.detect.transformers import TransformersDetector

    return TransformersDetector(weights, device=device)
