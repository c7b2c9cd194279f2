"""The loop of DLEBench Eq. 2 as a LangGraph graph: think, act, remind, conclude."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from editloupe.agent import nodes
from editloupe.agent.state import Context, LoopState, Next

Loop: TypeAlias = "CompiledStateGraph[LoopState, Context, LoopState, LoopState]"

Node: TypeAlias = Callable[[LoopState, Runtime[Context]], dict[str, Any]]

RECURSION_LIMIT = 1000
"""Steps of the graph; the task's own budget ends a loop long before."""


class Step(Protocol):
    """A node that says itself where the loop goes on."""

    def __call__(self, state: LoopState, runtime: Runtime[Context]) -> Command[str]: ...


def build_graph(checkpointer: BaseCheckpointSaver[str] | None = None) -> Loop:
    """T_i, {A_i | R} ~ E(· | S_I, Instruction, E_I, H_{i-1}), until R or a budget ends it.

    Nodes name their successor under "next". Any LangGraph checkpointer fits; the trace stays the record.
    """
    graph = StateGraph(LoopState, context_schema=Context)
    # Send the history; receive a thought and either actions or a result.
    graph.add_node("think", _going_on(nodes.think), destinations=("act", "remind", "conclude", END))
    # Run the calls; append the observation.
    graph.add_node("act", _going_on(nodes.act), destinations=("think", END))
    # Neither action nor result, or a broken call: say so, at most twice.
    graph.add_node("remind", _going_on(nodes.remind), destinations=("think", END))
    # Parse the result against the rubric's labels.
    graph.add_node("conclude", _going_on(nodes.conclude), destinations=(END,))
    graph.add_edge(START, "think")
    return graph.compile(checkpointer=checkpointer)


def walk(
    state: LoopState, context: Context, *, until: Callable[[LoopState], bool] = lambda _: False, first: Next = "think"
) -> LoopState:
    """The same nodes one after another without LangGraph, for conversations that are only read again.

    first: the node to begin with.   until: looked at before each node; where it holds, the state is returned as it is,
    and `build_graph` can go on from there if a `think` is due. Raises what the nodes raise.
    """
    steps = {"think": nodes.think, "act": nodes.act, "remind": nodes.remind, "conclude": nodes.conclude}
    runtime = Runtime(context=context)
    state = cast(LoopState, {**state, "next": first})
    while state["next"] != "end" and not until(state):
        state = cast(LoopState, {**state, **steps[state["next"]](state, runtime)})
    return state


def _going_on(node: Node) -> Step:
    """The node with a Command: an edge that reads the state for the way costs a third of the graph's time."""

    def step(state: LoopState, runtime: Runtime[Context]) -> Command[str]:
        update = node(state, runtime)
        return Command(update=update, goto=END if update["next"] == "end" else update["next"])

    return step
