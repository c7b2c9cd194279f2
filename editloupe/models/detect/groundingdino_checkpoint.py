"""Loads original GroundingDINO checkpoints (groundingdino-py: `groundingdino_swint_ogc.pth` …) into transformers' model.

The keys are mapped to those of the models on the hub, and the configuration is read off the tensors' shapes. Checked
against groundingdino-py 0.4.0 itself, with random weights: the same logits and boxes (docs/tools.md).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from editloupe.errors import ConfigError
from editloupe.models.weights import load_tensors, missing_parameters, quietly

if TYPE_CHECKING:
    import torch

TOKENIZERS: Final = ("google-bert/bert-base-uncased", "bert-base-uncased")
"""Hub ids of the vocabulary where no vocab.txt lies beside the checkpoint. Only the local cache is searched."""
_POINTS: Final = 4
"""Sampling points of each head and level. The tensors' shapes have only the product heads × points."""
# Prefix of original keys → prefix of hub keys → parts of both; "" is the prefix itself. # is a layer's or block's number,
# and {} marks tensors that hold query, key and value in one.
_DEFORMABLE: Final = ("sampling_offsets", "attention_weights", "value_proj", "output_proj")
_PREFIXES: Final[Mapping[tuple[str, str], Mapping[str, str]]] = {
    ("backbone.0.", "model.backbone.conv_encoder.model."): {
        "patch_embed.proj": "embeddings.patch_embeddings.projection", "patch_embed.norm": "embeddings.norm",
        "layers.#.downsample": "encoder.layers.#.downsample",
        # The original counts stages from 0, transformers from 1.
        **{f"norm{n}": f"hidden_states_norms.stage{n + 1}" for n in range(4)},
    },
    ("backbone.0.layers.#.blocks.#.", "model.backbone.conv_encoder.model.encoder.layers.#.blocks.#."): {
        "norm1": "layernorm_before", "norm2": "layernorm_after",
        "mlp.fc1": "intermediate.dense", "mlp.fc2": "output.dense", "attn.proj": "attention.output.dense",
        "attn.relative_position_bias_table": "attention.self.relative_position_bias_table",
        "attn.qkv": "attention.self.{}",
    },
    ("", ""): {
        "bert.embeddings": "model.text_backbone.embeddings", "bert.encoder": "model.text_backbone.encoder",
        "feat_map": "model.text_projection", "input_proj": "model.input_proj_vision", "bbox_embed": "bbox_embed",
    },
    ("transformer.", "model."): {
        "level_embed": "level_embed", "tgt_embed": "query_position_embeddings",
        "enc_output": "enc_output", "enc_output_norm": "enc_output_norm",
        "enc_out_bbox_embed": "encoder_output_bbox_embed",
        "decoder.norm": "decoder.layer_norm", "decoder.ref_point_head": "decoder.reference_points_head",
        "decoder.bbox_embed": "decoder.bbox_embed",
    },
    ("transformer.encoder.layers.#.", "model.encoder.layers.#.deformable_layer."): {
        **{f"self_attn.{part}": f"self_attn.{part}" for part in _DEFORMABLE},
        "norm1": "self_attn_layer_norm", "norm2": "final_layer_norm", "linear1": "fc1", "linear2": "fc2",
    },
    ("transformer.encoder.text_layers.#.", "model.encoder.layers.#.text_enhancer_layer."): {
        "self_attn.in_proj": "self_attn.{}", "self_attn.out_proj": "self_attn.out_proj",
        "linear1": "fc1", "linear2": "fc2", "norm1": "layer_norm_before", "norm2": "layer_norm_after",
    },
    ("transformer.encoder.fusion_layers.#.", "model.encoder.layers.#.fusion_layer."): {
        "gamma_v": "vision_param", "gamma_l": "text_param",
        "layer_norm_v": "layer_norm_vision", "layer_norm_l": "layer_norm_text",
        **{f"attn.{kind}v_proj": f"attn.{kind}vision_proj" for kind in ("", "values_", "out_")},
        **{f"attn.{kind}l_proj": f"attn.{kind}text_proj" for kind in ("", "values_", "out_")},
    },
    ("transformer.decoder.layers.#.", "model.decoder.layers.#."): {
        **{f"cross_attn.{part}": f"encoder_attn.{part}" for part in _DEFORMABLE},
        "norm1": "encoder_attn_layer_norm", "norm2": "self_attn_layer_norm", "norm3": "final_layer_norm",
        "catext_norm": "encoder_attn_text_layer_norm",
        "ca_text.in_proj": "encoder_attn_text.{}", "ca_text.out_proj": "encoder_attn_text.out_proj",
        "self_attn.in_proj": "self_attn.{}", "self_attn.out_proj": "self_attn.out_proj",
        "linear1": "fc1", "linear2": "fc2",
    },
}  # fmt: skip
_NAMES: Final = {old + part: new + to for (old, new), parts in _PREFIXES.items() for part, to in parts.items()}
_NUMBER = re.compile(r"(?<=layers\.)\d+|(?<=blocks\.)\d+")

