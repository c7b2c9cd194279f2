"""EdiVal's tables: overall with ranks, success by turn and edit type, consistency, quality (Tables 3, 8 to 14, 17 to 19).

Turns of a chain (T1, T2 …) and prompts of one, two … edits (complex mode, C1, C2 …) stand in tables of their own. Rates and
similarities are in percent, as printed. EdiVal-O and ranks exist in tables alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from editloupe.protocols.edival.consistency import CONTENT
from editloupe.protocols.edival.instructions import EDIT_TYPES
from editloupe.protocols.edival.quality import CHANGE
from editloupe.stats.pivot import Figure, Rows, grouped, mean, pivot
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars

FOLLOWING: Final = "instruction_following"
SUCCESS: Final = "image_success"
"""Ids of the two verdicts on an edit."""


@dataclass(frozen=True, kw_only=True)
class _Mode:
    """How the tables of one mode are called."""

    title: str
    name: str
    """In front of the names of files."""
    letter: str
    """In front of a number of edits."""
    success: str
    types: str
    consistency: str
    quality: str
    """The paper's tables."""


_MODES: Final[Mapping[str, _Mode]] = {
    "multipass": _Mode(
        title="multi-turn", name="multi-turn", letter="T", success="Table 8", types="Tables 9 and 10",
        consistency="Table 14", quality="Table 18",
    ),
    "singlepass": _Mode(
        title="complex", name="complex", letter="C", success="Table 11", types="Tables 12 and 13", consistency="Table 17",
        quality="Table 19",
    ),
}  # fmt: skip


_Shown: TypeAlias = tuple[str, Callable[..., Cell]]
"""How a metric is shown: its title, and the figure of its rows."""
_PROMPT: Final = re.compile(r"\.c\d+$")
"""Behind the id of an image: which of its complex prompts."""
_EACH: Final = "Columns may rest on different images: one counts wherever it was judged."
_WHOLE: Final = "As the paper counts: an image of which any edit could not be judged is left out of every column."
_SAME: Final = 1e-9
"""Difference up to which two overall scores are a tie."""


def _mean(rows: Rows, *, scale: float = 100, digits: int = 2) -> Cell:
    """Return the mean of what was judged, as shown."""
    known = [scale * row["value"] for row in rows if row["value"] is not None]
    value = math.fsum(known) / len(known) if known else None
    return Cell(value=value, name="mean", digits=digits, judged=len(known), asked=len(rows))


_CONSISTENCY: Final[Mapping[str, _Shown]] = {
    "object_consistency": ("Object", _mean),
    "background_consistency": ("Background", _mean),
    CONTENT: ("CC", _mean),
    "object_l1": ("Object L1", _mean),
    "background_l1": ("Background L1", _mean),
    "alignment": ("Alignment", partial(_mean, scale=1, digits=3)),
}
_QUALITY: Final[Mapping[str, _Shown]] = {
    "preference": ("HPSv3", partial(_mean, scale=1, digits=4)),
    "luminance_p999": ("p99.9", _mean),
    "luminance_p99": ("p99", _mean),
    "saturation": ("Saturation", _mean),
    "sharpness": ("Sharpness", partial(_mean, scale=1, digits=4)),
    "contrast": ("Contrast", partial(_mean, scale=1, digits=4)),
}
_CHANGES: Final[Mapping[str, _Shown]] = {f"{id_}{CHANGE}": (f"|Δ {name}|", cell) for id_, (name, cell) in _QUALITY.items()}


def overall(success: float | None, consistency: float | None) -> float | None:
    """Return EdiVal-O, the geometric mean of image success and content consistency, both in percent.

    None where one of them is missing. 0 where one of them is 0.
    """
    return None if success is None or consistency is None else math.sqrt(success * consistency)


