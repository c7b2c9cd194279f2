"""The same folder with each backend by changing --backend alone, against strict local servers: what is the same, and that a
key shows nowhere, whatever fails."""

from __future__ import annotations

import importlib.util
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends import google, openai
from editloupe.backends.retry import RetryPolicy
from editloupe.runs.store import RunStore
from editloupe.traces.events import Header, ModelCall
from editloupe.traces.read import Trace, read_trace
from tests.backends import gemini_server, openai_server
from tests.backends.gemini_server import GeminiServer
from tests.backends.loopback import Act, Body, hangs, resets_mid_body, sends, trickles
from tests.backends.openai_server import OpenAIServer, image_of
from tests.conftest import LOOK, Cli, Edits, final

CANARY = "sk-canary-5ea5e11e5-7f3d"
ZOOM = (
    '<tool_call>{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [50, 50, 400, 400]}}</tool_call>'
)
TURNS = (LOOK, ZOOM, final("Wrong Action", "Crop 1 shows it."))

needs_google = pytest.mark.skipif(importlib.util.find_spec("google.genai") is None, reason="the extra google")


@pytest.fixture(autouse=True)
def keyed(editloupe: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's keys. A failed call is not tried again.   editloupe: first, since it takes keys out of the environment."""
    for name in ("OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name, module in (("OPENAI_API_KEY", openai), ("GOOGLE_API_KEY", google)):
        monkeypatch.setenv(name, CANARY)
        monkeypatch.setattr(module, "open_backend", partial(module.open_backend, policy=RetryPolicy(attempts=1)))


def says(provider: str, text: str) -> Act:
    return gemini_server.says(text) if provider == "google" else openai_server.says(text)


def pictures(provider: str, body: Body) -> list[bytes]:
    """The images of a request, in their order."""
    if provider == "google":
        return gemini_server.pictures(body)
    blocks = (b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"])
    return [image_of(b["image_url"]["url"]) for b in blocks if b["type"] == "image_url"]


def in_turn(provider: str) -> Act:
    """Looks, zooms, answers. By the conversation, not by requests: tasks run side by side."""

    def act(handler: Any, body: Body) -> None:
        turns = body["contents"] if provider == "google" else body["messages"]
        says(provider, TURNS[sum(turn["role"] in ("assistant", "model") for turn in turns)])(handler, body)

    return act


def traces(run: Path) -> dict[str, Trace]:
    store = RunStore.read(run)
    return {f.task_id: read_trace(store.folder / (f.trace or "")) for f in store.current()}


_WIRE = {"seconds", "reply", "judge_id", "usage", "trace", "id", "at", "time", "finding_digest", "lines_digest"}
"""What a trace says of the answer, of the clock, of who judged, and the digests of these."""


def same(value: Any) -> Any:
    """A trace's event without what may differ between judges."""
    if isinstance(value, dict):
        return {name: same(item) for name, item in value.items() if name not in _WIRE}
    return [same(item) for item in value] if isinstance(value, list) else value


@needs_google
def test_traces_of_another_backbone_differ_in_replies_and_wire_parameters_only(
    editloupe: Cli, edits: Edits, tmp_path: Path
):
    folder, found, wires = edits(2), list[dict[str, Trace]](), list[list[list[bytes]]]()
    for provider, kind in (("openai", OpenAIServer), ("google", GeminiServer)):
        with kind(in_turn(provider), model="m", key=CANARY) as server:
            words = ("--backend", f"{provider}/m?base_url={server.url}", "--criteria", "if", "--out", tmp_path / provider)
            code, said, told = editloupe("judge", folder, *words)
        assert (code, server.complaints) == (0, []) and "2 of 2 findings judged" in said, told
        found.append(traces(tmp_path / provider))
        wires.append(sorted((pictures(provider, body) for body in server.seen), key=lambda p: (len(p), p)))
    ours, theirs = found
    assert list(ours) == list(theirs), "the same tasks"
    for task in ours:
        one, two = ours[task], theirs[task]
        judges = [dict(t.header.judge) for t in (one, two)]
        named = [{name: judge.pop(name) for name in ("backend", "endpoint")} for judge in judges]
        assert judges[0] == judges[1] and named[1]["backend"].startswith("google/")
        assert [same(e.model_dump()) for e in one.events if not isinstance(e, Header)] == [
            same(e.model_dump()) for e in two.events if not isinstance(e, Header)
        ]
        calls = [[e for e in t.events if isinstance(e, ModelCall)] for t in (one, two)]
        # Equal heads mean equal conversations, equal keys equal requests: sampling, tools and all.
        assert [(c.head, c.request_key) for c in calls[0]] == [(c.head, c.request_key) for c in calls[1]]
        assert len(calls[0]) == 3
    # The same pictures, byte for byte and in the same order, over either wire.
    assert wires[0] == wires[1] and max(map(len, wires[0])) >= 4


def failures() -> dict[str, Act]:
    """Everything by which a server fails, each time with the key in it where a server can put one."""
    fails, whole = openai_server.fails, json.dumps(openai_server.completion(f"it is {CANARY}")).encode()
    return {
        **{f"status {n}": fails(n, f"no, {CANARY}") for n in (400, 401, 404, 429, 500)},
        "too long": fails(400, f"maximum context length {CANARY}; the input token count exceeds the maximum"),
        "filtered": fails(400, f"filtered {CANARY}", code="content_filter"),
        "refusal": openai_server.says(None, refusal=f"I do not like {CANARY}"),
        "cut JSON": sends(whole[: len(whole) // 2 + 40]),
        "no answer in it": sends(json.dumps({CANARY: CANARY}).encode()),
        "a page for an error": sends(f"<html>{CANARY}</html>".encode(), status=502, content_type="text/html"),
        "reset": resets_mid_body,
        "hang": hangs,
        "trickle": trickles,
    }


def test_a_key_is_written_nowhere_by_a_run_in_which_everything_fails(editloupe: Cli, edits: Edits, tmp_path: Path):
    acts, run = failures(), tmp_path / "run"
    # A refused key ends a run, whatever came before; a 404 does where nothing was answered before.
    key_refused = acts.pop("status 401")
    broken = f'<tool_call>{{"name": "{CANARY}", "parameters": </tool_call>'
    off_menu = openai_server.says(final(f"Label {CANARY}"))
    # An answer and two reminders, twice.
    script = [*[off_menu] * 3, *acts.values(), *map(openai_server.says, (broken, f"{CANARY}?")), off_menu, key_refused]
    with OpenAIServer(*script, model="m") as server:
        uri = f"openai/m?base_url={server.url}&timeout_s=3"
        words = ("judge", edits(len(acts) + 2), "--backend", uri, "--criteria", "if", "--concurrency", "1", "--out", run)
        code, said, told = editloupe(*words)
        assert code == 1
        code, more, _ = editloupe(*words)
        assert (code, "Stopped asking" in more, len(server.seen)) == (1, True, len(script))
    assert server.complaints == []
    code, shown, noted = editloupe("show", run)
    assert code == 0
    written = {p.relative_to(run): p.read_bytes() for p in run.rglob("*") if p.is_file()}
    assert len(written) > len(acts)
    assert [str(name) for name, data in written.items() if CANARY.encode() in data] == []
    assert CANARY not in said + more + told + shown + noted
    # Every sample ends in a status, and none of them in a label.
    found = RunStore.read(run).current()
    assert len(found) == len(acts) + 2 and {f.value for f in found} == {None}
    assert {"backend_failed", "over_budget", "filtered", "off_menu"} <= {f.status for f in found}
