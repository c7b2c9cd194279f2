"""The first step at which two traces of one sample differ."""

from __future__ import annotations

from itertools import zip_longest

from editloupe.traces.difference import first_difference
from editloupe.traces.events import MessageEvent
from editloupe.traces.read import Trace


def first_divergence(one: Trace, other: Trace) -> tuple[int, str] | None:
    """Return the step at which two conversations part, as `editloupe show` numbers it, and in words what differs there.

    Step 0 is the question. Return None if they are the same to the end.
    """
    mine, others = ([e for e in trace.events if isinstance(e, MessageEvent)] for trace in (one, other))
    step = 0
    for place, (a, b) in enumerate(zip_longest(mine, others)):
        if a is None or b is None:
            return step, f"at step {step}: {'this' if b is None else 'the other'} one goes on after it"
        reply = a.content.role == "assistant"
        step += reply
        # Equal hashes mean equal beginnings.
        if a.hash != b.hash:
            where = f"at step {step}, in {'the reply' if reply else 'what was observed'}" if place else "in the question"
            return step, f"{where}: {first_difference(a.message, b.message, names=('here', 'there'))}"
    return None
