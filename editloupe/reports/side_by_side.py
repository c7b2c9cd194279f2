"""Several judges on the same samples: each one's mean over what all could judge, and the difference from the first."""

from __future__ import annotations

from collections.abc import Sequence

from editloupe.reports.judged import Judged
from editloupe.reports.summary import counted, on_hundred, specs, value_of
from editloupe.scores import Metric, Score
from editloupe.stats import bootstrap
from editloupe.tables import Cell, Column, Row, Table, estimated, label_columns, words

_Place = tuple[str, int, str]
"""Sample's key, turn and part: what a score of a metric is about."""


def side_by_side(all_judged: Sequence[Judged]) -> Table | None:
    """Return the table of several judges; None if there is only one, or nothing that all were asked.

    A judge without any verdict on a metric is left out of "all" there, and named.
    """
    if len(all_judged) < 2:
        return None
    metrics = _common_metrics(all_judged)
    shared, differing = _same_samples(all_judged)
    if not metrics or not shared:
        return None
    first = all_judged[0]
    columns, cells, left_out, counts = [], [list[Cell]() for _ in all_judged], {j.name: list[str]() for j in all_judged}, []
    for metric in metrics:
        values = [_values(judged, metric) for judged in all_judged]
        able = [any(value is not None for value in of.values()) for of in values]
        common = [
            place
            for place in values[0]
            if place[0] in shared
            and any(able)
            and all(of.get(place) is not None for of, some in zip(values, able, strict=True) if some)
        ]
        counts.append(f"{metric.short} {len(common)}")
        key = {"metric": metric.id}
        columns += [Column(title=f"{metric.short}{more}", keys=key) for more in ("", " − first", " judged")]
        for number, (judged, of) in enumerate(zip(all_judged, values, strict=True)):
            mine = [_number(of[place]) for place in common] if able[number] else []
            clusters = [_cluster(judged, place) for place in common] if able[number] else []
            differs = None
            if number and able[0] and able[number]:
                base = [_number(values[0][place]) for place in common]
                differs = bootstrap.mean([a - b for a, b in zip(mine, base, strict=True)], clusters)
            mean = bootstrap.mean(mine, clusters)
            digits = 1 if on_hundred(specs(first.protocol)[0], metric) else 2
            judged_, asked = sum(v is not None for v in of.values()), len(of)
            ends = ("difference_low", "difference_high")
            cells[number] += [
                Cell(name="", more={"common": len(common) if able[number] else 0}),
                estimated(mean, digits=digits, interval_digits=digits, counts=False),
                estimated(
                    differs,
                    digits=digits,
                    interval_digits=digits,
                    counts=False,
                    signed=True,
                    name="difference",
                    bounds=ends,
                ),
                Cell(value=f"{judged_}/{asked}", name="", more={"judged": judged_, "asked": asked}),
            ]
            if any(able) and not able[number]:
                left_out[judged.name].append(metric.short)
        columns.insert(len(columns) - 3, Column(title="common", keys=key, files_only=True))
    without = [f"{name} ({', '.join(shorts)})" for name, shorts in left_out.items() if shorts]
    told = f"Means of samples judged by all ({', '.join(counts)}), with 95 % intervals; judged: of all that each was asked."
    return Table(
        name="side-by-side",
        title="Judges side by side, on the samples that all of them could judge",
        columns=(*label_columns("Judge"), *columns),
        rows=tuple(
            Row(cells=(words(judged.name), *own), keys={"judge": judged.name})
            for judged, own in zip(all_judged, cells, strict=True)
        ),
        caption=" ".join(
            [
                told,
                *([f"Without any verdict and not among all: {', '.join(without)}."] if without else []),
                *([f"{_left_out(len(differing))}."] if differing else []),
            ]
        ),
        at_once=3,
    )


def not_side_by_side(all_judged: Sequence[Judged]) -> str:
    """Return why several judges do not stand side by side; "" where they do, and where there is one alone."""
    if len(all_judged) < 2:
        return ""
    shared, differing = _same_samples(all_judged)
    why = "" if _common_metrics(all_judged) else "no metric was judged by all of them"
    if not shared:
        why = _left_out(len(differing)) if differing else "no sample was given to all of them"
    return why and f"The judges do not stand side by side: {why}; compare runs over the same data."


def _values(judged: Judged, metric: Metric) -> dict[_Place, float | None]:
    """What a judge says of a metric, by what it is about; None where it says nothing."""
    spec = specs(judged.protocol)[0]
    own = counted(spec, (score for score in judged.scores if score.metric == metric.id))
    return {_place(score): value_of(spec, metric, score) for score in own}


def _place(score: Score) -> _Place:
    return score.key, score.turn, score.part


def _cluster(judged: Judged, place: _Place) -> str:
    sample = judged.samples.get(place[0])
    return place[0] if sample is None else sample.source.sha256


def _number(value: float | None) -> float:
    """Of a place where all have a value."""
    assert value is not None
    return value


def _common_metrics(all_judged: Sequence[Judged]) -> list[Metric]:
    return [m for m in all_judged[0].asked if all(m.id in j.criteria for j in all_judged)]


def _same_samples(all_judged: Sequence[Judged]) -> tuple[set[str], list[str]]:
    """Keys of the samples that all were given, and of those of one name whose content differs between runs.

    A row that could not be read has no content, and is the same as any of its name: it has no score either.
    """
    given = [{score.key for score in judged.scores} for judged in all_judged]
    named = set[str]().union(*given)
    content = {key: {j.samples[key].content for j in all_judged if key in j.samples} for key in named}
    differing = sorted(key for key, found in content.items() if len(found) > 1)
    return set.intersection(*given).difference(differing), differing


def _left_out(count: int) -> str:
    if count == 1:
        return "1 sample has the same name and other content: left out"
    return f"{count} samples have the same name and other content: left out"
