"""Equations 5 and 6 of UnicEdit-10M: atomic tasks of two instructions, and how far they agree. Pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from editloupe.answers import fold

WEIGHT: Final = 0.5
"""w of Eq. 6 in the paper's experiments."""

AtomicTask: TypeAlias = Mapping[str, Any]
"""{"object": …, "action": …}: Eq. 5's (o, a)."""


class PairsError(ValueError):
    """The pairs cannot be read as a matching of the two lists."""


@dataclass(frozen=True, kw_only=True)
class TaskMatch:
    """What two sets of atomic tasks have in common."""

    hits: int
    """|T_GT ∩ T_GEN|."""
    reference: int
    """|T_GT|."""
    extra: int
    """|T_GEN \\ T_GT|."""

    @property
    def full(self) -> bool:
        """Whether both sets are the same and not empty."""
        return 0 < self.reference == self.hits and self.extra == 0

    def accuracy(self, w: float = WEIGHT) -> float | None:
        """Return Eq. 6: hits ÷ reference − w · extra ÷ reference; at most 1, not clamped below.

        None where the reference has no task: the equation divides by their number.
        """
        return None if self.reference == 0 else (self.hits - w * self.extra) / self.reference


def by_pairs(reference: Sequence[AtomicTask], restated: Sequence[AtomicTask], pairs: Sequence[Sequence[int]]) -> TaskMatch:
    """Return what two lists have in common by pairs of places, counted from 1: in `reference`, then in `restated`.

    A list is a set: a task that stands twice in it, after folding case and punctuation, counts once.
    Raises PairsError for a place outside a list, and for a task in two pairs.
    """
    for side, (name, tasks) in enumerate((("reference", reference), ("restated", restated))):
        places = [pair[side] for pair in pairs]
        if outside := [place for place in places if not 1 <= place <= len(tasks)]:
            raise PairsError(f"a pair names task {outside[0]} of {name}, which has tasks 1 to {len(tasks)}")
        if twice := [place for place in places if places.count(place) > 1]:
            raise PairsError(f"two pairs name task {twice[0]} of {name}")
    first, second = _sets(reference), _sets(restated)
    hits = {(first[i - 1], second[j - 1]) for i, j in pairs}
    if len(hits) > min(len({i for i, _ in hits}), len({j for _, j in hits})):
        raise PairsError("a task that stands twice is paired with two different ones")
    return TaskMatch(hits=len(hits), reference=len(set(first)), extra=len(set(second)) - len(hits))


def strictly(reference: Sequence[AtomicTask], restated: Sequence[AtomicTask]) -> TaskMatch:
    """Return what two lists have in common by equal texts of object and action, after folding case and punctuation."""
    first, second = set(map(_folded, reference)), set(map(_folded, restated))
    return TaskMatch(hits=len(first & second), reference=len(first), extra=len(second - first))


def _folded(task: AtomicTask) -> tuple[str, str]:
    return fold(str(task["object"])), fold(str(task["action"]))


def _sets(tasks: Sequence[AtomicTask]) -> list[int]:
    """Return for each task the place of the first one with the same text."""
    texts = [_folded(task) for task in tasks]
    return [texts.index(text) for text in texts]
