"""EdiVal's tables of verdicts: overall with ranks, success by turn and edit type (Tables 3 and 8 to 13).

Turns of a chain (T1, T2 …) and prompts of one, two … edits (complex mode, C1, C2 …) stand in tables of their own. Rates and
similarities are in percent, as printed. EdiVal-O and ranks exist in tables alone.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from editloupe.protocols.edival.consistency import CONTENT
from editloupe.protocols.edival.instructions import EDIT_TYPES
from editloupe.protocols.edival.leaderboard import beside_people
from editloupe.protocols.edival.measured_tables import consistency, quality
from editloupe.protocols.edival.mode_rows import FOLLOWING, MODES, SUCCESS, ModeRows, at_last, overall_of, percent
from editloupe.stats.pivot import Figure, Rows, grouped, mean
from editloupe.stats.ranks import ranks
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars

_SOURCES: Final = {"multipass": ("Table 8", "Tables 9 and 10"), "singlepass": ("Table 11", "Tables 12 and 13")}
"""Mode → the paper's tables by turn and by type."""
_EACH: Final = "Columns may rest on different images: one counts wherever it was judged."
_WHOLE: Final = "As the paper counts: an image of which any edit could not be judged is left out of every column."


def tables() -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return the scores by number of edits, then the tables of each mode and those on whole chains, then the ranks."""
    by_edits = TableSpec(
        title="Scores by number of edits",
        name="scores-by-edits",
        rows="turns",
        order=("1", "2", "3"),
        overall=False,
        apart=True,
        caption="Chains and complex prompts together, where the run has both; the tables below keep them apart.",
    )
    makers: list[Callable[..., Any]] = []
    for mode in MODES:
        makers += [partial(make, mode=mode) for make in (by_editor, by_turn, by_type, consistency, quality)]
        makers += [partial(make, mode=mode, whole=True) for make in (by_editor, by_turn)]
    return (by_edits, *makers, beside_people)


def by_editor(frame: polars.DataFrame, *, mode: str, whole: bool = False) -> Table | None:
    """Return image success (IF), content consistency (CC), their geometric mean (O) and ranks (Table 3).

    frame: one judge's scores.   whole: only of chains of which every edit was judged.
    None where consistency was not measured.
    """
    of = ModeRows(frame, mode, (SUCCESS, CONTENT), whole=whole)
    if not {SUCCESS, CONTENT} <= of.metrics:
        return None
    ranked = ranks(at_last(of))
    last = f"{of.letter}{of.turns[-1]}"
    figures = [
        *of.figures(SUCCESS, "IF", last=True),
        *of.figures(CONTENT, "CC"),
        *(Figure(f"O {of.letter}{n}", overall_of, {"turns": n}, {"metric": "overall", "edits": n}) for n in of.turns),
        Figure("Rank", lambda rows: ranked[rows[0]["editor"]], keys={"metric": "overall", "edits": of.turns[-1]}),
    ]
    caption = (
        "As in the paper's Table 3." if mode == "multipass" else "",
        "In percent (judged/asked).",
        "IF: images of which all edits so far succeed. CC: the mean of a sample's object and background consistency, "
        "or the one that is defined. O: the geometric mean of the two means; missing where one is.",
        f"Rank: by O at {last}, before rounding; editors that tie share the better rank.",
        _WHOLE if whole else _EACH,
    )
    return of.table("overall", "Overall", figures, caption, at_once=2 * len(of.turns))


def by_turn(frame: polars.DataFrame, *, mode: str, whole: bool = False) -> Table | None:
    """Return image success and task rate by number of edits (Tables 8 and 11). In complex mode the last edit's rate too."""

    def drawn(rows: Rows) -> Cell:
        return mean(rows, scale=100) if rows else percent(rows)

    of, chains = ModeRows(frame, mode, (SUCCESS, FOLLOWING), whole=whole), mode == "multipass"
    figures = [*of.figures(SUCCESS, "Success", drawn, last=True), *of.figures(FOLLOWING, "Task rate", drawn)]
    figures += [] if chains else of.figures(FOLLOWING, "Marginal", drawn, last=True, of="last edit")
    caption = (
        f"As in the paper's {_SOURCES[mode][0]}. In percent (judged/asked), with 95 % intervals, resampled by image.",
        "Success: images of which all edits so far succeed; missing as soon as one of them could not be judged.",
        "Task rate: edits that succeed"
        + ("." if chains else ", of all in the prompt. Marginal: the last edit of the prompt."),
        _WHOLE if whole else _EACH,
        "" if whole else _unread(frame),
    )
    return of.table("success", "Success", figures, caption, at_once=len(of.turns))


def by_type(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return the task rate by edit type and number of edits (Tables 9, 10, 12 and 13).

    Of complex prompts all edits count.
    """
    of = ModeRows(frame, mode, (FOLLOWING,))
    known, found = {row["edit_type"] for row in of.rows}, grouped(of.rows, "edit_type", "editor")
    types = [*(name for name in EDIT_TYPES if name in known), *sorted(known - {*EDIT_TYPES})]
    pairs = [(name, editor) for name in types for (editor,) in grouped(of.rows, "editor")]
    caption = (
        f"As in the paper's {_SOURCES[mode][1]}, in percent (judged/asked).",
        "Each prompt counts with all its edits, so that a type's edits add up over the columns." * (mode != "multipass"),
    )
    lines = {pair: found[pair] for pair in pairs if pair in found}
    by = ("edit_type", "editor")
    return of.table("by-type", "Task rate by edit type", of.figures(FOLLOWING, ""), caption, at_once=4, lines=lines, by=by)


def _unread(frame: polars.DataFrame) -> str:
    """Return how many samples stand in no column, since their row could not be read; "" for none."""
    if "mode" not in frame.columns:
        return ""
    count = len({(row["editor"], row["sample"]) for row in frame.filter(frame["mode"].is_null()).to_dicts()})
    return f"Samples whose row could not be read, and that stand in no column: {count}." if count else ""
