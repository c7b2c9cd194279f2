"""Merge the shards of one run: samples, findings, traces, forks and images."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from editloupe import files
from editloupe.data.rows import RejectedRow
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, RunMismatch
from editloupe.findings import PENDING, Finding
from editloupe.runs import people
from editloupe.runs.config_file import read_config
from editloupe.runs.differences import differences
from editloupe.runs.folders import bring
from editloupe.runs.lineage import FORKS, aside_path, family, set_aside
from editloupe.runs.store import RunStore

_FORK: Final = re.compile(r"[0-9a-f]{64}\.[0-9]{1,9}\.[0-9]{1,9}\.jsonl")

_AT_ONCE: Final = 10_000
"""Findings that are written together."""


@dataclass(frozen=True, kw_only=True)
class Merged:
    """Counts of a merge."""

    samples: int = 0
    """New samples."""
    findings: int = 0
    """New findings."""
    stayed: int = 0
    """Findings of shards that did not replace one already there."""
    pictures: int = 0
    """New images."""
    forks: int = 0
    """New forks."""
    problems: tuple[str, ...] = ()
    """Forks that were left in their shard."""


def merge(out: Path, shards: Sequence[Path]) -> Merged:
    """Merge shards of one run into `out`, a new folder or a run with the same settings. The shards stay as they are.

    If two hold the same task, a final finding wins over a pending one, else the first wins. The other's trace is kept
    beside it. No process may write to a shard meanwhile.
    Raises RunMismatch, which names the shard and the field, ConfigError and StorageError.
    """
    if len({path.resolve() for path in (out, *shards)}) <= len(shards):
        raise ConfigError("a run cannot be merged with itself; name every shard once, and another folder for the whole")
    with ExitStack() as opened:
        stores = [opened.enter_context(closing(RunStore.edit(shard))) for shard in shards]
        for store in stores:
            # What is malformed would be lost, or lead out of the folder.
            shapeless = [problem for problem in store.problems if "not of the expected shape" in problem]
            if bad := [*shapeless, *store.invalid]:
                raise ConfigError(f"{store.folder} cannot be merged: {'; '.join(bad)}")
        spec = stores[0].spec
        for store in stores[1:]:
            if found := differences(spec, store.spec):
                listed = "; ".join(f"{name}: {theirs} there, {ours} in {stores[0].folder}" for name, ours, theirs in found)
                raise RunMismatch(f"{store.folder} is no shard of the same run. {listed}")
        # Only shards with repeats know how repeats are joined.
        if rules := [store.spec.record["repeats"] for store in stores if "repeats" in store.spec.record]:
            spec = replace(spec, record={**spec.record, "repeats": rules[0]})
        judges = [entry for store in stores for entry in store.entries().values()]
        nothing = Loaded(format="merged", samples=(), rejected=())
        config = next(filter(None, map(read_config, (out, *shards))), None)
        # A name that means two judges is refused before the folder is made.
        RunStore(out).look(spec, judges, nothing)
        target = RunStore.begin(out, spec, judges, nothing, config=config)
        opened.callback(target.close)
        total = Merged()
        for store in stores:
            with files.writing(out):
                total = _joined(total, store, target)
        return total


def _joined(total: Merged, shard: RunStore, target: RunStore) -> Merged:
    before = len(target.samples)
    rejected = tuple(RejectedRow.from_json(row) for row in shard.rejected.values())
    target.add_samples(Loaded(format="merged", samples=tuple(shard.samples.values()), rejected=rejected))
    taken = [finding for finding in shard.findings.values() if _wins(target, shard, finding)]
    # Each write waits for the disk.
    for start in range(0, len(taken), _AT_ONCE):
        target.add_findings(taken[start : start + _AT_ONCE])
    people.bring(shard.folder, target.folder)
    forks, problems = _bring_forks(shard.folder / FORKS, target.folder / FORKS)
    return Merged(
        samples=total.samples + len(target.samples) - before,
        findings=total.findings + len(taken),
        stayed=total.stayed + len(shard.findings) - len(taken),
        # A trace may be continued later; an image never changes.
        pictures=total.pictures + bring(shard.blobs, target.blobs, link=True),
        forks=total.forks + forks,
        problems=(*total.problems, *problems),
    )


def _wins(target: RunStore, shard: RunStore, finding: Finding) -> bool:
    """Return whether a shard's finding is to be added; its trace is brought then."""
    ours, below = target.findings.get(finding.key), target.folder
    if ours is not None and (ours.status not in PENDING or finding.status in PENDING):
        if finding.trace is not None and ours.trace == finding.trace:
            _beside(shard.folder / finding.trace, target.folder / finding.trace, below)
        return False
    if finding.trace is not None:
        there = target.folder / finding.trace
        source = shard.folder / finding.trace
        if source.exists() and not _same(source, there):
            set_aside(there, below=below)
            files.write_whole(there, files.read_bytes(source), below=below)
        for aside in source.parent.glob(f"{source.name.removesuffix('.jsonl')}.aside-*.jsonl"):
            _beside(aside, there, below)
    return True


def _beside(source: Path, there: Path, below: Path) -> None:
    """Keep a trace that lost as one that was set aside, unless an equal one is kept already."""
    stem = there.name.removesuffix(".jsonl")
    kept = [there, *there.parent.glob(f"{stem}.aside-*.jsonl")]
    if not source.exists() or any(_same(source, path) for path in kept):
        return
    files.write_whole(aside_path(there), files.read_bytes(source), below=below)


def _same(one: Path, other: Path) -> bool:
    """Return whether both files exist with the same bytes."""
    return other.exists() and files.read_bytes(one) == files.read_bytes(other)


def _bring_forks(source: Path, target: Path) -> tuple[int, list[str]]:
    """Copy forks. Return how many are new, and a problem for each that stays, as its name is taken by another."""
    forks = {path: target / path.parent.name / path.name for path in source.glob("*/*.jsonl") if _FORK.fullmatch(path.name)}
    # What continues a fork names it, so that all of a task are brought or none.
    stay = {family(path.name) for path, there in forks.items() if there.exists() and not _same(path, there)}
    new, problems = 0, []
    for path, there in sorted(forks.items()):
        if family(path.name) in stay:
            problems.append(f"{path} stays where it is: the merged run has another fork of this task under the same name")
        elif not there.exists():
            files.write_whole(there, files.read_bytes(path), below=target.parent)
            new += 1
    return new, problems
