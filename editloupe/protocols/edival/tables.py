"""EdiVal's tables of scores: Tables 3, 6, 8 to 14 and 17 to 19.

Turns of a chain (T1, T2 …) and prompts of one, two … edits (complex mode, C1, C2 …) stand in tables of their own. Rates and
similarities are in percent, as printed. EdiVal-O and ranks exist in tables alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from editloupe.files import read_toml
from editloupe.protocols.edival.consistency import CONTENT
from editloupe.protocols.edival.instructions import EDIT_TYPES
from editloupe.protocols.names import Names
from editloupe.stats.pivot import Figure, Rows, grouped, mean, pivot, ranks, select
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import Cell, Table
from editloupe.values import Json

if TYPE_CHECKING:
    import polars

FOLLOWING: Final = "instruction_following"
SUCCESS: Final = "image_success"
"""Ids of the two verdicts on an edit."""
MODES: Final[Mapping[str, tuple[str, str]]] = {"multipass": ("multi-turn", "T"), "singlepass": ("complex", "C")}
"""Mode → its title, and the letter in front of a number of edits."""
_PROMPT: Final = re.compile(r"\.c\d+$")
"""Behind the id of an image: which of its complex prompts."""


def _mean(rows: Rows, scale: float = 100) -> float | None:
    known = [scale * row["value"] for row in rows if row["value"] is not None]
    return math.fsum(known) / len(known) if known else None


def overall(success: float | None, consistency: float | None) -> float | None:
    """Return EdiVal-O, the geometric mean of image success and content consistency, both in percent.

    None where one of them is missing. 0 where one of them is 0.
    """
    return None if success is None or consistency is None else math.sqrt(success * consistency)


def overall_of(rows: Rows) -> Cell:
    """Return O of the rows of one number of edits."""
    parts = (_mean(select(rows, where)) for where in ({"metric": SUCCESS, "last": True}, {"metric": CONTENT}))
    return Cell(value=overall(*parts), name="mean", digits=2)


@dataclass(frozen=True, kw_only=True)
class _Column:
    """A figure for each number of edits, as `tables.toml` explains it."""

    metric: str
    title: str
    scale: float = 100
    digits: int = 2
    interval: bool = False
    last: bool = False
    complex: bool = False
    of: str = ""
    """What it is of, for files."""

    def figure(self, turns: int, letter: str) -> Figure:
        """Return the figure of one number of edits."""
        where = {"metric": self.metric, "turns": turns, **({"last": True} if self.last else {})}
        keys: dict[str, Json] = {"metric": self.metric, "edits": turns, **({"of": self.of} if self.of else {})}
        return Figure(f"{self.title} {letter}{turns}".strip(), self._cell, where, keys)

    def _cell(self, rows: Rows) -> Cell:
        if self.interval and rows:
            return mean(rows, scale=self.scale)
        judged = sum(row["value"] is not None for row in rows)
        return Cell(value=_mean(rows, self.scale), name="mean", digits=self.digits, judged=judged, asked=len(rows))


@dataclass(frozen=True, kw_only=True)
class _Kind:
    """A table of each mode, as `tables.toml` explains it."""

    name: str
    title: str
    sources: Mapping[str, str]
    columns: Sequence[_Column]
    caption: str
    by: Sequence[str] = ("editor",)
    chains: bool = False


_DATA: Final = read_toml(Path(__file__).with_name("tables.toml"), "the built-in tables")
_KINDS: Final = tuple(
    _Kind(**{**one, "columns": [_Column(**column) for column in one["columns"]]}) for one in _DATA["tables"]
)
_OVERALL: Final = _KINDS[0]


def tables() -> tuple[TableSpec | Callable[..., Any], ...]:
    """Return the scores by number of edits, then the tables of each mode and those on whole chains, then the ranks."""
    each = ((mode, whole, kind) for mode in MODES for whole in (False, True) for kind in _KINDS if kind.chains or not whole)
    makers = [partial(of_mode, kind=kind, mode=mode, whole=whole) for mode, whole, kind in each]
    return (TableSpec.from_json(_DATA["by_edits"]), *makers, beside_people)


def of_mode(frame: polars.DataFrame, *, kind: _Kind, mode: str, whole: bool = False) -> Table | None:
    """Return a table of one mode, of one judge's scores; None without rows, and without a figure that O is made of.

    whole: only of chains of which every edit was judged; none if that is every chain.
    """
    title, letter = MODES[mode]
    rows = _rows(frame, mode, kind, whole=whole)
    metrics = {row["metric"] for row in rows}
    if kind is _OVERALL and not {SUCCESS, CONTENT} <= metrics:
        return None
    turns = sorted({row["turns"] for row in rows})
    shown = [one for one in kind.columns if one.metric in metrics and (mode == "singlepass" or not one.complex)]
    figures = [one.figure(turn, letter) for one in shown for turn in turns]
    if kind is _OVERALL:
        keys = {"metric": "overall"}
        ranked = ranks(_at_last(rows))
        figures += [Figure(f"O {letter}{n}", overall_of, {"turns": n}, {**keys, "edits": n}) for n in turns]
        figures.append(Figure("Rank", lambda rows: ranked[rows[0]["editor"]], keys={**keys, "edits": turns[-1]}))
    # Types in the paper's order, and within each the editors as they come.
    types, editors = [*EDIT_TYPES, *sorted({row["edit_type"] for row in rows})], [*grouped(rows, "editor")]
    lines = grouped(rows, *kind.by)
    order = sorted(lines, key=lambda key: (types.index(key[0]) if "edit_type" in kind.by else 0, editors.index(key[-1:])))
    counted = "Columns may rest on different images: one counts wherever it was judged."
    if whole:
        counted = "As the paper counts: an image of which any edit could not be judged is left out of every column."
    source = kind.sources.get(mode)
    return pivot(
        f"{title}-{kind.name}{'-whole' * whole}",
        f"{kind.title}, {title}{', on whole chains' * whole}",
        {key: lines[key] for key in order},
        figures,
        by=kind.by,
        at_once=2 * len(turns),
        caption=(f"As in the paper's {source}." if source else "", kind.caption, counted if kind.chains else ""),
    )


def beside_people(frame: polars.DataFrame) -> Table | None:
    """Return ranks by O at the last turn beside those of people's votes (Table 6); None for fewer than two known editors.

    frame: one judge's scores.
    """
    rows = _rows(frame, "multipass", _OVERALL)
    called, places = _people()
    shared = {one: score for one, score in _at_last(rows).items() if score is not None and called(one) in places}
    if len(shared) < 2:
        return None
    by_votes, by_overall = ranks({one: -float(places[called(one)]) for one in shared}), ranks(shared)
    return pivot(
        "ranks",
        "Ranks beside people's",
        {(one,): [{"editor": one}] for one in sorted(shared, key=lambda one: places[called(one)])},
        [
            Figure("Artificial Analysis", lambda rows: by_votes[rows[0]["editor"]], keys={"by": "votes"}),
            Figure("EdiVal", lambda rows: by_overall[rows[0]["editor"]], keys={"by": "overall"}),
        ],
        caption=(
            "As in the paper's Table 6, among the editors that both know. EdiVal: by O at the last turn. Artificial "
            "Analysis: by people's votes on that leaderboard, 12 September 2025.",
        ),
    )


@cache
def _people() -> tuple[Names, Mapping[str, int]]:
    """Return the editors of the leaderboard by any spelling, and their ranks."""
    editors = read_toml(Path(__file__).with_name("leaderboard.toml"), "the leaderboard")["editors"]
    return Names({one["name"]: one["aliases"] for one in editors}), {one["name"]: one["rank"] for one in editors}


def _at_last(rows: Rows) -> dict[str, float | None]:
    """Return O of each editor at the largest number of edits."""
    last = max((row["turns"] for row in rows), default=0)
    by_editor = grouped(rows, "editor").items()
    found = {editor: overall_of(select(own, {"turns": last})).value for (editor,), own in by_editor}
    return {editor: None if isinstance(score, str) else score for editor, score in found.items()}


def _rows(frame: polars.DataFrame, mode: str, kind: _Kind, *, whole: bool = False) -> list[dict[str, Any]]:
    """Return the rows of a table, the edit type as text, and `last`: whether a score is about the last edit."""
    if not {"mode", "turns"} <= {*frame.columns}:
        return []
    metrics = {column.metric for column in kind.columns}
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
