"""The loop of DLEBench Eq. 2 as a LangGraph graph. Only this module imports LangGraph, and only live loops import it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from editloupe.agent.nodes import NODES, Node
from editloupe.agent.state import Context, LoopState

Loop: TypeAlias = "CompiledStateGraph[LoopState, Context, LoopState, LoopState]"

StudioGraph: TypeAlias = "CompiledStateGraph[Any, Any, Any, Any]"


def build_graph(checkpointer: BaseCheckpointSaver[str] | None = None) -> Loop:
    """Build the loop T_i, {A_i | R} ~ E(· | S_I, Instruction, E_I, H_{i-1}): it runs until R or a budget ends it.

    checkpointer: any of LangGraph's; the state is small JSON. The trace stays the record.
    """
    graph = StateGraph(LoopState, context_schema=Context)
    for name, node in NODES.items():
        graph.add_node(name, _command(node))
    graph.add_edge(START, "think")
    return graph.compile(checkpointer=checkpointer)


def build_single_node(
    name: str, node: Callable[[Any, Any], dict[str, Any]], *, state: type[Any], context: type[Any]
) -> StudioGraph:
    """Build a graph of one node with a state and a context of its own."""

    def step(state: Any, runtime: Runtime[Any]) -> dict[str, Any]:
        return node(state, runtime.context)

    graph = StateGraph(state, context_schema=context)
    graph.add_node(name, step)
    graph.add_edge(START, name)
    graph.add_edge(name, END)
    return graph.compile()


class _Step(Protocol):
    def __call__(self, state: LoopState, runtime: Runtime[Context]) -> Command[str]: ...


def _command(node: Node) -> _Step:
    """Wrap a node so that it returns a Command. Conditional edges would cost a third of the graph's time."""

    def step(state: LoopState, runtime: Runtime[Context]) -> Command[str]:
        update = node(state, runtime.context)
        return Command(update=update, goto=END if update["next"] == "end" else update["next"])

    return step
