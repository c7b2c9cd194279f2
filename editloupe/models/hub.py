"""Finds a model that transformers saved: in a folder, in the local Hugging Face cache, or on the hub. No torch here."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from editloupe.errors import ConfigError, first_words
from editloupe.files import read_bytes
from editloupe.models.weights import digest_of
from editloupe.values import parse_json

_FILES: Final = ("*.json", "*.txt", "*.jinja", "*.safetensors", "*.bin", "*.model")


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Where a model's weights are."""

    path: Path
    """A folder saved by transformers, or a file."""
    identity: str
    """Hub id and commit, or name and digest."""
    family: str
    """`model_type` in the folder's config.json."""


def model_folder(
    name: str, what: str, *, revision: str = "main", patterns: Collection[str] = _FILES
) -> tuple[Path, str | None]:
    """Return the folder of a path or a hub id, which is downloaded where the local cache lacks it; its hub id and commit.

    what: the beginning of messages, such as "detector".   revision: of a hub id without one.   patterns: of its files.
    Raises ConfigError where it cannot be had.
    """
    path = Path(name).expanduser()
    if path.is_dir():
        return path, None
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError

    repository, _, named = name.partition("@")
    try:
        folder = cached_folder(repository, named or revision)
        folder = folder or Path(snapshot_download(repository, revision=named or revision, allow_patterns=[*patterns]))
    except (HfHubHTTPError, HFValidationError, OSError) as error:
        raise ConfigError(
            f"{what} {name!r}: no such folder or file, not in the local cache, and cannot be downloaded as a hub id "
            f"(owner/name or owner/name@revision): {first_words(error)[:200]}"
        ) from error
    # A snapshot's folder is named by its commit, whatever branch or tag led to it.
    return folder, f"{repository}@{folder.name[:12]}"


def cached_folder(repository: str, revision: str) -> Path | None:
    """Return the folder of a revision in the local cache, without network; None where it or its weights are not there."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        folder = Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except LocalEntryNotFoundError:
        return None
    return folder if _has_tensors(folder.rglob("*")) else None


def saved_weights(folder: Path, identity: str | None, what: str, families: Collection[str] | None) -> Weights:
    """Return the weights in a folder that transformers saved.

    identity: None for a digest of its files.   families: each `model_type` that can be opened; None for any.
    Raises ConfigError where the folder has no config, an unknown architecture, or no weights.
    """
    where = f"{what} {str(folder)!r}"
    try:
        family = parse_json(read_bytes(folder / "config.json"))["model_type"]
    except (OSError, ValueError, TypeError, KeyError) as error:
        problem = f"config.json cannot be read ({type(error).__name__}: {first_words(error)})"
        raise ConfigError(f"{where}: {problem}; expected a folder saved by transformers") from error
    if families is not None and str(family) not in families:
        raise ConfigError(f"{where}: model_type {family!r} is no {what} known here ({', '.join(families)})")
    if not _has_tensors(folder.iterdir()):
        raise ConfigError(f"{where}: has no weights; expected model.safetensors beside config.json")
    return Weights(path=folder.resolve(), identity=identity or identity_of(folder), family=str(family))


def identity_of(folder: Path, patterns: Collection[str] = _FILES) -> str:
    """Return a folder's name with a digest of the files that make the model."""
    files = {file for pattern in patterns for file in folder.glob(pattern) if file.is_file()}
    return f"{folder.resolve().name} sha256:{digest_of(files)}"


def _has_tensors(files: Iterable[Path]) -> bool:
    return any(file.suffix in (".safetensors", ".bin") for file in files)
