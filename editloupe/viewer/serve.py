"""Serve the pages over HTTP, on this machine only unless --host says otherwise. Standard library only.

What a request may name is a closed set: a page of a known run, a known sample, a picture by its hash, a trace that a
finding names. A request whose Host is not this server's is refused, so that no page from elsewhere can read a run through
a name that leads to loopback (DNS rebinding).

One thing may be written: people's labels and notes (`viewer.people`). They are taken on loopback alone,
and from this server's own pages: Origin and Host must be its own, and the token of its pages must come along.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import io
import ipaddress
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Generic, Protocol, TypeVar
from urllib.parse import unquote, urlsplit

from editloupe.errors import ConfigError, EditLoupeError
from editloupe.values import parse_json
from editloupe.viewer.pages import Response, text
from editloupe.viewer.people import MOST_BYTES

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})

PORT: Final = 8420
"""Tried first, where no port is named."""
_PORTS: Final = 20
"""How many are tried, one after another."""
MOST_CONNECTIONS: Final = 64
"""A browser opens about six."""
HEAD_S: Final = 15.0
"""Seconds in which the head of a request must have come, counted from the connection or the answer before."""
ANSWER_S: Final = 60.0
"""Seconds in which a client must have taken an answer."""


class Served(Protocol):
    """What a server serves."""

    @property
    def token(self) -> str | None:
        """What its pages send along with a label; None where nobody may give one."""

    @property
    def listed(self) -> bool:
        """Whether the first page is a list that may grow."""

    def at(self, address: str, query: str = "") -> Response | None:
        """Return what lies at an address below the root; None if nothing does."""

    def said(self, address: str, data: Any) -> Response | None:
        """Store what a person's page sent to an address; None if nothing takes it there."""


S = TypeVar("S", bound=Served)


class Viewer(ThreadingHTTPServer, Generic[S]):
    """A server of one site; `with` it, then `serve_forever()`. Raises ConfigError where the address cannot be taken.

    connections: how many it holds at once. A further one takes the place of the one that has been waiting for a request for
    the longest time, so that clients which hold connections and say nothing keep no reader out.
    head_s: seconds in which the head of a request must have come.   renew: is given the site when its list of runs is
    asked for, and returns the one to show.
    """

    daemon_threads = True
    request_queue_size = 128
    # Windows and BSD let two servers share a port under this option, and one of them then never hears a thing.
    allow_reuse_address = os.name == "posix"

    def __init__(
        self,
        site: S,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        names: Iterable[str] = (),
        connections: int = MOST_CONNECTIONS,
        head_s: float = HEAD_S,
        renew: Callable[[S], S] | None = None,
    ) -> None:
        self.site = site
        self.most, self.head_s = connections, head_s
        self._renew, self._renewing = renew, threading.Lock()
        self._open: dict[Any, bool] = {}
        """Connection → whether it is being answered; the one in which something happened last stands at the end."""
        self._changed = threading.Condition()
        self.hosts = _LOOPBACK | {host.casefold()} | {name.casefold() for name in names}
        self.open_to_others = host.casefold() not in _LOOPBACK
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Handler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{host}:{port} cannot be served: {reason}; choose another --port or --host") from error

    def handle_error(self, request: object, client_address: object) -> None:
        """Print errors, but for dropped connections: browsers drop them as they like."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection in a thread of its own, once there is room for it."""
        with self._changed:
            if len(self._open) >= self.most:
                with contextlib.suppress(OSError):
                    min(self._open, key=lambda connection: self._open[connection]).shutdown(socket.SHUT_RDWR)
                # Its thread ends at once, unless it is making a page.
                self._changed.wait_for(lambda: len(self._open) < self.most, timeout=1)
            room = len(self._open) < self.most
            if room:
                self._open[request] = False
        if room:
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        """Close a connection; there is room for another one."""
        super().shutdown_request(request)
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify()

    def note(self, request: Any, *, answering: bool) -> None:
        """Note that a connection is being answered, or waits for a request again."""
        with self._changed:
            if self._open.pop(request, None) is not None:
                self._open[request] = answering

    @property
    def url(self) -> str:
        host, port = str(self.server_address[0]), int(self.server_address[1])
        shown = "127.0.0.1" if host == "0.0.0.0" else "::1" if host == "::" else host
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"

    def knows(self, host_header: str | None) -> bool:
        """Return whether a Host header names this server: a known name, or any literal address if it is open to others."""
        try:
            # A port of its own is part of what a browser sends; which one does not matter, another could not be reached.
            host = (urlsplit(f"//{host_header}").hostname or "") if host_header else ""
        except ValueError:
            return False
        if host.casefold() in self.hosts:
            return True
        try:
            ipaddress.ip_address(host)
        except ValueError:
            return False
        # Rebinding needs a name; a literal address is where the request really went.
        return self.open_to_others

    def refusal(self, headers: Message, client: str) -> str:
        """Return why a person's label is not taken; "" if it is. Only this server's own pages may send one."""
        token, sent = self.site.token, headers.get("X-Editloupe-Token", "")
        if token is None:
            return "Labels are not taken here."
        if self.open_to_others or client not in _LOOPBACK:
            return "Labels are taken on loopback only."
        origin = urlsplit(headers.get("Origin", ""))
        if origin.scheme != "http" or origin.netloc != headers.get("Host") or not self.knows(headers.get("Host")):
            return "Labels are taken from this server's own pages only."
        if headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
            return "Labels are taken from this server's own pages only."
        if not hmac.compare_digest(sent.encode("utf-8", "replace"), token.encode()):
            return "The page is of an earlier start of this server; load it again."
        if headers.get_content_type() != "application/json":
            return "Expected Content-Type: application/json."
        return ""

    def take(self, target: str, body: bytes) -> Response:
        """Store what a person's page sent, and return what to answer."""
        try:
            data = parse_json(body)
        except ValueError:
            return text("Expected JSON.\n", "text/plain", status=HTTPStatus.BAD_REQUEST)
        found = self.site.said(unquote(urlsplit(target).path).removeprefix("/"), data)
        return found or text("Nothing here.\n", "text/plain", status=HTTPStatus.NOT_FOUND)

    def answer(self, target: str) -> Response:
        """Return what lies at a request target."""
        parts = urlsplit(target)
        address = unquote(parts.path).removeprefix("/")
        if self._renew is not None and self.site.listed and address == "index.html":
            with self._renewing:
                self.site = self._renew(self.site)
        found = self.site.at(address, parts.query)
        return found or text("Nothing here.\n", "text/plain", status=HTTPStatus.NOT_FOUND)


