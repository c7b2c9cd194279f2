"""A local model of images and text, with or without an adapter: loaded with the first call, one answer at a time."""

from __future__ import annotations

import importlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from editloupe.backends.endpoint import TOO_LONG_ADVICE
from editloupe.chat import Sampling, Token, Usage
from editloupe.errors import BackendError, ConfigError, ContextTooLong, Rejected
from editloupe.models.batching import LoadedModel, Network
from editloupe.models.chat.loading import model_of, processor_of
from editloupe.models.chat.open import ChatWeights, DType
from editloupe.models.chat.tokens import ScoresNotFinite, Watch, tokens_of
from editloupe.models.devices import Device, fitting, import_torch
from editloupe.models.weights import quietly
from editloupe.values import Json


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One conversation that is to be answered."""

    messages: Sequence[dict[str, Any]]
    """As a chat template takes them: `role`, and `content` as a list of parts; a picture is a part with `image`."""
    sampling: Sampling
    repetition_penalty: float
    top_logprobs: int | None
    """Alternatives to give with each token; None gives no log-probabilities."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What the model wrote."""

    text: str
    """Without special tokens."""
    is_cut: bool
    """Whether it ends at the bound of its length."""
    usage: Usage
    """With image tokens, where the model says which token stands for an image."""
    max_tokens: int
    """The bound that held: what was asked for, or less where the context leaves less."""
    tokens: tuple[Token, ...]
    """The tokens of the text with their log-probabilities, where they were asked for."""


@dataclass(frozen=True, kw_only=True)
class _Chat(LoadedModel):
    processor: Any
    context: int | None
    """Tokens of a conversation with its answer; None where the config does not say."""
    ends: tuple[int, ...]
    """Tokens that end an answer."""
    pad: int
    image: int | None
    """The token that stands for a piece of an image."""
    marks: re.Pattern[str]
    """The tokens that have a meaning of their own, as text."""
    fixed: dict[str, Any]
    """What the model's own generation config forbids or forces."""
    precision: str


_KEPT: Final = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens")
"""Of a model's generation config. Its sampling and its penalties are left behind: what is asked for holds."""


