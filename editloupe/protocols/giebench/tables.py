"""GIE-Bench's tables: accuracy by edit type (Tables 2 and 7), where the keys stand, preservation (Table 3).

Values that rest on other samples, such as MSE scaled by the least and the largest, exist in tables alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from editloupe.protocols.names import Names
from editloupe.scores import Metric
from editloupe.stats.pivot import Figure, Rows, grouped, mean, pivot
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars

ACCURACY: Final = "accuracy"

ALIASES: Final = {
    "Add Object": (),
    "Attribute Change": (),
    "Color Change": ("colour change",),
    "Layout Modification": (),
    "Object Replacement": (),
    "Remove Object": (),
    "Scene / Background Change": ("scene change", "background change"),
    "Size Change": (),
    "Textual Edit": ("textual change",),
}
"""Edit type of the paper's tables → other names of it, in the order of its Table 2."""

EDIT_TYPES: Final = tuple(ALIASES)

edit_type_name: Final = Names(ALIASES)
"""Edit type in any spelling → the paper's name of it."""


def tables(measures: Iterable[Metric]) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return Table 2, its other readings, the places of the keys and, where something is measured, Table 3.

    measures: the metrics of what is measured.
    """
    chosen = tuple(measures)
    accuracy = TableSpec(
        title="Functional correctness: accuracy by edit type",
        name="accuracy",
        metrics=(ACCURACY,),
        rows="edit_type",
        columns="editor",
        cell="macro",
        order=EDIT_TYPES,
        normalise=True,
        transposed=True,
        source="Table 2",
        caption="The paper's Overall is the mean of all samples.",
    )
    return (accuracy, readings, positions, *([partial(preservation, metrics=chosen)] if chosen else []))


def readings(frame: polars.DataFrame) -> Table | None:
    """Return the accuracy of each editor if abstentions, and missing outputs too, count as wrong; None without abstentions.

    frame: one judge's scores.
    """
    asked = [row for row in frame.to_dicts() if row["metric"] == ACCURACY]
    if all(row["missing"] != "abstained" for row in asked):
        return None
    columns = {
        "Judged alone": (),
        "Abstentions as wrong": ("abstained",),
        "Missing outputs as wrong too": ("abstained", "missing_output"),
    }
    return pivot(
        "readings",
        "Accuracy if abstentions count as wrong",
        grouped(asked, "editor"),
        [Figure(title, partial(_accuracy, wrong=wrong), keys={"reading": title}) for title, wrong in columns.items()],
        caption=(
            "Percent of (judged/asked), with 95 % intervals, resampled by source image. The paper counts an abstention as "
            "wrong and leaves missing outputs out.",
        ),
    )


def positions(frame: polars.DataFrame) -> Table | None:
    """Return where the right option stands, in the data and as shown, and each editor's accuracy there; None without keys.

    frame: one judge's scores with the columns `key_in_data`, `key_as_shown` and `options`.
    """
    asked = [row for row in frame.to_dicts() if row["metric"] == ACCURACY and row.get("key_as_shown") is not None]
    questions = {row["sample"]: row for row in asked}
    if not questions:
        return None
    chance = 100 * sum(1 / row["options"] for row in questions.values()) / len(questions)
    places = range(1, max(row["options"] for row in questions.values()) + 1)
    lines = {(place,): [{**row, "place": place, "editor": row["editor"] or ""} for row in asked] for place in places}

    def share(rows: Rows, *, of: str) -> Cell:
        there = {row["sample"]: row[of] == row["place"] for row in rows}
        return Cell(value=100 * sum(there.values()) / len(there), digits=1)

    def accuracy(rows: Rows) -> Cell:
        return _accuracy([row for row in rows if row["key_as_shown"] == row["place"]])

    first = [share(lines[1,], of=of).text for of in ("key_in_data", "key_as_shown")]
    return pivot(
        "positions",
        "Place of the right option, and accuracy there",
        lines,
        [
            Figure("In the data, %", partial(share, of="key_in_data"), keys={"figure": "share in the data"}),
            Figure("As shown, %", partial(share, of="key_as_shown"), keys={"figure": "share as shown"}),
            *(
                Figure(f"Accuracy, {editor or '(not named)'}", accuracy, {"editor": editor}, {"editor": editor})
                for (editor,) in grouped(asked, "editor")
            ),
        ],
        by=("place",),
        caption=(
            f"{len(questions)} questions with a key. The first option is right in {first[0]} % in the order of the data "
            f"and in {first[1]} % as shown; an answer at random is right in {chance:.1f} %. Accuracy in percent, of the "
            "questions whose right option is shown at that place.",
        ),
    )


def preservation(frame: polars.DataFrame, *, metrics: Sequence[Metric]) -> Table | None:
    """Return Table 3 for all edits and for correct ones, and MSE inverted; None if nothing is measured.

    frame: one judge's scores.
    """
    found = frame.to_dicts()
    right = {(row["editor"], row["sample"]) for row in found if row["metric"] == ACCURACY and row["value"] == 1}
    measured = {m.id: f"{m.short} ({m.unit})" if m.unit else m.short for m in metrics if m.id in {*frame["metric"]}}
    if not measured:
        return None
    scaled, said = _scaled([row for row in found if row["metric"] == "masked_mse"])
    infinite = sum(row["missing"] == "not_defined" and "infinite" in (row["reason"] or "") for row in found)

    def cell(rows: Rows, *, metric: str, of: str) -> Cell:
        digits = 2 if metric in ("masked_psnr", "masked_mse") else 4
        counted = [row for row in rows if of == "all edits" or (row["editor"], row["sample"]) in right]
        return mean(counted, digits=digits, interval_digits=1 if digits == 2 else digits)

    return pivot(
        "preservation",
        "Content preservation of all edits, and of correct ones",
        grouped([*found, *scaled], "editor"),
        [
            Figure(f"{title}, {short}", partial(cell, metric=id_, of=of), {"metric": id_}, {"metric": id_, "of": of})
            for id_, title in {**measured, **({"inverted_mse": "Inverted MSE"} if scaled else {})}.items()
            for short, of in (("all", "all edits"), ("correct", "correct edits"))
        ],
        caption=(
            "Means of (judged/asked), with 95 % intervals, resampled by source image. An editor that changes nothing "
            "preserves all: read these beside the accuracy.",
            said,
            f"PSNR is infinite, and counted apart, {infinite} times." if infinite else "",
        ),
    )


def _scaled(rows: Rows) -> tuple[list[dict[str, Any]], str]:
    """Return MSE as 1 at the least value of all editors and 0 at the largest, and the sentence that says both.

    Nothing if all values are the same: there is no scale then.
    """
    values = [row["value"] for row in rows if row["value"] is not None]
    if not values:
        return [], ""
    least, most = min(values), max(values)
    if least == most:
        return [], f"All MSE are {least:g}, so that there is no inverted MSE."
    scaled = [
        {**row, "metric": "inverted_mse", "value": None if row["value"] is None else (most - row["value"]) / (most - least)}
        for row in rows
    ]
    return scaled, (
        f"Inverted MSE is 1 at {least:g} and 0 at {most:g}, the least and the largest of all editors of this judge in "
        "this run. It changes with the editors: compare those that were measured in one run."
    )


def _accuracy(rows: Rows, wrong: Sequence[str] = ()) -> Cell:
    """Return the percent of right answers. wrong: what of what is missing counts as wrong."""
    return mean(rows, [_percent(row, wrong) for row in rows])


def _percent(row: Mapping[str, Any], wrong: Sequence[str] = ()) -> float | None:
    """Return 100 for a right answer and 0 for a wrong one. wrong: what of what is missing counts as wrong."""
    if row["value"] is None:
        return 0.0 if row["missing"] in wrong else None
    return 100.0 * float(row["value"])
