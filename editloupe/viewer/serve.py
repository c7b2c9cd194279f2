"""Serve the pages over HTTP, on this machine only unless --host says otherwise. Standard library only.

What a request may name is a closed set: a page of a known run, a known sample, a picture by its hash, a trace that a
finding names. A request whose Host is not this server's is refused, so that no page from elsewhere can read a run through
a name that leads to loopback (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import ipaddress
import os
import socket
import sys
from collections.abc import Iterable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import unquote, urlsplit

from editloupe.errors import ConfigError, EditLoupeError
from editloupe.viewer.pages import Response, Site, text

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})


class Viewer(ThreadingHTTPServer):
    """A server of one site; `with` it, then `serve_forever()`. Raises ConfigError where the address cannot be taken."""

    daemon_threads = True
    # Windows and BSD let two servers share a port under this option, and one of them then never hears a thing.
    allow_reuse_address = os.name == "posix"

    def __init__(self, site: Site, *, host: str = "127.0.0.1", port: int = 0, names: Iterable[str] = ()) -> None:
        self.site = site
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

    def answer(self, target: str) -> Response:
        """Return what lies at a request target."""
        found = self.site.at(unquote(urlsplit(target).path).removeprefix("/"))
        return found or text("Nothing here.\n", "text/plain", status=HTTPStatus.NOT_FOUND)


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is 501, as the base class has it."""

    server: Viewer
    protocol_version = "HTTP/1.1"
    server_version = "editloupe"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
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
