"""Finds the folder behind `transformers/FOLDER` and opens it: a model, or an adapter with its base. No torch here.

transformers/FOLDER                a model that transformers saved, or a hub id (owner/name, owner/name@revision)
transformers/ADAPTER?base=FOLDER   an adapter that peft saved, on this base; without `base`, on the one it was trained on

Further parameters: `boxes`, `device`, `dtype`, `max_image_side` and `repetition_penalty` (docs/backends.md).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, cast, get_args

from editloupe.backends import boxes
from editloupe.backends.base import BackendURI, check_parameters, replies_of
from editloupe.backends.endpoint import max_image_side
from editloupe.errors import ConfigError, MissingExtra
from editloupe.files import read_bytes
from editloupe.models.devices import check_device
from editloupe.models.hub import Kind, Weights, identity_of
from editloupe.values import parse_json

if TYPE_CHECKING:
    from editloupe.models.chat.backend import TransformersLMM
    from editloupe.models.chat.network import ChatNetwork

PARAMETERS: Final = ("base", "boxes", "device", "dtype", "max_image_side", "repetition_penalty", "replies")
ADAPTER_CONFIG: Final = "adapter_config.json"
ADAPTER_WEIGHTS: Final = "adapter_model.safetensors"

DType: TypeAlias = Literal["auto", "float32", "bfloat16", "float16"]
"""auto: bfloat16 on a GPU that has it, else float16 there; float32 on the CPU and on Apple's GPU."""

CHAT: Final = Kind(
    name="model",
    need="a model that reads images and text",
    option="backend",
    families=None,
    default="",
    revision="",
)


@dataclass(frozen=True, kw_only=True)
class ChatWeights:
    """A model, with the adapter on it if there is one."""

    model: Weights
    adapter: Weights | None = None
    """`family` is peft's type in lower case, such as "lora"."""

    @property
    def name(self) -> str:
        """The folder with the digest of its files, or the hub id with its commit: the adapter's, where there is one."""
        return (self.adapter or self.model).identity.replace(" sha256:", "@")

    @property
    def version(self) -> str:
        """The family and the identity of the model, then of the adapter."""
        model = f"{self.model.family} {self.model.identity}"
        return model if self.adapter is None else f"{model}, {self.adapter.family} {self.adapter.identity}"


def open_backend(uri: BackendURI) -> TransformersLMM:
    """Open `transformers/FOLDER`. Weights are found, and not loaded yet.

    Raises ConfigError: no folder, one without a config or weights, an unknown parameter, a device that is not there.
    MissingExtra is such an error.
    """
    if not uri.model:
        raise ConfigError(f"backend {str(uri)!r} names no model; expected transformers/FOLDER or transformers/OWNER/NAME")
    check_parameters(uri, PARAMETERS)
    dialect = boxes.checked(uri.params.get("boxes", boxes.DEFAULT))
    dtype = uri.params.get("dtype", "auto")
    if dtype not in get_args(DType):
        raise ConfigError(f"dtype={dtype!r}: expected one of {', '.join(get_args(DType))}")
    penalty, side = _penalty(uri.params.get("repetition_penalty", "1")), max_image_side(uri)
    device = uri.params.get("device", "auto")
    if any(find_spec(package) is None for package in ("torch", "transformers")):
        raise MissingExtra(f"The backend {uri.provider}/{uri.model}", "local")
    check_device(device)
    from editloupe.models.chat.backend import TransformersLMM

    network = _shared(find_weights(uri.model, uri.params.get("base")), device, cast(DType, dtype))
    bare = replies_of(uri) == "bare"
    return TransformersLMM(network, boxes=dialect, max_image_side=side, repetition_penalty=penalty, bare_replies=bare)


@cache
def _shared(weights: ChatWeights, device: str, dtype: DType) -> ChatNetwork:
    """Return the one copy that this process has of these weights."""
    from editloupe.models.chat.network import ChatNetwork

    return ChatNetwork(weights, device=device, dtype=dtype)


def find_weights(name: str, base: str | None = None) -> ChatWeights:
    """Return the model of a folder or hub id, or the adapter there with its base. Nothing is loaded.

    base: folder or hub id under an adapter; None takes the one that the adapter was trained on.
    Raises ConfigError.
    """
    folder, identity = CHAT.folder(name)
    if not (folder / ADAPTER_CONFIG).is_file():
        if base is not None:
            raise ConfigError(f"base={base!r}: {name!r} has no {ADAPTER_CONFIG}, so it is no adapter and takes no base")
        return ChatWeights(model=_model(folder, identity))
    adapter, trained_on = _adapter(folder, identity)
    if base is None and not trained_on:
        raise ConfigError(f"adapter {str(folder)!r}: {ADAPTER_CONFIG} names no base; name one with ?base=FOLDER")
    try:
        below, its_identity = CHAT.folder(base or trained_on)
        if (below / ADAPTER_CONFIG).is_file():
            raise ConfigError(f"{str(below)!r} is an adapter, too; merge it into its own base first")
        return ChatWeights(model=_model(below, its_identity), adapter=adapter)
    except ConfigError as error:
        whose = "" if base else ", which is in its config; name another with ?base=FOLDER"
        raise ConfigError(f"adapter {str(folder)!r} on the base {base or trained_on!r}{whose}: {error}") from error


def _model(folder: Path, identity: str | None) -> Weights:
    found = CHAT.in_folder(folder, identity)
    if not any(folder.glob("*.safetensors")):
        raise ConfigError(f"model {str(folder)!r}: its weights are no .safetensors; save them so with save_pretrained")
    return found


def _adapter(folder: Path, identity: str | None) -> tuple[Weights, str]:
    """Return the adapter in a folder, and the base that its config names; "" for none."""
    where = f"adapter {str(folder)!r}"
    try:
        config = parse_json(read_bytes(folder / ADAPTER_CONFIG))
        kind, base = config["peft_type"], config.get("base_model_name_or_path") or ""
        if not isinstance(kind, str) or not isinstance(base, str):
            raise ValueError("peft_type and base_model_name_or_path must be texts")
    except (OSError, ValueError, AttributeError, KeyError, TypeError) as error:
        raise ConfigError(f"{where}: {ADAPTER_CONFIG} cannot be read ({type(error).__name__}: {error})") from error
    if not (folder / ADAPTER_WEIGHTS).is_file():
        raise ConfigError(f"{where}: has no {ADAPTER_WEIGHTS}; expected an adapter that peft saved as safetensors")
    if find_spec("peft") is None:
        raise MissingExtra(f"The {where}", "local")
    weights = Weights(path=folder.resolve(), identity=identity or identity_of(folder), family=kind.lower())
    return weights, base


def _penalty(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0.1 <= value <= 10:
        raise ConfigError(f"repetition_penalty={text!r}: expected a number from 0.1 to 10; 1 is none")
    return value
