"""Judging by batch endpoints: the findings, traces and replay of a live run, and nothing sent twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from editloupe.runs.store import RunStore
from editloupe.traces.events import ModelCall
from editloupe.traces.read import read_trace
from tests.backends.batch_server import BatchServer, Body, GeminiBatchServer, OpenAIBatchServer
from tests.backends.gemini_server import answer
from tests.backends.openai_server import completion
from tests.conftest import LOOK, final
from tests.setups import open_with, run_over

LABELS = ("Flawless Execution", "Over Modification", "Wrong Action", "Localization Failure", "Scene Collapse", "Multiple Anomalies",
          "Single Anomaly", "Perfect Consistency")


def label_of(body: Body) -> str:
    """A label that rests on all that was asked."""
    # Google's SDK writes the bytes of images in the alphabet of URLs.
    text = json.dumps(body, sort_keys=True).replace("-", "+").replace("_", "/")
    known = [label for label in LABELS if label in text]
    return known[sum(text.encode()) % len(known)]


def openai_says(body: Body) -> tuple[int, Body]:
    spoken = sum(message["role"] == "assistant" for message in body["messages"])
    looks = "localize_differences" in str(body["messages"][0]) and spoken < 4
    return 200, completion(LOOK if looks else final(label_of(body)))


def gemini_says(body: Body) -> tuple[int, Body]:
    return 200, answer({"text": final(label_of(body))})


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A function that starts a server of a dialect; it may refuse nothing that was not told to be."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as stack:

        def start(dialect: str, says: Any = None, **options: Any) -> Any:
            kind, usual = {"openai": (OpenAIBatchServer, openai_says), "google": (GeminiBatchServer, gemini_says)}[dialect]
            return stack.enter_context(kind(says or usual, **options))

        yield start


def uri(server: BatchServer) -> str:
    return f"google/tiny-gemini?base_url={server.url}" if isinstance(server, GeminiBatchServer) else f"openai/tiny-vl?base_url={server.url}"


def judge(server: BatchServer, folder: Path, out: Path, *, batch: bool = True, **given: Any):
    setup = open_with(backend=uri(server), batch=batch, **{"mode": "plain", "patience": 0, **given})
    return run_over(setup, folder, out)


def findings(out: Path) -> dict[Any, Any]:
    found = RunStore.read(out).findings.values()
    return {f.task_id: {**f.to_json(), "seconds": 0, "usage": None} for f in found}


def replies(out: Path) -> dict[str, list[str]]:
    traces = [read_trace(path) for path in sorted(out.glob("traces/*/*/*.jsonl"))]
    return {t.header.task_id: [f"{e.request_key} {e.content.text}" for e in t.events if isinstance(e, ModelCall)] for t in traces}


@pytest.mark.parametrize("dialect", ["openai", "google"])
def test_a_run_by_batch_ends_as_the_same_run_asked_live(dialect: str, serve, edits, tmp_path: Path):
    server, folder = serve(dialect), edits(6)
    live, out = tmp_path / "live", tmp_path / "batch"
    judge(server, folder, live, batch=False)
    asked = len(server.live)
    outcome = judge(server, folder, out)
    assert outcome.waiting == 11
    again = judge(server, folder, out)
    assert again.waiting == 11
    server.finish()
    done = judge(server, folder, out)
    assert done.waiting == 0
    assert findings(out) == findings(live)
    assert replies(out) == replies(live)
    assert server.refusals == []
