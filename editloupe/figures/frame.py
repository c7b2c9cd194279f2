"""Scores as one tidy polars frame: a row a score, with its judge, its sample and its cost. All tables sum up such rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
    **dict.fromkeys(("sample", "source", "editor"), str),
    "turn": int,
    **dict.fromkeys(("part", "metric"), str),
    **dict.fromkeys(("value", "normalised"), float),
    **dict.fromkeys(("label", "missing", "reason"), str),
    "entropy": float,
}
"""Column → type of what a score says, without its judge (`score_frame`); the protocol's dimensions follow.

`value` is in the metric's unit, `normalised` 0 to 100; both are null where `missing` says why. `source` is the sha256 of
the source image, by which intervals are resampled; null for a row that could not be read.
"""

COLUMNS: Final[Mapping[str, type]] = {**dict.fromkeys(("run", "judge", "judge_id", "kind", "protocol"), str), **SCORED}
"""Column → type. `kind` is "human" for people, each under the rater's name, and "judge" for all others. The protocol's
dimensions follow (edit_type, task …), then `SPENT`.
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

OURS: Final = frozenset({*COLUMNS, *SPENT})
"""Columns that are no dimension of a protocol: none hides them."""


def frame(all_judged: Sequence[Judged], prices: Prices | None = None, *, people: bool = False) -> polars.DataFrame:
    """Return the scores of one or several judges as a frame with the columns of `COLUMNS`, the dimensions, and `SPENT`.

    prices: what tokens cost; None for list prices.   people: add the ratings that the runs' samples carry, a row a rating.
    """
    import polars

    found = [_of_judge(judged, prices or Prices()) for judged in all_judged]
    if people:
        runs = {judged.folder: judged for judged in all_judged}
        rated = [row for judged in runs.values() for row in _human_rows(judged)]
        schema = {**COLUMNS, "edit_type": str}
        found += [_typed({name: [row.get(name) for row in rated] for name in schema}, schema)] if rated else []
    whole = polars.concat(found, how="diagonal_relaxed")
    dims = [name for name in whole.columns if name not in OURS]
    return whole.select(*COLUMNS, *dims, *SPENT)


def score_frame(scores: Sequence[Score], samples: Mapping[str, Sample] | None = None) -> polars.DataFrame:
    """Return scores as a frame with the columns of `SCORED` and their dimensions.

    samples: by key, for the source images; None where no interval is drawn.
    """
    known = samples or {}
    columns: dict[str, list[Any]] = {
        "sample": [score.sample_id for score in scores],
        "source": [None if (sample := known.get(score.key)) is None else sample.source.sha256 for score in scores],
        **{name: [getattr(score, name) for score in scores] for name in SCORED if name not in ("sample", "source")},
    }
    names = dict.fromkeys(name for score in scores for name in score.dims)
    dims = {name: [score.dims.get(name) for score in scores] for name in names if name not in OURS}
    return _typed({**columns, **dims}, {**SCORED, **{name: _type_of(values) for name, values in dims.items()}})


def _of_judge(judged: Judged, prices: Prices) -> polars.DataFrame:
    import polars

    about = {"run": str(judged.folder), "judge": judged.name, "judge_id": judged.judge_id, "kind": "judge"}
    about["protocol"] = judged.protocol.name
    by_task: dict[str, list[Finding]] = {}
    for finding in judged.findings:
        by_task.setdefault(finding.task_id, []).append(finding)
    spent = [_spent(judged, score, by_task, prices) for score in judged.scores]
    columns = {name: [row[name] for row in spent] for name in SPENT}
    literals = _typed({name: [value] for name, value in about.items()}, dict.fromkeys(about, str)).row(0, named=True)
    scored = judged.frame.with_columns(**{name: polars.lit(value) for name, value in literals.items()})
    return polars.concat([scored, _typed(columns, SPENT)], how="horizontal")


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
    metrics = {metric.id: metric for metric in judged.metrics.metrics}
    places = {id_: place for place, id_ in enumerate(metrics)}
    for sample in judged.samples.values():
        about: dict[str, Any] = {"run": str(judged.folder), "protocol": judged.protocol.name, "part": "", "kind": "human"}
        about |= {"sample": sample.id, "editor": sample.editor, "source": sample.source.sha256}
        about["edit_type"] = sample.edit_type
        rated = ((*turn_and_metric(name), name) for name in sample.human)
        for _, turn, id_, name in sorted((places[id_], turn, id_, name) for turn, id_, name in rated if id_ in metrics):
            for rater, given in sample.human[name].items():
                value = value_on(metrics[id_], given)
                yield {
                    **about,
                    "turn": turn,
                    "judge": rater,
                    "metric": id_,
                    "value": value,
                    "normalised": None if value is None else metrics[id_].normalise(value),
                    "label": given if isinstance(given, str) else None,
                    "missing": "off_menu" if value is None else None,
                }


def _typed(columns: Mapping[str, Sequence[Any]], schema: Mapping[str, Any]) -> polars.DataFrame:
    """A frame of columns.   schema: column → type."""
    import polars

    cells = {
        name: [v if v is None else _text(v) if kind is str else kind(v) for v in columns[name]]
        for name, kind in schema.items()
    }
    return polars.DataFrame(cells, schema=dict(schema))


def _text(value: Any) -> str:
    """A value as a frame takes it: half a surrogate pair, as in a file's name that is no UTF-8, is spelt out."""
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _type_of(values: Iterable[Any]) -> type:
    """The narrowest type that all values of a dimension have; text where they differ."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return int
    return float if kinds and kinds <= {int, float} else str
