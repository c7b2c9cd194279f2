"""What a visit adds to a run: said before it is written or asked, and only by judges that can be reached."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path

from editloupe.backends.base import LMM, reach
from editloupe.config import RunConfig
from editloupe.errors import ConfigError
from editloupe.runs.setup import Setup
from editloupe.runs.store import RunStore
from editloupe.values import Json


def begun(folder: Path) -> RunStore | None:
    """Return the run that a folder holds, with run.json alone; None for no run, and for one that those refuse who write."""
    try:
        store = RunStore.read_info(folder)
        store.entries(), store.metrics()
    except ConfigError:
        return None
    return store


def reach_new(setup: Setup, store: RunStore | None, reached: Callable[[LMM], None] = reach) -> None:
    """Try the addresses of those whom a run does not list yet: a mistyped one is never listed. Raises Unavailable."""
    listed = {} if store is None else store.entries()
    for one in setup.respondents.values():
        if one.spec.id not in listed:
            reached(one.backend)


def added(setup: Setup, store: RunStore | None, others: Set[str]) -> list[str]:
    """Return remarks on what a visit adds to a run: a judge, and what its other judges were not asked about.

    others: ids of the other judges of this command.
    """
    if store is None or store.spec.differs_from(setup.spec):
        return []
    names, known, before = store.judge_names(), store.metrics(), store.config()
    here = {setup.judge.id, *others}
    there = ", ".join(name for id_, name in names.items() if id_ not in here)
    who = setup.name if len(here) == 1 else "the judges of this command"
    asked = {metric.id: metric for metric in setup.protocol.metrics}
    alone = f", for {who} alone: {there} {'has' if ', ' not in there else 'have'} none of " if there else ""
    lines = []
    if there and setup.judge.id not in names:
        is_another = "is another judge" if len(here) == 1 else "are other judges"
        lines.append(
            f"{store.folder} already holds findings of {there}; {who} {is_another} (by model or settings), added beside. "
            "Nothing there is replaced."
        )
    if new := [metric.name for id_, metric in asked.items() if id_ not in known]:
        was = ", ".join(metric.name for metric in known.values())
        these = alone and alone + ("it" if len(new) == 1 else "them")
        lines.append(f"{store.folder} was asked about {was}. {', '.join(new)} {_is(new)} added{these}.")
    left = [metric.name for id_, metric in known.items() if id_ not in asked]
    if left and there and setup.judge.id not in names:
        lines.append(f"{store.folder} was asked about {', '.join(left)} too, which {who} is not.")
    if there and (limits := _limits(before, setup.config)):
        lines.append(f"{store.folder} was asked about {limits}. More samples may be added{alone}them.")
    return lines


def _is(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _limits(before: Mapping[str, Json], now: RunConfig) -> str:
    """Return to what a run was limited, in words, where a visit asks for more; "" where it does not."""
    limit, samples = before.get("limit"), before.get("sample")
    if isinstance(samples, list) and samples:
        more = not now.sample or set(now.sample) - set(map(str, samples))
        return f"{len(samples)} named sample{'s' * (len(samples) > 1)}" if more else ""
    if isinstance(limit, int) and not now.sample and (now.limit is None or now.limit > limit):
        return f"the first {limit} samples" if limit > 1 else "the first sample"
    return ""
