"""LangGraph and LangChain send traces to LangSmith only if the user asks editloupe for it, not by the environment alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import langsmith.run_trees
import langsmith.utils
import pytest
import yaml
from langchain_core.tracers import langchain as tracers

from editloupe import Judge, load_sample
from editloupe.backends import langsmith as traces
from editloupe.backends.langsmith import flush
from editloupe.runs.store import RunStore
from editloupe.runs.studio import graph
from tests.conftest import LOOK, draw_edits, final

Run = Callable[..., tuple[int, str, str]]

COMMANDS = {
    "judge": ["judge", "edits", "--criteria", "if", "--backend", "scripted/replies.jsonl", "--out", "new"],
    "judge by rules": ["judge", "--config", "run/config.yaml", "--out", "new"],
    "retry": ["retry", "failed"],
    "canary": ["canary", "run", "--samples", "1"],
    "fork": ["fork", "run", "s00", "--at", "0"],
    "replay": ["replay", "run", "--model", "live"],
    "rank": [
        *("rank", "--source", "edits/source/s00.png", "--instruction", "Red."),
        *("edits/edited/s00.png", "edits/edited/s01.png"),
    ],
    "targets": ["targets", "edits"],
}
"""Every command that runs the loop."""


class LangSmith(ThreadingHTTPServer):
    """Takes whatever is posted, and keeps it."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.posted: list[bytes] = []

    def asked(self) -> int:
        """Requests that hold runs, once all have been sent."""
        assert flush()
        return len(self.posted)


