"""EdiVal's tables: overall with ranks, success by turn and edit type, consistency, quality (Tables 3, 8 to 14, 17 to 19).

Turns of a chain (T1, T2 …) and prompts of one, two … edits (complex mode, C1, C2 …) stand in tables of their own. Rates and
similarities are in percent, as printed. EdiVal-O and ranks exist in tables alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from editloupe.protocols.edival.consistency import CONTENT
from editloupe.protocols.edival.instructions import EDIT_TYPES
from editloupe.protocols.edival.quality import CHANGE
from editloupe.stats import bootstrap
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Column, Row, Table, estimated, label_columns, words

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


@dataclass(frozen=True, kw_only=True)
class _Figure:
    """How a metric is shown."""

    title: str
    scale: float = 100
    digits: int = 2


_CONSISTENCY: Final[Mapping[str, _Figure]] = {
    "object_consistency": _Figure(title="Object"),
    "background_consistency": _Figure(title="Background"),
    CONTENT: _Figure(title="CC"),
    "object_l1": _Figure(title="Object L1"),
    "background_l1": _Figure(title="Background L1"),
    "alignment": _Figure(title="Alignment", scale=1, digits=3),
}
_QUALITY: Final[Mapping[str, _Figure]] = {
    "preference": _Figure(title="HPSv3", scale=1, digits=4),
    "luminance_p999": _Figure(title="p99.9"),
    "luminance_p99": _Figure(title="p99"),
    "saturation": _Figure(title="Saturation"),
    "sharpness": _Figure(title="Sharpness", scale=1, digits=4),
    "contrast": _Figure(title="Contrast", scale=1, digits=4),
}
_PROMPT: Final = re.compile(r"\.c\d+$")
"""Behind the id of an image: which of its complex prompts."""
_EACH: Final = "Columns may rest on different images: one counts wherever it was judged."
_WHOLE: Final = "As the paper counts: an image of which any edit could not be judged is left out of every column."
_SAME: Final = 1e-9
"""Difference up to which two overall scores are a tie."""

_Rows: TypeAlias = Sequence[Mapping[str, Any]]
"""Rows of the frame of scores."""


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
    found: dict[str, list[Cell]] = {}
    final: dict[str, float] = {}
    for editor, own in _by_editor(rows).items():
        success = [_mean([row for row in _last(own, turn) if row["metric"] == SUCCESS]) for turn in turns]
        kept = [_mean([row for row in own if row["metric"] == CONTENT and row["turns"] == turn]) for turn in turns]
        both = [overall(_value(a), _value(b)) for a, b in zip(success, kept, strict=True)]
        found[editor] = [*success, *kept, *(Cell(value=value, name="mean", digits=2) for value in both)]
        if both[-1] is not None:
            final[editor] = both[-1]
    last = f"{called.letter}{turns[-1]}"
    heads = (("IF", SUCCESS), ("CC", CONTENT), ("O", "overall"))
    return Table(
        name=_name(called, "overall", whole),
        title=_title(f"Overall, {called.title}", whole),
        columns=(
            *label_columns("Editor"),
            *(_column(called, title, metric, turn) for title, metric in heads for turn in turns),
            Column(title="Rank", keys={"metric": "overall", "edits": turns[-1]}),
        ),
        rows=tuple(
            Row(cells=(_editor(editor), *cells, _rank(editor, final)), keys={"editor": editor})
            for editor, cells in found.items()
        ),
        at_once=2 * len(turns),
        caption=_sentences(
            "As in the paper's Table 3." if mode == "multipass" else "",
            "In percent (judged/asked).",
            "IF: images of which all edits so far succeed. CC: the mean of a sample's object and background consistency, "
            "or the one that is defined. O: the geometric mean of the two means; missing where one is.",
            f"Rank: by O at {last}, before rounding; editors that tie share the better rank.",
            _WHOLE if whole else _EACH,
        ),
    )


def by_turn(frame: polars.DataFrame, *, mode: str, whole: bool = False) -> Table | None:
    """Return image success and task rate by number of edits (Tables 8 and 11).

    In complex mode the last edit's rate too.
    """
    rows, called = _rows(frame, mode, (SUCCESS, FOLLOWING), whole=whole), _MODES[mode]
    turns = _turns(rows)
    shown = [metric for metric in (SUCCESS, FOLLOWING) if any(row["metric"] == metric for row in rows)]
    if not shown:
        return None
    figures = [(("Success" if metric == SUCCESS else "Task rate"), metric, metric == SUCCESS) for metric in shown]
    if mode == "singlepass" and FOLLOWING in shown:
        figures.append(("Marginal", FOLLOWING, True))

    def cell(own: _Rows, metric: str, last: bool, turn: int) -> Cell:
        at = _last(own, turn) if last else [row for row in own if row["turns"] == turn]
        return _mean([row for row in at if row["metric"] == metric], interval=True)

    return Table(
        name=_name(called, "success", whole),
        title=_title(f"Success, {called.title}", whole),
        columns=(
            *label_columns("Editor"),
            *(
                _column(called, title, metric, turn, **({"of": "last edit"} if title == "Marginal" else {}))
                for title, metric, _ in figures
                for turn in turns
            ),
        ),
        rows=tuple(
            Row(
                cells=(_editor(editor), *(cell(own, m, last, turn) for _, m, last in figures for turn in turns)),
                keys={"editor": editor},
            )
            for editor, own in _by_editor(rows).items()
        ),
        at_once=len(turns),
        caption=_sentences(
            f"As in the paper's {called.success}. In percent (judged/asked), with 95 % intervals, resampled by image.",
            "Success: images of which all edits so far succeed; missing as soon as one of them could not be judged.",
            "Task rate: edits that succeed." if mode == "multipass" else "Task rate: edits that succeed, of all in the "
            "prompt. Marginal: the last edit of the prompt.",
            _WHOLE if whole else _EACH,
            "" if whole else _unread(frame),
        ),
    )  # fmt: skip


def by_type(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return the task rate by edit type and number of edits (Tables 9, 10, 12 and 13).

    Of complex prompts all edits count.
    """
    rows, called = _rows(frame, mode, (FOLLOWING,)), _MODES[mode]
    turns, editors = _turns(rows), _by_editor(rows)
    if not rows:
        return None
    known = {row["edit_type"] for row in rows}
    types = [*(name for name in EDIT_TYPES if name in known), *sorted(known - {*EDIT_TYPES})]
    return Table(
        name=_name(called, "by-type"),
        title=_title(f"Task rate by edit type, {called.title}"),
        columns=(*label_columns("Edit type", "Editor"), *(_column(called, "", FOLLOWING, turn) for turn in turns)),
        rows=tuple(
            Row(
                cells=(words(name or "(none)"), _editor(editor), *cells),
                keys={"edit_type": name, "editor": editor},
            )
            for name in types
            for editor, own in editors.items()
            for cells in [
                [_mean([row for row in own if row["edit_type"] == name and row["turns"] == turn]) for turn in turns]
            ]
            if any(cell.asked for cell in cells)
        ),
        fixed=2,
        caption=_sentences(
            f"As in the paper's {called.types}, in percent (judged/asked).",
            "" if mode == "multipass" else "Each prompt counts with all its edits, so that a type's edits add up over the "
            "columns.",
        ),
    )  # fmt: skip


