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


def sam2_folder(folder: Path, *, video: bool = False, seed: int = 0) -> Path:
    """SAM 2. video: saved as the official folders are, which hold the memory of videos too."""
    import json

    import torch
    from transformers import Sam2Config, Sam2Model, Sam2VideoConfig, Sam2VideoModel

    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    vision = {
        "backbone_config": {
            "model_type": "sam2_hiera_det_model",
            "hidden_size": 8,
            "num_attention_heads": 1,
            "image_size": [SIDE, SIDE],
            "blocks_per_stage": [1, 1, 2, 1],
            "embed_dim_per_stage": [8, 16, 32, 64],
            "num_attention_heads_per_stage": [1, 2, 4, 8],
            "window_size_per_stage": [4, 4, 4, 4],
            "window_positional_embedding_background_size": [4, 4],
            "global_attention_blocks": [3],
        },
        "backbone_channel_list": [64, 32, 16, 8],
        "backbone_feature_sizes": [[16, 16], [8, 8], [4, 4]],
        "fpn_hidden_size": 16,
    }
    parts = {"vision_config": vision, **_small()}
    if video:
        memory = {
            "memory_attention_hidden_size": 16,
            "memory_attention_num_layers": 1,
            "memory_attention_feed_forward_hidden_size": 16,
            "memory_attention_rope_feat_sizes": [4, 4],
            "memory_encoder_hidden_size": 16,
            "memory_encoder_output_channels": 8,
            "mask_downsampler_embed_dim": 16,
            "memory_fuser_embed_dim": 16,
            "memory_fuser_intermediate_dim": 16,
            "image_size": SIDE,
        }
        model = Sam2VideoModel(Sam2VideoConfig(**parts, **memory))
    else:
        model = Sam2Model(Sam2Config(**parts))
    _spread(model, seed).save_pretrained(folder)
    # transformers' own processor needs torchvision; this is the file that it writes.
    prepared = {
        "image_mean": [0.485, 0.456, 0.406],
        "image_std": [0.229, 0.224, 0.225],
        "size": {"height": SIDE, "width": SIDE},
        "image_processor_type": "Sam2ImageProcessor",
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(prepared), encoding="utf-8")
    return folder
