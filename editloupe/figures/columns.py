"""The join of judges and people: a column of answers each, on (editor, sample, turn, part) and metric."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean
from typing import Final, Literal, TypeAlias

from editloupe.errors import ConfigError
from editloupe.figures.judged import Judged
from editloupe.imaging.targets import AREAS, area_name, relative_area
from editloupe.protocols.base import EvalProtocol
from editloupe.scores import Binary, Score
from editloupe.values import Sample, sample_key

Key: TypeAlias = tuple[str, str, int, str]
"""(editor, sample id, turn, part); the editor is "" if none is named, the turn 0 for the sample as a whole."""

Answer: TypeAlias = float | str | None
"""A value or a label; None if the judge was asked and has none."""

Dimension: TypeAlias = Literal["edit_type", "area", "editor"]

DIMENSIONS: Final[Mapping[Dimension, str]] = {"edit_type": "Edit type", "area": "Target area", "editor": "Editor"}


@dataclass(frozen=True, kw_only=True)
class RatedItem:
    """What is judged."""

    key: Key
    source: Hashable
    """Shared by the edits of one source image, which are resampled together."""
    edit_type: str | None = None
    area: float | None = None
    """Of the targets, 0 to 1 of the image; None if no box is known."""


@dataclass(frozen=True, kw_only=True)
class HumanLabels:
    """Ratings by several raters, from a run's samples or from a table."""

    source: str
    """The file that they are from."""
    items: Mapping[Key, RatedItem]
    """In the order of the file."""
    ratings: Mapping[Key, Mapping[str, Mapping[str, float | str]]]
    """By item, metric and rater."""
    metrics: tuple[str, ...]
    """Those that have a rating or a column."""
    notes: tuple[str, ...] = ()
    """What could not be used."""


@dataclass(frozen=True, kw_only=True)
class JudgeColumn:
    """One judge's answers."""

    name: str
    items: Mapping[Key, RatedItem]
    answers: Mapping[str, Mapping[Key, Answer]] = field(default_factory=dict)
    """By metric and item."""

    def of(self, metric: str) -> Mapping[Key, Answer]:
        """Return the answers of one metric by item."""
        return self.answers.get(metric, {})


def key_of(score: Score) -> Key:
    """Return what a score is about."""
    return score.editor, score.sample_id, score.turn, score.part


def column_of(judged: Judged) -> JudgeColumn:
    """Return the column of one judge of a run, with rows of the data that could not be read.

    An answer is the value; of right-or-wrong metrics the label, where there is one: two wrong answers need not be the same.
    """
    items: dict[Key, RatedItem] = {}
    answers: dict[str, dict[Key, Answer]] = {}
    binary = {metric.id for metric in judged.metrics.metrics if isinstance(metric.domain, Binary)}
    for score in judged.scores:
        key, sample = key_of(score), judged.samples.get(score.key)
        labelled = score.metric in binary and score.label is not None
        answers.setdefault(score.metric, {})[key] = score.label if labelled else score.value
        if key not in items:
            source, area = (score.sample_id, None) if sample is None else (sample.source.sha256, relative_area(sample))
            kind = score.edit_type if score.edit_type != "(none)" else None
            items[key] = RatedItem(key=key, source=source, edit_type=kind, area=area)
    return JudgeColumn(name=judged.name, items=items, answers=answers)


def column_of_table(table: HumanLabels) -> JudgeColumn:
    """Return a table of scores as one judge's column. Raises ConfigError for an item that several judges scored."""
    answers: dict[str, dict[Key, Answer]] = {}
    for key, ratings in table.ratings.items():
        for metric, by_rater in ratings.items():
            if len(by_rater) > 1:
                raise ConfigError(
                    f"{table.source}: item {key[1]!r} has {len(by_rater)} scores for {metric!r} ({', '.join(by_rater)}); "
                    "expected one judge's: give each judge a file of its own"
                )
            answers.setdefault(metric, {})[key] = next(iter(by_rater.values()), None)
    return JudgeColumn(name=table.source, items=table.items, answers=answers)


def editors_of(column: JudgeColumn) -> JudgeColumn:
    """Return a column with an item an editor: the mean of the values that it has for the editor's samples."""
    keys = dict.fromkeys(_of_editor(key[0]) for key in column.items)
    found: dict[str, dict[Key, list[float]]] = {metric: {key: [] for key in keys} for metric in column.answers}
    for metric, answers in column.answers.items():
        for key, answer in answers.items():
            if isinstance(answer, float):
                found[metric][_of_editor(key[0])].append(answer)
    means = {metric: {key: fmean(v) if v else None for key, v in own.items()} for metric, own in found.items()}
    return JudgeColumn(name=column.name, items={key: RatedItem(key=key, source=key[1]) for key in keys}, answers=means)


