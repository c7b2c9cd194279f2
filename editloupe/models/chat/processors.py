"""Reads the processor beside a model: what turns messages and pictures into the model's input."""

from __future__ import annotations

import importlib
import shutil
from pathlib import Path
from typing import Any, Final

from editloupe.errors import ConfigError
from editloupe.files import read_bytes
from editloupe.models.weights import reading
from editloupe.values import parse_json

_FILES: Final = ("processor_config.json", "preprocessor_config.json")
_MODEL_FILES: Final = ("config.json", "generation_config.json")
_QWEN: Final = {"qwen2_vl": "Qwen2VL", "qwen2_5_vl": "Qwen2_5_VL", "qwen3_vl": "Qwen3VL"}
"""Family → how the name of its processor's class begins. These want torchvision, for videos alone. Where it is installed,
their processor of videos refuses Pillow. So they are read without videos everywhere."""


def has_processor(folder: Path) -> bool:
    """Return whether a processor was saved in the folder."""
    return any((folder / name).is_file() for name in _FILES)


def load_processor(folder: Path, family: str, where: str) -> Any:
    """Return the processor of a folder, with its chat template.

    family: the model's `model_type`.   where: the beginning of messages.   Raises ConfigError.
    """
    from transformers import AutoProcessor

    with reading(where, folder):
        if family in _QWEN:
            found = _images_only(folder, _QWEN[family])
        else:
            # Pillow also where torchvision is there, so that pixels agree between machines.
            found = AutoProcessor.from_pretrained(folder, backend="pil", local_files_only=True, trust_remote_code=False)
    if not hasattr(found, "image_processor") or not hasattr(found, "tokenizer"):
        raise ConfigError(f"{where}: expected a processor of images and text, found {type(found).__name__}")
    found.chat_template = found.chat_template or getattr(found.tokenizer, "chat_template", None)
    if not found.chat_template:
        raise ConfigError(
            f"{where}: has no chat template (chat_template.jinja); take the model's version for dialogues, which is mostly "
            "called Instruct, or put the template of its base there"
        )
    return found


def _images_only(folder: Path, name: str) -> Any:
    """Return the processor of a Qwen-VL that reads images, and no videos."""
    transformers = importlib.import_module("transformers")
    base: Any = getattr(transformers, f"{name}Processor")

    class ImagesOnly(base):  # type: ignore[misc]
        def __init__(self, image_processor: Any = None, tokenizer: Any = None, chat_template: Any = None) -> None:
            self.image_token, self.video_token = "<|image_pad|>", "<|video_pad|>"
            self.vision_start_token, self.vision_end_token = "<|vision_start|>", "<|vision_end|>"
            for token in ("image", "video", "vision_start", "vision_end"):
                id = tokenizer.convert_tokens_to_ids(getattr(self, f"{token}_token"))
                setattr(self, f"{token}_token_id", id)
            transformers.ProcessorMixin.__init__(self, image_processor, tokenizer, chat_template=chat_template)

        def save_pretrained(self, save_directory: Any, **more: Any) -> list[str]:
            """Copy the files as they are, so that any other program reads the whole processor."""
            target = Path(save_directory)
            target.mkdir(parents=True, exist_ok=True)
            files = [file for kind in ("*.json", "*.jinja", "*.txt") for file in folder.glob(kind)]
            kept = [f for f in files if f.name not in _MODEL_FILES and not f.name.endswith(".index.json")]
            return [str(shutil.copy(file, target)) for file in kept]

    images = transformers.AutoImageProcessor.from_pretrained(folder, backend="pil", local_files_only=True)
    words = transformers.AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    return ImagesOnly(images, words, chat_template=words.chat_template or _template(folder))


def _template(folder: Path) -> str | None:
    """Return the template in chat_template.json, where older versions saved it."""
    file = folder / "chat_template.json"
    return str(parse_json(read_bytes(file))["chat_template"]) if file.is_file() else None
