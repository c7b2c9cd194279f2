"""What stands at both ends of the loop: the first message and the finding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

from editloupe.agent.state import Context, LoopState
from editloupe.answers import answer_from_json
from editloupe.backends.langsmith import tracing
from editloupe.chat import ImagePart, Message, Part, TextPart, Usage
from editloupe.findings import Ending, Finding
from editloupe.prompts import prompt_digest, render
from editloupe.tasks import Status
from editloupe.tools.session import places_in
from editloupe.values import View

if TYPE_CHECKING:
    from editloupe.agent.graph import Loop

TEMPLATES = ("agent/tools", "agent/format", "agent/continue", "agent/last_turn", "agent/last_answer", "agent/remind")
"""The agent's templates. Each serves text and native tool calling, so that the two differ in nothing else."""


def agent_digest(*, bare: bool = False) -> str:
    """Return the digest of the agent's own templates, which is part of a judge's identity.

    bare: for a model that answers alone.
    """
    return prompt_digest(("agent/bare",) if bare else TEMPLATES)


def first_message(context: Context, views: Mapping[str, View]) -> Message:
    """Return the question, the images with their names, the tools (if there are any) and the format of the reply."""
    task, box = context.task, context.toolbox
    parts: list[Part] = [TextPart(text=task.prompt)]
    for name, view in views.items():
        size = f"{view.image.width}×{view.image.height} px"
        parts += [TextPart(text=f"{name} ({size}):"), ImagePart(image=view.image, alias=name)]
    if context.judge.bare_replies:
        return Message(role="user", parts=(*parts, TextPart(text=render("agent/bare", answer=task.answer))))
    sections = []
    if task.tools:
        absent = {name: reason for name, reason in box.absent.items() if name in task.tools}
        turns, native = task.budget.max_turns, context.native
        tools = [
            {"name": s.name, "description": s.description, "schema": json.dumps(s.parameters, ensure_ascii=False)}
            for s in box.specs(task.tools)
        ]
        sections.append(render("agent/tools", tools=tools, absent=absent, max_turns=turns, native=native))
    held = context.holds and not task.tools
    sections.append(render("agent/format", tools=bool(task.tools), answer=task.answer, native=context.native, held=held))
    return Message(role="user", parts=(*parts, TextPart(text="\n\n".join(sections))))


def initial_state(context: Context, views: Mapping[str, View], message: Message | None = None) -> LoopState:
    """Record the first message and return the state in which a task begins.

    message: the question as recorded before; None writes it.
    """
    head = context.recorder.add(message or first_message(context, views), None)
    last = bool(context.task.tools) and context.task.budget.max_turns < 1
    return LoopState(
        history=[head],
        views={name: [view.to_json()] for name, view in views.items()},
        crops=0,
        past_calls=[],
        calls=[],
        malformed=[],
        problem="",
        thought="",
        answer=None,
        confidences=[],
        turns=0,
        reminders=0,
        reminded=False,
        last=last,
        held=context.holds and (last or not context.task.tools),
        usage={},
        counts={},
        outcome=None,
        next="think",
    )


def run_loop(
    state: LoopState,
    context: Context,
    *,
    until: Callable[[LoopState], bool] = lambda _: False,
    graph: Loop | None = None,
) -> LoopState:
    """Run the compiled graph from a state whose next node is `think`, and return its last state.

    until: tested before each node; where it holds, the loop stops there and its state is returned.
    graph: None for the one that all tasks of this process share.
    Raises Interrupted, ReplayMiss, and ImageError for an input that cannot be decoded.
    """
    # LangGraph takes half a second to import, and commands that only read a run need none of it.
    from editloupe.agent.graph import shared_graph

    # A graph that calls us traces what it does itself. Without the empty list its callbacks would see our steps.
    config: Any = {"callbacks": []} if context.langsmith is False else {}
    with tracing(context.langsmith):
        for reached in (graph or shared_graph()).stream(state, config, context=context, stream_mode="values"):
            state = cast(LoopState, reached)
            if until(state):
                break
    return state


def finding_of(state: LoopState, context: Context, *, trace: str | None) -> Finding:
    """Return the finding of a loop that has ended: a label of the rubric, or the status that says why there is none."""
    outcome = state["outcome"]
    assert outcome is not None, "the loop ends with an outcome"
    given = outcome["answer"]
    panes = {name: [View.from_json(v) for v in data] for name, data in state["views"].items()}
    return Finding.of(
        context.task,
        judge_id=context.judge.id,
        repeat=context.repeat,
        status=cast(Status, outcome["status"]),
        ending=cast(Ending, outcome["ending"]),
        answer=None if given is None else answer_from_json(given),
        reason=str(outcome["reason"]),
        evidence=places_in(f"{state['thought']}\n{outcome['reason']}", panes) if given is not None else (),
        usage=Usage.from_json(state["usage"]),
        turns=state["turns"],
        counts=state["counts"],
        seconds=context.earlier + context.elapsed(),
        trace=trace,
    )
