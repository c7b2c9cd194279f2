"""Finds a detector's weights and opens it: a folder, a checkpoint, the local Hugging Face cache, the hub. No torch here."""

from __future__ import annotations

import re
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from editloupe.errors import ConfigError, MissingExtra, ModelAbsent
from editloupe.files import read_bytes
from editloupe.models.detect.base import FAMILIES, Detector, Weights
from editloupe.models.devices import check_device
from editloupe.models.weights import SUFFIXES, digest_of, find_file
from editloupe.values import parse_json

DEFAULT_DETECTOR: Final = "IDEA-Research/grounding-dino-tiny"
DEFAULT_REVISION: Final = "a2bb814dd30d776dcf7e30523b00659f4f141c71"

_HUB_ID = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_FILES = ("*.json", "*.txt", "*.safetensors", "*.bin", "*.model")


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
        folder = _cached(DEFAULT_DETECTOR, DEFAULT_REVISION)
        if folder is None:
            raise ModelAbsent(
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


def _in_folder(folder: Path, identity: str | None) -> Weights:
    """Return the weights in a folder that transformers saved.

    Raises ConfigError where the folder has no config, an unknown architecture, or no weights.
    """
    config = folder / "config.json"
    try:
        special = (file for file in folder.iterdir() if file.exists() and not (file.is_file() or file.is_dir()))
        if odd := next(special, None):
            raise ConfigError(f"detector {str(folder)!r}: {odd.name} is no plain file")
        kind = parse_json(read_bytes(config)).get("model_type")
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
    """Return the snapshot in the local cache that has a config and weights, without network; None where there is none."""
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
    from editloupe.models.detect.transformers import TransformersDetector

    return TransformersDetector(weights, device=device)
