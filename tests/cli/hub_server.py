"""A server on this machine that answers as the Hugging Face hub does for one data set, owner/Name, and refuses all else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

COMMIT = "0123456789abcdef0123456789abcdef01234567"
_API = "/api/datasets/owner/Name"
_FILES = f"/datasets/owner/Name/resolve/{COMMIT}/"


@contextmanager
def serving(repository: Path) -> Iterator[str]:
    """Serve the files of a folder as the data set's only commit. Yields the address."""
    files = {path.relative_to(repository).as_posix(): path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Hub", (_Hub,), {"files": files}))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Hub(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files: dict[str, bytes]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path in (_API, f"{_API}/revision/{COMMIT}"):
            siblings = [{"rfilename": name} for name in self.files]
            self._json({"id": "owner/Name", "sha": COMMIT, "private": False, "tags": [], "siblings": siblings})
        elif path.startswith(f"{_API}/tree/{COMMIT}"):
            self._json(self._listed(path.partition(COMMIT)[2].strip("/")))
        elif path.startswith(_FILES) and (data := self.files.get(path.removeprefix(_FILES))) is not None:
            self._file(data)
        else:
            self._send(404, b"{}", {"X-Error-Code": "EntryNotFound"})

    do_HEAD = do_GET  # noqa: N815 - as the base class calls it

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def _listed(self, below: str) -> list[dict[str, Any]]:
        """What lies in a folder itself."""
        found: dict[str, dict[str, Any]] = {}
        for name, data in self.files.items():
            if below and not name.startswith(f"{below}/"):
                continue
            first, deeper, _ = name.removeprefix(f"{below}/" if below else "").partition("/")
            path = f"{below}/{first}" if below else first
            kind = "directory" if deeper else "file"
            found[path] = {"type": kind, "path": path, "size": 0 if deeper else len(data), "oid": _digest(data)}
        return list(found.values())

    def _file(self, data: bytes) -> None:
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{_digest(data)}"', "Accept-Ranges": "bytes"}
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if not asked:
            self._send(200, data, headers)
            return
        low, _, high = asked.partition("-")
        start = int(low) if low else len(data) - int(high)
        part = data[start : int(high) + 1] if low and high else data[start:]
        self._send(206, part, headers | {"Content-Range": f"bytes {start}-{start + len(part) - 1}/{len(data)}"})

    def _json(self, value: Any) -> None:
        self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def _send(self, code: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def _digest(data: bytes) -> str:
    return hashlib.sha1(data).hexdigest()
