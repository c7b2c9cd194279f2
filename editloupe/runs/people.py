"""What people said of a run's samples while they looked at it: one finding a line in `people.jsonl`, only appended to.

They stand beside findings.jsonl and not in it: no trace holds them, and they may come while another process is judging.
The latest line of a person and a question counts; one that takes an answer back is a line as well. A label of a metric is
also one of the sample's ratings (`rated`), and so stands wherever people are read: in `compare`, `gate`, the
exports and the pages.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias
from urllib.parse import quote

from editloupe import files
from editloupe.answers import Choice, Label, Number
from editloupe.data.human import Rating, of_turn, value_on
from editloupe.errors import StorageError
from editloupe.findings import Finding, JudgeSpec
from editloupe.scores import Metric
from editloupe.traces.read import complete_lines
from editloupe.values import Json, Sample, digest, finite_json

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
    retracted: bool = False
    """Whether the person took back what stood there: the question is open again."""
    of_metric: bool = True
    """False for an answer that is on the question's own scale and not on its metric's, such as "Edit A is better"."""
    swapped: bool = False
    """Whether two pictures were shown in exchanged places. The answer is stored as if they had not been."""

    @property
    def revision(self) -> str:
        """What tells this line from the others on the same question."""
        return digest([self.finding.to_json(), self.rater, self.time, self.retracted])[:16]

    @property
    def place(self) -> Place:
        """What it is about; the latest one of a place counts."""
        return self.rater, self.finding.question

    @property
    def rating(self) -> Rating | None:
        """The label or the number on the metric's scale; None for any other answer."""
        if not self.of_metric:
            return None
        return self.finding.label if self.finding.label is not None else self.finding.value


def person(rater: str) -> JudgeSpec:
    """Return a person as a judge."""
    return JudgeSpec(kind="human", backend=f"human/{quote(rater, safe='')}", endpoint="in person")


