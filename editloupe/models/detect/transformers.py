"""GroundingDINO and MM-GroundingDINO through transformers, behind `Detector`. Loaded with the first call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from editloupe.data.images import RGB
from editloupe.errors import PhraseError, ToolError
from editloupe.models.batching import LoadedModel, SavedNetwork
from editloupe.models.detect.base import FAMILIES, DetectionResult, in_image
from editloupe.models.devices import Device, import_torch
from editloupe.models.weights import Weights, load_saved, reading

BOX_THRESHOLD: Final = 0.30
TEXT_THRESHOLD: Final = 0.25
MAX_BATCH: Final = 1
"""Images in a batch on a GPU. On an H200, batches of 8 gave 0.69 of the rate of one by one (benchmarks/README.md)."""

# "t-shirt", "men's" and "3.5" are one word each; what ends a sentence belongs to none.
_WORD = re.compile(r"""[^\s,;.:!?"()]+(?:[.:][^\s,;.:!?"()]+)*""")


@dataclass(frozen=True, kw_only=True)
class _Detector(LoadedModel):
    """transformers' model."""

    processor: Any
    max_tokens: int
    """Most tokens of a phrase, with the markers at both ends."""


@dataclass(frozen=True, kw_only=True)
class _ImageAndPhrase:
    """One image on its way through the batcher."""

    pixels: Any
    """What the processor made of the image, without the batch's axis."""
    mask: Any
    """The processor's pixel mask, without the batch's axis."""
    phrase: str
    size: tuple[int, int]
    """(height, width) of the image in px."""
    least: tuple[float, float]
    """Scores of a box, and of a word that a box is said to match, 0 to 1."""


