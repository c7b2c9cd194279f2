"""Finds a model that transformers saved: in a folder, in the local Hugging Face cache, or on the hub. No torch here."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from editloupe.errors import ConfigError, MissingExtra, ModelAbsent
from editloupe.files import read_bytes
from editloupe.models.devices import check_device
from editloupe.models.weights import digest_of, load_adapter, load_processor, load_saved
from editloupe.values import parse_json

_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_FILES: Final = ("*.json", "*.txt", "*.jinja", "*.safetensors", "*.bin", "*.model")
_CONFIGS: Final = ("config.json", "adapter_config.json")
_WHOLE: Final = ("model.safetensors", "pytorch_model.bin", "adapter_model.safetensors")
_INDEX: Final = "model.safetensors.index.json"
"""Names the files that a large model's weights are split into."""


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Where a model's weights are."""

    path: Path
    """A folder saved by transformers, or a file."""
    identity: str
    """Hub id and commit, or name and digest."""
    family: str
    """`model_type` in the folder's config.json."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A kind of model: what is looked for, and what is taken where nothing is named."""

    name: str
    """In messages, for example "detector"."""
    need: str
    """What is missing where there is none, for example "an object detector"."""
    option: str
    """Of the command line, without its dashes. The environment's name follows from it."""
    families: Collection[str] | None
    """Each `model_type` that can be opened; None where that shows when it is loaded."""
    default: str
    """Hub id."""
    revision: str
    """The default's commit, 40 hex digits."""

    def wanted(self, name: str | None, device: str) -> Weights:
        """Return the weights of that name, for this device. None is the default, which is never downloaded.

        Raises ModelAbsent where no name is given and the default is not in the local cache, or the extra is not installed.
        Raises ConfigError where the named weights or the device cannot be had. MissingExtra is such an error.
        """
        missing = [package for package in ("torch", "transformers") if find_spec(package) is None]
        if missing and name is not None:
            raise MissingExtra(f"{self.name[0].upper()}{self.name[1:]} {name!r}", "vision")
        if missing:
            raise ModelAbsent(f"it needs {self.need}: pip install 'editloupe[vision]', and weights")
        check_device(device)
        found = self.cached_default() if name is None else self.find(name)
        if found is None:
            raise ModelAbsent(
                f"it needs {self.need}, and {self.default} is not in the local Hugging Face cache; name a hub id or a "
                f"folder by --{self.option} or EDITLOUPE_{self.option.upper()}"
            )
        return found

    def cached_default(self) -> Weights | None:
        """Return the default from the local cache; None where it is not there. Nothing is downloaded."""
        folder = _cached(self, self.default, self.revision)
        return None if folder is None else _in_folder(self, folder, f"{self.default}@{self.revision[:12]}")

    def find(self, name: str) -> Weights:
        """Return the weights in a folder or under a hub id, which is downloaded where the local cache lacks it.

        Raises ConfigError where they cannot be had.
        """
        return self.in_folder(*self.folder(name))

    def folder(self, name: str) -> tuple[Path, str | None]:
        """Return the folder of that name, as `find` takes it, and the hub id with its commit where it came from the hub.

        Raises ConfigError.
        """
        path = Path(name).expanduser()
        if path.is_dir():
            return path, None
        if _HUB_ID.fullmatch(name) is None:
            raise ConfigError(
                f"{self.name} {name!r}: no such folder or file, and no hub id (owner/name or owner/name@revision)"
            )
        repository, _, revision = name.partition("@")
        revision = revision or (self.revision if repository == self.default else "main")
        folder = _cached(self, repository, revision) or _downloaded(self, repository, revision)
        # A snapshot's folder is named by its commit, whatever branch or tag led to it.
        return folder, f"{repository}@{folder.name[:12]}"

    def in_folder(self, folder: Path, identity: str | None) -> Weights:
        """Return the weights in a folder that transformers saved.   identity: None for a digest of its files.

        Raises ConfigError where the folder has no config, an unknown architecture, or no weights.
        """
        return _in_folder(self, folder, identity)


