"""Finds files of weights, identifies them, and reads them without running anything that they contain."""

from __future__ import annotations

import hashlib
import pickle
import struct
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from editloupe.errors import ConfigError, MissingExtra
from editloupe.models.devices import import_torch

if TYPE_CHECKING:
    import torch

SUFFIXES: Final = (".safetensors", ".pth", ".pt", ".bin", ".ckpt")

# What torch's reader raises on bytes that are cut off or changed.
_DAMAGE = (
    RuntimeError, EOFError, OSError, ValueError, KeyError, IndexError, AttributeError, TypeError, struct.error,
    AssertionError,
)  # fmt: skip

# Under these keys checkpoints keep their tensors: Real-ESRGAN's two, GroundingDINO's, Lightning's.
_WRAPPERS = ("params_ema", "params", "model", "state_dict")


def find_file(path: str, what: str) -> Path:
    """Return the file of weights. Raises ConfigError where it is missing, a folder, empty, or has another suffix."""
    found = Path(path).expanduser()
    if not found.exists():
        raise ConfigError(f"{what} {path!r}: no such file; expected weights ({', '.join(SUFFIXES)})")
    if not found.is_file():
        kind = "a folder" if found.is_dir() else "a pipe or a device"
        raise ConfigError(f"{what} {path!r} is {kind}; expected one file of weights ({', '.join(SUFFIXES)})")
    if found.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"{what} {path!r}: expected a file of weights ({', '.join(SUFFIXES)}), found {found.suffix!r}")
    if found.stat().st_size == 0:
        raise ConfigError(f"{what} {path!r} is empty; fetch the weights again")
    return found


def digest_of(files: Iterable[Path]) -> str:
    """Return 12 hex digits of SHA-256 over the files' names and bytes. They are part of a tool's version."""
    whole = hashlib.sha256()
    for file in sorted(files):
        seen = file.stat()
        whole.update(f"{file.name} {_sha256(file, seen.st_size, seen.st_mtime_ns)}\n".encode())
    return whole.hexdigest()[:12]


@cache
def _sha256(file: Path, _size: int, _mtime_ns: int) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def load_tensors(path: Path) -> dict[str, torch.Tensor]:
    """Return name → tensor, on the CPU.

    Tensors are unwrapped from "params_ema", "params", "model" or "state_dict", and a "module." before a name is dropped.
    Only tensors are read: a pickle that would run code is refused.
    Raises ConfigError where the file is refused, damaged, or has no tensors.
    """
    torch = import_torch()
    loaded = _read(path)
    named = loaded if isinstance(loaded, Mapping) else {}
    named = next((named[name] for name in _WRAPPERS if isinstance(named.get(name), Mapping)), named)
    tensors = {str(k).removeprefix("module."): v for k, v in named.items() if isinstance(v, torch.Tensor)}
    if not tensors:
        raise ConfigError(f"{path}: holds no named tensors; expected a checkpoint (a state dict)")
    return tensors


def refused(path: Path, error: pickle.UnpicklingError) -> ConfigError:
    """Return the error for a pickle with more in it than tensors.

    Of torch's page of advice, which says how to load such a file all the same, only the reason is passed on.
    """
    reason = next((line.strip() for line in str(error).splitlines() if "GLOBAL" in line), "it is no plain checkpoint")
    return ConfigError(
        f"{path}: refused: it holds more than tensors, and loading such a file can run code ({reason.partition('. ')[0]}); "
        "use the official weights, or convert them to .safetensors"
    )


