"""EdiVal's tables of what was measured: what should have stayed, and quality (Tables 14 and 17 to 19)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from editloupe.protocols.edival.consistency import CONTENT
from editloupe.protocols.edival.mode_rows import ModeRows, percent
from editloupe.protocols.edival.quality import CHANGE
from editloupe.stats.table import Cell, Table

if TYPE_CHECKING:
    import polars

_Shown: TypeAlias = tuple[str, Callable[..., Cell]]
"""How a metric is shown: its title, and the figure of its rows."""
_SOURCES: Final = {"multipass": ("Table 14", "Table 18"), "singlepass": ("Table 17", "Table 19")}
_CONSISTENCY: Final[Mapping[str, _Shown]] = {
    "object_consistency": ("Object", percent),
    "background_consistency": ("Background", percent),
    CONTENT: ("CC", percent),
    "object_l1": ("Object L1", percent),
    "background_l1": ("Background L1", percent),
    "alignment": ("Alignment", partial(percent, scale=1, digits=3)),
}
_QUALITY: Final[Mapping[str, _Shown]] = {
    "preference": ("HPSv3", partial(percent, scale=1, digits=4)),
    "luminance_p999": ("p99.9", percent),
    "luminance_p99": ("p99", percent),
    "saturation": ("Saturation", percent),
    "sharpness": ("Sharpness", partial(percent, scale=1, digits=4)),
    "contrast": ("Contrast", partial(percent, scale=1, digits=4)),
}
_CHANGES: Final[Mapping[str, _Shown]] = {f"{id_}{CHANGE}": (f"|Δ {name}|", cell) for id_, (name, cell) in _QUALITY.items()}


def consistency(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return what should have stayed, by number of edits (Tables 14 and 17)."""
    of = ModeRows(frame, mode, _CONSISTENCY)
    caption = (
        f"As in the paper's {_SOURCES[mode][0]}: similarities of features, and 1 − mean absolute difference (L1), "
        "in percent (judged/asked); compared with the base image, higher is better.",
        "Where a sample has no unchanged object, or no background, CC is the other one alone, so that it need not be "
        "the mean of the two columns.",
    )
    return _means(of, _CONSISTENCY, "consistency", caption)


def quality(frame: polars.DataFrame, *, mode: str) -> Table | None:
    """Return the quality of the image after each number of edits (Tables 18 and 19)."""
    of = ModeRows(frame, mode, {**_QUALITY, **_CHANGES})
    caption = (
        f"As in the paper's {_SOURCES[mode][1]} (judged/asked). Luminance and saturation in percent.",
        "|Δ|: the mean of each image's distance from its base image. The paper's Table 4 has the distance of the two "
        "means, which is smaller."
        if of.metrics & {*_CHANGES}
        else "",
    )
    return _means(of, {**_QUALITY, **_CHANGES}, "quality", caption)


def _means(of: ModeRows, shown: Mapping[str, _Shown], name: str, caption: tuple[str, ...]) -> Table | None:
    figures = [figure for id_, (title, cell) in shown.items() for figure in of.figures(id_, title, cell)]
    return of.table(name, name.capitalize(), figures, caption, at_once=2 * len(of.turns))
