"""TRL calls `reward_fn` on a tiny random language model: numbers where the judge gave a label, None elsewhere."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.backends.scripted import ScriptedLMM
from editloupe.rewards import reward_fn
from tests.conftest import final

NEEDED = ("torch", "transformers", "trl", "datasets")
pytestmark = [
    pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in NEEDED), reason="needs the extra `train`"),
    # The trainer's own code and torch warn.
    pytest.mark.filterwarnings("ignore"),
]


def tiny_model(vocabulary: int) -> Any:
    """Return a Qwen2 of two layers with random weights."""
    import torch
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=vocabulary, hidden_size=16, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, bos_token_id=0, eos_token_id=1, pad_token_id=1,
        )
    )  # fmt: skip


def word_tokenizer() -> Any:
    """Return a tokenizer of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<s>", "</s>", "<unk>", "paint", "it", "red", "blue", "green", "the", "wall", "door"]
    inner = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner, bos_token="<s>", eos_token="</s>", pad_token="</s>", unk_token="<unk>"
    )


def test_failures_reach_the_trainer_as_none_and_never_as_a_number(tmp_path: Path) -> None:
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    before, after = tmp_path / "before.png", tmp_path / "after.png"
    Image.fromarray(np.full((32, 32, 3), 200, np.uint8)).save(before)
    Image.fromarray(np.full((32, 32, 3), 90, np.uint8)).save(after)
    # Of four completions of a group the judge labels two, and says nothing of use about the others.
    replies = iter([final("Flawless Execution"), "no label", "no label", final("Wrong Action")] * 50)
    judged = reward_fn(
        ScriptedLMM(lambda request: next(replies)), mode="plain", criteria="if", concurrency=1, max_reminders=0,
        edited=lambda completion, row: after,
    )  # fmt: skip
    given: list[list[float | None]] = []

    def reward(prompts: list[Any], completions: list[Any], **columns: Any) -> list[float | None]:
        given.append(judged(prompts, completions, **columns))
        return given[-1]

    tokenizer = word_tokenizer()
    trainer = GRPOTrainer(
        model=tiny_model(len(tokenizer)),
        reward_funcs=reward,
        args=GRPOConfig(
            output_dir=str(tmp_path / "out"), per_device_train_batch_size=4, num_generations=4, max_completion_length=4,
            max_steps=2, logging_steps=1, report_to=[], use_cpu=True, save_strategy="no", bf16=False, disable_tqdm=True,
        ),
        train_dataset=Dataset.from_list([{"prompt": "paint the wall red", "source": str(before)}] * 4),
        processing_class=tokenizer,
    )  # fmt: skip
    trainer.train()
    # Labels are 1 to 4; "Wrong Action" is 2, a third of the way.
    assert given == [[1.0, None, None, pytest.approx(1 / 3)]] * 2
    logged = [entry for entry in trainer.state.log_history if "reward" in entry]
    # The mean of the group is of what was judged: (1 + 1/3) / 2.
    assert [float(entry["reward"]) for entry in logged] == [pytest.approx(2 / 3, abs=1e-4)] * 2
    assert [float(entry["editloupe/unscored"]) for entry in logged] == [0.5, 0.5]
    assert all(math.isfinite(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry)
