"""`editloupe judge --backend google/…` as a user types it, against a strict server of our own on loopback."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.retry import RetryPolicy
from editloupe.findings import Finding
from editloupe.runs.store import RunStore
from tests.conftest import LOOK, final

pytest.importorskip("google.genai", reason="the extra 'google' is not installed")

from editloupe.backends import google as adapter
from tests.backends.gemini_server import GeminiServer, Handler, blocks, call, pictures, says
from tests.backends.loopback import Act, Body

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]
Serve = Callable[..., GeminiServer]

CANARY = "AIza-canary-5ea5e11e5-7f3d"
SIGNATURE = "c2lnbmF0dXJlIG9mIGEgdGhvdWdodA=="
ATTEMPTS = 3


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failed call is tried again at once: the plug-in's factory is opened with a policy of our own."""
    opened = partial(adapter.open_backend, policy=RetryPolicy(attempts=ATTEMPTS, sleep=lambda seconds: None))
    monkeypatch.setattr(adapter, "open_backend", opened)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers of the model "m"; in the end, none may have seen a request that breaks the protocol."""
    servers: list[GeminiServer] = []

    def start(*script: Act, **options: Any) -> GeminiServer:
        servers.append(GeminiServer(*script, model="m", **options).__enter__())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)
    assert [c for s in servers for c in s.complaints] == []


def turns(body: Body) -> int:
    return sum(content["role"] == "model" for content in body["contents"])


def looks_zooms_and_answers(handler: Handler, body: Body) -> None:
    """Three turns in the text protocol. By the conversation, not by turns: tasks run side by side."""
    zoom = {"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [100, 500, 300, 900]}}
    said = (LOOK, f"<tool_call>{json.dumps(zoom)}</tool_call>", final("Wrong Action"))[turns(body)]
    says(said)(handler, body)


def calls_natively(handler: Handler, body: Body) -> None:
    """The same by function calls, each signed."""
    names = {"comparison_image_1": "Original Image", "comparison_image_2": "Edited Image"}
    said = (
        call("localize_differences", signature=SIGNATURE, **names),
        call("zoom_in", signature=SIGNATURE, target_image="Edited Image", bbox=[100, 500, 300, 900]),
        final("Wrong Action"),
    )[turns(body)]
    says(said)(handler, body)


def uri(server: GeminiServer, query: str = "&env=none") -> str:
    return f"google/m?base_url={server.url}{query}"


def findings(run: Path) -> list[Finding]:
    return RunStore.read(run).current()


def conversation(server: GeminiServer) -> list[Body]:
    return sorted(server.seen, key=lambda body: len(body["contents"]))


def test_a_gemini_looks_with_tools_and_its_label_is_kept(editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path):
    server, run = serve(looks_zooms_and_answers), tmp_path / "run"
    code, said, _ = editloupe("judge", edits(1), "--backend", uri(server), "--criteria", "if", "--out", run)
    assert (code, "1 of 1 findings judged" in said) == (0, True)
    assert [(f.status, f.label, f.turns) for f in findings(run)] == [("ok", "Wrong Action", 2)]
    assert [(f.usage.input_tokens, f.usage.output_tokens) for f in findings(run)] == [(33, 9)]
    files = {file.read_bytes() for file in tmp_path.glob("edits/*/*.png")}
    assert [p in files for p in pictures(server.seen[0])] == [True, True], "both images, as their own bytes"


def test_native_calls_are_answered_and_their_signatures_go_back(editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path):
    server, run = serve(calls_natively), tmp_path / "run"
    options = ("--criteria", "if", "--set", "tool_protocol=native", "--out", run)
    assert editloupe("judge", edits(1), "--backend", uri(server), *options)[0] == 0
    assert [(f.status, f.label, f.turns) for f in findings(run)] == [("ok", "Wrong Action", 2)]
    last = conversation(server)[-1]["contents"]
    assert [c["role"] for c in last] == ["user", "model", "user", "model", "user"]
    assert [p["thoughtSignature"] for c in last for p in c["parts"] if "functionCall" in p] == [SIGNATURE] * 2
    told = [p["functionResponse"]["response"]["output"] for c in last for p in c["parts"] if "functionResponse" in p]
    assert [t.splitlines()[0] for t in told] == ["Observation of localize_differences:", "Observation of zoom_in:"]


def test_a_prompt_that_the_provider_blocks_is_filtered_and_no_number(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path
):
    server, run = serve(blocks("PROHIBITED_CONTENT")), tmp_path / "run"
    assert editloupe("judge", edits(1), "--backend", uri(server), "--criteria", "if", "--out", run)[0] == 1
    (finding,) = findings(run)
    assert (finding.status, finding.value) == ("filtered", None)
    assert finding.reason == "the provider blocked the prompt (PROHIBITED_CONTENT)"
