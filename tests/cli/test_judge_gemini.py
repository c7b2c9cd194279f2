"""`editloupe judge --backend google/…` as a user types it, against a strict server of our own on loopback."""

from __future__ import annotations

import itertools
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
from tests.backends.gemini_server import GeminiServer, Handler, blocks, call, fails, pictures, says
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


def test_each_turns_conversation_begins_with_the_last_ones_byte_for_byte(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path
):
    for name, act, options in (("t", looks_zooms_and_answers, ()), ("n", calls_natively, ("--tool-protocol", "native"))):
        for boxes in ("thousandths", "thousandths_yx", "pixels"):
            server = serve(act)
            run = tmp_path / f"{name}-{boxes}"
            judged = ("judge", edits(1, name=f"e-{name}-{boxes}"), "--backend", uri(server, f"&env=none&boxes={boxes}"))
            assert editloupe(*judged, "--criteria", "if", "--out", run, *options)[0] == 0
            wire = [json.dumps(body["contents"])[:-1] for body in conversation(server)]
            assert len(wire) == 3
            assert all(later.startswith(earlier + ",") for earlier, later in itertools.pairwise(wire))


def test_native_calls_are_answered_and_their_signatures_go_back(editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path):
    server, run = serve(calls_natively), tmp_path / "run"
    options = ("--criteria", "if", "--tool-protocol", "native", "--out", run)
    assert editloupe("judge", edits(1), "--backend", uri(server), *options)[0] == 0
    assert [(f.status, f.label, f.turns) for f in findings(run)] == [("ok", "Wrong Action", 2)]
    last = conversation(server)[-1]["contents"]
    assert [c["role"] for c in last] == ["user", "model", "user", "model", "user"]
    assert [p["thoughtSignature"] for c in last for p in c["parts"] if "functionCall" in p] == [SIGNATURE] * 2
    told = [p["functionResponse"]["response"]["output"] for c in last for p in c["parts"] if "functionResponse" in p]
    assert [t.splitlines()[0] for t in told] == ["Observation of localize_differences:", "Observation of zoom_in:"]


def test_a_model_that_writes_y_first_is_recorded_x_first(editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path):
    for protocol, act in (("text", looks_zooms_and_answers), ("native", calls_natively)):
        server, run = serve(act), tmp_path / protocol
        where = uri(server, "&env=none&boxes=thousandths_yx")
        options = ("--criteria", "if", "--tool-protocol", protocol, "--out", run)
        assert editloupe("judge", edits(1, name=f"edits-{protocol}"), "--backend", where, *options)[0] == 0
        trace = "".join(p.read_text() for p in run.rglob("*.jsonl"))
        # 240×320 px: y 24 to 72, x 160 to 288, as the tool saw it.
        assert "your bbox [500, 100, 900, 300] (px [160, 24, 288, 72])" in trace
        wire = json.dumps(conversation(server)[-1], ensure_ascii=False)
        assert "your bbox [100, 500, 300, 900] (px [24, 160, 72, 288]" in wire
        assert "[y0, x0, y1, x1], y first" in wire
        assert "[x0, y0, x1, y1]" not in wire


def test_a_prompt_that_the_provider_blocks_is_filtered_and_no_number(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path
):
    server, run = serve(blocks("PROHIBITED_CONTENT")), tmp_path / "run"
    assert editloupe("judge", edits(1), "--backend", uri(server), "--criteria", "if", "--out", run)[0] == 1
    (finding,) = findings(run)
    assert (finding.status, finding.value) == ("filtered", None)
    assert finding.reason == "the provider blocked the prompt (PROHIBITED_CONTENT)"


def test_a_server_that_fails_is_no_verdict_and_a_retry_gives_the_label(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path
):
    server, run = serve(fails(500, "An internal error.")), tmp_path / "run"
    assert editloupe("judge", edits(1), "--backend", uri(server), "--criteria", "if", "--out", run)[0] == 1
    assert len(server.seen) == ATTEMPTS
    server.script[:] = [looks_zooms_and_answers]
    assert editloupe("retry", run, "--trust-run")[0] == 0
    assert [(f.status, f.label) for f in findings(run)] == [("ok", "Wrong Action")]


def test_a_refused_key_says_what_to_do_and_is_shown_nowhere(
    editloupe: Run, serve: Serve, edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("MY_VARIABLE", CANARY)
    server, run = serve(looks_zooms_and_answers, key="another"), tmp_path / "run"
    command = ("judge", edits(1), "--backend", uri(server, "&env=MY_VARIABLE"), "--criteria", "if", "--out", run)
    code, said, complained = editloupe(*command)
    assert code == 1
    (finding,) = findings(run)
    assert "check the key in environment variable MY_VARIABLE" in finding.reason
    written = [p.read_bytes() for p in run.rglob("*") if p.is_file()]
    assert not [b for b in [*written, said.encode(), complained.encode()] if CANARY.encode() in b]
