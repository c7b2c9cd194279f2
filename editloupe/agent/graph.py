"""The loop of DLEBench Eq. 2 as a compiled LangGraph graph. It runs every live task, every replay and every fork."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import cache
from typing import Annotated, Any, Final, TypeAlias, cast

from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph import END, START, StateGraph
from langgraph.graph.state import CompiledStateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command

from editloupe.agent.nodes import NODES, Node
from editloupe.agent.state import Context

Loop: TypeAlias = "CompiledStateGraph[Any, Context, Any, Any]"

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
    # One channel for the whole state. A channel for each field of LoopState would cost a sixth more CPU.
    graph = cast(Any, StateGraph)(Annotated[dict, operator.or_], context_schema=Context)
    for name, node in NODES.items():
        graph.add_node(name, _step(node), destinations=_DESTINATIONS[name])
    graph.add_edge(START, "think")
    # The task's own budget ends a loop long before the limit.
    return cast(Loop, graph.compile(checkpointer=checkpointer).with_config(recursion_limit=1000))


@cache
def shared_graph() -> Loop:
    """Return the compiled graph that all tasks of this process share. It holds no state between them."""
    return build_graph()


def _step(node: Node) -> Callable[..., list[Any]]:
    """Wrap a node as LangGraph calls it: it returns what changes, and the command that leads to the next node."""
    # LangGraph would take an annotated LoopState for another schema, with channels of its own.

    def step(state: Any, runtime: Runtime[Context]) -> list[Any]:
        update = node(state, runtime.context)
        return [update, Command(goto=END if update["next"] == "end" else update["next"])]

    return step
