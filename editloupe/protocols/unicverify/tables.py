"""UnicVerify's tables: the classes beside people's, Eq. 6 by class (Table 5), and the ways to find No Edit (Figure 6)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from editloupe.stats import bootstrap
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Column, Row, Table, by_editor, estimated, label_columns, words

if TYPE_CHECKING:
    import polars

NORMAL: Final = "Normal"
NO_EDIT: Final = "No Edit"
HALLUCINATION: Final = "Hallucination"
CLASSES: Final = (NORMAL, NO_EDIT, HALLUCINATION)
"""In the order of the paper's Table 5."""

_Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Rows of the frame of scores."""

_INTERVALS: Final = "With 95 % intervals, resampled by source image; (judged/asked)."


def tables(options: Any, *, means: Sequence[str]) -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return the tables of a run with these options.

    means: ids of the metrics of which a mean says something. Of the classes, which have no order, it says nothing.
    """
    settled = {
        "off": "",
        "first": " No Edit was settled by a rule on pixels where it could be, without a model (rules=first).",
        "only": " A rule on pixels alone says what changed; no model was asked (rules=only).",
    }
    by_class = TableSpec(
        title="Verification, by class",
        name="verification",
        metrics=tuple(means),
        rows="class",
        order=CLASSES,
        caption="Class: people's where the data has it, else the judge's." + settled[options.rules],
    )
    compared = partial(no_edit, methods=options.no_edit, threshold=options.ssim_threshold)
    return by_class, confusion, partial(accuracy, options=options), compared


def confusion(frame: polars.DataFrame) -> Table | None:
    """Return how often each class of people's was judged as each class; None where people gave none.

    frame: one judge's scores.
    """
    every = [row for row in frame.to_dicts() if row["metric"] == "edit_class"]
    rows = [row for row in every if row.get("human_class") is not None]
    if not rows:
        return None
    lost = list(dict.fromkeys(row["missing"] for row in rows if row["missing"] is not None))
    made = []
    for editor, own in by_editor(rows).items():
        for name in CLASSES:
            of = [row for row in own if row["human_class"] == name]
            given = Counter(row["label"] or row["missing"] for row in of)
            counts = (Cell(value=given[column], name="count") for column in (*CLASSES, *lost))
            right = [None if row["label"] is None else 100.0 * (row["label"] == name) for row in of]
            made.append(
                Row(
                    cells=(words(editor or "(not named)"), words(name), *counts, _mean(of, right, digits=2)),
                    keys={"editor": editor, "human_class": name},
                )
            )
    return Table(
        name="confusion",
        title="Classes: people's in rows, the judge's in columns",
        columns=(
            *label_columns("Editor", "People say"),
            *(Column(title=name, keys={"judge_says": name}) for name in CLASSES),
            *(Column(title=f"({status})", keys={"judge_says": f"({status})"}) for status in lost),
            Column(title="Right, %", keys={"figure": "right"}),
        ),
        rows=tuple(made),
        fixed=2,
        at_once=7,
        caption=f"Pairs. Right: percent of those with a class from the judge.{_unclassed(every)} {_INTERVALS}",
    )


def accuracy(frame: polars.DataFrame, *, options: Any) -> Table | None:
    """Return Eq. 6 by class, as it is and times 10, in the paper's Table 5's shape; None where nothing was parsed.

    frame: one judge's scores.
    """
    rows = [row for row in frame.to_dicts() if row["metric"] == "alignment_accuracy"]
    if not rows:
        return None
    people = any(row.get("human_class") is not None for row in rows)
    column = "human_class" if people else "class"
    against = Counter(row["reference"] for row in rows if row[column] is not None and row["value"] is not None)
    held = " and ".join(f"{count} against {_AGAINST[name]}" for name, count in against.items()) or "none has a value"
    matched = {"lmm": "by the parser", "strict": "by equal texts"}[options.matching]
    return Table(
        name="alignment",
        title="Alignment accuracy (Eq. 6) by class",
        columns=(*label_columns("Editor", "Scale"), *(Column(title=name, keys={"class": name}) for name in CLASSES)),
        rows=tuple(
            Row(
                cells=(
                    words(editor or "(not named)"),
                    words(f"×{scale}"),
                    *(
                        _mean(of, [None if row["value"] is None else scale * row["value"] for row in of], digits=3)
                        for name in CLASSES
                        for of in [[row for row in own if row[column] == name]]
                    ),
                ),
                keys={"editor": editor, "scale": scale},
            )
            for editor, own in by_editor(rows).items()
            for scale in (1, 10)
        ),
        fixed=2,
        caption=(
            f"Mean of Eq. 6 with w = {options.w:g}, at most 1, not clamped below; {held}; tasks matched {matched}; classes "
            f"{'as people say' if people else 'as judged'}.{_unclassed(rows, column)} It is not defined where the "
            f"reference has no task, as in No Edit. The paper's Table 5 runs to 10 and does not say how. {_INTERVALS}"
        ),
    )