# Made by the network itself, used in training only, or never read.
_SKIPPED = re.compile(
    r"backbone\.0\.layers\.\d+\.blocks\.\d+\.attn\.(relative_position_index|attn_mask)|bert\.pooler\..+"
    r"|bert\.embeddings\.position_ids|label_enc\..+"
)


def load_checkpoint(path: Path) -> tuple[Any, Any]:
    """Return transformers' model and processor, fp32 on the CPU.

    The vocabulary is vocab.txt beside the checkpoint, or BERT's in the local Hugging Face cache.
    Raises ConfigError where the file is unsafe, damaged or not GroundingDINO, tensors are missing or left over, or there is
    no vocabulary.
    """
    from transformers import GroundingDinoForObjectDetection, GroundingDinoImageProcessorPil, GroundingDinoProcessor

    original = load_tensors(path)
    if "transformer.level_embed" not in original or "backbone.0.patch_embed.proj.weight" not in original:
        raise ConfigError(f"{path}: holds no GroundingDINO with a Swin backbone (it lacks transformer.level_embed)")
    tensors, unknown = hub_tensors(original)
    if unknown:
        raise ConfigError(f"{path}: {len(unknown)} tensors are not GroundingDINO's: {', '.join(unknown[:3])}")
    tokenizer = _tokenizer(path)
    try:
        config = config_of(original)
        with quietly():
            model, info = GroundingDinoForObjectDetection.from_pretrained(
                None, config=config, state_dict=tensors, output_loading_info=True
            )
    except (KeyError, ValueError, RuntimeError, IndexError) as error:
        first = " ".join(str(error).split())[:300]
        raise ConfigError(f"{path}: its tensors do not make a GroundingDINO ({type(error).__name__}: {first})") from error
    lacking = [*missing_parameters(model, info["missing_keys"]), *map(str, info["unexpected_keys"])]
    if lacking or info.get("mismatched_keys"):
        raise ConfigError(f"{path}: tensors are missing or do not fit: {', '.join(lacking[:3] or ['shapes differ'])}")
    return model, GroundingDinoProcessor(image_processor=GroundingDinoImageProcessorPil(), tokenizer=tokenizer)


def hub_tensors(original: Mapping[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], list[str]]:
    """Return the tensors under the names of the models on the hub, and the names that GroundingDINO does not have."""
    made: dict[str, torch.Tensor] = {}
    unknown: list[str] = []
    for name, tensor in original.items():
        if _SKIPPED.fullmatch(name):
            continue
        target = _hub_name(name)
        if target is None:
            unknown.append(name)
        elif "{}" in target:
            for part, third in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
                made[target.format(part)] = third.clone()
        else:
            made[target] = tensor
    return made, unknown


