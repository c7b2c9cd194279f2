"""Detectors: what finds a phrase in an image; which one is used, and whether its weights are there. No torch here."""

from __future__ import annotations

import json
import math
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Protocol

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MissingExtra, ToolAbsent
from editloupe.tools.devices import check_device
from editloupe.tools.settings import ToolSettings
from editloupe.tools.weights import SUFFIXES, digest_of, find_file
from editloupe.values import Box

DEFAULT_DETECTOR: Final = "IDEA-Research/grounding-dino-tiny"
DEFAULT_REVISION: Final = "a2bb814dd30d776dcf7e30523b00659f4f141c71"

FAMILIES: Final = {"grounding-dino": "GroundingDINO", "mm-grounding-dino": "MM-GroundingDINO", "owlv2": "OWLv2"}
"""`model_type` of a model's config.json → what the model calls it."""

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_FILES = ("*.json", "*.txt", "*.safetensors", "*.bin", "*.model")


@dataclass(frozen=True, kw_only=True)
class Detection:
    """box: px of the image.   score: 0 to 1, higher is surer.   label: the words that it matched; may be ""."""

    box: Box
    score: float
    label: str = ""


@dataclass(frozen=True, kw_only=True)
class Sight:
    """What a detector found in one image, and the size in px at which its network saw that image."""

    detections: tuple[Detection, ...]
    width: int
    height: int


class Detector(Protocol):
    """Finds a phrase in images; the same input, the same output. Called from several threads.

    name: what the model and the trace call it.   version: what a judge's identity has of it: model, revision or digest,
    thresholds.   threshold: of a box's score.   side_px: a square part of this side is seen without being reduced.
    """

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    @property
    def threshold(self) -> float: ...

    @property
    def side_px(self) -> int: ...

    def __call__(self, images: Sequence[RGB], phrase: str) -> list[Sight]:
        """One Sight for each H×W×3 uint8 image; boxes of any overlap, inside the image, best first.

        phrase: lower case, without a full stop at its end. Raises ToolError: the phrase is too long for the model, or one
        image does not fit into memory.
        """


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Where a detector's weights lie.

    path: a model folder, or an original GroundingDINO checkpoint.   identity: hub id and commit, or name and digest.
    family: a key of FAMILIES.
    """

    path: Path
    identity: str
    family: str


def open_detector(settings: ToolSettings) -> Detector:
    """The detector that the settings name, found and not yet loaded; one copy a process for the same weights and device.

    Raises ToolAbsent: none is named, and the default is not in the local cache, or the extra is not installed.
    Raises ConfigError: one is named and cannot be had, or the device cannot; MissingExtra.
    """
    missing = [name for name in ("torch", "transformers") if find_spec(name) is None]
    if missing and settings.detector is not None:
        raise MissingExtra(f"Detector {settings.detector!r}", "vision")
    if missing:
        raise ToolAbsent("it needs an object detector: pip install 'editloupe[vision]', and weights")
    check_device(settings.device)
    weights = find_weights(settings.detector)
    with _opening:
        return _shared(weights, settings.device)


def find_weights(name: str | None) -> Weights:
    """The weights of that name, or of DEFAULT_DETECTOR; only a hub id that is named is ever downloaded.

    Raises ToolAbsent (None, and nothing in the cache) and ConfigError.
    """
    if name is None:
        folder = _cached(DEFAULT_DETECTOR, DEFAULT_REVISION)
        if folder is None:
            raise ToolAbsent(
                f"it needs an object detector, and {DEFAULT_DETECTOR} is not in the local Hugging Face cache; name a hub "
                "id, a folder or a checkpoint by --detector or EDITLOUPE_DETECTOR"
            )
        return _in_folder(folder, f"{DEFAULT_DETECTOR}@{DEFAULT_REVISION[:12]}")
    path = Path(name).expanduser()
    if path.is_dir():
        return _in_folder(path, None)
    if path.is_file() or path.suffix.lower() in SUFFIXES:
        file = find_file(name, "detector")
        return Weights(path=file.resolve(), identity=f"{file.name} sha256:{digest_of([file])}", family="grounding-dino")
    if _HUB_ID.fullmatch(name) is None:
        raise ConfigError(f"detector {name!r}: no such folder or file, and no hub id (owner/name or owner/name@revision)")
    repository, _, revision = name.partition("@")
    revision = revision or (DEFAULT_REVISION if repository == DEFAULT_DETECTOR else "main")
    folder = _cached(repository, revision) or _downloaded(repository, revision)
    # A snapshot's folder is named by its commit, whatever branch or tag led to it.
    return _in_folder(folder, f"{repository}@{folder.name[:12]}")


def held(detector: Detector) -> str:
    """What detects and where, as `Holds.holds` gives it."""
    where = getattr(detector, "loaded_on", None)
    return f"{detector.name} on {where}" if where else f"{detector.name} (not loaded)"


def suppress(detections: Sequence[Detection], *, iou: float = 0.5, inside: float = 0.85) -> tuple[Detection, ...]:
    """Non-maximum suppression: of boxes that cover the same thing only the best, best first.

    iou: more overlap than that makes two boxes one.   inside: so does one box holding that share of the other while not
    being much larger (at most four times), as where a tile's border has cut an object.
    """
    kept: list[Detection] = []
    for found in sorted(detections, key=lambda d: (-d.score, *d.box)):
        if not any(_same(found.box, other.box, iou, inside) for other in kept):
            kept.append(found)
    return tuple(kept)


def clean_box(corners: Sequence[float], *, width: int, height: int) -> Box | None:
    """A network's corners in px as a box inside the image; None where they are no numbers or nothing is left."""
    if not all(math.isfinite(v) for v in corners):
        return None
    x0, y0, x1, y1 = max(corners[0], 0.0), max(corners[1], 0.0), min(corners[2], width), min(corners[3], height)
    return Box(x0, y0, x1, y1) if x1 - x0 >= 1 and y1 - y0 >= 1 else None


