"""The same folder with each backend by changing --backend alone, against strict local servers: what is the same, and that a
key shows nowhere, whatever fails."""

from __future__ import annotations

import importlib
import importlib.util
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.retry import RetryPolicy
from editloupe.runs.store import RunStore
from editloupe.traces.events import Header, ModelCall
from editloupe.traces.read import Trace, read_trace
from tests.backends import gemini_server, openai_server
from tests.backends.gemini_server import GeminiServer
from tests.backends.loopback import Act, Body, LoopbackServer, hangs, resets_mid_body, sends, trickles
from tests.backends.openai_server import OpenAIServer, image_of
from tests.conftest import LOOK, final

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]

CANARY = "sk-canary-5ea5e11e5-7f3d"
ZOOM = (
    '<tool_call>{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [50, 50, 400, 400]}}</tool_call>'
)
TURNS = (LOOK, ZOOM, final("Wrong Action", "Crop 1 shows it."))

GOOGLE = pytest.param(
    "google", marks=pytest.mark.skipif(importlib.util.find_spec("google.genai") is None, reason="the extra google")
)


class House:
    """One server for a provider, and the URI under which it is asked. key: what the server asks for."""

    def __init__(self, provider: str, server: LoopbackServer) -> None:
        self.provider, self.server = provider, server
        self.uri = f"{provider}/m?base_url={server.url}&timeout_s=30"  # type: ignore[attr-defined]

    def pictures(self, body: Body) -> list[bytes]:
        """The images of a request, in their order."""
        if self.provider == "google":
            return gemini_server.pictures(body)
        blocks = (b for m in body["messages"] if isinstance(m["content"], list) for b in m["content"])
        return [image_of(b["image_url"]["url"]) for b in blocks if b["type"] == "image_url"]


Serve = Callable[..., House]


@pytest.fixture
def serve(editloupe: Run, monkeypatch: pytest.MonkeyPatch) -> Iterator[Serve]:
    """Starts a provider's server; in the end, none may have seen a request that breaks its protocol.

    editloupe: first, since it takes keys out of the environment.
    """
    for name in ("OPENAI_BASE_URL", "GEMINI_API_KEY", "GOOGLE_GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    for name in ("OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, CANARY)
    servers: list[LoopbackServer] = []
    with ExitStack() as stack:

        def start(provider: str, script: list[Act], *, key: str | None = None) -> House:
            # Failed calls are not tried again: the plug-in's factory is opened with a policy of our own.
            module = importlib.import_module(f"editloupe.backends.{provider}")
            opener = getattr(module.open_backend, "func", module.open_backend)
            monkeypatch.setattr(module, "open_backend", partial(opener, policy=RetryPolicy(attempts=1)))
            kind: Callable[..., LoopbackServer] = GeminiServer if provider == "google" else OpenAIServer
            servers.append(server := stack.enter_context(kind(*script, model="m", key=key)))
            return House(provider, server)

        yield start
    assert [c for s in servers for c in s.complaints] == []


def says(provider: str, text: str, **fields: Any) -> Act:
    return gemini_server.says(text, **fields) if provider == "google" else openai_server.says(text, **fields)


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


def asked_the_same(serve: Serve, editloupe: Run, folder: Path, out: Path, provider: str) -> tuple[House, dict[str, Trace]]:
    house = serve(provider, [in_turn(provider)], key=CANARY)
    code, said, told = editloupe("judge", folder, "--backend", house.uri, "--criteria", "if", "--out", out)
    assert code == 0, said + told
    assert "2 of 2 findings judged" in said
    return house, traces(out)


