"""UnicVerify's tables: the classes beside people's, Eq. 6 by class (Table 5), and the ways to find No Edit (Figure 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from editloupe.files import read_toml
from editloupe.stats.pivot import Figure, Rows, class_table, grouped, mean, pivot, rows_of, sentences
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars

NORMAL: Final = "Normal"
NO_EDIT: Final = "No Edit"
HALLUCINATION: Final = "Hallucination"
CLASSES: Final = (NORMAL, NO_EDIT, HALLUCINATION)
"""In the order of the paper's Table 5."""

_AGAINST: Final = {"people": "what people wrote", "instruction": "the editor's instruction"}
_CAPTIONS: Final = read_toml(Path(__file__).with_name("tables.toml"), "the built-in captions")
_INTERVALS: Final = _CAPTIONS["intervals"]


def tables(options: Any, *, means: Sequence[str]) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return the tables of a run with these options.

    means: ids of the metrics of which a mean says something. Of the classes, which have no order, it says nothing.
    """
    by_class = TableSpec(
        title="Verification, by class",
        name="verification",
        metrics=tuple(means),
        rows="class",
        order=CLASSES,
        caption=_CAPTIONS["by_class"],
    )
    compared = partial(no_edit, methods=options.no_edit)
    return by_class, confusion, partial(accuracy, options=options), compared


def confusion(frame: polars.DataFrame) -> Table | None:
    """Return how often each class of people's was judged as each class; None where people gave none.

    frame: one judge's scores.
    """
    every = rows_of(frame, "edit_class")
    rows = [row for row in every if row.get("human_class") is not None]
    titles = "Classes: people's in rows, the judge's in columns", "People say"
    caption = sentences(_CAPTIONS["confusion"], _unclassed(every), _INTERVALS)
    return class_table("confusion", *titles, rows, CLASSES, truth="human_class", caption=caption)


def accuracy(frame: polars.DataFrame, *, options: Any) -> Table | None:
    """Return Eq. 6 by class, as it is and times 10, in the paper's Table 5's shape; None where nothing was parsed.

    frame: one judge's scores.
    """
    rows = rows_of(frame, "alignment_accuracy")
    if not rows:
        return None
    people = any(row.get("human_class") is not None for row in rows)
    column, whose = ("human_class", "as people say") if people else ("class", "as judged")
    against = Counter(row["reference"] for row in rows if row[column] is not None and row["value"] is not None)
    held = " and ".join(f"{count} against {_AGAINST[name]}" for name, count in against.items()) or "none has a value"
    matched = {"lmm": "by the parser", "strict": "by equal texts"}[options.matching]
    return pivot(
        "alignment",
        "Alignment accuracy (Eq. 6) by class",
        {
            (editor, scale): [{**row, "value": None if row["value"] is None else scale * row["value"]} for row in own]
            for (editor,), own in grouped(rows, "editor").items()
            for scale in (1, 10)
        },
        [Figure(name, partial(mean, digits=3, interval_digits=3), {column: name}, {"class": name}) for name in CLASSES],
        by=("editor", "scale"),
        shown={"scale": {1: "×1", 10: "×10"}},
        caption=(
            _CAPTIONS["accuracy"].format(w=options.w, held=held, matched=matched, whose=whose),
            _unclassed(rows, column),
            _CAPTIONS["undefined"],
            _INTERVALS,
        ),
    )


def no_edit(frame: polars.DataFrame, *, methods: Sequence[str]) -> Table | None:
    """Return how well each way finds the pairs without an edit: against people, or else against the model.

    frame: one judge's scores.   methods: lmm, differences, ssim.
    """
    said = _said(frame.to_dicts())
    asked = rows_of(frame, "is_changed")
    people = "people" in said
    left = _unclassed(asked) if people else ""
    truth = said.get("people" if people else "lmm", {})
    shown = [name for name in methods if name in said and (people or name != "lmm")]
    known = [pair for pair, call in truth.items() if call is not None]
    if not shown or not known:
        return None

    def agree(rows: Rows) -> Cell:
        return mean(rows, [None if row["value"] is None else 100.0 * (row["value"] == row["truth"]) for row in rows])

    percent = partial(mean, scale=100)
    return pivot(
        "no-edit",
        "Ways to find No Edit",
        {
            (name,): [{"source": pair[2], "value": said[name].get(pair), "truth": truth[pair]} for pair in known]
            for name in shown
        },
        [
            Figure("No Edit found, %", percent, {"truth": True}, {"figure": "found"}),
            Figure("Edits called No Edit, %", percent, {"truth": False}, {"figure": "false"}),
            Figure("Agree, %", agree, keys={"figure": "agree"}),
        ],
        by=("way",),
        shown={"way": _WAYS},
        caption=(f"Against {'people' if people else 'the LMM'}.", left, _INTERVALS),
    )


_ALIKE: Final = 0.95
"""SSIM from which on a pair is called No Edit; the paper names none."""
_WAYS: Final = {"lmm": "LMM", "differences": "differences (nothing found)", "ssim": f"SSIM (at least {_ALIKE:g})"}

_Pair: TypeAlias = tuple[str, str, str]
"""(editor, sample id, source)."""
_Calls: TypeAlias = dict[_Pair, bool | None]
"""Pair → whether it is called No Edit; None where nobody could say."""


def _said(rows: Rows) -> dict[str, _Calls]:
    """Return who calls which pairs No Edit."""
    found: dict[str, _Calls] = {}
    for row in rows:
        metric, value = row["metric"], row["value"]
        pair = row["editor"] or "", row["sample"], row["source"] or row["sample"]
        if metric == "is_changed" and row.get("human_class") is not None:
            found.setdefault("people", {})[pair] = row["human_class"] == NO_EDIT
        if who := {"is_changed": "lmm", "differences": metric, "ssim": metric}.get(metric):
            call = None if value is None else value >= _ALIKE if metric == "ssim" else value == 0
            found.setdefault(who, {})[pair] = call
    return found


def _unclassed(rows: Rows, column: str = "human_class") -> str:
    """Return how many pairs are not in a table of classes, since they have none; "" if all are.   rows: one a pair."""
    count = sum(row.get(column) is None for row in rows)
    whose = "people's" if column == "human_class" else "a"
    return f"Pairs without {whose} class are not counted: {count}." if count else ""
