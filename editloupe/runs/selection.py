"""Which samples a run is about: what a config's `sample`, `limit` and `null_edit` leave of its data."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, RejectedRow, load
from editloupe.errors import ConfigError, DataError, ImageError
from editloupe.findings import Finding
from editloupe.runs.setup import Setup
from editloupe.values import Sample, digest


def selected(config: RunConfig, images: ImageStore, *, outputs: bool = True) -> Loaded:
    """Return the edits that a config's `sample` and `limit` leave of its data.

    outputs: False for a protocol that looks at no edited image; they may be absent as a whole.
    Raises DataError for an id that is not there, and what `load` raises.
    """
    if config.path is None:
        raise ConfigError("PATH is missing: name the folder of edits to judge")
    if config.null_edit and config.edited:
        raise ConfigError("--set null_edit=true judges the originals themselves; leave --edited out")
    needed = outputs and not config.null_edit
    loaded = load(
        config.path, store=images, format=config.format, edited=config.edited, fields=config.fields,
        columns=config.columns, outputs=needed,
    )  # fmt: skip
    # A row that cannot be judged counts like any other: --limit must not put a later sample in its place.
    rows = loaded.in_order()
    if config.null_edit:
        rows = [null_edit(row) if isinstance(row, Sample) else row for row in rows]
    if config.sample:
        wanted = set(config.sample)
        rows = [row for row in rows if row.id in wanted or row.key in wanted]
        if missing := wanted - {row.id for row in rows} - {row.key for row in rows}:
            known = ", ".join(s.id for s in loaded.samples[:5])
            raise DataError(f"{config.path}: no sample {', '.join(sorted(missing))}; the first ones are {known}, …")
    rows = rows[: config.limit]
    samples = tuple(row for row in rows if isinstance(row, Sample))
    rejected = tuple(row for row in rows if isinstance(row, RejectedRow))
    return Loaded(format=loaded.format, samples=samples, rejected=rejected, notes=loaded.notes)


def null_edit(sample: Sample) -> Sample:
    """Return a sample whose edit is the original itself, under the editor "null edit" where none is named."""
    turns = tuple(replace(turn, edited=sample.source) for turn in sample.turns)
    return replace(sample, turns=turns, editor=sample.editor or "null edit", warnings=())


def keep_pictures(sample: Sample, images: ImageStore) -> None:
    """Keep a sample's pictures, so that pages show and `measure` reads them. One that has changed is left out."""
    for image in filter(None, (*sample.sources, *(turn.edited for turn in sample.turns))):
        with suppress(ImageError):
            images.keep(image)


def rejected_findings(setup: Setup, rows: Iterable[RejectedRow]) -> list[Finding]:
    """Return one finding a metric for each row that cannot be judged."""
    return [
        Finding(
            task_id=digest({"rejected": row.key, "metric": metric, "protocol": setup.protocol.name}),
            judge_id=setup.judge.id,
            repeat=0,
            sample_id=row.id,
            editor=row.editor,
            metric=metric,
            status="input_error",
            ending="input",
            reason=row.message,
        )
        for row in rows
        for metric in setup.metrics
    ]
