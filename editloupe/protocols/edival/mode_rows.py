"""The scores of one mode of EdiVal, chains or complex prompts, a column a number of edits."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from editloupe.protocols.edival.consistency import CONTENT
from editloupe.stats.pivot import Figure, Rows, grouped, pivot, select
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars

FOLLOWING: Final = "instruction_following"
SUCCESS: Final = "image_success"
"""Ids of the two verdicts on an edit."""
MODES: Final[Mapping[str, tuple[str, str]]] = {"multipass": ("multi-turn", "T"), "singlepass": ("complex", "C")}
"""Mode → its title, and the letter in front of a number of edits."""
_PROMPT: Final = re.compile(r"\.c\d+$")
"""Behind the id of an image: which of its complex prompts."""


def percent(rows: Rows, *, scale: float = 100, digits: int = 2) -> Cell:
    """Return the mean of what was judged, without an interval.   scale: 1 for a metric as it is."""
    judged = sum(row["value"] is not None for row in rows)
    return Cell(value=_mean(rows, scale), name="mean", digits=digits, judged=judged, asked=len(rows))


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


class ModeRows:
    """The rows of one mode and of some metrics, and the tables of them.

    whole: of chains of which every edit was judged; none if that is every chain.
    """

    def __init__(self, frame: polars.DataFrame, mode: str, metrics: Collection[str], *, whole: bool = False) -> None:
        self.title, self.letter = MODES[mode]
        self.whole = whole
        self.rows = _rows(frame, mode, metrics, whole=whole)
        self.turns = sorted({row["turns"] for row in self.rows})
        self.metrics = {row["metric"] for row in self.rows}

    def figures(
        self, metric: str, title: str, cell: Callable[[Rows], Cell] = percent, *, last: bool = False, **more: str
    ) -> list[Figure]:
        """Return a column for each number of edits; none for a metric that nobody was asked.

        last: of scores that are about the last of these edits.   more: further keys in files.
        """
        where = {"metric": metric, **({"last": True} if last else {})}
        return [
            Figure(
                f"{title} {self.letter}{turn}".strip(),
                cell,
                {**where, "turns": turn},
                {"metric": metric, "edits": turn, **more},
            )
            for turn in self.turns
            if metric in self.metrics
        ]

    def table(
        self, name: str, title: str, figures: Sequence[Figure], caption: Sequence[str], *, at_once: int, **more: Any
    ) -> Table | None:
        """Return a table of a line for each editor; None without rows.

        more: `lines` and `by`, for other lines.
        """
        lines = more.pop("lines", None) or grouped(self.rows, "editor")
        names = f"{self.title}-{name}{'-whole' * self.whole}", f"{title}, {self.title}{', on whole chains' * self.whole}"
        return pivot(*names, lines, figures, at_once=at_once, caption=caption, **more)

    def at_last(self) -> dict[str, float | None]:
        """Return O of each editor at the largest number of edits."""
        found = {}
        for (editor,), rows in grouped(self.rows, "editor").items():
            score = overall_of(select(rows, {"turns": self.turns[-1]})).value
            found[editor] = None if isinstance(score, str) else score
        return found


def _rows(frame: polars.DataFrame, mode: str, metrics: Collection[str], *, whole: bool) -> list[dict[str, Any]]:
    """Return the rows, the edit type as text, and `last`: whether a score is about the last edit."""
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
