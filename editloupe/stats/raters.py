"""How far raters agree among themselves: the ceiling for any judge that is held against them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from editloupe.stats.agreement import DECIMALS, Paired, resampled_correlation
from editloupe.stats.bootstrap import (
    DRAWING,
    LARGEST,
    Averaging,
    Drawing,
    Estimate,
    Floats,
    Undefined,
    averaged,
    in_order,
    interval,
    numbered,
    resampled,
)
from editloupe.stats.weighted import Level, alpha

MOST_VALUES: Final = 30
"""Distinct ratings up to which figures on them are resampled: each resample holds their square."""


_TOO_LARGE: Final = "people's ratings are too large to compute with"


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The ratings of several people."""

    ratings: Floats
    """raters×n float64; NaN where one did not rate."""
    raters: tuple[str, ...]
    """Their names."""
    clusters: tuple[Hashable, ...]
    """The source image of each item."""

    @classmethod
    def of(cls, items: Sequence[Mapping[str, float]], clusters: Sequence[Hashable]) -> Panel:
        """From each item's ratings by rater."""
        raters = tuple(sorted({name for item in items for name in item}))
        ratings = [[round(item[name], DECIMALS) if name in item else np.nan for item in items] for name in raters]
        return cls(
            ratings=np.array(ratings, dtype=float).reshape(len(raters), len(items)),
            raters=raters,
            clusters=tuple(clusters),
        )

    @property
    def too_large(self) -> bool:
        """Return whether squares of the ratings would overflow."""
        return bool((np.abs(self.ratings[~np.isnan(self.ratings)]) > LARGEST).any())

    @property
    def counts(self) -> npt.NDArray[np.intp]:
        """n: how many rated each item."""
        found: npt.NDArray[np.intp] = (~np.isnan(self.ratings)).sum(axis=0)
        return found


def ceiling(
    panel: Panel, *, ordered: bool = True, how: Averaging = "fisher", drawing: Drawing = DRAWING
) -> dict[str, Estimate]:
    """Fleiss' kappa, Krippendorff's alpha and, on ordered ratings, each rater's Spearman correlation with the others' mean.

    asked: items that anyone rated; judged: those that a figure can use (two raters; for Fleiss as many as most items have).
    """
    rated = panel.counts > 0
    clusters = tuple(c for c, there in zip(panel.clusters, rated, strict=True) if there)
    panel = Panel(ratings=panel.ratings[:, rated], raters=panel.raters, clusters=clusters)
    levels: tuple[Level, ...] = ("nominal", "ordinal", "interval") if ordered else ("nominal",)
    if panel.too_large:
        names = ("fleiss_kappa", *(f"alpha_{name}" for name in levels), *(("rater_vs_others",) if ordered else ()))
        return dict.fromkeys(names, _none(panel, panel.counts > 1, _TOO_LARGE))
    found = {"fleiss_kappa": _fleiss(panel, drawing)}
    found |= {f"alpha_{name}": _alpha(panel, name, drawing) for name in levels}
    if ordered:
        found["rater_vs_others"] = rater_vs_others(panel, how, drawing)[0]
    return found


def rater_vs_others(
    panel: Panel, how: Averaging, drawing: Drawing, frame: Sequence[Hashable] | None = None
) -> tuple[Estimate, Floats | None]:
    """Spearman's rho of each rater with the mean of the others, averaged over raters as `how` says; and its resamples.

    frame: the clusters that are drawn, where they are more than those of this panel.
    """
    if panel.too_large:
        return _none(panel, panel.counts > 1, _TOO_LARGE), None
    frame = in_order(panel.clusters) if frame is None else frame
    found, why = list[tuple[float, Floats]](), "fewer than 2 raters share an item"
    for i in range(len(panel.raters)):
        others = np.delete(panel.ratings, i, axis=0)
        present = (~np.isnan(others)).sum(axis=0)
        mean: Floats = np.where(present, np.nansum(others, axis=0) / np.maximum(present, 1), np.nan).round(DECIMALS)
        names = f"rater {panel.raters[i]}", "the others"
        pair = Paired(x=panel.ratings[i], y=mean, clusters=panel.clusters, names=names)
        if not pair.both.any():
            continue
        try:
            found.append(resampled_correlation("spearman", pair, frame, drawing))
        except Undefined as error:
            why = str(error)
    base = replace(_none(panel, panel.counts > 1, ""), clusters=len(set(panel.clusters)))
    return averaged(found, base, how, level=drawing.level) if found else (replace(base, why=why), None)


