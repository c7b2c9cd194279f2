"""Ranks of editors by a score. Plain functions, no I/O."""

from __future__ import annotations

from collections.abc import Mapping

from editloupe.stats.table import Cell

_SAME = 1e-9
"""Difference up to which two scores are a tie."""


def ranks(scores: Mapping[str, float | None]) -> dict[str, Cell]:
    """Return the rank of each name, 1 for the highest score. Names that tie share the better rank; None has no rank."""
    known = [score for score in scores.values() if score is not None]

    def cell(own: float | None) -> Cell:
        if own is None:
            return Cell(name="rank")
        tied = sum(abs(score - own) <= _SAME for score in known) > 1
        return Cell(value=1 + sum(score > own + _SAME for score in known), name="rank", note="tie" if tied else "")

    return {name: cell(own) for name, own in scores.items()}
