"""The HTTP service in a thread of the test, with a scripted backbone that says which edit it was asked about."""

from __future__ import annotations

import base64
import http.client
import io
import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image

from editloupe.backends.scripted import Line, ScriptedLMM
from editloupe.chat import Request
from editloupe.config import RunConfig
from editloupe.runs.setup import open_setup
from tests.conftest import final

if TYPE_CHECKING:
    from editloupe.service.judging import Service

IF_LABELS = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
VC_LABELS = ("Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency")


def needs_extra() -> None:
    """Skip where the extra is not installed."""
    for name in ("httpx", "prometheus_client"):
        pytest.importorskip(name, reason="needs the extra `serve`")


def number_of(request: Request) -> int:
    """Which edit is asked about: its instruction is "Paint mug N blue."."""
    found = re.search(r"mug (\d+)", request.messages[0].text)
    assert found is not None
    return int(found[1])


def by_number(request: Request) -> Line:
    """A label by the edit's number, with the number in the thought."""
    number = number_of(request)
    labels = IF_LABELS if "Instruction Following" in request.messages[0].text else VC_LABELS
    return final(labels[number % 4], f"this is mug {number}")


def slow(seconds: float, script: Callable[[Request], Line] = by_number) -> Callable[[Request], Line]:
    """The same after so many seconds."""

    def answer(request: Request) -> Line:
        time.sleep(seconds)
        return script(request)

    return answer


def png(color: int = 90, *, width: int = 64, height: int = 48) -> bytes:
    """A small picture of one gray."""
    file = io.BytesIO()
    Image.fromarray(np.full((height, width, 3), color, dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def inline(data: bytes) -> dict[str, str]:
    return {"base64": base64.b64encode(data).decode("ascii")}


def edit(number: int, **more: Any) -> dict[str, Any]:
    """A request for one edit."""
    pictures = {"source": inline(png(90)), "edited": inline(png(120))}
    return {"id": f"edit-{number}", "instruction": f"Paint mug {number} blue.", **pictures, **more}


class Client:
    """A running service.   lmm: its backbone."""

    def __init__(self, port: int, lmm: ScriptedLMM | None = None, service: Service | None = None) -> None:
        self.port, self._lmm, self._service = port, lmm, service

    @property
    def lmm(self) -> ScriptedLMM:
        assert self._lmm is not None, "a service in a process of its own has its backbone there"
        return self._lmm

    @property
    def service(self) -> Service:
        assert self._service is not None, "it runs in a process of its own"
        return self._service

    def ask(
        self, path: str, body: Any = None, *, method: str | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, dict[str, str], Any]:
        """(status, headers, JSON or text) of one request on a connection of its own. body: JSON, or bytes as they are."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
            sent = {"Content-Type": "application/json"} if body is not None else {}
            connection.request(method or ("GET" if body is None else "POST"), path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            text = answer.read()
            found = {name.lower(): value for name, value in answer.getheaders()}
            is_json = "json" in found.get("content-type", "")
            return answer.status, found, json.loads(text) if is_json else text.decode()
        finally:
            connection.close()


@contextmanager
def serving(
    out: Path,
    script: Callable[[Request], Line] | None = by_number,
    *,
    concurrency: int = 4,
    max_queue: int = 32,
    timeout_s: float = 30.0,
    max_body: int = 2_000_000,
    token: str | None = None,
    root: Path | None = None,
    image_hosts: tuple[str, ...] = (),
    protocol: str = "dlebench",
    options: Mapping[str, Any] | None = None,
    criteria: tuple[str, ...] | None = None,
    backend: str = "",
    roles: Mapping[str, ScriptedLMM] | None = None,
    door: str | None = None,
    group_mean: bool = False,
    canary: int | None = None,
) -> Iterator[Client]:
    """The service on a free port of the loopback, stopped at the end as SIGTERM would stop it.

    script: of who has the role "judge"; None for a protocol without it.   backend: asked in its place.
    roles: who has the protocol's other roles.   criteria: of DLEBench, unless `options` holds a protocol's own.
    """
    needs_extra()
    import uvicorn

    from editloupe.cli.serve import listen
    from editloupe.service.app import make_app
    from editloupe.service.doors import load_door
    from editloupe.service.edits import Sources
    from editloupe.service.judging import Service

    lmm = ScriptedLMM(script or [])
    option = {"mode": "plain", "criteria": criteria} if options is None else dict(options)
    judge = {} if script is None else {"backend": backend or lmm}
    role = {name: {"backend": one} for name, one in (roles or {}).items()}
    setup = open_setup(RunConfig.make(protocol=protocol, option=option, judge=judge, role=role))
    sources = Sources(root=root, hosts=frozenset(image_hosts), max_bytes=max_body, max_pixels=1_000_000)
    service = Service(setup, out, sources=sources, concurrency=concurrency, waiting=max_queue, timeout_s=timeout_s)
    hosts = ("127.0.0.1", "localhost")
    wire = None if door is None else load_door(door)
    app = make_app(service, token=token, hosts=hosts, door=wire, group_mean=group_mean, canary=canary)
    listening = listen("127.0.0.1", 0)
    config = uvicorn.Config(app, http="h11", ws="none", log_level="critical", timeout_graceful_shutdown=10)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        deadline = time.monotonic() + 30
        while not server.started:
            assert thread.is_alive() and time.monotonic() < deadline, "the service does not start"
            time.sleep(0.01)
        yield Client(listening.getsockname()[1], lmm, service)
    finally:
        server.should_exit = True
        thread.join(timeout=30)
        listening.close()
        service.close()
        assert not thread.is_alive(), "the service does not stop"
