"""Inpainters: fill a part of an image anew, by OpenCV from what surrounds it or by a pipeline of diffusers from words."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec
from typing import Final, Protocol, TypeAlias

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MissingExtra, ToolError, first_words
from editloupe.models.batching import LoadedModel, Network
from editloupe.models.devices import Device, check_device, import_torch
from editloupe.models.weights import identity_of, model_folder
from editloupe.values import Json

Mask: TypeAlias = NDArray[np.bool_]
"""H×W, True where an image is filled."""
_Item: TypeAlias = tuple[RGB, Mask, str, int]
"""An image, where it is filled, with what, and the seed."""

STEPS: Final = 100
GUIDANCE: Final = 4.0
"""DICE's denoising steps and classifier-free guidance, with Kandinsky 2.2."""
MOST_PX: Final = 768
"""Longest side at which a pipeline sees an image."""
MULTIPLE: Final = 64
"""Both sides of a pipeline's input are multiples of this; Kandinsky needs 64, others 8."""
_RADIUS_PX: Final = 5
"""How far OpenCV looks around a pixel that it fills."""
_FILES: Final = ("**/*.json", "**/*.txt", "**/*.safetensors", "**/*.model")


class Inpainter(Protocol):
    """Fills a part of an image. The same input gives the same output."""

    name: str
    """For messages."""
    version: str
    """Changes with the weights and with how they are used."""
    takes_words: bool
    """Whether it can put in what words describe. Else it only continues what surrounds the part."""

    def __call__(self, rgb: RGB, mask: Mask, words: str = "", *, seed: int = 0) -> RGB:
        """Return H×W×3 uint8 RGB, filled anew where the mask is True. Every other pixel is the image's own.

        rgb: H×W×3 uint8.   mask: H×W bool; all False returns the image as it is.
        words: what is to be there; "" for the background alone. Raises ValueError for words to one that takes none.
        seed: of what is drawn at random; one that draws nothing leaves it aside.
        Raises ToolError where the image does not fit into memory.
        """


class OpenCVInpainter:
    """Continues the surroundings into the part (Telea 2004). Large parts become smooth; no weights, no words."""

    name = "OpenCV (telea)"
    version = f"opencv telea radius {_RADIUS_PX}"
    takes_words = False

    def __call__(self, rgb: RGB, mask: Mask, words: str = "", *, seed: int = 0) -> RGB:
        if words:
            raise ValueError(f"{self.name} takes no words, found {words!r}; leave them out, or use diffusers:MODEL")
        filled = cv2.inpaint(np.ascontiguousarray(rgb), mask.astype(np.uint8), _RADIUS_PX, cv2.INPAINT_TELEA)
        return within(rgb, np.asarray(filled, np.uint8), mask)


class DiffusersInpainter(Network[_Item, RGB, LoadedModel]):
    """A pipeline that `AutoPipelineForInpainting` opens. Only safetensors are read, and no code of the repository.

    where: a folder that diffusers saved, or a hub id.
    The pipeline sees the image at most 768 px a side. Its pixels are brought back to the image's size, and those inside the
    mask are taken. Raises ConfigError where the model cannot be had.
    """

    takes_words = True

    def __init__(self, where: str, *, device: str = "auto") -> None:
        folder, identity = model_folder(where, "inpainter", patterns=_FILES)
        if not (folder / "model_index.json").is_file():
            raise ConfigError(f"inpainter {where!r}: has no model_index.json; expected a folder saved by diffusers")
        self._folder, identity = folder.resolve(), identity or identity_of(folder, _FILES)
        self.name = f"diffusers ({identity})"
        self.version = f"diffusers {identity}, steps {STEPS}, guidance {GUIDANCE:g}, at most {MOST_PX} px"
        super().__init__(self.name, device, key=id, gpu_batch=1)

    def computed(self) -> dict[str, Json]:
        import diffusers

        return {**super().computed(), "diffusers": diffusers.__version__}

    def __call__(self, rgb: RGB, mask: Mask, words: str = "", *, seed: int = 0) -> RGB:
        return within(rgb, self._batcher((rgb, mask, words, seed)), mask) if mask.any() else rgb.copy()

    def _run(self, loaded: LoadedModel, items: list[_Item]) -> list[RGB]:
        ((rgb, mask, words, seed),) = items
        height, width = rgb.shape[:2]
        scale = min(1.0, MOST_PX / max(height, width))
        size = tuple(max(MULTIPLE, round(side * scale / MULTIPLE) * MULTIPLE) for side in (width, height))
        made = loaded.model(
            prompt=words or "background",
            image=Image.fromarray(rgb).resize(size, Image.Resampling.LANCZOS),
            mask_image=Image.fromarray(mask.astype(np.uint8) * 255).resize(size, Image.Resampling.NEAREST),
            width=size[0],
            height=size[1],
            num_inference_steps=STEPS,
            guidance_scale=GUIDANCE,
            # Of the CPU, so that every device draws the same.
            generator=import_torch().Generator("cpu").manual_seed(seed),
        )
        if any(getattr(made, "nsfw_content_detected", None) or ()):
            # What it returns then is a black image.
            raise ToolError(f"{self.name} withheld its image of {words!r} (its safety checker)")
        return [np.asarray(made.images[0].convert("RGB").resize((width, height), Image.Resampling.LANCZOS), np.uint8)]

    def _load(self, device: Device) -> LoadedModel:
        from diffusers import AutoPipelineForInpainting
        from diffusers.utils import logging

        logging.disable_progress_bar()
        dtype = import_torch().float16 if device.half else import_torch().float32
        try:
            pipeline = AutoPipelineForInpainting.from_pretrained(self._folder, dtype=dtype, use_safetensors=True)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
            told = f"is no inpainting pipeline ({first_words(error)})"
            raise ConfigError(f"inpainter {str(self._folder)!r}: {told}") from error
        pipeline.set_progress_bar_config(disable=True)
        return LoadedModel(model=pipeline.to(device.name), device=device)


def within(rgb: RGB, filled: RGB, mask: Mask) -> RGB:
    """Return the filled pixels where the mask is True, the image's own elsewhere."""
    return np.where(mask[..., None], filled, rgb)


@cache
def open_inpainter(name: str | None, device: str) -> Inpainter:
    """Return the inpainter of that name, found and not yet loaded. None is "opencv".

    name: "opencv", or "diffusers:MODEL", where MODEL is a folder that diffusers saved or a hub id (owner/name or
    owner/name@revision). Raises ConfigError for another name, and where the weights or the device cannot be had;
    MissingExtra without diffusers.
    """
    if name in (None, "opencv"):
        return OpenCVInpainter()
    kind, _, model = str(name).partition(":")
    if kind != "diffusers" or not model:
        raise ConfigError(
            f"inpainter {name!r}: expected opencv or diffusers:MODEL, such as "
            "diffusers:kandinsky-community/kandinsky-2-2-decoder-inpaint"
        )
    if any(find_spec(package) is None for package in ("torch", "diffusers")):
        raise MissingExtra(f"Inpainter {name!r}", "inpaint")
    check_device(device)
    return DiffusersInpainter(model, device=device)
