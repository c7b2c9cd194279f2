"""Several judges on the same samples: each one's mean over what all could judge."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from editloupe.figures.judged import Judged
from editloupe.figures.summary import counted, on_hundred, specs
from editloupe.scores import Metric
from editloupe.stats.bootstrap import aggregate
from editloupe.stats.table import Cell, Column, Row, Table, estimated, label_columns, words
from editloupe.values import Json, sample_key

if TYPE_CHECKING:
    import polars

_PLACE: Final = ["editor", "sample", "turn", "part"]
"""What a score of a metric is about."""


def side_by_side(all_judged: Sequence[Judged]) -> Table | None:
    """Return the table of several judges; None if there is only one, or nothing that all were asked.

    A judge without any verdict on a metric is left out of "all" there, and named.
    """
    if len(all_judged) < 2 or not_side_by_side(all_judged):
        return None
    shared, differing = _same_samples(all_judged)
    columns: list[Column] = []
    cells: list[list[Cell]] = [[] for _ in all_judged]
    without: list[str] = []
    for metric in _common_metrics(all_judged):
        spec, keys = specs(all_judged[0].protocol)[0], {"metric": metric.id}
        digits = 1 if on_hundred(spec, metric) else 2
        columns += [Column(title=metric.short, keys=keys), Column(title=f"{metric.short} judged", keys=keys)]
        scores = [_scores(judged, metric) for judged in all_judged]
        places = [own.drop_nulls("shown").select(_PLACE) for own in scores]
        able = [own for own in places if len(own)]
        common = reduce(lambda one, other: one.join(other, on=_PLACE, how="semi"), able) if able else scores[0].clear()
        for judged, row, own, its in zip(all_judged, cells, scores, places, strict=True):
            both = own.join(common, on=_PLACE, how="semi") if len(its) else own.clear()
            kept = both.filter([sample_key(*pair) in shared for pair in both.select("editor", "sample").rows()])
            (mean,) = aggregate(kept, value="shown").values()
            counts: dict[str, Json] = {"common": len(kept), "judged": len(its), "asked": len(own)}
            row.append(estimated(mean, digits=digits, interval_digits=digits, counts=False))
            row.append(Cell(value=f"{len(its)}/{len(own)}", name="", more=counts))
            if able and not len(its):
                without.append(f"{judged.name} ({metric.short})")
    sentences = ["Means of samples judged by all, with 95 % intervals; judged: of all that each was asked."]
    sentences += [f"Without any verdict and not among all: {', '.join(without)}."] if without else []
    sentences += [f"{_left_out(len(differing))}."] if differing else []
    return Table(
        name="side-by-side",
        title="Judges side by side, on the samples that all of them could judge",
        columns=(*label_columns("Judge"), *columns),
        rows=tuple(
            Row(cells=(words(judged.name), *row), keys={"judge": judged.name})
            for judged, row in zip(all_judged, cells, strict=True)
        ),
        caption=" ".join(sentences),
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


def _scores(judged: Judged, metric: Metric) -> polars.DataFrame:
    """What a judge says of a metric, as its tables show it."""
    spec = specs(judged.protocol)[0]
    own = counted(spec, judged.frame.filter(metric=metric.id))
    return own.with_columns(shown=own["normalised"] if on_hundred(spec, metric) else own["value"])


def _common_metrics(all_judged: Sequence[Judged]) -> list[Metric]:
    return [m for m in all_judged[0].asked if all(m.id in j.criteria for j in all_judged)]


def _same_samples(all_judged: Sequence[Judged]) -> tuple[set[str], list[str]]:
    """Keys of the samples that all were given, and of those of one name whose content differs between runs.

    A row that could not be read has no content, and is the same as any of its name: it has no score either.
    """
    given = [{score.key for score in judged.scores} for judged in all_judged]
    content = {k: {j.samples[k].content for j in all_judged if k in j.samples} for k in set[str]().union(*given)}
    differing = sorted(key for key, found in content.items() if len(found) > 1)
    return set.intersection(*given).difference(differing), differing


def _left_out(count: int) -> str:
    alike = "1 sample has" if count == 1 else f"{count} samples have"
    return f"{alike} the same name and other content: left out"