def _in_folder(kind: Kind, folder: Path, identity: str | None) -> Weights:
    config = folder / "config.json"
    where = f"{kind.name} {str(folder)!r}"
    try:
        special = (file for file in folder.iterdir() if file.exists() and not (file.is_file() or file.is_dir()))
        if odd := next(special, None):
            raise ConfigError(f"{where}: {odd.name} is no plain file")
        family = parse_json(read_bytes(config)).get("model_type")
    except FileNotFoundError:
        raise ConfigError(f"{where}: has no config.json; expected a folder saved by transformers") from None
    except (OSError, ValueError, AttributeError) as error:
        raise ConfigError(f"{where}: config.json cannot be read: {error}") from error
    if kind.families is not None and family not in kind.families:
        raise ConfigError(f"{where}: model_type {family!r} is no {kind.name} known here ({', '.join(kind.families)})")
    tensors = [f for pattern in ("*.safetensors", "*.bin") for f in folder.glob(pattern)]
    if not tensors:
        raise ConfigError(f"{where}: has no weights; expected model.safetensors beside config.json")
    return Weights(path=folder.resolve(), identity=identity or identity_of(folder), family=str(family))


def identity_of(folder: Path) -> str:
    """Return a folder's name with a digest of the files that make the model."""
    files = {f for pattern in _FILES for f in folder.glob(pattern)}
    return f"{folder.resolve().name} sha256:{digest_of(files)}"


def _cached(kind: Kind, repository: str, revision: str) -> Path | None:
    """Return the snapshot in the local cache that has a config and weights, without network; None where there is none."""
    if find_spec("huggingface_hub") is None:
        return None
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        looked = {
            name: try_to_load_from_cache(repository, name, revision=revision) for name in (*_CONFIGS, *_WHOLE, _INDEX)
        }
    except HFValidationError as error:
        raise ConfigError(f"{kind.name} {repository!r}: {error}") from error
    found = {name: Path(file) for name, file in looked.items() if isinstance(file, str)}
    config = next((found[name] for name in _CONFIGS if name in found), None)
    if config is None or not (any(name in found for name in _WHOLE) or (_INDEX in found and _is_whole(found[_INDEX]))):
        return None
    # Not resolved: the files are links into a folder of blobs.
    return config.parent


def _is_whole(index: Path) -> bool:
    """Return whether all files that an index names lie beside it: a download may have ended between them."""
    try:
        return all((index.parent / name).is_file() for name in set(parse_json(read_bytes(index))["weight_map"].values()))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False


def _downloaded(kind: Kind, repository: str, revision: str) -> Path:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=list(_FILES)))
    except (HfHubHTTPError, LocalEntryNotFoundError, HFValidationError, OSError) as error:
        first = str(error).partition("\n")[0]
        raise ConfigError(
            f"{kind.name} {repository!r} at {revision!r}: not in the local cache, and cannot be downloaded "
            f"({first[:200]}); name a folder that has it"
        ) from error


CHAT: Final = Kind(
    name="model", need="a model that reads images and text", option="backend", families=None, default="", revision=""
)


@dataclass(frozen=True, kw_only=True)
class Adapted:
    """A model, with the adapter on it if there is one."""

    model: Weights
    adapter: Weights | None = None

    @property
    def version(self) -> str:
        """Family and identity of the model, then of the adapter."""
        return ", ".join(f"{one.family} {one.identity}" for one in (self.model, self.adapter) if one is not None)

    def processor(self) -> Any:
        """Return the processor of pictures and text: the adapter's own, else the model's. Raises ConfigError."""
        own = self.adapter if self.adapter and any(self.adapter.path.glob("*processor_config.json")) else self.model
        return load_processor(own.path, self.model.family)

    def load(self, dtype: Any, **options: Any) -> Any:
        """Return the model on the CPU, with its adapter.   options: of `from_pretrained`. Raises ConfigError."""
        from transformers import AutoModelForImageTextToText as Architecture

        path = self.model.path
        model = load_saved(Architecture, path, f"model {str(path)!r}", dtype=dtype, use_safetensors=True, **options)
        return load_adapter(model, path, self.adapter.path) if self.adapter else model


def find_adapted(name: str, base: str | None = None) -> Adapted:
    """Return the model of a folder or hub id, or the adapter there with its base: the named one, or what it was trained on.

    Nothing is loaded. Raises ConfigError.
    """
    folder, identity = CHAT.folder(name)
    config = folder / "adapter_config.json"
    if not config.is_file():
        if base is not None:
            raise ConfigError(f"base={base!r}: {name!r} has no {config.name}, so it is no adapter and takes no base")
        return Adapted(model=CHAT.in_folder(folder, identity))
    try:
        trained = parse_json(read_bytes(config))
        own = Weights(path=folder.resolve(), identity=identity or identity_of(folder), family=trained["peft_type"].lower())
        return Adapted(model=CHAT.find(base or trained["base_model_name_or_path"] or ""), adapter=own)
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"adapter {name!r}: {error}; name the model that it was trained on with ?base=FOLDER") from error
