"""GIE-Bench's tables: accuracy by edit type (Tables 2 and 7), where the keys stand, preservation (Table 3).

Values that rest on other samples, such as MSE scaled by the least and the largest, exist in tables alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from editloupe.files import read_toml
from editloupe.protocols.names import Names
from editloupe.scores import Metric
from editloupe.stats.pivot import Figure, Rows, grouped, inverted, mean, pivot, rows_of
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Table

if TYPE_CHECKING:
    import polars

ACCURACY: Final = "accuracy"

_DATA: Final = read_toml(Path(__file__).with_name("tables.toml"), "the built-in tables")
EDIT_TYPES: Final = tuple(_DATA["edit_types"])
"""In the order of the paper's Table 2."""

edit_type_name: Final = Names(_DATA["edit_types"])
"""Edit type in any spelling → the paper's name of it."""


def tables(measures: Iterable[Metric]) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return Table 2 and, where something is measured, Table 3.

    measures: the metrics of what is measured.
    """
    chosen = tuple(measures)
    by_type = replace(TableSpec.from_json(_DATA["accuracy"]), order=EDIT_TYPES)
    of_measures = [partial(preservation, metrics=chosen)] if chosen else []
    return (by_type, *of_measures)


def preservation(frame: polars.DataFrame, *, metrics: Sequence[Metric]) -> Table | None:
    """Return Table 3 for all edits and for correct ones, and MSE inverted; None if nothing is measured.

    frame: one judge's scores.
    """
    found = frame.to_dicts()
    titles = {m.id: f"{m.short} ({m.unit})" if m.unit else m.short for m in metrics if m.id in {*frame["metric"]}}
    if not titles:
        return None
    scaled, said = _scaled(rows_of(frame, "masked_mse"))
    titles |= {"inverted_mse": "Inverted MSE"} if scaled else {}
    right = {(row["editor"], row["sample"]) for row in found if row["metric"] == ACCURACY and row["value"] == 1}
    infinite = sum(row["missing"] == "not_defined" and "infinite" in (row["reason"] or "") for row in found)
    rows = [{**row, "right": (row["editor"], row["sample"]) in right} for row in (*found, *scaled)]
    coarse, fine = (partial(mean, digits=digits, interval_digits=of) for digits, of in ((2, 1), (4, 4)))
    figures = [
        Figure(
            f"{title}, {short}",
            coarse if id_ in ("masked_psnr", "masked_mse") else fine,
            {"metric": id_, **where},
            {"metric": id_, "of": f"{short} edits"},
        )
        for id_, title in titles.items()
        for short, where in (("all", {}), ("correct", {"right": True}))
    ]
    caption = (
        "Means of (judged/asked), with 95 % intervals, resampled by source image. An editor that changes nothing "
        "preserves all: read these beside the accuracy.",
        said,
        f"PSNR is infinite, and counted apart, {infinite} times." if infinite else "",
    )
    title = "Content preservation of all edits, and of correct ones"
    return pivot("preservation", title, grouped(rows, "editor"), figures, caption=caption)


def _scaled(rows: Rows) -> tuple[Rows, str]:
    """Return MSE as `inverted` scales it over all editors, and the sentence that says so."""
    values = [row["value"] for row in rows]
    known, scaled = [value for value in values if value is not None], inverted(values)
    if scaled is None:
        return [], f"All MSE are {known[0]:g}, so that there is no inverted MSE." if known else ""
    return [{**row, "metric": "inverted_mse", "value": one} for row, one in zip(rows, scaled, strict=True)], (
        f"Inverted MSE is 1 at {min(known):g} and 0 at {max(known):g}, the least and the largest of all editors of this "
        "judge in this run. It changes with the editors: compare those that were measured in one run."
    )
