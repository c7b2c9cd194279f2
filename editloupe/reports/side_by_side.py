"""Several judges on the same samples: each one's mean over what all could judge, and the difference from the first."""

from __future__ import annotations

from collections.abc import Sequence

from editloupe.reports.judged import Judged
from editloupe.reports.summary import counted, on_hundred, specs, value_of
from editloupe.scores import Metric
from editloupe.stats import bootstrap
from editloupe.stats.table import Cell, Column, Row, Table, estimated, label_columns, words

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
    columns, cells, left_out, counts = [], [list[Cell]() for _ in all_judged], {j.name: list[str]() for j in all_judged}, []
    for metric in metrics:
        values = [_values(judged, metric) for judged in all_judged]
        answered = [{place for place, (value, _) in of.items() if value is not None} for of in values]
        all_able = set[_Place].intersection(*filter(None, answered)) if any(answered) else set()
        common = [place for place in values[0] if place[0] in shared and place in all_able]
        counts.append(f"{metric.short} {len(common)}")
        digits = 1 if on_hundred(specs(all_judged[0].protocol)[0], metric) else 2
        heads = ("common", metric.short, f"{metric.short} − first", f"{metric.short} judged")
        columns += [Column(title=head, keys={"metric": metric.id}, files_only=head == "common") for head in heads]
        for number, (judged, of) in enumerate(zip(all_judged, values, strict=True)):
            mine = [of[place] for place in common] if answered[number] else []
            base = [values[0][place][0] for place in common] if answered[0] else []
            clusters = [cluster for _, cluster in mine]
            mean, differs = bootstrap.mean([value for value, _ in mine], clusters), None
            if number and mine and base:
                apart = [a - b for (a, _), b in zip(mine, base, strict=True) if a is not None and b is not None]
                differs = bootstrap.mean(apart, clusters)
            judged_, asked = len(answered[number]), len(of)
            cells[number] += [
                Cell(name="", more={"common": len(mine)}),
                estimated(mean, digits=digits, interval_digits=digits, counts=False),
                estimated(
                    differs,
                    digits=digits,
                    interval_digits=digits,
                    counts=False,
                    signed=True,
                    name="difference",
                    bounds=("difference_low", "difference_high"),
                ),
                Cell(value=f"{judged_}/{asked}", name="", more={"judged": judged_, "asked": asked}),
            ]
            if any(answered) and not answered[number]:
                left_out[judged.name].append(metric.short)
    without = [f"{name} ({', '.join(shorts)})" for name, shorts in left_out.items() if shorts]
    sentences = [
        f"Means of samples judged by all ({', '.join(counts)}), with 95 % intervals; judged: of all that each was asked."
    ]
    sentences += [f"Without any verdict and not among all: {', '.join(without)}."] if without else []
    sentences += [f"{_left_out(len(differing))}."] if differing else []
    return Table(
        name="side-by-side",
        title="Judges side by side, on the samples that all of them could judge",
        columns=(*label_columns("Judge"), *columns),
        rows=tuple(
            Row(cells=(words(judged.name), *own), keys={"judge": judged.name})
            for judged, own in zip(all_judged, cells, strict=True)
        ),
        caption=" ".join(sentences),
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


def _values(judged: Judged, metric: Metric) -> dict[_Place, tuple[float | None, str]]:
    """What a judge says of a metric, None where it says nothing, and what is resampled together; by what it is about."""
    spec = specs(judged.protocol)[0]
    own = counted(spec, (score for score in judged.scores if score.metric == metric.id))
    return {(s.key, s.turn, s.part): (value_of(spec, metric, s), judged.cluster(s)) for s in own}


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
