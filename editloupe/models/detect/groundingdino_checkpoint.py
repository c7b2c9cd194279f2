"""Loads original GroundingDINO checkpoints (groundingdino-py: `groundingdino_swint_ogc.pth` …) into transformers' model.

The keys are mapped to those of the models on the hub (`groundingdino_keys.toml`), and the configuration is read off the
tensors' shapes. Checked against groundingdino-py 0.4.0 itself, with random weights: the same logits and boxes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

from editloupe.errors import ConfigError
from editloupe.files import read_toml
from editloupe.models.weights import load_saved, load_tensors, translated

_POINTS: Final = 4
"""Sampling points of each head and level. The tensors' shapes have only the product heads × points."""
_NUMBER: Final = re.compile(r"(?<=layers\.)\d+|(?<=blocks\.)\d+")
_SKIPPED: Final = re.compile(
    r"backbone\.0\.layers\.\d+\.blocks\.\d+\.attn\.(relative_position_index|attn_mask)|bert\.pooler\..+"
    r"|bert\.embeddings\.position_ids|label_enc\..+"
)
"""Made by the network itself, used in training only, or never read."""


def load_checkpoint(path: Path) -> tuple[Any, Any]:
    """Return transformers' model and processor, fp32 on the CPU. The vocabulary is vocab.txt beside the checkpoint.

    Raises ConfigError where the file is unsafe, damaged or not GroundingDINO, tensors are missing or left over.
    """
    import transformers

    original = load_tensors(path)
    if "transformer.level_embed" not in original or "backbone.0.patch_embed.proj.weight" not in original:
        raise ConfigError(f"{path}: holds no GroundingDINO with a Swin backbone (it lacks transformer.level_embed)")
    tensors, unknown = hub_tensors(original)
    if unknown:
        raise ConfigError(f"{path}: {len(unknown)} tensors are not GroundingDINO's: {', '.join(unknown[:3])}")
    vocabulary = path.with_name("vocab.txt")
    if not vocabulary.is_file():
        raise ConfigError(f"{path}: has no vocabulary; put BERT's vocab.txt (bert-base-uncased) beside the checkpoint")
    with translated(str(path)):
        config = config_of(original)
    kind = transformers.GroundingDinoForObjectDetection
    model = load_saved(kind, None, str(path), config=config, state_dict=tensors)
    images, words = transformers.GroundingDinoImageProcessorPil(), transformers.BertTokenizerFast(str(vocabulary))
    return model, transformers.GroundingDinoProcessor(image_processor=images, tokenizer=words)


def hub_tensors(original: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the tensors under the names of the models on the hub, and the names that GroundingDINO does not have."""
    made: dict[str, Any] = {}
    unknown: list[str] = []
    for name, tensor in original.items():
        if _SKIPPED.fullmatch(name):
            continue
        if not (target := _hub_name(name)):
            unknown.append(name)
        elif "{}" in target:
            thirds = zip(("query", "key", "value"), tensor.chunk(3), strict=True)
            made |= {target.format(part): third.clone() for part, third in thirds}
        else:
            made[target] = tensor
    return made, unknown


def _hub_name(name: str) -> str:
    """Return a tensor's name on the hub, with {} for query, key and value; "" where GroundingDINO has no such tensor."""
    parts = _NUMBER.sub("#", name).replace("in_proj_", "in_proj.").split(".")
    end = next((end for end in range(len(parts), 0, -1) if ".".join(parts[:end]) in _names()), None)
    target = "" if end is None else ".".join([_names()[".".join(parts[:end])], *parts[end:]])
    for number in _NUMBER.findall(name):
        target = target.replace("#", number, 1)
    return target


@cache
def _names() -> dict[str, str]:
    listed = read_toml(Path(__file__).with_name("groundingdino_keys.toml"), "the names of GroundingDINO's tensors")["part"]
    return {part["old"] + old: part["new"] + new for part in listed for old, new in part["names"].items()}


def config_of(original: Mapping[str, Any]) -> Any:
    """Return the configuration that the shapes imply: Swin-T, Swin-B or another. Raises KeyError for a missing tensor."""
    from transformers import BertConfig, GroundingDinoConfig, SwinConfig

    def sides(name: str) -> tuple[int, ...]:
        return tuple(original[name].shape)

    def layers(below: str) -> int:
        pattern = re.compile(re.escape(below) + r"\.(\d+)\.")
        return len({found[1] for found in map(pattern.match, original) if found})

    stages = [f"backbone.0.layers.{stage}.blocks" for stage in range(4)]
    tables = [sides(f"{stage}.0.attn.relative_position_bias_table") for stage in stages]
    window = (round(tables[0][0] ** 0.5) + 1) // 2
    channels, _, _, patch = sides("backbone.0.patch_embed.proj.weight")
    # Only the relative position bias depends on a size, and its window is given; 384 was Swin-B's.
    swin: dict[str, Any] = {"image_size": 32 * window, "patch_size": patch, "embed_dim": channels, "window_size": window}
    swin |= {"depths": [layers(stage) for stage in stages], "num_heads": [table[1] for table in tables]}
    words, hidden = sides("bert.embeddings.word_embeddings.weight")
    bert = {
        "vocab_size": words, "hidden_size": hidden, "num_attention_heads": max(1, hidden // 64),
        "num_hidden_layers": layers("bert.encoder.layer"),
        "intermediate_size": sides("bert.encoder.layer.0.intermediate.dense.bias")[0],
        "max_position_embeddings": sides("bert.embeddings.position_embeddings.weight")[0],
    }  # fmt: skip
    levels, d_model = sides("transformer.level_embed")
    heads = sides("transformer.encoder.layers.0.self_attn.attention_weights.bias")[0] // (levels * _POINTS)
    both: dict[str, Any] = {"encoder_attention_heads": heads, "decoder_attention_heads": heads}
    for part in ("encoder", "decoder"):
        both[f"{part}_layers"] = layers(f"transformer.{part}.layers")
        both[f"{part}_ffn_dim"] = sides(f"transformer.{part}.layers.0.linear1.bias")[0]
    backbone = SwinConfig(**swin, out_features=["stage2", "stage3", "stage4"])
    both |= {"d_model": d_model, "num_feature_levels": levels, "num_queries": sides("transformer.tgt_embed.weight")[0]}
    return GroundingDinoConfig(backbone_config=backbone, text_config=BertConfig(**bert), **both)
