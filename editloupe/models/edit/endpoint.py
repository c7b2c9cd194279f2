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
import json
import time
from functools import cache
from typing import Final

from editloupe.data.images import RGB, decode, encode_png
from editloupe.errors import EditError, ImageError, ToolError, Unavailable
from editloupe.models.edit.base import Editor
from editloupe.models.remote import NotReady, RemoteModel, RemoteReply, short

TIMEOUT_S: Final = 600.0
"""Of one edit, unless the address ends in ?timeout_s=SECONDS."""
PAUSES_S: Final = (1.0, 4.0)
"""Before a further attempt where nobody answers."""
MOST_BYTES: Final = 200 * 2**20
"""A longer reply is no image."""


class EndpointEditor:
    """An address that takes an image and an instruction. Raises ConfigError for what is no address."""

    def __init__(self, address: str) -> None:
        self._remote = RemoteModel("editor", address, example="http://127.0.0.1:8200/edit", timeout_s=TIMEOUT_S)
        self.name = f"the editor at {self._remote.place}"
        self.version = f"address {self._remote.place}"

    def __call__(self, rgb: RGB, instruction: str, *, seed: int = 0) -> RGB:
        asked = {"image": base64.b64encode(encode_png(rgb)).decode(), "instruction": instruction, "seed": seed}
        try:
            reply = self._reply(json.dumps(asked).encode())
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

    def _reply(self, body: bytes) -> RemoteReply:
        for pause_s in (*PAUSES_S, None):
            try:
                reply = self._remote.ask(
                    "POST", "", body, most_bytes=MOST_BYTES, headers={"Content-Type": "application/json"}
                )
                if reply.status != 503:
                    return reply
                raise NotReady(f"{self._remote.where}: is not ready (HTTP 503)")
            except NotReady:
                if pause_s is None:
                    raise
                time.sleep(pause_s)
        raise AssertionError("the last attempt returns or raises")

    def _image(self, reply: RemoteReply) -> bytes:
        """Return the bytes of the edited image. Raises EditError where the reply holds none."""
        said = reply.json_object()
        if reply.status != 200:
            why = said.get("error") if said else reply.data.decode(errors="replace")
            raise EditError("failed", f"{self.name} answered HTTP {reply.status}: {short(why)}")
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


@cache
def _shared(address: str) -> Editor:
    return EndpointEditor(address)