@contextmanager
def quietly() -> Iterator[None]:
    """Turn off transformers' progress bars and load reports. What matters of them is checked, and raised."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()


@contextmanager
def reading(where: str, path: Path) -> Iterator[None]:
    """Translate what transformers raises while it reads a folder, quietly.

    where: the beginning of messages, for example "detector 'FOLDER'".
    Raises ConfigError for files that are damaged, missing or not safe.
    """
    from safetensors import SafetensorError

    try:
        with quietly():
            yield
    except pickle.UnpicklingError as error:
        raise refused(path, error) from error
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError) as error:
        first = " ".join(str(error).split())[:300]
        raise ConfigError(f"{where}: cannot be loaded ({type(error).__name__}: {first}); fetch it again") from error


def load_saved(architecture: Any, folder: Path, where: str, **options: Any) -> Any:
    """Return the model that transformers saved, in fp32 on the CPU. Every parameter is from the files.

    architecture: a class with `from_pretrained`.   where: as in `reading`.   options: of `from_pretrained`, such as another
    dtype. Raises ConfigError.
    """
    options = {"dtype": import_torch().float32, **options}
    with reading(where, folder):
        model, info = architecture.from_pretrained(
            folder, local_files_only=True, output_loading_info=True, trust_remote_code=False, **options
        )
    lacking = missing_parameters(model, info["missing_keys"])
    if lacking or info.get("mismatched_keys"):
        wrong = lacking or [str(key) for key in info["mismatched_keys"]]
        raise ConfigError(
            f"{where}: its weights are not those of the architecture in config.json: {len(wrong)} tensors are missing or "
            f"of another shape ({', '.join(sorted(wrong)[:3])} …)"
        )
    return model


def load_processor(folder: Path, family: str) -> Any:
    """Return the processor of pictures and text, with a chat template, that transformers saved.   family: `model_type`.

    Raises ConfigError.
    """
    import transformers
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    where = f"model {str(folder)!r}"
    if family not in PROCESSOR_MAPPING_NAMES:
        raise ConfigError(f"{where}: {family} is no model of images and text, such as qwen2_5_vl")
    kind: Any = getattr(transformers, PROCESSOR_MAPPING_NAMES[family])
    # Videos would need torchvision. Pictures are Pillow's also where it is there, so that pixels agree between machines.
    names = [name for name in kind.get_attributes() if "video" not in name]
    kind = type(kind.__name__, (kind,), {"get_attributes": classmethod(lambda _: names)})
    with reading(where, folder):
        found = kind.from_pretrained(folder, backend="pil", local_files_only=True, trust_remote_code=False)
    found.chat_template = found.chat_template or found.tokenizer.chat_template
    if not found.chat_template:
        raise ConfigError(f"{where}: has no chat template (chat_template.jinja); take its Instruct version")
    return found


def load_adapter(model: Any, base: Path, folder: Path) -> Any:
    """Return a model with the adapter that peft saved in a folder.   base: the model's own folder, for messages.

    Raises ConfigError where the adapter belongs to another base; MissingExtra without peft.
    """
    if find_spec("peft") is None:
        raise MissingExtra(f"The adapter {str(folder)!r}", "local")
    from peft import PeftConfig, get_peft_model

    where = f"adapter {str(folder)!r} on the base {str(base)!r}"
    with reading(where, folder), warnings.catch_warnings():
        # What peft only warns of is looked at below.
        warnings.simplefilter("ignore")
        adapted = get_peft_model(model, PeftConfig.from_pretrained(str(folder), inference_mode=True))
        found = adapted.load_adapter(str(folder), "default", torch_device="cpu")
    if odd := [*found.unexpected_keys, *(key for key in found.missing_keys if "default" in key)]:
        told = f"{len(odd)} of its tensors do not belong to this base, or are missing ({odd[0]} …)"
        raise ConfigError(f"{where}: {told}; name the base that it was trained on with ?base=FOLDER")
    return adapted


def missing_parameters(model: Any, missing: Sequence[str]) -> list[str]:
    """Return those of the missing keys whose parameters nothing else filled; transformers would leave them random."""
    names: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(name)
    gone = set(missing)
    return [shared[0] for shared in names.values() if gone.issuperset(shared)]


def _read(path: Path) -> object:
    torch = import_torch()
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    safe = path.suffix.lower() == ".safetensors"
    try:
        return load_file(path) if safe else torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise refused(path, error) from error
    except (*_DAMAGE, SafetensorError) as error:
        what, first = "safetensors file" if safe else "checkpoint", str(error).partition("\n")[0]
        raise ConfigError(f"{path}: is damaged, cut off or no {what} ({first[:200]}); fetch it again") from error