def tables() -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return the scores by number of edits, then the tables of each mode, and those on whole chains."""
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
    for mode in _MODES:
        for make in (by_editor, by_turn, by_type, consistency, quality):
            makers.append(partial(make, mode=mode))
        makers += [partial(make, mode=mode, whole=True) for make in (by_editor, by_turn)]
    return (by_edits, *makers)


def by_editor(frame: polars.DataFrame, *, mode: str, whole: bool = False) -> Table | None:
    """Return image success (IF), content consistency (CC), their geometric mean (O) and ranks (Table 3).

    frame: one judge's scores.   whole: only of chains of which every edit was judged.
    None where consistency was not measured.
    """
    rows, called = _rows(frame, mode, (SUCCESS, CONTENT), whole=whole), _MODES[mode]
    turns = _turns(rows)
    if not {SUCCESS, CONTENT} <= {row["metric"] for row in rows}:
        return None

    def both(rows: Rows) -> Cell:
        success = _mean([row for row in rows if row["metric"] == SUCCESS and row["last"]])
        kept = _mean([row for row in rows if row["metric"] == CONTENT])
        return Cell(value=overall(_value(success), _value(kept)), name="mean", digits=2)

    lines = grouped(rows, "editor")
    at_last = {editor: both([row for row in own if row["turns"] == turns[-1]]) for (editor,), own in lines.items()}
    scores = {editor: value for editor, cell in at_last.items() if (value := _value(cell)) is not None}
    ranked = Figure("Rank", partial(_rank, scores=scores), keys={"metric": "overall", "edits": turns[-1]})
    return _table(
        called,
        "overall",
        "Overall",
        lines,
        [
            *(_figure(called, "IF", SUCCESS, turn, last=True) for turn in turns),
            *(_figure(called, "CC", CONTENT, turn) for turn in turns),
            *(Figure(f"O {called.letter}{n}", both, {"turns": n}, {"metric": "overall", "edits": n}) for n in turns),
            ranked,
        ],
        whole=whole,
        at_once=2 * len(turns),
        caption=(
            "As in the paper's Table 3." if mode == "multipass" else "",
            "In percent (judged/asked).",
            "IF: images of which all edits so far succeed. CC: the mean of a sample's object and background consistency, "
            "or the one that is defined. O: the geometric mean of the two means; missing where one is.",
            f"Rank: by O at {called.letter}{turns[-1]}, before rounding; editors that tie share the better rank.",
            _WHOLE if whole else _EACH,
        ),
    )


def by_turn(frame: polars.DataFrame, *, mode: str, whole: bool = False) -> Table | None:
    """Return image success and task rate by number of edits (Tables 8 and 11).

    In complex mode the last edit's rate too.
    """
    rows, called = _rows(frame, mode, (SUCCESS, FOLLOWING), whole=whole), _MODES[mode]
    turns, there = _turns(rows), {row["metric"] for row in rows}

    def drawn(rows: Rows) -> Cell:
        return mean(rows, scale=100) if rows else _mean(rows)

    figures = [_figure(called, "Success", SUCCESS, turn, drawn, last=True) for turn in turns if SUCCESS in there]
    if FOLLOWING in there:
        figures += [_figure(called, "Task rate", FOLLOWING, turn, drawn) for turn in turns]
        if mode == "singlepass":
            figures += [_figure(called, "Marginal", FOLLOWING, n, drawn, last=True, of="last edit") for n in turns]
    rate = "Task rate: edits that succeed" + (
        "." if mode == "multipass" else ", of all in the prompt. Marginal: the last edit of the prompt."
    )
    return _table(
        called,
        "success",
        "Success",
        grouped(rows, "editor"),
        figures,
        whole=whole,
        at_once=len(turns),
        caption=(
            f"As in the paper's {called.success}. In percent (judged/asked), with 95 % intervals, resampled by image.",
            "Success: images of which all edits so far succeed; missing as soon as one of them could not be judged.",
            rate,
            _WHOLE if whole else _EACH,
            "" if whole else _unread(frame),
        ),
    )


def by_type(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return the task rate by edit type and number of edits (Tables 9, 10, 12 and 13).

    Of complex prompts all edits count.
    """
    rows, called = _rows(frame, mode, (FOLLOWING,)), _MODES[mode]
    known, found = {row["edit_type"] for row in rows}, grouped(rows, "edit_type", "editor")
    types = [*(name for name in EDIT_TYPES if name in known), *sorted(known - {*EDIT_TYPES})]
    pairs = [(name, editor) for name in types for (editor,) in grouped(rows, "editor")]
    return _table(
        called,
        "by-type",
        "Task rate by edit type",
        {pair: found[pair] for pair in pairs if pair in found},
        [_figure(called, "", FOLLOWING, turn) for turn in _turns(rows)],
        by=("edit_type", "editor"),
        caption=(
            f"As in the paper's {called.types}, in percent (judged/asked).",
            ""
            if mode == "multipass"
            else "Each prompt counts with all its edits, so that a type's edits add up over the columns.",
        ),
    )


