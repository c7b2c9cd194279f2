"""Gemini's batch endpoint: JSON Lines of `{key, request}`, and each image uploaded once for all questions that show it."""

from __future__ import annotations

import io
import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from editloupe import files
from editloupe.backends.batch.base import BatchAnswer, BatchState, InBatches, Limits
from editloupe.backends.payload import at, one_line
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.values import ImageRef, compact_bytes, digest

_IMAGES: Final = "images.jsonl"
_KEPT_S: Final = 48 * 3600.0
"""How long an uploaded file is kept."""
_NEEDED_S: Final = 24 * 3600.0
"""How long a batch may need it: an image is uploaded again if less is left."""
_HTTP: Final = {3: 400, 5: 404, 7: 403, 8: 429, 9: 400, 11: 400, 13: 500, 14: 503, 16: 401}
"""Codes of google.rpc → HTTP. Those of a call that was cancelled (1) or came too late (4) are none: it is asked again."""
_ENDED: Final = ("SUCCEEDED", "EXPIRED", "CANCELLED")


class GoogleBatches:
    """The endpoint.   folder: where the addresses of uploaded images are kept from invocation to invocation."""

    limits = Limits(lines=10**9, bytes=2 * 10**9)

    def __init__(self, backend: InBatches, client: Any, model: str, folder: Path) -> None:
        self._backend, self._client, self._model, self._folder = backend, client, model, folder
        self._lock = threading.Lock()
        self._busy: dict[str, threading.Lock] = {}
        self._uploaded: dict[str, tuple[str, str, float]] = {}
        """Image and policy → (address, media type, when it is deleted)."""
        path = folder / _IMAGES
        for line in files.read_bytes(path).splitlines() if path.exists() else ():
            try:
                known = json.loads(line)
                self._uploaded[str(known["image"])] = str(known["uri"]), str(known["type"]), float(known["until"])
            except (ValueError, KeyError, TypeError):
                continue  # the end of a killed invocation: that image is uploaded again

    def line(self, id: str, request: Request, images: ImageStore) -> bytes:
        body = self._backend.body_of(request, images, lambda ref: self._picture(ref, images))
        return compact_bytes({"key": id})[:-1] + b',"request":' + body + b"}\n"

    def size(self, request: Request, images: ImageStore) -> int:
        shown = {"file_data": {"mime_type": "image/png", "file_uri": f"{self._backend.endpoint}/v1beta/files/0123456789ab"}}
        return 100 + len(self._backend.body_of(request, images, lambda ref: shown))

    def _picture(self, ref: ImageRef, images: ImageStore) -> dict[str, Any]:
        """Return the part that names an image, which is uploaded where it is not there."""
        policy = self._backend.traits.image_policy
        key = digest({"image": ref.sha256, "policy": str(policy)})
        with self._lock:
            alone = self._busy.setdefault(key, threading.Lock())
        with alone:
            uri, media_type, until = self._uploaded.get(key, ("", "", 0.0))
            if until - time.time() < _NEEDED_S:
                made = images.encoded(ref, policy)
                until, media_type = time.time() + _KEPT_S, made.media_type
                sent = {"mime_type": media_type, "display_name": key[:40]}
                uri = self._backend.called(lambda: self._client.files.upload(file=io.BytesIO(made.data), config=sent).uri)
                self._uploaded[key] = uri, media_type, until
                with self._lock, files.append(self._folder / _IMAGES, below=self._folder.parent) as file:
                    file.write(compact_bytes({"image": key, "uri": uri, "type": media_type, "until": until}) + b"\n")
        return {"file_data": {"mime_type": media_type, "file_uri": uri}}

    def answer(self, line: bytes) -> BatchAnswer:
        data = json.loads(line)
        id_, response, error = at(data, "key"), at(data, "response"), at(data, "error")
        if not isinstance(id_, str) or (response is None and error is None):
            raise ValueError("expected key and response, or error")
        if response is not None:
            return BatchAnswer(id=id_, status=200, body=json.dumps(response).encode())
        code = at(error, "code")
        status = _HTTP.get(code, code if isinstance(code, int) and 400 <= code < 600 else 0)
        return BatchAnswer(id=id_, status=status, body=json.dumps({"error": error}).encode())

    def send(self, path: Path, token: str, since: float) -> str:
        told = {"mime_type": "jsonl", "display_name": token}
        name = self._backend.called(lambda: str(self._client.files.upload(file=str(path), config=told).name))

        def create() -> str:
            return str(self._client.batches.create(model=self._model, src=name, config={"display_name": token}).name)

        return self._backend.created(create, lambda: self._found(token, since))

    def find(self, token: str, since: float) -> str | None:
        return self._backend.called(lambda: self._found(token, since))

    def _found(self, token: str, since: float) -> str | None:
        # All pages: the API promises no order.
        for job in self._client.batches.list(config={"page_size": 100}):
            if job.display_name == token:
                return str(job.name)
        return None

    def state(self, id: str, questions: Sequence[str]) -> BatchState:
        job = self._backend.called(lambda: self._client.batches.get(name=id))
        name = "" if job.state is None else str(job.state.value).removeprefix("JOB_STATE_")
        words = one_line(f"{name.lower()} {(job.error and job.error.message) or ''}")
        if name == "FAILED":
            full = job.error is not None and _HTTP.get(job.error.code or 0) == 429
            return BatchState(kind="rejected", words=words, full=full)
        if not name.endswith(_ENDED):
            return BatchState(kind="open", words=words)
        file = job.dest.file_name if job.dest is not None else None
        lines = self._backend.called(lambda: bytes(self._client.files.download(file=file))) if file else b""
        return BatchState(kind="ended", words=words, answers=lines)
