"""What people said of a run's samples while they looked at it: one finding a line in `people.jsonl`, only appended to.

They stand beside findings.jsonl and not in it: no trace holds them, and they may come while another process is judging.
The latest line of a person and a question counts. A label of a metric is also one of the sample's ratings (`rated`), and so
stands wherever people are read: in `compare`, `align`, `gate`, the exports and the pages.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import quote

from editloupe import files
from editloupe.data.human import Rating, of_turn
from editloupe.errors import StorageError
from editloupe.findings import Finding, JudgeSpec
from editloupe.runs import checks
from editloupe.scores import Metric
from editloupe.traces.read import complete_lines
from editloupe.values import Sample, parse_json

FILE: Final = "people.jsonl"

Place: TypeAlias = tuple[str, tuple[str, str, str, int, str]]
"""(rater, `Finding.question`)."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What one person said of one question."""

    finding: Finding
    """Its reason is the note; `abstained` where the person took the label back, or could not tell."""
    rater: str
    time: str
    """When, in ISO 8601."""

    @property
    def place(self) -> Place:
        """What it is about; the latest one of a place counts."""
        return self.rater, self.finding.question

    @property
    def rating(self) -> Rating | None:
        """The label or the number; None for an answer that is neither."""
        return self.finding.label if self.finding.label is not None else self.finding.value


def person(rater: str) -> JudgeSpec:
    """Return a person as a judge."""
    return JudgeSpec(kind="human", backend=f"human/{quote(rater, safe='')}", endpoint="in person")


def add(folder: Path, given: Given) -> None:
    """Append what a person said, and make sure that it is on disk. A run that is being judged goes on undisturbed.

    Raises StorageError.
    """
    data = {
        **checks.to_line(given.finding),
        "rater": given.rater,
        "time": given.time,
        "judge": person(given.rater).to_json(),
    }
    _append(folder, [json.dumps(data, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")])


def bring(source: Path, target: Path) -> None:
    """Append to one run what people said in another shard of it, each line once. Raises StorageError, OSError."""
    there = _lines(target)
    if new := [line for line in _lines(source) if line not in there]:
        _append(target, new)


def read(folder: Path, metrics: Mapping[str, Metric], problems: list[str]) -> dict[Place, Given]:
    """Return what counts of each person and question, in the order of writing.

    metrics: of the run by id; an answer that is none of its metric does not count.   problems: gets a line for each that
    cannot be used.
    """
    found: dict[Place, Given] = {}
    for number, line in enumerate(_lines(folder), start=1):
        try:
            data = parse_json(line)
            finding, seal = checks.parse_finding({k: v for k, v in data.items() if k not in ("rater", "time", "judge")})
            given = Given(finding=finding, rater=str(data["rater"]), time=str(data.get("time", "")))
            why = checks.wrong_with(folder, finding, seal, metrics)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"not of the expected shape ({error!r})"
        if why:
            problems.append(f"{FILE}, line {number}: {why}, left out")
            continue
        found.pop(given.place, None)
        found[given.place] = given
    return found


def rated(sample: Sample, people: Iterable[Given]) -> Sample:
    """Return a sample with what people said of it and of its turns among its ratings; what is about a part is left out."""
    human = {name: dict(by_rater) for name, by_rater in sample.human.items()}
    for given in people:
        finding, rating = given.finding, given.rating
        if finding.about.key != sample.key or finding.part:
            continue
        own = human.setdefault(of_turn(finding.turn, finding.metric), {})
        own.pop(given.rater, None)
        if rating is not None:
            own[given.rater] = rating
    kept = {name: by_rater for name, by_rater in human.items() if by_rater}
    return sample if kept == sample.human else replace(sample, human=kept)


def writable(folder: Path) -> bool:
    """Return whether this process may write what people say into a run."""
    path = folder / FILE
    return os.access(folder, os.W_OK | os.X_OK) and (not path.exists() or os.access(path, os.W_OK))


def _lines(folder: Path) -> list[bytes]:
    try:
        return complete_lines(files.read_bytes(folder / FILE))[0]
    except FileNotFoundError:
        return []


def _append(folder: Path, lines: Iterable[bytes]) -> None:
    try:
        with files.append(folder / FILE, below=folder) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            # A line that was cut off when its writer was killed.
            file.truncate(complete_lines(file.read())[1])
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise StorageError(f"{folder / FILE} cannot be written: {error.strerror or error}") from error
