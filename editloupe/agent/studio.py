"""The judge as a graph with plain inputs, for LangGraph Studio: files and URIs in, the verdict out.

The caller gives the function that opens a question, since the agent does not know protocols.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypedDict

from editloupe.agent.judge import run_loop
from editloupe.agent.state import Context
from editloupe.values import Json, View

if TYPE_CHECKING:
    from editloupe.agent.graph import StudioGraph


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


def studio_graph(open_question: Opener) -> StudioGraph:
    """Build a graph of one node, `judge`, which opens its dependencies from URIs and runs the loop."""
    from editloupe.agent.graph import build_single_node

    def judge(state: Question, wiring: Wiring | None) -> dict[str, Any]:
        context, views = open_question(state, wiring or Wiring())
        loop = run_loop(context, views)
        outcome: Mapping[str, Json] = loop["outcome"] or {}
        answer = outcome.get("answer")
        return {
            "status": outcome.get("status"),
            "label": answer.get("name") if isinstance(answer, Mapping) else None,
            "reason": outcome.get("reason"),
            "turns": loop["turns"],
        }

    return build_single_node("judge", judge, state=Question, context=Wiring)