_AGAINST: Final = {"people": "what people wrote", "instruction": "the editor's instruction"}


def no_edit(frame: polars.DataFrame, *, methods: Sequence[str], threshold: float) -> Table | None:
    """Return how well each way finds the pairs without an edit: against people, or else against the model.

    frame: one judge's scores.   methods: lmm, differences, ssim.   threshold: SSIM from which on a pair is called No Edit.
    """
    found = frame.to_dicts()
    said = _said(found, threshold)
    ruled = sum(row["metric"] == "is_changed" and row.get("settled_by") == "rule" for row in found)
    unasked = f" {ruled} pairs were settled by the rule, and the LMM was not asked about them." if ruled else ""
    people = "people" in said
    left = _unclassed([row for row in found if row["metric"] == "is_changed"]) if people else ""
    truth = said.get("people" if people else "lmm", {})
    shown = [name for name in methods if name in said and (people or name != "lmm")]
    known = [pair for pair, call in truth.items() if call is not None]
    if not shown or not known:
        return None
    rows = []
    for name in shown:
        of = {True: [p for p in known if truth[p]], False: [p for p in known if not truth[p]]}
        cells = (_called(said[name], of[True]), _called(said[name], of[False]), _agree(said[name], truth, known))
        rows.append(Row(cells=(words(_WAYS[name].format(threshold)), *cells), keys={"way": name}))
    return Table(
        name="no-edit",
        title="Ways to find No Edit",
        columns=(
            *label_columns("Way"),
            Column(title="No Edit found, %", keys={"figure": "found"}),
            Column(title="Edits called No Edit, %", keys={"figure": "false"}),
            Column(title="Agree, %", keys={"figure": "agree"}),
        ),
        rows=tuple(rows),
        caption=f"Against {'people' if people else 'the LMM, where it was asked'}.{left}{unasked} {_INTERVALS}",
    )


_WAYS: Final = {"lmm": "LMM", "differences": "differences (nothing found)", "ssim": "SSIM (at least {:g})"}

_Pair: TypeAlias = tuple[str, str, str]
"""(editor, sample id, source)."""
_Calls: TypeAlias = dict[_Pair, bool | None]
"""Pair → whether it is called No Edit; None where nobody could say."""


def _said(rows: _Rows, threshold: float) -> dict[str, _Calls]:
    """Return who calls which pairs No Edit."""
    found: dict[str, _Calls] = {}
    for row in rows:
        pair, value = (row["editor"] or "", row["sample"], row["source"] or row["sample"]), row["value"]
        if row["metric"] == "is_changed":
            if row.get("settled_by") != "rule":
                found.setdefault("lmm", {})[pair] = None if value is None else value == 0
            if row.get("human_class") is not None:
                found.setdefault("people", {})[pair] = row["human_class"] == NO_EDIT
        elif row["metric"] == "differences":
            found.setdefault("differences", {})[pair] = None if value is None else value == 0
        elif row["metric"] == "ssim":
            found.setdefault("ssim", {})[pair] = None if value is None else value >= threshold
    return found


def _called(calls: _Calls, pairs: Sequence[_Pair]) -> Cell:
    """Return the percent of these pairs that are called No Edit."""
    return _share(pairs, [calls.get(pair) for pair in pairs])


def _agree(calls: _Calls, truth: _Calls, pairs: Sequence[_Pair]) -> Cell:
    return _share(pairs, [None if (call := calls.get(pair)) is None else call == truth[pair] for pair in pairs])


def _share(pairs: Sequence[_Pair], values: Iterable[bool | None]) -> Cell:
    found = bootstrap.mean([None if v is None else 100.0 * v for v in values], [pair[2] for pair in pairs])
    return estimated(found, interval_digits=1)


def _mean(rows: _Rows, values: Sequence[float | None], *, digits: int) -> Cell:
    """Return the mean of values with its interval. rows: those that the values are of."""
    found = bootstrap.mean(values, [row["source"] or row["sample"] for row in rows]) if rows else None
    return estimated(found, digits=digits, interval_digits=1 if digits == 2 else digits)


def _unclassed(rows: _Rows, column: str = "human_class") -> str:
    """Return how many pairs are not in a table of classes, since they have none; "" if all are.   rows: one a pair."""
    count = sum(row.get(column) is None for row in rows)
    whose = "people's" if column == "human_class" else "a"
    return f" Pairs without {whose} class are not counted: {count}." if count else ""
