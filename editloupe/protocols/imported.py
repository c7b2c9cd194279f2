"""A benchmark's own result files, read as findings, and what a run's record keeps of them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import Field

from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError
from editloupe.findings import Finding, JudgeSpec
from editloupe.values import Count, Json, Serializable


@dataclass(frozen=True, kw_only=True)
class Published(Serializable):
    """One mean as the files' own script computes it."""

    judge_id: str
    editor: str
    dims: Mapping[str, str | int]
    """The scores that it is a mean of: those with these dimensions, for example {"language": "en"}."""
    part: Annotated[str | None, Field(exclude_if=lambda part: part is None)] = None
    """The part of the sample that these scores are about; None for any."""
    metric: str
    """Id of the protocol's metric."""
    mean: float | None
    """None where the script's mean is no number."""
    count: Count
    """How many numbers it is a mean of."""

    def __post_init__(self) -> None:
        if self.mean is not None and not math.isfinite(self.mean):
            raise ValueError(f"a published mean is a finite number or none, found {self.mean}")


@dataclass(frozen=True, kw_only=True)
class Imported:
    """Result files, read."""

    protocol: str
    """The protocol whose questions they answer."""
    options: Mapping[str, Json] = field(default_factory=dict)
    """Its options, as far as scoring needs them."""
    rules: Mapping[str, Json] = field(default_factory=dict)
    """How the script that wrote the files judged. It is recorded, and no option of the protocol."""
    judges: Mapping[str, JudgeSpec]
    """Who answered, by name."""
    loaded: Loaded
    """The samples, also those that nobody answered about."""
    findings: tuple[Finding, ...]
    published: tuple[Published, ...]
    notes: tuple[str, ...] = ()
    """What a reader should know about how the files were read."""


def record_of(read: Imported, before: Mapping[str, Json]) -> dict[str, Json]:
    """Return what a run's record keeps of its imports: the published means, the latest of each, and the notes.

    before: the record of earlier imports into the run. Raises ConfigError as `published_in`.
    """
    published = {
        (p.judge_id, p.editor, p.metric, p.part, *p.dims.items()): p for p in (*published_in(before), *read.published)
    }
    imported = before.get("imported")
    earlier = imported.get("notes") if isinstance(imported, Mapping) else None
    notes = dict.fromkeys((*(map(str, earlier) if isinstance(earlier, list) else ()), *read.notes))
    means: list[Json] = [one.to_json() for one in published.values()]
    return {"imported": {"published": means, "notes": list(notes), "rules": dict(read.rules)}}


def published_in(record: Mapping[str, Json]) -> tuple[Published, ...]:
    """Return the published means of a run's record; () for a run that was not imported. Raises ConfigError."""
    imported = record.get("imported")
    listed = imported.get("published") if isinstance(imported, Mapping) else None
    try:
        return tuple(Published.from_json(one) for one in listed) if isinstance(listed, list) else ()
    except ValueError as error:
        problem = str(error).partition("\n")[0][:300]
        raise ConfigError(f"run.json: a published mean is not of the expected shape: {problem}") from error
