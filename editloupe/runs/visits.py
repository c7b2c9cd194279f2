"""What a visit adds to a run for its own judges alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from pathlib import Path

from editloupe.config import RunConfig
from editloupe.errors import ConfigError
from editloupe.runs.setup import Setup
from editloupe.runs.store import RunStore
from editloupe.values import Json


def added(setup: Setup, folder: Path, others: Set[str]) -> list[str]:
    """Return remarks on what a visit adds to the run in a folder: a judge, and what its other judges were not asked about.

    others: ids of the other judges of this command.
    """
    try:
        store = RunStore.read_info(folder)
        names, known, before = store.judge_names(), store.metrics(), store.config()
    except ConfigError:
        return []  # no run, or one that cannot be read, which those say who write to it
    if store.spec.differs_from(setup.spec):
        return []
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
