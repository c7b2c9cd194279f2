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

StudioGraph: TypeAlias = "CompiledStateGraph[Any, Any, Any, Any]"

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


def build_studio_graph(
    node: Callable[[Any, Any, Loop], dict[str, Any]],
    *,
    state: type[Any],
    input: type[Any],
    output: type[Any],
    context: type[Any],
) -> StudioGraph:
    """Build a graph with a state and a context of its own. Its one node, `judge`, runs the loop, whose nodes it shows.

    node: takes the state, the context and the loop, and returns the part of the state that changes.
    """
    # Not kept by the server: the state names messages that only the running node has. A node that is resumed begins anew.
    loop = build_graph()

    def judge(state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        return node(state, runtime.context, loop)

    graph = StateGraph(state, context_schema=context, input_schema=input, output_schema=output)
    graph.add_node("judge", judge)
    graph.add_edge(START, "judge")
    graph.add_edge("judge", END)
    return graph.compile()


class _Step(Protocol):
    def __call__(self, state: LoopState, runtime: Runtime[Context]) -> Command[str]: ...


def _command(node: Node) -> _Step:
    """Wrap a node so that it returns a Command. Conditional edges would cost a third of the graph's time."""

    def step(state: LoopState, runtime: Runtime[Context]) -> Command[str]:
        update = node(state, runtime.context)
        return Command(update=update, goto=END if update["next"] == "end" else update["next"])

    return step
