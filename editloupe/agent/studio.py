"""The loop as a graph with plain inputs, for LangGraph Studio: files and URIs in, the verdict out.

Whoever introduces agent and protocol hands in the opener; the loop itself is the same graph, called as a subgraph.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict

from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime

from editloupe.agent.judge import run_loop
from editloupe.agent.state import Context
from editloupe.values import Json, View


class Question(TypedDict, total=False):
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
    mode: str = "tool"
    rubric: str = "dlebench"
    max_turns: int = 6


Opener: TypeAlias = Callable[[Question, Wiring], tuple[Context, Mapping[str, View]]]


def studio_graph(open_question: Opener) -> CompiledStateGraph[Question, Wiring, Question, Question]:
    """A graph of one node, `judge`, which builds its dependencies from URIs and runs the loop."""

    def judge(state: Question, runtime: Runtime[Wiring]) -> dict[str, Any]:
        context, views = open_question(state, runtime.context or Wiring())
        loop = run_loop(context, views)
        outcome: Mapping[str, Json] = loop["outcome"] or {}
        answer = outcome.get("answer")
        return {
            "status": outcome.get("status"),
            "label": answer.get("name") if isinstance(answer, Mapping) else None,
            "reason": outcome.get("reason"),
            "turns": loop["turns"],
        }

    graph = StateGraph(Question, context_schema=Wiring)
    graph.add_node("judge", judge)
    graph.add_edge(START, "judge")
    graph.add_edge("judge", END)
    return graph.compile()
