"""The four nodes of the loop.

A node is a plain function: it takes the state and the context, and returns the part of the state that changes. It names
its successor under "next".
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

from editloupe import cores
from editloupe.agent.recorder import ToolOutcome
from editloupe.agent.state import Context, LoopState, Next
from editloupe.answers import LabelledBoxes, confidences_in, read_answer, reason_in
from editloupe.backends.base import checked_reply
from editloupe.backends.image_tokens import BY_AREA
from editloupe.backends.token_estimate import estimate_usage, lacks_usage
from editloupe.chat import ImagePart, MalformedCall, Message, Part, Reply, Request, TextPart, ToolCall, Usage
from editloupe.errors import BackendError, ContextTooLong, EditLoupeError, ImageError, Interrupted, ReplyError, ToolError
from editloupe.findings import Ending, Observation
from editloupe.prompts import render
from editloupe.replies import Parsed, parse_bare, parse_reply
from editloupe.tags import neutralise
from editloupe.tasks import Status
from editloupe.tools.base import ToolContext
from editloupe.tools.session import Conversation
from editloupe.values import View, check_extent

MAX_CRASHES = 3
"""Number of tool crashes (exceptions other than ToolError) that end a task: the judge can no longer see."""


_LOG: Final = logging.getLogger(__name__)
_QUOTED = 80
"""Characters of an unusable reply that its finding quotes."""
_NOTHING = "it held neither a tool call nor a {noun} between the answer tags"
"""What is wrong with a reply of prose alone."""


def think(state: LoopState, context: Context) -> dict[str, Any]:
    """Send the history. Sort the reply into calls, an answer or a problem."""
    spent = Usage.from_json(state["usage"])
    exceeded = _exceeded(context, spent, state["counts"])
    if exceeded is not None:
        return _over("over_budget", *exceeded)
    held = state["last"] and context.constrained
    choices = context.task.answer.choices() if held else None
    messages = context.recorder.messages(state["history"])
    spec = context.task.answer
    request = Request(
        messages=messages,
        sampling=context.sampling,
        choices=choices,
        answer_schema=spec.json_schema() if held and choices is None else None,
        # Asked of every backend, so that a replay asks the same: what it does not give it leaves off.
        top_logprobs=spec.top_logprobs if isinstance(spec, LabelledBoxes) else None,
        # Also named in the last turn: without them the prefix would change, and a prefix cache would miss.
        tools=context.toolbox.specs(context.task.tools) if context.native else (),
        calls_allowed=not (context.native and state["last"]),
    )
    try:
        reply = context.recorder.complete(request, state["history"][-1], lambda: _ask(context, request))
    except ContextTooLong as error:
        return _over("over_budget", "context", f"context: {error}")
    except BackendError as error:
        return _over("backend_failed", "backend", f"{type(error).__name__}: {error}")
    usage = (spent + reply.usage).to_json()
    state = cast(LoopState, {**state, "counts": _counted(state, **_missing_usage(context, request, reply))})
    if reply.finish == "refusal":
        return {"usage": usage} | _over("refused", "refusal", reply.text or "the model refused without a reason")
    if reply.finish == "filter":
        return {"usage": usage} | _over("filtered", "filter", reply.text or "the provider's content filter cut the reply")
    if context.native:
        reply = _with_own_ids(reply, messages)
    if context.judge.bare_replies:
        parsed = parse_bare(reply, last_line=spec.choices() is not None)
    else:
        whole = held and choices is None
        parsed = parse_reply(reply, turn=state["turns"] + 1, native=context.native, choices=choices, whole=whole)
    message = _reply_message(reply, native=context.native)
    constrained = int(held and parsed.answer is not None)
    update: dict[str, Any] = {
        "history": [*state["history"], context.recorder.add(message, state["history"][-1])],
        "usage": usage,
        # A bare label comes without a thought: the last one that was uttered is the one behind it.
        "thought": parsed.thought or (state["thought"] if held else ""),
        "answer": parsed.answer,
        "confidences": confidences_in(spec, parsed.answer or "", context.task.metric, reply.tokens),
        "calls": [c.to_json() for c in parsed.calls],
        "malformed": [m.to_json() for m in parsed.malformed],
        "counts": _counted(state, malformed_calls=len(parsed.malformed), constrained_labels=constrained),
    }
    if context.task.tools and parsed.calls and not state["last"]:
        if parsed.answer is not None:
            context.recorder.note("an answer beside tool calls was ignored: it came before the observations")
        return update | {"next": "act"}
    if parsed.answer is not None:
        return update | {"next": "conclude"}
    if context.judge.bare_replies:
        cut = "was cut off at its token limit" if reply.finish == "length" else "is empty"
        return update | _over("unparsed", "answer", f"the reply {cut}")
    if state["last"] and not _reminds(state, context):
        return update | _over(
            "over_budget", "turns", f"turns: no {context.task.answer.noun} after {state['turns']} turns and a last word"
        )
    return update | {
        "next": "remind",
        "problem": _problem(parsed, reply, context.task.answer.noun),
    }


def act(state: LoopState, context: Context) -> dict[str, Any]:
    """Run the calls in order and append their observations: in one message, or one per call with native tool calling."""
    budget = context.task.budget
    talk = Conversation(
        panes={name: tuple(View.from_json(v) for v in panes) for name, panes in state["views"].items()},
        crops=state["crops"],
        past_calls=tuple(state["past_calls"]),
        image_tokens=context.backend.traits.image_tokens or BY_AREA,
        max_image_side=context.backend.traits.max_image_side,
    )
    crashes, errors, cached = 0, 0, 0
    answers: list[tuple[ToolCall, list[Part]]] = []
    for index, data in enumerate(state["calls"]):
        call = ToolCall.from_json(data)
        if index >= budget.max_calls_per_turn:
            refused = TextPart(
                text=f"{neutralise(call.name)} was not run: at most {budget.max_calls_per_turn} calls a turn."
            )
            answers.append((call, [refused]))
            continue
        at = talk.tool_context(context.images)
        outcome = context.recorder.call_tool(call, lambda call=call, at=at: run_tool(context, call, at))  # type: ignore[misc]
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
    malformed = [MalformedCall.from_json(data).error for data in state["malformed"]]
    closing: list[Part] = [TextPart(text=f"Not run, since it could not be read: {error}") for error in malformed]
    going_on = render("agent/continue", answer=context.task.answer, native=context.native)
    closing.append(TextPart(text=_last_turn(context) if last else going_on))
    counts = _counted(state, tool_errors=errors, tool_crashes=crashes, cached_tools=cached)
    history = list(state["history"])
    for message in _observation_messages(answers, closing, native=context.native):
        history.append(context.recorder.add(message, history[-1]))
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
        return update | _over("tool_failed", "tools", f"tools crashed {counts['tool_crashes']} times; see the trace")
    return update | {"next": "think"}


def remind(state: LoopState, context: Context) -> dict[str, Any]:
    """Say what was wrong with the reply or its answer, and how to reply. End as `unparsed` after the last reminder.

    If labels are constrained, one last turn that is held to them comes before that.
    """
    reminders, noun = state["reminders"], context.task.answer.noun
    update: dict[str, Any]
    if reminders < context.task.budget.max_reminders:
        text = render(
            "agent/remind",
            problem=state["problem"],
            tools=bool(context.task.tools) and not state["last"],
            answer=context.task.answer,
            native=context.native,
            held=state["last"] and context.constrained,
        )
        context.recorder.note(f"reminder {reminders + 1}: {state['problem']}")
        update = {"reminders": reminders + 1, "counts": _counted(state, reminders=1)}
    elif context.constrained:
        context.recorder.note(f"after {reminders} reminders, a last turn held to the {noun}s: {state['problem']}")
        text, update = _last_turn(context), {"last": True}
    else:
        return _over("unparsed", "reminders", _unheard(state, context))
    head = context.recorder.add(Message.of_text("user", text), state["history"][-1])
    return update | {"history": [*state["history"], head], "next": "think"}


def conclude(state: LoopState, context: Context) -> dict[str, Any]:
    """Parse the answer as a label of the rubric. Nothing is guessed: an unusable answer gets a reminder.

    Without one left, the task ends with the status that says why the answer is unusable.
    """
    try:
        answer = read_answer(
            context.task.answer, state["answer"] or "", context.task.metric, confidences=state["confidences"]
        )
    except ReplyError as error:
        if error.status != "abstained" and _reminds(state, context):
            return {"next": "remind", "problem": neutralise(str(error))}
        return _over(
            cast(Status, error.status), "answer", f"{error}: {state['thought']}" if state["thought"] else str(error)
        )
    reason = reason_in(context.task.answer, state["answer"] or "", context.task.metric) or state["thought"]
    outcome = {"status": "ok", "answer": answer.to_json(), "ending": "answer", "reason": reason}
    return {"outcome": outcome, "next": "end"}


Node: TypeAlias = Callable[[LoopState, Context], dict[str, Any]]

NODES: Final[Mapping[Next, Node]] = {"think": think, "act": act, "remind": remind, "conclude": conclude}


def _reminds(state: LoopState, context: Context) -> bool:
    """Return whether one more reply is asked for after an unusable answer, or after a last turn without an answer."""
    left = state["reminders"] < context.task.budget.max_reminders or (context.constrained and not state["last"])
    return context.judge.remind_answers and left


def _with_own_ids(reply: Reply, messages: tuple[Message, ...]) -> Reply:
    """Make call ids unique in a conversation. Some servers number the calls of each reply from 1; a tool message would
    then answer two calls."""
    seen = {call.id for message in messages for call in message.tool_calls}
    calls: list[ToolCall] = []
    for call in reply.tool_calls:
        id_, number = call.id, 2
        while id_ in seen:
            id_, number = f"{call.id}_{number}", number + 1
        seen.add(id_)
        calls.append(replace(call, id=id_))
    return replace(reply, tool_calls=tuple(calls))


def _last_turn(context: Context) -> str:
    if context.constrained:
        return render("agent/last_label", answer=context.task.answer, tools=bool(context.task.tools))
    return render("agent/last_turn", answer=context.task.answer, native=context.native)


def _reply_message(reply: Reply, *, native: bool) -> Message:
    """Return the assistant message of a reply; with its calls only if tool messages will answer them."""
    text = (TextPart(text=reply.text),)
    if not native:
        return Message(role="assistant", parts=text)
    # A reply of calls alone has no text, and some servers refuse an empty text.
    return Message(role="assistant", parts=text if reply.text else (), tool_calls=reply.tool_calls, carry=reply.carry)


def _observation_messages(
    answers: list[tuple[ToolCall, list[Part]]], closing: list[Part], *, native: bool
) -> list[Message]:
    """Return the observations as one user message, or as one tool message per call and a user message after them."""
    if not native:
        return [Message(role="user", parts=(*(part for _, parts in answers for part in parts), *closing))]
    results = [Message(role="tool", parts=tuple(parts), tool_call_id=call.id) for call, parts in answers]
    return [*results, Message(role="user", parts=tuple(closing))]


def run_tool(context: Context, call: ToolCall, tool_context: ToolContext) -> ToolOutcome:
    """Run one call live. A ToolError becomes an observation; so does any other exception, counted as a crash."""
    box, cached = context.toolbox, False
    computes = getattr(box.tools.get(call.name), "computes", False)
    try:
        with cores.computing() if computes else cores.waiting():
            if context.cache is None:
                observation = box.call(call.name, call.arguments, tool_context)
            else:
                observation, cached = context.cache.call(box, call.name, call.arguments, tool_context)
    except ToolError as error:
        return ToolOutcome(observation=Observation(text=f"Error: {error}", error=True))
    except (Interrupted, ImageError):
        raise
    except Exception as error:  # noqa: BLE001 - tools may be plug-ins; their faults are recorded and must not end the run
        text = f"Error: {call.name} failed ({type(error).__name__}); try other arguments or another tool"
        traced = error if _LOG.isEnabledFor(logging.DEBUG) else None
        _LOG.warning("the tool %s crashed: %s: %s", call.name, type(error).__name__, error, exc_info=traced)
        return ToolOutcome(observation=Observation(text=text, error=True), crashed=f"{type(error).__name__}: {error}")
    return ToolOutcome(observation=observation, aliases=tool_context.names(observation), cached=cached)


def _ask(context: Context, request: Request) -> Reply:
    """Return the backend's reply. A foreign exception of a plug-in becomes a BackendError, and so does what is no reply."""
    try:
        with cores.waiting():
            reply = checked_reply(context.backend.complete(request, context.images), context.backend.uri)
    except EditLoupeError:
        raise
    except Exception as error:
        raise BackendError(f"{context.backend.uri} raised {type(error).__name__}: {error}") from error
    calls, malformed = [], [*reply.malformed_calls]
    for call in reply.tool_calls:
        try:
            check_extent(call.arguments)
            calls.append(call)
        except ValueError as fault:
            malformed.append(MalformedCall(raw=call.name, error=f"the arguments of {call.name!r}: {fault}"))
    return replace(reply, tool_calls=tuple(calls), malformed_calls=tuple(malformed))


