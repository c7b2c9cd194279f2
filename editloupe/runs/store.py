"""The run folder: run.json, config.yaml, samples.jsonl, findings.jsonl, people.jsonl, traces/, blobs/, report/.

Everything that grows is appended; a torn last line is cut off, and the last valid line of a key wins. One process writes
at a time; any number may read.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from editloupe import files
from editloupe.data.run_file import NAME, RUN_SCHEMA, check_contents
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, RunMismatch
from editloupe.findings import Finding
from editloupe.runs import jsonl, lock
from editloupe.runs.contents import RunContents
from editloupe.runs.index import FINDINGS, SAMPLES
from editloupe.runs.jsonl import list_of, object_of
from editloupe.runs.judges import JudgeEntry, RunSpec, differences, joined, read_config, write_config
from editloupe.values import Json, Sample


class RunStore(RunContents):
    """One run folder. Open with `RunStore.read` to look, with `RunStore.begin` to work (which takes the lock)."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._lock: BinaryIO | None = None
        self._findings_file: BinaryIO | None = None

    @classmethod
    def edit(cls, folder: Path) -> RunStore:
        """Return an existing run as it stands, locked for this process, to put something beside what is there.

        Raises ConfigError: no run, not writable, in use.
        """
        store = cls.read(folder)
        try:
            store._lock = lock.take(folder)
        except OSError as error:
            raise ConfigError(f"{folder} cannot be written: {error.strerror or error}") from error
        return store

    @classmethod
    def begin(
        cls,
        folder: Path,
        spec: RunSpec,
        judges: Iterable[JudgeEntry],
        loaded: Loaded,
        *,
        config: Mapping[str, Json] | None = None,
        first: Callable[[RunStore], None] = lambda store: None,
    ) -> RunStore:
        """Return a new run, or an existing one with the same identity, locked for this process, with what is to be judged.

        judges: who answers, a role each, and others that are to come; they join those of before.
        config: the options of this invocation; config.yaml then says what all of them asked. Without any, none is written.
        first: looks at the run as it is before anything is written. Where it raises, all stays as it was.
        Raises RunMismatch if another identity was judged here (naming the fields that differ), if a sample's content is no
        longer what was judged, or if a name is another judge's already; then the run stays as it is. Raises ConfigError
        (not writable, in use, not a run folder) and StorageError.
        """
        store, begun = cls(folder), (folder / NAME).exists()
        store._refuse_strangers(look_inside=False)
        with ExitStack() as on_error:
            on_error.callback(store.close)
            if not begun:
                first(store)
            try:
                folder.mkdir(parents=True, exist_ok=True)
                store._lock = lock.take(folder)
                # Another process may have begun a run in between.
                listed = store.look(spec, judges, loaded)
            except OSError as error:
                raise ConfigError(f"{folder} cannot be written: {error.strerror or error}; choose another --out") from error
            if begun:
                first(store)
            store._write_invocation(spec, listed, loaded, config)
            on_error.pop_all()
        return store

    def look(self, spec: RunSpec, judges: Iterable[JudgeEntry], loaded: Loaded) -> dict[str, Json]:
        """Load the run that the folder holds, if any, and return its judges with these. Nothing is written or locked.

        Raises RunMismatch and ConfigError as `begin` does, but for what only writing shows.
        """
        begun = (self.folder / NAME).exists()
        self._refuse_strangers(look_inside=not begun)
        if begun:
            self._load()
            if found := differences(self.spec, spec):
                raise RunMismatch(
                    f"{self.folder} belongs to another run, with other settings. {found}. Give that run's settings to "
                    "continue it, or choose another --out"
                )
        self._refuse_changed(loaded.samples)
        return joined(self.info.get("judges"), judges, self.folder)

    def _refuse_strangers(self, *, look_inside: bool = True) -> None:
        """Raise ConfigError for a file, and for a folder with files of anything but a run, even one killed at its start.

        look_inside: False where what lies in the folder is looked at before it is read, as `_load` does.
        """
        if self.folder.exists() and not self.folder.is_dir():
            raise ConfigError(f"{self.folder} is a file; --out needs a folder")
        if self.folder.is_dir() and not (self.folder / NAME).exists():
            # The last three are of version 0.2.0 and older.
            own = {lock.LOCK, "run.owner", ".run.json.part", ".run.owner.part"}
            if any(path.name not in own and not path.name.startswith(files.PART) for path in self.folder.iterdir()):
                raise ConfigError(
                    f"{self.folder} holds other files and is no run; name an empty or a new folder with --out"
                )
        if look_inside and self.folder.is_dir():
            check_contents(self.folder)

    def _write_invocation(
        self, spec: RunSpec, judges: Mapping[str, Json], loaded: Loaded, config: Mapping[str, Json] | None
    ) -> None:
        """Write what an invocation adds to the run. Raises StorageError."""
        rebuilt = [] if (self.folder / FINDINGS).exists() else list(self.findings.values())
        before = self.spec.record
        # The rule for repeats stays if the new judge is asked once.
        kept = {"repeats": before["repeats"]} if "repeats" in before else {}
        # An invocation may ask for some of the metrics only.
        listed = [*list_of(before.get("metrics")), *list_of(spec.record.get("metrics"))]
        metrics = list({str(object_of(m).get("id")): m for m in listed}.values())
        record = {**kept, **spec.record, "metrics": metrics}
        with files.writing(self.folder):
            self._write_info(
                {"schema": RUN_SCHEMA, "identity": dict(spec.identity), "record": record, "judges": dict(judges)}
            )
            # config.yaml: this invocation, asked of every judge. Without `config`, its options stay.
            if options := config or read_config(self.folder):
                write_config(self.folder, options, self.info["judges"])
            self._appended(SAMPLES).close()
            self._findings_file = self._appended(FINDINGS)
        self._append_samples(loaded)
        if rebuilt:
            self.add_findings(rebuilt)

    def _write_info(self, info: dict[str, Json]) -> None:
        self.info = info
        self._write(NAME, json.dumps(info, indent=2, ensure_ascii=False) + "\n")

    def config(self) -> dict[str, Json]:
        """Return the options of config.yaml; empty without one, or where it cannot be read."""
        return read_config(self.folder)

    def add_judge(self, entry: JudgeEntry) -> None:
        """List one more judge of a run that has begun, if it is not listed yet. Raises StorageError."""
        judges = self.info.get("judges")
        if isinstance(judges, Mapping) and entry.judge.id in judges:
            return
        with files.writing(self.folder):
            self._write_info({**self.info, "judges": joined(judges, [entry], self.folder)})

    def add_samples(self, loaded: Loaded) -> None:
        """Add samples to a run that has begun. Raises as `begin`."""
        self._refuse_changed(loaded.samples)
        self._append_samples(loaded)

    def _refuse_changed(self, samples: Iterable[Sample]) -> None:
        """Raise RunMismatch if a sample is no longer what this run judged."""
        for sample in samples:
            known = self.samples.get(sample.key)
            if known is None or known == sample or not any(turn.edited for turn in known.turns):
                continue  # without an output nothing was judged
            # An output that was missing and is there now was never judged, nor was a picture that could not be read.
            if known.content != _without_new(known, sample).content and (
                {f.status for f in self.findings.values() if f.sample_key == sample.key} != {"input_error"}
            ):
                raise RunMismatch(
                    f"sample {sample.key!r} is not what this run judged: {_changed(known, sample)} changed; "
                    "choose another --out, or put the old file back"
                )

    def _append_samples(self, loaded: Loaded) -> None:
        """Append the samples and rejected rows that are new. Raises StorageError."""
        lines = []
        for sample in loaded.samples:
            known = self.samples.get(sample.key)
            if known == sample:
                self.samples[sample.key] = sample  # one that is held anyway
            new = known is None or (known != sample and known.content != sample.content)
            if new or sample.key in self.rejected:
                lines.append(jsonl.line(sample.to_json()))
                self.samples[sample.key] = sample
                self.rejected.pop(sample.key, None)
        for row in loaded.rejected:
            if self.rejected.get(row.key) != row.to_json():
                lines.append(jsonl.line({"rejected": row.to_json()}))
                self.rejected[row.key] = row.to_json()
        if lines:
            with files.writing(self.folder), self._appended(SAMPLES) as file:
                file.writelines(lines)

    def add_findings(self, findings: Sequence[Finding]) -> None:
        """Append findings of listed judges and make sure that they are on disk. Raises StorageError."""
        assert self._findings_file is not None, "the run is open for reading only"
        with files.writing(self.folder):
            self._findings_file.writelines(jsonl.line(finding.to_json()) for finding in findings)
            self._findings_file.flush()
            os.fsync(self._findings_file.fileno())
        for finding in findings:
            self._keep(finding)

    def write_report(self, name: str, text: str) -> Path:
        """Write a file into `report/`, whole or not at all. Raises StorageError."""
        with files.writing(self.folder):
            return self._write(f"report/{name}", text)

    def forget(self) -> None:
        """Drop what is on disk from memory, for a writer that runs for long and looks nothing up here."""
        for held in (self.samples, self.rejected, self.findings, self.people):
            held.clear()

    def close(self) -> None:
        """Close the files and give the lock back."""
        if self._findings_file is not None:
            self._findings_file.close()
            self._findings_file = None
        if self._lock is not None:
            lock.give_back(self._lock)
            self._lock = None

    def _appended(self, name: str) -> BinaryIO:
        return jsonl.appended(self.folder / name, below=self.folder)

    def _write(self, name: str, text: str) -> Path:
        return files.write_whole(self.folder / name, text.encode("utf-8", "backslashreplace"), below=self.folder)


def _without_new(old: Sample, new: Sample) -> Sample:
    """Return a sample without the outputs that it did not have before."""
    if len(old.turns) != len(new.turns):
        return new
    turns = zip(old.turns, new.turns, strict=True)
    return replace(new, turns=tuple(now if before.edited else replace(now, edited=None) for before, now in turns))


def _changed(old: Sample, new: Sample) -> str:
    if old.sources != new.sources:
        return "the source image"
    if [turn.edited for turn in old.turns] != [turn.edited for turn in new.turns]:
        return "an edited image"
    if old.instruction != new.instruction:
        return f"the instruction, which was {old.instruction!r},"
    return "its targets, masks, reference or edit type"
