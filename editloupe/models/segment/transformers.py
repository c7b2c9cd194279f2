"""SAM and SAM 2 through transformers, behind `Segmenter`. Loaded with the first call.

Images are prepared here and not by transformers' processors: SAM 2's needs torchvision. Tests compare the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from editloupe.data.images import RGB
from editloupe.models.batching import LoadedModel, SavedNetwork
from editloupe.models.devices import Device, import_torch
from editloupe.models.hub import Weights
from editloupe.models.segment.base import FAMILIES, Segmentation
from editloupe.models.weights import load_saved, reading
from editloupe.values import Box

MAX_BATCH: Final = 4
"""Images in a batch on a GPU."""


@dataclass(frozen=True, kw_only=True)
class _Segmenter(LoadedModel):
    """transformers' model, and how its images are prepared."""

    side: int
    """Of the network's square input, in px."""
    mean: NDArray[np.float32]
    """Of red, green and blue, 0 to 1."""
    std: NDArray[np.float32]
    """Of red, green and blue, 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class _SegmenterInput:
    """One image on its way through the batcher."""

    pixels: NDArray[np.float32]
    """3×side×side, normalized; what is beyond `seen` is 0."""
    boxes: NDArray[np.float32]
    """N×4 corners, in px of the network's input."""
    size: tuple[int, int]
    """(height, width) of the image in px."""
    seen: tuple[int, int]
    """(height, width) of the part of the input that shows the image."""


class TransformersSegmenter(SavedNetwork[_SegmenterInput, list[Segmentation], _Segmenter]):
    """Any model of FAMILIES, from a folder of transformers.

    Each box gives one mask: a box is not ambiguous, so that the three masks that SAM offers for a point are not asked for.
    It computes in fp32 on the CPU, and is autocast to fp16 on a GPU.
    """

    def __init__(self, weights: Weights, *, device: str = "auto") -> None:
        self._sam2 = weights.family != "sam"
        # Images are as large as each other; only those with as many boxes share a batch.
        title = FAMILIES[weights.family]
        super().__init__(weights, title, device, key=lambda item: len(item.boxes), gpu_batch=MAX_BATCH)

    def __call__(self, rgb: RGB, boxes: Sequence[Box]) -> list[Segmentation]:
        return self._batcher(self._item(self._ready(), rgb, boxes)) if boxes else []

    def _item(self, loaded: _Segmenter, rgb: RGB, boxes: Sequence[Box]) -> _SegmenterInput:
        height, width = rgb.shape[:2]
        # SAM 2 squeezes an image into the square, SAM fills it up on the right and below.
        scale = loaded.side / max(height, width)
        seen = (loaded.side,) * 2 if self._sam2 else tuple(max(1, int(length * scale + 0.5)) for length in (height, width))
        small = Image.fromarray(rgb).resize((seen[1], seen[0]), Image.Resampling.BILINEAR)
        pixels = np.zeros((3, loaded.side, loaded.side), dtype=np.float32)
        values = (np.asarray(small, dtype=np.float32) / 255 - loaded.mean) / loaded.std
        pixels[:, : seen[0], : seen[1]] = values.transpose(2, 0, 1)
        corners = np.array([list(box.scaled(seen[1] / width, seen[0] / height)) for box in boxes], dtype=np.float32)
        return _SegmenterInput(pixels=pixels, boxes=corners, size=(height, width), seen=(seen[0], seen[1]))

    def _run(self, loaded: _Segmenter, items: list[_SegmenterInput]) -> list[list[Segmentation]]:
        torch, name = import_torch(), loaded.device.name
        pixels = torch.from_numpy(np.stack([item.pixels for item in items])).to(name)
        boxes = torch.from_numpy(np.stack([item.boxes for item in items])).to(name)
        with loaded.device.autocast():
            made = loaded.model(pixel_values=pixels, input_boxes=boxes, multimask_output=False)
        # In fp32 on the CPU, so that the threshold is the same arithmetic everywhere.
        logits, scores = made.pred_masks.float().cpu(), made.iou_scores.float().cpu()
        return [self._masks(loaded, *of_one) for of_one in zip(logits, scores, items, strict=True)]

    def _masks(self, loaded: _Segmenter, logits: Any, scores: Any, item: _SegmenterInput) -> list[Segmentation]:
        """Return the masks at the image's own size. logits: N×1×h×w.   scores: N×1."""
        interpolate = import_torch().nn.functional.interpolate
        found = []
        # One by one: at its own size, a large image's masks together may be more than the memory holds.
        for one, score in zip(logits, scores[:, 0].tolist(), strict=True):
            large = one[None]
            if not self._sam2:
                large = interpolate(large, (loaded.side,) * 2, mode="bilinear", align_corners=False)
                large = large[..., : item.seen[0], : item.seen[1]]
            large = interpolate(large, item.size, mode="bilinear", align_corners=False)
            found.append(Segmentation(mask=(large[0, 0] > 0).numpy(), score=score))
        return found

    def _load(self, device: Device) -> _Segmenter:
        from transformers import Sam2Model, SamModel
        from transformers.image_processing_base import ImageProcessingMixin

        where = f"segmenter {str(self.weights.path)!r}"
        with reading(where):
            prepared, _ = ImageProcessingMixin.get_image_processor_dict(self.weights.path, local_files_only=True)
            mean, std = (np.array(prepared[key], dtype=np.float32) for key in ("image_mean", "image_std"))
        model = load_saved(Sam2Model if self._sam2 else SamModel, self.weights.path, where)
        model.eval().to(device.name)
        side = int(model.config.prompt_encoder_config.image_size)
        return _Segmenter(model=model, device=device, side=side, mean=mean, std=std)
