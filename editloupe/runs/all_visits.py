"""The options that stand for all visits to a run: config.yaml asks again all that any of them asked."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import cast

from editloupe.config import folded
from editloupe.errors import ConfigError
from editloupe.scores import Metric, MetricSet
from editloupe.values import Json


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