def _alpha(panel: Panel, scale: Level, drawing: Drawing) -> Estimate:
    use = panel.counts > 1
    if use.sum() < 2:
        return _none(panel, use)
    values, counts = _counted(panel.ratings[:, use])
    # Each item's pairs of ratings, o_cv = n_c·n_v (n_c·(n_c − 1) on the diagonal), over its raters less one.
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(len(values))
    pairs /= (counts.sum(axis=1) - 1)[:, None, None]
    drawn = drawing if len(values) <= MOST_VALUES else None
    return _estimate(panel, use, pairs, lambda sums: alpha(sums, values, scale), drawn)


def _fleiss(panel: Panel, drawing: Drawing) -> Estimate:
    """1 − (1 − P̄) / (1 − P̄e), on the items that as many people rated as rated any item most often."""
    raters = int(np.bincount(panel.counts).argmax()) if len(panel.counts) else 0
    if raters < 2:
        shared = (panel.counts > 1).any()
        return _none(panel, np.zeros(len(panel.counts), dtype=bool), "most items have one rater only" if shared else None)
    use = panel.counts == raters
    if use.sum() < 2:
        return _none(panel, use)
    counts = _counted(panel.ratings[:, use])[1]
    agree = ((counts**2).sum(axis=1) - raters) / (raters * (raters - 1))
    return _estimate(panel, use, np.column_stack([agree, counts / raters, np.ones(len(counts))]), _fleiss_of, drawing)


def _none(panel: Panel, use: npt.NDArray[np.bool_], why: str | None = None) -> Estimate:
    """No figure.   why: None where there is none beyond chance: one item shows no more than whether its raters agree."""
    few = "fewer than 2 items are shared by raters" if use.any() else "fewer than 2 raters share an item"
    return Estimate(value=None, judged=int(use.sum()), asked=len(panel.counts), why=few if why is None else why)


def _estimate(
    panel: Panel, use: npt.NDArray[np.bool_], items: Floats, figure: Callable[[Floats], Floats], drawing: Drawing | None
) -> Estimate:
    """The figure of the sum of rows, one a used item, with its interval; drawing: None for no interval."""
    cluster, many = numbered([c for c, u in zip(panel.clusters, use, strict=True) if u])
    found = figure(items.sum(axis=0)[None])[0]
    base = replace(_none(panel, use, ""), clusters=many)
    if not np.isfinite(found):
        return replace(base, why="all raters gave one value only")
    if many > 1 and drawing is not None:
        sums = np.zeros((many, *items.shape[1:]))
        np.add.at(sums, cluster, items)
        low, high = interval(figure(resampled(sums, drawing)), level=drawing.level)
        base = replace(base, low=low, high=high)
    return replace(base, value=float(found))


def _fleiss_of(sums: Floats) -> Floats:
    """From B rows of summed agreement, summed shares of each value, and the number of items."""
    n = np.maximum(sums[:, -1:], 1)
    expected = ((sums[:, 1:-1] / n) ** 2).sum(axis=1)
    # One value only leaves 1 − 1: nothing that agreement could be told from.
    left = 1 - expected
    with np.errstate(invalid="ignore", divide="ignore"):
        found: Floats = np.where(left > 1e-12, 1 - (1 - sums[:, 0] / n[:, 0]) / left, np.nan)
    return found


def _counted(ratings: Floats) -> tuple[Floats, Floats]:
    """The distinct values, ascending, and items×values counts."""
    values = np.unique(ratings[~np.isnan(ratings)])
    return values, (ratings[:, :, None] == values).sum(axis=0).astype(float)
