"""What a protocol is: three pure functions between samples, findings and numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias

from editloupe.protocols.repeats import Repeats, joined
from editloupe.records import Finding, Task
from editloupe.values import Json, Sample, Score, sample_key

Group: TypeAlias = Sequence[Sample]
"""The samples that share source and instruction: usually one, several where several editors were given the same task."""

Done: TypeAlias = Mapping[str, Finding]
"""Findings by task id."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One mean with what it rests on.

    mean: 0..100, None where nothing was judged.   judged, asked: samples with a value, and all.
    """

    mean: float | None
    judged: int
    asked: int

    def to_json(self) -> dict[str, Json]:
        return {"mean": self.mean, "judged": self.judged, "asked": self.asked}


@dataclass(frozen=True, kw_only=True)
class Summary:
    """The table of one editor.

    criteria: short names in the rubric's order.   rows: edit type → criterion → Cell (also "overall").
    macro: the mean over the benchmark's edit types that are present; micro: over all samples.
    types_present: criterion (and "overall") → types with a mean; of types_known, for "k of 7 types".
    histogram: criterion → label → count, every label of the rubric.
    statuses: criterion → status → count, for what is not ok.
    """

    editor: str
    criteria: tuple[str, ...]
    rows: Mapping[str, Mapping[str, Cell]]
    macro: Mapping[str, Cell]
    micro: Mapping[str, Cell]
    types_present: Mapping[str, int]
    types_known: int
    histogram: Mapping[str, Mapping[str, int]]
    statuses: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {
            "editor": self.editor,
            "criteria": list(self.criteria),
            "rows": {t: {c: cell.to_json() for c, cell in row.items()} for t, row in self.rows.items()},
            "macro": {c: cell.to_json() for c, cell in self.macro.items()},
            "micro": {c: cell.to_json() for c, cell in self.micro.items()},
            "types_present": dict(self.types_present),
            "types_known": self.types_known,
            "histogram": {c: dict(h) for c, h in self.histogram.items()},
            "statuses": {c: dict(s) for c, s in self.statuses.items()},
        }


class EvalProtocol(Protocol):
    """Bookkeeping of one paper."""

    name: str

    def check(self, samples: Sequence[Sample]) -> None:
        """Raises DataError where these samples cannot be asked about; called before anything is spent."""

    def plan(self, group: Group, done: Done) -> list[Task]:
        """The tasks that can be asked now and are not in `done`; called until it returns nothing new."""

    def score(self, group: Group, done: Done) -> list[Score]:
        """What the findings say of each sample; a score without a value says why."""

    def summarise(self, scores: Sequence[Score]) -> list[Summary]:
        """One table an editor."""


def groups(samples: Sequence[Sample]) -> list[list[Sample]]:
    """Samples that share source and instructions, in order of appearance."""
    found: dict[tuple[str, ...], list[Sample]] = {}
    for sample in samples:
        key = (sample.source.sha256, *(turn.instruction for turn in sample.turns))
        found.setdefault(key, []).append(sample)
    return list(found.values())


def rejected_scores(rows: Iterable[tuple[str, str, str | None]], criteria: Sequence[str]) -> list[Score]:
    """What there is instead of scores for rows of the data that could not be read: (editor, id, edit type) each."""
    return [
        Score(
            sample_id=id_,
            editor=editor,
            edit_type=edit_type,
            metric=criterion,
            value=None,
            normalised=None,
            missing="input_error",
        )
        for editor, id_, edit_type in rows
        for criterion in criteria
    ]


def scored(
    protocol: EvalProtocol, samples: Sequence[Sample], findings: Iterable[Finding], repeats: Repeats | None = None
) -> list[Score]:
    """The scores of all samples, in their order. Of several findings on one question the last counts, or, where each was
    asked several times (`repeats`), what they come to together.
    """
    by_sample: dict[str, dict[str, Finding]] = {}
    doubts: dict[str, float] = {}
    for one in joined(findings, repeats or Repeats()):
        if one.finding is not None:
            key = sample_key(one.finding.editor, one.finding.sample_id)
            by_sample.setdefault(key, {})[one.finding.task_id] = one.finding
            if one.entropy is not None:
                doubts[one.finding.task_id] = one.entropy
    scores: dict[str, list[Score]] = {}
    for group in groups(samples):
        done = {id_: f for sample in group for id_, f in by_sample.get(sample.key, {}).items()}
        for score in protocol.score(group, done):
            # Of several targets the one in most doubt.
            doubt = max((doubts[id_] for id_ in score.findings if id_ in doubts), default=None)
            scores.setdefault(sample_key(score.editor, score.sample_id), []).append(replace(score, entropy=doubt))
    return [score for sample in samples for score in scores.get(sample.key, [])]
