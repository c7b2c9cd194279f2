"""The weights and the device that tools and measures use, from arguments or from the environment."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from editloupe.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ToolSettings:
    """What `open_toolbox` gives to the tools that are opened with settings."""

    device: str = "auto"
    """ "auto" (the first GPU, else the CPU), "cpu", "cuda", "cuda:N" or "mps"."""
    detector: str | None = None
    """A model folder, an original GroundingDINO checkpoint (.pth, .safetensors), or a hub id.

    A hub id is `owner/name` or `owner/name@revision`; it is downloaded where it is not in the local cache. None takes
    DEFAULT_DETECTOR from the local cache, and never downloads.
    """
    upscaler: str | None = None
    """A file of weights (.pth, .safetensors); None is Lanczos."""
    clip: str | None = None
    """For the measure clip: a model folder or a hub id. None takes the default from the local cache; it never downloads."""
    dino: str | None = None
    """For the measure dino, likewise."""
    lpips: str | None = None
    """For the measure lpips: a file of weights; None is none."""
    faces: str | None = None
    """For the measure face: a folder with YuNet's and SFace's ONNX files, or KIND=WEIGHTS of a package; None is none."""
    preference: str | None = None
    """For the measure preference: the address of a model of preference such as HPSv3; None is none."""
    aesthetic: str | None = None
    """For the measure aesthetic: a file with linear layers over CLIP's vector; None is none."""
    editor: str | None = None
    """For the measure crop_edit: an image editor (`editloupe.models.edit`); None is none."""
    segmenter: str | None = None
    """For the measure segmentation: a model folder or a hub id of SAM. None takes SAM from the local cache."""
    picture_budget: float = 0.5
    """Image tokens of one observation of localize_differences, as a share of what the two compared images cost."""

    def __post_init__(self) -> None:
        if not 0 < self.picture_budget < math.inf:
            raise ConfigError(f"picture_budget: expected a number above 0, such as 0.5, found {self.picture_budget!r}")

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> ToolSettings:
        """Return the settings that the environment names. An empty variable counts as not set.

        The variables are EDITLOUPE_DEVICE, EDITLOUPE_DETECTOR and so on, by the names of the fields. Raises ConfigError.
        """
        given = os.environ if environ is None else environ
        named = {field.name: given.get(f"EDITLOUPE_{field.name.upper()}", "").strip() for field in fields(cls)}
        values: dict[str, Any] = {name: value for name, value in named.items() if value}
        if budget := values.get("picture_budget"):
            try:
                values["picture_budget"] = float(budget)
            except ValueError:
                raise ConfigError(f"EDITLOUPE_PICTURE_BUDGET: expected a number such as 0.5, found {budget!r}") from None
        try:
            return cls(**values)
        except ConfigError as error:
            name, _, what = str(error).partition(":")
            raise ConfigError(f"EDITLOUPE_{name.upper()}:{what}") from None
