"""SAM through transformers, behind `Segmenter`. Loaded with the first call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from editloupe.data.images import RGB
from editloupe.models.batching import LoadedModel, SavedNetwork
from editloupe.models.devices import Device, import_torch
from editloupe.models.segment.base import FAMILIES, Segmentation
from editloupe.models.weights import Weights, load_saved, reading
from editloupe.values import Box

MAX_BATCH: Final = 4
"""Images in a batch on a GPU."""


@dataclass(frozen=True, kw_only=True)
class _Segmenter(LoadedModel):
    """transformers' model."""

    processor: Any


class TransformersSegmenter(SavedNetwork[Mapping[str, Any], list[Segmentation], _Segmenter]):
    """Any model of FAMILIES, from a folder of transformers.

    Each box gives one mask: a box is not ambiguous, so that the three masks that SAM offers for a point are not asked for.
    It computes in fp32 on the CPU, and is autocast to fp16 on a GPU.
    """

    def __init__(self, weights: Weights, *, device: str = "auto") -> None:
        # Images are as large as each other; only those with as many boxes share a batch.
        title = FAMILIES[weights.family]
        super().__init__(weights, title, device, key=lambda item: item["input_boxes"].shape, gpu_batch=MAX_BATCH)

    def __call__(self, rgb: RGB, boxes: Sequence[Box]) -> list[Segmentation]:
        if not boxes:
            return []
        corners = [[list(box) for box in boxes]]
        # A copy, since pictures from the store are read-only.
        return self._batcher(self._ready().processor(np.array(rgb), input_boxes=corners, return_tensors="pt"))

    def _run(self, loaded: _Segmenter, items: list[Mapping[str, Any]]) -> list[list[Segmentation]]:
        names = ("pixel_values", "input_boxes")
        given = {name: import_torch().cat([item[name] for item in items]).float() for name in names}
        with loaded.device.autocast():
            placed = {name: values.to(loaded.device.name) for name, values in given.items()}
            made = loaded.model(**placed, multimask_output=False)
        # In fp32 on the CPU, so that the threshold is the same arithmetic everywhere.
        logits, scores = made.pred_masks.float().cpu(), made.iou_scores.float().cpu()
        return [_masks(loaded, *of_one) for of_one in zip(logits, scores, items, strict=True)]

    def _load(self, device: Device) -> _Segmenter:
        from transformers import SamModel, SamProcessor

        where = f"segmenter {str(self.weights.path)!r}"
        with reading(where):
            # The PIL image processor also where torchvision is there, so that pixels agree between machines.
            processor = SamProcessor.from_pretrained(self.weights.path, backend="pil", local_files_only=True)
        model = load_saved(SamModel, self.weights.path, where)
        return _Segmenter(model=model.eval().to(device.name), device=device, processor=processor)


def _masks(loaded: _Segmenter, logits: Any, scores: Any, item: Mapping[str, Any]) -> list[Segmentation]:
    """Return the masks at the image's own size. logits: N×1×h×w.   scores: N×1."""
    sizes, found = (item["original_sizes"], item["reshaped_input_sizes"]), []
    # One by one: at its own size, a large image's masks together may be more than the memory holds.
    for one, score in zip(logits, scores[:, 0].tolist(), strict=True):
        (large,) = loaded.processor.post_process_masks([one[None]], *sizes)
        found.append(Segmentation(mask=large[0, 0].numpy(), score=score))
    return found