class Journal:
    """What people said of one run, followed while it grows; thread-safe. Reading again costs what is new.

    given: what counts of each person and question, in the order of writing.   problems: a line for each that cannot be
    used.
    """

    def __init__(self, folder: Path, metrics: Mapping[str, Metric], problems: list[str] | None = None) -> None:
        """metrics: of the run by id; an answer that is none of its metric does not count."""
        self.folder, self.given = folder, dict[Place, Given]()
        self.problems: list[str] = [] if problems is None else problems
        self._metrics, self._lock = metrics, threading.RLock()
        self._read = self._count = self._inode = 0
        """Bytes and lines that were taken in, and of which file."""
        self.refresh()

    def refresh(self) -> None:
        """Take in what was written since. Raises StorageError."""
        with self._lock:
            try:
                with files.open_plain(self.folder / FILE) as file:
                    file.seek(self._known(file))
                    self._take(file.read())
            except FileNotFoundError:
                self._forget()
            except OSError as error:
                raise StorageError(f"{self.folder / FILE} cannot be read: {error.strerror or error}") from error

    def snapshot(self) -> dict[Place, Given]:
        """Return what counts now."""
        with self._lock:
            return dict(self.given)

    def add(self, given: Given, *, seen: str | None = None) -> Given | None:
        """Append what a person said, make sure that it is on disk, and return None.

        seen: the `revision` of what the person saw there, "" for an open question, None for whatever stands there. If
        something else stands there now, nothing is written and that is returned (retracted where it is open again), unless
        it says the same. A run that is being judged goes on undisturbed.
        Raises StorageError.
        """
        with self._lock:
            other: list[Given] = []

            def wanted(lines: bytes) -> bool:
                self._take(lines)
                stands = self.given.get(given.place)
                if stands is None and given.retracted:
                    return False
                if seen is None or seen == (stands.revision if stands else ""):
                    return True
                if stands is None or not _same(stands, given):
                    other.append(stands or replace(given, retracted=True))
                return False

            self.refresh()
            line = _line(given)
            if _append(self.folder, [line], at=self._known, wanted=wanted):
                self._take(line + b"\n")
            return other[0] if other else None

    def _known(self, file: BinaryIO) -> int:
        """How many bytes of a file are taken in: none of one that has taken the place of another."""
        now = os.fstat(file.fileno())
        if now.st_ino != self._inode or now.st_size < self._read:
            self._forget()
            self._inode = now.st_ino
        return self._read

    def _forget(self) -> None:
        self.given.clear()
        self._read = self._count = self._inode = 0

    def _take(self, data: bytes) -> None:
        """Take in the complete lines of what follows the bytes that are known."""
        lines, end = complete_lines(data)
        self._read += end
        for line in lines:
            self._count += 1
            found = self._parsed(line)
            if isinstance(found, str):
                self.problems.append(f"{FILE}, line {self._count}: {found}, left out")
                continue
            self.given.pop(found.place, None)
            if not found.retracted:
                self.given[found.place] = found

    def _parsed(self, line: bytes) -> Given | str:
        """What a line says, or why it does not count."""
        try:
            data = finite_json(line)
            finding = Finding.from_json(data)
            given = Given(
                finding=finding,
                rater=str(data["rater"]),
                time=str(data.get("time", "")),
                retracted=data.get("retracted") is True,
                of_metric=data.get("of_metric") is not False,
                swapped=data.get("swapped") is True,
            )
            metric = self._metrics.get(finding.metric) if given.of_metric else None
            why = "" if metric is None or finding.answer is None else metric.refuses(finding.answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"not of the expected shape ({error!r})"
        return why or given


def add(folder: Path, given: Given) -> None:
    """Append what a person said, and make sure that it is on disk. A run that is being judged goes on undisturbed.

    Raises StorageError.
    """
    _append(folder, [_line(given)])


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
    return Journal(folder, metrics, problems).given


def of_metric(finding: Finding, metrics: Mapping[str, Metric]) -> bool:
    """Return False for an answer to a question that is a metric too and has another scale; True for any other."""
    metric, answer = metrics.get(finding.metric), finding.answer
    if metric is None or answer is None:
        return True
    if metric.refuses(answer):
        return False
    if isinstance(answer, Choice):
        return value_on(metric, answer.name) is not None
    return isinstance(answer, Number) or (isinstance(answer, Label) and bool(metric.levels))


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


def _line(given: Given) -> bytes:
    data: dict[str, Json] = {
        **given.finding.to_json(),
        "rater": given.rater,
        "time": given.time,
        "judge": person(given.rater).to_json(),
        **({"retracted": True} if given.retracted else {}),
        **({} if given.of_metric else {"of_metric": False}),
        **({"swapped": True} if given.swapped else {}),
    }
    return json.dumps(data, ensure_ascii=False, allow_nan=False).encode("utf-8", "backslashreplace")


def _same(one: Given, other: Given) -> bool:
    """Whether two lines say the same of one question: the second is the first one, sent again."""
    a, b = one.finding, other.finding
    return (a.status, a.answer, a.reason, one.retracted) == (b.status, b.answer, b.reason, other.retracted)


def _lines(folder: Path) -> Sequence[bytes]:
    try:
        return complete_lines(files.read_bytes(folder / FILE))[0]
    except FileNotFoundError:
        return []


def _append(
    folder: Path,
    lines: Iterable[bytes],
    *,
    at: Callable[[BinaryIO], int] = lambda file: 0,
    wanted: Callable[[bytes], bool] = lambda data: True,
) -> bool:
    """Append lines and return True, unless the complete lines from a byte `at` on are such that they are not `wanted`."""
    try:
        with files.append(folder / FILE, below=folder) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            begin = at(file)
            file.seek(begin)
            data = file.read()
            end = complete_lines(data)[1]
            # A line that was cut off when its writer was killed.
            file.truncate(begin + end)
            if not wanted(data[:end]):
                return False
            file.writelines(line + b"\n" for line in lines)
            file.flush()
            os.fsync(file.fileno())
            return True
    except OSError as error:
        raise StorageError(f"{folder / FILE} cannot be written: {error.strerror or error}") from error
