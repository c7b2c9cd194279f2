"""Finds a model of images and text, or an adapter that peft saved with the model under it, and loads them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from editloupe.errors import ConfigError, MissingExtra
from editloupe.files import read_bytes
from editloupe.models.weights import Weights, identity_of, load_saved, model_folder, reading, saved_weights
from editloupe.values import parse_json


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
    folder, identity = model_folder(name, "model")
    config = folder / "adapter_config.json"
    if not config.is_file():
        if base is not None:
            raise ConfigError(f"base={base!r}: {name!r} has no {config.name}, so it is no adapter and takes no base")
        return Adapted(model=saved_weights(folder, identity, "model", None))
    try:
        trained = parse_json(read_bytes(config))
        own = Weights(path=folder.resolve(), identity=identity or identity_of(folder), family=trained["peft_type"].lower())
        below = model_folder(base or trained["base_model_name_or_path"] or "", "model")
        return Adapted(model=saved_weights(*below, "model", None), adapter=own)
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"adapter {name!r}: {error}; name the model that it was trained on with ?base=FOLDER") from error


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
    with reading(where):
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
    with reading(where), warnings.catch_warnings():
        # What peft only warns of is looked at below.
        warnings.simplefilter("ignore")
        adapted = get_peft_model(model, PeftConfig.from_pretrained(str(folder), inference_mode=True))
        found = adapted.load_adapter(str(folder), "default", torch_device="cpu")
    if odd := [*found.unexpected_keys, *(key for key in found.missing_keys if "default" in key)]:
        told = f"{len(odd)} of its tensors do not belong to this base, or are missing ({odd[0]} …)"
        raise ConfigError(f"{where}: {told}; name the base that it was trained on with ?base=FOLDER")
    return adapted
