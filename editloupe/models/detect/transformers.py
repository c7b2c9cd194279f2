"""GroundingDINO, MM-GroundingDINO and OWLv2 through transformers, behind `Detector`. Loaded with the first call."""

from __future__ import annotations

import pickle
import re
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, ToolError
from editloupe.models.batching import Batcher
from editloupe.models.detect.base import FAMILIES, Detection, DetectionResult, Weights, clean_box
from editloupe.models.devices import Device, fitting, import_torch, open_device
from editloupe.models.weights import missing_parameters, quietly, refused
from editloupe.values import Json

BOX_THRESHOLD: Final = 0.30
TEXT_THRESHOLD: Final = 0.25
OWL_THRESHOLD: Final = 0.10
"""transformers' own default; OWLv2's scores run lower than GroundingDINO's."""
MAX_BATCH: Final = 8
"""Images in a batch on a GPU. On a CPU it is one: one image keeps every core busy, and more only take more memory."""


@dataclass(frozen=True)
class Loaded:
    """A loaded model."""

    model: Any
    """transformers' model, on `device`."""
    processor: Any
    device: Device
    max_tokens: int
    """Most tokens of a phrase, with the markers at both ends."""


@dataclass(frozen=True, kw_only=True)
class _Item:
    """One image on its way through the batcher."""

    pixels: Any
    """What the processor made of the image, without the batch's axis."""
    mask: Any
    """The processor's pixel mask, without the batch's axis; None where it makes none."""
    phrase: str
    width: int
    """Of the image in px."""
    height: int
    """Of the image in px."""


class TransformersDetector:
    """Any model of FAMILIES, from a folder of transformers or an original GroundingDINO checkpoint.

    box_threshold: least score of a box, 0 to 1. None takes 0.30, for OWLv2 0.10.
    text_threshold: least score of a word that a box is said to match, 0 to 1.
    max_batch: most images in a batch. None takes MAX_BATCH on a GPU, 1 on a CPU.
    It computes in fp32 on the CPU. On a GPU it is autocast to fp16, since parts of GroundingDINO need fp32.
    """

    def __init__(
        self,
        weights: Weights,
        *,
        device: str = "auto",
        box_threshold: float | None = None,
        text_threshold: float = TEXT_THRESHOLD,
        max_batch: int | None = None,
    ) -> None:
        self.weights = weights
        self.name = f"{FAMILIES[weights.family]} ({weights.identity})"
        self._owl = weights.family == "owlv2"
        self.threshold = box_threshold if box_threshold is not None else OWL_THRESHOLD if self._owl else BOX_THRESHOLD
        self.text_threshold = text_threshold
        words = "" if self._owl else f", text {text_threshold:.2f}"
        self.version = f"{weights.family} {weights.identity}, box {self.threshold:.2f}{words}"
        self._device, self._max_batch = device, max_batch
        self._loading = threading.Lock()
        self._loaded: Loaded | None = None
        # Only pictures of one size share a batch: padding would change what the backbone sees at their borders.
        self._batcher: Batcher[_Item, DetectionResult] = Batcher(
            self._run,
            name=FAMILIES[weights.family],
            key=lambda item: tuple(item.pixels.shape),
            max_batch=max_batch or MAX_BATCH,
        )

    def prepare(self) -> None:
        """Load now. Raises ConfigError where weights are damaged, unsafe or incomplete, or the device is not there."""
        self._ready()

    def computed(self) -> dict[str, Json]:
        """Return device, precision and versions, for the trace. Loads the model where that has not happened."""
        import transformers

        return {**self._ready().device.facts(), "transformers": transformers.__version__}

    @property
    def loaded_on(self) -> Device | None:
        """Where the model is; None before it is loaded."""
        return None if self._loaded is None else self._loaded.device

    @property
    def side_px(self) -> int:
        """Side in px of the network's input. Loads the model where that has not happened."""
        size = self._ready().processor.image_processor.size
        return int(size.get("shortest_edge") or size.get("height"))

    def __call__(self, images: Sequence[RGB], phrase: str) -> list[DetectionResult]:
        loaded = self._ready()
        text = phrase if self._owl else f"{phrase}."
        tokens = len(loaded.processor.tokenizer(text)["input_ids"])
        if tokens > loaded.max_tokens:
            raise ToolError(
                f"the phrase has {tokens} tokens and {self.name} takes {loaded.max_tokens}; name the object in a few words"
            )
        # One by one, so that a GPU works on the first tiles while the next are being prepared.
        return self._batcher.map(self._item(loaded, rgb, text) for rgb in images)

    def _item(self, loaded: Loaded, rgb: RGB, phrase: str) -> _Item:
        # Writable and contiguous, since pictures from the store are read-only.
        height, width = rgb.shape[:2]
        try:
            made = loaded.processor.image_processor(
                images=[np.array(rgb)], return_tensors="pt", input_data_format="channels_last"
            )
        except ValueError as error:
            # Reduced to the network's longest side, its shorter one would be 0 px.
            raise ToolError(
                f"{width}×{height} px is too narrow for {self.name}; zoom_in on a part of the image and search that crop"
            ) from error
        mask = made.get("pixel_mask")
        return _Item(
            pixels=made["pixel_values"][0],
            mask=None if mask is None else mask[0],
            phrase=phrase,
            width=width,
            height=height,
        )

    def _run(self, items: list[_Item]) -> list[DetectionResult]:
        torch, loaded = import_torch(), self._ready()
        padding = {"padding": "max_length", "max_length": loaded.max_tokens} if self._owl else {"padding": True}
        texts = loaded.processor.tokenizer([item.phrase for item in items], return_tensors="pt", **padding)
        inputs = {**texts, "pixel_values": torch.stack([item.pixels for item in items])}
        if items[0].mask is not None:
            inputs["pixel_mask"] = torch.stack([item.mask for item in items])
        name, half = loaded.device.name, loaded.device.half

        def forward() -> list[DetectionResult]:
            placed = {key: value.to(name) for key, value in inputs.items()}
            with torch.inference_mode(), torch.autocast(name.partition(":")[0], torch.float16, enabled=half):
                outputs = loaded.model(**placed)
            # In fp32 on the CPU, so that thresholds and boxes are the same arithmetic everywhere.
            outputs.logits, outputs.pred_boxes = outputs.logits.float().cpu(), outputs.pred_boxes.float().cpu()
            return self._results(loaded, outputs, texts["input_ids"], items)

        return fitting(forward)

    def _results(self, loaded: Loaded, outputs: Any, tokens: Any, items: list[_Item]) -> list[DetectionResult]:
        sizes = [(item.height, item.width) for item in items]
        process = loaded.processor.post_process_grounded_object_detection
        if self._owl:
            labels = [[item.phrase] for item in items]
            found = process(outputs, threshold=self.threshold, target_sizes=sizes, text_labels=labels)
        else:
            found = process(
                outputs, tokens, threshold=self.threshold, text_threshold=self.text_threshold, target_sizes=sizes
            )
        return [self._result(one, item) for one, item in zip(found, items, strict=True)]

    def _result(self, found: Any, item: _Item) -> DetectionResult:
        detections = []
        # Not strict: for no box at all, transformers gives one empty label.
        for corners, score, label in zip(
            found["boxes"].tolist(), found["scores"].tolist(), found["text_labels"], strict=False
        ):
            box = clean_box(corners, width=item.width, height=item.height)
            if box is not None:
                detections.append(Detection(box=box, score=score, label=_words(label)))
        detections.sort(key=lambda d: (-d.score, *d.box))
        height, width = item.pixels.shape[-2:]
        if self._owl:
            # OWLv2 pads to a square on the right and below before it scales.
            scale = width / max(item.width, item.height)
            width, height = round(item.width * scale), round(item.height * scale)
        return DetectionResult(detections=tuple(detections), width=width, height=height)

    def _ready(self) -> Loaded:
        with self._loading:
            if self._loaded is None:
                self._loaded = load(self.weights, open_device(self._device))
                if self._max_batch is None and self._loaded.device.name == "cpu":
                    self._batcher.max_batch = 1
            return self._loaded


