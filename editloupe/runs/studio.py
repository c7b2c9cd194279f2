"""The factory that langgraph.json names: LangGraph Studio opens the judge with files and URIs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from editloupe.agent.state import Context
from editloupe.agent.studio import Question, Wiring, studio_graph
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.samples import load_sample
from editloupe.errors import ConfigError
from editloupe.runs.recorder import TraceRecorder
from editloupe.runs.schedule import Schedule
from editloupe.runs.setup import open_setup
from editloupe.traces.record import TraceWriter
from editloupe.values import View

if TYPE_CHECKING:
    from editloupe.agent.graph import StudioGraph


def graph() -> StudioGraph:
    """Return the judge as a compiled graph. Input: `agent.studio.Question`. Context: `agent.studio.Wiring`."""
    return studio_graph(_open)


def _open(question: Question, wiring: Wiring) -> tuple[Context, Mapping[str, View]]:
    missing = [name for name in ("source", "edited", "instruction") if not question.get(name)]
    if missing:
        raise ConfigError(f"the input lacks {', '.join(missing)}; expected two image paths and an instruction")
    criterion = question.get("criterion") or "instruction_following"
    options = {"mode": wiring.mode, "rubric": wiring.rubric, "criteria": [criterion]}
    judge = JudgeConfig(backend=wiring.backend)
    setup = open_setup(RunConfig.make(judge=judge, option=options, max_turns=wiring.max_turns))
    sample = load_sample(question["source"], question["edited"], question["instruction"])
    place = Schedule(setup.protocol, [sample], setup.repeats, lambda task, repeat: None).next()
    task = None if place is None else place.task
    if task is None or task.kind != "ask":
        raise ConfigError(f"protocol {setup.protocol.name!r} asks nothing about this edit")
    images = ImageStore()
    for recipe in task.views:
        images.array(recipe.origin)
    context = Context(
        backend=setup.backend,
        judge=setup.judge,
        toolbox=setup.toolbox,
        images=images,
        recorder=TraceRecorder.resume(TraceWriter(None)),
        task=task,
    )
    return context, {recipe.alias: View.whole(recipe.origin) for recipe in task.views}
