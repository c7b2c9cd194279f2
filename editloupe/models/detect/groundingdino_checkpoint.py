"""Loads original GroundingDINO checkpoints (groundingdino-py: `groundingdino_swint_ogc.pth` …) into transformers' model.

The keys are mapped to those of the models on the hub, and the configuration is read off the tensors' shapes. Checked
against groundingdino-py 0.4.0 itself, with random weights: the same logits and boxes (docs/tools.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
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
_SWIN = "model.backbone.conv_encoder.model."
_BLOCK = r"backbone\.0\.(layers\.\d+\.blocks\.\d+)\."
_ENCODER, _ENCODER_TO = r"transformer\.encoder\.(layers\.\d+)\.", r"model.encoder.\1.deformable_layer."
_TEXT, _TEXT_TO = r"transformer\.encoder\.text_(layers\.\d+)\.", r"model.encoder.\1.text_enhancer_layer."
_FUSION, _FUSION_TO = r"transformer\.encoder\.fusion_(layers\.\d+)\.", r"model.encoder.\1.fusion_layer."
_DECODER, _DECODER_TO = r"transformer\.decoder\.(layers\.\d+)\.", r"model.decoder.\1."
_DEFORMABLE = r"(sampling_offsets|attention_weights|value_proj|output_proj)"

# Original key → hub key, the first that matches. `(?P<qkv>)` marks tensors that hold query, key and value in one.
_RULES: Final = tuple(
    (re.compile(pattern), target)
    for pattern, target in (
        # Swin
        (r"backbone\.0\.patch_embed\.proj\.(.+)", rf"{_SWIN}embeddings.patch_embeddings.projection.\1"),
        (r"backbone\.0\.patch_embed\.norm\.(.+)", rf"{_SWIN}embeddings.norm.\1"),
        (r"backbone\.0\.(layers\.\d+\.downsample\..+)", rf"{_SWIN}encoder.\1"),
        (rf"{_BLOCK}norm1\.(.+)", rf"{_SWIN}encoder.\1.layernorm_before.\2"),
        (rf"{_BLOCK}norm2\.(.+)", rf"{_SWIN}encoder.\1.layernorm_after.\2"),
        (rf"{_BLOCK}mlp\.fc1\.(.+)", rf"{_SWIN}encoder.\1.intermediate.dense.\2"),
        (rf"{_BLOCK}mlp\.fc2\.(.+)", rf"{_SWIN}encoder.\1.output.dense.\2"),
        (rf"{_BLOCK}attn\.proj\.(.+)", rf"{_SWIN}encoder.\1.attention.output.dense.\2"),
        (rf"{_BLOCK}attn\.(relative_position_bias_table)", rf"{_SWIN}encoder.\1.attention.self.\2"),
        (rf"{_BLOCK}attn\.(?P<qkv>)qkv\.(\w+)", rf"{_SWIN}encoder.\1.attention.self.{{}}.\3"),
        # The original counts stages from 0, transformers from 1.
        *((rf"backbone\.0\.norm{n}\.(.+)", rf"{_SWIN}hidden_states_norms.stage{n + 1}.\1") for n in range(4)),
        # Text, and what joins it to the picture
        (r"bert\.((?:embeddings|encoder)\..+)", r"model.text_backbone.\1"),
        (r"feat_map\.(.+)", r"model.text_projection.\1"),
        (r"input_proj\.(.+)", r"model.input_proj_vision.\1"),
        (r"transformer\.level_embed", "model.level_embed"),
        (r"transformer\.tgt_embed\.weight", "model.query_position_embeddings.weight"),
        (r"transformer\.(enc_output|enc_output_norm)\.(.+)", r"model.\1.\2"),
        (r"transformer\.enc_out_bbox_embed\.(.+)", r"model.encoder_output_bbox_embed.\1"),
        # Encoder: deformable attention, text enhancer, fusion
        (rf"{_ENCODER}self_attn\.{_DEFORMABLE}\.(.+)", rf"{_ENCODER_TO}self_attn.\2.\3"),
        (rf"{_ENCODER}norm1\.(.+)", rf"{_ENCODER_TO}self_attn_layer_norm.\2"),
        (rf"{_ENCODER}norm2\.(.+)", rf"{_ENCODER_TO}final_layer_norm.\2"),
        (rf"{_ENCODER}linear(\d)\.(.+)", rf"{_ENCODER_TO}fc\2.\3"),
        (rf"{_TEXT}self_attn\.(?P<qkv>)in_proj_(\w+)", rf"{_TEXT_TO}self_attn.{{}}.\3"),
        (rf"{_TEXT}self_attn\.out_proj\.(.+)", rf"{_TEXT_TO}self_attn.out_proj.\2"),
        (rf"{_TEXT}linear(\d)\.(.+)", rf"{_TEXT_TO}fc\2.\3"),
        (rf"{_TEXT}norm1\.(.+)", rf"{_TEXT_TO}layer_norm_before.\2"),
        (rf"{_TEXT}norm2\.(.+)", rf"{_TEXT_TO}layer_norm_after.\2"),
        (rf"{_FUSION}gamma_v", rf"{_FUSION_TO}vision_param"),
        (rf"{_FUSION}gamma_l", rf"{_FUSION_TO}text_param"),
        (rf"{_FUSION}layer_norm_v\.(.+)", rf"{_FUSION_TO}layer_norm_vision.\2"),
        (rf"{_FUSION}layer_norm_l\.(.+)", rf"{_FUSION_TO}layer_norm_text.\2"),
        (rf"{_FUSION}attn\.(values_|out_)?v_proj\.(.+)", rf"{_FUSION_TO}attn.\2vision_proj.\3"),
        (rf"{_FUSION}attn\.(values_|out_)?l_proj\.(.+)", rf"{_FUSION_TO}attn.\2text_proj.\3"),
        # Decoder
        (rf"{_DECODER}cross_attn\.{_DEFORMABLE}\.(.+)", rf"{_DECODER_TO}encoder_attn.\2.\3"),
        (rf"{_DECODER}norm1\.(.+)", rf"{_DECODER_TO}encoder_attn_layer_norm.\2"),
        (rf"{_DECODER}norm2\.(.+)", rf"{_DECODER_TO}self_attn_layer_norm.\2"),
        (rf"{_DECODER}norm3\.(.+)", rf"{_DECODER_TO}final_layer_norm.\2"),
        (rf"{_DECODER}catext_norm\.(.+)", rf"{_DECODER_TO}encoder_attn_text_layer_norm.\2"),
        (rf"{_DECODER}ca_text\.(?P<qkv>)in_proj_(\w+)", rf"{_DECODER_TO}encoder_attn_text.{{}}.\3"),
        (rf"{_DECODER}ca_text\.out_proj\.(.+)", rf"{_DECODER_TO}encoder_attn_text.out_proj.\2"),
        (rf"{_DECODER}self_attn\.(?P<qkv>)in_proj_(\w+)", rf"{_DECODER_TO}self_attn.{{}}.\3"),
        (rf"{_DECODER}self_attn\.out_proj\.(.+)", rf"{_DECODER_TO}self_attn.out_proj.\2"),
        (rf"{_DECODER}linear(\d)\.(.+)", rf"{_DECODER_TO}fc\2.\3"),
        (r"transformer\.decoder\.norm\.(.+)", r"model.decoder.layer_norm.\1"),
        (r"transformer\.decoder\.ref_point_head\.(.+)", r"model.decoder.reference_points_head.\1"),
        (r"transformer\.decoder\.bbox_embed\.(.+)", r"model.decoder.bbox_embed.\1"),
        (r"(bbox_embed\..+)", r"\1"),
    )
)

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
        for pattern, target in _RULES:
            match = pattern.fullmatch(name)
            if match is not None:
                made.update(_parts(match.expand(target), tensor, "qkv" in pattern.groupindex))
                break
        else:
            unknown.append(name)
    return made, unknown


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


def _parts(name: str, tensor: torch.Tensor, in_one: bool) -> Iterator[tuple[str, torch.Tensor]]:
    if not in_one:
        yield name, tensor
        return
    for part, third in zip(("query", "key", "value"), tensor.chunk(3), strict=True):
        yield name.format(part), third.clone()


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
