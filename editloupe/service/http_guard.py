"""What stands before the endpoints of the HTTP service: who may ask, how much may be sent, whether there is room."""

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

from editloupe.service.bureau import Bureau, Closing, Full
from editloupe.service.http_metrics import Metrics
from editloupe.service.http_models import problem

ENDPOINTS = ("/v1/judge", "/v1/judge/upload", "/v1/judge/batch", "/healthz", "/readyz", "/metrics", "/openapi.json")
_OPEN = ("/healthz", "/readyz")


@dataclass(frozen=True, kw_only=True)
class Limits:
    """max_body: bytes of one request.   max_pixels: of one image.   token: that a client must show; None for none.
    hosts: names by which the service may be called; None for any.
    """

    max_body: int
    max_pixels: int
    token: str | None = None
    hosts: frozenset[str] | None = None


def problem_response(status: int, title: str, detail: str, headers: Mapping[str, str] | None = None) -> Any:
    """An error as RFC 9457 has it."""
    return JSONResponse(
        problem(status, title, detail).model_dump(),
        status_code=status,
        headers=dict(headers or {}),
        media_type="application/problem+json",
    )


class Guard:
    """ASGI middleware. A request for a verdict holds a seat from before its body is read until it is answered."""

    def __init__(self, app: Any, *, bureau: Bureau, limits: Limits, metrics: Metrics) -> None:
        self.app, self.bureau, self.limits, self.metrics = app, bureau, limits, metrics

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 500

        async def sent(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._guarded(scope, receive, sent)
        finally:
            endpoint = scope["path"] if scope["path"] in ENDPOINTS else "other"
            self.metrics.answered(endpoint, status, time.monotonic() - began)

    async def _guarded(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        refused = self._refusal(scope["path"], headers)
        if refused is not None:
            await refused(scope, receive, send)
            return
        if scope["method"] != "POST" or scope["path"] not in ENDPOINTS[:3]:
            await self.app(scope, receive, send)
            return
        try:
            seat = self.bureau.take()
        except (Full, Closing) as error:
            wait = error.retry_after_s if isinstance(error, Full) else 5
            busy = problem_response(503, "Busy, or shutting down", str(error), {"Retry-After": str(wait)})
            await busy(scope, receive, send)
            return

        async def sent(message: Any) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                # Before the client has its answer, so that it finds a place for its next request.
                self.bureau.leave(seat)
            await send(message)

        try:
            scope["editloupe.seat"] = seat
            await self.app(scope, _Counted(receive, self.limits.max_body, seat.until), sent)
        finally:
            self.bureau.leave(seat)

    def _refusal(self, path: str, headers: Mapping[str, str]) -> Any:
        """The answer to a request that may not be made, before anything of its body is read; None for one that may."""
        limits = self.limits
        host = _name(headers.get("host", ""))
        if limits.hosts is not None and host not in limits.hosts:
            return problem_response(
                421, "Another host is meant", f"this service answers to {', '.join(sorted(limits.hosts))}, not to {host!r}"
            )
        origin = headers.get("origin")
        if limits.hosts is not None and origin is not None and _name(urlsplit(origin).netloc) not in limits.hosts:
            # A page of another site, in a browser on this machine.
            return problem_response(403, "Forbidden", f"pages of {origin!r} may not ask this service")
        if limits.token is not None and path not in _OPEN:
            scheme, _, token = headers.get("authorization", "").partition(" ")
            told = token.strip().encode("utf-8", "replace")
            if scheme.lower() != "bearer" or not hmac.compare_digest(told, limits.token.encode("utf-8")):
                asked = {"WWW-Authenticate": "Bearer"}
                return problem_response(401, "Not authorised", "expected the header Authorization: Bearer TOKEN", asked)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > limits.max_body:
            return problem_response(413, "The body is too large", _too_large(limits.max_body))
        return None


class _Counted:
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
            raise HTTPException(408, "the body did not come in time") from None
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
