"""Bounds that an HTTP client lacks: an answer, its head included, comes whole within one time, and is not endless."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from editloupe.backends.endpoint import Endpoint
from editloupe.errors import Rejected

MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer answer is no answer of a chat model; reading stops there."""

_CALL = threading.local()
"""`ends_at` (time.monotonic) of the call that this thread makes."""


class _Stream:
    """A network stream whose reads and writes end with the call. A client's own time-out starts anew with every byte."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return bytes(self._stream.read(max_bytes, _left(timeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(timeout))

    def start_tls(self, *args: Any, **options: Any) -> _Stream:
        return _Stream(self._stream.start_tls(*args, **options))


class _Network:
    """A network backend (httpcore's) that gives such streams."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def connect_tcp(self, *args: Any, **options: Any) -> _Stream:
        return _Stream(self._network.connect_tcp(*args, **options))


def _left(timeout: float | None) -> float | None:
    ends_at: float | None = getattr(_CALL, "ends_at", None)
    if ends_at is None:
        return timeout
    # 0 would ask the socket not to wait at all, which is another error.
    left = max(0.001, ends_at - time.monotonic())
    return left if timeout is None else min(timeout, left)


def bounded(
    client_class: type, endpoint: Endpoint, *, check: Callable[[str, int, bytes, Mapping[str, str]], None] | None = None
) -> type:
    """Return a subclass of an HTTP client (httpx, or httpx2 with the same methods) that bounds each answer.

    An answer is read whole within `timeout_s`, counted from the call's beginning, and within `MAX_REPLY_BYTES`: a later one
    raises Unavailable, a longer one Rejected.

    check: is called with the path, the status, the body and the headers of each answer; what it raises goes to the caller.
    """
    timeout = {"connect": endpoint.connect_s, **dict.fromkeys(("read", "write", "pool"), endpoint.timeout_s)}

    class Bounded(client_class):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            for transport in (self._transport, *self._mounts.values()):
                if (pool := getattr(transport, "_pool", None)) is not None:
                    # There is no public door: the pool takes a network only where it is made, deep inside.
                    pool._network_backend = _Network(pool._network_backend)

        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            request.extensions["timeout"] = timeout
            _CALL.ends_at = time.monotonic() + endpoint.timeout_s
            try:
                response = super().send(request, stream=True, **options)
                try:
                    body = _whole(response, endpoint)
                finally:
                    response.close()
            except Exception as error:
                if "Timeout" not in type(error).__name__:
                    raise
                raise endpoint.unreachable(error) from error
            finally:
                _CALL.ends_at = None
            if check is not None:
                check(request.url.path, response.status_code, body, response.headers)
            # The body is no longer packed.
            packed = ("content-encoding", "content-length", "transfer-encoding")
            headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in packed]
            return type(response)(response.status_code, headers=headers, content=body, request=response.request)

    return Bounded


def _whole(response: Any, endpoint: Endpoint) -> bytes:
    read = bytearray()
    for chunk in response.iter_bytes():
        read += chunk
        if len(read) > MAX_REPLY_BYTES:
            raise Rejected(f"{endpoint.where}: the answer is longer than {MAX_REPLY_BYTES:,} bytes")
    return bytes(read)
