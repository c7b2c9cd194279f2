"""The first step at which two traces of one sample differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from editloupe.backends.request_diff import message_difference
from editloupe.traces.events import MessageEvent
from editloupe.traces.read import Trace


@dataclass(frozen=True, kw_only=True)
class Divergence:
    """The place where two traces begin to differ."""

    step: int
    """Step as `editloupe show` numbers it; 0 is the question."""
    part: Literal["question", "reply", "observation", "length"]
    """The part of the step that differs. "length": one trace ends after it."""
    message: str
    """The first difference in words."""


def first_divergence(one: Trace, other: Trace) -> Divergence | None:
    """Return where two conversations begin to differ; None if they are the same to the end."""
    first = [e.hash for e in one.events if isinstance(e, MessageEvent)]
    second = [e.hash for e in other.events if isinstance(e, MessageEvent)]
    # Equal hashes mean equal beginnings.
    shared = next((i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), min(len(first), len(second)))
    messages, others = one.messages(), other.messages()
    step = sum(message.role == "assistant" for message in messages[:shared])
    if shared == len(first) == len(second):
        return None
    if shared in (len(first), len(second)):
        longer = "the other one" if shared == len(first) else "this one"
        return Divergence(step=step, part="length", message=f"{longer} goes on after it")
    text = message_difference(messages[shared], others[shared], was="here", is_="there")
    if shared == 0:
        return Divergence(step=0, part="question", message=text)
    if messages[shared].role == "assistant":
        return Divergence(step=step + 1, part="reply", message=text)
    return Divergence(step=step, part="observation", message=text)
