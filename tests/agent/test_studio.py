"""The graph that langgraph.json names: as LangGraph draws, describes and runs it, and behind LangGraph's own server."""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.config import JudgeConfig
from editloupe.runs import studio
from editloupe.runs.studio import WrongInput, graph
from tests import clients
from tests.conftest import LOOK, draw_edits, final

NODES = {"judge:think", "judge:act", "judge:remind", "judge:conclude"}


@pytest.fixture
def question(tmp_path: Path) -> dict[str, str]:
    edits = draw_edits(tmp_path / "edits", 2)
    return {
        "source": str(edits / "source/s01.png"),
        "edited": str(edits / "edited/s01.png"),
        "instruction": "Make square 1 red.",
    }


def scripted(monkeypatch: pytest.MonkeyPatch, script: Callable[[Request], str]) -> None:
    """Let a script judge, whatever backend the context names."""
    lmm = ScriptedLMM(script)
    monkeypatch.setattr(studio, "JudgeConfig", lambda backend: JudgeConfig(backend=lmm))


def test_input_and_output_have_schemas():
    made = graph()
    asked, answered = made.get_input_jsonschema(), made.get_output_jsonschema()
    assert asked["required"] == ["source", "edited", "instruction"]
    assert set(asked["properties"]) == {"source", "edited", "instruction", "criterion"}
    assert set(answered["properties"]) == {"status", "label", "reason", "turns"}
    context = made.get_context_jsonschema()
    assert context is not None and set(context["properties"]) == {"backend", "mode", "rubric", "max_turns"}


def test_the_nodes_of_the_loop_are_drawn_with_where_they_lead():
    drawn = graph().get_graph(xray=True)
    assert set(drawn.nodes) >= NODES
    edges = {(edge.source, edge.target) for edge in drawn.edges}
    assert {("judge:think", "judge:act"), ("judge:act", "judge:think"), ("judge:conclude", "judge:remind")} <= edges


def test_a_stream_names_each_node_and_ends_in_the_verdict(question: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    def script(request: Request) -> str:
        return LOOK if len(request.messages) == 1 else final("Flawless Execution", "Crop 1 shows it.")

    scripted(monkeypatch, script)
    steps = [next(iter(step)) for _, step in graph().stream(question, subgraphs=True)]
    assert steps == ["think", "act", "think", "conclude", "judge"]
    assert graph().invoke(question) == {
        "status": "ok",
        "label": "Flawless Execution",
        "reason": "Crop 1 shows it.",
        "turns": 1,
    }


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"source": None}, "the input's 'source': expected a text, found NoneType"),
        ({"edited": 7}, "the input's 'edited': expected a text, found int"),
        ({"source": "/nowhere.png"}, "/nowhere.png: no such file"),
        ({"instruction": " "}, "the instruction is empty"),
        ({"criterion": "beauty"}, "has no criterion 'beauty'"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_wrong_input_is_refused_with_its_reason(question: dict[str, str], change: dict[str, Any], told: str):
    with pytest.raises(WrongInput, match=told):
        graph().invoke(question | change)


def test_a_loop_that_was_interrupted_says_that_it_cannot_be_resumed(
    question: dict[str, str], monkeypatch: pytest.MonkeyPatch
):
    asked = []

    def script(request: Request) -> str:
        asked.append(len(request.messages))
        if len(asked) == 2:
            raise KeyboardInterrupt
        return LOOK if len(request.messages) == 1 else final("Flawless Execution")

    scripted(monkeypatch, script)
    made, thread = graph(), {"configurable": {"thread_id": "1"}}
    made.checkpointer = InMemorySaver()
    with pytest.raises(KeyboardInterrupt):
        made.invoke(question, thread)
    with pytest.raises(WrongInput, match="was interrupted"):
        made.invoke(None, thread)
    assert made.invoke(question, thread)["label"] == "Flawless Execution", "asked again"


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """LangGraph's own server, as `langgraph dev` starts it, with the repository's langgraph.json. Yields its address."""
    program = clients.client("langgraph", "langgraph")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = json.loads((clients.ROOT / "langgraph.json").read_text(encoding="utf-8"))
    config["graphs"] = {name: str(clients.ROOT / path) for name, path in config["graphs"].items()}
    # In a folder of its own, since the server writes beside the file.
    (folder / "langgraph.json").write_text(json.dumps(config | {"dependencies": [str(clients.ROOT)]}), encoding="utf-8")
    words = ["dev", "--no-browser", "--no-reload", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([str(program), *words], cwd=folder, stdout=log, stderr=log)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def ask(address: str, body: Any = None, *, patience_s: float = 0) -> Any:
    """The answer to one request, which is made again until the server is there."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address, data=data, headers={"Content-Type": "application/json"})
    until = time.monotonic() + patience_s
    while True:
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.5)


@pytest.mark.clients
def test_langgraphs_server_describes_draws_and_judges(tmp_path: Path, question: dict[str, str]):
    with served(tmp_path) as url:
        (assistant,) = ask(f"{url}/assistants/search", {}, patience_s=90)
        at = f"{url}/assistants/{assistant['assistant_id']}"
        schemas = ask(f"{at}/schemas")
        assert schemas["input_schema"]["required"] == ["source", "edited", "instruction"]
        assert schemas["output_schema"] and schemas["state_schema"] and schemas["context_schema"]
        assert {node["id"] for node in ask(f"{at}/graph?xray=true")["nodes"]} >= NODES
        wait = {"assistant_id": assistant["assistant_id"]}
        verdict = ask(f"{url}/runs/wait", wait | {"input": question})
        assert verdict["status"] == "ok" and verdict["label"], verdict
        refused = ask(f"{url}/runs/wait", wait | {"input": question | {"source": "/nowhere.png"}})
        assert "/nowhere.png: no such file" in refused["__error__"]["message"]
        refused = ask(f"{url}/runs/wait", wait | {"input": question, "context": {"backend": "nope/x"}})
        assert "unknown backend 'nope'" in refused["__error__"]["message"]
