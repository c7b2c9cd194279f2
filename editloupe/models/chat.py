"""`transformers/FOLDER`: a local model of images and text in this process, on transformers' own classes.

transformers/FOLDER                a model that transformers saved, or a hub id (owner/name, owner/name@revision)
transformers/ADAPTER?base=FOLDER   an adapter that peft saved, on this base; without `base`, on the one it was trained on
"""

from __future__ import annotations

import re
import threading
from functools import cache
from importlib.util import find_spec
from typing import Any, Final

from PIL import Image

from editloupe.backends import boxes
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.endpoint import TOO_LONG_ADVICE, Parameters, read_parameters
from editloupe.chat import ImagePart, Message, Reply, Request, Sampling, Token, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, ContextTooLong, MissingExtra, Rejected
from editloupe.models.adapted import Adapted, find_adapted
from editloupe.models.devices import check_device, import_torch, open_device
from editloupe.models.weights import reading

_LONGEST_REPLY: Final = 16384  # tokens, where nobody says: a model that loops stops there
_ONE_AT_A_TIME: Final = threading.RLock()


@cache
def _loaded(weights: Adapted, device_name: str) -> tuple[Any, Any]:
    """Return (model, processor): one copy for all judges of this process. Raises ConfigError."""
    torch, device = import_torch(), open_device(device_name)
    half = torch.bfloat16 if device.half and torch.cuda.is_bf16_supported() else torch.float16
    processor, model = weights.processor(), weights.load(half if device.half else torch.float32)
    with reading(f"model {weights.version} on {device.name}"):
        return model.eval().to(device.name), processor


class TransformersLMM:
    """A local model of images and text. Thread-safe: one answer is written at a time."""

    endpoint = "in process"

    def __init__(self, weights: Adapted, uri: BackendURI, read: Parameters) -> None:
        self._weights, self._device, self.version = weights, uri.params.get("device", "auto"), weights.version
        self._name = (weights.adapter or weights.model).identity.replace(" sha256:", "@")
        params = {name: value for name, value in uri.params.items() if name not in ("base", "device")}
        self.uri = str(BackendURI(provider=uri.provider, model=self._name, params=params))
        self.traits = Traits(
            describes=f"{self._name} with transformers, in this process",
            max_image_side=read.max_image_side,
            boxes=read.boxes,
            bare_replies=read.replies == "bare",
            gives_logprobs=True,
        )

    def reach(self) -> None:
        """Load the weights now, so that a fault in them is found before a run. Raises ConfigError."""
        with _ONE_AT_A_TIME:
            _loaded(self._weights, self._device)

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Answer `request`. Raises BackendError for this conversation, ConfigError where the weights cannot be loaded."""
        try:
            with _ONE_AT_A_TIME:
                return boxes.in_dialect(self.traits, request, lambda asked: self._written(asked, images))
        except (BackendError, ConfigError):
            raise
        except Exception as error:  # a template may raise anything, and so may a processor
            raise Rejected(f"{self.uri}: failed over this conversation ({type(error).__name__}: {error})") from error

    def _written(self, request: Request, images: ImageStore) -> Reply:
        torch, (model, processor) = import_torch(), _loaded(self._weights, self._device)
        words, top = processor.tokenizer, request.top_logprobs
        form = {"add_generation_prompt": True, "tokenize": True, "return_dict": True, "return_tensors": "pt"}
        messages = [self._message(message, images, words) for message in request.messages]
        inputs = processor.apply_chat_template(messages, **form).to(model.device, dtype=model.dtype)
        length, limit = inputs["input_ids"].shape[1], model.config.get_text_config().max_position_embeddings
        if length >= limit:
            raise ContextTooLong(f"{self.uri} takes {limit:,} tokens, found {length:,}; {TOO_LONG_ADVICE}")
        most, seed = min(request.sampling.max_tokens or _LONGEST_REPLY, limit - length), request.sampling.seed
        with torch.inference_mode(), torch.random.fork_rng([model.device] if model.device.type == "cuda" else []):
            torch.seed() if seed is None else torch.manual_seed(seed)
            found = model.generate(**inputs, generation_config=_generation(model, words, request.sampling, most))
        ids = found.sequences[0, length:].tolist()
        if any(bool(row.isnan().any()) for row in found.logits):
            raise Rejected(f"{self.uri}: its scores are not numbers; take a model that was trained to the end")
        asked = {**request.sampling.to_json(), "max_tokens": most, "top_logprobs": top}
        dropped = [name for name in ("tools", "answer_schema") if getattr(request, name)]
        return Reply(
            text=words.decode(ids, skip_special_tokens=True),
            finish="length" if len(ids) == most else "stop",
            usage=Usage(input_tokens=length, output_tokens=len(ids)),
            model=self._name,
            raw={**open_device(self._device).facts(), "precision": str(model.dtype).removeprefix("torch.")},
            sent={"model": self._name, **{n: v for n, v in asked.items() if v is not None}, "dropped": dropped},
            tokens=() if top is None else _tokens(words, ids, found.logits, top),
        )

    def _message(self, message: Message, images: ImageStore, words: Any) -> dict[str, Any]:
        """Return a message as a chat template takes it. A tool's words are a user's: few templates know more roles."""
        marks = re.compile("|".join(re.escape(str(mark)) for mark in words.added_tokens_decoder.values() if mark.special))
        content: list[dict[str, Any]] = []
        for part in message.parts:
            if isinstance(part, ImagePart):
                size = self.traits.image_policy.size(part.image.width, part.image.height)
                content.append({"type": "image", "image": Image.fromarray(images.array(part.image)).resize(size)})
            else:
                # A mark of the model in a text, such as <image>, stays a text.
                content.append({"type": "text", "text": marks.sub(lambda mark: f"{mark[0][:1]} {mark[0][1:]}", part.text)})
        return {"role": "user" if message.role == "tool" else message.role, "content": content}


def _generation(model: Any, words: Any, sampling: Sampling, most: int) -> Any:
    """Return how to generate: as the run asks. Of the model's own config, its end tokens alone count."""
    from transformers import GenerationConfig

    # top_k=0 takes no token away, and a penalty of 1 is none.
    drawn = {"do_sample": True, "temperature": sampling.temperature, "top_p": sampling.top_p or 1.0, "top_k": 0}
    ends = {"eos_token_id": model.generation_config.eos_token_id or words.eos_token_id, "pad_token_id": words.eos_token_id}
    told = {"max_new_tokens": most, "return_dict_in_generate": True, "output_logits": True, "repetition_penalty": 1.0}
    return GenerationConfig(**told, **ends, **(drawn if sampling.temperature else {"do_sample": False}))