def _words(label: str) -> str:
    """Return the matched words without BERT's markers: "red. [SEP]" is "red"."""
    return " ".join(re.sub(r"\[[A-Z]+\]", " ", label).replace(".", " ").split())


def load(weights: Weights, device: Device) -> Loaded:
    """Return the loaded model. Every parameter is from the file. Raises ConfigError where that cannot be."""
    if weights.path.is_dir():
        model, processor = _from_folder(weights)
    else:
        from editloupe.models.detect.groundingdino_checkpoint import load_checkpoint

        model, processor = load_checkpoint(weights.path)
    model.eval().to(device.name)
    text = model.config.text_config
    limits = (text.max_position_embeddings, getattr(model.config, "max_text_len", None))
    return Loaded(model, processor, device, min(limit for limit in limits if limit is not None))


def _from_folder(weights: Weights) -> tuple[Any, Any]:
    torch = import_torch()
    from safetensors import SafetensorError
    from transformers import AutoModelForZeroShotObjectDetection, AutoProcessor

    where = f"detector {str(weights.path)!r}"
    try:
        # The PIL image processor also where torchvision is there, so that pixels agree between machines.
        with quietly():
            processor = AutoProcessor.from_pretrained(weights.path, backend="pil", local_files_only=True)
            model, info = AutoModelForZeroShotObjectDetection.from_pretrained(
                weights.path, local_files_only=True, output_loading_info=True, dtype=torch.float32, trust_remote_code=False
            )
    except pickle.UnpicklingError as error:
        raise refused(weights.path, error) from error
    except (OSError, ValueError, KeyError, TypeError, RuntimeError, ImportError, SafetensorError) as error:
        first = " ".join(str(error).split())[:300]
        raise ConfigError(f"{where}: cannot be loaded ({type(error).__name__}: {first}); fetch it again") from error
    lacking = missing_parameters(model, info["missing_keys"])
    if lacking or info.get("mismatched_keys"):
        wrong = lacking or [str(key) for key in info["mismatched_keys"]]
        raise ConfigError(
            f"{where}: its weights are not those of the architecture in config.json: {len(wrong)} tensors are missing or "
            f"of another shape ({', '.join(sorted(wrong)[:3])} …)"
        )
    return model, processor
