"""How far the means of imported results move from those that were published, of one judge."""

from __future__ import annotations

import math

from editloupe.figures.judged import Judged
from editloupe.protocols.imported import Published
from editloupe.scores import Score
from editloupe.stats.table import Cell, Table, listed


def published_table(judged: Judged) -> Table | None:
    """Return each published mean beside that of the scores that were judged; None for a run that was not imported."""
    if not judged.published:
        return None
    metrics = {metric.id: metric.short for metric in judged.metrics.metrics}
    dims = list(dict.fromkeys(dim for one in judged.published for dim in one.dims))

    by_place: dict[tuple[str, str], list[Score]] = {}
    for score in judged.scores:
        by_place.setdefault((score.editor, score.metric), []).append(score)

    def mean(one: Published) -> tuple[float | None, int, int]:
        asked = [
            score.value
            for score in by_place.get((one.editor, one.metric), ())
            if one.part in (None, score.part) and all(score.dims.get(dim) == value for dim, value in one.dims.items())
        ]
        known = [value for value in asked if value is not None]
        return math.fsum(known) / len(known) if known else None, len(known), len(asked)

    found = [(one, *mean(one)) for one in judged.published]
    made = listed(
        "published",
        "Means as published, and of what was judged",
        found,
        {
            "Editor": lambda line: line[0].editor,
            **{dim.replace("_", " ").capitalize(): lambda line, d=dim: str(line[0].dims.get(d, "")) for dim in dims},  # type: ignore[misc]
            "Metric": lambda line: metrics.get(line[0].metric, line[0].metric),
            "Published": lambda line: Cell(
                value=line[0].mean, name="published", digits=4, more={"published_count": line[0].count}
            ),
            "n": lambda line: Cell(value=line[0].count, name=""),
            "Judged": lambda line: Cell(value=line[1], name="mean", digits=4, judged=line[2], asked=line[3]),
            "Change": lambda line: Cell(
                value=None if line[1] is None or line[0].mean is None else line[1] - line[0].mean,
                name="change", digits=4, signed=True,
            ),
        },
        keys=lambda line: {"editor": line[0].editor, **line[0].dims, "metric": line[0].metric},
        fixed=2 + len(dims),
        caption="Published: as the files' own script computes it, with what it counts for a reply that could not be read. "
        "Judged: the mean over scores that are numbers on the scale (judged/asked). In the unit of the metric.",
    )  # fmt: skip
    return made.with_keys({"judge": judged.name})
