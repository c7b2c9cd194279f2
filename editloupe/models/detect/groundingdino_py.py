"""GroundingDINO through its own package, groundingdino-py 0.4.0: `--detector groundingdino-py=CONFIG,WEIGHTS`.

CONFIG is a configuration of the package, which is Python and is run. The package needs transformers before 5, so that it
stands in an environment of its own (the extra `groundingdino`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MissingExtra, first_words
from editloupe.models.batching import LoadedModel, Network
from editloupe.models.detect.base import DetectionResult, in_image
from editloupe.models.devices import Device
from editloupe.models.opening import find_file
from editloupe.models.weights import digest_of

BOX_THRESHOLD, TEXT_THRESHOLD = 0.35, 0.25  # those of the package's own examples
_Item: TypeAlias = tuple[RGB, str, float, float]
"""An image, a phrase, the least scores of a box and of a word."""


class GroundingDinoPy(Network[_Item, DetectionResult, LoadedModel]):
    """A `Detector`: `predict` of the package, fp32, one image at a time.   package: `groundingdino.util.inference`."""

    side_px = 800
    threshold = BOX_THRESHOLD

    def __init__(self, package: Any, config: Path, weights: Path, device: str) -> None:
        self._package, self._config, self._weights = package, config, weights
        self.name = f"GroundingDINO ({weights.name})"
        words = f"box {BOX_THRESHOLD:.2f}, text {TEXT_THRESHOLD:.2f}"
        self.version = f"groundingdino-py {weights.name} sha256:{digest_of([config, weights])}, {words}"
        super().__init__(self.name, device, key=id, gpu_batch=1)

    def __call__(
        self, images: Sequence[RGB], phrase: str, *, box_threshold: float | None = None, text_threshold: float | None = None
    ) -> list[DetectionResult]:
        self._ready()
        box, text = (BOX_THRESHOLD if box_threshold is None else box_threshold), text_threshold
        return self._batcher.map((rgb, phrase, box, TEXT_THRESHOLD if text is None else text) for rgb in images)

    def _load(self, device: Device) -> LoadedModel:
        try:
            model = self._package.load_model(str(self._config), str(self._weights), device=device.name)
        except Exception as error:
            raise ConfigError(f"{self.name}: cannot be loaded ({type(error).__name__}: {first_words(error)})") from error
        return LoadedModel(model=model, device=Device(device.name, half=False))

    def _run(self, loaded: LoadedModel, items: list[_Item]) -> list[DetectionResult]:
        ((rgb, phrase, *least),) = items
        height, width = rgb.shape[:2]
        seen = self._package.Model.preprocess_image(np.ascontiguousarray(rgb[..., ::-1]))
        given = self._package.predict(loaded.model, seen, phrase, *least, device=loaded.device.name)
        rows = (
            (((cx - w / 2) * width, (cy - h / 2) * height, (cx + w / 2) * width, (cy + h / 2) * height), score, words)
            for (cx, cy, w, h), score, words in zip(given[0].tolist(), given[1].tolist(), given[2], strict=True)
        )
        found = in_image(rows, (height, width))
        return [DetectionResult(detections=found, width=int(seen.shape[-1]), height=int(seen.shape[-2]))]


@cache
def open_detector(weights: str | None, device: str) -> GroundingDinoPy:
    """Return the detector of CONFIG,WEIGHTS, not yet loaded. Raises ConfigError, MissingExtra without the package."""
    config, _, file = (weights or "").partition(",")
    if not Path(config).expanduser().is_file():
        raise ConfigError(
            f"detector groundingdino-py={weights or ''}: expected groundingdino-py=CONFIG,WEIGHTS; found no file {config!r}"
        )
    try:
        import groundingdino.util.inference as package
    except ImportError as error:
        raise MissingExtra("The detector groundingdino-py", "groundingdino") from error
    return GroundingDinoPy(package, Path(config).expanduser(), find_file(file, "detector"), device)
