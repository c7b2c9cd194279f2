"""What the servers of these tests have in common: a script of acts on loopback, and the ways in which a server misbehaves.

A server of a protocol brings its own handler. Standard library only.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias

Body: TypeAlias = dict[str, Any]
Act: TypeAlias = Callable[[Any, Body], None]
"""What to do with a request: (handler, body)."""


def sends(body: bytes, *, status: int = 200, content_type: str = "application/json") -> Act:
    """Answers with exactly these bytes."""
    return lambda handler, request: handler.answer(status, body, {"Content-Type": content_type})


def resets_mid_body(handler: LoopbackHandler, request: Body) -> None:
    """Promises more than it sends, then resets the connection."""
    handler.start(200, {"Content-Length": "100000"})
    handler.wfile.write(b'{"')
    handler.wfile.flush()
    # Linger of 0 s turns the close into a RST.
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.shutdown(socket.SHUT_RDWR)
    handler.close_connection = True


def hangs(handler: LoopbackHandler, request: Body) -> None:
    """Says nothing until the server is closed."""
    handler.house.closing.wait(30)
    handler.close_connection = True


def drips(piece: bytes, every_s: float) -> Act:
    """Sends a piece again and again until the server is closed, for 30 s at most."""

    def act(handler: LoopbackHandler, request: Body) -> None:
        handler.close_connection = True
        for _ in range(int(30 / every_s)):
            if handler.house.closing.wait(every_s):
                return
            handler.wfile.write(piece)
            handler.wfile.flush()

    return act


def trickles(handler: LoopbackHandler, request: Body) -> None:
    """Sends a blank every 50 ms to keep the connection, as some gateways do, and never an answer."""
    handler.start(200, {"Connection": "close"})
    drips(b" ", 0.05)(handler, request)


class LoopbackServer:
    """A server with a script; a context manager. Each request takes the next act; the last one stays.

    seen, headers: what was received (names in lower case).   complaints: what broke the protocol.
    """

    handler: ClassVar[type[LoopbackHandler]]

    def __init__(self, *script: Act) -> None:
        self.script = list(script)
        self.seen: list[Body] = []
        self.headers: list[dict[str, str]] = []
        self.complaints: list[str] = []
        self.closing = threading.Event()
        self.connections: list[socket.socket] = []
        self._lock = threading.Lock()
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (self.handler,), {"house": self}))
        self._http.daemon_threads = False
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.005})

    @property
    def port(self) -> int:
        return int(self._http.server_address[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, body: Body, headers: dict[str, str]) -> Act:
        """The next act; what was received is kept."""
        with self._lock:
            self.seen.append(body)
            self.headers.append(headers)
            return self.script.pop(0) if len(self.script) > 1 else self.script[0]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.closing.set()
        self._http.shutdown()
        self._thread.join()
        for connection in self.connections:
            # A client that keeps its connection open does not hold the server: there is no next request.
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        self._http.server_close()


class LoopbackHandler(BaseHTTPRequestHandler):
    """One connection."""

    house: Any
    protocol_version = "HTTP/1.1"
    timeout = 30

    def handle(self) -> None:
        self.house.connections.append(self.connection)
        try:
            super().handle()
        except OSError:
            # The client has gone: a time-out on its side, or our own reset.
            self.close_connection = True

    def answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.start(status, {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})})
        self.wfile.write(body)

    def start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `seen`, not a log."""
