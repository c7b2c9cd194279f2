"""A tiny Idefics3 with random weights and a tokenizer of letters, made from nothing; about 60,000 parameters.

python tests/models/tiny_idefics3.py FOLDER
"""

from __future__ import annotations

import string
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

VOCABULARY = 200
IMAGE_TOKEN = 150
SIDE = 56
"""px of the vision encoder's input, and of each part that a larger image is cut into."""
LONGEST = 2048
"""Tokens of a conversation."""

# The checkpoint's own form: "User:" and "Assistant:", each message ends with a mark.
TEMPLATE = (
    "<|begin_of_text|>{% for message in messages %}{{message['role'] | capitalize}}"
    "{% if message['content'][0]['type'] == 'image' %}{{':'}}{% else %}{{': '}}{% endif %}"
    "{% for line in message['content'] %}{% if line['type'] == 'text' %}{{line['text']}}"
    "{% elif line['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<end_of_utterance>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def tokenizer(words: Sequence[str] = ()) -> Any:
    """Return a tokenizer of single characters, in which the three operations are one token each.

    words: pieces of text that are one token each, too; they make a long prompt short.
    """
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    special = ["<|begin_of_text|>", "<|pad|>", "<unk>"]
    letters = [*string.printable[:95], "\n", "×", "“", "”", "–"]
    tags = [f"<row_{row}_col_{col}>" for row in range(1, 7) for col in range(1, 7)]
    marks = ["<image>", "<fake_token_around_image>", "<end_of_utterance>", "<global-img>"]
    # The first of the marks gets the number that config.json names.
    spare = [f"<spare_{n}>" for n in range(IMAGE_TOKEN - 3 - len(special) - len(letters) - len(tags))]
    vocabulary = {piece: number for number, piece in enumerate([*special, *letters])}
    plain = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<unk>"))
    plain.decoder = decoders.Fuse()
    plain.add_tokens([AddedToken(op, normalized=False) for op in ("ADD", "EDIT", "REMOVE")])
    plain.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in [*tags, *spare, *marks]])
    plain.add_tokens([AddedToken(word, normalized=False) for word in words])
    return PreTrainedTokenizerFast(
        tokenizer_object=plain,
        bos_token="<|begin_of_text|>",
        eos_token="<end_of_utterance>",
        pad_token="<|pad|>",
        unk_token="<unk>",
        model_max_length=LONGEST,
    )


def processor(*, template: str | None = TEMPLATE, longest_edge: int = 2 * SIDE, words: Sequence[str] = ()) -> Any:
    """Return the processor; images are scaled to `longest_edge` px and cut into squares of SIDE."""
    from transformers import Idefics3Processor
    from transformers.models.idefics3.image_processing_pil_idefics3 import Idefics3ImageProcessorPil

    images = Idefics3ImageProcessorPil(size={"longest_edge": longest_edge}, max_image_size={"longest_edge": SIDE})
    made = tokenizer(words)
    assert made.convert_tokens_to_ids("<image>") == IMAGE_TOKEN
    return Idefics3Processor(images, made, image_seq_len=(SIDE // 14) ** 2 // 4, chat_template=template)


def model(*, hidden: int = 32, layers: int = 1, spread: float = 0.02, vocabulary: int = VOCABULARY) -> Any:
    """Return the model in fp32.   spread: standard deviation of the random weights."""
    import torch
    from transformers import Idefics3Config, Idefics3ForConditionalGeneration

    torch.manual_seed(0)
    words = tokenizer()
    text = {
        "model_type": "llama", "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": 2 * hidden,
        "num_hidden_layers": layers, "num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": LONGEST,
        "bos_token_id": words.bos_token_id, "eos_token_id": words.eos_token_id, "pad_token_id": words.pad_token_id,
        "initializer_range": spread,
    }  # fmt: skip
    vision = {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": SIDE,
        "patch_size": 14, "initializer_range": spread,
    }  # fmt: skip
    made = Idefics3ForConditionalGeneration(
        Idefics3Config(
            text_config=text, vision_config=vision, scale_factor=2, image_token_id=IMAGE_TOKEN,
            pad_token_id=words.pad_token_id, initializer_range=spread,
        )
    )  # fmt: skip
    made.generation_config.eos_token_id = words.eos_token_id
    made.generation_config.pad_token_id = words.pad_token_id
    return made


def build(
    folder: Path,
    *,
    template: str | None = TEMPLATE,
    longest_edge: int = 2 * SIDE,
    words: Sequence[str] = (),
    **size: Any,
) -> Path:
    """Write the checkpoint and return its folder.   words: as `tokenizer` takes them.   size: as `model` takes it."""
    model(vocabulary=VOCABULARY + len(words), **size).save_pretrained(folder)
    processor(template=template, longest_edge=longest_edge, words=words).save_pretrained(folder)
    return folder


if __name__ == "__main__":
    build(Path(sys.argv[1]))
