"""Tiny random detectors, saved as transformers saves real ones; boxes are nonsense, everything around them is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_WORDS = ["the", "a", "cat", "dog", "red", "mug", "square", ","]

# transformers' GroundingDINO splits phrases at these ids of bert-base-uncased, whatever the tokenizer says.
_FIXED = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]", 1012: ".", 1029: "?"}


def bert_vocabulary(folder: Path) -> Path:
    """A vocabulary in which every word of small letters can be spelled, with the markers where BERT has them."""
    letters = [chr(97 + i) for i in range(26)]
    words = [_FIXED.get(i, f"[unused{i}]") for i in range(1030)]
    spelled = dict.fromkeys([*_WORDS, *letters, *(f"##{c}" for c in letters)])
    path = folder / "vocab.txt"
    path.write_text("\n".join([*words, *spelled]) + "\n", encoding="utf-8")
    return path


def _swin() -> Any:
    from transformers import SwinConfig

    return SwinConfig(
        image_size=64,
        patch_size=4,
        embed_dim=12,
        depths=[1, 1, 1, 1],
        num_heads=[1, 2, 2, 2],
        window_size=4,
        out_features=["stage2", "stage3", "stage4"],
    )


def _bert(words: int) -> Any:
    from transformers import BertConfig

    return BertConfig(
        vocab_size=words,
        hidden_size=64,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=37,
        max_position_embeddings=64,
    )


def grounding_dino_model(words: int, *, kind: str = "GroundingDino", seed: int = 0) -> Any:
    """A random model: 10 queries, d_model 32."""
    import torch
    import transformers

    torch.manual_seed(seed)
    config = getattr(transformers, f"{kind}Config")(
        backbone_config=_swin(),
        text_config=_bert(words),
        d_model=32,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        num_queries=10,
        max_text_len=64,
        two_stage=True,
        num_feature_levels=4,
    )
    model = getattr(transformers, f"{kind}ForObjectDetection")(config).eval()
    for parameter in model.parameters():
        # Spread the weights, so that boxes and scores differ from one query and one image to the next.
        if parameter.ndim > 1:
            parameter.data += 0.05 * torch.randn_like(parameter)
    return model


def grounding_dino_folder(folder: Path, *, kind: str = "GroundingDino", seed: int = 0) -> Path:
    from transformers import BertTokenizerFast, GroundingDinoImageProcessorPil, GroundingDinoProcessor

    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = BertTokenizerFast(str(bert_vocabulary(folder)))
    grounding_dino_model(len(tokenizer), kind=kind, seed=seed).save_pretrained(folder)
    images = GroundingDinoImageProcessorPil(size={"shortest_edge": 96, "longest_edge": 192})
    GroundingDinoProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder


def original_checkpoint(folder: Path, *, name: str = "groundingdino_tiny.pth") -> Path:
    """A checkpoint with groundingdino-py's keys, vocab.txt beside it; shapes as there, only smaller."""
    import torch

    random = torch.Generator().manual_seed(0)
    tensors: dict[str, Any] = {}

    def put(key: str, *shape: int) -> None:
        tensors[key] = torch.randn(shape, generator=random) * 0.1

    def linear(key: str, into: int, out: int) -> None:
        put(f"{key}.weight", out, into)
        put(f"{key}.bias", out)

    def norm(key: str, size: int) -> None:
        tensors[f"{key}.weight"], tensors[f"{key}.bias"] = torch.ones(size), torch.zeros(size)

    def attention(key: str, size: int) -> None:
        put(f"{key}.in_proj_weight", 3 * size, size)
        put(f"{key}.in_proj_bias", 3 * size)
        linear(f"{key}.out_proj", size, size)

    def deformable(key: str, size: int, heads: int, levels: int) -> None:
        linear(f"{key}.sampling_offsets", size, heads * levels * 4 * 2)
        linear(f"{key}.attention_weights", size, heads * levels * 4)
        linear(f"{key}.value_proj", size, size)
        linear(f"{key}.output_proj", size, size)

    def boxes(key: str, size: int) -> None:
        for layer, out in enumerate((size, size, 4)):
            linear(f"{key}.layers.{layer}", size, out)

    words = len(bert_vocabulary(folder).read_text(encoding="utf-8").splitlines())
    d, heads, levels, wide, hidden, window, stages = 32, 4, 4, 48, 64, 4, (12, 24, 48, 96)
    put("backbone.0.patch_embed.proj.weight", 12, 3, 4, 4)
    put("backbone.0.patch_embed.proj.bias", 12)
    norm("backbone.0.patch_embed.norm", 12)
    for stage, (size, count) in enumerate(zip(stages, (1, 2, 2, 2), strict=True)):
        block = f"backbone.0.layers.{stage}.blocks.0"
        norm(f"{block}.norm1", size)
        norm(f"{block}.norm2", size)
        put(f"{block}.attn.relative_position_bias_table", (2 * window - 1) ** 2, count)
        tensors[f"{block}.attn.relative_position_index"] = torch.zeros(window**2, window**2, dtype=torch.long)
        linear(f"{block}.attn.qkv", size, 3 * size)
        linear(f"{block}.attn.proj", size, size)
        linear(f"{block}.mlp.fc1", size, 4 * size)
        linear(f"{block}.mlp.fc2", 4 * size, size)
        if stage < 3:
            put(f"backbone.0.layers.{stage}.downsample.reduction.weight", 2 * size, 4 * size)
            norm(f"backbone.0.layers.{stage}.downsample.norm", 4 * size)
            norm(f"backbone.0.norm{stage + 1}", 2 * size)
    for level, (size, kernel) in enumerate(((24, 1), (48, 1), (96, 1), (96, 3))):
        put(f"input_proj.{level}.0.weight", d, size, kernel, kernel)
        put(f"input_proj.{level}.0.bias", d)
        norm(f"input_proj.{level}.1", d)
    put("bert.embeddings.word_embeddings.weight", words, hidden)
    put("bert.embeddings.position_embeddings.weight", 64, hidden)
    put("bert.embeddings.token_type_embeddings.weight", 2, hidden)
    norm("bert.embeddings.LayerNorm", hidden)
    for part in ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"):
        linear(f"bert.encoder.layer.0.{part}", hidden, hidden)
    norm("bert.encoder.layer.0.attention.output.LayerNorm", hidden)
    linear("bert.encoder.layer.0.intermediate.dense", hidden, 37)
    linear("bert.encoder.layer.0.output.dense", 37, hidden)
    norm("bert.encoder.layer.0.output.LayerNorm", hidden)
    linear("bert.pooler.dense", hidden, hidden)
    linear("feat_map", hidden, d)
    put("transformer.level_embed", levels, d)
    put("transformer.tgt_embed.weight", 10, d)
    linear("transformer.enc_output", d, d)
    norm("transformer.enc_output_norm", d)
    boxes("transformer.enc_out_bbox_embed", d)
    encoder, decoder = "transformer.encoder", "transformer.decoder"
    deformable(f"{encoder}.layers.0.self_attn", d, heads, levels)
    linear(f"{encoder}.layers.0.linear1", d, wide)
    linear(f"{encoder}.layers.0.linear2", wide, d)
    attention(f"{encoder}.text_layers.0.self_attn", d)
    linear(f"{encoder}.text_layers.0.linear1", d, wide // 2)
    linear(f"{encoder}.text_layers.0.linear2", wide // 2, d)
    for n in (1, 2):
        norm(f"{encoder}.layers.0.norm{n}", d)
        norm(f"{encoder}.text_layers.0.norm{n}", d)
    fusion = f"{encoder}.fusion_layers.0"
    for side in ("v", "l"):
        put(f"{fusion}.gamma_{side}", d)
        norm(f"{fusion}.layer_norm_{side}", d)
        linear(f"{fusion}.attn.{side}_proj", d, wide // 2)
        linear(f"{fusion}.attn.values_{side}_proj", d, wide // 2)
        linear(f"{fusion}.attn.out_{side}_proj", wide // 2, d)
    for layer in (0, 1):
        deformable(f"{decoder}.layers.{layer}.cross_attn", d, heads, levels)
        attention(f"{decoder}.layers.{layer}.ca_text", d)
        attention(f"{decoder}.layers.{layer}.self_attn", d)
        linear(f"{decoder}.layers.{layer}.linear1", d, wide)
        linear(f"{decoder}.layers.{layer}.linear2", wide, d)
        for name_ in ("norm1", "norm2", "norm3", "catext_norm"):
            norm(f"{decoder}.layers.{layer}.{name_}", d)
        boxes(f"{decoder}.bbox_embed.{layer}", d)
    for key in [k for k in tensors if k.startswith(f"{decoder}.bbox_embed.")]:
        tensors[key.removeprefix(f"{decoder}.")] = tensors[key]
    norm(f"{decoder}.norm", d)
    linear(f"{decoder}.ref_point_head.layers.0", 2 * d, d)
    linear(f"{decoder}.ref_point_head.layers.1", d, d)
    torch.save({"model": {f"module.{key}": tensor for key, tensor in tensors.items()}}, folder / name)
    return folder / name
