"""CLIP, DINOv2 and DINOv3 through transformers, behind `Features`. Loaded with the first call."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, ToolError
from editloupe.models.batching import LoadedModel, SavedNetwork
from editloupe.models.devices import Device, import_torch
from editloupe.models.features.base import CLIP_FAMILIES, FAMILIES, Patches, Tokens, Vector
from editloupe.models.weights import Weights, load_saved, reading

MAX_BATCH: Final = 32
"""Images in a batch on a GPU."""
MAX_TEXTS: Final = 64
"""Texts in a batch on a GPU."""


@dataclass(frozen=True, kw_only=True)
class _Encoder(LoadedModel):
    """transformers' model, and what prepares its images."""

    processor: Any
    side: int
    """Of the network's square input, in px."""
    patch: int
    """px a side."""
    extra: int
    """Tokens before those of the patches: one of the whole image, then registers."""

    def pixels(self, rgb: RGB, **how: Any) -> Any:
        """Return 3×side×side, normalized.   how: in place of the processor's own settings."""
        # A copy, since pictures from the store are read-only.
        made = self.processor([np.array(rgb)], return_tensors="pt", input_data_format="channels_last", **how)
        return made["pixel_values"][0]

    def squashed(self, rgb: RGB, **how: Any) -> Any:
        """Return the whole image at the network's size."""
        return self.pixels(rgb, size={"height": self.side, "width": self.side}, do_center_crop=False, **how)


@dataclass(frozen=True, kw_only=True)
class _EncoderInput:
    """One image on its way through the batcher."""

    pixels: Any
    """3×side×side, normalized."""
    weights: Any = None
    """One for each patch, row by row; None for the whole image."""
    tokens: bool = False
    """Whether all tokens are wanted, L×D, in place of one vector."""


class TransformersFeatures(SavedNetwork[_EncoderInput, NDArray[np.float32], _Encoder]):
    """Any model of FAMILIES, from a folder of transformers.

    It computes in fp32 on the CPU, and is autocast to fp16 on a GPU.
    Whole images: CLIP's image embedding, DINO's class token. Patches of CLIP: tokens after the last block, without the
    class token, averaged, normalized and projected, as GIE-Bench's script does. Patches of DINO: the final tokens averaged.
    """

    def __init__(self, weights: Weights, *, device: str = "auto") -> None:
        self._clip = weights.family in CLIP_FAMILIES
        title = FAMILIES[weights.family]
        super().__init__(weights, title, device, key=lambda i: (i.weights is None, i.tokens), gpu_batch=MAX_BATCH)

    @property
    def side_px(self) -> int:
        return self._ready().side

    @property
    def grid(self) -> int:
        loaded = self._ready()
        return loaded.side // loaded.patch

    def __call__(self, images: Sequence[RGB], patches: Sequence[Patches | None]) -> list[Vector]:
        return self._batcher.map(self._item(rgb, one) for rgb, one in zip(images, patches, strict=True))

    def _item(self, rgb: RGB, patches: Patches | None) -> _EncoderInput:
        loaded = self._ready()
        if patches is None:
            return _EncoderInput(pixels=loaded.pixels(rgb))
        # GIE-Bench's script squashes with this filter, whatever the model's own is.
        pixels = loaded.squashed(rgb, resample=Image.Resampling.LANCZOS)
        return _EncoderInput(pixels=pixels, weights=import_torch().from_numpy(patches.astype(np.float32).ravel()))

    def tokens(self, images: Sequence[RGB]) -> list[Tokens]:
        loaded, grid = self._ready(), self.grid
        found = self._batcher.map(_EncoderInput(pixels=loaded.squashed(rgb), tokens=True) for rgb in images)
        return [
            Tokens(cls=one[0], registers=one[1 : loaded.extra], patches=one[loaded.extra :].reshape(grid, grid, -1))
            for one in found
        ]

    def _run(self, loaded: _Encoder, items: list[_EncoderInput]) -> list[NDArray[np.float32]]:
        torch, name = import_torch(), loaded.device.name
        pixels = torch.stack([item.pixels for item in items]).to(name)
        with loaded.device.autocast():
            vision = loaded.model.vision_model if self._clip else loaded.model
            tokens = vision(pixel_values=pixels).last_hidden_state
            if items[0].tokens:
                return list(tokens.float().cpu().numpy())
            found = tokens[:, 0]
            if items[0].weights is not None:
                weights = torch.stack([item.weights for item in items]).to(name)[..., None]
                found = (tokens[:, loaded.extra :].float() * weights).sum(1) / weights.sum(1)
            if self._clip:
                found = loaded.model.visual_projection(vision.post_layernorm(found))
        return list(found.float().cpu().numpy())

    def _load(self, device: Device) -> _Encoder:
        import transformers

        family, path = self.weights.family, self.weights.path
        where = f"{FAMILIES[family]} {str(path)!r}"
        # DINOv3's own needs torchvision, and squashes as ViT's does. Pillow's also where torchvision is there, so that
        # pixels agree between machines.
        prepares = transformers.ViTImageProcessorPil if family == "dinov3_vit" else transformers.CLIPImageProcessorPil
        with reading(where):
            processor = prepares.from_pretrained(path, local_files_only=True)
            seen = processor.crop_size if processor.do_center_crop else processor.size
            side, width = seen["height"], seen["width"]
        vision = {"clip": transformers.CLIPModel, "clip_vision_model": transformers.CLIPVisionModelWithProjection}
        model = load_saved(vision.get(family, transformers.AutoModel), path, where)
        if family == "clip":
            del model.text_model, model.text_projection
        config = getattr(model.config, "vision_config", model.config)
        patch, registers = int(config.patch_size), int(getattr(config, "num_register_tokens", 0) or 0)
        if side != width or side % patch:
            raise ConfigError(f"{where}: an input of {width}×{side} px is no square of whole patches of {patch} px")
        model.eval().to(device.name)
        return _Encoder(model=model, device=device, processor=processor, side=side, patch=patch, extra=1 + registers)