def consistency(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return what should have stayed, by number of edits (Tables 14 and 17)."""
    called = _MODES[mode]
    return _figures(
        _rows(frame, mode, _CONSISTENCY),
        _CONSISTENCY,
        called,
        name="consistency",
        title="Consistency",
        caption=_sentences(
            f"As in the paper's {called.consistency}: similarities of features, and 1 − mean absolute difference (L1), in "
            "percent (judged/asked); compared with the base image, higher is better.",
            "Where a sample has no unchanged object, or no background, CC is the other one alone, so that it need not be "
            "the mean of the two columns.",
        ),
    )


def quality(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return the quality of the image after each number of edits (Tables 18 and 19)."""
    changes = {f"{id_}{CHANGE}": replace(of, title=f"|Δ {of.title}|") for id_, of in _QUALITY.items()}
    figures = {**_QUALITY, **changes}
    called, rows = _MODES[mode], _rows(frame, mode, figures)
    changed = any(row["metric"] in changes for row in rows)
    return _figures(
        rows,
        figures,
        called,
        name="quality",
        title="Quality",
        caption=_sentences(
            f"As in the paper's {called.quality} (judged/asked). Luminance and saturation in percent.",
            "|Δ|: the mean of each image's distance from its base image. The paper's Table 4 has the distance of the two "
            "means, which is smaller." if changed else "",
        ),
    )  # fmt: skip


def _figures(
    rows: _Rows, figures: Mapping[str, _Figure], called: _Mode, *, name: str, title: str, caption: str
) -> Table | None:
    """Return means of metrics by editor and number of edits; None if nobody has any of them."""
    turns, shown = _turns(rows), {id_: of for id_, of in figures.items() if any(row["metric"] == id_ for row in rows)}
    if not rows:
        return None
    return Table(
        name=_name(called, name),
        title=_title(f"{title}, {called.title}"),
        columns=(
            *label_columns("Editor"),
            *(_column(called, of.title, id_, turn) for id_, of in shown.items() for turn in turns),
        ),
        rows=tuple(
            Row(
                cells=(
                    _editor(editor),
                    *(
                        _mean([row for row in own if row["metric"] == id_ and row["turns"] == turn], of)
                        for id_, of in shown.items()
                        for turn in turns
                    ),
                ),
                keys={"editor": editor},
            )
            for editor, own in _by_editor(rows).items()
        ),
        at_once=2 * len(turns),
        caption=caption,
    )


def _rows(frame: polars.DataFrame, mode: str, metrics: Collection[str], *, whole: bool = False) -> list[dict[str, Any]]:
    """Return the frame's rows of a mode and of metrics, the edit type as text.

    whole: those of chains of which every edit was judged; none if that is every chain.
    """
    if not {"mode", "turns"} <= {*frame.columns}:
        return []
    names = ("editor", "sample", "source", "part", "metric", "value", "turns", "edit_type")
    wanted = frame["metric"].is_in([*metrics, FOLLOWING]) & (frame["mode"] == mode) & frame["turns"].is_not_null()
    found = [
        {**row, "editor": row["editor"] or "", "edit_type": row.get("edit_type") or "", "turns": int(row["turns"])}
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


def _last(rows: _Rows, turn: int) -> _Rows:
    """Return the scores of a number of edits that are about the last of these edits."""
    return [row for row in rows if row["turns"] == turn and row["part"] in ("", f"instruction {turn}")]


def _turns(rows: _Rows) -> list[int]:
    return sorted({row["turns"] for row in rows})


def _by_editor(rows: _Rows) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["editor"], []).append(row)
    return found


def _mean(rows: _Rows, figure: _Figure = _Figure(title=""), *, interval: bool = False) -> Cell:
    """Return the mean of what was judged, as shown."""
    values = [None if row["value"] is None else figure.scale * row["value"] for row in rows]
    if interval and rows:
        found = bootstrap.mean(values, [row["source"] or row["sample"] for row in rows])
        return estimated(found, digits=figure.digits)
    known = [value for value in values if value is not None]
    mean = math.fsum(known) / len(known) if known else None
    return Cell(value=mean, name="mean", digits=figure.digits, judged=len(known), asked=len(rows))


def _value(cell: Cell) -> float | None:
    return None if isinstance(cell.value, str) else cell.value


def _rank(editor: str, scores: Mapping[str, float]) -> Cell:
    """Return the rank of an editor, 1 for the highest score; none without a score."""
    if editor not in scores:
        return Cell(name="rank")
    own = scores[editor]
    tied = sum(abs(score - own) <= _SAME for score in scores.values()) > 1
    return Cell(value=1 + sum(score > own + _SAME for score in scores.values()), name="rank", note="tie" if tied else "")


def _column(called: _Mode, title: str, metric: str, turn: int, **keys: str) -> Column:
    return Column(title=f"{title} {called.letter}{turn}".strip(), keys={"metric": metric, "edits": turn, **keys})


def _editor(name: str) -> Cell:
    return words(name or "(not named)")


def _name(called: _Mode, name: str, whole: bool = False) -> str:
    return f"{called.name}-{name}{'-whole' if whole else ''}"


def _title(title: str, whole: bool = False) -> str:
    return f"{title}{', on whole chains' if whole else ''}"


def _sentences(*found: str) -> str:
    return " ".join(filter(None, found))
