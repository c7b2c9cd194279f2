"""Each stage of the comparison taken out, one at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np

from editloupe.imaging.color import Tone
from editloupe.imaging.orientation import UPRIGHT
from editloupe.imaging.register import STILL

STAGES: Mapping[str, tuple[str, Callable[..., Any]]] = {
    "turns and mirrors": ("align.find_orientation", lambda *_: UPRIGHT),
    "another frame": ("align.find_placement", lambda *_: None),
    "motion": ("align.register", lambda *_: STILL),
    "tone": ("align.estimate_tone", lambda *_: Tone()),
    "tone that mixes channels": ("color._mix", lambda *_: None),
    "power of a tone": ("color._power", lambda *_: 1.0),
    "bends of a tone": ("color._bend", lambda *_: np.zeros(256)),
    "drift": ("align.estimate_drift", lambda *_: None),
    "sharpness match": ("residual.sharpness_match", lambda *_: (0.0, 0.0)),
    "large edits told from noise": ("significance.unchanged", lambda residual: residual.shown),
    "slips explained": ("differences.unexplained", lambda *_: 1.0),
    "fragments joined": ("differences.joined", lambda objects, **_: list(objects)),
    "light told apart": ("differences.apart", lambda found, *_, **__: [found]),
}
"""What stands for a stage that is taken out: the function of editloupe.imaging, and what is called in its place."""


@contextmanager
def without(stage: str) -> Iterator[None]:
    """Take a stage out; "" takes none."""
    if not stage:
        yield
        return
    target, instead = STAGES[stage]
    with mock.patch(f"editloupe.imaging.{target}", instead):
        yield