class TransformersDetector(SavedNetwork[_ImageAndPhrase, DetectionResult, _Detector]):
    """Any model of FAMILIES, from a folder of transformers or an original GroundingDINO checkpoint.

    box_threshold: least score of a box, 0 to 1. None takes 0.30.
    It computes in fp32 on the CPU. On a GPU it is autocast to fp16, since parts of GroundingDINO need fp32.
    """

    def __init__(self, weights: Weights, *, device: str = "auto", box_threshold: float | None = None) -> None:
        self.threshold = BOX_THRESHOLD if box_threshold is None else box_threshold
        # Only pictures of one size share a batch: padding would change what the backbone sees at their borders. A batch is
        # read by one pair of thresholds.
        title = FAMILIES[weights.family]
        super().__init__(weights, title, device, key=lambda i: (tuple(i.pixels.shape), i.least), gpu_batch=MAX_BATCH)
        self.version += f", box {self.threshold:.2f}, text {TEXT_THRESHOLD:.2f}"

    @property
    def side_px(self) -> int:
        """Side in px of the network's input. Loads the model where that has not happened."""
        size = self._ready().processor.image_processor.size
        return int(size["shortest_edge"])

    def __call__(
        self, images: Sequence[RGB], phrase: str, *, box_threshold: float | None = None, text_threshold: float | None = None
    ) -> list[DetectionResult]:
        loaded = self._ready()
        text = f"{phrase}."
        tokens = len(loaded.processor.tokenizer(text)["input_ids"])
        if tokens > loaded.max_tokens:
            raise PhraseError(
                f"the phrase has {tokens} tokens and {self.name} takes {loaded.max_tokens}; name the object in a few words"
            )
        box, word = (self.threshold if box_threshold is None else box_threshold), text_threshold
        least = box, TEXT_THRESHOLD if word is None else word
        # One by one, so that a GPU works on the first tiles while the next are being prepared.
        return self._batcher.map(self._item(loaded, rgb, text, least) for rgb in images)

    def _item(self, loaded: _Detector, rgb: RGB, phrase: str, least: tuple[float, float]) -> _ImageAndPhrase:
        height, width = rgb.shape[:2]
        prepare = loaded.processor.image_processor
        try:
            # A copy, writable and contiguous, since pictures from the store are read-only.
            made = prepare(images=[np.array(rgb)], return_tensors="pt", input_data_format="channels_last")
        except ValueError as error:
            # Reduced to the network's longest side, its shorter one would be 0 px.
            raise ToolError(
                f"{width}×{height} px is too narrow for {self.name}; zoom_in on a part of the image and search that crop"
            ) from error
        pixels, mask = made["pixel_values"][0], made["pixel_mask"][0]
        return _ImageAndPhrase(pixels=pixels, mask=mask, phrase=phrase, size=(height, width), least=least)

    def _run(self, loaded: _Detector, items: list[_ImageAndPhrase]) -> list[DetectionResult]:
        torch, name = import_torch(), loaded.device.name
        phrases = [item.phrase for item in items]
        texts = loaded.processor.tokenizer(phrases, return_tensors="pt", return_offsets_mapping=True, padding=True)
        offsets = texts.pop("offset_mapping").tolist()
        pixels, masks = (torch.stack([getattr(item, part) for item in items]) for part in ("pixels", "mask"))
        inputs = {**texts, "pixel_values": pixels, "pixel_mask": masks}
        with loaded.device.autocast():
            outputs = loaded.model(**{key: value.to(name) for key, value in inputs.items()})
        # In fp32 on the CPU, so that thresholds and boxes are the same arithmetic everywhere.
        outputs.logits, outputs.pred_boxes = outputs.logits.float().cpu(), outputs.pred_boxes.float().cpu()
        least, least_of_words = items[0].least
        process, sizes = loaded.processor.post_process_grounded_object_detection, [item.size for item in items]
        found = process(outputs, texts["input_ids"], threshold=least, target_sizes=sizes)
        results = []
        for one, scores, spans, item in zip(found, outputs.logits.sigmoid(), offsets, items, strict=True):
            # transformers decodes the matched tokens, which tears words apart, or joins pieces of two.
            matched = (scores[scores.amax(-1) > least] > least_of_words).tolist()
            labels = [_words(item.phrase, spans, row) for row in matched]
            rows = zip(one["boxes"].tolist(), one["scores"].tolist(), labels, strict=True)
            height, width = item.pixels.shape[-2:]
            results.append(DetectionResult(detections=in_image(rows, item.size), width=width, height=height))
        return results

    def _load(self, device: Device) -> _Detector:
        """Load the model. Every parameter is from the file. Raises ConfigError where that cannot be."""
        from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

        path, where = self.weights.path, f"detector {str(self.weights.path)!r}"
        if path.is_dir():
            with reading(where):
                # The PIL image processor also where torchvision is there, so that pixels agree between machines.
                processor = AutoProcessor.from_pretrained(path, backend="pil", local_files_only=True)
            model = load_saved(AutoModelForZeroShotObjectDetection, path, where)
        else:
            from editloupe.models.detect.groundingdino_checkpoint import load_checkpoint

            model, processor = load_checkpoint(path)
        model.eval().to(device.name)
        text = model.config.text_config
        limits = (text.max_position_embeddings, getattr(model.config, "max_text_len", None))
        most = min(limit for limit in limits if limit is not None)
        return _Detector(model=model, device=device, processor=processor, max_tokens=most)


def _words(phrase: str, spans: Sequence[Sequence[int]], matched: Sequence[bool]) -> str:
    """Return the words of a phrase of which any token matched, as they are written in it.

    spans: (start, end) of each token's letters in the phrase; (0, 0) for a marker.
    matched: for each token; longer than `spans` where the network's text is padded.
    """
    # Not strict, for the padding.
    places = [(start, end) for (start, end), is_matched in zip(spans, matched, strict=False) if is_matched]
    words = [w for w in _WORD.finditer(phrase) if any(start < w.end() and end > w.start() for start, end in places)]
    return " ".join(word[0] for word in words)
