"""A real language model drives the loop: SmolLM2-135M on llama.cpp. Its verdicts mean nothing; that each is reached does.

The model reads no pictures: a proxy on loopback writes "[picture]" in their places.
"""

from __future__ import annotations

import copy
import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from editloupe.runs.store import RunStore
from editloupe.tasks import STATUSES
from tests import clients
from tests.backends.loopback import Act, Body
from tests.backends.openai_server import Handler, OpenAIServer
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


def without_pictures(address: str) -> Act:
    """Asks a model that reads no pictures, with "[picture]" in their places."""

    def act(handler: Handler, body: Body) -> None:
        told = copy.deepcopy(body)
        for message in told["messages"]:
            if isinstance(message["content"], list):
                message["content"] = "\n".join(part.get("text", "[picture]") for part in message["content"])
        data, headers = json.dumps(told).encode(), {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{address}/v1/chat/completions", data, headers)
        try:
            with urllib.request.urlopen(request) as answer:
                handler.answer(answer.status, answer.read())
        except urllib.error.HTTPError as error:
            handler.answer(error.code, error.read())

    return act


def test_a_language_model_of_135_million_parameters_judges_every_question(editloupe: Editloupe, tmp_path: Path):
    draw_edits(tmp_path / "edits", 2)
    with llama() as address, OpenAIServer(without_pictures(address), model="smollm2") as proxy:
        backend = f"openai/smollm2?base_url={proxy.url}&timeout_s=600"
        asked = ("judge", "edits", "--backend", backend, "--set", "max_reply_tokens=250", "--concurrency", "1")
        code, _, told = editloupe(*asked, "--mode", "plain", "--out", "plain")
        assert code == 0, told
        findings = RunStore.read(Path("plain")).current()
        # Two criteria of each edit, each answered at once and held to the schema.
        assert [f.status for f in findings] == ["ok"] * 4, told
        assert all(f.counts == {"schema_answers": 1} and f.reason for f in findings)
        assert [body["response_format"]["type"] for body in proxy.seen] == ["json_schema"] * 4

        code, _, told = editloupe(*asked, "--limit", "1", "--max-turns", "1", "--fail-on-error", "1", "--out", "tool")
        findings = RunStore.read(Path("tool")).current()
        assert (code, len(findings)) == (0, 2), told
        assert {f.status for f in findings} <= set(STATUSES) - {"backend_failed", "tool_failed", "input_error"}
