"""Serve the pages over HTTP, on this machine only unless --host says otherwise. Standard library only.

What a request may name is a closed set: a page of a known run, a known sample, a picture by its hash, a trace that a
finding names. A request whose Host is not this server's is refused, so that no page from elsewhere can read a run through
a name that leads to loopback (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import socket
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import unquote, urlsplit

from editloupe.errors import ConfigError, EditLoupeError
from editloupe.viewer.pages import CSP, Run, Site, asset, asset_names, page_version

_LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
_ASSET_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_FOREVER: Final = "private, max-age=31536000, immutable"
_FRESH: Final = "no-cache"


@dataclass(frozen=True, kw_only=True)
class Response:
    """What a request gets."""

    body: bytes
    type: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    cache: str = _FRESH
    location: str = ""
    csp: str = CSP + "; frame-ancestors 'none'"
    """What is no page has a policy of its own."""


_PLAIN_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For pictures and traces opened by themselves: nothing in them runs. Browsers style a bare picture inline."""


class Viewer(ThreadingHTTPServer):
    """A server of one site; `with` it, then `serve_forever()`. Raises ConfigError where the address cannot be taken."""

    daemon_threads = True
    # Windows and BSD let two servers share a port under this option, and one of them then never hears a thing.
    allow_reuse_address = os.name == "posix"

    def __init__(self, site: Site, *, host: str = "127.0.0.1", port: int = 0, names: Iterable[str] = ()) -> None:
        self.site = site
        self.hosts = _LOOPBACK | {host.casefold()} | {name.casefold() for name in names}
        self.open_to_others = host.casefold() not in _LOOPBACK
        self.address_family = _family(host)
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
        path = unquote(urlsplit(target).path)
        if path == "/":
            return Response(body=b"", status=HTTPStatus.FOUND, location="/index.html")
        parts = path.removeprefix("/").split("/")
        if parts[0] == "static" and len(parts) == 2 and parts[1] in asset_names():
            type_ = _ASSET_TYPES[parts[1].rpartition(".")[2]]
            return Response(body=asset(parts[1]), type=f"{type_}; charset=utf-8")
        several = len(self.site.runs) > 1
        if parts == ["compare.html"]:
            compared = self.site.compare_page()
            return _missing() if compared is None else _text(compared)
        if several and parts == ["index.html"]:
            return Response(body=self.site.runs_page().encode())
        run = self.site.run(f"{parts[0]}/" if several else "")
        if run is None:
            return _missing()
        return self._in_run(run, parts[1:] if several else parts) or _missing()

    def _in_run(self, run: Run, parts: list[str]) -> Response | None:
        match parts:
            case [""]:
                return Response(body=b"", status=HTTPStatus.FOUND, location=f"/{run.folder}index.html")
            case ["index.html"]:
                return _text(self.site.run_page(run))
            case ["report.html"]:
                return _text(self.site.report_page(run))
            case ["plots", name]:
                svg = self.site.numbers.plots(run.reader).get(name.removesuffix(".svg"))
                return None if svg is None else _svg(svg)
            case ["rows.js"]:
                return _text(self.site.rows_script(run), "text/javascript")
            case ["rows.json"]:
                return _text(self.site.rows(run), "application/json")
            case ["live.json"]:
                run.reader.refresh()
                return _json({"version": run.reader.version, "running": run.reader.running()})
            case ["samples", name]:
                return self._sample(run, name)
            case ["blobs", ab, name]:
                found = run.pictures.shown(f"{ab}/{name}")
                return None if found is None else Response(body=found[0], type=found[1], cache=_FOREVER, csp=_PLAIN_CSP)
            case ["thumbs", _, name]:
                thumb = run.pictures.thumb(name)
                return None if thumb is None else Response(body=thumb, type="image/jpeg", cache=_FOREVER, csp=_PLAIN_CSP)
            case ["traces" | "forks", *_]:
                return _trace(run, "/".join(parts))
        return None

    def _sample(self, run: Run, name: str) -> Response | None:
        slug, _, kind = name.rpartition(".")
        sample = run.reader.sample(slug)
        if sample is None:
            return None
        if kind == "html":
            return _text(self.site.sample_page(run, sample))
        if kind == "json":
            return _json({"version": page_version(run.reader, sample), "running": run.reader.running()})
        return None


class _Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD; everything else is 501, as the base class has it."""

    server: Viewer
    protocol_version = "HTTP/1.1"
    server_version = "editloupe"
    sys_version = ""
    timeout = 60

    def do_GET(self) -> None:
        if not self.server.knows(self.headers.get("Host")):
            refusal = _text("This address is not served under that name; see editloupe view --allow-host.\n", "text/plain")
            self._send(replace(refusal, status=HTTPStatus.MISDIRECTED_REQUEST))
            return
        try:
            response = self.server.answer(self.path)
        except EditLoupeError as error:  # the run was moved, or is damaged now
            response = replace(_text(f"{error}\n", "text/plain"), status=HTTPStatus.INTERNAL_SERVER_ERROR)
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


def _trace(run: Run, relative: str) -> Response | None:
    """A trace that a finding, or a task under way, names, or a fork of one; nothing else of the folder."""
    path = run.reader.inside(relative) if run.reader.has_trace(relative) else None
    return None if path is None else Response(body=path.read_bytes(), type="text/plain; charset=utf-8", csp=_PLAIN_CSP)


def _text(text: str, type_: str = "text/html") -> Response:
    return Response(body=text.encode("utf-8", "backslashreplace"), type=f"{type_}; charset=utf-8")


def _svg(text: str) -> Response:
    """A plot: shown as a picture, and styled by what it holds itself."""
    return Response(body=text.encode(), type="image/svg+xml; charset=utf-8", csp=_PLAIN_CSP)


def _json(data: dict[str, object]) -> Response:
    return _text(json.dumps(data), "application/json")


def _missing() -> Response:
    return Response(body=b"Nothing here.\n", type="text/plain; charset=utf-8", status=HTTPStatus.NOT_FOUND)


def _family(host: str) -> int:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