@pytest.mark.parametrize("provider", [GOOGLE])
def test_traces_of_another_backbone_differ_in_replies_and_wire_parameters_only(
    provider: str, serve: Serve, editloupe: Run, edits: Edits, tmp_path: Path
):
    folder = edits(2)
    first, ours = asked_the_same(serve, editloupe, folder, tmp_path / "openai", "openai")
    other, theirs = asked_the_same(serve, editloupe, folder, tmp_path / provider, provider)
    assert list(ours) == list(theirs), "the same tasks"
    for task in ours:
        one, two = ours[task], theirs[task]
        judges = [dict(t.header.judge) for t in (one, two)]
        named = [{name: judge.pop(name) for name in ("backend", "endpoint")} for judge in judges]
        assert judges[0] == judges[1]
        assert named[1]["backend"].startswith(f"{provider}/")
        assert [same(e.model_dump()) for e in one.events if not isinstance(e, Header)] == [
            same(e.model_dump()) for e in two.events if not isinstance(e, Header)
        ]
        calls = [[e for e in t.events if isinstance(e, ModelCall)] for t in (one, two)]
        # Equal heads mean equal conversations, equal keys equal requests: sampling, tools and all.
        assert [(c.head, c.request_key) for c in calls[0]] == [(c.head, c.request_key) for c in calls[1]]
        assert len(calls[0]) == 3
    # The same pictures, byte for byte and in the same order, over either wire.
    wires = [sorted(map(h.pictures, h.server.seen), key=lambda p: (len(p), p)) for h in (first, other)]
    assert wires[0] == wires[1]
    assert max(len(pictures) for pictures in wires[0]) >= 4


def failures(provider: str) -> dict[str, Act]:
    """Everything by which a server fails, each time with the key in it where a server can put one."""
    google = provider == "google"
    fails: Callable[..., Act] = gemini_server.fails if google else openai_server.fails
    whole = json.dumps(
        gemini_server.answer({"text": CANARY}) if google else openai_server.completion(f"it is {CANARY}")
    ).encode()
    found = {
        **{f"status {n}": fails(n, f"no, {CANARY}") for n in (400, 401, 404, 429, 500)},
        "too long": fails(400, f"maximum context length {CANARY}; the input token count exceeds the maximum"),
        "cut JSON": sends(whole[: len(whole) // 2 + 40]),
        "no answer in it": sends(json.dumps({CANARY: CANARY}).encode()),
        "a page for an error": sends(f"<html>{CANARY}</html>".encode(), status=502, content_type="text/html"),
        "reset": resets_mid_body,
        "hang": hangs,
        "trickle": trickles,
    }
    if google:
        found["blocked"] = gemini_server.blocks(f"SAFETY {CANARY}")
    else:
        found["filtered"] = fails(400, f"filtered {CANARY}", code="content_filter")
        found["refusal"] = openai_server.says(None, refusal=f"I do not like {CANARY}")
    return found


@pytest.mark.parametrize("provider", ["openai", pytest.param(*GOOGLE.values, marks=[*GOOGLE.marks, pytest.mark.slow])])
def test_a_key_is_written_nowhere_by_a_run_in_which_everything_fails(
    provider: str, serve: Serve, editloupe: Run, edits: Edits, tmp_path: Path
):
    acts = failures(provider)
    # A refused key ends a run, whatever came before; a 404 does where nothing was answered before.
    key_refused = acts.pop("status 401")
    broken = f'<tool_call>{{"name": "{CANARY}", "parameters": </tool_call>'
    script = [
        # An answer and two reminders.
        *[says(provider, final(f"Label {CANARY}"))] * 3,
        *acts.values(),
        says(provider, broken),
        says(provider, f"{CANARY}?"),
        says(provider, final(f"Label {CANARY}")),
        key_refused,
    ]
    house, run = serve(provider, script), tmp_path / "run"
    uri = house.uri.replace("timeout_s=30", "timeout_s=3")
    words = ("--backend", uri, "--criteria", "if", "--concurrency", "1", "--out", run)
    folder = edits(len(acts) + 2)
    code, said, told = editloupe("judge", folder, *words)
    assert code == 1
    code, more, _ = editloupe("judge", folder, *words)
    assert (code, "Stopped asking" in more, len(house.server.seen)) == (1, True, len(script))
    code, shown, noted = editloupe("show", run)
    assert code == 0
    written = {p.relative_to(run): p.read_bytes() for p in run.rglob("*") if p.is_file()}
    assert len(written) > len(acts)
    assert [str(name) for name, data in written.items() if CANARY.encode() in data] == []
    assert CANARY not in said + more + told + shown + noted
    # Every sample ends in a status, and none of them in a label.
    found = RunStore.read(run).current()
    assert len(found) == len(acts) + 2
    assert {f.value for f in found} == {None}
    statuses = {f.status for f in found}
    assert {"backend_failed", "over_budget", "filtered", "off_menu"} <= statuses
