"""Hold a finding's answer against people's ratings, or against the answers of a second judge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, Protocol, TypeAlias

from editloupe.answers import Answer, Boxes, Choice, Label, Record, Text, fold
from editloupe.errors import ConfigError
from editloupe.figures.columns import Answer as Rating
from editloupe.figures.columns import Key, column_of, key_of
from editloupe.figures.compare import rated_by_people
from editloupe.figures.judged import judged_in
from editloupe.findings import Finding
from editloupe.runs.store import RunStore
from editloupe.values import Json

Verdict: TypeAlias = Literal["agrees", "disagrees", "open"]
"""open: there is nothing to compare with, or it cannot be compared."""

TOLERANCE: Final = 1e-9
"""By which two equal numbers may differ, since a mean of ratings is rounded."""


class Reference(Protocol):
    """What answers are held against."""

    @property
    def name(self) -> str:
        """For messages: "people", or the second run's folder."""
        ...

    def verdict(self, finding: Finding) -> Verdict:
        """Return whether the finding's answer agrees. The finding has one."""


@dataclass(frozen=True, kw_only=True)
class People:
    """People's ratings: the label that most gave, or the mean of their numbers."""

    ratings: Mapping[str, Mapping[Key, Rating]]
    """By metric and item."""
    scores: Mapping[tuple[str, str], Sequence[tuple[str, Key, Rating]]]
    """(task id, judge id) → the scores that rest on it: metric, item, value or label."""
    tolerance: float
    name: str = "people"

    def verdict(self, finding: Finding) -> Verdict:
        """Return whether the answer agrees with people's rating of its metric.

        Of a question that is no rated metric, all scores that rest on it and are rated have to agree.
        """
        key: Key = (finding.editor, finding.sample_id, finding.turn, finding.part)
        if self.ratings.get(finding.metric):
            ours = finding.value if finding.value is not None else _words(finding.answer)
            return _alike(ours, self.ratings[finding.metric].get(key), self.tolerance)
        found = [
            _alike(ours, self.ratings.get(metric, {}).get(item), self.tolerance)
            for metric, item, ours in self.scores.get((finding.task_id, finding.judge_id), ())
        ]
        known = [verdict for verdict in found if verdict != "open"]
        return "open" if not known else "disagrees" if "disagrees" in known else "agrees"


@dataclass(frozen=True, kw_only=True)
class SecondJudge:
    """The answers of another run to the same questions."""

    name: str
    answers: Mapping[tuple[str, str, str, int, str], Sequence[Answer]]
    """By `Finding.question`."""
    tolerance: float

    def verdict(self, finding: Finding) -> Verdict:
        """Return whether more than half of the other run's answers to this question are the same, or less than half."""
        assert finding.answer is not None, "a failed finding has no answer to compare"
        found = [_same(finding.answer, other, self.tolerance) for other in self.answers.get(finding.question, ())]
        agreeing, disagreeing = found.count("agrees"), found.count("disagrees")
        return "agrees" if agreeing > disagreeing else "disagrees" if disagreeing > agreeing else "open"


def people_of(
    store: RunStore, human: Path | None, columns: Mapping[str, str], tolerance: float
) -> tuple[People, tuple[str, ...]]:
    """Return people's ratings of a run, and what could not be used of them.

    human: a table; None for the ratings that the run's samples carry.   columns: role → column, if names do not say it.
    Raises ConfigError if there is no rating, or none meets the run.
    """
    judged = judged_in(store)
    rated, notes = rated_by_people(judged, human, columns)
    if rated is None:
        raise ConfigError(
            f"{store.folder}: its samples carry no human ratings; name a table of people's ratings with --agree-with FILE"
        )
    column = rated.column
    scores: dict[tuple[str, str], list[tuple[str, Key, Rating]]] = {}
    for judge in judged:
        answers, ids = column_of(judge), {f.task_id: f.judge_id for f in judge.findings}
        for score in judge.scores:
            ours = answers.of(score.metric).get(key_of(score))
            # People's words are labels: an unordered label has no value that means anything.
            ours = score.label if score.label is not None and _is_worded(column.of(score.metric)) else ours
            for task in score.findings:
                if ours is not None and task in ids:
                    scores.setdefault((task, ids[task]), []).append((score.metric, key_of(score), ours))
    ratings = {metric: {k: v for k, v in found.items() if v is not None} for metric, found in column.answers.items()}
    return People(ratings=ratings, scores=scores, tolerance=tolerance), notes


def second_judge(store: RunStore, folder: Path, tolerance: float) -> SecondJudge:
    """Return the answers of the run in `folder`, to hold those of `store` against.

    Raises ConfigError: no run, the same run, no answer, or a sample that differs between the two.
    """
    if folder.resolve() == store.folder.resolve():
        raise ConfigError(f"--agree-with-run {folder} is the run itself; name another judge's run of the same data")
    other = RunStore.read(folder)
    for key in store.samples.keys() & other.samples.keys():
        if store.samples[key].content != other.samples[key].content:
            raise ConfigError(
                f"sample {key!r} is not the same in {store.folder} and {folder}; expected two runs of the same data"
            )
    answers: dict[tuple[str, str, str, int, str], list[Answer]] = {}
    for finding in other.current():
        if finding.answer is not None:
            answers.setdefault(finding.question, []).append(finding.answer)
    if not answers:
        raise ConfigError(f"--agree-with-run {folder}: it has no answer; judge the same data into it first")
    return SecondJudge(name=str(folder), answers=answers, tolerance=tolerance)


def _same(ours: Answer, theirs: Answer, tolerance: float) -> Verdict:
    """Compare two answers to one question."""
    if isinstance(ours, Boxes) or isinstance(theirs, Boxes):
        return "open"
    if isinstance(ours, Record) and isinstance(theirs, Record):
        return "agrees" if _without_text(ours.data) == _without_text(theirs.data) else "disagrees"
    if ours.value is not None and theirs.value is not None:
        return _alike(ours.value, theirs.value, tolerance)
    return _alike(_words(ours), _words(theirs), tolerance)


def _alike(ours: Rating, theirs: Rating, tolerance: float) -> Verdict:
    if isinstance(ours, str) and isinstance(theirs, str):
        return "agrees" if fold(ours) == fold(theirs) else "disagrees"
    if isinstance(ours, str) or isinstance(theirs, str) or ours is None or theirs is None:
        return "open"
    return "agrees" if abs(ours - theirs) <= tolerance + TOLERANCE else "disagrees"


def _words(answer: Answer | None) -> str | None:
    if isinstance(answer, Label | Choice):
        return answer.name
    return answer.text if isinstance(answer, Text) else None


def _without_text(data: Json) -> Json:
    """Return a record without its texts, which no two judges word alike."""
    if isinstance(data, Mapping):
        return {name: _without_text(value) for name, value in data.items() if not isinstance(value, str)}
    if isinstance(data, Sequence) and not isinstance(data, str):
        return [_without_text(value) for value in data if not isinstance(value, str)]
    return data


def _is_worded(ratings: Mapping[Key, Rating]) -> bool:
    return any(isinstance(rating, str) for rating in ratings.values())
