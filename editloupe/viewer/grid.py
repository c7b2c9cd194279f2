"""Make the grid of a sample's labels: a row a question, a column a judge and a person, so that they stand side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from editloupe.data.human import of_turn, value_on
from editloupe.scores import Metric
from editloupe.viewer.reader import RunSample
from editloupe.viewer.render import arguments
from editloupe.viewer.rows import tone
from editloupe.viewer.verdicts import VerdictView

OTHERS = "other"
"""Id of the column of measures and of other roles, where there are several judges."""

_FOLDED = 6
"""Rows of intermediate questions, and of those about single parts, that are shown; of more, all are folded."""


@dataclass(frozen=True, kw_only=True)
class JudgeHeading:
    """Who answers."""

    id: str
    name: str
    person: bool = False


@dataclass(frozen=True, kw_only=True)
class PersonAnswer:
    """What a person said of a question."""

    rater: str
    words: str
    tone: str
    note: str = ""


@dataclass(kw_only=True)
class QuestionRow:
    """One question with its answers."""

    name: str
    scope: str
    metric: str
    number: int
    """N of a question about the part "WORD N"; 0 for others."""
    verdicts: dict[str, list[VerdictView]] = field(default_factory=dict)
    """By column, repeats and forks in order."""
    people: dict[str, PersonAnswer] = field(default_factory=dict)
    """By column."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """The labels of one sample."""

    columns: tuple[JudgeHeading, ...]
    rows: tuple[QuestionRow, ...]
    folded: tuple[QuestionRow, ...]
    """Rows that are shown when asked for."""
    apart: tuple[tuple[str, PersonAnswer], ...]
    """What people said of metrics that nobody answered here: (short name of the metric, what)."""


def grid(
    sample: RunSample, verdicts: Sequence[VerdictView], metrics: Mapping[str, Metric], judges: Mapping[str, str]
) -> Grid:
    """Return the grid of a sample's verdicts.

    judges: those with the role "judge", as `VerdictView.judged_by` names them → their names.
    Each judge has a column if there are several; measures and other roles share one. A single judge shares one with them.
    """
    several = len(judges) > 1
    rows: dict[tuple[str, str], QuestionRow] = {}
    for verdict in verdicts:
        key = verdict.metric, verdict.scope
        row = rows.setdefault(
            key, QuestionRow(name=verdict.name, scope=verdict.scope, metric=verdict.metric, number=verdict.number)
        )
        column = _column(verdict, verdicts, judges) if several else OTHERS
        row.verdicts.setdefault(column, []).append(verdict)
    said = {(metric, scope): ones for metric, scope, ones in _people(sample, metrics)}
    raters = dict.fromkeys(one.rater for key, ones in said.items() if key in rows for one in ones)
    for key, row in rows.items():
        row.people = {f"people {one.rater}": one for one in said.get(key, ())}
    used = {column for row in rows.values() for column in row.verdicts}
    columns = [JudgeHeading(id=id_, name=name) for id_, name in judges.items()] if several else []
    if OTHERS in used:
        columns.append(JudgeHeading(id=OTHERS, name="Others" if several else "Answer"))
    columns += [
        JudgeHeading(id=f"people {rater}", name="people" if rater == "human" else rater, person=True) for rater in raters
    ]
    ordered = list(rows.values())
    # Metrics of the sample as a whole are seen first; where there are many more questions, they are folded.
    more = [row for row in ordered if row.metric not in metrics or row.number]
    folded = more if len(more) > _FOLDED else []
    return Grid(
        columns=tuple(columns),
        rows=tuple(row for row in ordered if row not in folded),
        folded=tuple(folded),
        apart=tuple(
            (metrics[metric].short + (f", {scope}" if scope else ""), one)
            for (metric, scope), ones in said.items()
            if (metric, scope) not in rows and metric in metrics
            for one in ones
        ),
    )


def put_beside(verdicts: Sequence[VerdictView]) -> None:
    """Tell verdicts that can be read beside each other so, with the first step at which they differ.

    They answer one question: those of several judges in one repeat, or one judge's repeats. A fork stands with what it
    continues.
    """
    root: dict[str, VerdictView] = {}
    by_question: dict[tuple[str, str], list[VerdictView]] = {}
    for verdict in verdicts:
        root[verdict.id] = root.get(verdict.parent_id, verdict)
        by_question.setdefault((verdict.metric, verdict.scope), []).append(verdict)
    for of_question in by_question.values():
        several = len({root[v.id].judged_by for v in of_question}) > 1
        groups: dict[int, list[VerdictView]] = {}
        for verdict in of_question:
            groups.setdefault(root[verdict.id].repeat if several else 0, []).append(verdict)
        for group in groups.values():
            for verdict in group if len(group) > 1 else ():
                verdict.beside = group[0].id
                verdict.parting, verdict.parting_words = parting(group)


def parting(group: Sequence[VerdictView]) -> tuple[int, str]:
    """Return the number of the first step at which verdicts differ, and how; (0, "") if they do not.

    Two models never think in the same words: calls and answers count. A fork is not asked about the steps that it shares.
    """
    steps = [
        {t.number: ([(c.call.name, arguments(c.call.arguments)) for c in t.calls], t.parsed.answer) for t in v.steps}
        for v in group
    ]
    for number in range(1, 1 + max((n for own in steps for n in own), default=0)):
        asked = [own for own, v in zip(steps, group, strict=True) if not v.steps or number >= v.steps[0].number]
        there = [own[number] for own in asked if number in own]
        if len(there) < len(asked) and there:
            return number, "not all go on to this step"
        if any(calls != there[0][0] for calls, _ in there):
            return number, "the calls differ"
        if any(answer != there[0][1] for _, answer in there):
            return number, "the answers differ"
    return 0, ""


def _column(verdict: VerdictView, verdicts: Sequence[VerdictView], judges: Mapping[str, str]) -> str:
    """The id of a verdict's column. A fork by another judge stands with what it continues."""
    by_id = {v.id: v for v in verdicts}
    while verdict.judged_by not in judges and verdict.parent_id in by_id:
        verdict = by_id[verdict.parent_id]
    return verdict.judged_by if verdict.judged_by in judges else OTHERS


def _people(sample: RunSample, metrics: Mapping[str, Metric]) -> Iterator[tuple[str, str, list[PersonAnswer]]]:
    """What people said, by metric and scope: ratings of the data, and what was given here with its note."""
    found: dict[tuple[str, str], dict[str, PersonAnswer]] = {}
    edit = sample.sample
    for turn in range(1 + len(edit.turns)) if edit is not None else ():
        assert edit is not None
        scope = f"turn {turn}" if turn else ""
        for metric in metrics.values():
            for rater, rating in edit.human.get(of_turn(turn, metric.id), {}).items():
                own = found.setdefault((metric.id, scope), {})
                own[rater] = PersonAnswer(rater=rater, words=str(rating), tone=tone(metric, value_on(metric, rating)))
    for given in sample.people:
        f, known = given.finding, metrics.get(given.finding.metric)
        own = found.setdefault((f.metric, f.about.scope), {})
        own.pop(given.rater, None)
        words = "(cannot tell)" if f.answer is None else str(f.answer)
        if f.answer is not None or f.reason:
            value = None if known is None or given.rating is None else value_on(known, given.rating)
            shade = "tone-plain" if f.answer is not None and value is None else tone(known, value)
            own[given.rater] = PersonAnswer(rater=given.rater, words=words, tone=shade, note=f.reason)
    for (metric_id, scope), own in found.items():
        yield metric_id, scope, list(own.values())
