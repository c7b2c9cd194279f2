"""Serve the pages over HTTP by Starlette and uvicorn, on this machine only unless --host says otherwise.

What a request may name is a closed set: a page of a known run, a known sample, a picture by its hash, a trace that a
finding names. Nothing can be written. A request whose Host is not this server's is refused, so that no page from elsewhere
can read a run through a name that leads to loopback (DNS rebinding).
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import socket
import threading
from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import urlsplit

import uvicorn
from starlette import requests, responses
from starlette.applications import Starlette
from starlette.routing import Route

from editloupe.errors import ConfigError, EditLoupeError
from editloupe.viewer.pages import Site
from editloupe.viewer.render import Response, text

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
PORT: Final = 8420
"""Tried first, where no port is named."""
_PORTS: Final = 20
"""How many are tried, one after another."""
_MOST_CONNECTIONS: Final = 64
"""A browser opens about six."""
_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class Viewer:
    """A server of one site; `with` it, then `serve_forever()`. Raises ConfigError where the address cannot be taken."""

    def __init__(
        self,
        site: Site,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        names: Iterable[str] = (),
        renew: Callable[[Site], Site] = lambda site: site,
    ) -> None:
        """renew: is given the site when its list of runs is asked for, and returns the one to show."""
        self.site, self._ended = site, threading.Event()
        self._renew, self._renewing = renew, threading.Lock()
        self._hosts = _LOOPBACK | {name.casefold() for name in (host, *names)}
        self.open_to_others = host.casefold() not in _LOOPBACK
        self._socket = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
        try:
            # Windows lets two servers share a port under this option, and one of them then never hears a thing.
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(os.name == "posix"))
            self._socket.bind((host, port))
            self._socket.listen(128)
        except (OSError, OverflowError) as error:
            self._socket.close()
            reason = getattr(error, "strerror", None) or error
            raise ConfigError(f"{host}:{port} cannot be served: {reason}; choose another --port or --host") from error
        self.server_address: tuple[str, int] = self._socket.getsockname()[:2]
        app = Starlette(routes=[Route("/{address:path}", self._endpoint)])
        self._server = uvicorn.Server(
            uvicorn.Config(
                app, http="h11", ws="none", lifespan="off", log_level="error", access_log=False, server_header=False,
                limit_concurrency=_MOST_CONNECTIONS, timeout_keep_alive=15, timeout_graceful_shutdown=2,
            )
        )  # fmt: skip

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def serve_forever(self) -> None:
        """Serve until `shutdown`."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ended.set()

    def shutdown(self) -> None:
        """Let `serve_forever` end, and wait until it has."""
        self._server.should_exit = True
        self._ended.wait(10)

    @property
    def url(self) -> str:
        host, port = self.server_address
        shown = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://{f'[{shown}]' if ':' in shown else shown}:{port}/"

    def knows(self, host_header: str | None) -> bool:
        """Return whether a Host header names this server: a known name, or any literal address if it is open to others."""
        try:
            host = (urlsplit(f"//{host_header}").hostname or "") if host_header else ""
            # Rebinding needs a name; a literal address is where the request really went.
            return host.casefold() in self._hosts or (self.open_to_others and bool(ipaddress.ip_address(host)))
        except ValueError:
            return False

    def answer(self, address: str, query: str = "") -> Response:
        """Return what lies at an address, such as "/index.html"."""
        address = address.removeprefix("/")
        if self.site.listed and address == "index.html":
            with self._renewing:
                self.site = self._renew(self.site)
        try:
            return self.site.at(address, query) or self.site.missing()
        except EditLoupeError as error:  # the run was moved, or is damaged now
            return self.site.missing(str(error), HTTPStatus.INTERNAL_SERVER_ERROR)

    def _endpoint(self, request: requests.Request) -> responses.Response:
        if self.knows(request.headers.get("host")):
            found = self.answer(request.path_params["address"], request.url.query)
        else:
            words = "This address is not served under that name; see editloupe view --allow-host.\n"
            found = text(words, "text/plain", status=HTTPStatus.MISDIRECTED_REQUEST)
        headers = {**_HEADERS, "Cache-Control": found.cache, "Content-Security-Policy": found.csp}
        if found.location:
            headers["Location"] = found.location
        return responses.Response(found.body, found.status, {**headers, "Content-Type": found.type})


def bound(site: Site, host: str, port: int | None, names: Iterable[str], **more: Any) -> Viewer:
    """Return a server at the port, or without one at the first that is free from PORT on. Raises ConfigError.

    more: further arguments of `Viewer`.
    """
    names = tuple(names)
    tried = [port] if port is not None else range(PORT, PORT + _PORTS)
    for number in tried[:-1]:
        with contextlib.suppress(ConfigError):
            return Viewer(site, host=host, port=number, names=names, **more)
    return Viewer(site, host=host, port=tried[-1], names=names, **more)


def serve_until_stopped(server: Viewer) -> None:
    """Serve until Ctrl-C or a plain kill, which end it alike, also where it was started in a script's background."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()