def _missing_usage(context: Context, request: Request, reply: Reply) -> dict[str, int]:
    """Return counters for a budget of tokens if the endpoint gives no usage: an estimate, or that there can be none."""
    if context.task.budget.max_tokens is None or not context.backend.traits.is_lmm or not lacks_usage(reply.usage):
        return {}
    guess = estimate_usage(request, reply, context.backend.traits)
    return {"uncountable_calls": 1} if guess is None else {"estimated_tokens": guess.total}


def _exceeded(context: Context, spent: Usage, counts: Mapping[str, int]) -> tuple[Ending, str] | None:
    """Return which budget is used up, for programs and in words; None if none is."""
    budget, more = context.task.budget, counts.get("estimated_tokens", 0)
    if budget.max_tokens is not None and spent.total + more >= budget.max_tokens:
        about = "about " if more else ""
        return "tokens", f"tokens: {about}{spent.total + more:,} of {budget.max_tokens:,} used"
    if budget.max_tokens is not None and counts.get("uncountable_calls"):
        return "tokens", (
            "tokens: the endpoint tells no usage, and no rule is known for the tokens of this model's images; "
            "--max-turns or --task-seconds can bound a task"
        )
    seconds = context.elapsed()
    if budget.max_seconds is not None and seconds >= budget.max_seconds:
        return "time", f"time: {seconds:.1f} s of {budget.max_seconds:g} s used"
    return None


