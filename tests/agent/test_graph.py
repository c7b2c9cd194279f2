"""The compiled LangGraph graph runs every live task, every replay and every fork."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_config

from editloupe import Judge
from editloupe.agent import graph, nodes
from editloupe.agent.judge import initial_state
from editloupe.agent.recorder import TraceRecorder
from editloupe.agent.state import Context
from editloupe.data.images import ImageStore
from editloupe.runs.fork import Changes, fork
from editloupe.runs.recording import Live
from editloupe.runs.rerun import Replay
from editloupe.runs.store import RunStore
from editloupe.testing import ScriptedLMM
from editloupe.traces.record import TraceWriter
from editloupe.values import Sample, View
from tests.conftest import LOOK, final, pixels
from tests.setups import open_with

SCRIPT = [LOOK, "I wonder.", final("Wrong Action")]
"""A call of a tool, a reply that needs a reminder, an answer: each node runs."""

ONCE_EACH = {"think": 3, "act": 1, "remind": 1, "conclude": 1}


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
    assert (finding.label, executed) == ("Wrong Action", ONCE_EACH)

    executed.clear()
    (replayed,) = Replay(folder=run, live=Live()).tasks(RunStore.read(run).current())
    assert (replayed.verdict, executed) == ("same", ONCE_EACH)

    executed.clear()
    forked = fork(
        run,
        str(finding.trace),
        at=1,
        backend=ScriptedLMM([LOOK, final("Over Modification")]),
        toolbox=open_with().toolbox,
        changes=Changes(instruction="Look again."),
    )
    # The kept step once more (think, act), then what is new (think, conclude).
    assert (forked.finding.label, executed) == ("Over Modification", {"think": 2, "act": 1, "conclude": 1})


def test_the_graph_takes_any_langgraph_checkpointer(sample: Sample, store: ImageStore):
    setup = open_with(backend=ScriptedLMM([LOOK, final("Wrong Action")]), criteria=("if",))
    (task,) = setup.protocol.plan([sample], {})
    context = Context(
        backend=setup.backend,
        judge=setup.judge,
        toolbox=setup.toolbox,
        images=store,
        recorder=TraceRecorder.resume(TraceWriter(None)),
        task=task,
    )
    kept = graph.build_graph(InMemorySaver())
    config = {"configurable": {"thread_id": "1"}}
    views = {recipe.alias: View.whole(recipe.origin) for recipe in task.views}
    state = kept.invoke(initial_state(context, views), config, context=context)
    assert state["outcome"]["answer"]["name"] == "Wrong Action"
    # Small JSON only: no pixel and no base64 in any checkpoint.
    assert all(len(json.dumps(snapshot.values)) < 20_000 for snapshot in kept.get_state_history(config))
