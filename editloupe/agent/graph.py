"""The loop of DLEBench Eq. 2 as a compiled LangGraph graph. It runs every live task, every replay and every fork."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, Protocol, TypeAlias, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from editloupe.agent.nodes import NODES, Node
from editloupe.agent.state import Context, LoopState
from editloupe.backends.langsmith import tracing

Loop: TypeAlias = "CompiledStateGraph[LoopState, Context, LoopState, LoopState]"

RECURSION_LIMIT: Final = 1000
"""Steps of the graph; the task's own budget ends a loop long before."""

_DESTINATIONS: Final[Mapping[str, tuple[str, ...]]] = {
    "think": ("act", "conclude", "remind", END),
    "act": ("think", END),
    "remind": ("think", END),
    "conclude": ("remind", END),
}
"""Node → where it may lead, for drawings: the nodes themselves name their successor."""


def build_graph(checkpointer: BaseCheckpointSaver[str] | None = None) -> Loop:
    """Build the loop T_i, {A_i | R} ~ E(· | S_I, Instruction, E_I, H_{i-1}): it runs until R or a budget ends it.

    checkpointer: any of LangGraph's; the state is small JSON. The trace stays the record.
    """
    graph = StateGraph(LoopState, context_schema=Context)
    for name, node in NODES.items():
        graph.add_node(name, _command(node), destinations=_DESTINATIONS[name])
    graph.add_edge(START, "think")
    return graph.compile(checkpointer=checkpointer)


@cache
def shared_graph() -> Loop:
    """Return the compiled graph that all tasks of this process share. It holds no state between them."""
    return build_graph()


def run_graph(
    state: LoopState,
    context: Context,
    *,
    until: Callable[[LoopState], bool] = lambda _: False,
    graph: Loop | None = None,
) -> LoopState:
    """Run the loop from a state whose next node is `think`, and return its last state.

    until: tested before each node; where it holds, the loop stops there and its state is returned.
    graph: None for the shared one.
    Raises Interrupted, ReplayMiss, and ImageError for an input that cannot be decoded.
    """
    # A graph that calls us traces what it does itself. Without the empty list its callbacks would see our steps.
    silent: dict[str, Any] = {"callbacks": []} if context.langsmith is False else {}
    steps = (graph or shared_graph()).stream(
        state, cast(Any, {"recursion_limit": RECURSION_LIMIT, **silent}), context=context, stream_mode="values"
    )
    with tracing(context.langsmith):
        for reached in steps:
            state = cast(LoopState, reached)
            if until(state):
                break
    return state


class _Step(Protocol):
    def __call__(self, state: LoopState, runtime: Runtime[Context]) -> Command[str]: ...


def _command(node: Node) -> _Step:
    """Wrap a node so that it returns a Command. Conditional edges would cost a third of the graph's time."""

    def step(state: LoopState, runtime: Runtime[Context]) -> Command[str]:
        update = node(state, runtime.context)
        return Command(update=update, goto=END if update["next"] == "end" else update["next"])

    return step
