"""A run that grows by visits: the options that stand for all of them, and what a visit adds for its own judges alone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, cast

from editloupe.config import RunConfig, folded
from editloupe.errors import ConfigError
from editloupe.scores import Metric, MetricSet
from editloupe.values import Json

if TYPE_CHECKING:
    from editloupe.runs.setup import Setup
    from editloupe.runs.store import RunStore


def of_all(
    before: Mapping[str, Json],
    now: Mapping[str, Json],
    *,
    known: Collection[str],
    asked: Collection[str],
    free: Collection[str],
    metrics: Iterable[Metric],
) -> dict[str, Json]:
    """Return the options for config.yaml by which all that the visits to a run asked is asked again.

    before: those of earlier visits.   now: those of this one. Where it asks about a part of the data, the others of before
    stay.   known, asked: keys of the run's samples before, and of those of this visit.   free: options of the protocol in
    which visits may differ.   metrics: of the whole run.
    Raises ConfigError for options of before that cannot be read.
    """
    earlier, later = folded(before), folded(now)
    base, given = (before, earlier) if later.get("limit") or later.get("sample") else (now, later)
    options = {name: value for name, value in given["option"].items() if name not in free}
    for name in free:
        both = [visit["option"].get(name) for visit in (earlier, later)]
        # Who names none asks for all.
        if None not in both:
            options[name] = both[0] if both[0] == both[1] else _joined(_words(both[0]), _words(both[1]), metrics)
    found = {**given, "option": options, "limit": None, "sample": None}
    if all(visit.get("limit") or visit.get("sample") for visit in (earlier, later)):
        if known and not set(asked) - set(known):
            found |= {name: earlier.get(name) for name in ("limit", "sample")}
        elif not (earlier.get("sample") or later.get("sample")):
            found["limit"] = max(earlier["limit"], later["limit"])
        else:
            found["sample"] = list(dict.fromkeys((*known, *asked)))
    # In the order of the file.
    return {name: found[name] for name in dict.fromkeys((*base, *found)) if found.get(name) not in (None, {}, [])}


def _words(value: Json) -> list[str]:
    return [word.strip() for word in (value.split(",") if isinstance(value, str) else map(str, cast("list[Json]", value)))]


def _joined(before: Sequence[str], now: Sequence[str], metrics: Iterable[Metric]) -> str:
    """Return the names of both, each metric once: it may be named by its id and by its short name."""
    listed, found = MetricSet(id="", metrics=tuple(metrics)), dict[str, str]()
    for word in (*before, *now):
        key = word.casefold()
        with suppress(ConfigError):
            key = listed.metric(word).id
        found.setdefault(key, word)
    return ",".join(found.values())


def added(store: RunStore, setup: Setup, here: Collection[str], before: Mapping[str, Json]) -> list[str]:
    """Return remarks on what a visit adds to a run: a judge, and what its other judges were not asked about.

    store: with run.json at least.   here: ids of all judges of this command.   before: the options of its config.yaml.
    """
    if store.spec.differs_from(setup.spec):
        return []
    names, known = store.judge_names(), store.metrics()
    others = ", ".join(name for id_, name in names.items() if id_ not in here)
    who = setup.name if len(here) == 1 else "the judges of this command"
    asked = {metric.id: metric for metric in setup.protocol.metrics}
    alone = f", for {who} alone: {others} {'has' if ', ' not in others else 'have'} none of " if others else ""
    lines = []
    if others and setup.judge.id not in names:
        is_another = "is another judge" if len(here) == 1 else "are other judges"
        lines.append(
            f"{store.folder} already holds findings of {others}; {who} {is_another} (by model or settings), added beside. "
            "Nothing there is replaced."
        )
    if new := [metric.name for id_, metric in asked.items() if id_ not in known]:
        was = ", ".join(metric.name for metric in known.values())
        these = alone and alone + ("it" if len(new) == 1 else "them")
        lines.append(f"{store.folder} was asked about {was}. {', '.join(new)} {_is(new)} added{these}.")
    left = [metric.name for id_, metric in known.items() if id_ not in asked]
    if left and others and setup.judge.id not in names:
        lines.append(f"{store.folder} was asked about {', '.join(left)} too, which {who} is not.")
    if others and (limits := _limits(before, setup.config)):
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
