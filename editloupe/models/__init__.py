"""Everything with weights: detectors, segmenters, upscalers, image encoders, inpainters, image editors.

`get` is the one door to them.

A kind of model is an entry point of the group `editloupe.models`: its name is the kind, its object the kind's opener.

    [project.entry-points."editloupe.models"]
    depth = "my_package.depth:open_depth"     # (name: str | None, device: str) -> the model

An opener finds weights and does not load them. It returns one object for the same weights and device (`functools.cache`).
It raises ModelAbsent where no name was given and the kind's default cannot be had, ConfigError where a name was given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, cast

from editloupe import plugins
from editloupe.values import Json

_opening: Final = threading.RLock()


def get(kind: str, name: str | None = None, *, device: str = "auto") -> Any:
    """Return a model of a kind, found and not yet loaded. A process has one copy for the same weights and device.

    kind: "detect", "segment", "upscale", "features" (CLIP or DINO; also "clip", "dino"), "clip_text",
    "lpips", "faces", "preference", "inpaint", "edit", or a kind that another package brings.
    name: what the kind understands: a file, a folder, a hub id, a name. None takes the kind's default.
    device: "auto" (the first GPU, else the CPU), "cpu", "cuda", "cuda:N" or "mps".

    Raises ModelAbsent, with the reason, where no name was given and the default cannot be had.
    Raises ConfigError where the named model or the device cannot be had. MissingExtra and UnknownPlugin are such errors.
    """
    open_model = cast(Callable[[str | None, str], Any], plugins.load("models", kind))
    # Under the lock, so that two threads that ask at the same time get one copy.
    with _opening:
        return open_model(name, device)


def prepare(model: object) -> None:
    """Load a model's weights now, where it has any.

    Raises ConfigError where the weights are damaged, unsafe or unknown, or the device is not there.
    """
    load = getattr(model, "prepare", None)
    if load is not None:
        load()


def describe(model: Any) -> str:
    """Return a model's name with the device and precision that it was loaded for, or say that nothing is loaded."""
    if not hasattr(model, "prepare"):
        return f"{model.name} (nothing to load)"
    where = getattr(model, "loaded_on", None)
    return f"{model.name} on {where}" if where else f"{model.name} (not loaded)"


def computed(model: object) -> dict[str, Json]:
    """Return where and with what a model computes, as its own `computed` says; {} where it has none.

    These facts belong into `Observation.data`, not into a version: they say where a result came from, not what was asked.
    """
    facts = getattr(model, "computed", None)
    return {} if facts is None else dict(facts())
