"""Edits with a judge's scores, from a run or from a table, joined with people's ratings of the same edits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from editloupe.errors import ConfigError
from editloupe.imaging.targets import relative_area
from editloupe.parsing import fold
from editloupe.reports.align import Entry
from editloupe.reports.judged import Judged
from editloupe.reports.ratings import Key, Known, Rated, RatingTable, as_rating
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.values import sample_key


def knows(criteria: Sequence[Metric]) -> Known:
    """A criterion's id by id, name or short name, whatever the case and the dashes."""
    names = {fold(name): c.id for c in criteria for name in (c.id, c.name, c.short)}
    return lambda name: names.get(fold(name))


def knows_names(names: Sequence[str]) -> Known:
    """The same for criteria that are names only."""
    known = {fold(name): name for name in names}
    return lambda name: known.get(fold(name))


def entries_of_run(judged: Judged) -> list[Entry]:
    """Every sample of a run, rows that could not be read included, with one judge's values; the worst of its targets'."""
    scores: dict[Key, dict[str, float | str | None]] = {}
    types: dict[Key, str | None] = {}
    for score in judged.scores:
        key = score.editor, score.sample_id
        scores.setdefault(key, {})[score.metric] = score.value
        types[key] = score.edit_type if score.edit_type != "(none)" else None
    found = []
    for key, values in scores.items():
        sample = judged.samples.get(sample_key(*key))
        area = None if sample is None else relative_area(sample)
        source = key if sample is None else sample.source.sha256
        found.append(Entry(key=key, source=source, edit_type=types[key], area=area, scores=values))
    return found


def ratings_of_run(store: RunStore, known: Known) -> RatingTable:
    """The columns human_<criterion>[_<rater>] of the run's samples.

    Raises ConfigError where there are none.
    """
    items: dict[Key, Rated] = {}
    unknown: dict[str, int] = {}
    broken: list[str] = []
    for sample in store.samples.values():
        ratings: dict[str, dict[str, float | str]] = {}
        for name, by_rater in sample.human.items():
            criterion = known(name)
            if criterion is None:
                unknown[name] = unknown.get(name, 0) + len(by_rater)
                continue
            for rater, raw in by_rater.items():
                try:
                    value = as_rating(raw)
                except ValueError as error:
                    broken.append(f"human_{name} of {sample.key}: {error}; left out")
                    continue
                if value is not None:
                    ratings.setdefault(criterion, {})[rater] = value
        if ratings:
            items[sample.editor, sample.id] = Rated(ratings=ratings)
    notes = (*(f"human_{name}: no criterion of the rubric; {n} ratings left out" for name, n in unknown.items()), *broken)
    if not items:
        told = f" ({'; '.join(notes)})" if notes else ""
        raise ConfigError(
            f"{store.folder}: its samples carry no human labels{told}; name a table with --human FILE, or add columns "
            "human_<criterion> to the metadata and judge again"
        )
    criteria = dict.fromkeys(c for rated in items.values() for c in rated.ratings)
    return RatingTable(file=store.folder / "samples.jsonl", items=items, criteria=tuple(criteria), notes=notes)


def entries_of_table(table: RatingTable) -> list[Entry]:
    """A table of scores by one judge. Raises ConfigError where an item has scores by several."""
    found = []
    for key, rated in table.items.items():
        for criterion, by_rater in rated.ratings.items():
            if len(by_rater) > 1:
                raise ConfigError(
                    f"{table.file}: item {key[1]!r} has {len(by_rater)} scores for {criterion!r} ({', '.join(by_rater)}); "
                    "expected one judge's: give each judge a file of its own"
                )
        scores = {criterion: next(iter(by_rater.values()), None) for criterion, by_rater in rated.ratings.items()}
        source = rated.source or key[1]
        found.append(Entry(key=key, source=source, edit_type=rated.edit_type, area=rated.area, scores=scores))
    return found


def join(entries: Sequence[Entry], people: RatingTable, *, where: str, closed: bool) -> tuple[list[Entry], list[str]]:
    """The entries with people's ratings, and notes on what did not meet.

    where: what the entries are from, for messages.   closed: an item that people rated and the entries do not have is left
    out and counted (a run holds what was asked); else it is one without a score.
    Raises ConfigError where nothing meets, or where editors are named on one side only and cannot be told.
    """
    rated = _matched(entries, people, where)
    found = [
        replace(
            e,
            ratings=rated[e.key].ratings if e.key in rated else {},
            edit_type=e.edit_type or (rated[e.key].edit_type if e.key in rated else None),
            area=e.area if e.area is not None or e.key not in rated else rated[e.key].area,
        )
        for e in entries
    ]
    known = {e.key for e in entries}
    missing = [key for key in rated if key not in known]
    if len(missing) == len(rated):
        names = ", ".join(list(dict.fromkeys(sample_key(*e.key) for e in entries))[:4])
        theirs = ", ".join([sample_key(*key) for key in rated][:4])
        raise ConfigError(
            f"none of the {len(rated)} items of {people.file} is in {where}: people rated {theirs}, … and it has {names}, …"
        )
    notes = []
    if missing:
        first = ", ".join(sample_key(*key) for key in missing[:4]) + (", …" if len(missing) > 4 else "")
        if closed:
            notes.append(f"rated, but not in {where}, and left out: {len(missing)} ({first})")
        else:
            notes.append(f"rated, but without a row in {where}, and counted as not judged: {len(missing)} ({first})")
            found += [
                Entry(
                    key=key,
                    source=rated[key].source or key[1],
                    edit_type=rated[key].edit_type,
                    area=rated[key].area,
                    ratings=rated[key].ratings,
                )
                for key in missing
            ]
    return found, notes


def _matched(entries: Sequence[Entry], people: RatingTable, where: str) -> dict[Key, Rated]:
    """People's items under the entries' keys: by editor and item, or by item alone where that can mean one edit only."""
    ours = tuple(dict.fromkeys(e.key[0] for e in entries))
    theirs = tuple(dict.fromkeys(editor for editor, _ in people.items))
    if theirs == ("",) and ours != ("",):
        if len(ours) == 1:
            return {(ours[0], item): rated for (_, item), rated in people.items.items()}
        keys = {sample_key(*e.key): e.key for e in entries}
        if any(item in keys for _, item in people.items):
            return {keys.get(item, ("", item)): rated for (_, item), rated in people.items.items()}
        raise ConfigError(
            f"{people.file} names no editor, and {where} has several ({', '.join(filter(None, ours))}); "
            "add a column editor, or write items as EDITOR/ITEM"
        )
    if ours == ("",) and theirs != ("",):
        if len(theirs) == 1:
            return {("", item): rated for (_, item), rated in people.items.items()}
        raise ConfigError(
            f"{where} names no editor, and {people.file} has several ({', '.join(filter(None, theirs))}); "
            "both must name them, or neither"
        )
    return dict(people.items)
