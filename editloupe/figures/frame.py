"""Scores as one tidy polars frame: a row a score, with its judge, its sample and what it cost."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.data.human import turn_and_metric, value_on
from editloupe.figures.judged import Judged
from editloupe.figures.score_frame import SCORED, dimensions, type_of, typed_frame
from editloupe.findings import Finding
from editloupe.scores import Score

if TYPE_CHECKING:
    import polars


COLUMNS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("run", "judge", "judge_id", "kind", "protocol"), str),
    **SCORED,
}
"""Column → type. `kind` is "human" for people, each under the rater's name, and "judge" for all others.

`value` is in the metric's unit, `normalised` 0 to 100; both are null where `missing` says why. `source` is the sha256 of
the source image, by which intervals are resampled; null for a row that could not be read. The protocol's dimensions follow
(edit_type, task …), then `SPENT`.
"""

SPENT: Final[Mapping[str, type]] = {
    "findings": int,
    "tool_turns": int,
    "seconds": float,
    "input_tokens": int,
    "output_tokens": int,
    "cost_usd": float,
}
"""What the findings spent that a score rests on, repeats included; null where unknown. Scores may share findings."""


def frame(all_judged: Sequence[Judged], prices: Prices | None = None, *, people: bool = False) -> polars.DataFrame:
    """Return the scores of one or several judges as a frame with the columns of `COLUMNS`, the dimensions, and `SPENT`.

    prices: what tokens cost; None for list prices.   people: add the ratings that the runs' samples carry, a row a rating.
    """
    rows = [row for judged in all_judged for row in _rows(judged, prices or Prices())]
    if people:
        runs = {judged.folder: judged for judged in all_judged}
        rows += [row for judged in runs.values() for row in _human_rows(judged)]
    dims = dimensions(score for judged in all_judged for score in judged.scores)
    columns = {name: [row.get(name) for row in rows] for name in (*COLUMNS, *dims, *SPENT)}
    return typed_frame(columns, {**COLUMNS, **{name: type_of(columns[name]) for name in dims}, **SPENT})


def _rows(judged: Judged, prices: Prices) -> Iterator[dict[str, Any]]:
    by_task: dict[str, list[Finding]] = {}
    for finding in judged.findings:
        by_task.setdefault(finding.task_id, []).append(finding)
    about = {"run": str(judged.folder), "judge": judged.name, "judge_id": judged.judge_id, "kind": "judge"}
    about["protocol"] = judged.protocol.name
    own = [name for name in SCORED if name not in ("sample", "source")]
    for score in judged.scores:
        sample = judged.samples.get(score.key)
        yield {
            **score.dims,
            **about,
            "sample": score.sample_id,
            "source": None if sample is None else sample.source.sha256,
            **{name: getattr(score, name) for name in own},
            **_spent(judged, score, by_task, prices),
        }


def _spent(judged: Judged, score: Score, by_task: Mapping[str, list[Finding]], prices: Prices) -> dict[str, Any]:
    found = [finding for id_ in score.findings for finding in by_task.get(id_, ())]
    usage = found[0].usage if len(found) == 1 else sum((f.usage for f in found), Usage())
    counted = usage.input_tokens is not None or usage.output_tokens is not None
    return {
        "findings": len(found),
        "tool_turns": sum(f.turns for f in found) if found else None,
        "seconds": sum(f.seconds for f in found) if found else None,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": prices.of_uri(judged.backend, usage) if counted else None,
    }


def _human_rows(judged: Judged) -> Iterator[dict[str, Any]]:
    """The ratings of a run's samples as rows by column; one that is no label or number of its metric is off_menu."""
    for sample in judged.samples.values():
        about: dict[str, Any] = {"run": str(judged.folder), "protocol": judged.protocol.name, "part": ""}
        about |= {"sample": sample.id, "editor": sample.editor, "source": sample.source.sha256}
        about |= {"edit_type": sample.edit_type, "kind": "human"}
        ids = [metric.id for metric in judged.metrics.metrics]
        rated = ((*turn_and_metric(name), name) for name in sample.human)
        for place, turn, name in sorted((ids.index(id_), turn, name) for turn, id_, name in rated if id_ in ids):
            metric = judged.metrics.metrics[place]
            for rater, given in sample.human[name].items():
                value = value_on(metric, given)
                yield {
                    **about,
                    "turn": turn,
                    "judge": rater,
                    "metric": metric.id,
                    "value": value,
                    "normalised": None if value is None else metric.normalise(value),
                    "label": given if isinstance(given, str) else None,
                    "missing": "off_menu" if value is None else None,
                }
