"""A real language model drives the loop: SmolLM2-135M on llama.cpp. Its verdicts mean nothing; that each is reached does.

The model reads no pictures: a proxy on loopback writes "[picture]" in their places.
"""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from editloupe.runs.store import RunStore
from editloupe.tasks import STATUSES
from tests import clients
from tests.conftest import draw_edits

pytestmark = pytest.mark.clients

Editloupe = Callable[..., tuple[int, str, str]]


@contextmanager
def llama() -> Iterator[str]:
    """Start llama.cpp's server, and yield its address."""
    script = Path(__file__).with_name("llama_server.py")
    # One thread: two that wait for each other crawl where the cores are shared.
    command = [str(clients.client("llama")), str(script), "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            # The address may end in the middle of a line of the server's own log.
            line = next(line for line in server.stdout if "listening http://" in line)
            yield "http" + line.split("listening http")[1].split()[0]
        finally:
            server.kill()


@contextmanager
def without_pictures(address: str) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Put a proxy before a server that writes "[picture]" for pictures. Yield its address and the requests that it saw."""
    seen: list[dict[str, Any]] = []

    class Proxy(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with urllib.request.urlopen(address + self.path) as answer:
                # The list of models says that this one reads text only, which the proxy makes good for.
                self._send(answer.status, answer.read().replace(b'"input_modalities"', b'"modalities"'))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            seen.append(body)
            for message in body["messages"]:
                if isinstance(message["content"], list):
                    texts = (part.get("text", "[picture]") for part in message["content"])
                    message["content"] = "\n".join(texts)
            data, headers = json.dumps(body).encode(), {"Content-Type": "application/json"}
            try:
                with urllib.request.urlopen(urllib.request.Request(address + self.path, data, headers)) as answer:
                    self._send(answer.status, answer.read())
            except urllib.error.HTTPError as error:
                self._send(error.code, error.read())

        def _send(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Proxy)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()


def test_a_language_model_of_135_million_parameters_judges_every_question(editloupe: Editloupe, tmp_path: Path):
    draw_edits(tmp_path / "edits", 2)
    with llama() as address, without_pictures(address) as (proxy, seen):
        backend = f"openai/smollm2?base_url={proxy}/v1&timeout_s=600"
        asked = ("judge", "edits", "--backend", backend, "--max-reply-tokens", "250", "--concurrency", "1")
        code, _, told = editloupe(*asked, "--mode", "plain", "--out", "plain")
        assert code == 0, told
        findings = RunStore.read(Path("plain")).current()
        # Two criteria of each edit, each answered at once and held to the schema.
        assert [f.status for f in findings] == ["ok"] * 4, told
        assert all(f.counts == {"schema_answers": 1} and f.reason for f in findings)
        assert len(seen) == 4 and all(body["response_format"]["type"] == "json_schema" for body in seen)

        code, _, told = editloupe(*asked, "--limit", "1", "--max-turns", "1", "--fail-on-error", "1", "--out", "tool")
        findings = RunStore.read(Path("tool")).current()
        assert (code, len(findings)) == (0, 2), told
        assert {f.status for f in findings} <= set(STATUSES) - {"backend_failed", "tool_failed", "input_error"}
