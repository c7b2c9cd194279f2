"""What a request of the HTTP service says of one edit: strict, and opened as a sample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import httpx
from pydantic import BaseModel, ConfigDict, Field, model_validator

from editloupe.data.boxes import inside
from editloupe.data.images import ImageStore
from editloupe.errors import ImageError, SampleError
from editloupe.service.paths import below, decoded
from editloupe.values import Box, ImageRef, Sample, Target, Turn

Quad = Annotated[list[Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]], Field(min_length=4, max_length=4)]


class _In(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid")


class SentPicture(_In):
    """An image file: its bytes, or where they are. Exactly one of the three."""

    base64: str | None = None
    """The bytes, or a data URI of them."""
    path: str | None = Field(default=None, max_length=4096)
    """Below the folder that the service was started with (--root)."""
    url: str | None = Field(default=None, max_length=4096)
    """At a host that the service was told to fetch from (--image-host)."""

    @model_validator(mode="after")
    def _one(self) -> SentPicture:
        if sum(given is not None for given in (self.base64, self.path, self.url)) != 1:
            raise ValueError('expected one of "base64", "path" and "url"')
        return self


class SentEdit(_In):
    """One edit to be judged."""

    instruction: str = Field(max_length=8000, pattern=r"\S")
    """What the editing model was asked to do."""
    source: SentPicture
    edited: SentPicture
    reference: SentPicture | None = None
    """A right answer, where there is one."""
    id: str | None = Field(default=None, max_length=200)
    """Comes back with the verdict, and has no other effect."""
    boxes: list[Quad] = Field(default=[], max_length=64)
    """Targets in the source image: [x0, y0, x1, y1] in px."""
    edit_type: str | None = Field(default=None, max_length=200)
    """The benchmark's name for this kind of edit."""
    criteria: list[Annotated[str, Field(min_length=1, max_length=100)]] = Field(default=[], max_length=32)
    """The metrics to judge by, as ids or short names; empty for all of the service's."""
    repeat: int = Field(default=0, ge=0, le=9999)
    """The same edit with another number is judged again, independently."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """Where pictures may come from, and how large they may be."""

    root: Path | None = None
    """Folder below which they may be named by path; None for none."""
    hosts: frozenset[str] = frozenset()
    """Hosts, with a port where it is not the scheme's own, from which they are fetched."""
    max_bytes: int
    """Of a picture that is fetched, and of a request."""
    max_pixels: int
    """Of a picture."""

    def open(self, picture: SentPicture, name: str, images: ImageStore) -> ImageRef:
        """Return the image that a request names. Raises ImageError, whose message names no file of the machine."""
        if picture.url is not None:
            return images.add_bytes(self._fetched(picture.url, name), name=name)
        if picture.base64 is not None:
            text = picture.base64.partition(",")[2] if picture.base64.startswith("data:") else picture.base64
            return images.add_bytes(decoded(text, name=name), name=name)
        if self.root is None:
            raise ImageError(f"{name}: this service opens no files (it was started without --root); send the image")
        try:
            # Read here: a message about the file itself would name it in full.
            data = below(self.root, picture.path, name=name).read_bytes()
        except OSError as error:
            raise ImageError(f"{name}: the file cannot be read ({error.strerror})") from error
        return images.add_bytes(data, name=name)

    def _fetched(self, url: str, name: str) -> bytes:
        host = urlsplit(url).netloc.lower() if url.startswith(("http://", "https://")) else ""
        if host not in self.hosts:
            raise ImageError(
                f"{name}: nothing is fetched from {host or 'this address'!r}; --image-host of the service allows it"
            )
        data = bytearray()
        try:
            with httpx.stream("GET", url, timeout=30.0, follow_redirects=False) as reply:
                if reply.status_code != 200:
                    raise ImageError(f"{name}: {host} answers {reply.status_code}; expected 200 and an image")
                for chunk in reply.iter_bytes():
                    data += chunk
                    if len(data) > self.max_bytes:
                        raise ImageError(f"{name}: more than {self.max_bytes:,} bytes at {host}")
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ImageError(f"{name}: cannot be fetched from {host} ({type(error).__name__})") from error
        return bytes(data)


def sample_of(edit: SentEdit, sources: Sources, images: ImageStore) -> Sample:
    """Return the edit as a sample. Its id is a digest of what a judge sees, so that equal edits are one.

    Raises ImageError, and SampleError for a box outside the image.
    """
    pictures = {"source": edit.source, "edited": edit.edited, "reference": edit.reference}
    refs = {name: sources.open(one, name, images) for name, one in pictures.items() if one is not None}
    source = refs["source"]
    targets = []
    for number, quad in enumerate(edit.boxes, start=1):
        try:
            box = inside(Box(*quad), width=source.width, height=source.height)
        except ValueError as error:
            raise SampleError(f"boxes, number {number}: {error}") from error
        targets.append(Target(boxes={"source": box}))
    sample = Sample(
        id="",
        source=source,
        turns=(Turn(instruction=edit.instruction.strip(), edited=refs["edited"]),),
        reference=refs.get("reference"),
        targets=tuple(targets),
        edit_type=edit.edit_type,
    )
    return replace(sample, id=sample.content[:20])