def _problem(parsed: Parsed, reply: Reply, noun: str) -> str:
    # The model reads this in a reminder. Traces hold it: with other words no recorded conversation could be replayed.
    if parsed.malformed:
        return "; ".join(m.error for m in parsed.malformed)
    if parsed.unused:
        return f"{parsed.unused}; give the {noun} in the tags, alone and last"
    if parsed.calls:
        return "there are no tools to call here"
    if not reply.text.strip():
        return reply.empty_because
    if reply.finish == "length":
        return f"it was cut off before a tool call or a {noun}"
    return _NOTHING.format(noun=noun)


def _unheard(state: LoopState, context: Context) -> str:
    """Return in words that no reply could be used, with the beginning of the last one."""
    noun, reminders = context.task.answer.noun, state["reminders"]
    times = f"{reminders} reminder{'' if reminders == 1 else 's'}"
    head = f"no call and no {noun} after {times}" if context.task.tools else f"no {noun} after {times}"
    problem = state["problem"]
    if not context.task.tools and problem == _NOTHING.format(noun=noun):
        problem = "nothing stood in <Start Final Answer>…</Start Final Answer>"
    reply = " ".join(context.recorder.messages(state["history"])[-1].text.split())
    if not reply:
        return f"{head}: {problem}"
    return f"{head}: {problem}; the last reply begins “{reply[:_QUOTED].rstrip()}{'…' if len(reply) > _QUOTED else ''}”"


def _over(status: Status, ending: Ending, reason: str) -> dict[str, Any]:
    return {"outcome": {"status": status, "answer": None, "ending": ending, "reason": reason}, "next": "end"}


def _counted(state: LoopState, **more: int) -> dict[str, int]:
    return state["counts"] | {name: state["counts"].get(name, 0) + n for name, n in more.items() if n}
