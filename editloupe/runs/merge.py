"""Merge the shards of one run: samples, findings with their traces, what people said, and images."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path

from editloupe import files
from editloupe.data.rows import RejectedRow
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, RunMismatch
from editloupe.findings import PENDING, Finding
from editloupe.runs import people
from editloupe.runs.folders import bring
from editloupe.runs.judges import differences
from editloupe.runs.lineage import set_aside
from editloupe.runs.store import RunStore


@dataclass(frozen=True, kw_only=True)
class Merged:
    """What is new in a merged run."""

    samples: int = 0
    findings: int = 0
    stayed: int = 0
    """Findings of shards that did not replace one already there."""
    pictures: int = 0


def merge(out: Path, shards: Sequence[Path]) -> Merged:
    """Merge shards of one run into `out`, a new folder or a run with the same settings. The shards stay as they are.

    If two hold the same task, a final finding wins over a pending one, else the first wins. The other's trace, and forks,
    stay in their shard. No process may write to a shard meanwhile.
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
            if found := differences(stores[0].spec, store.spec):
                raise RunMismatch(f"{store.folder} is no shard of the same run as {stores[0].folder}. {found}")
        spec = stores[0].spec
        # Only shards with repeats know how repeats are joined.
        if rules := [store.spec.record["repeats"] for store in stores if "repeats" in store.spec.record]:
            spec = replace(spec, record={**spec.record, "repeats": rules[0]})
        judges = [entry for store in stores for entry in store.entries().values()]
        nothing = Loaded(format="merged", samples=(), rejected=())
        config = next(filter(None, (store.config() for store in (RunStore(out), *stores))), None)
        # A name that means two judges is refused before the folder is made.
        RunStore(out).look(spec, judges, nothing)
        target = opened.enter_context(closing(RunStore.begin(out, spec, judges, nothing, config=config)))
        with files.writing(out):
            parts = [_joined(store, target) for store in stores]
        return Merged(**{name: sum(getattr(part, name) for part in parts) for name in vars(Merged())})


def _joined(shard: RunStore, target: RunStore) -> Merged:
    before = len(target.samples)
    rejected = tuple(RejectedRow.from_json(row) for row in shard.rejected.values())
    target.add_samples(Loaded(format="merged", samples=tuple(shard.samples.values()), rejected=rejected))
    final = {key for key, ours in target.findings.items() if ours.status not in PENDING}
    # A final finding wins over a pending one; of two alike the first stays.
    pending = {key for key, finding in shard.findings.items() if finding.status in PENDING}
    stay = final | (pending & target.findings.keys())
    taken = [finding for key, finding in shard.findings.items() if key not in stay]
    for finding in taken:
        _bring_trace(finding, shard.folder, target.folder)
    target.add_findings(taken)
    people.bring(shard.folder, target.folder)
    return Merged(
        samples=len(target.samples) - before,
        findings=len(taken),
        stayed=len(shard.findings) - len(taken),
        # A trace may be continued later; an image never changes.
        pictures=bring(shard.blobs, target.blobs, link=True),
    )


def _bring_trace(finding: Finding, shard: Path, target: Path) -> None:
    """Copy the trace of a finding, and what was set aside of it. A trace that is there already is set aside."""
    source, there = shard / str(finding.trace), target / str(finding.trace)
    if finding.trace is None or not source.exists():
        return
    if there.exists() and files.read_bytes(source) != files.read_bytes(there):
        set_aside(there, below=target)
    asides = source.parent.glob(f"{source.name.removesuffix('.jsonl')}.aside-*.jsonl")
    for path in (source, *asides):
        if not (copy := there.with_name(path.name)).exists():
            files.write_whole(copy, files.read_bytes(path), below=target)
