"""EdiVal's tables of scores: Tables 3, 6, 8 to 14 and 17 to 19.

Turns of a chain (T1, T2 …) and prompts of one, two … edits (complex mode, C1, C2 …) stand in tables of their own. Rates and
similarities are in percent, as printed. EdiVal-O and ranks exist in tables alone.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from editloupe.files import read_toml
from editloupe.protocols.edival.consistency import CONTENT
from editloupe.protocols.edival.instructions import EDIT_TYPES
from editloupe.protocols.edival.quality import CHANGE
from editloupe.protocols.names import Names
from editloupe.stats.pivot import Figure, Rows, grouped, mean, pivot, select
from editloupe.stats.ranks import ranks
from editloupe.stats.spec import TableSpec
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


_Shown: TypeAlias = Mapping[str, tuple[str, Callable[[Rows], Cell]]]
"""Metric → its title, and the figure of its rows."""
_SOURCES: Final[Mapping[str, Mapping[str, str]]] = {
    "multipass": {
        "overall": "Table 3", "success": "Table 8", "types": "Tables 9 and 10", "consistency": "Table 14",
        "quality": "Table 18",
    },
    "singlepass": {
        "success": "Table 11", "types": "Tables 12 and 13", "consistency": "Table 17", "quality": "Table 19",
    },
}  # fmt: skip
"""Mode → the paper's tables."""
_EACH: Final = "Columns may rest on different images: one counts wherever it was judged."
_WHOLE: Final = "As the paper counts: an image of which any edit could not be judged is left out of every column."
_CONSISTENCY: Final[_Shown] = {
    "object_consistency": ("Object", percent),
    "background_consistency": ("Background", percent),
    CONTENT: ("CC", percent),
    "object_l1": ("Object L1", percent),
    "background_l1": ("Background L1", percent),
    "alignment": ("Alignment", partial(percent, scale=1, digits=3)),
}
_VALUES: Final[_Shown] = {
    "preference": ("HPSv3", partial(percent, scale=1, digits=4)),
    "luminance_p999": ("p99.9", percent),
    "luminance_p99": ("p99", percent),
    "saturation": ("Saturation", percent),
    "sharpness": ("Sharpness", partial(percent, scale=1, digits=4)),
    "contrast": ("Contrast", partial(percent, scale=1, digits=4)),
}
_CHANGES: Final[_Shown] = {f"{id_}{CHANGE}": (f"|Δ {name}|", cell) for id_, (name, cell) in _VALUES.items()}


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
    ranked = ranks(of.at_last())
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
        f"Rank: by O at {of.letter}{of.turns[-1]}, before rounding; editors that tie share the better rank.",
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
        f"As in the paper's {_SOURCES[mode]['success']}.",
        "In percent (judged/asked), with 95 % intervals, resampled by image.",
        "Success: images of which all edits so far succeed; missing as soon as one of them could not be judged.",
        "Task rate: edits that succeed"
        + ("." if chains else ", of all in the prompt. Marginal: the last edit of the prompt."),
        _WHOLE if whole else _EACH,
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
        f"As in the paper's {_SOURCES[mode]['types']}, in percent (judged/asked).",
        "Each prompt counts with all its edits, so that a type's edits add up over the columns." * (mode != "multipass"),
    )
    lines = {pair: found[pair] for pair in pairs if pair in found}
    by = ("edit_type", "editor")
    return of.table("by-type", "Task rate by edit type", of.figures(FOLLOWING, ""), caption, at_once=4, lines=lines, by=by)


def consistency(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return what should have stayed, by number of edits (Tables 14 and 17)."""
    caption = (
        ": similarities of features, and 1 − mean absolute difference (L1), in percent (judged/asked); compared with the "
        "base image, higher is better.",
        "Where a sample has no unchanged object, or no background, CC is the other one alone, so that it need not be "
        "the mean of the two columns.",
    )
    return _means(ModeRows(frame, mode, _CONSISTENCY), mode, "consistency", _CONSISTENCY, *caption)


def quality(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return the quality of the image after each number of edits (Tables 18 and 19)."""
    shown = {**_VALUES, **_CHANGES}
    of = ModeRows(frame, mode, shown)
    distance = (
        "|Δ|: the mean of each image's distance from its base image. The paper's Table 4 has the distance of the two "
        "means, which is smaller."
    )
    caption = (" (judged/asked). Luminance and saturation in percent.", distance if of.metrics & {*_CHANGES} else "")
    return _means(of, mode, "quality", shown, *caption)


def _means(of: ModeRows, mode: str, name: str, shown: _Shown, how: str, *caption: str) -> Table | None:
    figures = [figure for id_, (title, cell) in shown.items() for figure in of.figures(id_, title, cell)]
    source = f"As in the paper's {_SOURCES[mode][name]}{how}"
    return of.table(name, name.capitalize(), figures, (source, *caption), at_once=2 * len(of.turns))


def beside_people(frame: polars.DataFrame) -> Table | None:
    """Return ranks by O at the last turn beside those of people's votes (Table 6); None for fewer than two known editors.

    frame: one judge's scores.
    """
    of = ModeRows(frame, "multipass", (SUCCESS, CONTENT))
    called, places = _people()
    shared = {one: score for one, score in of.at_last().items() if score is not None and called(one) in places}
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
            f"As in the paper's Table 6, among the editors that both know. EdiVal: by O at T{of.turns[-1]}. Artificial "
            "Analysis: by people's votes on that leaderboard, 12 September 2025.",
        ),
    )


@cache
def _people() -> tuple[Names, Mapping[str, int]]:
    """Return the editors of the leaderboard by any spelling, and their ranks."""
    editors = read_toml(Path(__file__).with_name("leaderboard.toml"), "the leaderboard")["editors"]
    return Names({one["name"]: one["aliases"] for one in editors}), {one["name"]: one["rank"] for one in editors}


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
