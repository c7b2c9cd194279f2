"""`transformers/FOLDER`: a local model of images and text that answers in this process, one question at a time.

transformers/FOLDER                a model that transformers saved, or a hub id (owner/name, owner/name@revision)
transformers/ADAPTER?base=FOLDER   an adapter that peft saved, on this base; without `base`, on the one it was trained on
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from PIL import Image

from editloupe.backends import boxes
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.endpoint import TOO_LONG_ADVICE, read_parameters
from editloupe.chat import ImagePart, Message, Reply, Request, Token, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, ContextTooLong, MissingExtra, Rejected
from editloupe.files import read_bytes
from editloupe.models.devices import check_device, fitting, import_torch, open_device
from editloupe.models.hub import Kind, Weights, identity_of
from editloupe.models.weights import load_saved, reading
from editloupe.values import finite, parse_json

_PARAMETERS: Final = ("base", "boxes", "device", "max_image_side", "repetition_penalty", "replies")
_LONGEST_REPLY: Final = 16384
"""Tokens of a reply where nobody says: a model that loops stops there."""
_CHAT: Final = Kind(
    name="model", need="a model that reads images and text", option="backend", families=None, default="", revision=""
)
_ONE_AT_A_TIME: Final = threading.RLock()
"""Loading and writing: two threads that import transformers at once can find half of it."""


@dataclass(frozen=True, kw_only=True)
class ChatWeights:
    """A model, with the adapter on it if there is one."""

    model: Weights
    adapter: Weights | None = None

    @property
    def version(self) -> str:
        """Family and identity of the model, then of the adapter."""
        return ", ".join(f"{one.family} {one.identity}" for one in (self.model, self.adapter) if one is not None)


def find_weights(name: str, base: str | None = None) -> ChatWeights:
    """Return the model of a folder or hub id, or the adapter there with its base. Nothing is loaded. Raises ConfigError."""
    folder, identity = _CHAT.folder(name)
    config = folder / "adapter_config.json"
    if not config.is_file():
        if base is not None:
            raise ConfigError(f"base={base!r}: {name!r} has no {config.name}, so it is no adapter and takes no base")
        return ChatWeights(model=_CHAT.in_folder(folder, identity))
    try:
        trained = parse_json(read_bytes(config))
        adapter = Weights(
            path=folder.resolve(), identity=identity or identity_of(folder), family=trained["peft_type"].lower()
        )
        model = _CHAT.in_folder(*_CHAT.folder(base or trained["base_model_name_or_path"] or ""))
    except (ConfigError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"adapter {name!r}: {error}; name the model that it was trained on with ?base=FOLDER") from error
    return ChatWeights(model=model, adapter=adapter)


def processor_of(weights: ChatWeights) -> Any:
    """Return the processor of pictures and text: the adapter's own, else the model's. Raises ConfigError."""
    import transformers
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES

    own = weights.adapter if weights.adapter and any(weights.adapter.path.glob("*processor_config.json")) else None
    folder = (own or weights.model).path
    kind: Any = getattr(transformers, PROCESSOR_MAPPING_NAMES.get(weights.model.family, "ProcessorMixin"))

    class PicturesOnly(kind):  # type: ignore[misc]
        """Its videos would need torchvision."""

        @classmethod
        def get_attributes(cls) -> list[str]:
            return [name for name in super().get_attributes() if "video" not in name]

    # Under its own name, also in what it saves.
    PicturesOnly.__name__ = kind.__name__
    with reading(f"model {str(folder)!r}", folder):
        # Pillow also where torchvision is there, so that pixels agree between machines.
        found = PicturesOnly.from_pretrained(folder, backend="pil", local_files_only=True, trust_remote_code=False)
    if not hasattr(found, "image_processor") or not hasattr(found, "tokenizer"):
        raise ConfigError(
            f"model {str(folder)!r}: {weights.model.family} is no model of images and text, such as qwen2_5_vl"
        )
    found.chat_template = found.chat_template or found.tokenizer.chat_template
    if not found.chat_template:
        raise ConfigError(f"model {str(folder)!r}: has no chat template (chat_template.jinja); take its Instruct version")
    return found


def model_of(weights: ChatWeights, dtype: Any, **options: Any) -> Any:
    """Return the model on the CPU, with its adapter; every tensor is from the files.   options: of `from_pretrained`.

    Raises ConfigError.
    """
    from transformers import AutoModelForImageTextToText

    base, adapter = weights.model, weights.adapter
    where = f"model {str(base.path)!r}"
    model = load_saved(AutoModelForImageTextToText, base.path, where, dtype=dtype, use_safetensors=True, **options)
    if adapter is None:
        return model
    if find_spec("peft") is None:
        raise MissingExtra(f"The adapter {str(adapter.path)!r}", "local")
    from peft import PeftConfig, get_peft_model

    where = f"adapter {str(adapter.path)!r} on the base {str(base.path)!r}"
    with reading(where, adapter.path), warnings.catch_warnings():
        # What peft warns of is looked at below.
        warnings.simplefilter("ignore")
        model = get_peft_model(model, PeftConfig.from_pretrained(str(adapter.path), inference_mode=True))
        found = model.load_adapter(str(adapter.path), "default", torch_device="cpu")
    if odd := [*found.unexpected_keys, *(key for key in found.missing_keys if "default" in key)]:
        told = f"{len(odd)} of its tensors do not belong to this base, or are missing ({odd[0]} …)"
        raise ConfigError(f"{where}: {told}; name the base that it was trained on with ?base=FOLDER")
    return model


@cache
def _loaded(weights: ChatWeights, device_name: str) -> tuple[Any, Any, str]:
    """Return (model, processor, device): one copy for all judges of this process. Raises ConfigError."""
    torch, device = import_torch(), open_device(device_name)
    half = torch.bfloat16 if device.half and torch.cuda.is_bf16_supported() else torch.float16
    processor, model = processor_of(weights), model_of(weights, half if device.half else torch.float32)
    try:
        fitting(lambda: model.eval().to(device.name))
    except MemoryError as error:
        where = f"model {str(weights.model.path)!r}"
        raise ConfigError(f"{where}: does not fit into the memory of {device.name} ({error})") from error
    return model, processor, device.name


class TransformersLMM:
    """A local model of images and text. Thread-safe: one answer is written at a time."""

    endpoint = "in process"

    def __init__(self, weights: ChatWeights, uri: BackendURI) -> None:
        """uri: as the user wrote it; what changes an answer becomes part of the judge's identity. Raises ConfigError."""
        self._weights, self._device = weights, uri.params.get("device", "auto")
        self.version = weights.version
        self._name = (weights.adapter or weights.model).identity.replace(" sha256:", "@")
        params = {name: value for name, value in uri.params.items() if name not in ("base", "device")}
        self._uri = BackendURI(provider=uri.provider, model=self._name, params=params)
        self._penalty = finite(float(params.get("repetition_penalty", "1")))
        read = read_parameters(uri, known=_PARAMETERS)
        self.traits = Traits(
            describes=f"{self._name} with transformers, in this process",
            max_image_side=read.max_image_side,
            boxes=read.boxes,
            bare_replies=read.replies == "bare",
            gives_logprobs=True,
        )

    @property
    def uri(self) -> str:
        """Provider, the weights' name with their digest, and what changes an answer; no path."""
        return str(self._uri)

    def reach(self) -> None:
        """Load the weights now, so that a fault in them is found before a run. Raises ConfigError."""
        with _ONE_AT_A_TIME:
            _loaded(self._weights, self._device)

    def context_limit(self) -> int | None:
        """Return the tokens that one conversation may have; None where the model's config does not say."""
        with _ONE_AT_A_TIME:
            config = _loaded(self._weights, self._device)[0].config.get_text_config()
        return getattr(config, "max_position_embeddings", None)

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Answer `request`. The first call loads the weights.

        Raises BackendError where this conversation cannot be answered, ConfigError where the weights cannot be loaded.
        """
        self.reach()
        sizes = boxes.sizes_of(request, self.traits.image_policy)
        asked = boxes.outgoing(request, self.traits.boxes, sizes)
        try:
            with _ONE_AT_A_TIME:
                reply = fitting(lambda: self._written(asked, images))
        except MemoryError as error:
            advice = "reduce images with ?max_image_side=PX, or lower --max-turns"
            raise Rejected(f"{self.uri}: out of memory over this conversation ({error}); {advice}") from error
        except BackendError:
            raise
        except Exception as error:  # a template may raise anything, and so may a processor
            raise Rejected(f"{self.uri}: failed over this conversation ({type(error).__name__}: {error})") from error
        return boxes.incoming(reply, self.traits.boxes, sizes, answer=boxes.answer_image(request, sizes))

    def _written(self, request: Request, images: ImageStore) -> Reply:
        from transformers import GenerationConfig

        torch, sampling = import_torch(), request.sampling
        model, processor, device = _loaded(self._weights, self._device)
        messages = [self._message(message, images, _marks(processor)) for message in request.messages]
        inputs = processor.apply_chat_template(
            messages, add_generation_prompt=True, tokenize=True, return_dict=True, return_tensors="pt"
        )
        length, limit = int(inputs["input_ids"].shape[1]), self.context_limit()
        most = sampling.max_tokens or _LONGEST_REPLY
        if limit is not None and length >= limit:
            told = f"the conversation has {length:,} tokens, and the model takes {limit:,}"
            raise ContextTooLong(f"{self.uri}: {told}; {TOO_LONG_ADVICE}")
        own, ends = model.generation_config, processor.tokenizer.eos_token_id
        config = GenerationConfig(
            max_new_tokens=most if limit is None else min(most, limit - length),
            do_sample=bool(sampling.temperature),
            # 0 takes no token away; the library's own default would keep 50.
            **(
                {"temperature": sampling.temperature, "top_p": sampling.top_p or 1.0, "top_k": 0}
                if sampling.temperature
                else {}
            ),
            repetition_penalty=self._penalty,
            eos_token_id=own.eos_token_id or ends,
            pad_token_id=own.pad_token_id or processor.tokenizer.pad_token_id or ends,
            return_dict_in_generate=True,
            output_logits=True,
        )
        placed = {k: v.to(device, model.dtype) if v.is_floating_point() else v.to(device) for k, v in inputs.items()}
        with torch.inference_mode(), torch.random.fork_rng([device] if device.startswith("cuda") else []):
            torch.seed() if sampling.seed is None else torch.manual_seed(sampling.seed)
            found = model.generate(**placed, generation_config=config)
        ids = found.sequences[0, length:].tolist()
        if any(bool(row.isnan().any()) for row in found.logits):
            raise Rejected(f"{self.uri}: its scores are not numbers; take a model that was trained to the end")
        asked = {name: value for name, value in sampling.to_json().items() if value is not None}
        sent = {"model": self._name, "top_logprobs": request.top_logprobs, **asked, "max_tokens": config.max_new_tokens}
        dropped = [name for name in ("tools", "choices", "answer_schema") if getattr(request, name)]
        dropped += ["max_tokens"] if config.max_new_tokens < asked.get("max_tokens", 0) else []
        ended = ids[-1] in (config.eos_token_id if isinstance(config.eos_token_id, list) else [config.eos_token_id])
        return Reply(
            text=str(processor.tokenizer.decode(ids, skip_special_tokens=True)),
            finish="stop" if ended else "length",
            usage=Usage(input_tokens=length, output_tokens=len(ids)),
            model=self._name,
            raw={**open_device(self._device).facts(), "precision": str(model.dtype).removeprefix("torch.")},
            sent={**sent, **({"dropped": dropped} if dropped else {})},
            tokens=()
            if request.top_logprobs is None
            else tuple(_tokens(processor, ids, found.logits, request.top_logprobs)),
        )

    def _message(self, message: Message, images: ImageStore, marks: re.Pattern[str]) -> dict[str, Any]:
        """Return a message as a chat template takes it. A tool's words are a user's: few templates know more roles."""
        content: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, ImagePart):
                size = self.traits.image_policy.size(part.image.width, part.image.height)
                content.append({"type": "image", "image": Image.fromarray(images.array(part.image)).resize(size)})
            else:
                # A mark of the model in a text, such as <image>, stays a text.
                content.append({"type": "text", "text": marks.sub(lambda mark: f"{mark[0][0]} {mark[0][1:]}", part.text)})
        return {"role": "user" if message.role == "tool" else message.role, "content": content}


def _marks(processor: Any) -> re.Pattern[str]:
    known = [*processor.tokenizer.all_special_tokens, getattr(processor, "image_token", None) or ""]
    known += [str(token) for token in processor.tokenizer.added_tokens_decoder.values() if token.special]
    return re.compile("|".join(re.escape(mark) for mark in sorted({*known} - {""}, key=len, reverse=True)) or "(?!)")


def _tokens(processor: Any, ids: list[int], logits: Any, top: int) -> Iterator[Token]:
    """Yield the tokens of an answer with the model's own probabilities, without special ones.

    The tokens before one decide how it is spelled. A character that is not whole yet is "".
    """
    words = processor.tokenizer
    for at, (id_, row) in enumerate(zip(ids, logits, strict=True)):
        before = ids[max(0, at - 8) : at]
        head = words.decode(before, skip_special_tokens=True).rstrip("\N{REPLACEMENT CHARACTER}")

        def added(one: int, before: list[int] = before, head: str = head) -> str:
            whole = words.decode([*before, one], skip_special_tokens=True).rstrip("\N{REPLACEMENT CHARACTER}")
            return str(whole[len(head) :] if one not in words.all_special_ids else words.convert_ids_to_tokens(one))

        chances = row[0].float().log_softmax(-1)
        best = chances.topk(min(top, len(chances)))
        pairs = [(added(one), value) for one, value in zip(best.indices.tolist(), best.values.tolist(), strict=True)]
        if id_ not in words.all_special_ids:
            yield Token(text=added(id_), logprob=float(chances[id_]), top=tuple(pairs))


def open_backend(uri: BackendURI) -> TransformersLMM:
    """Open `transformers/FOLDER`. Weights are found, and not loaded yet.

    Raises ConfigError: no folder, one without a config or weights, an unknown parameter, a missing package or device.
    """
    if not uri.model:
        raise ConfigError(f"backend {str(uri)!r} names no model; expected transformers/FOLDER or transformers/OWNER/NAME")
    read_parameters(uri, known=_PARAMETERS)
    penalty = uri.params.get("repetition_penalty", "1")
    if not re.fullmatch(r"\d(\.\d+)?", penalty) or float(penalty) < 0.1:
        raise ConfigError(f"repetition_penalty={penalty!r}: expected a number from 0.1 to 9.9; 1 is none")
    if any(find_spec(package) is None for package in ("torch", "transformers")):
        raise MissingExtra(f"The backend {uri.provider}/{uri.model}", "local")
    check_device(uri.params.get("device", "auto"))
    return TransformersLMM(find_weights(uri.model, uri.params.get("base")), uri)
