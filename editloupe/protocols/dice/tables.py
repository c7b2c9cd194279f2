"""DICE's tables: detection (Table 1), coherence (Table 2), editors (Table 3), edit types, and the means of patched CLIP.

Table 4, the correlation with people, is `editloupe align RUN --pair METRIC=RATING,…`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final

from editloupe.data.human import named, names_of, settled
from editloupe.protocols.dice.detection_tables import (
    DETECTORS,
    Detector,
    Rows,
    coherent_areas,
    detection,
    ops,
    rows_of,
    sentences,
    unasked,
)
from editloupe.protocols.dice.patching import CLIP_I, CLIP_T, PATCHES
from editloupe.stats import bootstrap
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Column, Row, Table, by_editor, estimated, label_columns, words
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
    both = len(human) == len(RATINGS)
    columns = [Column(title=title, keys={"metric": id_, "by": "judge"}) for id_, title in _EDITORS.items()]
    columns += [Column(title=f"People: {name}", keys={"metric": name, "by": "people"}) for name in human]
    columns += [Column(title="People: no visual change, %", keys={"metric": "no_change", "by": "people"})] if both else []
    lines = []
    for editor, own in by_editor(rows).items():
        by_metric = {id_: [row for row in own if row["metric"] == id_] for id_ in _EDITORS}
        cells = [_mean([_percent(row) for row in of], of, digits=1) for of in by_metric.values()]
        rated = by_metric["correct"]
        cells += [_mean([row.get(f"human_{name}") for row in rated], rated) for name in human]
        if both:
            cells.append(_mean([_nothing_changed(row) for row in rated], rated, digits=1))
        lines.append(Row(cells=(words(editor or "(not named)"), *cells), keys={"editor": editor}))
    return Table(
        name="editors",
        title="Editors",
        columns=(*label_columns("Editor"), *columns),
        rows=tuple(lines),
        caption=sentences(
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
    right = {truth: [row["value"] for row in _judged(rows) if row.get("coherent") == truth] for truth in (1, 0)}
    count = sum(map(len, right.values()))
    balanced = 50 * (fmean(right[1]) + fmean(right[0])) if all(right.values()) else None
    base = 100 * len(right[1]) / count if count else None
    called = 100 * (sum(right[1]) + len(right[0]) - sum(right[0])) / count if count else None
    constant = "" if base is None else f"An answer that is always the same is right in {max(base, 100 - base):.1f} %."
    only = "" if balanced is not None or not count else "the data has one of the two alone"
    return Table(
        name="coherence",
        title="Coherence of given areas",
        columns=(
            *label_columns("Areas"),
            Column(title="Accuracy, %", keys={"figure": "accuracy"}),
            Column(title="Balanced, %", keys={"figure": "balanced_accuracy"}),
            Column(title="Coherent in the data, %", keys={"figure": "base_rate"}),
            Column(title="Called coherent, %", keys={"figure": "called_coherent"}),
        ),
        rows=(
            Row(
                cells=(
                    words("given"),
                    _mean([_percent(row) for row in rows], rows, digits=1),
                    Cell(value=balanced, name="mean", digits=1, why=only),
                    Cell(value=base, name="mean", digits=1),
                    Cell(value=called, name="mean", digits=1),
                ),
            ),
        ),
        caption=sentences(
            "As in the paper's Table 2. Accuracy of (judged/asked), with a 95 % interval, resampled by source image.",
            "Balanced: the mean of the accuracies on coherent and on incoherent areas, 50 for an answer that is always the "
            "same.",
            constant,
        ),
    )


def patched(frame: polars.DataFrame) -> Table | None:
    """Return the means of CLIP-I and CLIP-T by editor and patch; None where CLIP was not measured.

    frame: one judge's scores.
    """
    titles = {f"{kind}_{patch}": f"{title}, {patch}" for kind, title in ((CLIP_I, "CLIP-I"), (CLIP_T, "CLIP-T"))
              for patch in PATCHES}  # fmt: skip
    rows = rows_of(frame, *titles)
    shown = {id_: title for id_, title in titles.items() if any(row["metric"] == id_ for row in rows)}
    if not shown:
        return None
    return Table(
        name="clip",
        title="CLIP with patched areas",
        columns=(*label_columns("Editor"), *(Column(title=title, keys={"metric": id_}) for id_, title in shown.items())),
        rows=tuple(
            Row(
                cells=(
                    words(editor or "(not named)"),
                    *(
                        _mean([row["value"] for row in of], of, digits=4)
                        for id_ in shown
                        for of in [[row for row in own if row["metric"] == id_]]
                    ),
                ),
                keys={"editor": editor},
            )
            for editor, own in by_editor(rows).items()
        ),
        caption=sentences(
            "Means of (judged/asked), with 95 % intervals, resampled by source image.",
            "CLIP-I: source and edited image, areas patched in both. CLIP-T: edited image and target caption.",
            "How they go with people's ratings (the paper's Table 4): editloupe align with --pair.",
        ),
    )


def _judged(rows: Rows) -> list[Mapping[str, Any]]:
    return [row for row in rows if row["value"] is not None]


def _mean(values: Sequence[float | None], rows: Rows, *, digits: int = 2) -> Cell:
    """Return the mean of values with its interval. rows: those that the values are of."""
    found = bootstrap.mean(values, [row["source"] or row["sample"] for row in rows]) if rows else None
    return estimated(found, digits=digits, interval_digits=max(1, digits))


def _nothing_changed(row: Mapping[str, Any]) -> float | None:
    """Return 100 where all people say that nothing changed, and 0 where they do not; None without their ratings."""
    adherence, preservation = (row.get(f"human_{name}") for name in RATINGS)
    if adherence is None or preservation is None:
        return None
    return 100.0 if adherence == 1 and preservation == 5 else 0.0


def _percent(row: Mapping[str, Any]) -> float | None:
    value: float | None = row["value"]
    return None if value is None else 100 * value
