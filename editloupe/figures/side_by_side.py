"""Several judges on the same samples: each one's mean over what all could judge, and the difference from the first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from editloupe.figures.judged import Judged
from editloupe.figures.summary import counted, on_hundred, specs
from editloupe.scores import Metric
from editloupe.stats.bootstrap import aggregate
from editloupe.stats.table import Cell, Column, Row, Table, estimated, label_columns, words

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
    columns, counts = list[Column](), list[str]()
    cells: list[list[Cell]] = [[] for _ in all_judged]
    left_out: dict[str, list[str]] = {judged.name: [] for judged in all_judged}
    for metric in _common_metrics(all_judged):
        scores = [_scores(judged, metric) for judged in all_judged]
        able = [bool(own["shown"].is_not_null().any()) for own in scores]
        common = _on_common([own for own, some in zip(scores, able, strict=True) if some], shared)
        counts.append(f"{metric.short} {0 if common is None else len(common)}")
        digits = 1 if on_hundred(specs(all_judged[0].protocol)[0], metric) else 2
        heads = ("common", metric.short, f"{metric.short} − first", f"{metric.short} judged")
        columns += [Column(title=head, keys={"metric": metric.id}, files_only=head == "common") for head in heads]
        first = None if common is None or not able[0] else _on(scores[0], common)
        for number, (judged, own) in enumerate(zip(all_judged, scores, strict=True)):
            mine = _on(own, common) if common is not None and able[number] else own.clear()
            cells[number] += _cells(own, mine, first if number else None, digits)
            if any(able) and not able[number]:
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


def _cells(own: polars.DataFrame, mine: polars.DataFrame, first: polars.DataFrame | None, digits: int) -> list[Cell]:
    """One judge's cells of one metric. mine, first: on the common samples, this judge's and the first one's."""
    (mean,), apart = aggregate(mine, value="shown").values(), None
    if first is not None and len(mine):
        both = mine.join(first.select(*_PLACE, base="shown"), on=_PLACE, how="inner")
        (apart,) = aggregate(both.with_columns(shown=both["shown"] - both["base"]), value="shown").values()
    judged = int(own["shown"].is_not_null().sum())
    difference = replace(
        estimated(apart, digits=digits, interval_digits=digits, counts=False, signed=True, name="difference"),
        bounds=("difference_low", "difference_high"),
    )
    return [
        Cell(name="", more={"common": len(mine)}),
        estimated(mean, digits=digits, interval_digits=digits, counts=False),
        difference,
        Cell(value=f"{judged}/{len(own)}", name="", more={"judged": judged, "asked": len(own)}),
    ]


def _scores(judged: Judged, metric: Metric) -> polars.DataFrame:
    """What a judge says of a metric, as its tables show it."""
    spec = specs(judged.protocol)[0]
    own = counted(spec, judged.frame.filter(metric=metric.id))
    return own.with_columns(shown=own["normalised"] if on_hundred(spec, metric) else own["value"])


def _on_common(able: Sequence[polars.DataFrame], shared: set[str]) -> polars.DataFrame | None:
    """The places that all of these judges have a verdict on; None without a judge."""
    if not able:
        return None
    import polars

    found = able[0].drop_nulls("shown").select(_PLACE)
    for own in able[1:]:
        found = found.join(own.drop_nulls("shown").select(_PLACE), on=_PLACE, how="inner")
    keys = [f"{editor}/{sample}" if editor else sample for editor, sample in found.select("editor", "sample").rows()]
    return found.filter(polars.Series([key in shared for key in keys], dtype=polars.Boolean))


def _on(own: polars.DataFrame, common: polars.DataFrame) -> polars.DataFrame:
    return own.join(common, on=_PLACE, how="semi")


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
