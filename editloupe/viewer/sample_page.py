"""Gather what one sample's page shows: the labels, the images with their boxes, and each verdict step by step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from editloupe.data.human import of_turn, value_on
from editloupe.scores import Metric
from editloupe.values import ImageRef
from editloupe.viewer.marks import SMALL, home, targets
from editloupe.viewer.numbers import Numbers
from editloupe.viewer.reader import RunSample, SiteRun
from editloupe.viewer.rows import OwnScore, own_scores, question_name, score_scope, score_words, target_area, tone
from editloupe.viewer.verdicts import VerdictView, verdicts

OTHERS = "other"
"""Id of the column of measures and of other roles, where there are several judges."""


def sample_values(
    run: SiteRun, sample: RunSample, numbers: Numbers, peers: Sequence[tuple[SiteRun, RunSample]] = ()
) -> dict[str, Any]:
    """Return what the template of a sample's page names, but for what lies around the sample.

    peers: other runs that judged the very same sample; their judges stand beside those of the run.
    """
    metrics, edit, reader = run.metrics, sample.sample, run.reader
    scored = numbers.scores(reader).get(sample.key, ())
    together = [(run, sample), *peers]
    often = Counter(name for one, _ in together for name in one.reader.judge_names().values())
    found, columns = list[VerdictView](), dict[str, str]()
    for one, own in together:
        names = one.reader.judge_names()
        named = {id_: name if often[name] == 1 else f"{name} · {one.reader.name}" for id_, name in names.items()}
        at = "../" if one is run else f"../../{one.folder}"
        found += verdicts(one, own, metrics, numbers, at=at, named=named)
        columns |= {f"{one.folder}{id_}": named[id_] for id_ in one.reader.info.judge_names()}
    put_beside(found)
    marks = [*targets(edit), *(m for v in found for m in v.marks)]
    mains = reader.info.judges()
    judges = reader.judge_names() if len(mains) > 1 else {}
    main, more = _panes(sample)
    place = home(edit)
    return {
        "sample": edit,
        "verdicts": found,
        "labels": grid(sample, found, metrics, columns),
        "metrics": metrics,
        "home": place,
        "opens": place is not None and (place[2] - place[0]) * (place[3] - place[1]) < SMALL,
        "scores": list(_scores(sample, own_scores(sample, scored, mains), metrics, judges)),
        "panes": main,
        "more": more,
        "strip": _strip(sample),
        "marks": marks,
        "area": target_area(edit) if edit else None,
    }


def _scores(sample: RunSample, own: Sequence[OwnScore], metrics: Mapping[str, Metric], judges: Mapping[str, str]) -> Any:
    """Scores that are no mere copy of an answer, those of the whole sample first.

    Yields (judge, metric, scope, words, color, reason). What is said of single parts stands in the grid, where an answer
    says it.
    """
    answered = {(f.metric, f.about.scope) for f in sample.findings}
    for judge, s in sorted(own, key=lambda one: (bool(score_scope(one[1])), one[1].turn)):
        if not (s.part and (s.metric, score_scope(s)) in answered):
            shade = tone(metrics.get(s.metric), s.value)
            yield judges.get(judge, ""), question_name(s.metric, metrics), score_scope(s), score_words(s), shade, s.reason


def _panes(entry: RunSample) -> tuple[list[tuple[str, str, ImageRef]], list[tuple[str, ImageRef]]]:
    """The images to look at as (role, heading, image), source and edited first, and further ones as (heading, image).

    Of a pair of edits both are looked at.
    """
    sample = entry.sample
    if sample is None:
        return [], []
    found = [("source", "Source", sample.source)]
    # Of a chain the last turn that has an output; the strip of turns says where there is none.
    last = next((n for n in range(len(sample.turns), 0, -1) if sample.turns[n - 1].edited is not None), 0)
    edited = sample.turns[last - 1].edited if last else None
    if edited is not None:
        heading = f"Edit of {sample.editor}" if entry.partners else "Edited"
        found.append(("edited", heading if len(sample.turns) == 1 else f"After turn {last}", edited))
    others = [(other, other.edited) for other in entry.partners if other.edited is not None]
    found += [("other", f"Edit of {other.editor or other.key}", image) for other, image in others[:1]]
    more = [(f"Source {number}", image) for number, image in enumerate(sample.further, start=2)]
    more += [("Reference", sample.reference)] if sample.reference is not None else []
    more += [(f"Edit of {other.editor or other.key}", image) for other, image in others[1:]]
    return found, more + [(f"Mask: {name}", mask) for name, mask in sample.masks.items()]


def _strip(entry: RunSample) -> list[tuple[str, str, ImageRef | None]]:
    """The sources and each turn of a chain as (heading, instruction, image or None); [] for a single turn."""
    sample = entry.sample
    if sample is None or len(sample.turns) == 1:
        return []
    sources = enumerate(sample.sources, start=1)
    return [
        *(("Source" if number == 1 else f"Source {number}", "", image) for number, image in sources),
        *((f"After turn {number}", turn.instruction, turn.edited) for number, turn in enumerate(sample.turns, start=1)),
    ]


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
    return Grid(columns=tuple(columns), rows=tuple(ordered))


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
