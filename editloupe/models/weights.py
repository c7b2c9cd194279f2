"""Weights: found in a folder, in the local Hugging Face cache or on the hub, identified, and read without running them."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from editloupe.errors import ConfigError, EditLoupeError, first_words
from editloupe.files import read_bytes
from editloupe.models.devices import import_torch
from editloupe.values import parse_json

_FILES: Final = ("*.json", "*.txt", "*.jinja", "*.safetensors", "*.bin", "*.model")
_WRAPPERS: Final = ("params_ema", "params", "model", "state_dict")
"""Under these keys checkpoints keep their tensors: Real-ESRGAN's two, GroundingDINO's, Lightning's."""


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

    repository, _, named = name.partition("@")
    try:
        folder = cached_folder(repository, named or revision)
        folder = folder or Path(snapshot_download(repository, revision=named or revision, allow_patterns=[*patterns]))
    except (OSError, ValueError) as error:  # all errors of huggingface_hub are one or the other
        raise ConfigError(
            f"{what} {name!r}: no such folder or file, not in the local cache, and cannot be downloaded as a hub id "
            f"(owner/name or owner/name@revision): {first_words(error)[:200]}"
        ) from error
    # A snapshot's folder is named by its commit, whatever branch or tag led to it.
    return folder, f"{repository}@{folder.name[:12]}"


def cached_folder(repository: str, revision: str) -> Path | None:
    """Return the folder of a revision in the local cache, without network; None where it or its weights are not there."""
    from huggingface_hub import snapshot_download

    try:
        folder = Path(snapshot_download(repository, revision=revision, local_files_only=True))
    except FileNotFoundError:
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


def digest_of(files: Iterable[Path]) -> str:
    """Return 12 hex digits of SHA-256 over the files' names and bytes. They are part of a tool's version."""
    lines = [f"{file.name} {_sha256(file, file.stat().st_size, file.stat().st_mtime_ns)}\n" for file in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()[:12]


@cache
def _sha256(file: Path, _size: int, _mtime_ns: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def load_tensors(path: Path) -> dict[str, Any]:
    """Return name → tensor, on the CPU. Only tensors are read: a pickle that would run code is refused.

    Tensors are unwrapped from "params_ema", "params", "model" or "state_dict", and a "module." before a name is dropped.
    Raises ConfigError where the file is refused, damaged, or has no tensors.
    """
    torch = import_torch()
    from safetensors.torch import load_file

    with translated(f"{path}"):
        safe = path.suffix.lower() == ".safetensors"
        loaded = load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    named = loaded if isinstance(loaded, Mapping) else {}
    named = next((named[name] for name in _WRAPPERS if isinstance(named.get(name), Mapping)), named)
    tensors = {str(k).removeprefix("module."): v for k, v in named.items() if isinstance(v, torch.Tensor)}
    if not tensors:
        raise ConfigError(f"{path}: holds no named tensors; expected a checkpoint (a state dict)")
    return tensors


def load_saved(architecture: Any, folder: Path | None, where: str, **options: Any) -> Any:
    """Return the model that transformers saved, in fp32 on the CPU. Every parameter is from the files.

    architecture: a class with `from_pretrained`.   folder: None where `options` hold the tensors.   options: of
    `from_pretrained`, such as another dtype. Raises ConfigError, which begins with `where`.
    """
    options = {"dtype": import_torch().float32, "local_files_only": True, "trust_remote_code": False, **options}
    with reading(where):
        model, info = architecture.from_pretrained(folder, output_loading_info=True, **options)
    # transformers would leave them random.
    if wrong := sorted(map(str, (*info["missing_keys"], *info["mismatched_keys"]))):
        told = f"{len(wrong)} tensors of its architecture are missing or of another shape ({', '.join(wrong[:3])} …)"
        raise ConfigError(f"{where}: {told}")
    return model


def reading(where: str) -> AbstractContextManager[None]:
    """Translate what transformers raises over a folder, its progress bars and reports off. Raises ConfigError."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return translated(where)


@contextmanager
def translated(where: str) -> Iterator[None]:
    """Translate what the readers of weights raise over bytes. Raises ConfigError, which begins with `where`."""
    try:
        yield
    except EditLoupeError:
        raise
    except pickle.UnpicklingError as error:
        # torch's page of advice, which says how to load such a file all the same, is not passed on.
        told = "refused: it holds more than tensors, and loading such a file can run code; use the official weights"
        raise ConfigError(f"{where}: {told}, or convert them to .safetensors") from error
    except Exception as error:  # what is raised over cut or changed bytes has no one class
        told = f"damaged, cut off or of another kind ({type(error).__name__}: {first_words(error)})"
        raise ConfigError(f"{where}: cannot be loaded, since it is {told}; fetch it again") from error
