"""Which weights and which device the tools use: one small value, from arguments or from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class ToolSettings:
    """What `open_toolbox` gives to the tools that need it.

    device: "auto" (the first GPU, else the CPU), "cpu", "cuda", "cuda:N" or "mps".
    detector: a model folder, an original GroundingDINO checkpoint (.pth, .safetensors), or a hub id, `owner/name` or
    `owner/name@revision`, which is downloaded where it is not in the local cache. None takes DEFAULT_DETECTOR from the
    local cache, and never downloads.
    upscaler: a file of weights (.pth, .safetensors); None is Lanczos.
    reader: of text in crops: "auto" (RapidOCR where it is installed), "off" or "rapidocr".
    """

    device: str = "auto"
    detector: str | None = None
    upscaler: str | None = None
    reader: str = "auto"

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> ToolSettings:
        """EDITLOUPE_DEVICE, EDITLOUPE_DETECTOR, EDITLOUPE_UPSCALER, EDITLOUPE_READER; an empty one counts as not set."""
        given = os.environ if environ is None else environ
        return cls(
            device=given.get("EDITLOUPE_DEVICE", "").strip() or "auto",
            detector=given.get("EDITLOUPE_DETECTOR", "").strip() or None,
            upscaler=given.get("EDITLOUPE_UPSCALER", "").strip() or None,
            reader=given.get("EDITLOUPE_READER", "").strip() or "auto",
        )
