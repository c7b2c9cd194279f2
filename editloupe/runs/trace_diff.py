"""The first step at which two traces of one sample differ."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from editloupe.backends.recorded import message_difference
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
    mine, others = ([e for e in trace.events if isinstance(e, MessageEvent)] for trace in (one, other))
    step = 0
    for a, b in zip_longest(mine, others):
        if a is None or b is None:
            longer = "the other one" if a is None else "this one"
            return Divergence(step=step, part="length", message=f"{longer} goes on after it")
        here, there = a.content, b.content
        # Equal hashes mean equal beginnings.
        if a.hash != b.hash:
            message = message_difference(here, there, was="here", is_="there")
            if a is mine[0]:
                return Divergence(step=0, part="question", message=message)
            if here.role == "assistant":
                return Divergence(step=step + 1, part="reply", message=message)
            return Divergence(step=step, part="observation", message=message)
        step += here.role == "assistant"
    return None
