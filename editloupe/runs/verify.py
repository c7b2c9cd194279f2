"""Verify a run in full: run.json, samples, findings, traces and pictures against one another and against their digests.

What was written without a digest, or is not there, cannot be checked; that is said and is no fault. Traces that were set
aside are not looked at, since no finding rests on them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from editloupe.errors import EditLoupeError, TraceError
from editloupe.files import read_bytes
from editloupe.findings import Finding, Observation
from editloupe.protocols.base import groups
from editloupe.runs import checks
from editloupe.runs.lineage import FORKS, mismatches, read_whole
from editloupe.runs.store import RunStore
from editloupe.tasks import Task, task_from_json
from editloupe.traces.events import End, Header, ToolResult
from editloupe.traces.read import Trace, complete_lines, finding_digest
from editloupe.values import ImageRef, Json, Sample, parse_json

_SHA: Final = re.compile(r"[0-9a-f]{64}")
_TRACE: Final = re.compile(r"[0-9a-f]{64}(?:\.[0-9]+){1,2}\.jsonl")
"""Names of traces and forks; those of traces that were set aside differ."""


@dataclass(kw_only=True)
class Part:
    """What was found of one part of a run."""

    name: str
    """For example "findings.jsonl"."""
    equal: int = 0
    """How many things are as they were recorded."""
    unchecked: list[tuple[str, str]] = field(default_factory=list)
    """What could not be checked: (name, reason)."""
    wrong: list[tuple[str, str]] = field(default_factory=list)
    """What is not as it was recorded: (name, reason)."""

    def add(self, name: str, wrong: Iterable[str], unchecked: str = "") -> None:
        """Count one thing. It is wrong if anything speaks against it, else unchecked if that has a reason, else equal."""
        reasons = list(dict.fromkeys(wrong))
        self.wrong += [(name, reason) for reason in reasons]
        if not reasons and unchecked:
            self.unchecked.append((name, unchecked))
        self.equal += not reasons and not unchecked

    @property
    def failed(self) -> int:
        """How many things are wrong."""
        return len({name for name, _ in self.wrong})

    def to_json(self) -> dict[str, Json]:
        """Return JSON for programs."""
        return {
            "part": self.name,
            "checked": self.equal + self.failed,
            "equal": self.equal,
            "unchecked": [{"name": name, "reason": why} for name, why in self.unchecked],
            "wrong": [{"name": name, "reason": why} for name, why in self.wrong],
        }


def verify(folder: Path) -> list[Part]:
    """Check everything in a run folder. Nothing is written. Raises ConfigError if it is no run."""
    store = RunStore.read(folder)
    verification = _Verification(store)
    verification.run_file()
    verification.samples_file()
    found = [*folder.glob("traces/*/*/*.jsonl"), *folder.glob(f"{FORKS}/*/*.jsonl")]
    named = [folder / name for name in verification.by_trace if name and (folder / name).is_file()]
    for path in sorted({*(path for path in found if _TRACE.fullmatch(path.name)), *named}):
        verification.trace(path)
    verification.without_trace()
    verification.pictures()
    return list(verification.parts.values())


class _Verification:
    """One pass over a run, trace by trace, so that no two traces are in memory at once."""

    def __init__(self, store: RunStore) -> None:
        self.store = store
        names = ("run.json", "samples.jsonl", "findings.jsonl", "traces", "pictures")
        self.parts = {name: Part(name=name) for name in names}
        self.shown: dict[str, str] = {}
        """SHA-256 of each picture that something names → what names it."""
        self.by_trace: dict[str, list[Finding]] = {}
        for finding in store.findings.values():
            self.by_trace.setdefault(finding.trace or "", []).append(finding)
        self.images = _images_by_sample(store.samples.values())
        self.current = {finding.key for finding in store.current()}
        for problem in store.problems:
            name, _, why = problem.partition(": ")
            part = self.parts["samples.jsonl" if name.startswith("samples.jsonl") else "findings.jsonl"]
            if problem not in store.invalid:
                cut = why.startswith("the last line is cut off")
                part.add(name.removeprefix(f"{part.name}, "), () if cut else (why,), why)

    def run_file(self) -> None:
        """Check run.json against its digest, and that the options by which a report reads it are those of its identity."""
        recorded = self.store.info.get("digest")
        same = recorded in (None, checks.info_digest(self.store.info))
        why = () if same else ("it is not what was recorded: its digest differs",)
        self.parts["run.json"].add("all of it", why, "" if recorded else "it has no digest")
        identity = self.store.spec.identity.get("options")
        options = self.store.options()
        other = [n for n, v in identity.items() if options.get(n) != v] if isinstance(identity, Mapping) else []
        wrong = [f"its option {name!r} is not the one of its identity" for name in other]
        self.parts["run.json"].add("options", wrong)

    def samples_file(self) -> None:
        """Check each line's digest of what a judge sees."""
        path, part = self.store.folder / "samples.jsonl", self.parts["samples.jsonl"]
        for line in complete_lines(read_bytes(path))[0] if path.exists() else ():
            try:
                data = parse_json(line)
                sample = Sample.from_json(data)
            except ValueError:
                continue  # a row that was rejected, or one that the run's problems name
            changed = data.get("content") not in (None, sample.content)
            wrong = ["its pictures, instruction or targets are not those that were recorded"] if changed else []
            part.add(sample.key, wrong, "" if "content" in data else "it has no digest")
            for image in _images(sample):
                self.shown.setdefault(image.sha256, f"sample {sample.key}")

    def trace(self, path: Path) -> None:
        """Check one trace, and the findings that name it."""
        name = path.relative_to(self.store.folder).as_posix()
        findings, part = self.by_trace.pop(name, []), self.parts["traces"]
        try:
            trace = read_whole(self.store.folder, path)
        except TraceError as error:
            # A process that was killed may leave a file without one whole line.
            begun = bool(complete_lines(read_bytes(path))[0])
            part.add(name, (str(error),) if begun or findings else (), "it has not begun")
            for finding in findings:
                self.finding(finding, None, None, path)
            return
        task = _task(trace)
        if not self.store.rescored:
            self.judge(trace.header)
        part.add(name, self.trace_problems(trace, task), "" if isinstance(trace.events[-1], End) else "it has not ended")
        for message in trace.messages():
            for shown in message.images:
                self.shown.setdefault(shown.image.sha256, name)
        for event in trace.events:
            if isinstance(event, ToolResult):
                observation = Observation.from_json(event.observation)
                for image in (*observation.images, *(view.image for view in observation.kept)):
                    self.shown.setdefault(image.sha256, name)
        for finding in findings:
            self.finding(finding, trace, task, path)
            if task is not None and finding.key in self.current:
                self.sample_of(task, name)

    def judge(self, header: Header) -> None:
        """Check, once for each judge, that run.json lists it as its traces do. A key that one of them lacks is no fault."""
        part, name = self.parts["run.json"], f"judge {header.judge_id}"
        listed = self.store.listed_judge(header.judge_id)
        differing = [n for n, v in header.judge.items() if n in listed and listed[n] != v]
        if differing and name not in {known for known, _ in part.wrong}:
            part.add(name, (f"its traces have another {', '.join(differing)}",))

    def trace_problems(self, trace: Trace, task: Task | None) -> Iterator[str]:
        header = trace.header
        name = "" if trace.path is None else f"{trace.path.name}: "
        yield from (problem.removeprefix(name) for problem in trace.tampering)
        if finding_digest(header.task) != header.task_id:
            yield "its question was changed after it was recorded (it no longer has its id)"
        elif task is None:
            yield "its question cannot be read"
        if (finding_digest(header.judge) or "")[:16] != header.judge_id:
            yield "its judge was changed after it was recorded (it no longer has its id)"
        if not self.store.rescored and header.run != self.store.identity:
            yield f"it comes from another run ({header.run}; this one is {self.store.identity})"

    def finding(self, finding: Finding, trace: Trace | None, task: Task | None, path: Path) -> None:
        """Check one finding against its trace. trace: None if it cannot be read."""
        part, name = self.parts["findings.jsonl"], checks.named(finding)
        if finding.status == "invalid":
            part.add(name, (finding.reason,))
            return
        wrong = list(() if trace is None or self.store.rescored else mismatches(trace, finding))
        recorded = [] if trace is None else checks.findings_of(trace)
        held = recorded[-1:] == [finding] if finding.status == "ok" else checks.recorded_in(path, finding)
        unended = finding.status != "ok" and finding.ending in checks.NO_END
        if not held and not unended and not wrong:
            wrong.append("it is not what its trace ends in")
        if task is not None and task.kind == "ask" and finding.answer is not None and not self.store.rescored:
            wrong += filter(None, [checks.off_menu(finding.answer, task.answer)])
        part.add(name, wrong, "" if held else "its trace could not be written to its end")

    def sample_of(self, task: Task, name: str) -> None:
        """Check that a question shows pictures of its sample, or of one beside it."""
        key, part = task.about.key, self.parts["samples.jsonl"]
        if key not in self.images:
            if key not in self.store.rejected:
                part.add(key, ("findings are about it, and it has no line",))
            return
        for view in task.views:
            if view.origin.sha256 not in self.images[key]:
                part.add(key, (f"{view.alias} is not the picture that was judged ({name})",))

    def without_trace(self) -> None:
        """Count the findings that no trace can be held against."""
        part = self.parts["findings.jsonl"]
        for findings in self.by_trace.values():
            for finding in findings:
                wrong = (finding.reason,) if finding.status == "invalid" else ()
                why = "its trace is not there" if finding.trace else f"there is no trace of it ({finding.status})"
                part.add(checks.named(finding), wrong, why)

    def pictures(self) -> None:
        """Check each picture against its name, and that those which something names are there."""
        part, found = self.parts["pictures"], set()
        for path in sorted((self.store.folder / "blobs").glob("*/*")):
            if not _SHA.fullmatch(path.stem) or not path.is_file():
                continue
            found.add(path.stem)
            try:
                same = hashlib.sha256(read_bytes(path)).hexdigest() == path.stem
            except OSError as error:
                part.add(f"blobs/{path.parent.name}/{path.name}", (), f"it cannot be read: {error.strerror or error}")
                continue
            wrong = () if same else ("its content is not that of its name",)
            part.add(f"blobs/{path.parent.name}/{path.name}", wrong)
        for sha256, by in self.shown.items():
            if sha256 not in found:
                part.add(f"{sha256[:12]} of {by}", (), "it is not in the run")


def _images(sample: Sample) -> list[ImageRef]:
    """Return every picture of a sample."""
    edited = [turn.edited for turn in sample.turns]
    return [i for i in (sample.source, *edited, sample.reference, *sample.masks.values()) if i is not None]


def _images_by_sample(samples: Iterable[Sample]) -> dict[str, set[str]]:
    """Return sample key → the pictures of its group, since a protocol may compare the edits of one source."""
    found: dict[str, set[str]] = {}
    for group in groups(list(samples)):
        shas = {image.sha256 for sample in group for image in _images(sample)}
        found |= dict.fromkeys((sample.key for sample in group), shas)
    return found


def _task(trace: Trace) -> Task | None:
    try:
        return task_from_json(trace.header.task)
    except (EditLoupeError, ValueError):
        return None
