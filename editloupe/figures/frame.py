"""Scores as one tidy polars frame: a row a score, with its judge, its sample and what it cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.data.human import turn_and_metric, value_on
from editloupe.findings import Finding
from editloupe.scores import Score
from editloupe.values import Sample

if TYPE_CHECKING:
    import polars

    from editloupe.figures.judged import Judged

SCORED: Final[Mapping[str, type]] = {
    "sample": str,
    "source": str,
    "editor": str,
    "turn": int,
    "part": str,
    "metric": str,
    "value": float,
    "normalised": float,
    "label": str,
    "missing": str,
    "reason": str,
    "entropy": float,
}
"""Column → type of what a score says, without its judge (`score_frame`); the protocol's dimensions follow."""

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


def score_frame(scores: Sequence[Score], samples: Mapping[str, Sample] | None = None) -> polars.DataFrame:
    """Return scores as a frame with the columns of `SCORED` and their dimensions.

    samples: by key, for the source images; None where no interval is drawn.
    """
    known = samples or {}
    sources = [None if (sample := known.get(score.key)) is None else sample.source.sha256 for score in scores]
    columns: dict[str, list[Any]] = {name: [getattr(score, name) for score in scores] for name in SCORED if name not in (
        "sample", "source")}  # fmt: skip
    columns |= {"sample": [score.sample_id for score in scores], "source": sources}
    dims = {name: [score.dims.get(name) for score in scores] for name in _dimensions(scores)}
    return _frame({**columns, **dims}, {**SCORED, **{name: _type(values) for name, values in dims.items()}})


def frame(all_judged: Sequence[Judged], prices: Prices | None = None, *, people: bool = False) -> polars.DataFrame:
    """Return the scores of one or several judges as a frame with the columns of `COLUMNS`, the dimensions, and `SPENT`.

    prices: what tokens cost; None for list prices.   people: add the ratings that the runs' samples carry, a row a rating.
    """
    rows = [row for judged in all_judged for row in _rows(judged, prices or Prices())]
    if people:
        runs = {judged.folder: judged for judged in all_judged}
        rows += [row for judged in runs.values() for row in _human_rows(judged)]
    dims = _dimensions(score for judged in all_judged for score in judged.scores)
    columns = {name: [row.get(name) for row in rows] for name in (*COLUMNS, *dims, *SPENT)}
    return _frame(columns, {**COLUMNS, **{name: _type(columns[name]) for name in dims}, **SPENT})


def _dimensions(scores: Iterable[Score]) -> list[str]:
    """Names of the protocol's dimensions. None hides a column of ours."""
    names = dict.fromkeys(name for score in scores for name in score.dims)
    return [name for name in names if name not in COLUMNS and name not in SPENT]


def _frame(columns: Mapping[str, Sequence[Any]], schema: Mapping[str, Any]) -> polars.DataFrame:
    import polars

    return polars.DataFrame(
        {name: [_cell(value, kind) for value in columns[name]] for name, kind in schema.items()}, schema=dict(schema)
    )


def _cell(value: Any, kind: Callable[[Any], Any]) -> Any:
    """Return a value as a frame takes it: half a surrogate pair, as in a file's name that is no UTF-8, is spelt out."""
    if value is None:
        return None
    if not isinstance(value, str):
        return kind(value)
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def _type(values: Iterable[Any]) -> type:
    """The narrowest type that all values of a dimension have; text where they differ."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return int
    return float if kinds and kinds <= {int, float} else str


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
