"""Tiny random segmenters, saved as transformers saves real ones; masks are nonsense, everything around them is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SIDE = 64
"""px of the network's input."""


def _spread(model: Any, seed: int) -> Any:
    """Spread the weights, so that masks differ from one box and one image to the next."""
    import torch

    torch.manual_seed(seed)
    for parameter in model.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return model.eval()


def _small(size: int = SIDE) -> dict[str, Any]:
    return {
        "prompt_encoder_config": {"hidden_size": 16, "image_size": size, "mask_input_channels": 4},
        "mask_decoder_config": {
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "mlp_dim": 32,
            "iou_head_depth": 2,
            "iou_head_hidden_dim": 16,
        },
    }


def sam_folder(folder: Path, *, seed: int = 0) -> Path:
    """SAM with one layer."""
    import torch
    from transformers import SamConfig, SamImageProcessorPil, SamModel, SamProcessor

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    vision = {
        "hidden_size": 32,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "mlp_dim": 64,
        "image_size": SIDE,
        "patch_size": 16,
        "output_channels": 16,
        "num_pos_feats": 8,
        "window_size": 0,
        "global_attn_indexes": [0],
    }
    config = SamConfig(vision_config=vision, **_small())
    _spread(SamModel(config), seed).save_pretrained(folder)
    square = {"height": SIDE, "width": SIDE}
    images = SamImageProcessorPil(size={"longest_edge": SIDE}, pad_size=square)
    SamProcessor(images).save_pretrained(folder)
    return folder