@dataclass(frozen=True, kw_only=True)
class _Texts(LoadedModel):
    """transformers' text model with its projection, and what makes tokens of texts."""

    tokenizer: Any


class ClipTexts(SavedNetwork[tuple[int, ...], Vector, _Texts]):
    """The text part of a CLIP model from a folder of transformers.

    It gives a vector for each text, in the space of the image's, projected and not normalized. Raises ToolError for a text
    that is too long, and ConfigError for a folder that cannot read text, before it is loaded.
    """

    def __init__(self, weights: Weights, *, device: str = "auto") -> None:
        super().__init__(weights, "CLIP's text part", device, key=len, gpu_batch=MAX_TEXTS)
        self._where = f"CLIP {str(weights.path)!r}"
        # transformers makes an empty vocabulary where there is none.
        if not any((weights.path / name).is_file() for name in ("tokenizer.json", "vocab.json")):
            raise ConfigError(
                f"{self._where}: has no tokenizer.json and no vocab.json, so it cannot read text; fetch it again"
            )

    def __call__(self, texts: Sequence[str]) -> list[Vector]:
        loaded = self._ready()
        most = int(loaded.model.config.text_config.max_position_embeddings)
        tokens = [tuple(loaded.tokenizer(text)["input_ids"]) for text in texts]
        for text, ids in zip(texts, tokens, strict=True):
            if len(ids) > most:
                raise ToolError(f"the text {text[:80]!r} has {len(ids)} tokens, and CLIP reads at most {most}; shorten it")
        return self._batcher.map(tokens)

    def _run(self, loaded: _Texts, items: list[tuple[int, ...]]) -> list[Vector]:
        ids = import_torch().tensor(items).to(loaded.device.name)
        with loaded.device.autocast():
            found = loaded.model.text_projection(loaded.model.text_model(input_ids=ids).pooler_output)
        return list(found.float().cpu().numpy())

    def _load(self, device: Device) -> _Texts:
        from transformers import AutoTokenizer, CLIPModel

        with reading(self._where):
            tokenizer = AutoTokenizer.from_pretrained(self.weights.path, local_files_only=True, trust_remote_code=False)
        # The class of the text part alone reads another size of the projection from the config.
        model = load_saved(CLIPModel, self.weights.path, self._where)
        del model.vision_model, model.visual_projection
        return _Texts(model=model.eval().to(device.name), device=device, tokenizer=tokenizer)
