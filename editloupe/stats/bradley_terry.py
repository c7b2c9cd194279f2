"""Bradley–Terry: who is how much stronger, from who was preferred to whom. B×k×k arrays hold B resamples at once."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from editloupe.stats.bootstrap import DRAWING, Drawing, Floats, OrNull, interval, numbered, resampled
from editloupe.values import Serializable

_STEPS: Final = 10_000
_CLOSE: Final = 1e-9
_UNLINKED: Final = "no finite strength fits: some editors never won, or never lost, against the others"

Match: TypeAlias = tuple[str, str, float, Hashable]
"""(first, second, share of the win that goes to the first: 1, 0, or ½ for a tie; the source image)."""


@dataclass(frozen=True, kw_only=True)
class Strength(Serializable):
    """One editor."""

    editor: str
    strength: float
    """Log strength, the mean of all editors being 0. An editor that is d stronger than another is preferred with
    probability 1 / (1 + exp(−d)).
    """
    low: float | None = None
    """Lower end of the interval; None if it cannot be computed."""
    high: float | None = None


@dataclass(frozen=True, kw_only=True)
class EditorRanking(Serializable):
    """Editors from the strongest to the weakest."""

    strengths: tuple[Strength, ...]
    """Empty if there is no ranking; `why` then gives the reason."""
    votes: int
    why: OrNull = ""


def rank(matches: Sequence[Match], drawing: Drawing = DRAWING) -> EditorRanking:
    """Return the ranking by at least one match, with intervals resampled by source image."""
    editors = sorted({editor for a, b, *_ in matches for editor in (a, b)})
    place = {editor: i for i, editor in enumerate(editors)}
    cluster, many = numbered([source for *_, source in matches])
    wins = np.zeros((many, len(editors), len(editors)))
    for c, (a, b, share, _) in zip(cluster, matches, strict=True):
        wins[c, place[a], place[b]] += share
        wins[c, place[b], place[a]] += 1 - share
    (found,) = strengths(wins.sum(axis=0)[None])
    if np.isnan(found).any():
        return EditorRanking(strengths=(), votes=len(matches), why=_UNLINKED)
    ends: list[tuple[float | None, float | None]] = [(None, None)] * len(editors)
    if many > 1:
        drawn = strengths(resampled(wins, drawing))
        ends = [interval(one, level=drawing.level) for one in drawn.T]
    listed = [
        Strength(editor=e, strength=float(v), low=low, high=high)
        for e, v, (low, high) in zip(editors, found, ends, strict=True)
    ]
    return EditorRanking(strengths=tuple(sorted(listed, key=lambda s: -s.strength)), votes=len(matches))


def strengths(wins: Floats) -> Floats:
    """Return B×k log strengths (mean 0) from B×k×k wins of row over column; NaN where they do not exist.

    Hunter's minorisation (Annals of Statistics 32, 2004): p_i ← wins_i / Σ_j n_ij / (p_i + p_j), until it stands still. A
    maximum exists where every editor can be reached from every other along wins (his Assumption 1).
    """
    many, k, _ = wins.shape
    reach = ((wins > 0) | np.eye(k, dtype=bool)).astype(np.float64)
    for _ in range(max(1, math.ceil(math.log2(k)))):
        reach = np.minimum(reach @ reach, 1)
    found, log = np.full((many, k), np.nan), np.zeros((many, k))
    left = np.flatnonzero((reach > 0).all(axis=(1, 2)))
    won, met = wins.sum(axis=2), wins + wins.transpose(0, 2, 1)
    for _ in range(_STEPS):
        if not len(left):
            break
        p = np.exp(log[left])
        new = np.log(won[left] / (met[left] / (p[:, :, None] + p[:, None, :])).sum(axis=2))
        new -= new.mean(axis=1, keepdims=True)
        moved = np.abs(new - log[left]).max(axis=1) > _CLOSE
        log[left] = new
        found[left[~moved]] = new[~moved]
        left = left[moved]
    return found
