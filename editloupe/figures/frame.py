"""Scores as one tidy polars frame: a row a score, with its judge, its sample and its cost. All tables sum up such rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from editloupe.scores import Score
from editloupe.values import Sample

if TYPE_CHECKING:
    import polars

SCORED: Final[Mapping[str, type]] = {
    **dict.fromkeys(("sample", "source", "editor"), str),
    "turn": int,
    **dict.fromkeys(("part", "metric"), str),
    **dict.fromkeys(("value", "normalized"), float),
    **dict.fromkeys(("label", "missing", "reason"), str),
    "entropy": float,
}
"""Column → type of what a score says, without its judge (`score_frame`); the protocol's dimensions follow.

`value` is in the metric's unit, `normalized` 0 to 100; both are null where `missing` says why. `source` is the sha256 of
the source image, by which intervals are resampled; null for a row that could not be read.
"""

COLUMNS: Final[Mapping[str, type]] = {**dict.fromkeys(("run", "judge", "judge_id", "kind", "protocol"), str), **SCORED}
"""Column → type. `kind` is "human" for people, each under the rater's name, and "judge" for all others. The protocol's
dimensions follow (edit_type, task …), then `SPENT`.
"""

SPENT: Final[Mapping[str, type]] = {
    "findings": int,
    "tool_turns": int,
    "seconds": float,
    "input_tokens": int,
    "output_tokens": int,
    "cost_usd": float,
}
"""What the findings spent that a score rests on, repeats included; null where unknown. Scores may share findings."""

OURS: Final = frozenset({*COLUMNS, *SPENT})
"""Columns that are no dimension of a protocol: none hides them."""


def score_frame(scores: Sequence[Score], samples: Mapping[str, Sample] | None = None) -> polars.DataFrame:
    """Return scores as a frame with the columns of `SCORED` and their dimensions.

    samples: by key, for the source images; None where no interval is drawn.
    """
    known = samples or {}
    columns: dict[str, list[Any]] = {
        "sample": [score.sample_id for score in scores],
        "source": [None if (sample := known.get(score.key)) is None else sample.source.sha256 for score in scores],
        **{name: [getattr(score, name) for score in scores] for name in SCORED if name not in ("sample", "source")},
    }
    names = dict.fromkeys(name for score in scores for name in score.dims)
    dims = {name: [score.dims.get(name) for score in scores] for name in names if name not in OURS}
    return typed({**columns, **dims}, {**SCORED, **{name: _type_of(values) for name, values in dims.items()}})


def typed(columns: Mapping[str, Sequence[Any]], schema: Mapping[str, Any]) -> polars.DataFrame:
    """Make a frame of columns.   schema: column → type."""
    import polars

    cells = {
        name: [v if v is None else as_text(v) if kind is str else kind(v) for v in columns[name]]
        for name, kind in schema.items()
    }
    return polars.DataFrame(cells, schema=dict(schema))


def as_text(value: Any) -> str:
    """Return a value as a frame takes it: half a surrogate pair, as in a file's name that is no UTF-8, is spelled out."""
    text = str(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def _type_of(values: Iterable[Any]) -> type:
    """The narrowest type that all values of a dimension have; text where they differ."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return int
    return float if kinds and kinds <= {int, float} else str
