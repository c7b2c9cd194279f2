"""How far the means of imported results move from those that were published, of one judge."""

from __future__ import annotations

import math

from editloupe.figures.judged import Judged
from editloupe.scores import Score
from editloupe.stats.table import Cell, Row, Table, numbers, words


def published_table(judged: Judged) -> Table | None:
    """Return each published mean beside that of the scores that were judged; None for a run that was not imported."""
    metrics = {metric.id: metric.short for metric in judged.metrics.metrics}
    dims = list(dict.fromkeys(dim for one in judged.published for dim in one.dims))
    by_place: dict[tuple[str, str], list[Score]] = {}
    for score in judged.scores if judged.published else ():
        by_place.setdefault((score.editor, score.metric), []).append(score)
    rows, beyond = [], False
    for one in judged.published:
        scores = [
            score
            for score in by_place.get((one.editor, one.metric), ())
            if one.part in (None, score.part) and all(score.dims.get(dim) == value for dim, value in one.dims.items())
        ]
        values = [score.value for score in scores if score.value is not None]
        mean = math.fsum(values) / len(values) if values else None
        change = None if mean is None or one.mean is None else mean - one.mean
        names = (one.editor, *(str(one.dims.get(dim, "")) for dim in dims), metrics.get(one.metric, one.metric))
        cells = (
            Cell(value=one.mean, name="published", digits=4, more={"published_count": one.count}),
            Cell(value=one.count, name=""),
            Cell(value=mean, name="mean", digits=4, judged=len(values), asked=len(scores)),
            Cell(value=change, name="change", digits=4, signed=True),
        )
        rows.append(
            Row(
                cells=(*map(words, names), *cells),
                keys={"editor": one.editor, **one.dims, "metric": one.metric},
            )
        )
        beyond = beyond or one.count > len(scores)
    if not rows:
        return None
    return numbers(
        "published",
        "Means as published, and of what was judged",
        ("Editor", *(dim.replace("_", " ").capitalize() for dim in dims), "Metric", "Published", "n", "Judged", "Change"),
        rows,
        fixed=2 + len(dims),
        caption="Published: as the files' own script computes it, with what it counts for a reply that could not be read. "
        "Judged: the mean over scores that are numbers on the scale (judged/asked). In the unit of the metric."
        + (
            " Where n is above what was asked, rows that do not count here are in Published, and in Change."
            if beyond
            else ""
        ),
        keys={"judge": judged.name},
    )
