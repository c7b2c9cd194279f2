"""Bounds that an HTTP client lacks: an answer, its head included, comes whole within one time, and is not endless."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from editloupe.backends.endpoint import Endpoint
from editloupe.backends.failures import failed
from editloupe.errors import Rejected

MAX_REPLY_BYTES: Final = 64 * 2**20
"""A longer answer is no answer of a chat model; reading stops there."""

_CALL = threading.local()
"""`ends_at` (time.monotonic) of the call that this thread makes, and whether it is `unhurried`."""
_FILE_S: Final = 3600.0
_FILE_BYTES: Final = 2 * 2**30


@contextmanager
def unhurried() -> Iterator[None]:
    """Let this thread's calls take an hour and 2 GB: files of many questions go up and come down."""
    _CALL.unhurried = True
    try:
        yield
    finally:
        _CALL.unhurried = False


class _Timed:
    """A network of httpcore, or a stream of it, whose operations end with the call.

    A client's own time-out starts anew with every byte: a head that comes byte by byte would never be late.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def connect_tcp(self, *args: Any, **options: Any) -> _Timed:
        return _Timed(self._inner.connect_tcp(*args, **options))

    def start_tls(self, *args: Any, **options: Any) -> _Timed:
        return _Timed(self._inner.start_tls(*args, **options))

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return bytes(self._inner.read(max_bytes, _left(timeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, _left(timeout))


def _left(timeout: float | None) -> float | None:
    ends_at: float | None = getattr(_CALL, "ends_at", None)
    # 0 would ask the socket not to wait at all, which is another error.
    return timeout if ends_at is None else max(0.001, ends_at - time.monotonic())


def bounded(client_class: type, endpoint: Endpoint) -> type:
    """Return a subclass of an HTTP client (httpx, or httpx2 with the same methods) that bounds each answer.

    An answer is read whole within `timeout_s`, counted from the call's beginning, and within `MAX_REPLY_BYTES`: a later one
    raises Unavailable, a longer one Rejected. A status of 300 or more raises Failed.
    """
    timeout = {"connect": endpoint.connect_s, **dict.fromkeys(("read", "write", "pool"), endpoint.timeout_s)}

    class Bounded(client_class):  # type: ignore[misc]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            for transport in (self._transport, *self._mounts.values()):
                if (pool := getattr(transport, "_pool", None)) is not None:
                    # There is no public door: the pool takes a network only where it is made, deep inside.
                    pool._network_backend = _Timed(pool._network_backend)

        def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
            slow = getattr(_CALL, "unhurried", False)
            most_bytes = _FILE_BYTES if slow else MAX_REPLY_BYTES
            request.extensions["timeout"] = timeout
            _CALL.ends_at = time.monotonic() + (_FILE_S if slow else endpoint.timeout_s)
            body = bytearray()
            try:
                response = super().send(request, stream=True, **options)
                try:
                    for chunk in response.iter_bytes():
                        body += chunk
                        if len(body) > most_bytes:
                            raise Rejected(f"{endpoint.where}: the answer is longer than {most_bytes:,} bytes")
                finally:
                    response.close()
            except Exception as error:
                if "Timeout" not in type(error).__name__:
                    raise
                raise endpoint.unreachable(error) from error
            finally:
                _CALL.ends_at = None
            if response.status_code >= 300:
                raise failed(response.status_code, bytes(body), response.headers, endpoint.scrub)
            # The body is no longer packed.
            packed = ("content-encoding", "content-length", "transfer-encoding")
            headers = [(name, value) for name, value in response.headers.multi_items() if name.lower() not in packed]
            return type(response)(response.status_code, headers=headers, content=bytes(body), request=response.request)

    return Bounded
