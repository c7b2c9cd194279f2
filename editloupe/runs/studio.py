"""The factory that langgraph.json names: LangGraph Studio opens the judge with files and URIs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from editloupe.agent.state import Context
from editloupe.agent.studio import Question, Wiring, studio_graph
from editloupe.data.images import ImageStore
from editloupe.data.samples import load_sample
from editloupe.errors import ConfigError
from editloupe.protocols.dlebench import Mode
from editloupe.records import Budget
from editloupe.runs.replay import TraceTape
from editloupe.runs.spec import Settings, open_bench
from editloupe.traces.record import TraceWriter
from editloupe.values import View

if TYPE_CHECKING:
    from langgraph.graph.state import CompiledStateGraph


def graph() -> CompiledStateGraph[Question, Wiring, Any, Any]:
    """The judge as a compiled graph. Input: source, edited, instruction, criterion. Context: backend, mode, rubric, ..."""
    return studio_graph(_open)


def _open(question: Question, wiring: Wiring) -> tuple[Context, Mapping[str, View]]:
    missing = [name for name in ("source", "edited", "instruction") if not question.get(name)]
    if missing:
        raise ConfigError(f"the input lacks {', '.join(missing)}; expected two image paths and an instruction")
    bench = open_bench(
        Settings(
            backend=wiring.backend,
            mode=cast(Mode, wiring.mode),
            rubric=wiring.rubric,
            criteria=(question.get("criterion") or "instruction_following",),
            budget=Budget(max_turns=wiring.max_turns),
        )
    )
    sample = load_sample(question["source"], question["edited"], question["instruction"])
    task = bench.protocol.plan([sample], {})[0]
    images = ImageStore()
    for recipe in task.views:
        images.array(recipe.origin)
    context = Context(
        backend=bench.backend,
        toolbox=bench.toolbox,
        images=images,
        tape=TraceTape(TraceWriter(None)),
        task=task,
        clock=time.monotonic,
        started=time.monotonic(),
    )
    return context, {recipe.alias: View.whole(recipe.origin) for recipe in task.views}