def _hub_name(name: str) -> str | None:
    """Return a tensor's name on the hub, with {} for query, key and value; None where GroundingDINO has no such tensor."""
    parts = _NUMBER.sub("#", name).replace("in_proj_", "in_proj.").split(".")
    for end in range(len(parts), 0, -1):
        target = _NAMES.get(".".join(parts[:end]))
        if target is not None:
            target = ".".join([target, *parts[end:]])
            for number in _NUMBER.findall(name):
                target = target.replace("#", number, 1)
            return target
    return None


def config_of(original: Mapping[str, torch.Tensor]) -> Any:
    """Return the configuration that the shapes imply: Swin-T, Swin-B or another. Raises KeyError for a missing tensor."""
    from transformers import BertConfig, GroundingDinoConfig, SwinConfig

    def shape(name: str) -> tuple[int, ...]:
        return tuple(original[name].shape)

    depths = [_count(original, rf"backbone\.0\.layers\.{stage}\.blocks\.(\d+)\.") for stage in range(4)]
    tables = [shape(f"backbone.0.layers.{stage}.blocks.0.attn.relative_position_bias_table") for stage in range(4)]
    window = (round(tables[0][0] ** 0.5) + 1) // 2
    levels, d_model = shape("transformer.level_embed")
    heads = shape("transformer.encoder.layers.0.self_attn.attention_weights.bias")[0] // (levels * _POINTS)
    words, hidden = shape("bert.embeddings.word_embeddings.weight")
    swin = SwinConfig(
        # Only the relative position bias depends on a size, and its window is given; 384 was Swin-B's.
        image_size=32 * window,
        patch_size=shape("backbone.0.patch_embed.proj.weight")[-1],
        embed_dim=shape("backbone.0.patch_embed.proj.weight")[0],
        depths=depths,
        num_heads=[table[1] for table in tables],
        window_size=window,
        out_features=["stage2", "stage3", "stage4"],
    )
    bert = BertConfig(
        vocab_size=words,
        hidden_size=hidden,
        num_hidden_layers=_count(original, r"bert\.encoder\.layer\.(\d+)\."),
        num_attention_heads=max(1, hidden // 64),
        intermediate_size=shape("bert.encoder.layer.0.intermediate.dense.bias")[0],
        max_position_embeddings=shape("bert.embeddings.position_embeddings.weight")[0],
    )
    return GroundingDinoConfig(
        backbone_config=swin,
        text_config=bert,
        d_model=d_model,
        num_queries=shape("transformer.tgt_embed.weight")[0],
        num_feature_levels=levels,
        encoder_layers=_count(original, r"transformer\.encoder\.layers\.(\d+)\."),
        decoder_layers=_count(original, r"transformer\.decoder\.layers\.(\d+)\."),
        encoder_attention_heads=heads,
        decoder_attention_heads=heads,
        encoder_ffn_dim=shape("transformer.encoder.layers.0.linear1.bias")[0],
        decoder_ffn_dim=shape("transformer.decoder.layers.0.linear1.bias")[0],
    )


def _count(tensors: Mapping[str, torch.Tensor], pattern: str) -> int:
    """Return how many different numbers the pattern finds in the names."""
    return len({int(m[1]) for m in map(re.compile(pattern).match, tensors) if m})


def _tokenizer(checkpoint: Path) -> Any:
    from huggingface_hub import try_to_load_from_cache
    from transformers import BertTokenizerFast

    beside = checkpoint.with_name("vocab.txt")
    if beside.is_file():
        return BertTokenizerFast(str(beside))
    for repository in TOKENIZERS:
        found = try_to_load_from_cache(repository, "vocab.txt")
        if isinstance(found, str):
            return BertTokenizerFast(found)
    raise ConfigError(
        f"{checkpoint}: an original checkpoint has no vocabulary; put BERT's vocab.txt (bert-base-uncased) beside it"
    )
