"""What a visit adds to a run: said before it is written or asked, and only by judges that can be reached."""

from __future__ import annotations

from collections.abc import Callable, Set

from editloupe.backends.base import LMM, reach
from editloupe.runs.setup import Setup
from editloupe.runs.store import RunStore


def reach_new(setup: Setup, store: RunStore, reached: Callable[[LMM], None] = reach) -> None:
    """Try the addresses of those whom a run does not list yet: a mistyped one is never listed. Raises Unavailable."""
    listed = store.entries()
    for one in setup.respondents.values():
        if one.spec.id not in listed:
            reached(one.backend)


def added(setup: Setup, store: RunStore, others: Set[str]) -> list[str]:
    """Return remarks on what a visit adds to a run that has begun: a judge, and metrics.

    others: ids of the other judges of this command.
    """
    names, known = store.judge_names(), store.metrics()
    there = ", ".join(name for id_, name in names.items() if id_ not in {setup.judge.id, *others})
    lines = []
    if there and setup.judge.id not in names:
        lines.append(
            f"{store.folder} already holds findings of {there}; {setup.name} is another judge (by model or settings), "
            "added beside. Nothing there is replaced."
        )
    new = [metric.name for metric in setup.protocol.metrics if metric.id not in known]
    if known and new:
        was, are = ", ".join(metric.name for metric in known.values()), "is" if len(new) == 1 else "are"
        lines.append(f"{store.folder} was asked about {was}. {', '.join(new)} {are} added.")
    return lines
