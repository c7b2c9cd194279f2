"""A run made of results that another program recorded: no model is asked, and there are no traces."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import editloupe
from editloupe import plugins
from editloupe.config import RunSpec
from editloupe.data.images import ImageStore
from editloupe.errors import ImageError
from editloupe.protocols.base import make_protocol, scored
from editloupe.protocols.imported import Imported, Importer, Published
from editloupe.runs.judges import Entry
from editloupe.runs.setup import identity_options, options_of
from editloupe.runs.store import RunStore
from editloupe.values import Serialisable


@dataclass(frozen=True, kw_only=True)
class MovedMean(Serialisable):
    """One mean as it was published, and as it is over what was judged."""

    judge: str
    editor: str
    dims: Mapping[str, str]
    """What it is a mean of, for example {"language": "en"}."""
    metric: str
    """Id of the metric."""
    published: float | None
    """None where the script's mean is no number."""
    published_count: int
    judged: float | None
    """None where nothing was judged."""
    judged_count: int

    @property
    def change(self) -> float | None:
        """Judged minus published; None where one of them is missing."""
        return None if self.judged is None or self.published is None else self.judged - self.published


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """What an import has written."""

    findings: int
    """New findings."""
    known: int
    """Findings that the run held already."""
    means: tuple[MovedMean, ...]
    notes: tuple[str, ...]


def import_results(name: str, folder: Path, out: Path, *, data: Path, edited: Mapping[str, Path]) -> ImportedRun:
    """Read result files into the run folder `out`, a new one or that of an earlier import.

    name: of an installed importer.   data: what was judged.   edited: folder of outputs by the editor's name.
    Raises UnknownPlugin, DataError, ConfigError, RunMismatch and StorageError.
    """
    importer = cast(Importer, plugins.load("importers", name))
    images = ImageStore(out / "blobs", writes=False)
    read = importer.read(folder, data=data, edited=edited, store=images)
    protocol = make_protocol(read.protocol, read.options)
    means = _means(read)
    spec = RunSpec(
        identity={"protocol": read.protocol, "options": identity_options(protocol), "imported": name},
        record={
            "editloupe": editloupe.__version__,
            "options": options_of(protocol),
            "metrics": [metric.to_json() for metric in protocol.metrics],
            "imported": {"notes": list(read.notes), "means": [mean.to_json() for mean in means]},
        },
    )
    entries = [Entry(judge=judge, name=called) for called, judge in read.judges.items()]
    with closing(RunStore.begin(out, spec, entries, read.loaded)) as store:
        images.write()
        judged = {finding.about.key for finding in read.findings}
        for sample in read.loaded.samples:
            if sample.key in judged:
                for image in filter(None, (sample.source, sample.edited)):
                    # A file that changes meanwhile costs its picture, not the scores.
                    with suppress(ImageError):
                        images.keep(image)
        new = [finding for finding in read.findings if store.findings.get(finding.key) != finding]
        store.add_findings(new)
    return ImportedRun(findings=len(new), known=len(read.findings) - len(new), means=means, notes=read.notes)


def _means(read: Imported) -> tuple[MovedMean, ...]:
    """Return each published mean beside that of the protocol's own scores."""
    protocol = make_protocol(read.protocol, read.options)
    found = []
    for name, judge in read.judges.items():
        scores = scored(protocol, read.loaded.samples, [f for f in read.findings if f.judge_id == judge.id])
        for one in (published for published in read.published if published.judge_id == judge.id):
            values = [
                score.value
                for score in scores
                if score.value is not None
                and (score.editor, score.metric) == (one.editor, one.metric)
                and all(score.dims.get(dim) == value for dim, value in one.dims.items())
            ]
            found.append(_moved(one, name, values))
    return tuple(found)


def _moved(published: Published, judge: str, values: list[float]) -> MovedMean:
    return MovedMean(
        judge=judge,
        editor=published.editor,
        dims=published.dims,
        metric=published.metric,
        published=published.mean,
        published_count=published.count,
        judged=math.fsum(values) / len(values) if values else None,
        judged_count=len(values),
    )
