"""DICE's tables: detection (Table 1), coherence (Table 2), editors (Table 3), edit types, and the means of patched CLIP.

Table 4, the correlation with people, is `editloupe compare RUN --pair METRIC=RATING,…`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from editloupe.data.human import named, names_of, settled
from editloupe.protocols.dice.detection_tables import coherent_areas, detection, ops, unasked
from editloupe.protocols.dice.differences import DETECTORS, Detector
from editloupe.protocols.dice.patching import patched
from editloupe.stats.pivot import Figure, Rows, grouped, mean, pivot, rows_of
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table
from editloupe.values import Sample

if TYPE_CHECKING:
    import polars

RATINGS: Final = ("adherence", "preservation")
"""What people rated from 1 to 5 (Table 3), as the data names it."""
_EDITORS: Final = {
    "correct": "Correct edits, %",
    "unwanted": "Unwanted edits, % of area",
    "no_change": "No visual change, %",
}


def tables(detector: Detector, *, side: int | None = None) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return the tables of a run with this detector. Every score has the dimension `edit_type`, which may be None.

    side: areas are those of images of side × side px, such as 512; None for the source's own size.
    """
    by_type = TableSpec(
        title="Correct edits by edit type",
        name="correct-by-type",
        metrics=("correct",),
        rows="edit_type",
        columns="editor",
        cell="rate",
    )
    makers: list[Callable[..., Any]] = [partial(editors, detector=detector), coherence]
    if detector != "given":
        makers += [partial(make, detector=detector, side=side) for make in (detection, coherent_areas)] + [ops]
    return (by_type, *makers, patched)


def rating_dims(sample: Sample) -> dict[str, float]:
    """Return people's mean ratings of a sample as dimensions for `editors`: human_adherence and human_preservation."""
    found = named(sample.human, names_of(RATINGS))
    numbers = {name: [v for v in settled(found.get(name, {})).values() if not isinstance(v, str)] for name in RATINGS}
    return {f"human_{name}": fmean(values) for name, values in numbers.items() if values}


def editors(frame: polars.DataFrame, *, detector: Detector) -> Table | None:
    """Return correct edits, unwanted edits and no visual change of each editor, beside people's ratings (Table 3).

    frame: one judge's scores. People's ratings are the dimensions of `rating_dims`.
    """
    rows = rows_of(frame, *_EDITORS)
    if not rows:
        return None
    human = [name for name in RATINGS if any(row.get(f"human_{name}") is not None for row in rows)]
    figures = [Figure(title, _percent, {"metric": id_}, {"metric": id_, "by": "judge"}) for id_, title in _EDITORS.items()]
    rated = {"metric": "correct"}
    figures += [
        Figure(f"People: {name}", partial(_rating, name=name), rated, {"metric": name, "by": "people"}) for name in human
    ]
    if len(human) == len(RATINGS):
        nothing = {"metric": "no_change", "by": "people"}
        figures.append(Figure("People: no visual change, %", _nothing_changed, rated, nothing))
    return pivot(
        "editors",
        "Editors",
        grouped(rows, "editor"),
        figures,
        caption=(
            "As in the paper's Table 3. Means of (judged/asked), with 95 % intervals, resampled by source image.",
            "Correct edits: images with a coherent difference. Unwanted edits: the share of the image that incoherent "
            "differences cover together, where they overlap once; 0 in images without any.",
            "People: means of their ratings; no visual change: images that all rate 1 for adherence and 5 for preservation."
            if human
            else "",
            f"Differences are {DETECTORS[detector]}.",
            "That there is none is the detector's word: it may have missed one." if detector != "given" else "",
            unasked(frame),
        ),
    )


def coherence(frame: polars.DataFrame) -> Table | None:
    """Return how often coherence is judged right on areas that the data gives (Table 2); None where it was not asked.

    frame: one judge's scores. Rows `coherence_right` have the dimension `coherent`, what the data says.
    """
    rows = rows_of(frame, "coherence_right")
    if not rows:
        return None
    known = [row for row in rows if row["value"] is not None]
    right = {truth: [row["value"] for row in known if row.get("coherent") == truth] for truth in (1, 0)}
    count = sum(map(len, right.values()))
    balanced = 50 * (fmean(right[1]) + fmean(right[0])) if all(right.values()) else None
    base = 100 * len(right[1]) / count if count else None
    called = 100 * (sum(right[1]) + len(right[0]) - sum(right[0])) / count if count else None
    only = "" if balanced is not None or not count else "the data has one of the two alone"
    others = (
        ("Balanced, %", "balanced_accuracy", Cell(value=balanced, name="mean", digits=1, why=only)),
        ("Coherent in the data, %", "base_rate", Cell(value=base, name="mean", digits=1)),
        ("Called coherent, %", "called_coherent", Cell(value=called, name="mean", digits=1)),
    )
    return pivot(
        "coherence",
        "Coherence of given areas",
        {("given",): rows},
        [
            Figure("Accuracy, %", _percent, keys={"figure": "accuracy"}),
            *(Figure(title, partial(_settled, cell), keys={"figure": name}) for title, name, cell in others),
        ],
        by=("",),
        heads=("Areas",),
        caption=(
            "As in the paper's Table 2. Accuracy of (judged/asked), with a 95 % interval, resampled by source image.",
            "Balanced: the mean of the accuracies on coherent and on incoherent areas, 50 for an answer that is always the "
            "same.",
            "" if base is None else f"An answer that is always the same is right in {max(base, 100 - base):.1f} %.",
        ),
    )


def _settled(cell: Cell, rows: Rows) -> Cell:
    return cell


def _percent(rows: Rows) -> Cell:
    return mean(rows, scale=100, digits=1)


def _rating(rows: Rows, *, name: str) -> Cell:
    return mean(rows, [row.get(f"human_{name}") for row in rows], interval_digits=2)


def _nothing_changed(rows: Rows) -> Cell:
    """Return the percent of samples of which all people say that nothing changed; those without ratings do not count."""
    rated = [[row.get(f"human_{name}") for name in RATINGS] for row in rows]
    return mean(rows, [None if None in both else 100.0 * (both == [1, 5]) for both in rated], digits=1)
