"""Loaded by Schemathesis: most texts are no image, these are, so that requests also get through to the judge."""

from __future__ import annotations

import base64

import schemathesis
from hypothesis import strategies

from tests.service.loopback_judge import png

_PICTURES = [png(colour, width=16, height=16) for colour in (0, 99, 255)]

schemathesis.openapi.format(
    "image-base64", strategies.sampled_from([base64.b64encode(picture).decode() for picture in _PICTURES])
)
schemathesis.openapi.format("binary", strategies.sampled_from([*_PICTURES, b"no image"]))
