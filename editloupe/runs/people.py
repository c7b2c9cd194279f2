"""What people said of a run's samples: one finding a line in `people.jsonl`, only appended to.

They stand beside findings.jsonl and not in it: no trace holds them, and they may come while another process is judging.
The latest line of a person and a question counts. A label of a metric is also one of the sample's ratings (`rated`), and so
stands wherever people are read: in `compare`, `gate`, the exports and the pages.
"""

from __future__ import annotations

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
from editloupe.runs import jsonl
from editloupe.scores import Metric
from editloupe.traces.read import complete_lines
from editloupe.values import Json, Sample, finite_json

FILE: Final = "people.jsonl"

Place: TypeAlias = tuple[str, tuple[str, str, str, int, str]]
"""(rater, `Finding.question`)."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What one person said of one question."""

    finding: Finding
    """Its reason is the note; `abstained` where the person skipped the question."""
    rater: str
    time: str
    """When, in ISO 8601."""
    of_metric: bool = True
    """False for an answer that is on the question's own scale and not on its metric's, such as "Edit A is better"."""
    swapped: bool = False
    """Whether two pictures were shown in exchanged places. The answer is stored as if they had not been."""

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


def add(folder: Path, given: Given) -> tuple[int, int]:
    """Append what a person said, make sure that it is on disk, and return at which byte it begins and ends.

    A run that is being judged goes on undisturbed. Raises StorageError.
    """
    return _append(folder, [_line(given)])


def bring(source: Path, target: Path) -> None:
    """Append to one run what people said in another shard of it, each line once. Raises StorageError, OSError."""
    there = _lines(target)
    if new := [line for line in _lines(source) if line not in there]:
        _append(target, [line + b"\n" for line in new])


def read(folder: Path, metrics: Mapping[str, Metric], problems: list[str]) -> dict[Place, Given]:
    """Return what counts of each person and question, in the order of writing.

    metrics: of the run by id; an answer that is none of its metric does not count.   problems: gets a line for each that
    cannot be used.
    """
    found: dict[Place, Given] = {}
    for number, line in enumerate(_lines(folder), start=1):
        try:
            data = finite_json(line)
            given = _given(data)
            metric, answer = metrics.get(given.finding.metric) if given.of_metric else None, given.finding.answer
            why = "" if metric is None or answer is None else metric.refuses(answer)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            why = f"not of the expected shape ({error!r})"
        if why:
            problems.append(f"{FILE}, line {number}: {why}, left out")
            continue
        found.pop(given.place, None)
        # In runs of 0.2.0 a line may say that an answer was taken back.
        if data.get("retracted") is not True:
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


def _given(data: Mapping[str, Json]) -> Given:
    return Given(
        finding=Finding.from_json(data),
        rater=str(data["rater"]),
        time=str(data.get("time", "")),
        of_metric=data.get("of_metric") is not False,
        swapped=data.get("swapped") is True,
    )


def _line(given: Given) -> bytes:
    data: dict[str, Json] = {
        **given.finding.to_json(),
        "rater": given.rater,
        "time": given.time,
        "judge": person(given.rater).to_json(),
        **({} if given.of_metric else {"of_metric": False}),
        **({"swapped": True} if given.swapped else {}),
    }
    return jsonl.line(data)


def _lines(folder: Path) -> list[bytes]:
    try:
        return list(complete_lines(files.read_bytes(folder / FILE))[0])
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{folder / FILE} cannot be read: {error.strerror or error}") from error


def _append(folder: Path, lines: Iterable[bytes]) -> tuple[int, int]:
    try:
        with jsonl.appended(folder / FILE, below=folder, alone=True) as file:
            begin = file.seek(0, os.SEEK_END)
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
            return begin, file.tell()
    except OSError as error:
        raise StorageError(f"{folder / FILE} cannot be written: {error.strerror or error}") from error
