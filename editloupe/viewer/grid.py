"""Make the grid of a sample's labels: a row a question, a column a judge and a person, so that they stand side by side."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from editloupe.data.human import of_turn, value_on
from editloupe.scores import Metric
from editloupe.viewer.reader import RunSample
from editloupe.viewer.rows import tone
from editloupe.viewer.verdicts import VerdictView

OTHERS = "other"
"""Id of the column of measures and of other roles, where there are several judges."""

_SHOWN = 8
"""Rows that are shown; those of more questions are folded."""


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


def grid(
    sample: RunSample, verdicts: Sequence[VerdictView], metrics: Mapping[str, Metric], judges: Mapping[str, str]
) -> Grid:
    """Return the grid of a sample's verdicts.

    judges: those with the role "judge", as `VerdictView.judged_by` names them → their names.
    Each judge has a column if there are several; measures and other roles share one. A single judge shares one with them.
    """
    several = len(judges) > 1
    rows: dict[tuple[str, str], QuestionRow] = {}
    by_id = {verdict.id: verdict for verdict in verdicts}
    for verdict in verdicts:
        key, root = (verdict.metric, verdict.scope), verdict
        row = rows.setdefault(key, QuestionRow(name=verdict.name, scope=verdict.scope, metric=verdict.metric))
        while root.judged_by not in judges and root.parent_id in by_id:
            # A fork by another judge stands with what it continues.
            root = by_id[root.parent_id]
        column = root.judged_by if several and root.judged_by in judges else OTHERS
        row.verdicts.setdefault(column, []).append(verdict)
    raters: dict[str, None] = {}
    for metric, scope, said in _people(sample, metrics):
        if (metric, scope) not in rows and metric in metrics:
            # People said something of what nobody else was asked.
            rows[metric, scope] = QuestionRow(name=metrics[metric].name, scope=scope, metric=metric)
        if (metric, scope) in rows:
            rows[metric, scope].people = {f"people {one.rater}": one for one in said}
            raters |= dict.fromkeys(one.rater for one in said)
    columns = [JudgeHeading(id=id_, name=name) for id_, name in judges.items()] if several else []
    if any(OTHERS in row.verdicts for row in rows.values()):
        columns.append(JudgeHeading(id=OTHERS, name="Others" if several else "Answer"))
    columns += [JudgeHeading(id=f"people {one}", name="people" if one == "human" else one, person=True) for one in raters]
    # Metrics of the sample as a whole are seen first.
    ordered = sorted(rows.values(), key=lambda row: (row.metric not in metrics, bool(row.scope)))
    return Grid(columns=tuple(columns), rows=tuple(ordered[:_SHOWN]), folded=tuple(ordered[_SHOWN:]))


def put_beside(verdicts: Sequence[VerdictView]) -> None:
    """Tell verdicts that can be read beside each other so.

    They answer one question: those of several judges in one repeat, or one judge's repeats. A fork stands with what it
    continues.
    """
    root: dict[str, VerdictView] = {}
    judges: dict[tuple[str, str], set[str]] = {}
    for verdict in verdicts:
        root[verdict.id] = root.get(verdict.parent_id, verdict)
        judges.setdefault((verdict.metric, verdict.scope), set()).add(root[verdict.id].judged_by)
    groups: dict[tuple[str, str, int], list[VerdictView]] = {}
    for verdict in verdicts:
        key = verdict.metric, verdict.scope
        repeat = root[verdict.id].repeat if len(judges[key]) > 1 else 0
        groups.setdefault((*key, repeat), []).append(verdict)
    for group in groups.values():
        for verdict in group if len(group) > 1 else ():
            verdict.beside = group[0].id


def _people(sample: RunSample, metrics: Mapping[str, Metric]) -> Iterator[tuple[str, str, list[PersonAnswer]]]:
    """What people said, by metric and scope: ratings of the data, and what was given here with its note."""
    found: dict[tuple[str, str], dict[str, PersonAnswer]] = {}
    edit = sample.sample
    for turn in range(1 + len(edit.turns)) if edit is not None else ():
        scope = f"turn {turn}" if turn else ""
        assert edit is not None
        for metric in metrics.values():
            for rater, rating in edit.human.get(of_turn(turn, metric.id), {}).items():
                own = found.setdefault((metric.id, scope), {})
                own[rater] = PersonAnswer(rater=rater, words=str(rating), tone=tone(metric, value_on(metric, rating)))
    for given in sample.people:
        f, known = given.finding, metrics.get(given.finding.metric)
        own = found.setdefault((f.metric, f.about.scope), {})
        own.pop(given.rater, None)
        if f.answer is not None or f.reason:
            value = None if known is None or given.rating is None else value_on(known, given.rating)
            shade = "tone-plain" if f.answer is not None and value is None else tone(known, value)
            words = "(cannot tell)" if f.answer is None else str(f.answer)
            own[given.rater] = PersonAnswer(rater=given.rater, words=words, tone=shade, note=f.reason)
    return ((metric, scope, list(own.values())) for (metric, scope), own in found.items())
