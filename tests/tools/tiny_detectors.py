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
    images = GroundingDinoImageProcessorPil(size={"shortest_edge": 64, "longest_edge": 128})
    GroundingDinoProcessor(image_processor=images, tokenizer=tokenizer).save_pretrained(folder)
    return folder