class _Head(io.RawIOBase):
    """What a client sends, until the time for a request's head is up; then TimeoutError.

    A socket's own time-out starts anew with each byte.
    """

    until = 0.0
    """When the time is up, on the monotonic clock."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self.until - time.monotonic()
        if left <= 0:
            raise TimeoutError
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET, HEAD and a person's POST; everything else is 501, as the base class has it."""

    server: Viewer[Any]
    protocol_version = "HTTP/1.1"
    server_version = "editloupe"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self._head = _Head(self.connection)
        self.rfile = io.BufferedReader(self._head)

    def handle_one_request(self) -> None:
        self.server.note(self.connection, answering=False)
        self._head.until = time.monotonic() + self.server.head_s
        super().handle_one_request()

    def do_GET(self) -> None:
        self.server.note(self.connection, answering=True)
        self.connection.settimeout(ANSWER_S)
        if not self.server.knows(self.headers.get("Host")):
            words = "This address is not served under that name; see editloupe view --allow-host.\n"
            self._send(text(words, "text/plain", status=HTTPStatus.MISDIRECTED_REQUEST))
            return
        try:
            response = self.server.answer(self.path)
        except EditLoupeError as error:  # the run was moved, or is damaged now
            response = text(f"{error}\n", "text/plain", status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(response)

    do_HEAD = do_GET  # noqa: N815 - the base class looks for this name

    def do_POST(self) -> None:
        self.server.note(self.connection, answering=True)
        self.connection.settimeout(ANSWER_S)
        length = self.headers.get("Content-Length", "")
        refused = self.server.refusal(self.headers, str(self.client_address[0]))
        # What is not read would be taken for the next request.
        self.close_connection = True
        if refused:
            response = text(f"{refused}\n", "text/plain", status=HTTPStatus.FORBIDDEN)
        elif not length.isdecimal() or int(length) > MOST_BYTES:
            response = text("Too long.\n", "text/plain", status=HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        else:
            try:
                response = self.server.take(self.path, self.rfile.read(int(length)))
            except EditLoupeError as error:
                response = text(f"{error}\n", "text/plain", status=HTTPStatus.INTERNAL_SERVER_ERROR)
        self._send(response)

    def _send(self, response: Response) -> None:
        tag = f'"{hashlib.sha256(response.body).hexdigest()[:32]}"'
        same = response.status == HTTPStatus.OK and self.headers.get("If-None-Match") == tag
        body = b"" if same else response.body
        self.send_response(HTTPStatus.NOT_MODIFIED if same else response.status)
        if not same:
            self.send_header("Content-Type", response.type)
            self.send_header("Content-Length", str(len(body)))
        if response.location:
            self.send_header("Location", response.location)
        if response.status == HTTPStatus.OK:
            self.send_header("ETag", tag)
        for name, value in (
            ("Cache-Control", response.cache),
            ("Content-Security-Policy", response.csp),
            ("X-Content-Type-Options", "nosniff"),
            ("Referrer-Policy", "no-referrer"),
            ("Cross-Origin-Resource-Policy", "same-origin"),
            ("Cross-Origin-Opener-Policy", "same-origin"),
            ("X-Frame-Options", "DENY"),
        ):
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD" and body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the terminal is the reader's."""


def bound(site: S, host: str, port: int | None, names: Iterable[str], **more: Any) -> Viewer[S]:
    """Return a server at the port, or without one at the first that is free from PORT on. Raises ConfigError.

    more: further arguments of `Viewer`.
    """
    names = tuple(names)
    tried = [port] if port is not None else range(PORT, PORT + _PORTS)
    for number in tried[:-1]:
        try:
            return Viewer(site, host=host, port=number, names=names, **more)
        except ConfigError:
            continue
    return Viewer(site, host=host, port=tried[-1], names=names, **more)


def serve_until_stopped(server: Viewer[Any]) -> None:
    """Serve until Ctrl-C or a plain kill, which end it alike, also where it was started in a script's background."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
