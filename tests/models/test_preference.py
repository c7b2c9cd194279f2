"""A model of preference behind an address: what it is asked, what it may answer, and the script that serves HPSv3."""

from __future__ import annotations

import base64
import io
import json
import math
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe import models
from editloupe.data.images import RGB
from editloupe.errors import ConfigError, MeasureError
from editloupe.measures.base import Measured, Models, judge_of, measured
from editloupe.models import preference
from tests.backends import loopback
from tests.backends.loopback import Act, LoopbackServer, hangs, resets_mid_body, sends

MODEL = "HPSv3 1.0.0"
IMAGE: RGB = np.arange(24 * 16 * 3, dtype=np.uint8).reshape(24, 16, 3)


def says(**said: Any) -> Act:
    return sends(json.dumps({"model": MODEL, **said}).encode())


class Handler(loopback.LoopbackHandler):
    """Takes what the protocol has, to the letter."""

    def do_GET(self) -> None:  # noqa: N802
        body = json.dumps(self.house.first).encode() if self.path == "/" else b"{}"
        self.answer(200 if self.path == "/" else 404, body)

    def do_POST(self) -> None:  # noqa: N802
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        problem = ""
        if self.path != "/score" or self.headers["Content-Type"] != "application/json":
            problem = f"{self.path} {self.headers['Content-Type']}"
        elif set(body) != {"prompt", "image"} or not isinstance(body["prompt"], str):
            problem = f"body {sorted(body)}"
        elif Image.open(io.BytesIO(base64.b64decode(body["image"], validate=True))).format != "PNG":
            problem = "the image is no PNG"
        if problem:
            self.house.complaints.append(problem)
        act = self.house.take(body, {})
        act(self, body)


class Server(LoopbackServer):
    handler = Handler
    first: Any = {"model": MODEL}  # noqa: RUF012


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(preference, "TIMEOUT_S", 1.0)
    yield
    preference.open_preference.cache_clear()


def score(address: str, prompt: str = "", image: RGB = IMAGE) -> Measured:
    return measured("preference", {"prompt": prompt}, {"image": image}, Models(names={"preference": address}))


def failure(*script: Act) -> tuple[str, str]:
    with Server(*script) as server:
        with pytest.raises(MeasureError) as raised:
            score(server.address)
        assert not server.complaints
        return raised.value.status, str(raised.value)


def test_an_image_is_scored_as_it_is_with_its_prompt() -> None:
    with Server(says(mean=5.14, sigma=1.02)) as server:
        found = score(server.address, "a red cup")
        assert not server.complaints
        (asked,) = server.seen
        spec = judge_of("preference", Models(names={"preference": server.address}))
    assert found.answer.value == 5.14 and found.reason == "σ 1.02" and found.data["sigma"] == 1.02
    assert asked["prompt"] == "a red cup"
    with Image.open(io.BytesIO(base64.b64decode(asked["image"]))) as sent:
        assert np.array_equal(np.asarray(sent), IMAGE)
    # The address is no part of the identity: the model is.
    assert spec.tools == {"preference": MODEL}


def test_an_address_that_is_none_is_named() -> None:
    for address in ("hpsv3", "ftp://host"):
        with pytest.raises(ConfigError, match=r"expected an address such as http://127.0.0.1:8100"):
            models.get("preference", address)


def test_an_address_where_nobody_answers_is_a_message_before_the_run() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(ConfigError, match=r"the connection failed \(ConnectError.*preference_worker.py"):
        models.get("preference", address)
    with Server(says()) as server:
        server.first = {"name": "x"}
        with pytest.raises(ConfigError, match=r"expected \{\"model\": NAME\} from GET /, found \{'name': 'x'\}"):
            models.get("preference", server.address)


def test_an_answer_without_two_numbers_is_no_score() -> None:
    for mean, sigma in ((5.1, None), (5.1, -1), ("5.1", 1), (True, 1), (math.nan, 1), (10**400, 1)):
        status, reason = failure(says(mean=mean, sigma=sigma))
        assert status == "tool_failed" and "expected a finite mean and a sigma from 0, found {'model'" in reason


@pytest.mark.parametrize(
    ("act", "status", "reason"),
    [
        (sends(b"5.14 1.02"), "tool_failed", "expected a JSON object, found '5.14 1.02'"),
        (sends(b'{"error": "CUDA out of memory"}', status=500), "tool_failed", "HTTP 500: 'CUDA out of memory'"),
        (says(model="another", mean=1, sigma=1), "tool_failed", "asked 'HPSv3 1.0.0', and 'another' answers"),
        (hangs, "backend_failed", "the connection failed (ReadTimeout"),
        (resets_mid_body, "backend_failed", "the connection failed"),
    ],
)
def test_what_goes_wrong_is_a_status_with_its_reason(act: Act, status: str, reason: str) -> None:
    found, said = failure(act)
    assert found == status and reason in said


STAND_IN = '''
"""Stands for HPSv3's package: the same class, the same call, no network."""

from PIL import Image


class HPSv3RewardInferencer:
    def __init__(self, config_path=None, checkpoint_path=None, device="cuda", differentiable=False):
        print("loading", device)

    def reward(self, prompts, image_paths):
        with Image.open(image_paths[0]) as image:
            if image.width > 20:
                raise RuntimeError("too wide")
            return [[len(prompts[0]) + image.height / 100, 0.0]]
'''


@pytest.fixture
def worker(tmp_path: Path) -> Iterator[str]:
    """The address of the script of the examples, run beside a stand-in of HPSv3's package."""
    (tmp_path / "hpsv3").mkdir()
    (tmp_path / "hpsv3" / "__init__.py").write_text(STAND_IN)
    script = Path(__file__).parents[2] / "examples" / "preference_worker.py"
    command = [sys.executable, str(script), "--port", "0", "--device", "cpu"]
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(2)]
        assert lines[0] == "loading cpu\n"
        yield lines[1].split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=10)


def test_the_script_serves_hpsv3(worker: str) -> None:
    found = score(worker, "cup")
    # Three letters and 24 rows of 100; the second output is the logarithm of σ: e⁰ = 1.
    assert found.answer.value == pytest.approx(3.24) and found.data["sigma"] == 1.0
    assert models.get("preference", worker).version == "HPSv3 of a checkout"
    with pytest.raises(MeasureError, match="HTTP 500: 'RuntimeError: too wide'") as raised:
        score(worker, "cup", np.zeros((8, 40, 3), np.uint8))
    assert raised.value.status == "tool_failed"
    # It goes on.
    assert score(worker).answer.value == pytest.approx(0.24)
