"""Loads a model of images and text from its folder, with the adapter on it if there is one."""

from __future__ import annotations

import warnings
from typing import Any

from editloupe.errors import ConfigError
from editloupe.models.chat.open import ADAPTER_WEIGHTS, ChatWeights
from editloupe.models.chat.processors import has_processor, load_processor
from editloupe.models.weights import load_saved, reading


def processor_of(weights: ChatWeights) -> Any:
    """Return the processor, with its chat template: the adapter's own, with which it was trained, else the model's.

    Raises ConfigError.
    """
    adapter, base = weights.adapter, weights.model
    folder = adapter.path if adapter is not None and has_processor(adapter.path) else base.path
    return load_processor(folder, base.family, f"model {str(folder)!r}")


def model_of(weights: ChatWeights, dtype: Any, **options: Any) -> Any:
    """Return the model on the CPU, every parameter and every tensor of the adapter from the files.

    dtype: of torch, for the model; an adapter computes in float32.   options: of `from_pretrained`.
    Raises ConfigError.
    """
    from transformers import AutoModelForImageTextToText
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as FAMILIES

    base = weights.model
    where = f"model {str(base.path)!r}"
    if base.family not in FAMILIES:
        raise ConfigError(
            f"{where}: transformers knows no model of images and text with the model_type {base.family!r}; expected one "
            "such as idefics3 or qwen2_5_vl"
        )
    model = load_saved(AutoModelForImageTextToText, base.path, where, dtype=dtype, use_safetensors=True, **options)
    if model.config.is_encoder_decoder:
        raise ConfigError(f"{where}: {base.family} is an encoder with a decoder; expected a decoder that answers messages")
    return model if weights.adapter is None else _adapted(model, weights)


def _adapted(model: Any, weights: ChatWeights) -> Any:
    """Return the model with the adapter on it. Raises ConfigError unless each of its tensors has found its place."""
    from peft import PeftModel, get_peft_model_state_dict
    from safetensors import safe_open

    adapter, base = weights.adapter, weights.model
    assert adapter is not None
    where = f"adapter {str(adapter.path)!r} on the base {str(base.path)!r}"
    with reading(where, adapter.path), warnings.catch_warnings():
        # What peft warns of is looked at below.
        warnings.simplefilter("ignore")
        model = PeftModel.from_pretrained(model, str(adapter.path), torch_device="cpu")
        with safe_open(adapter.path / ADAPTER_WEIGHTS, framework="pt") as file:
            saved = set(file.keys())
    if odd := sorted(saved ^ set(get_peft_model_state_dict(model))):
        raise ConfigError(
            f"{where}: {len(odd)} of its tensors do not belong to this base, or are missing ({', '.join(odd[:2])} …); name "
            "the base that it was trained on with ?base=FOLDER"
        )
    return model
