"""The four nodes of the loop. Each takes the state and the runtime context and returns what changes in the state."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from langgraph.runtime import Runtime

from editloupe.agent.answer import parse_reply
from editloupe.agent.state import Context, LoopState, ToolOutcome
from editloupe.backends.untold import estimated, is_untold
from editloupe.chat import ImagePart, Message, Part, Reply, Request, TextPart, ToolCall, Usage
from editloupe.errors import BackendError, ContextTooLong, EditLoupeError, ImageError, Interrupted, ReplyError, ToolError
from editloupe.prompts import render
from editloupe.prompts.tags import neutralise
from editloupe.records import Observation, Status
from editloupe.rubrics.parse import parse_label
from editloupe.tools.base import ToolContext
from editloupe.tools.session import Conversation
from editloupe.values import Json, View

MAX_CRASHES = 3
"""Tool crashes (exceptions that are no ToolError) after which a task is given up: its judge works blind."""


def think(state: LoopState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Send the history; sort the reply into calls, an answer, or a problem."""
    context = runtime.context
    spent = Usage.from_json(state["usage"])
    exceeded = _exceeded(context, spent, state["counts"])
    if exceeded:
        return _over("over_budget", exceeded)
    choices = tuple(context.labels) if state["last"] and context.constrained else None
    messages = context.tape.messages(state["history"])
    request = Request(
        messages=messages,
        sampling=context.sampling,
        choices=choices,
        # Still named in the last turn: without them the conversation would begin otherwise, and be computed anew.
        tools=context.toolbox.specs(context.task.tools) if context.native else (),
        calls_allowed=not (context.native and state["last"]),
    )
    try:
        reply = context.tape.complete(request, state["history"][-1], lambda: _ask(context, request))
    except ContextTooLong as error:
        return _over("over_budget", f"context: {error}")
    except BackendError as error:
        return _over("backend_failed", f"{type(error).__name__}: {error}")
    usage = (spent + reply.usage).to_json()
    state = cast(LoopState, {**state, "counts": _counted(state, **_untold(context, request, reply))})
    if reply.finish == "refusal":
        return {"usage": usage} | _over("refused", reply.text or "the model refused without a reason")
    if reply.finish == "filter":
        return {"usage": usage} | _over("filtered", reply.text or "the provider's content filter cut the reply")
    if context.native:
        reply = _with_own_ids(reply, messages)
    parsed = parse_reply(reply, turn=state["turns"] + 1, native=context.native, choices=choices)
    said = _said(reply, native=context.native)
    held = int(choices is not None and parsed.answer is not None)
    update: dict[str, Any] = {
        "history": [*state["history"], context.tape.add(said, state["history"][-1])],
        "usage": usage,
        # A bare label comes without a thought: the last one that was uttered is the one behind it.
        "thought": parsed.thought or (state["thought"] if choices else ""),
        "answer": parsed.answer,
        "calls": [c.to_json() for c in parsed.calls],
        "malformed": [m.to_json() for m in parsed.malformed],
        "counts": _counted(state, malformed_calls=len(parsed.malformed), constrained_labels=held),
    }
    if context.task.tools and parsed.calls and not state["last"]:
        if parsed.answer is not None:
            context.tape.note("an answer beside tool calls was put aside: it came before the observations")
        return update | {"next": "act"}
    if parsed.answer is not None:
        return update | {"next": "conclude"}
    if state["last"]:
        return update | _over("over_budget", f"turns: no label after {state['turns']} turns and a last word")
    return update | {"next": "remind", "problem": _problem(parsed.malformed, parsed.calls, reply.finish)}


