"""The judge as a graph of one node, for LangGraph Studio: files and URIs in, the verdict out. langgraph.json names it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypedDict

from editloupe.agent.judge import run_loop
from editloupe.agent.recorder import TraceRecorder
from editloupe.agent.state import Context
from editloupe.backends.base import parse_uri
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.samples import load_sample
from editloupe.errors import ConfigError
from editloupe.runs.schedule import Schedule
from editloupe.runs.setup import open_setup
from editloupe.runs.trust import foreign
from editloupe.traces.record import TraceWriter
from editloupe.values import Json, View

if TYPE_CHECKING:
    from editloupe.agent.graph import StudioGraph


class StudioInput(TypedDict, total=False):
    """Inputs: two image paths, an instruction, a criterion (id or short name). Outputs: `status`, `label`, `reason`."""

    source: str
    edited: str
    instruction: str
    criterion: str
    status: str
    label: str | None
    reason: str
    turns: int


@dataclass(frozen=True, kw_only=True)
class Wiring:
    """Runtime context by URIs: swap `backend` to swap the backbone."""

    backend: str = "baseline"
    """A provider and a model. Addresses and keys come from the server's own environment (OPENAI_BASE_URL and its like)."""
    mode: str = "tool"
    rubric: str = "dlebench"
    max_turns: int = 6


def graph() -> StudioGraph:
    """Return the judge as a compiled graph. Input: `Question`. Context: `Wiring`."""
    from editloupe.agent.graph import build_single_node

    return build_single_node("judge", _judge, state=StudioInput, context=Wiring)


def _judge(question: StudioInput, wiring: Wiring | None) -> dict[str, Any]:
    wiring = wiring or Wiring()
    missing = [name for name in ("source", "edited", "instruction") if not question.get(name)]
    if missing:
        raise ConfigError(f"the input lacks {', '.join(missing)}; expected two image paths and an instruction")
    if what := foreign(parse_uri(wiring.backend)):
        # Whoever reaches the server writes the context; the keys in its environment are not theirs.
        raise ConfigError(
            f"backend {wiring.backend}: the context names {what}, which only the server's environment may; set "
            "OPENAI_BASE_URL or the provider's own variables there"
        )
    criterion = question.get("criterion") or "instruction_following"
    options = {"mode": wiring.mode, "rubric": wiring.rubric, "criteria": [criterion]}
    judge = JudgeConfig(backend=wiring.backend)
    setup = open_setup(RunConfig.make(judge=judge, option=options, max_turns=wiring.max_turns))
    sample = load_sample(question["source"], question["edited"], question["instruction"])
    place = Schedule(setup.protocol, [sample], setup.repeats, lambda task, repeat: None).next()
    task = None if place is None else place.task
    if task is None or task.kind != "ask":
        raise ConfigError(f"protocol {setup.protocol.name!r} asks nothing about this edit")
    context = Context(
        backend=setup.backend,
        judge=setup.judge,
        toolbox=setup.toolbox,
        images=ImageStore(),
        recorder=TraceRecorder.resume(TraceWriter(None)),
        task=task,
        # LangGraph's server has its own settings.
        langsmith=None,
    )
    for recipe in task.views:
        context.images.array(recipe.origin)
    loop = run_loop(context, {recipe.alias: View.whole(recipe.origin) for recipe in task.views})
    outcome: Mapping[str, Json] = loop["outcome"] or {}
    answer = outcome.get("answer")
    return {
        "status": outcome.get("status"),
        "label": answer.get("name") if isinstance(answer, Mapping) else None,
        "reason": outcome.get("reason"),
        "turns": loop["turns"],
    }
