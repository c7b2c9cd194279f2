"""A real `vllm serve` for tests: on a free port, in a process group of its own, stopped whatever happens."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from editloupe.backends import vllm
from editloupe.backends.base import parse_uri
from editloupe.backends.openai import OpenAIBackend

GRACE_S = 15.0
"""Seconds between SIGTERM and SIGKILL."""


class Server:
    """A running server."""

    def __init__(self, port: int) -> None:
        self.port, self.base_url = port, f"http://127.0.0.1:{port}/v1"


@contextlib.contextmanager
def served(
    environment: Path, model: str, arguments: Sequence[str] = (), *, start_s: float = 400
) -> Iterator[tuple[OpenAIBackend, Server]]:
    """Serve a model as long as the block lasts, and yield the backend that asks it. Fails with the log's last lines."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Server(free.getsockname()[1])
    command = [str(environment / "bin/vllm"), "serve", model, "--host", "127.0.0.1", "--port", str(server.port), *arguments]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            until = time.monotonic() + start_s
            while not _answers(server.port):
                if process.poll() is not None or time.monotonic() > until:
                    log.seek(0)
                    raise AssertionError(f"vllm serve did not start: {log.read()[-4000:].decode(errors='replace')}")
                time.sleep(0.5)
            backend = vllm.open_backend(parse_uri(f"vllm/{model}?base_url={server.base_url}"))
            yield backend, server
            backend.close()
        finally:
            with contextlib.suppress(ProcessLookupError, subprocess.TimeoutExpired):
                os.killpg(process.pid, signal.SIGTERM)
                process.wait(GRACE_S)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _answers(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=2)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()
