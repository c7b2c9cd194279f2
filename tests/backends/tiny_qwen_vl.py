"""Tiny Qwen2.5-VL and Qwen3-VL with random weights and a byte-level tokenizer, made from nothing. Under 1 MB each.

    python tests/backends/tiny_qwen_vl.py {qwen2.5-vl|qwen3-vl} FOLDER

Runs in the environment that has vLLM: it needs torch and transformers, and nothing of editloupe.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

VOCABULARY = 320
LONGEST = 32_768

SPECIAL = [
    "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>",
    "<|box_end|>", "<|quad_start|>", "<|quad_end|>", "<|vision_start|>", "<|vision_end|>", "<|vision_pad|>",
    "<|image_pad|>", "<|video_pad|>",
]  # fmt: skip

# Qwen's form: a system head that lists the tools, one block a message, one picture mark an image. Each message is written
# the same whatever follows it, so that a longer conversation begins like the shorter one.
TEMPLATE = """
{%- macro content(m) %}
{%- if m.content is string %}{{- m.content }}
{%- elif m.content %}{%- for c in m.content %}
{%- if c.type == 'image' or 'image' in c or 'image_url' in c %}{{- '<|vision_start|><|image_pad|><|vision_end|>' }}
{%- elif 'text' in c %}{{- c.text }}
{%- endif %}{%- endfor %}
{%- endif %}
{%- endmacro %}
{%- set head = messages[0].role == 'system' %}
{%- if tools or head %}{{- '<|im_start|>system\n' }}
{%- if head %}{{- content(messages[0]) }}{%- endif %}
{%- if tools %}{{- '\n# Tools\n<tools>' }}{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}
{{- '\n</tools>\nReturn <tool_call>\n{"name":..., "arguments":...}\n</tool_call>' }}{%- endif %}
{{- '<|im_end|>\n' }}{%- endif %}
{%- for m in messages %}{%- if not (loop.first and head) %}
{{- '<|im_start|>' + m.role + '\n' }}{{- content(m) }}
{%- for call in m.tool_calls or [] %}{%- set f = call.function if call.function else call %}
{{- '\n<tool_call>\n' }}{{- {'name': f.name, 'arguments': f.arguments} | tojson }}{{- '\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endif %}{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}"""


def tokenizer(folder: Path) -> dict[str, int]:
    """Writes a tokenizer of single bytes; gives the ids of its special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import PreTrainedTokenizerFast

    letters = {letter: number for number, letter in enumerate(sorted(ByteLevel.alphabet()))}
    plain = Tokenizer(models.BPE(vocab=letters, merges=[]))
    plain.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=True)
    plain.decoder = decoders.ByteLevel()
    plain.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in SPECIAL])
    tags = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
    plain.add_tokens([AddedToken(name, normalized=False) for name in tags])
    fast = PreTrainedTokenizerFast(
        tokenizer_object=plain, eos_token="<|im_end|>", pad_token="<|endoftext|>", model_max_length=LONGEST
    )
    fast.chat_template = TEMPLATE
    fast.save_pretrained(folder)
    config = folder / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "tokenizer_class": "Qwen2Tokenizer"}, indent=1))
    return {name: fast.convert_tokens_to_ids(name) for name in SPECIAL}


def model(kind: str, ids: dict[str, int]) -> tuple[Any, int, str, str, str]:
    """The model, its patch size in px, and the names of its processor, image processor and video processor."""
    import transformers

    marks = {
        "vision_start_token_id": ids["<|vision_start|>"],
        "vision_end_token_id": ids["<|vision_end|>"],
        "image_token_id": ids["<|image_pad|>"],
        "video_token_id": ids["<|video_pad|>"],
        "tie_word_embeddings": False,
    }
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [4, 6, 6]}
    text = {
        "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 32, "max_position_embeddings": LONGEST,
        "rope_parameters": rope, "bos_token_id": ids["<|endoftext|>"], "eos_token_id": ids["<|im_end|>"],
        "pad_token_id": ids["<|endoftext|>"],
    }  # fmt: skip
    vision = {
        "depth": 2, "hidden_size": 64, "intermediate_size": 128, "num_heads": 2, "out_hidden_size": 64,
        "spatial_merge_size": 2, "temporal_patch_size": 2,
    }  # fmt: skip
    if kind == "qwen2.5-vl":
        vision |= {"patch_size": 14, "window_size": 112, "fullatt_block_indexes": [1]}
        config = transformers.Qwen2_5_VLConfig(text_config=text, vision_config=vision, **marks)
        names = ("Qwen2_5_VLProcessor", "Qwen2VLImageProcessor", "Qwen2VLVideoProcessor")
        return (transformers.Qwen2_5_VLForConditionalGeneration(config), 14, *names)
    rope |= {"rope_theta": 5e6, "mrope_section": [6, 5, 5], "mrope_interleaved": True}
    vision |= {"patch_size": 16, "deepstack_visual_indexes": [0], "num_position_embeddings": 64}
    config = transformers.Qwen3VLConfig(text_config=text, vision_config=vision, **marks)
    names = ("Qwen3VLProcessor", "Qwen2VLImageProcessorFast", "Qwen3VLVideoProcessor")
    return (transformers.Qwen3VLForConditionalGeneration(config), 16, *names)


def build(kind: str, folder: Path) -> None:
    """Writes the checkpoint. kind: "qwen2.5-vl" or "qwen3-vl"."""
    import torch

    folder.mkdir(parents=True, exist_ok=True)
    ids = tokenizer(folder)
    torch.manual_seed(0)
    made, patch, processor, image_processor, video_processor = model(kind, ids)
    made = made.to(torch.bfloat16)
    made.generation_config.eos_token_id = ids["<|im_end|>"]
    made.generation_config.pad_token_id = ids["<|endoftext|>"]
    made.save_pretrained(folder)
    # One token is a square of two patches; an image has at most 64 of them.
    token = (2 * patch) ** 2
    shared = {
        "size": {"shortest_edge": token, "longest_edge": 64 * token}, "patch_size": patch, "temporal_patch_size": 2,
        "merge_size": 2, "image_mean": [0.5] * 3, "image_std": [0.5] * 3, "processor_class": processor,
    }  # fmt: skip
    for name, kinds in (
        ("preprocessor_config.json", {"image_processor_type": image_processor}),
        ("video_preprocessor_config.json", {"video_processor_type": video_processor}),
    ):
        (folder / name).write_text(json.dumps({**shared, **kinds}, indent=1))


if __name__ == "__main__":
    build(sys.argv[1], Path(sys.argv[2]))
