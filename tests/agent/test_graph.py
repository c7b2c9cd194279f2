"""The compiled LangGraph graph runs every live task, every replay and every fork; the graph that langgraph.json names is
drawn, described and run by LangGraph, also behind its own server."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config

from editloupe import Judge
from editloupe.agent import graph, nodes
from editloupe.agent.judge import initial_state
from editloupe.agent.recorder import TraceRecorder
from editloupe.agent.state import Context
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.config import JudgeConfig
from editloupe.data.images import ImageStore
from editloupe.runs import studio
from editloupe.runs.recording import Live
from editloupe.runs.replay import Replay, fork
from editloupe.runs.store import RunStore
from editloupe.runs.studio import WrongInput
from editloupe.traces.record import TraceWriter
from editloupe.values import Sample, View
from tests import clients
from tests.conftest import ANSWERED, LOOK, final, pixels
from tests.setups import open_with

SCRIPT = [LOOK, "I wonder.", final("Wrong Action")]
"""A call of a tool, a reply that needs a reminder, an answer: each node runs."""

STEPS = {"think": 3, "act": 1, "remind": 1, "conclude": 2}


@pytest.fixture
def executed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Counter[str]]:
    """Count the nodes by the name that LangGraph gives the step which it executes."""
    counts: Counter[str] = Counter()

    def counted(node: nodes.Node) -> nodes.Node:
        def step(state, context):  # type: ignore[no-untyped-def]
            counts[get_config()["metadata"]["langgraph_node"]] += 1
            return node(state, context)

        return step

    monkeypatch.setattr(graph, "NODES", {name: counted(node) for name, node in nodes.NODES.items()})
    graph.shared_graph.cache_clear()
    yield counts
    graph.shared_graph.cache_clear()


def test_live_replay_and_fork_run_the_compiled_graph(executed: Counter[str], tmp_path: Path):
    sample = Sample.from_images(*pixels(0, spots=3), "Change the colors.")
    run = tmp_path / "run"
    with Judge(ScriptedLMM(SCRIPT), criteria="if", out=run) as judge:
        (finding,) = judge.judge(sample)
    assert (finding.label, executed) == ("Wrong Action", STEPS)

    executed.clear()
    (replayed,) = Replay(folder=run, live=Live()).tasks(RunStore.read(run).current())
    assert (replayed.verdict, executed) == ("same", STEPS)

    executed.clear()
    lmm, box = ScriptedLMM([LOOK, final("Over Modification")]), open_with().toolbox
    forked = fork(run, str(finding.trace), at=1, backend=lmm, toolbox=box, instruction="Look again.")
    # The kept step once more (think, act), then what is new (think, conclude).
    assert (forked.finding.label, executed) == ("Over Modification", {"think": 2, "act": 1, "conclude": 1})


def test_the_graph_takes_any_langgraph_checkpointer(sample: Sample, store: ImageStore):
    setup = open_with(backend=ScriptedLMM([LOOK, final("Wrong Action")]), criteria=("if",))
    (task,) = setup.protocol.plan([sample], {})
    parts = {"backend": setup.backend, "judge": setup.judge, "toolbox": setup.toolbox, "images": store}
    context = Context(**parts, recorder=TraceRecorder.resume(TraceWriter(None)), task=task)  # type: ignore[arg-type]
    kept = graph.build_graph(InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    views = {recipe.alias: View.whole(recipe.origin) for recipe in task.views}
    state = kept.invoke(initial_state(context, views), config, context=context)
    assert state["outcome"]["answer"]["name"] == "Wrong Action"
    # Small JSON only: no pixel and no base64 in any checkpoint.
    assert all(len(json.dumps(snapshot.values)) < 20_000 for snapshot in kept.get_state_history(config))


LANGGRAPH = json.loads((clients.ROOT / "langgraph.json").read_text(encoding="utf-8"))
NODES = {"judge:think", "judge:act", "judge:remind", "judge:conclude"}


@pytest.fixture
def question(edits: Callable[..., Path]) -> dict[str, str]:
    folder = edits(2)
    paths = {role: str(folder / role / "s01.png") for role in ("source", "edited")}
    return {**paths, "instruction": ANSWERED.format(1)}


def scripted(monkeypatch: pytest.MonkeyPatch, script: Callable[[Request], str]) -> None:
    """Let a script judge, whatever backend the context names."""
    lmm = ScriptedLMM(script)
    monkeypatch.setattr(studio, "JudgeConfig", lambda backend: JudgeConfig(backend=lmm))


def test_langgraph_json_names_a_graph_with_schemas_whose_nodes_are_drawn_with_where_they_lead():
    file, _, name = LANGGRAPH["graphs"]["judge"].partition(":")
    assert (clients.ROOT / file).samefile(studio.__file__)
    made = getattr(studio, name)()
    asked, answered = made.get_input_jsonschema(), made.get_output_jsonschema()
    assert asked["required"] == ["source", "edited", "instruction"]
    assert set(asked["properties"]) == {"source", "edited", "instruction", "criterion"}
    assert set(answered["properties"]) == {"status", "label", "reason", "turns"}
    assert set(made.get_context_jsonschema()["properties"]) == {"backend", "mode", "rubric", "max_turns"}
    drawn = made.get_graph(xray=True)
    assert set(drawn.nodes) >= NODES
    edges = {(edge.source, edge.target) for edge in drawn.edges}
    assert {("judge:think", "judge:act"), ("judge:act", "judge:think"), ("judge:conclude", "judge:remind")} <= edges


def test_a_stream_names_each_node_and_ends_in_the_verdict(question: dict[str, str], monkeypatch: pytest.MonkeyPatch):
    def script(request: Request) -> str:
        return LOOK if len(request.messages) == 1 else final("Flawless Execution", "Crop 1 shows it.")

    scripted(monkeypatch, script)
    steps = [next(iter(step)) for _, step in studio.graph().stream(question, subgraphs=True)]
    assert steps == ["think", "act", "think", "conclude", "judge"]
    verdict = {"status": "ok", "label": "Flawless Execution", "reason": "Crop 1 shows it.", "turns": 1}
    assert studio.graph().invoke(question) == verdict


def test_a_wrong_input_is_refused_with_its_reason(question: dict[str, str]):
    changes: tuple[tuple[dict[str, Any], str], ...] = (
        ({"source": None}, "the input's 'source': expected a text, found NoneType"),
        ({"edited": 7}, "the input's 'edited': expected a text, found int"),
        ({"source": "/nowhere.png"}, "/nowhere.png: no such file"),
        ({"instruction": " "}, "the instruction is empty"),
        ({"criterion": "beauty"}, "has no criterion 'beauty'"),
    )
    for change, told in changes:
        with pytest.raises(WrongInput, match=told):
            studio.graph().invoke(question | change)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """LangGraph's own server, as `langgraph dev` starts it, with the repository's langgraph.json. Yields its address."""
    program = clients.client("langgraph", "langgraph")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    graphs = {name: str(clients.ROOT / path) for name, path in LANGGRAPH["graphs"].items()}
    # In a folder of its own, since the server writes beside the file.
    here = LANGGRAPH | {"graphs": graphs, "dependencies": [str(clients.ROOT)]}
    (folder / "langgraph.json").write_text(json.dumps(here), encoding="utf-8")
    words = ["dev", "--no-browser", "--no-reload", "--port", str(port)]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            [str(program), *words], cwd=folder, stdout=log, stderr=log, env={**os.environ, "EDITLOUPE_READER": "off"}
        )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=30)


def ask(address: str, body: Any = None, *, patience_s: float = 0) -> Any:
    """The answer to one request, which is made again until the server is there."""
    until = time.monotonic() + patience_s
    while True:
        try:
            return (
                httpx.request("GET" if body is None else "POST", address, json=body, timeout=60).raise_for_status().json()
            )
        except httpx.HTTPError:
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
