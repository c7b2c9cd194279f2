"""One number to train on, of a protocol's scores."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from editloupe.scores import Metric, Score
from editloupe.values import Json


def reward_of(scores: Sequence[Score], metrics: Sequence[Metric]) -> dict[str, Json]:
    """Return the mean over these metrics, 0 to 100, 100 the best; no value, and the reasons, if a metric has none."""
    values: dict[str, Json] = {}
    numbers, reasons = [], []
    for metric in metrics:
        found = [score for score in scores if score.metric == metric.id]
        reason = _no_reward(metric, found)
        values[metric.id] = None
        if reason is None:
            mean = fmean(score.normalised for score in found if score.normalised is not None)
            numbers.append(100 - mean if metric.better == "lower" else mean)
            values[metric.id] = numbers[-1]
        else:
            reasons.append(f"{metric.id}: {reason}")
    return {"value": None if reasons else fmean(numbers), "why": "; ".join(reasons) or None, "scores": values}


def _no_reward(metric: Metric, scores: Sequence[Score]) -> str | None:
    """Return the reason for which a metric's scores make no reward; None if they do."""
    missing = dict.fromkeys(score.missing for score in scores if score.missing is not None)
    if missing:
        return ", ".join(missing)
    if metric.domain.bounds is None or metric.better is None:
        return f"a metric without {'bounds' if metric.better else 'a direction'} is no reward; name others in criteria"
    return None if scores else "the protocol gives no score"