def _tokens(words: Any, ids: list[int], logits: Any, top: int) -> tuple[Token, ...]:
    """Return the tokens of an answer with the model's own probabilities, each spelled as it is behind those before it."""
    found = []
    for at, (id_, row) in enumerate(zip(ids, logits, strict=True)):
        before = ids[max(0, at - 8) : at]
        known = len(words.decode(before, skip_special_tokens=True).rstrip("\ufffd"))
        chances = row[0].float().log_softmax(-1)
        likely = [id_, *chances.topk(min(top, len(chances))).indices.tolist()]
        texts = (words.decode([*before, one], skip_special_tokens=True)[known:].rstrip("\ufffd") for one in likely)
        (text, logprob), *others = zip(texts, chances[likely].tolist(), strict=True)
        if id_ not in words.all_special_ids:
            found.append(Token(text=text, logprob=logprob, top=tuple(others)))
    return tuple(found)


def open_backend(uri: BackendURI) -> TransformersLMM:
    """Open `transformers/FOLDER`. Weights are found, and not loaded yet. Raises ConfigError, also for a missing package."""
    if not uri.model:
        raise ConfigError(f"backend {str(uri)!r} names no model; expected transformers/FOLDER or transformers/OWNER/NAME")
    read = read_parameters(uri, known=("base", "boxes", "device", "max_image_side", "replies"))
    if any(find_spec(package) is None for package in ("torch", "transformers")):
        raise MissingExtra(f"The backend {uri.provider}/{uri.model}", "local")
    check_device(uri.params.get("device", "auto"))
    return TransformersLMM(find_adapted(uri.model, uri.params.get("base")), uri, read)
