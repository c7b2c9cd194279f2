"""Tiny random image encoders, saved as transformers saves real ones, and random LPIPS weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SIDE = 64
_CLIP_MEAN, _CLIP_STD = [0.48145466, 0.4578275, 0.40821073], [0.26862954, 0.26130258, 0.27577711]
_MEAN, _STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]

PROCESSORS: dict[str, dict[str, Any]] = {
    "clip": {
        "image_processor_type": "CLIPImageProcessor",
        "do_resize": True, "size": {"shortest_edge": SIDE}, "resample": 3,
        "do_center_crop": True, "crop_size": {"height": SIDE, "width": SIDE},
        "do_rescale": True, "do_normalize": True, "image_mean": _CLIP_MEAN, "image_std": _CLIP_STD,
    },
    "dinov2": {
        "image_processor_type": "BitImageProcessor",
        "do_resize": True, "size": {"shortest_edge": 72}, "resample": 3,
        "do_center_crop": True, "crop_size": {"height": SIDE, "width": SIDE},
        "do_rescale": True, "do_normalize": True, "image_mean": _MEAN, "image_std": _STD,
    },
    "dinov3": {
        "image_processor_type": "DINOv3ViTImageProcessorFast",
        "do_resize": True, "size": {"height": SIDE, "width": SIDE}, "resample": 2,
        "do_rescale": True, "do_normalize": True, "image_mean": _MEAN, "image_std": _STD,
    },
}  # fmt: skip
"""As the hub has them, but for the sizes."""


WORDS = ("<|startoftext|>", "<|endoftext|>", "a", "red", "cup", "photo", "of", "left", "right")
"""The vocabulary of the tiny CLIP's texts, by token id."""
MOST_TOKENS = 20


def _vision(side: int) -> dict[str, Any]:
    return {
        "hidden_size": 32,
        "intermediate_size": 40,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "image_size": side,
        "patch_size": 16,
    }


def encoder(family: str, seed: int = 0, *, side: int = SIDE, registers: int = 3) -> Any:
    """Return a random model: "clip" (with its text part), "dinov2", "dinov2_with_registers" or "dinov3".

    side: px of its input.   registers: of "dinov3".
    """
    import torch
    import transformers as t

    torch.manual_seed(seed)
    vision = _vision(side)
    if family == "clip":
        text = {
            key: vision[key] for key in ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
        }
        text |= {"vocab_size": 50, "max_position_embeddings": MOST_TOKENS, "bos_token_id": 0, "eos_token_id": 1}
        config = t.CLIPConfig(vision_config=vision, text_config=text, projection_dim=16)
        model: Any = t.CLIPModel(config)
    elif family == "dinov2":
        model = t.Dinov2Model(t.Dinov2Config(**vision))
    elif family == "dinov2_with_registers":
        model = t.Dinov2WithRegistersModel(t.Dinov2WithRegistersConfig(**vision, num_register_tokens=4))
    else:
        model = t.DINOv3ViTModel(t.DINOv3ViTConfig(**vision, num_register_tokens=registers))
    for parameter in model.parameters():
        # Spread, so that images differ.
        parameter.data += 0.1 * torch.randn_like(parameter)
    return model.eval()


def encoder_folder(folder: Path, family: str, seed: int = 0, *, side: int = SIDE, registers: int = 3) -> Path:
    """Save a random encoder with its processor, and CLIP's with its tokenizer."""
    encoder(family, seed, side=side, registers=registers).save_pretrained(folder)
    said = dict(PROCESSORS["dinov2" if family.startswith("dinov2") else family])
    if side != SIDE:
        size = {"height": side, "width": side}
        said |= {"size": size, "crop_size": size}
    (folder / "preprocessor_config.json").write_text(json.dumps(said))
    if family == "clip":
        _tokenizer(folder)
    return folder


def _tokenizer(folder: Path) -> None:
    """Save a tokenizer of whole words, with CLIP's marks around a text."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    made = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token=WORDS[1]))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    begin, end = WORDS[:2]
    made.post_processor = processors.TemplateProcessing(single=f"{begin} $A {end}", special_tokens=[(begin, 0), (end, 1)])
    PreTrainedTokenizerFast(tokenizer_object=made, bos_token=begin, eos_token=end, pad_token=end).save_pretrained(folder)


def lpips_state(network: str, seed: int = 0) -> dict[str, Any]:
    """Return random tensors under the names that the authors' package gives them."""
    import torch

    torch.manual_seed(seed)
    alex = {1: {0: (3, 64, 11)}, 2: {3: (64, 192, 5)}, 3: {6: (192, 384, 3)}, 4: {8: (384, 256, 3)}, 5: {10: (256, 256, 3)}}
    vgg = {
        1: {0: (3, 64, 3), 2: (64, 64, 3)},
        2: {5: (64, 128, 3), 7: (128, 128, 3)},
        3: {10: (128, 256, 3), 12: (256, 256, 3), 14: (256, 256, 3)},
        4: {17: (256, 512, 3), 19: (512, 512, 3), 21: (512, 512, 3)},
        5: {24: (512, 512, 3), 26: (512, 512, 3), 28: (512, 512, 3)},
    }
    state = {}
    for part, layers in (alex if network == "alex" else vgg).items():
        for index, (before, after, side) in layers.items():
            spread = (2 / (before * side * side)) ** 0.5
            state[f"net.slice{part}.{index}.weight"] = torch.randn(after, before, side, side) * spread
            state[f"net.slice{part}.{index}.bias"] = torch.randn(after) * 0.1
        state[f"lin{part - 1}.model.1.weight"] = torch.rand(1, after, 1, 1)
    return state
