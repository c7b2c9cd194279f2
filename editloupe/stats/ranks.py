"""Figures that rest on all editors of a run: ranks, and values between the least and the largest. No I/O."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

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


def inverted(values: Sequence[float | None]) -> list[float | None] | None:
    """Return values as 1 at the least and 0 at the largest; None without two that differ, since there is no scale then."""
    known = [value for value in values if value is not None]
    least, most = min(known, default=0.0), max(known, default=0.0)
    if least == most:
        return None
    return [None if value is None else (most - value) / (most - least) for value in values]
