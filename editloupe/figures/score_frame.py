"""Scores alone as a polars frame, a row a score: what tables sum up."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from editloupe.scores import Score
from editloupe.values import Sample

if TYPE_CHECKING:
    import polars

SCORED: Final[Mapping[str, type]] = {
    "sample": str,
    "source": str,
    "editor": str,
    "turn": int,
    "part": str,
    "metric": str,
    "value": float,
    "normalised": float,
    "label": str,
    "missing": str,
    "reason": str,
    "entropy": float,
}
"""Column → type of what a score says, without its judge (`score_frame`); the protocol's dimensions follow."""

OURS: Final = frozenset(
    {
        *SCORED,
        *("run", "judge", "judge_id", "kind", "protocol"),
        *("findings", "tool_turns", "seconds", "input_tokens", "output_tokens", "cost_usd"),
    }
)
"""Columns of frames that are no dimension of a protocol: none hides them."""


def score_frame(scores: Sequence[Score], samples: Mapping[str, Sample] | None = None) -> polars.DataFrame:
    """Return scores as a frame with the columns of `SCORED` and their dimensions.

    samples: by key, for the source images; None where no interval is drawn.
    """
    known = samples or {}
    sources = [None if (sample := known.get(score.key)) is None else sample.source.sha256 for score in scores]
    own = [name for name in SCORED if name not in ("sample", "source")]
    columns: dict[str, list[Any]] = {name: [getattr(score, name) for score in scores] for name in own}
    columns |= {"sample": [score.sample_id for score in scores], "source": sources}
    dims = {name: [score.dims.get(name) for score in scores] for name in dimensions(scores)}
    return typed_frame({**columns, **dims}, {**SCORED, **{name: type_of(values) for name, values in dims.items()}})


def dimensions(scores: Iterable[Score]) -> list[str]:
    """Return the names of the protocol's dimensions. None hides a column of ours."""
    names = dict.fromkeys(name for score in scores for name in score.dims)
    return [name for name in names if name not in OURS]


def typed_frame(columns: Mapping[str, Sequence[Any]], schema: Mapping[str, Any]) -> polars.DataFrame:
    """Return a frame of columns.   schema: column → type."""
    import polars

    return polars.DataFrame(
        {name: [_cell(value, kind) for value in columns[name]] for name, kind in schema.items()}, schema=dict(schema)
    )


def _cell(value: Any, kind: Callable[[Any], Any]) -> Any:
    """Return a value as a frame takes it: half a surrogate pair, as in a file's name that is no UTF-8, is spelt out."""
    if value is None:
        return None
    if not isinstance(value, str):
        return kind(value)
    return value if value.isascii() else value.encode("utf-8", "backslashreplace").decode()


def type_of(values: Iterable[Any]) -> type:
    """Return the narrowest type that all values of a dimension have; text where they differ."""
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return int
    return float if kinds and kinds <= {int, float} else str
