"""LangGraph and LangChain send traces to LangSmith only if the user asks editloupe for it, not by the environment alone."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import langsmith.run_trees
import langsmith.utils
import pytest
import yaml
from langchain_core.runnables import RunnableLambda
from langchain_core.tracers import langchain as tracers

from editloupe import Judge, load_sample
from editloupe.backends import langsmith as traces
from editloupe.runs.studio import graph
from tests.backends.loopback import LoopbackHandler, LoopbackServer
from tests.conftest import draw_edits

Run = Callable[..., tuple[int, str, str]]


class LangSmith(LoopbackHandler):
    """Takes whatever is posted, and keeps it."""

    def do_GET(self) -> None:  # noqa: N802 - the standard library names it
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        self.house.posted += [body] if body else []
        self.answer(200, b"{}")

    do_POST = do_PATCH = do_GET  # noqa: N815


class Server(LoopbackServer):
    handler = LangSmith

    def __init__(self) -> None:
        super().__init__()
        self.posted: list[bytes] = []


def forget() -> None:
    """LangSmith's library reads the environment once, and keeps one client."""
    langsmith.utils.get_env_var.cache_clear()
    langsmith.utils.get_tracer_project.cache_clear()
    if langsmith.run_trees._CLIENT is not None:
        langsmith.run_trees._CLIENT.cleanup()
    langsmith.run_trees._CLIENT = None


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What a LangSmith gets that is named and switched on in the environment."""
    with Server() as server:
        for name in [name for name in os.environ if name.startswith(("LANGSMITH", "LANGCHAIN"))]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("LANGSMITH_ENDPOINT", server.address)
        monkeypatch.setenv("LANGSMITH_API_KEY", "lsv2-of-a-test")
        monkeypatch.setenv("LANGSMITH_TRACING", "true")
        forget()
        yield server.posted
        forget()


def test_a_command_sends_traces_only_if_it_is_asked_to(
    editloupe: Run, posted: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    draw_edits(tmp_path / "edits", 1)
    # LangChain fails where a variable of old is set.
    for number, name in enumerate(("LANGSMITH_TRACING", "LANGCHAIN_TRACING", "LANGCHAIN_HANDLER")):
        with monkeypatch.context() as patch:
            patch.setenv(name, "true")
            assert editloupe("judge", "edits", "--criteria", "if", "--out", f"run-{number}")[0] == 0
        assert '"status": "ok"' in (tmp_path / f"run-{number}" / "findings.jsonl").read_text()
        assert traces.flush() and posted == [], name
    config = tmp_path / "run-0" / "config.yaml"
    config.write_text(yaml.safe_dump({**yaml.safe_load(config.read_text()), "langsmith": True}))
    judge = ("judge", "--config", config, "--out", "new")
    commands = [judge, ("replay", "run-0", "s00", "--at", "0"), ("replay", "run-0", "--model", "live")]
    for command in commands:
        # Neither the environment nor a file of options is an order.
        editloupe(*command)
        assert traces.flush() and posted == [], command
    (tmp_path / "new").rename(tmp_path / "before")
    told = editloupe(*judge, "--set", "langsmith=true")[2]
    assert posted, "before it ends, it has sent all"
    assert f"Traces go to LangSmith at {os.environ['LANGSMITH_ENDPOINT']}: " in " ".join(told.split())


def test_without_a_key_it_is_refused_and_a_server_that_does_not_answer_holds_no_program(
    editloupe: Run, posted: list[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    draw_edits(tmp_path / "edits", 1)
    monkeypatch.setattr(traces.flush, "__defaults__", (0.2,))
    with monkeypatch.context() as stuck:
        stuck.setattr(tracers, "wait_for_all_tracers", threading.Event().wait)
        assert "LangSmith did not take all traces." in editloupe("judge", "edits", "--set", "langsmith=true")[2]
    monkeypatch.delenv("LANGSMITH_ENDPOINT")
    monkeypatch.delenv("LANGSMITH_API_KEY")
    forget()
    code, _, told = editloupe("judge", "edits", "--set", "langsmith=true")
    assert (code, "set environment variable LANGSMITH_API_KEY" in told) == (2, True)


def test_in_python_the_judge_decides_and_in_studio_its_server(posted: list[bytes], tmp_path: Path):
    edits = draw_edits(tmp_path / "edits", 1)
    source, edited = edits / "source" / "s00.png", edits / "edited" / "s00.png"
    sample, judge = load_sample(source, edited, "Make it red."), Judge("baseline", criteria="if")
    judge.judge(sample)
    assert traces.flush() and posted == []
    RunnableLambda(lambda _: judge.judge(sample)[0].status).invoke("go")
    sent = b"".join(posted) if traces.flush() else b""
    assert (b"RunnableLambda" in sent, b"LangGraph" in sent) == (True, False), "the caller's trace is its own"
    Judge("baseline", langsmith=True).judge(sample)
    assert traces.flush() and b"LangGraph" in b"".join(posted)
    posted.clear()
    graph().invoke({"source": str(source), "edited": str(edited), "instruction": "Red."})
    assert traces.flush() and posted
