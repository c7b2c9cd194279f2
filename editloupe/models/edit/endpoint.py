"""An image editor behind an address: JSON in, an image or JSON out.

    POST ADDRESS   {"image": "<PNG, base64>", "instruction": "…", "seed": 1}
    → 200, Content-Type image/…: the bytes of the edited image
    → 200, JSON {"image": "<image file, base64>"}

The reply may also be {"image": null, "error": "…"} where the editor made no image, for example since it declined. Any other
status than 200 is a failure, whose body may be {"error": "…"}; 503 says that it is not ready, and is tried again.
"""

from __future__ import annotations

import base64
import binascii
from functools import cache
from typing import Final

from editloupe.data.images import RGB, decode, encode_png
from editloupe.errors import EditError, ImageError, ToolError, Unavailable
from editloupe.models.edit.base import Editor
from editloupe.models.remote import NotReady, RemoteModel, RemoteReply, short
from editloupe.values import Json

TIMEOUT_S: Final = 600.0
"""Of one edit, unless the address ends in ?timeout_s=SECONDS."""
MOST_BYTES: Final = 200 * 2**20
"""A longer reply is no image."""


class EndpointEditor:
    """An address that takes an image and an instruction. Raises ConfigError for what is no address."""

    def __init__(self, address: str) -> None:
        self._remote = RemoteModel("editor", address, example="http://127.0.0.1:8200/edit", timeout_s=TIMEOUT_S)
        self.name = f"the editor at {self._remote.place}"
        self.version = f"address {self._remote.place}"

    def __call__(self, rgb: RGB, instruction: str, *, seed: int = 0) -> RGB:
        asked: dict[str, Json] = {
            "image": base64.b64encode(encode_png(rgb)).decode(),
            "instruction": instruction,
            "seed": seed,
        }
        try:
            reply = self._remote.ask("POST", "", asked, most_bytes=MOST_BYTES)
        except NotReady as error:
            raise EditError("failed", str(error)) from error
        except Unavailable as error:
            raise EditError("timed_out", str(error)) from error
        except ToolError as error:
            raise EditError("no_image", str(error)) from error
        try:
            return decode(self._image(reply), name="its reply")[0]
        except ImageError as error:
            raise EditError("no_image", f"{self.name} sent no image: {error}") from error

    def _image(self, reply: RemoteReply) -> bytes:
        """Return the bytes of the edited image. Raises EditError where the reply holds none."""
        said = reply.json_object()
        if reply.status != 200:
            raise EditError("failed", f"{self.name} answered HTTP {reply.status}: {reply.told()}")
        if reply.media_type.startswith("image/"):
            return reply.data
        image = None if said is None else said.get("image")
        if not isinstance(image, str):
            why = f": {short(said['error'])}" if said and said.get("error") else ""
            kind = reply.media_type or "no type"
            raise EditError("no_image", f"{self.name} sent no image ({kind}){why}")
        try:
            return base64.b64decode(image, validate=True)
        except (binascii.Error, ValueError) as error:
            raise EditError("no_image", f"{self.name} sent an image that is no base64: {error}") from error


def open_endpoint(name: str, device: str) -> Editor:
    """Return the editor behind an address.   device: does not count. Raises ConfigError."""
    return _shared(name)


_shared = cache(EndpointEditor)