def rated_editors(people: HumanLabels) -> HumanLabels:
    """Return people's ratings of editors: each rater's mean over the editor's samples.

    A table that names no editors rates editors itself: its items are their names.
    """
    values: dict[Key, dict[str, dict[str, list[float]]]] = {}
    for (editor, sample, *_), ratings in people.ratings.items():
        own = values.setdefault(_of_editor(editor or sample), {})
        for metric, by_rater in ratings.items():
            for rater, rating in by_rater.items():
                if not isinstance(rating, str):
                    own.setdefault(metric, {}).setdefault(rater, []).append(rating)
    means = {
        key: {metric: {rater: fmean(v) for rater, v in by_rater.items()} for metric, by_rater in own.items()}
        for key, own in values.items()
    }
    return replace(people, items={key: RatedItem(key=key, source=key[1]) for key in values}, ratings=means)


def with_facts(people: HumanLabels, samples: Mapping[str, Sample], protocol: EvalProtocol) -> HumanLabels:
    """Return people's ratings with what a run knows of the items: source image, edit type, area of the targets."""
    named = getattr(protocol, "edit_type_name", str)
    items = {}
    for key, item in people.items.items():
        sample = samples.get(sample_key(key[0], key[1]))
        if sample is not None:
            kind = None if sample.edit_type is None else named(sample.edit_type)
            item = replace(item, source=sample.source.sha256, edit_type=kind, area=relative_area(sample))
        items[key] = item
    return replace(people, items=items)


def _of_editor(name: str) -> Key:
    return "", name, 0, ""


def join(
    items: Mapping[Key, RatedItem], people: HumanLabels, *, where: str, closed: bool
) -> tuple[dict[Key, RatedItem], HumanLabels]:
    """Return the items that are judged, and people's ratings under their keys; its notes say what did not meet.

    where: what the items are from, for messages.   closed: an item that people rated and that is not there is left out and
    counted (a run holds what was asked); else it joins, without an answer.
    Raises ConfigError if nothing meets, or if editors are named on one side only and cannot be matched.
    """
    keys = _matched(items, people, where)
    missing = [key for key in keys if key not in items]
    if len(missing) == len(keys):
        ours, theirs = (", ".join(list(dict.fromkeys(map(key_name, some)))[:4]) for some in (items, keys))
        raise ConfigError(
            f"none of the {len(keys)} items of {people.source} is in {where}: people rated {theirs}, … and it has {ours}, …"
        )
    found, notes = dict(items), list(people.notes)
    for key, other in keys.items():
        rated = people.items[other]
        if (own := found.get(key)) is not None:
            # What only the table of ratings says.
            area = rated.area if own.area is None else own.area
            found[key] = replace(own, edit_type=own.edit_type or rated.edit_type, area=area)
        elif not closed:
            found[key] = replace(rated, key=key)
    if missing:
        first = ", ".join(map(key_name, missing[:4])) + (", …" if len(missing) > 4 else "")
        what = f"not in {where}, and left out" if closed else f"without a row in {where}, and counted as not judged"
        notes.append(f"rated, but {what}: {len(missing)} ({first})")
    ratings = {key: people.ratings[other] for key, other in keys.items() if key in found}
    return found, replace(people, items=found, ratings=ratings, notes=tuple(notes))


def key_name(key: Key) -> str:
    """Return "EDITOR/SAMPLE", with the turn and the part if it is about one."""
    editor, sample, turn, part = key
    return ", ".join(filter(None, (sample_key(editor, sample), f"turn {turn}" if turn else "", part)))


def groups(items: Sequence[RatedItem], dimension: Dimension) -> dict[str, list[int]]:
    """Return the places of the items by edit type, area (smallest first) or editor; {} if none of them has one."""
    found: dict[str, list[int]] = {}
    for index, item in enumerate(items):
        if dimension == "area":
            name = None if item.area is None else area_name(item.area)
        else:
            name = item.key[0] if dimension == "editor" else item.edit_type
        found.setdefault(name or "", []).append(index)
    if set(found) <= {""}:
        return {}
    if dimension == "area":
        order = [*(name for _, name in AREAS), ""]
        found = dict(sorted(found.items(), key=lambda pair: order.index(pair[0])))
    return {name or ("(no area)" if dimension == "area" else "(none)"): places for name, places in found.items()}


def _matched(items: Iterable[Key], people: HumanLabels, where: str) -> dict[Key, Key]:
    """An item's key → people's: by editor and sample, or by sample alone if that can mean one edit only."""
    ours, theirs = (tuple(dict.fromkeys(key[0] for key in some)) for some in (items, people.items))
    if (theirs == ("",)) == (ours == ("",)):
        return {key: key for key in people.items}
    if theirs == ("",):
        names = {sample_key(*key[:2]): key[:2] for key in items}
        if len(ours) == 1:
            return {(ours[0], *key[1:]): key for key in people.items}
        if any(key[1] in names for key in people.items):
            return {(*names.get(key[1], ("", key[1])), *key[2:]): key for key in people.items}
        raise ConfigError(
            f"{people.source} names no editor, and {where} has several ({', '.join(filter(None, ours))}); "
            "add a column editor, or write items as EDITOR/ITEM"
        )
    if len(theirs) == 1:
        return {("", *key[1:]): key for key in people.items}
    raise ConfigError(
        f"{where} names no editor, and {people.source} has several ({', '.join(filter(None, theirs))}); "
        "both must name them, or neither"
    )
