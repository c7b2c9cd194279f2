"""Any inpainting pipeline of diffusers, behind `Inpainter`. Loaded with the first call."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import Any, Final

import numpy as np
from PIL import Image

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, ToolError, first_words
from editloupe.models.batching import fitting
from editloupe.models.devices import Device, import_torch, open_device
from editloupe.models.inpaint.base import Mask, within
from editloupe.models.weights import digest_of
from editloupe.values import Json

MOST_PX: Final = 768
"""Longest side at which a pipeline sees an image."""
MULTIPLE: Final = 64
"""Both sides of a pipeline's input are multiples of this; Kandinsky needs 64, others 8."""
_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+(@[\w./-]+)?")
_FILES: Final = ("**/*.json", "**/*.txt", "**/*.safetensors", "**/*.model")


class DiffusersInpainter:
    """A pipeline that `AutoPipelineForInpainting` opens. Only safetensors are read, and no code of the repository.

    where: a folder that diffusers saved, or a hub id.   steps: denoising steps.   guidance: classifier-free guidance scale.
    The pipeline sees the image at most 768 px a side. Its pixels are brought back to the image's size, and those inside the
    mask are taken. Raises ConfigError where the model cannot be had.
    """

    takes_words = True

    def __init__(self, where: str, *, steps: int, guidance: float, device: str = "auto") -> None:
        self._folder, identity = _found(where)
        self._steps, self._guidance, self._device = steps, guidance, device
        self._lock = threading.Lock()
        self._pipeline: Any = None
        self.loaded_on: Device | None = None
        """Where the pipeline is; None before it is loaded."""
        self.name = f"diffusers ({identity})"
        self.version = f"diffusers {identity}, steps {steps}, guidance {guidance:g}, at most {MOST_PX} px"

    def prepare(self) -> None:
        """Load now. Raises ConfigError where the weights are damaged or are no inpainting pipeline."""
        with self._lock:
            if self._pipeline is None:
                device = open_device(self._device)
                self._pipeline, self.loaded_on = _loaded(self._folder, device), device

    def computed(self) -> dict[str, Json]:
        """Return device, precision and versions. Loads the pipeline where that has not happened."""
        import diffusers

        self.prepare()
        assert self.loaded_on is not None
        return {**self.loaded_on.facts(), "diffusers": diffusers.__version__}

    def __call__(self, rgb: RGB, mask: Mask, words: str = "", *, seed: int = 0) -> RGB:
        if not mask.any():
            return rgb.copy()
        self.prepare()
        torch = import_torch()
        height, width = rgb.shape[:2]
        scale = min(1.0, MOST_PX / max(height, width))
        size = tuple(max(MULTIPLE, round(side * scale / MULTIPLE) * MULTIPLE) for side in (width, height))
        shown = Image.fromarray(rgb).resize(size, Image.Resampling.LANCZOS)
        marked = Image.fromarray(mask.astype(np.uint8) * 255).resize(size, Image.Resampling.NEAREST)

        def made() -> Any:
            return self._pipeline(
                prompt=words or "background",
                image=shown,
                mask_image=marked,
                width=size[0],
                height=size[1],
                num_inference_steps=self._steps,
                guidance_scale=self._guidance,
                # Of the CPU, so that every device draws the same.
                generator=torch.Generator("cpu").manual_seed(seed),
            )

        try:
            with self._lock, torch.inference_mode():
                filled = fitting(made)
        except MemoryError as error:
            raise ToolError(f"{self.name} ran out of memory on an image of {width}×{height} px ({error})") from error
        if any(getattr(filled, "nsfw_content_detected", None) or ()):
            # What it returns then is a black image.
            raise ToolError(f"{self.name} withheld its image of {words!r} (its safety checker)")
        back = filled.images[0].convert("RGB").resize((width, height), Image.Resampling.LANCZOS)
        return within(rgb, np.asarray(back, np.uint8), mask)


def _found(where: str) -> tuple[Path, str]:
    """Return the folder of a pipeline, and its identity. Raises ConfigError."""
    folder = Path(where).expanduser()
    if folder.is_dir():
        if not (folder / "model_index.json").is_file():
            raise ConfigError(f"inpainter {where!r}: has no model_index.json; expected a folder saved by diffusers")
        held = {file for pattern in _FILES for file in folder.glob(pattern) if file.is_file()}
        return folder.resolve(), f"{folder.resolve().name} sha256:{digest_of(held)}"
    if _HUB_ID.fullmatch(where) is None:
        raise ConfigError(f"inpainter {where!r}: no such folder, and no hub id (owner/name or owner/name@revision)")
    from diffusers import DiffusionPipeline

    repository, _, revision = where.partition("@")
    try:
        found = Path(DiffusionPipeline.download(repository, revision=revision or None, use_safetensors=True))
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"inpainter {where!r}: not in the local cache, and cannot be downloaded ({first_words(error)}); name a folder "
            "that has it"
        ) from error
    # A snapshot's folder is named by its commit.
    return found, f"{repository}@{found.name[:12]}"


def _loaded(folder: Path, device: Device) -> Any:
    from diffusers import AutoPipelineForInpainting
    from diffusers.utils import logging

    torch = import_torch()
    logging.disable_progress_bar()
    try:
        pipeline = AutoPipelineForInpainting.from_pretrained(
            folder, dtype=torch.float16 if device.half else torch.float32, use_safetensors=True
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        raise ConfigError(
            f"inpainter {str(folder)!r}: cannot be opened as an inpainting pipeline ({first_words(error)})"
        ) from error
    pipeline.set_progress_bar_config(disable=True)
    return pipeline.to(device.name)
