"""The middleware of the HTTP service. It checks who asks, how much is sent, and whether there is room."""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from fastapi.exceptions import HTTPException
from fastapi.responses import JSONResponse

from editloupe.service.http_metrics import Metrics
from editloupe.service.http_models import problem
from editloupe.service.queue import JudgeQueue, QueueFull, ShuttingDown

ENDPOINTS = ("/v1/judge", "/v1/judge/upload", "/v1/judge/batch", "/healthz", "/readyz", "/metrics", "/openapi.json", "/")
_OPEN = ("/healthz", "/readyz", "/")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What a client may send, and who may ask."""

    max_body: int
    """Bytes of one request."""
    max_pixels: int
    """Of one image."""
    token: str | None = None
    """The token that a client must show; None for none."""
    hosts: frozenset[str] | None = None
    """Names by which the service may be called; None for any."""
    body_s: float = 60.0
    """Seconds in which a request's body must have come."""


def problem_response(status: int, detail: str, headers: Mapping[str, str] | None = None) -> Any:
    """Return an error as RFC 9457 has it."""
    return JSONResponse(
        problem(status, detail).model_dump(),
        status_code=status,
        headers=dict(headers or {}),
        media_type="application/problem+json",
    )


class Guard:
    """ASGI middleware. A request for a verdict holds a slot from before its body is read until it is answered."""

    def __init__(self, app: Any, *, queue: JudgeQueue, limits: Limits, metrics: Metrics) -> None:
        self.app, self.queue, self.limits, self.metrics = app, queue, limits, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def send_noting_status(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._guarded(scope, receive, send_noting_status)
        finally:
            endpoint = scope["path"] if scope["path"] in ENDPOINTS else "other"
            self.metrics.count_answer(endpoint, status, time.monotonic() - began)

    async def _guarded(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refusal = self._refusal(scope["path"], headers)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope["editloupe.trusted"] = self._is_trusted(headers)
        if scope["method"] != "POST" or scope["path"] not in ENDPOINTS[:3]:
            await self.app(scope, receive, send)
            return
        try:
            slot = self.queue.acquire()
        except (QueueFull, ShuttingDown) as error:
            busy = problem_response(503, str(error), {"Retry-After": str(error.retry_after_s)})
            await busy(scope, receive, send)
            return

        async def send_and_release(message: Any) -> None:
            if message["type"] == "http.response.start":
                # Before the client sees the status, so that it finds a place for its next request.
                self.queue.release(slot)
            await send(message)

        try:
            scope["editloupe.slot"] = slot
            until = min(slot.until, asyncio.get_running_loop().time() + self.limits.body_s)
            await self.app(scope, _BoundedBody(receive, self.limits.max_body, until), send_and_release)
        finally:
            self.queue.release(slot)

    def _is_trusted(self, headers: Mapping[str, str]) -> bool:
        """Whether a request shows the token, or none is asked for."""
        if self.limits.token is None:
            return True
        scheme, _, token = headers.get("authorization", "").partition(" ")
        shown = token.strip().encode("utf-8", "replace")
        return scheme.lower() == "bearer" and hmac.compare_digest(shown, self.limits.token.encode("utf-8"))

    def _refusal(self, path: str, headers: Mapping[str, str]) -> Any:
        """The answer to a request that may not be made, before anything of its body is read; None for one that may."""
        limits = self.limits
        host = _name(headers.get("host", ""))
        if limits.hosts is not None and host not in limits.hosts:
            return problem_response(421, f"this service answers to {', '.join(sorted(limits.hosts))}, not to {host!r}")
        origin = headers.get("origin")
        if limits.hosts is not None and origin is not None and _name(urlsplit(origin).netloc) not in limits.hosts:
            # A page of another site, in a browser on this machine.
            return problem_response(403, f"pages of {origin!r} may not ask this service")
        if path not in _OPEN and not self._is_trusted(headers):
            return problem_response(401, "expected the header Authorization: Bearer TOKEN", {"WWW-Authenticate": "Bearer"})
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > limits.max_body:
            return problem_response(413, _too_large(limits.max_body))
        return None


class _BoundedBody:
    """A request's body, up to so many bytes and until a time."""

    def __init__(self, receive: Any, max_body: int, until: float) -> None:
        self._receive, self._left, self._max, self._until = receive, max_body, max_body, until
        self._whole = False

    async def __call__(self) -> Any:
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._until):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(408, "the body did not come in time; see --body-timeout of the service") from None
        self._left -= len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._left < 0:
            raise HTTPException(413, _too_large(self._max))
        return message


def _too_large(most: int) -> str:
    return f"more than {most:,} bytes; scale the images down, or start the service with a larger --max-body-mb"


def _name(host: str) -> str:
    """A Host header without its port."""
    name, colon, port = host.rpartition(":")
    return (name if colon and port.isdecimal() else host).lower()
