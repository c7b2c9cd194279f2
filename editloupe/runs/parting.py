"""Where two traces of one sample part: the first step at which they are no longer the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from editloupe.backends.request_diff import message_difference
from editloupe.traces.events import MessageEvent
from editloupe.traces.read import Trace


@dataclass(frozen=True, kw_only=True)
class Parting:
    """step: as `editloupe show` numbers them; 0 is the question.   what: of that step.   told: the first difference."""

    step: int
    what: Literal["question", "reply", "observation", "length"]
    told: str


def parting(one: Trace, other: Trace) -> Parting | None:
    """None where the conversations are the same to the end. Equal hashes mean equal beginnings."""
    first = [e.hash for e in one.events if isinstance(e, MessageEvent)]
    second = [e.hash for e in other.events if isinstance(e, MessageEvent)]
    shared = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))
    messages, others = one.messages(), other.messages()
    step = sum(message.role == "assistant" for message in messages[:shared])
    if shared == len(first) == len(second):
        return None
    if shared in (len(first), len(second)):
        longer = "the other one" if shared == len(first) else "this one"
        return Parting(step=step, what="length", told=f"{longer} goes on after it")
    told = (
        message_difference(messages[shared], others[shared])
        .replace("recorded ", "here ", 1)
        .replace(", now ", ", there ", 1)
    )
    if shared == 0:
        return Parting(step=0, what="question", told=told)
    if messages[shared].role == "assistant":
        return Parting(step=step + 1, what="reply", told=told)
    return Parting(step=step, what="observation", told=told)