def act(state: LoopState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Run the calls one after another and append their observations: in one message, or natively one message a call."""
    context = runtime.context
    budget = context.task.budget
    talk = Conversation(
        panes={name: tuple(View.from_json(_object(v)) for v in panes) for name, panes in state["views"].items()},
        crops=state["crops"],
        past_calls=tuple(state["past_calls"]),
    )
    crashes, errors, cached = 0, 0, 0
    answers: list[tuple[ToolCall, list[Part]]] = []
    for index, data in enumerate(state["calls"]):
        call = ToolCall.from_json(_object(data))
        if index >= budget.max_calls_per_turn:
            refused = TextPart(
                text=f"{neutralise(call.name)} was not run: at most {budget.max_calls_per_turn} calls a turn."
            )
            answers.append((call, [refused]))
            continue
        at = talk.tool_context(context.images)
        outcome = context.tape.call_tool(call, lambda call=call, at=at: run_tool(context, call, at))  # type: ignore[misc]
        observation = outcome.observation
        crashes += outcome.crashed is not None
        errors += observation.error
        cached += outcome.cached
        talk = talk.after(call.name, call.arguments, observation, outcome.aliases)
        parts: list[Part] = [TextPart(text=f"Observation of {neutralise(call.name)}:\n{neutralise(observation.text)}")]
        for alias, image in zip(outcome.aliases, observation.images, strict=True):
            parts += [TextPart(text=f"{alias}:"), ImagePart(image=image, alias=alias)]
        answers.append((call, parts))
    turns = state["turns"] + 1
    last = turns >= budget.max_turns
    closing: list[Part] = [
        TextPart(text=f"Not run, since it could not be read: {_object(m)['error']}") for m in state["malformed"]
    ]
    going_on = render("agent/continue", labels=context.labels, native=context.native)
    closing.append(TextPart(text=_last_word(context) if last else going_on))
    counts = _counted(state, tool_errors=errors, tool_crashes=crashes, cached_tools=cached)
    history = list(state["history"])
    for message in _observed(answers, closing, native=context.native):
        history.append(context.tape.add(message, history[-1]))
    update: dict[str, Any] = {
        "history": history,
        "views": {name: [v.to_json() for v in panes] for name, panes in talk.panes.items()},
        "crops": talk.crops,
        "past_calls": list(talk.past_calls),
        "turns": turns,
        "last": last,
        "counts": counts,
        "calls": [],
        "malformed": [],
    }
    if counts.get("tool_crashes", 0) >= MAX_CRASHES:
        return update | _over("tool_failed", f"tools crashed {counts['tool_crashes']} times; see the trace")
    return update | {"next": "think"}


def remind(state: LoopState, runtime: Runtime[Context]) -> dict[str, Any]:
    """Say what was wrong with the reply and how to reply; give up as `unparsed` when reminders are used up.

    Where labels are constrained, one last word that is held to them stands before giving up.
    """
    context = runtime.context
    if state["reminders"] >= context.task.budget.max_reminders and context.constrained:
        context.tape.note(f"after {state['reminders']} reminders, a last word held to the labels: {state['problem']}")
        message = Message.of_text("user", _last_word(context))
        return {
            "history": [*state["history"], context.tape.add(message, state["history"][-1])],
            "last": True,
            "next": "think",
        }
    if state["reminders"] >= context.task.budget.max_reminders:
        return _over("unparsed", f"no call and no label after {state['reminders']} reminders: {state['problem']}")
    tools, native = bool(context.task.tools), context.native
    text = render("agent/remind", problem=state["problem"], tools=tools, labels=context.labels, native=native)
    context.tape.note(f"reminder {state['reminders'] + 1}: {state['problem']}")
    message = Message.of_text("user", text)
    return {
        "history": [*state["history"], context.tape.add(message, state["history"][-1])],
        "reminders": state["reminders"] + 1,
        "counts": _counted(state, reminders=1),
        "next": "think",
    }


def conclude(state: LoopState, runtime: Runtime[Context]) -> dict[str, Any]:
    """The answer as a label of the rubric, or the status that says why it is none. Nothing is guessed."""
    try:
        label = parse_label(state["answer"] or "", runtime.context.task.grammar)
    except ReplyError as error:
        return _over(cast(Status, error.status), f"{error}: {state['thought']}" if state["thought"] else str(error))
    return {"outcome": {"status": "ok", "answer": label.to_json(), "reason": state["thought"]}, "next": "end"}


def _with_own_ids(reply: Reply, messages: tuple[Message, ...]) -> Reply:
    """No two calls of a conversation under one id, as servers that number the calls of each reply anew have it: an answer
    to one would answer both."""
    seen = {call.id for message in messages for call in message.tool_calls}
    calls: list[ToolCall] = []
    for call in reply.tool_calls:
        id_, number = call.id, 2
        while id_ in seen:
            id_, number = f"{call.id}_{number}", number + 1
        seen.add(id_)
        calls.append(replace(call, id=id_))
    return replace(reply, tool_calls=tuple(calls))


def _last_word(context: Context) -> str:
    """What asks for the label when there is nothing left but to give it."""
    if context.constrained:
        return render("agent/last_label", labels=context.labels, tools=bool(context.task.tools))
    return render("agent/last_turn", labels=context.labels, native=context.native)


def _said(reply: Reply, *, native: bool) -> Message:
    """The reply as the conversation keeps it; the calls only where tool messages will answer them."""
    text = (TextPart(text=reply.text),)
    if not native:
        return Message(role="assistant", parts=text)
    # A reply of calls alone has no text, and some servers refuse an empty one.
    return Message(role="assistant", parts=text if reply.text else (), tool_calls=reply.tool_calls, carry=reply.carry)


def _observed(answers: list[tuple[ToolCall, list[Part]]], closing: list[Part], *, native: bool) -> list[Message]:
    """The observations as messages: all in one user's message, or one tool's message a call and a user's behind them."""
    if not native:
        return [Message(role="user", parts=(*(part for _, parts in answers for part in parts), *closing))]
    told = [Message(role="tool", parts=tuple(parts), tool_call_id=call.id) for call, parts in answers]
    return [*told, Message(role="user", parts=tuple(closing))]


def run_tool(context: Context, call: ToolCall, tool_context: ToolContext) -> ToolOutcome:
    """One call, live. What the model can mend is an observation; what a tool should not have raised is one too, counted."""
    box, cached = context.toolbox, False
    try:
        if context.cache is None:
            observation = box.call(call.name, call.arguments, tool_context)
        else:
            observation, cached = context.cache.call(box, call.name, call.arguments, tool_context)
    except ToolError as error:
        return ToolOutcome(observation=Observation(text=f"Error: {error}", error=True))
    except (Interrupted, ImageError):
        raise
    except Exception as error:  # noqa: BLE001 - a tool may be anybody's; its fault is recorded and must not end the run
        told = f"Error: {call.name} failed ({type(error).__name__}); try other arguments or another tool"
        return ToolOutcome(observation=Observation(text=told, error=True), crashed=f"{type(error).__name__}: {error}")
    return ToolOutcome(observation=observation, aliases=tool_context.names(observation), cached=cached)


def _ask(context: Context, request: Request) -> Reply:
    """The backend's reply; whatever a plug-in raises that is not ours becomes a BackendError."""
    try:
        return context.backend.complete(request, context.images)
    except EditLoupeError:
        raise
    except Exception as error:
        raise BackendError(f"{context.backend.uri} raised {type(error).__name__}: {error}") from error


def _untold(context: Context, request: Request, reply: Reply) -> dict[str, int]:
    """For a budget of tokens: those of an answer of which the endpoint tells none, estimated; or that they cannot be."""
    if context.task.budget.max_tokens is None or not context.backend.traits.is_lmm or not is_untold(reply.usage):
        return {}
    guess = estimated(request, reply, context.backend.traits)
    return {"uncountable_calls": 1} if guess is None else {"estimated_tokens": guess.total}


def _exceeded(context: Context, spent: Usage, counts: Mapping[str, int]) -> str:
    """Which budget is used up, in words; "" where none is."""
    budget, more = context.task.budget, counts.get("estimated_tokens", 0)
    if budget.max_tokens is not None and spent.total + more >= budget.max_tokens:
        about = "about " if more else ""
        return f"tokens: {about}{spent.total + more:,} of {budget.max_tokens:,} used"
    if budget.max_tokens is not None and counts.get("uncountable_calls"):
        return (
            "tokens: the endpoint tells no usage, and no rule is known for the tokens of this model's images; "
            "--max-turns or --max-seconds can bound a task"
        )
    seconds = context.clock() - context.started
    if budget.max_seconds is not None and seconds >= budget.max_seconds:
        return f"time: {seconds:.1f} s of {budget.max_seconds:g} s used"
    return ""


def _problem(malformed: tuple[Any, ...], calls: tuple[ToolCall, ...], finish: str) -> str:
    if malformed:
        return "; ".join(m.error for m in malformed)
    if calls:
        return "there are no tools to call here"
    if finish == "length":
        return "it was cut off before a tool call or a label"
    return "it held neither a tool call nor a label between the answer tags"


def _over(status: Status, reason: str) -> dict[str, Any]:
    return {"outcome": {"status": status, "answer": None, "reason": reason}, "next": "end"}


def _counted(state: LoopState, **more: int) -> dict[str, int]:
    return state["counts"] | {name: state["counts"].get(name, 0) + n for name, n in more.items() if n}


def _object(value: Json) -> Mapping[str, Json]:
    assert isinstance(value, Mapping)
    return value