class _Handler(BaseHTTPRequestHandler):
    server: LangSmith

    def do_GET(self) -> None:
        self._answer(b"{}")

    def do_POST(self) -> None:
        self.server.posted.append(self.rfile.read(int(self.headers["Content-Length"])))
        self._answer(b"{}")

    do_PATCH = do_POST  # noqa: N815 - the library's way to name methods

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Tests read `posted`."""


def forget() -> None:
    """LangSmith's library reads the environment once, and keeps one client."""
    langsmith.utils.get_env_var.cache_clear()
    langsmith.utils.get_tracer_project.cache_clear()
    if langsmith.run_trees._CLIENT is not None:
        langsmith.run_trees._CLIENT.cleanup()
    langsmith.run_trees._CLIENT = None


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[LangSmith]:
    """LangSmith, named and switched on in the environment."""
    with LangSmith() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        for name in [name for name in os.environ if name.startswith(("LANGSMITH", "LANGCHAIN"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("LANGSMITH_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("LANGSMITH_API_KEY", "lsv2-of-a-test")
        monkeypatch.setenv("LANGSMITH_TRACING", "true")
        forget()
        yield server
        forget()
        server.shutdown()
        thread.join()


@pytest.fixture
def home(editloupe: Run, tmp_path: Path) -> Path:
    """A folder with edits, replies, a run and one that failed; their files of options ask for traces."""
    draw_edits(tmp_path / "edits", 2)
    replies = {"replies": [LOOK, final("Wrong Action")], "broken": [{"error": "rejected"}]}
    for name, lines in replies.items():
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    words = ("judge", "edits", "--criteria", "if", "--limit", "1", "--out")
    assert editloupe(*words, "run")[0] == 0
    assert editloupe(*words, "failed", "--backend", "scripted/broken.jsonl")[0] == 1
    for config in tmp_path.glob("*/config.yaml"):
        config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "langsmith": True}))
    return tmp_path


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_sends_traces_only_if_it_is_asked_to(editloupe: Run, server: LangSmith, home: Path, name: str):
    told = editloupe(*COMMANDS[name])[2]
    assert (server.asked(), "LangSmith" in told) == (0, False)
    for folder in ("new", "runs"):
        if (home / folder).exists():
            (home / folder).rename(home / f"before-{folder}")
    told = editloupe(*COMMANDS[name], "--langsmith")[2]
    # Before the program ends, all is sent.
    assert len(server.posted) > 0
    assert server.asked() == len(server.posted)
    assert " ".join(told.split()).count(f"Traces go to LangSmith at http://127.0.0.1:{server.server_address[1]}") == 1
    assert not any("langsmith" in path.read_text() for path in home.glob("new/config.yaml"))


@pytest.mark.parametrize(
    "variable",
    [
        "LANGSMITH_TRACING_V2",
        *(pytest.param(name, marks=pytest.mark.slow) for name in ("LANGCHAIN_TRACING_V2", "LANGCHAIN_TRACING")),
    ],
)
def test_no_variable_of_the_environment_is_an_order(
    editloupe: Run, server: LangSmith, home: Path, monkeypatch: pytest.MonkeyPatch, variable: str
):
    monkeypatch.delenv("LANGSMITH_TRACING")
    monkeypatch.setenv(variable, "true")
    forget()
    assert editloupe(*COMMANDS["judge by rules"])[0] == 0
    assert server.asked() == 0
    monkeypatch.delenv(variable)
    forget()
    # Asked for, it needs no switch.
    assert editloupe("judge", "edits", "--criteria", "if", "--out", "more", "--langsmith")[0] == 0
    assert server.asked() > 0


def test_without_a_key_the_wish_is_refused(editloupe: Run, server: LangSmith, home: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("LANGSMITH_ENDPOINT", "LANGSMITH_API_KEY"):
        monkeypatch.delenv(name)
    code, _, told = editloupe(*COMMANDS["judge"], "--langsmith")
    assert (code, "set environment variable LANGSMITH_API_KEY" in told, (home / "new").exists()) == (2, True, False)


def test_in_python_too(server: LangSmith, tmp_path: Path):
    edits = draw_edits(tmp_path / "edits", 3)
    pairs = [(edits / "source" / f"s0{i}.png", edits / "edited" / f"s0{i}.png") for i in range(3)]
    samples = [load_sample(*pair, "Make it red.", id=str(i)) for i, pair in enumerate(pairs)]
    Judge("baseline").judge_all(samples)
    assert server.asked() == 0
    with Judge("baseline", langsmith=True) as judge:
        judge.judge_all(samples)
    assert len(server.posted) > 0


def test_a_graph_that_calls_a_judge_does_not_trace_what_the_judge_does(server: LangSmith, tmp_path: Path):
    from langchain_core.runnables import RunnableLambda

    edits = draw_edits(tmp_path / "edits", 1)
    sample = load_sample(edits / "source" / "s00.png", edits / "edited" / "s00.png", "Make it red.")
    judge = Judge("baseline", criteria="if")
    RunnableLambda(lambda _: judge.judge(sample)[0].status).invoke("go")
    assert flush()
    sent = b"".join(server.posted)
    assert b"RunnableLambda" in sent, "the caller's own trace is the caller's"
    assert b"LangGraph" not in sent


def test_in_langgraph_studio_the_server_decides(server: LangSmith, tmp_path: Path):
    edits = draw_edits(tmp_path / "edits", 1)
    question = {"source": str(edits / "source/s00.png"), "edited": str(edits / "edited/s00.png"), "instruction": "Red."}
    assert graph().invoke(question)["status"] == "ok"
    assert server.asked() > 0


def test_a_chat_model_of_langchain_sends_no_trace_outside_the_loop_either(
    editloupe: Run, server: LangSmith, monkeypatch: pytest.MonkeyPatch
):
    pytest.importorskip("langchain_openai")
    from tests.backends.openai_server import OpenAIServer, says

    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-a-test")
    with OpenAIServer(says("red"), model="m") as model:
        editloupe("backends", "probe", f"langchain/openai:m?base_url={model.url}")
    assert model.seen
    assert server.asked() == 0


def test_a_program_that_ends_has_sent_its_traces(home: Path, server: LangSmith):
    command = [sys.executable, "-m", "editloupe", *COMMANDS["judge by rules"], "--langsmith"]
    subprocess.run(command, cwd=home, check=True, capture_output=True, timeout=120)
    (finding,) = RunStore.read(home / "new").current()
    assert str(finding.label).encode() in b"".join(server.posted)


def test_a_langsmith_that_does_not_answer_holds_no_program(
    editloupe: Run, server: LangSmith, home: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(traces, "FLUSH_S", 0.2)
    monkeypatch.setattr(tracers, "wait_for_all_tracers", threading.Event().wait)
    code, _, told = editloupe("judge", "edits", "--limit", "1", "--out", "new", "--langsmith")
    assert (code, "LangSmith did not take all traces." in told) == (0, True)