def consistency(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return what should have stayed, by number of edits (Tables 14 and 17)."""
    caption = (
        f"As in the paper's {_MODES[mode].consistency}: similarities of features, and 1 − mean absolute difference (L1), "
        "in percent (judged/asked); compared with the base image, higher is better.",
        "Where a sample has no unchanged object, or no background, CC is the other one alone, so that it need not be "
        "the mean of the two columns.",
    )
    return _means(_rows(frame, mode, _CONSISTENCY), _CONSISTENCY, mode, "consistency", caption)


def quality(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return the quality of the image after each number of edits (Tables 18 and 19)."""
    rows = _rows(frame, mode, {**_QUALITY, **_CHANGES})
    caption = (
        f"As in the paper's {_MODES[mode].quality} (judged/asked). Luminance and saturation in percent.",
        "|Δ|: the mean of each image's distance from its base image. The paper's Table 4 has the distance of the two "
        "means, which is smaller."
        if any(row["metric"] in _CHANGES for row in rows)
        else "",
    )
    return _means(rows, {**_QUALITY, **_CHANGES}, mode, "quality", caption)


def _means(rows: Rows, shown: Mapping[str, _Shown], mode: str, name: str, caption: Sequence[str]) -> Table | None:
    """Return means of metrics by editor and number of edits; None if nobody has any of them."""
    turns, there = _turns(rows), {row["metric"] for row in rows}
    return _table(
        _MODES[mode],
        name,
        name.capitalize(),
        grouped(rows, "editor"),
        [
            _figure(_MODES[mode], title, id_, turn, cell)
            for id_, (title, cell) in shown.items()
            if id_ in there
            for turn in turns
        ],
        at_once=2 * len(turns),
        caption=caption,
    )


def _table(
    called: _Mode,
    name: str,
    title: str,
    lines: Mapping[tuple[Any, ...], Rows],
    figures: Sequence[Figure],
    *,
    whole: bool = False,
    **more: Any,
) -> Table | None:
    """Return a table of a mode under its names. more: further arguments of `pivot`."""
    of = (f"{called.name}-{name}{'-whole' * whole}", f"{title}, {called.title}{', on whole chains' * whole}")
    return pivot(*of, lines, figures, **more)


def _figure(
    called: _Mode,
    title: str,
    metric: str,
    turn: int,
    cell: Callable[[Rows], Cell] = _mean,
    *,
    last: bool = False,
    **more: str,
) -> Figure:
    """Return the column of a metric at a number of edits.

    last: of scores that are about the last of these edits.   more: further keys in files.
    """
    where = {"metric": metric, "turns": turn, **({"last": True} if last else {})}
    return Figure(f"{title} {called.letter}{turn}".strip(), cell, where, {"metric": metric, "edits": turn, **more})


def _rows(frame: polars.DataFrame, mode: str, metrics: Collection[str], *, whole: bool = False) -> list[dict[str, Any]]:
    """Return the frame's rows of a mode and of metrics, the edit type as text.

    whole: those of chains of which every edit was judged; none if that is every chain. `last`: whether a score is about the
    last edit.
    """
    if not {"mode", "turns"} <= {*frame.columns}:
        return []
    names = ("editor", "sample", "source", "part", "metric", "value", "turns", "edit_type")
    wanted = frame["metric"].is_in([*metrics, FOLLOWING]) & (frame["mode"] == mode) & frame["turns"].is_not_null()
    found = [
        {
            **row,
            "editor": row["editor"] or "",
            "edit_type": row.get("edit_type") or "",
            "turns": int(row["turns"]),
            "last": row["part"] in ("", f"instruction {int(row['turns'])}"),
        }
        for row in frame.filter(wanted).select(name for name in names if name in frame.columns).to_dicts()
    ]
    lost = {_chain(row) for row in found if row["metric"] == FOLLOWING and row["value"] is None} if whole else set()
    if whole and not lost:
        return []
    return [row for row in found if row["metric"] in metrics and _chain(row) not in lost]


def _chain(row: Mapping[str, Any]) -> tuple[str, str]:
    """Return (editor, image): what the paper drops as one."""
    return row["editor"], _PROMPT.sub("", row["sample"])


def _unread(frame: polars.DataFrame) -> str:
    """Return how many samples stand in no column, since their row could not be read; "" for none."""
    if "mode" not in frame.columns:
        return ""
    count = len({(row["editor"], row["sample"]) for row in frame.filter(frame["mode"].is_null()).to_dicts()})
    return f"Samples whose row could not be read, and that stand in no column: {count}." if count else ""


def _turns(rows: Rows) -> list[int]:
    return sorted({row["turns"] for row in rows})


def _value(cell: Cell) -> float | None:
    return None if isinstance(cell.value, str) else cell.value


def _rank(rows: Rows, *, scores: Mapping[str, float]) -> Cell:
    """Return the rank of an editor by its rows, 1 for the highest score; none without a score."""
    editor = rows[0]["editor"]
    if editor not in scores:
        return Cell(name="rank")
    own = scores[editor]
    tied = sum(abs(score - own) <= _SAME for score in scores.values()) > 1
    return Cell(value=1 + sum(score > own + _SAME for score in scores.values()), name="rank", note="tie" if tied else "")