class ChatNetwork(Network[Turn, Answer, _Chat]):
    """One copy of a model. Thread-safe: answers are written one after another.

    device: a name as `open_device` takes it.   Raises ConfigError where weights cannot be loaded, with the first call or
    by `prepare`.
    """

    def __init__(self, weights: ChatWeights, *, device: str, dtype: DType) -> None:
        self.weights, self.name, self.dtype = weights, weights.name, dtype
        # A batch of conversations would be padded, and padding changes what a model writes.
        super().__init__(weights.name, device, key=lambda _: None, max_batch=1, gpu_batch=1)

    def __call__(self, turn: Turn) -> Answer:
        """Return the answer to a conversation. Raises ConfigError, and BackendError where it cannot be answered."""
        self._ready()
        return self._batcher(turn)

    @property
    def context(self) -> int | None:
        """Tokens that one conversation may have. Loads the model where that has not happened."""
        return self._ready().context

    def plain(self, text: str) -> str:
        """Return a text with a blank in each special token of the model, such as `<image>`, so that it stays a text.

        Loads the model where that has not happened.
        """
        return self._ready().marks.sub(lambda mark: f"{mark[0][0]} {mark[0][1:]}", text)

    def computed(self) -> dict[str, Json]:
        loaded = self._ready()
        packages = ("transformers", "peft") if self.weights.adapter else ("transformers",)
        versions = {name: str(importlib.import_module(name).__version__) for name in packages}
        return {**loaded.device.facts(), "precision": loaded.precision, **versions}

    def _load(self, device: Device) -> _Chat:
        from transformers import GenerationConfig

        torch = import_torch()
        dtype = _dtype(torch, self.dtype, device)
        processor, model = processor_of(self.weights), model_of(self.weights, dtype)
        try:
            fitting(lambda: model.eval().to(device.name))
        except MemoryError as error:
            raise ConfigError(
                f"model {self.name!r}: does not fit into the memory of {device.name} as {_name(dtype)} ({error})"
            ) from error
        config, own, words = model.config, model.generation_config, processor.tokenizer
        ends = _ends(own.eos_token_id, words)
        pads = (own.pad_token_id, words.pad_token_id, *ends)
        # What is left of it would fill in whatever a request does not say.
        for one in (model, *([] if self.weights.adapter is None else [model.get_base_model()])):
            one.generation_config = GenerationConfig()
        return _Chat(
            model=model,
            device=device,
            processor=processor,
            context=getattr(config.get_text_config(), "max_position_embeddings", None),
            ends=ends,
            pad=next((pad for pad in pads if isinstance(pad, int)), 0),
            image=getattr(config, "image_token_id", None),
            marks=_marks(processor),
            fixed={name: value for name in _KEPT if (value := getattr(own, name, None)) is not None},
            precision=_name(dtype),
        )

    def _run(self, items: list[Turn]) -> list[Answer]:
        return [self._answer(turn) for turn in items]

    def _answer(self, turn: Turn) -> Answer:
        loaded, where = self._ready(), f"model {self.name!r}"
        try:
            return fitting(lambda: self._written(loaded, turn))
        except MemoryError as error:
            raise Rejected(
                f"{where}: {loaded.device.name} ran out of memory over this conversation ({error}); reduce images with "
                "?max_image_side=PX, or lower --max-turns"
            ) from error
        except ScoresNotFinite as error:
            raise Rejected(
                f"{where}: its scores are not numbers in {loaded.precision}; try ?dtype=float32, or a model that was "
                "trained to the end"
            ) from error
        except BackendError:
            raise
        except Exception as error:  # a template may raise anything, and so may a processor
            first = " ".join(str(error).split())[:300]
            raise Rejected(f"{where}: failed over this conversation ({type(error).__name__}: {first})") from error

    def _written(self, loaded: _Chat, turn: Turn) -> Answer:
        from transformers import GenerationConfig, LogitsProcessorList, RepetitionPenaltyLogitsProcessor

        torch, asked = import_torch(), turn.sampling
        with quietly():
            inputs = loaded.processor.apply_chat_template(
                list(turn.messages), add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
            )
        length = int(inputs["input_ids"].shape[1])
        most = _bound(asked.max_tokens, length, loaded.context, self.name)
        sampled = bool(asked.temperature)
        config = GenerationConfig(
            max_new_tokens=most,
            do_sample=sampled,
            # 0 takes no token away; the library's own default would keep 50.
            **({"temperature": asked.temperature, "top_p": asked.top_p or 1.0, "top_k": 0} if sampled else {}),
            eos_token_id=list(loaded.ends),
            pad_token_id=loaded.pad,
            **loaded.fixed,
        )
        watch = Watch(turn.top_logprobs)
        steps = LogitsProcessorList([watch])
        if turn.repetition_penalty != 1:
            steps.append(RepetitionPenaltyLogitsProcessor(turn.repetition_penalty))
        name = loaded.device.name
        placed = {
            key: value.to(name, loaded.model.dtype) if value.is_floating_point() else value.to(name)
            for key, value in inputs.items()
        }
        with torch.inference_mode(), torch.random.fork_rng([name] if name.startswith("cuda") else []), quietly():
            if sampled:
                # Without a seed a new one: afterwards the generator is where it was before.
                torch.seed() if asked.seed is None else torch.manual_seed(asked.seed)
            whole = loaded.model.generate(**placed, generation_config=config, logits_processor=steps)
        ids = tuple(whole[0, length:].tolist())
        return Answer(
            text=str(loaded.processor.tokenizer.decode(ids, skip_special_tokens=True)),
            is_cut=len(ids) >= most and ids[-1] not in loaded.ends,
            usage=Usage(
                input_tokens=length,
                output_tokens=len(ids),
                image_tokens=None if loaded.image is None else int((inputs["input_ids"] == loaded.image).sum()),
            ),
            max_tokens=most,
            tokens=() if turn.top_logprobs is None else tokens_of(loaded.processor.tokenizer, watch.written(ids)),
        )


def _dtype(torch: Any, name: DType, device: Device) -> Any:
    if name != "auto":
        return getattr(torch, name)
    if not device.name.startswith("cuda"):
        return torch.float32
    return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float16


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _ends(own: int | list[int] | None, words: Any) -> tuple[int, ...]:
    """Return the tokens that end an answer: those of the generation config, and the tokenizer's own."""
    listed = own if isinstance(own, list) else [own]
    return tuple(dict.fromkeys(id for id in (*listed, words.eos_token_id) if id is not None))


def _marks(processor: Any) -> re.Pattern[str]:
    """Return a pattern of the special tokens of a tokenizer and its processor."""
    words = processor.tokenizer
    named = {words.convert_ids_to_tokens(id) for id in words.all_special_ids}
    named |= {str(token) for token in words.added_tokens_decoder.values() if token.special}
    named |= {getattr(processor, f"{kind}_token", None) for kind in ("image", "video", "audio")}
    longest_first = sorted((name for name in named if name), key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")


def _bound(asked: int | None, length: int, context: int | None, name: str) -> int:
    """Return how many tokens an answer may have. Raises ContextTooLong where none is left for it."""
    most = asked or 16384
    if context is None:
        return most
    if length >= context:
        raise ContextTooLong(
            f"model {name!r}: the conversation has {length:,} tokens, and the model takes {context:,}; {TOO_LONG_ADVICE}"
        )
    return min(most, context - length)
