"""CLIP, DINOv2 and DINOv3 through transformers, behind `Features` and `TextFeatures`. Loaded with the first call.

Images are prepared here and not by transformers' processors: DINOv3's needs torchvision. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from editloupe.models.hub import Weights
from editloupe.models.weights import load_saved, reading

MAX_BATCH: Final = 32
"""Images in a batch on a GPU."""
MAX_TEXTS: Final = 64
"""Texts in a batch on a GPU."""


@dataclass(frozen=True, kw_only=True)
class _Encoder(LoadedModel):
    """transformers' model, and how its images are prepared."""

    side: int
    """Of the network's square input, in px."""
    short: int
    """px to which the shorter side is brought before the middle is cut out; 0 if the image is squashed instead."""
    resample: int
    """Pillow's number of the filter."""
    mean: NDArray[np.float32]
    """Of red, green and blue, 0 to 1."""
    std: NDArray[np.float32]
    """Of red, green and blue, 0 to 1."""
    patch: int
    """px a side."""
    extra: int
    """Tokens before those of the patches: one of the whole image, then registers."""


@dataclass(frozen=True, kw_only=True)
class _EncoderInput:
    """One image on its way through the batcher."""

    pixels: NDArray[np.float32]
    """3×side×side, normalized."""
    weights: NDArray[np.float32] | None = None
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
        loaded = self._ready()
        return self._batcher.map(_item(loaded, rgb, one) for rgb, one in zip(images, patches, strict=True))

    def tokens(self, images: Sequence[RGB]) -> list[Tokens]:
        loaded = self._ready()
        found = self._batcher.map(_squashed(loaded, rgb) for rgb in images)
        grid = loaded.side // loaded.patch
        return [
            Tokens(cls=one[0], registers=one[1 : loaded.extra], patches=one[loaded.extra :].reshape(grid, grid, -1))
            for one in found
        ]

    def _run(self, loaded: _Encoder, items: list[_EncoderInput]) -> list[NDArray[np.float32]]:
        torch, name = import_torch(), loaded.device.name
        pixels = torch.from_numpy(np.stack([item.pixels for item in items])).to(name)
        given = [item.weights for item in items if item.weights is not None]
        with loaded.device.autocast():
            vision = loaded.model.vision_model if self._clip else loaded.model
            tokens = vision(pixel_values=pixels).last_hidden_state
            if items[0].tokens:
                return list(tokens.float().cpu().numpy())
            found = tokens[:, 0]
            if given:
                weights = torch.from_numpy(np.stack(given)).to(name)[..., None]
                found = (tokens[:, loaded.extra :].float() * weights).sum(1) / weights.sum(1)
            if self._clip:
                found = loaded.model.visual_projection(vision.post_layernorm(found))
        return list(found.float().cpu().numpy())

    def _load(self, device: Device) -> _Encoder:
        from transformers import AutoModel, CLIPModel, CLIPVisionModelWithProjection
        from transformers.image_processing_base import ImageProcessingMixin

        where = f"{FAMILIES[self.weights.family]} {str(self.weights.path)!r}"
        with reading(where):
            said, _ = ImageProcessingMixin.get_image_processor_dict(self.weights.path, local_files_only=True)
            prepared = _prepared(said)
        vision = {"clip": CLIPModel, "clip_vision_model": CLIPVisionModelWithProjection}
        model = load_saved(vision.get(self.weights.family, AutoModel), self.weights.path, where)
        if self.weights.family == "clip":
            del model.text_model, model.text_projection
        model.eval().to(device.name)
        config = getattr(model.config, "vision_config", model.config)
        patch, registers = int(config.patch_size), int(getattr(config, "num_register_tokens", 0) or 0)
        if prepared["side"] % patch:
            raise ConfigError(f"{where}: an input of {prepared['side']} px does not hold whole patches of {patch} px")
        return _Encoder(model=model, device=device, patch=patch, extra=1 + registers, **prepared)


@dataclass(frozen=True, kw_only=True)
class _Texts(LoadedModel):
    """transformers' text model with its projection, and what makes tokens of texts."""

    tokenizer: Any


class ClipTexts(SavedNetwork[tuple[int, ...], Vector, _Texts]):
    """The text part of a CLIP model from a folder of transformers. Its vectors are projected and not normalized.

    Raises ConfigError for a folder that cannot read text, before it is loaded.
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


def _prepared(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return how a processor's settings say that images are prepared.

    Raises KeyError, TypeError or ValueError for settings that are not a square input.
    """
    from transformers.image_processing_utils import get_size_dict

    size = get_size_dict(said["size"], default_to_square=False)
    seen = get_size_dict(said["crop_size"]) if said.get("do_center_crop") else size
    if not 1 <= seen["height"] == seen["width"]:
        raise ValueError(f"expected a square input, found {seen['height']}×{seen['width']}")
    return {
        "side": int(seen["height"]),
        "short": int(size.get("shortest_edge", 0)),
        "resample": int(said.get("resample", Image.Resampling.BICUBIC)),
        "mean": np.array(said["image_mean"], dtype=np.float32).reshape(3),
        "std": np.array(said["image_std"], dtype=np.float32).reshape(3),
    }


def _item(loaded: _Encoder, rgb: RGB, patches: Patches | None) -> _EncoderInput:
    image, side = Image.fromarray(rgb), loaded.side
    if patches is not None:
        # GIE-Bench's script squashes with this filter, whatever the model's own is.
        image = image.resize((side, side), Image.Resampling.LANCZOS)
    elif loaded.short:
        width, height = image.size
        longer = int(loaded.short * max(width, height) / min(width, height))
        size = (loaded.short, longer) if width <= height else (longer, loaded.short)
        image = image.resize(size, Image.Resampling(loaded.resample))
        left, top = (size[0] - side) // 2, (size[1] - side) // 2
        image = image.crop((left, top, left + side, top + side))
    else:
        return _squashed(loaded, rgb, tokens=False)
    weights = None if patches is None else patches.astype(np.float32).ravel()
    return _EncoderInput(pixels=_normalized(loaded, image), weights=weights)


def _squashed(loaded: _Encoder, rgb: RGB, *, tokens: bool = True) -> _EncoderInput:
    """Return the whole image at the network's size, by the model's own filter."""
    image = Image.fromarray(rgb).resize((loaded.side, loaded.side), Image.Resampling(loaded.resample))
    return _EncoderInput(pixels=_normalized(loaded, image), tokens=tokens)


def _normalized(loaded: _Encoder, image: Image.Image) -> NDArray[np.float32]:
    """Return 3×side×side of an image of the network's size."""
    values = (np.asarray(image, dtype=np.float32) / 255 - loaded.mean) / loaded.std
    return np.ascontiguousarray(values.transpose(2, 0, 1))
