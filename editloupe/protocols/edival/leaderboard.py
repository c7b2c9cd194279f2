"""EdiVal's Table 6: ranks beside those of people's votes on a leaderboard, as `leaderboard.toml` has them."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from editloupe.protocols.edival.consistency import CONTENT
from editloupe.protocols.edival.mode_rows import SUCCESS, ModeRows, at_last
from editloupe.protocols.names import Names
from editloupe.stats.pivot import Figure, Rows, pivot
from editloupe.stats.ranks import ranks
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars


def beside_people(frame: polars.DataFrame) -> Table | None:
    """Return ranks by O at the last turn beside those of people's votes (Table 6); None for fewer than two known editors.

    frame: one judge's scores.
    """
    of = ModeRows(frame, "multipass", (SUCCESS, CONTENT))
    called, places = _people()
    shared = {one: score for one, score in at_last(of).items() if score is not None and called(one) in places}
    if len(shared) < 2:
        return None
    by_both = ranks({one: -float(places[called(one)]) for one in shared}), ranks(shared)
    titles = ("Artificial Analysis", "votes"), ("EdiVal", "overall")
    return pivot(
        "ranks",
        "Ranks beside people's",
        {(one,): [{"editor": one}] for one in sorted(shared, key=lambda one: places[called(one)])},
        [
            Figure(title, partial(_rank, ranked), keys={"by": key})
            for (title, key), ranked in zip(titles, by_both, strict=True)
        ],
        caption=(
            f"As in the paper's Table 6, among the editors that both know. EdiVal: by O at T{of.turns[-1]}. Artificial "
            "Analysis: by people's votes on that leaderboard, 12 September 2025.",
        ),
    )


def _rank(ranked: Mapping[str, Cell], rows: Rows) -> Cell:
    return ranked[rows[0]["editor"]]


@cache
def _people() -> tuple[Names, Mapping[str, int]]:
    """Return the editors of the leaderboard by any spelling, and their ranks."""
    data = tomllib.loads(Path(__file__).with_name("leaderboard.toml").read_text(encoding="utf-8"))
    return Names({one["name"]: one["aliases"] for one in data["editors"]}), {e["name"]: e["rank"] for e in data["editors"]}
