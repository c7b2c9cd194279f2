"""DICE's tables: detection (Table 1), coherence (Table 2), editors (Table 3), edit types, and the means of patched CLIP.

Table 4, the correlation with people, is `editloupe compare RUN --pair METRIC=RATING,…`.

Average precision is over all images of all editors for which the data gives areas (rows `given`) and the detector's answer
is known (a value of `no_change`); the others are counted. The dimension `areas_given` of `no_change`, the number of areas
that the data gives, brings in images in which nothing changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from editloupe.data.human import named, names_of, settled
from editloupe.files import read_toml
from editloupe.protocols.dice.differences import Detector
from editloupe.protocols.dice.patching import patch_metrics
from editloupe.stats.detected import Average, SeenImage, precision_table
from editloupe.stats.pivot import Figure, Rows, grouped, mean, pivot, rows_of, select, sentences
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table
from editloupe.values import Sample

if TYPE_CHECKING:
    import polars

TableOf: TypeAlias = TableSpec | Callable[..., Any]

RATINGS: Final = ("adherence", "preservation")
"""What people rated from 1 to 5 (Table 3), as the data names it."""
_EDITORS: Final = {
    "correct": "Correct edits, %",
    "unwanted": "Unwanted edits, % of area",
    "no_change": "No visual change, %",
}
_AP: Final[Mapping[str, Mapping[str, Any]]] = {
    "AP": {}, "AP50": {"iou": 0.5}, "AP75": {"iou": 0.75}, "AP_M": {"area": "medium"}, "AP_L": {"area": "large"},
}  # fmt: skip
"""Title of a figure → arguments of `average_precision`."""
_DETECTION: Final = (
    *(Average(title=t, arguments=of, keys={"classes": "agnostic", "figure": t}, by_class=False) for t, of in _AP.items()),
    *(Average(title=f"{t}, by op", arguments=of, keys={"classes": "aware", "figure": t}) for t, of in _AP.items()),
    *(
        Average(title=f"AP_{short}", arguments={"of": op}, keys={"classes": "aware", "figure": f"AP_{short}"})
        for short, op in (("ADD", "ADD"), ("REM", "REMOVE"), ("EDIT", "EDIT"))
    ),
)
_COHERENCE: Final = tuple(
    Average(title=title, arguments=of, keys={"figure": title})
    for title, of in (*[*_AP.items()][:3], ("AP coherent", {"of": 1}), ("AP incoherent", {"of": 0}))
)
_TEXTS: Final = read_toml(Path(__file__).with_name("tables.toml"), "the built-in tables")
_CAPTIONS: Final[Mapping[str, str]] = _TEXTS["captions"]


def tables(detector: Detector, *, patches: Sequence[str] = ()) -> tuple[TableOf, ...]:
    """Return the tables of a run with this detector. Every score has the dimension `edit_type`, which may be None.

    patches: those with which CLIP is measured.
    """
    by_type, right, clip = (TableSpec.from_json(_TEXTS[name]) for name in ("by_type", "right", "clip"))
    of_areas = [partial(make, detector=detector) for make in (detection, coherent_areas)]
    return (
        by_type,
        partial(editors, detector=detector),
        right,
        *(of_areas if detector != "given" else ()),
        *((replace(clip, metrics=tuple(metric.id for metric in patch_metrics(patches))),) if patches else ()),
    )


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
    human = [name for name in RATINGS if any(row.get(f"human_{name}") is not None for row in rows)]
    rated = {"metric": "correct"}
    figures = [
        *(Figure(title, _percent, {"metric": id_}, {"metric": id_, "by": "judge"}) for id_, title in _EDITORS.items()),
        *(
            Figure(f"People: {name}", partial(_rating, name=name), rated, {"metric": name, "by": "people"})
            for name in human
        ),
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
            _CAPTIONS["editors"].format(detector=detector),
            _CAPTIONS["people"] if human else "",
            _CAPTIONS["missed"] if detector != "given" else "",
            _not_asked(frame),
        ),
    )


def detection(frame: polars.DataFrame, *, detector: Detector) -> Table | None:
    """Return AP of detected boxes, without and with the op as their class (Table 1); None without given areas.

    frame: one judge's scores.
    """
    images = _images(frame)
    known = [
        SeenImage(found=_of(image, "detected"), truth=_of(image, "given"), found_class="op", truth_class="op")
        for image in images
        if _is_judged(image)
    ]
    caption = sentences(
        _CAPTIONS["detection"],
        _CAPTIONS["confidence"].format(detector=detector),
        _left_out(len(images) - len(known), "the differences could not be detected"),
    )
    called = "detection", "Detection of differences"
    return precision_table(*called, known, _DETECTION, asked=len(images), caption=caption) if images else None


def coherent_areas(frame: polars.DataFrame, *, detector: Detector) -> Table | None:
    """Return AP of detected boxes with coherence as their class (Table 2); None where the data tells no coherence.

    frame: one judge's scores.
    """
    told = [one for one in _images(frame) if all(row.get("coherent") is not None for row in _of(one, "given"))]
    if not any(_of(image, "given") for image in told):
        return None
    judged = [one for one in told if _is_judged(one) and all(row["value"] is not None for row in _of(one, "coherence"))]
    # 1 for coherent and 0 for not are the classes.
    known = [
        SeenImage(found=_of(image, "coherence"), truth=_of(image, "given"), found_class="value", truth_class="coherent")
        for image in judged
    ]
    caption = sentences(
        _CAPTIONS["areas"],
        _CAPTIONS["confidence"].format(detector=detector),
        _left_out(len(told) - len(known), "a difference, or its coherence, could not be judged"),
        _not_asked(frame),
    )
    called = "coherence-areas", "Coherence of detected areas"
    return precision_table(*called, known, _COHERENCE, asked=len(told), caption=caption)


def _images(frame: polars.DataFrame) -> list[Rows]:
    """Return the rows of each sample for which the data gives areas, in the order of the frame."""
    return [
        rows
        for rows in grouped(rows_of(frame, "no_change", "given", "detected", "coherence"), "editor", "sample").values()
        if any(row["metric"] == "given" or row.get("areas_given") is not None for row in rows)
    ]


def _of(image: Rows, metric: str) -> Rows:
    return select(image, {"metric": metric})


def _is_judged(image: Rows) -> bool:
    """Return whether the detector's answer is known."""
    return any(row["value"] is not None for row in _of(image, "no_change"))


def _left_out(count: int, why: str) -> str:
    return f"Left out: {count} of the images; {why}." if count else ""


def _not_asked(frame: polars.DataFrame) -> str:
    """Return how many differences nobody was asked about, since max_differences left them out; "" for none."""
    counts = [count for row in rows_of(frame, "no_change") if (count := row.get("left_out"))]
    where = f"{sum(counts)} of the differences, in {len(counts)} of the images"
    return f"Not judged, by max_differences: {where}. They count for nothing here." if counts else ""


def _percent(rows: Rows) -> Cell:
    return mean(rows, scale=100, digits=1)


def _rating(rows: Rows, *, name: str) -> Cell:
    return mean(rows, [row.get(f"human_{name}") for row in rows], interval_digits=2)


def _nothing_changed(rows: Rows) -> Cell:
    """Return the percent of samples of which all people say that nothing changed; those without ratings do not count."""
    rated = [[row.get(f"human_{name}") for name in RATINGS] for row in rows]
    return mean(rows, [None if None in both else 100.0 * (both == [1, 5]) for both in rated], digits=1)