def _same(one: Box, other: Box, iou: float, inside: float) -> bool:
    common = one.intersection(other)
    if common is None:
        return False
    small, large = sorted((one.area, other.area))
    return one.iou(other) > iou or (common.area > inside * small and large <= 4 * small)


def _in_folder(folder: Path, identity: str | None) -> Weights:
    """A model folder as transformers saves it. Raises ConfigError: no config, an unknown architecture, no weights."""
    config = folder / "config.json"
    try:
        kind = json.loads(config.read_text(encoding="utf-8")).get("model_type")
    except FileNotFoundError:
        raise ConfigError(
            f"detector {str(folder)!r}: has no config.json; expected a folder saved by transformers"
        ) from None
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"detector {str(folder)!r}: config.json cannot be read: {error}") from error
    if kind not in FAMILIES:
        raise ConfigError(
            f"detector {str(folder)!r}: model_type {kind!r} is no detector known here ({', '.join(FAMILIES)})"
        )
    tensors = [f for pattern in ("*.safetensors", "*.bin") for f in folder.glob(pattern)]
    if not tensors:
        raise ConfigError(f"detector {str(folder)!r}: has no weights; expected model.safetensors beside config.json")
    if identity is None:
        files = {f for pattern in _FILES for f in folder.glob(pattern)}
        identity = f"{folder.resolve().name} sha256:{digest_of(files)}"
    return Weights(path=folder.resolve(), identity=identity, family=kind)


def _cached(repository: str, revision: str) -> Path | None:
    """The snapshot in the local cache that has a config and weights; no network."""
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        found = [
            try_to_load_from_cache(repository, name, revision=revision)
            for name in ("config.json", "model.safetensors", "pytorch_model.bin")
        ]
    except HFValidationError as error:
        raise ConfigError(f"detector {repository!r}: {error}") from error
    if not isinstance(found[0], str) or not any(isinstance(f, str) for f in found[1:]):
        return None
    # Not resolved: the files are links into a folder of blobs.
    return Path(found[0]).parent


def _downloaded(repository: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(_FILES)))
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigError(
            f"detector {repository!r} at {revision!r}: not in the local cache, and cannot be downloaded ({first[:200]}); "
            "name a folder that has it"
        ) from error


@cache
def _shared(weights: Weights, device: str) -> Detector:
    from editloupe.tools.transformers_detector import TransformersDetector

    return TransformersDetector(weights, device=device)


_opening = threading.Lock()
