"""The loop of DLEBench Eq. 2 as a LangGraph graph: think, act, remind, conclude."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from editloupe.agent import nodes
from editloupe.agent.state import Context, LoopState

Loop: TypeAlias = "CompiledStateGraph[LoopState, Context, LoopState, LoopState]"

Node: TypeAlias = Callable[[LoopState, Runtime[Context]], dict[str, Any]]

RECURSION_LIMIT = 1000
"""Steps of the graph; the task's own budget ends a loop long before."""


def build_graph(checkpointer: BaseCheckpointSaver[str] | None = None) -> Loop:
    """T_i, {A_i | R} ~ E(· | S_I, Instruction, E_I, H_{i-1}), until R or a budget ends it.

    Nodes name their successor under "next". Any LangGraph checkpointer fits; the trace stays the record.
    """
    graph = StateGraph(LoopState, context_schema=Context)
    ways = {
        "think": (nodes.think, ("act", "remind", "conclude", END)),  # send the history; receive actions or a result
        "act": (nodes.act, ("think", END)),  # run the calls; append the observation
        "remind": (nodes.remind, ("think", END)),  # neither action nor result, or a broken call: say so, at most twice
        "conclude": (nodes.conclude, (END,)),  # parse the result against the rubric's labels
    }
    for name, (node, destinations) in ways.items():
        graph.add_node(name, _going_on(node), destinations=destinations)
    graph.add_edge(START, "think")
    return graph.compile(checkpointer=checkpointer)


def _going_on(node: Node) -> Callable[[LoopState, Runtime[Context]], Command[str]]:
    """The node with its own word on where it goes: an edge that asks the state for it costs half as much as the step."""

    def step(state: LoopState, runtime: Runtime[Context]) -> Command[str]:
        update = node(state, runtime)
        return Command(update=update, goto=END if update["next"] == "end" else update["next"])

    return step
