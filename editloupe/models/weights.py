"""Identifies files of weights, and reads them without running anything that they contain."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from editloupe.errors import ConfigError, EditLoupeError, first_words
from editloupe.models.devices import import_torch

_WRAPPERS: Final = ("params_ema", "params", "model", "state_dict")
"""Under these keys checkpoints keep their tensors: Real-ESRGAN's two, GroundingDINO's, Lightning's."""


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


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Translate what transformers raises over a folder, its progress bars and reports off. Raises ConfigError."""
    from transformers.utils import logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    with translated(where):
        yield


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
