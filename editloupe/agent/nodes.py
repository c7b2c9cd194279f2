"""The four nodes of the loop.

A node is a plain function: it takes the state and the context, and returns the part of the state that changes. It names
its successor under "next".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeAlias, cast

from editloupe import cores
from editloupe.agent.state import Context, LoopState, Next
from editloupe.answers import Answer, FreeText, reason_in
from editloupe.backends.base import checked_reply
from editloupe.backends.image_tokens import BY_AREA
from editloupe.backends.token_estimate import estimate_usage, lacks_usage
from editloupe.chat import ImagePart, MalformedCall, Message, Part, Reply, Request, TextPart, ToolCall, Usage
from editloupe.errors import BackendError, ContextTooLong, EditLoupeError, ProcessLost, ReplyError
from editloupe.findings import Ending
from editloupe.prompts import render
from editloupe.replies import Parsed, neutralise, parse_bare, parse_reply
from editloupe.tasks import Status
from editloupe.tools.base import ToolContext
from editloupe.tools.outcome import ToolOutcome, run_call
from editloupe.values import View, check_extent

MAX_CRASHES = 3
"""Number of tool crashes (exceptions other than ToolError) that end a task: the judge can no longer see."""

_CONTRADICTORY: Final = "two pairs of answer tags hold different answers"
_QUOTED = 80
"""Characters of an unusable reply that reminders and findings quote."""


def think(state: LoopState, context: Context) -> dict[str, Any]:
    """Send the history. Sort the reply into calls, an answer or a problem."""
    spent = Usage.from_json(state["usage"])
    exceeded = _exceeded(context, spent, state["counts"])
    if exceeded is not None:
        return _over("over_budget", *exceeded)
    request = _request(state, context)
    try:
        # The reply is written before this thread waits for a core again: a process that is killed then loses none.
        with cores.waiting():
            reply = context.recorder.complete(request, state["history"][-1], lambda: _ask(context, request))
    except ContextTooLong as error:
        return _over("over_budget", "context", f"context: {error}")
    except BackendError as error:
        return _over("backend_failed", "backend", f"{type(error).__name__}: {error}")
    usage = (spent + reply.usage).to_json()
    counts = _counted(state["counts"], **_missing_usage(context, request, reply))
    if reply.finish == "refusal":
        return {"usage": usage} | _over("refused", "refusal", reply.text or "the model refused without a reason")
    if reply.finish == "filter":
        return {"usage": usage} | _over("filtered", "filter", reply.text or "the provider's content filter cut the reply")
    if context.native:
        reply = _with_own_ids(reply, request.messages)
    if context.judge.bare_replies:
        parsed = parse_bare(reply, last_line=context.task.answer.choices() is not None)
    else:
        parsed = parse_reply(reply, turn=state["turns"] + 1, native=context.native)
    # A reply of calls alone has no text, and some servers refuse an empty text.
    parts = (TextPart(text=reply.text),) if reply.text or not context.native else ()
    message = Message(role="assistant", parts=parts)
    if context.native:
        message = replace(message, tool_calls=reply.tool_calls, carry=reply.carry)
    in_schema = state["held"] and (parsed.answer or "").startswith("{") and "answer_schema" not in reply.dropped
    update: dict[str, Any] = {
        "history": [*state["history"], context.recorder.add(message, state["history"][-1])],
        "usage": usage,
        "thought": parsed.thought or (state["thought"] if state["held"] else ""),
        "answer": parsed.answer,
        "confidences": context.task.answer.shares(parsed.answer or "", reply.tokens),
        "calls": [c.to_json() for c in parsed.calls],
        "malformed": [m.to_json() for m in parsed.malformed],
        "counts": _counted(counts, malformed_calls=len(parsed.malformed), schema_answers=in_schema),
    }
    return update | _successor(state, context, parsed, reply)


def _request(state: LoopState, context: Context) -> Request:
    """Return the request of the whole history. A held reply may hold nothing but an answer."""
    spec = context.task.answer
    return Request(
        messages=context.recorder.messages(state["history"]),
        sampling=context.sampling,
        answer_schema=spec.json_schema() if state["held"] else None,
        # Asked of every backend, so that a replay asks the same: what it does not give it leaves off.
        top_logprobs=spec.top_logprobs,
        # Also named in the last turn: without them the prefix would change, and a prefix cache would miss.
        tools=context.toolbox.specs(context.task.tools) if context.native else (),
        calls_allowed=not (context.native and (state["last"] or state["held"])),
    )


def _successor(state: LoopState, context: Context, parsed: Parsed, reply: Reply) -> dict[str, Any]:
    """Return where a reply leads: to its calls, its answer, a reminder, or the end."""
    open_for_calls = bool(context.task.tools) and not state["last"]
    if parsed.calls and open_for_calls:
        if parsed.answer is not None:
            context.recorder.note("an answer beside tool calls was ignored: it came before the observations")
        return {"next": "act"}
    # Prose of a judge that may still call tools is no free text answer: it may be about to look.
    free = isinstance(context.task.answer, FreeText) and not state["held"]
    unmarked = open_for_calls and free and not parsed.tagged
    if parsed.contradictory and not _reminds(state, context):
        return _over("contradictory", "answer", _CONTRADICTORY)
    if parsed.answer is not None and not parsed.contradictory and not unmarked:
        return {"next": "conclude"}
    if context.judge.bare_replies:
        cut = "was cut off at its token limit" if reply.finish == "length" else "is empty"
        return _over("unparsed", "answer", f"the reply {cut}")
    return {"next": "remind", "problem": _problem(parsed, reply, context.task.answer.noun)}


def act(state: LoopState, context: Context) -> dict[str, Any]:
    """Run the calls in order and append their observations: in one message, or one per call with native tool calling."""
    panes = {name: tuple(View.from_json(v) for v in views) for name, views in state["views"].items()}
    talk = ToolContext(
        images=context.images,
        views={name: views[0] for name, views in panes.items()},
        panes=panes,
        crops=state["crops"],
        past_calls=tuple(state["past_calls"]),
        image_tokens=context.backend.traits.image_tokens or BY_AREA,
        max_image_side=context.backend.traits.max_image_side,
    )
    counts = state["counts"]
    answers: list[tuple[ToolCall, list[Part]]] = []
    for index, call in enumerate(map(ToolCall.from_json, state["calls"])):
        if index >= (most := context.task.budget.max_calls_per_turn):
            answers.append((call, [TextPart(text=f"{neutralise(call.name)} was not run: at most {most} calls a turn.")]))
            continue
        run = partial(run_call, context.toolbox, call, talk, context.cache)
        try:
            outcome = context.recorder.call_tool(call, run)
        except ProcessLost as lost:
            return _over("tool_failed", "tools", str(lost))
        crashed, failed = outcome.crashed is not None, outcome.observation.error
        counts = _counted(counts, tool_errors=failed, tool_crashes=crashed, cached_tools=outcome.cached)
        talk = talk.after(call.name, call.arguments, outcome.observation, outcome.aliases)
        answers.append((call, _observation_parts(call, outcome)))
    turns = state["turns"] + 1
    last = turns >= context.task.budget.max_turns
    malformed = [MalformedCall.from_json(data).error for data in state["malformed"]]
    closing: list[Part] = [TextPart(text=f"Not run, since it could not be read: {error}") for error in malformed]
    template = ("agent/last_answer" if context.holds else "agent/last_turn") if last else "agent/continue"
    closing.append(TextPart(text=render(template, answer=context.task.answer, native=context.native)))
    history = list(state["history"])
    for message in _observed(answers, closing, native=context.native):
        history.append(context.recorder.add(message, history[-1]))
    update: dict[str, Any] = {
        "history": history,
        "views": {name: [v.to_json() for v in panes] for name, panes in talk.panes.items()},
        "crops": talk.crops,
        "past_calls": list(talk.past_calls),
        "turns": turns,
        "last": last,
        "held": last and context.holds,
        "reminded": False,
        "counts": counts,
        "calls": [],
        "malformed": [],
    }
    if counts.get("tool_crashes", 0) >= MAX_CRASHES:
        return update | _over("tool_failed", "tools", f"tools crashed {counts['tool_crashes']} times; see the trace")
    return update | {"next": "think"}


def remind(state: LoopState, context: Context) -> dict[str, Any]:
    """Quote what was wrong with the reply or its answer, and show the form. End as `unparsed` where that does not help.

    A model that repeats its last reply word for word is not reminded again. The reply to a reminder is held to the schema
    of the answer, unless a tool call was malformed: that call may come again.
    """
    reminders, noun = state["reminders"], context.task.answer.noun
    repeated = _repeats_itself(state, context)
    last_word = state["last"] and not context.judge.remind_answers
    if repeated or last_word or reminders >= context.task.budget.max_reminders:
        if state["last"] and state["answer"] is None:
            return _over("over_budget", "turns", f"turns: no {noun} after {state['turns']} turns and a last word")
        after = f" after {reminders} reminder{'' if reminders == 1 else 's'}"
        why = ": the reply to a reminder repeats the reply before it word for word" if repeated else after
        return _over("unparsed", "reminders", f"no {noun}{why}: {state['problem']}")
    held = context.holds and (state["last"] or not context.task.tools or not state["malformed"])
    text = render(
        "agent/remind",
        problem=state["problem"],
        tools=bool(context.task.tools) and not state["last"] and not held,
        answer=context.task.answer,
        native=context.native,
        held=held,
    )
    context.recorder.note(f"reminder {reminders + 1}: {state['problem']}")
    head = context.recorder.add(Message.of_text("user", text), state["history"][-1])
    return {
        "reminders": reminders + 1,
        "counts": _counted(state["counts"], reminders=1),
        "held": held,
        "reminded": True,
        "history": [*state["history"], head],
        "next": "think",
    }


def conclude(state: LoopState, context: Context) -> dict[str, Any]:
    """Parse the answer as a label of the rubric. Nothing is guessed: an unusable answer gets a reminder.

    Without one left, the task ends with the status that says why the answer is unusable.
    """
    text, spec, metric = state["answer"] or "", context.task.answer, context.task.metric
    try:
        answer = spec.parse(text, metric, confidences=state["confidences"])
    except ReplyError as error:
        if error.status != "abstained" and _reminds(state, context):
            return {"next": "remind", "problem": neutralise(str(error))}
        said = f"{error}: {state['thought']}" if state["thought"] else str(error)
        return _over(cast(Status, error.status), "answer", said)
    reason = reason_in(spec, text) or state["thought"]
    return _over("ok", "answer", reason, answer)


Node: TypeAlias = Callable[[LoopState, Context], dict[str, Any]]

NODES: Final[Mapping[Next, Node]] = {"think": think, "act": act, "remind": remind, "conclude": conclude}


def _reminds(state: LoopState, context: Context) -> bool:
    """Return whether one more reply is asked for after an unusable answer."""
    return context.judge.remind_answers and state["reminders"] < context.task.budget.max_reminders


def _repeats_itself(state: LoopState, context: Context) -> bool:
    """Return whether the last reply answers a reminder with the words that the reminder was about."""
    if not state["reminded"]:
        return False
    before, _, now = context.recorder.messages(state["history"][-3:])
    return before.role == now.role == "assistant" and now.text == before.text and bool(now.text)


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


def _observation_parts(call: ToolCall, outcome: ToolOutcome) -> list[Part]:
    """Return the text of an observation, and its images behind their names."""
    observation = outcome.observation
    parts: list[Part] = [TextPart(text=f"Observation of {neutralise(call.name)}:\n{neutralise(observation.text)}")]
    for alias, image in zip(outcome.aliases, observation.images, strict=True):
        parts += [TextPart(text=f"{alias}:"), ImagePart(image=image, alias=alias)]
    return parts


def _observed(answers: list[tuple[ToolCall, list[Part]]], closing: list[Part], *, native: bool) -> list[Message]:
    """Return the observations as one user message, or as one tool message per call and a user message after them."""
    if not native:
        return [Message(role="user", parts=(*(part for _, parts in answers for part in parts), *closing))]
    results = [Message(role="tool", parts=tuple(parts), tool_call_id=call.id) for call, parts in answers]
    return [*results, Message(role="user", parts=tuple(closing))]


def _ask(context: Context, request: Request) -> Reply:
    """Return the backend's reply. A foreign exception of a plug-in becomes a BackendError, and so does what is no reply."""
    try:
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
            "--max-turns or --set task_seconds=… can bound a task"
        )
    seconds = context.elapsed()
    if budget.max_seconds is not None and seconds >= budget.max_seconds:
        return "time", f"time: {seconds:.1f} s of {budget.max_seconds:g} s used"
    return None


def _problem(parsed: Parsed, reply: Reply, noun: str) -> str:
    """Return what is wrong with a reply that holds no answer, in words for the model."""
    if parsed.malformed:
        return "; ".join(m.error for m in parsed.malformed)
    if parsed.calls:
        return "there are no tools to call here"
    if parsed.contradictory:
        return _CONTRADICTORY
    if not reply.text.strip():
        return reply.empty_because
    if reply.finish == "length":
        return f"it was cut off before a tool call or a {noun}"
    words = " ".join(reply.text[: 10 * _QUOTED].split())
    begins = f"“{words[:_QUOTED].rstrip()}{'…' if len(words) > _QUOTED else ''}”"
    return f"it held neither a tool call nor a {noun}: {neutralise(begins)}"


def _over(status: Status, ending: Ending, reason: str, answer: Answer | None = None) -> dict[str, Any]:
    given = None if answer is None else answer.to_json()
    return {"outcome": {"status": status, "answer": given, "ending": ending, "reason": reason}, "next": "end"}


def _counted(counts: Mapping[str, int], **more: int) -> dict[str, int]:
    return {**counts, **{name: counts.get(name, 0) + n for name, n in more.items() if n}}
