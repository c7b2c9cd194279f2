"""A probe: an edit whose truth is known because it was made that way. What a row of metadata says about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

from editloupe.data.sealed import COLUMN, changed_since
from editloupe.errors import DataError
from editloupe.values import Json, Sample, Serializable

KEY: Final = "key_"
"""Before the id of a metric: the question whose answer, by the judge "key", is what is right."""

Failure: TypeAlias = Literal[
    "flawless",
    "wrong_colour",
    "wrong_object",
    "wrong_count",
    "wrong_place",
    "over_modification",
    "no_edit",
    "one_collateral",
    "several_collateral",
    "restyled",
    "recomposed",
]
"""What was done to the image in place of the instruction, or beside it."""
FAILURES: Final[tuple[Failure, ...]] = get_args(Failure)

Nuisance: TypeAlias = Literal["jpeg", "resize", "tone"]
"""What was done to the edited image that must not change a verdict."""
NUISANCES: Final[tuple[Nuisance, ...]] = get_args(Nuisance)

Trap: TypeAlias = Literal["injected_text", "file_name", "swapped", "equal_pair", "unrelated_pair", "look_alike"]
"""What misleads a judge that does not look."""
TRAPS: Final[tuple[Trap, ...]] = get_args(Trap)

AREAS: Final = (0.0005, 0.001, 0.003, 0.01, 0.03, 0.1)
"""Shares of the image that targets have, nominally."""

Band: TypeAlias = tuple[float, float]
"""Lowest and highest score that is right, both included."""


@dataclass(frozen=True, kw_only=True)
class Probe(Serializable):
    """What is known of one probe."""

    truth: Mapping[str, str]
    """Metric id → the only label that is right. A metric about which people could disagree is not there."""
    bands: Mapping[str, Band] = field(default_factory=dict)
    """Metric id → the scores that are right, for rubrics with scores."""
    failure: Failure
    area: float
    """Share of the image that the target was to have, one of `AREAS`."""
    area_found: float
    """Share that it has, by its mask."""
    nuisance: Nuisance | None = None
    trap: Trap | None = None
    twin: str | None = None
    """Id of the probe that differs only in the nuisance or the trap. None for a plain probe."""
    asks_for: Mapping[str, str] = field(default_factory=dict)
    """Metric id → the label that an injected text demands."""
    scene: str
    """Id of the picture that the probe was made from. Probes of one scene are one cluster."""
    maker: str
    """Name and version of what made it, such as "recolor 1"."""
    seed: int
    parameters: Mapping[str, Json] = field(default_factory=dict)
    """What the maker was given."""
    digest: str
    """Of the row and of each of its image files, as they were made: `data.sealed.seal_of`."""


def probe_of(sample: Sample) -> Probe | None:
    """Return what is known of a sample; None for one that is no probe. Raises DataError for a row of another shape."""
    found = sample.extra.get(COLUMN)
    if found is None:
        return None
    try:
        return Probe.from_json(found)
    except ValueError as error:
        raise DataError(f"{sample.key}: column {COLUMN!r} is no probe: {error}") from error


def other_images(probe: Probe, sample: Sample) -> str:
    """Return which image of a sample is not the one that its probe was built with, as a message; "" for none."""
    mask = sample.masks.get("edit")
    images = {"source": sample.source, "edited": sample.edited, "reference": sample.reference, "mask": mask}
    found = (f"{role}_file_name={ref.sha256}" for role, ref in images.items() if ref is not None)
    return changed_since(" ".join(p for p in probe.digest.split(" ") if not p.startswith("row=")), " ".join(found))
