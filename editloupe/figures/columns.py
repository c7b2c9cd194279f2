"""What judges and people said of the items of a run or a table, under keys that meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple, TypeAlias

from editloupe.errors import ConfigError
from editloupe.protocols.base import EvalProtocol
from editloupe.scores import Score
from editloupe.values import Sample, sample_key

Key: TypeAlias = tuple[str, str, int, str]
"""(editor, sample id, turn, part); the editor is "" if none is named, the turn 0 for the sample as a whole."""

Answer: TypeAlias = float | str | None
"""A value or a label; None if the judge was asked and has none."""

Ratings: TypeAlias = Mapping[str, float | str]
"""Rater → number or label, of one item."""

Dimension: TypeAlias = Literal["edit_type", "editor"]

DIMENSIONS: Final[Mapping[Dimension, str]] = {"edit_type": "Edit type", "editor": "Editor"}


class Item(NamedTuple):
    """What is known of an item."""

    source: str
    """Shared by the edits of one source image, which are resampled together."""
    edit_type: str | None = None


@dataclass(frozen=True, kw_only=True)
class JudgeColumn:
    """What one judge said, or people as one judge."""

    name: str
    items: Mapping[Key, Item]
    answers: Mapping[str, Mapping[Key, Answer]]
    """By metric."""

    def of(self, metric: str) -> Mapping[Key, Answer]:
        """Return the answers of one metric."""
        return self.answers.get(metric, {})


@dataclass(frozen=True, kw_only=True)
class PeopleSaid:
    """What several people said."""

    name: str
    """The file, or the run, that the ratings are from."""
    items: Mapping[Key, Item]
    """Those that anyone rated."""
    ratings: Mapping[str, Mapping[Key, Ratings]]
    """By metric; of a metric that nobody rated, nothing."""
    notes: tuple[str, ...] = ()
    """What could not be used."""

    def of(self, metric: str) -> Mapping[Key, Ratings]:
        """Return the ratings of one metric."""
        return self.ratings.get(metric, {})

    def as_column(self, name: str) -> JudgeColumn:
        """Return a table of scores as one judge's. Raises ConfigError for an item that several judges scored."""
        answers: dict[str, dict[Key, Answer]] = {}
        for metric, rated in self.ratings.items():
            for key, by in rated.items():
                if len(by) > 1:
                    raise ConfigError(
                        f"{self.name}: item {key[1]!r} has {len(by)} scores for {metric!r} ({', '.join(by)}); expected one "
                        "judge's: give each judge a file of its own"
                    )
                answers.setdefault(metric, {})[key] = next(iter(by.values()))
        return JudgeColumn(name=name, items=self.items, answers=answers)


def editors_of(items: Iterable[Key]) -> list[str]:
    """Return the editors of items, by name; "" for one that is not named."""
    return sorted({editor for editor, *_ in items})


def key_of(score: Score) -> Key:
    """Return what a score is about."""
    return score.editor, score.sample_id, score.turn, score.part


def key_name(key: Key) -> str:
    """Return "EDITOR/SAMPLE", with the turn and the part if it is about one."""
    editor, sample, turn, part = key
    return ", ".join(filter(None, (sample_key(editor, sample), f"turn {turn}" if turn else "", part)))


def with_facts(people: PeopleSaid, samples: Mapping[str, Sample], protocol: EvalProtocol) -> PeopleSaid:
    """Return people's ratings with what a run knows of the items: source image and edit type."""
    named = getattr(protocol, "edit_type_name", str)

    def facts(key: Key, item: Item) -> Item:
        sample = samples.get(sample_key(*key[:2]))
        return item if sample is None else Item(sample.source.sha256, sample.edit_type and named(sample.edit_type))

    return replace(people, items={key: facts(key, item) for key, item in people.items.items()})


def join(items: Mapping[Key, Item], people: PeopleSaid, *, where: str, closed: bool) -> PeopleSaid:
    """Return people's ratings under the keys of these items, with their facts; notes say what did not meet.

    where: what the items are from, for messages.   closed: an item that people rated and that is not there is left out and
    counted (a run holds what was asked); else it stays, without an answer.
    Raises ConfigError if nothing meets, or if editors are named on one side only and cannot be matched.
    """
    renamed = _renamed(items, people, where)
    lost = [key for key in dict.fromkeys(renamed.values()) if key not in items]
    if len(lost) == len(set(renamed.values())):
        theirs, ours = (", ".join(map(key_name, list(keys)[:4])) for keys in (people.items, items))
        raise ConfigError(
            f"none of the {len(lost)} items of {people.name} is in {where}: people rated {theirs}, … and it has {ours}, …"
        )
    notes = list(people.notes)
    if lost:
        first = ", ".join(map(key_name, lost[:4])) + (", …" if len(lost) > 4 else "")
        what = f"not in {where}, and left out" if closed else f"without a row in {where}, and counted as not judged"
        notes.append(f"rated, but {what}: {len(lost)} ({first})")
    kept = {old: new for old, new in renamed.items() if new in items or not closed}

    def facts(old: Key, new: Key) -> Item:
        here, said = items.get(new), people.items[old]
        return said if here is None else Item(here.source, here.edit_type or said.edit_type)

    return replace(
        people,
        items={new: facts(old, new) for old, new in kept.items()},
        ratings={
            metric: {kept[key]: by for key, by in rated.items() if key in kept} for metric, rated in people.ratings.items()
        },
        notes=tuple(notes),
    )


def _renamed(items: Mapping[Key, Item], people: PeopleSaid, where: str) -> dict[Key, Key]:
    """People's key → ours: by editor and sample, or by sample alone if that can mean one edit only."""
    ours, theirs = editors_of(items), editors_of(people.items)
    if (theirs == [""]) == (ours == [""]):
        return {key: key for key in people.items}
    if len(ours) == len(theirs) == 1:
        return {key: (ours[0], *key[1:]) for key in people.items}
    edits = {sample_key(editor, id_): (editor, id_) for editor, id_, *_ in items}
    if theirs == [""] and any(id_ in edits for _, id_, *_ in people.items):
        return {key: (*edits.get(key[1], ("", key[1])), *key[2:]) for key in people.items}
    silent, several = (people.name, where) if theirs == [""] else (where, people.name)
    editors = ", ".join(filter(None, ours if theirs == [""] else theirs))
    raise ConfigError(
        f"{silent} names no editor, and {several} has several ({editors}); both must name them, or neither "
        "(a table in a column editor, or by items written as EDITOR/ITEM)"
    )
