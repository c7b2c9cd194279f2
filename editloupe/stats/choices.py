"""Answers to multiple-choice questions with a key: their accuracy, and whether it depends on where the right option stands.

Rows are those of the frame of scores, 1 for a right answer and 0 for a wrong one. No I/O.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from editloupe.stats.pivot import Figure, Rows, grouped, mean, pivot, rows_of
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars


def accuracy(rows: Rows, wrong: Sequence[str] = ()) -> Cell:
    """Return the percent of right answers. wrong: what of what is missing counts as wrong."""
    return mean(rows, [0.0 if row["missing"] in wrong else row["value"] and 100.0 * row["value"] for row in rows])


def positions(frame: polars.DataFrame, *, metric: str) -> Table | None:
    """Return where the right option stands, in the data and as shown, and each editor's accuracy there; None without keys.

    frame: one judge's scores with the columns `key_in_data`, `key_as_shown` and `options`, how many there are.
    """
    asked = [{**row, "editor": row["editor"] or ""} for row in rows_of(frame, metric) if row.get("key_as_shown")]
    questions = {row["sample"]: row for row in asked}
    if not questions:
        return None
    chance = 100 * sum(1 / row["options"] for row in questions.values()) / len(questions)
    places = range(1, max(row["options"] for row in questions.values()) + 1)
    lines = {(place,): [{**row, "place": place} for row in asked] for place in places}
    first = [_share(lines[1,], of=of).text for of in ("key_in_data", "key_as_shown")]
    return pivot(
        "positions",
        "Place of the right option, and accuracy there",
        lines,
        [
            Figure("In the data, %", partial(_share, of="key_in_data"), keys={"figure": "share in the data"}),
            Figure("As shown, %", partial(_share, of="key_as_shown"), keys={"figure": "share as shown"}),
            *(
                Figure(f"Accuracy, {editor or '(not named)'}", _there, {"editor": editor}, {"editor": editor})
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


def _share(rows: Rows, *, of: str) -> Cell:
    """Return the percent of questions whose right option stands at the line's place.   of: in the data, or as shown."""
    there = {row["sample"]: row[of] == row["place"] for row in rows}
    return Cell(value=100 * sum(there.values()) / len(there), digits=1)


def _there(rows: Rows) -> Cell:
    return accuracy([row for row in rows if row["key_as_shown"] == row["place"]])
