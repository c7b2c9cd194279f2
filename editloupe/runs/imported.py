"""A run made of results that another program recorded: no model is asked, and there are no traces."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from editloupe import plugins
from editloupe.data.images import ImageStore
from editloupe.protocols.base import make_protocol
from editloupe.protocols.imported import record_of
from editloupe.protocols.importer import ResultFiles
from editloupe.runs.judges import JudgeEntry
from editloupe.runs.selection import keep_pictures
from editloupe.runs.setup import spec_of
from editloupe.runs.store import RunStore


@dataclass(frozen=True, kw_only=True)
class ImportedRun:
    """What an import has written."""

    findings: int
    """New findings."""
    known: int
    """Findings that the run held already."""
    notes: tuple[str, ...]
    """What a reader should know about how the files were read."""


def import_results(name: str, folder: Path, out: Path, *, data: Path, edited: Mapping[str, Path]) -> ImportedRun:
    """Read result files into the run folder `out`, a new one or that of an earlier import.

    name: of an installed importer.   data: what was judged.   edited: folder of outputs by the editor's name.
    Raises UnknownPlugin, DataError, ConfigError, RunMismatch and StorageError.
    """
    importer = cast(ResultFiles, plugins.load("importers", name))
    images = ImageStore(out / "blobs", writes=False)
    read = importer.read(folder, data=data, edited=edited, store=images)
    protocol = make_protocol(read.protocol, read.options)
    before = RunStore.read_info(out).spec.record if (out / "run.json").is_file() else {}
    spec = spec_of(read.protocol, protocol, {"imported": name}, record_of(read, before))
    entries = [JudgeEntry(judge=judge, name=called) for called, judge in read.judges.items()]
    with closing(RunStore.begin(out, spec, entries, read.loaded)) as store:
        images.write()
        judged = {finding.about.key for finding in read.findings}
        for sample in (sample for sample in read.loaded.samples if sample.key in judged):
            keep_pictures(sample, images)
        new = [finding for finding in read.findings if store.findings.get(finding.key) != finding]
        store.add_findings(new)
    return ImportedRun(findings=len(new), known=len(read.findings) - len(new), notes=read.notes)
