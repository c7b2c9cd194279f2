"""What a visit adds to a run for its own judges alone, said before anything is spent."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path

from editloupe.config import RunConfig
from editloupe.data.run_file import NAME
from editloupe.errors import ConfigError
from editloupe.runs.record import RunRecord
from editloupe.runs.settings import read_config
from editloupe.runs.setup import Setup
from editloupe.values import Json


def added(folder: Path, setup: Setup, here: Collection[str]) -> list[str]:
    """Return remarks on what a visit adds to the run in a folder: a judge, questions or samples that its others have not.

    here: ids of all judges of this command. Nothing is said where there is no run, one that cannot be read, or another.
    """
    with suppress(ConfigError):  # those who write to the run say what is wrong with it
        if (folder / NAME).exists() and not (run := RunRecord.read_info(folder)).spec.differs_from(setup.spec):
            return _added(run, setup, here)
    return []


def _added(run: RunRecord, setup: Setup, here: Collection[str]) -> list[str]:
    names, known = run.judge_names(), run.metrics()
    others = [name for id_, name in names.items() if id_ not in here]
    who = setup.name if len(here) == 1 else "the judges of this command"
    alone = f", for {who} alone: {', '.join(others)} {'has' if len(others) == 1 else 'have'} none of " if others else ""
    lines = []
    if others and setup.judge.id not in names:
        is_another = "is another judge" if len(here) == 1 else "are other judges"
        lines.append(
            f"{run.folder} already holds findings of {', '.join(others)}; {who} {is_another} (by model or settings), added "
            "beside. Nothing there is replaced."
        )
    if new := [metric.name for metric in setup.protocol.metrics if metric.id not in known]:
        was = ", ".join(metric.name for metric in known.values())
        one = len(new) == 1
        these = alone and alone + ("it" if one else "them")
        lines.append(f"{run.folder} was asked about {was}. {', '.join(new)} {'is' if one else 'are'} added{these}.")
    if others and (limits := _limits(read_config(run.folder), setup.config)):
        lines.append(f"{run.folder} was asked about {limits}. More samples may be added{alone}them.")
    return lines


def _limits(before: Mapping[str, Json], now: RunConfig) -> str:
    """Return to what a run was limited, in words, where a visit asks for more; "" where it does not."""
    limit, samples = before.get("limit"), before.get("sample")
    if isinstance(samples, list) and samples:
        more = not now.sample or set(now.sample) - set(map(str, samples))
        return f"{len(samples)} named sample{'s' * (len(samples) > 1)}" if more else ""
    if isinstance(limit, int) and not now.sample and (now.limit is None or now.limit > limit):
        return f"the first {limit} samples" if limit > 1 else "the first sample"
    return ""
