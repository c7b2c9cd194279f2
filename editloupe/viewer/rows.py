"""Make one row of the list of samples as JSON: what it shows, and what it is filtered and sorted by.

Everything here is text or numbers for `static/run.js`, which makes text nodes of the texts; `safe` is applied here, so that
characters that steer are shown instead of obeyed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from editloupe.answers import Record
from editloupe.data.human import value_on
from editloupe.figures.escape import safe
from editloupe.findings import Finding
from editloupe.imaging.targets import relative_area
from editloupe.scores import NOT_JUDGED, Metric, Score
from editloupe.tasks import About
from editloupe.values import Sample
from editloupe.viewer.pictures import Pictures, around, same_region
from editloupe.viewer.reader import RunSample

_INSTRUCTION = 300
_ANSWER = 60
DROPPED = "dropped"
"""The list of entries that were not read, in an answer that has one."""

OwnScore: TypeAlias = tuple[str, Score]
"""A score with the id of its judge; "" where nobody has the role "judge"."""


def row(
    sample: RunSample,
    columns: Sequence[str],
    metrics: Mapping[str, Metric],
    pictures: Pictures,
    judges: Mapping[str, int],
    scores: Sequence[OwnScore] = (),
    cost: Callable[[Finding], float | None] = lambda finding: None,
) -> dict[str, Any]:
    """Return one row.

    columns: ids of the questions that are shown.   judges: id → number of the judge in the list of judges.
    scores: those of the sample that are no mere copy of an answer (`own_scores`).   cost: returns USD, None if not known.
    In the row, `area` is the targets' share of the source in % (None where no box is known); `answers` lists what was
    found, by question, after the score of the whole sample, or else of its turns, each with the number of its judge;
    `people` lists what people said, by metric; `apart` is the largest distance between judges or repeats, by question,
    `spread` the largest of these, and `human` the same between a person and a judge, each 0 to 100, None where there are
    no two to compare; `score` is the mean of what judges said, 0 (worst) to 100 (best); `seconds` is the time of all
    verdicts; `failed` is how many answers are missing.
    """
    edit, rejected, found = sample.sample, sample.rejected or {}, sample.findings
    text = _instruction(edit) if edit else str(rejected.get("message") or "this sample could not be read")
    apart = _apart(found, metrics)
    costs = [usd for f in found if (usd := cost(f)) is not None]
    people = {id_: list(_people(edit, metric)) for id_, metric in metrics.items()}
    gaps = [gap for id_, chips in people.items() if (gap := _gap(chips, found, metrics[id_])) is not None]
    values = [*((f.metric, f.value) for f in found), *((s.metric, s.value) for _, s in scores)]
    goods = [good for metric, value in values if (good := _good(metrics.get(metric), value)) is not None]
    return {
        "slug": sample.slug,
        "id": safe(sample.id),
        "editor": safe(sample.editor),
        "text": safe(" ".join(text.split())[:_INSTRUCTION]),
        "type": safe(str((edit.edit_type if edit else rejected.get("edit_type")) or "")),
        "area": None if edit is None else target_area(edit),
        "thumbs": list(thumbs(sample, pictures)),
        "answers": _answers(found, columns, metrics, judges, scores),
        "people": {id_: chips for id_, chips in people.items() if chips},
        "apart": apart,
        "spread": max(apart.values(), default=None),
        "human": max(gaps, default=None),
        "score": round(sum(goods) / len(goods), 2) if goods else None,
        "turns": sum(f.turns for f in found),
        "cost": round(sum(costs), 8) if costs else None,
        "seconds": round(sum(f.seconds for f in found), 2),
        "failed": sum(f.status not in ("ok", "not_defined") for f in found),
    }


def _answers(
    found: Sequence[Finding],
    columns: Sequence[str],
    metrics: Mapping[str, Metric],
    judges: Mapping[str, int],
    scores: Sequence[OwnScore],
) -> dict[str, list[dict[str, Any]]]:
    """What was found by question: scores that stand for answers, then answers, turn by turn."""
    answered = {f.metric for f in found}
    said = {(f.metric, f.about.scope) for f in found if not _scored(f, metrics)}
    whole = {score.metric for _, score in scores if not score_scope(score)}
    chips: dict[str, list[tuple[int, dict[str, Any]]]] = {id_: [] for id_ in columns}
    for judge_id, score in scores:
        scope = score_scope(score)
        if score.metric in chips and (not scope or (score.metric not in whole and (score.metric, scope) not in said)):
            words = f"score {score_words(score)}" if score.metric in answered and not scope else score_words(score)
            shade = tone(metrics.get(score.metric), score.value)
            chip = _chip(words, shade, score.missing or "ok", score.value, judges.get(judge_id), scope=scope)
            chips[score.metric].append((score.turn, chip))
    for f in found:
        if f.metric in chips and not _scored(f, metrics):
            by = judges.get(f.judge_id)
            chip = _chip(short_answer(f), finding_tone(f, metrics), f.status, f.value, by, scope=f.about.scope)
            chips[f.metric].append((f.turn, chip))
    return {id_: [chip for _, chip in sorted(own, key=lambda one: one[0])] for id_, own in chips.items()}


def _people(edit: Sample | None, metric: Metric) -> Iterator[dict[str, Any]]:
    """What people said of one metric of the whole sample."""
    for rater, given in ({} if edit is None else edit.human.get(metric.id, {})).items():
        value = value_on(metric, given)
        yield _chip(str(given), tone(metric, value), "ok", value, None, rater=rater)


def _gap(people: Sequence[Mapping[str, Any]], found: Sequence[Finding], metric: Metric) -> float | None:
    """The largest distance between a person and a judge on a metric, 0 to 100; None where either is missing."""
    said = [_normalized(metric, chip["value"]) for chip in people]
    judged = [_normalized(metric, f.value) for f in found if f.metric == metric.id]
    return max((round(abs(a - b), 2) for a in said for b in judged if a is not None and b is not None), default=None)


def _apart(found: Sequence[Finding], metrics: Mapping[str, Metric]) -> dict[str, float]:
    """How far the answers to one question lie apart, 0 to 100, by its metric; none with fewer than two values."""
    values: dict[Any, list[float]] = {}
    for f in found:
        if (value := _normalized(metrics.get(f.metric), f.value)) is not None:
            values.setdefault(f.question, []).append(value)
    apart: dict[str, float] = {}
    for (metric_id, *_), own in values.items():
        if len(own) > 1:
            apart[metric_id] = max(round(max(own) - min(own), 2), apart.get(metric_id, 0.0))
    return apart


def questions(samples: Iterable[RunSample], metrics: Mapping[str, Metric]) -> dict[str, list[str]]:
    """Return the questions that are shown, by id, each with the labels that its filter offers.

    The metrics come first, then the intermediate questions. Labels are best first, options as they come.
    """
    found = {id_: [level.name for level in reversed(metric.levels)] for id_, metric in metrics.items()}
    for sample in samples:
        for finding in sample.findings:
            labels = found.setdefault(finding.metric, [])
            if finding.label is not None and finding.label not in labels:
                labels.append(finding.label)
    return found


def own_scores(sample: RunSample, scores: Iterable[OwnScore], judges: Collection[str]) -> list[OwnScore]:
    """Return the scores of a sample that are no mere copy of an answer: means, rules over turns, choices that are right.

    judges: ids of those with the role "judge". A judge's score rests on its own answers and on those of the other roles.
    """
    found = []
    for id_, score in scores if sample.findings else ():
        own = [f for f in sample.findings if f.judge_id == id_ or f.judge_id not in judges]
        if score.missing != NOT_JUDGED and not _copied(score, own):
            found.append((id_, score))
    return found


def score_words(score: Score) -> str:
    """Return a score's value, or why it is missing in brackets."""
    return f"({score.missing})" if score.value is None else f"{score.value:.4g}"


def score_scope(score: Score) -> str:
    """Return the place of a score, such as "turn 2, target 3"; "" for the sample as a whole."""
    return About(sample_id=score.sample_id, turn=score.turn, part=score.part).scope


def question_name(metric: str, metrics: Mapping[str, Metric]) -> str:
    """Return the name of a metric in words, or the id of an intermediate question."""
    return metrics[metric].name if metric in metrics else metric


def target_area(sample: Sample) -> float | None:
    """Return the targets' share of the source image, in %; None where no box is known."""
    share = relative_area(sample)
    return None if share is None else round(100 * share, 3)


def tone(metric: Metric | None, value: float | None) -> str:
    """Return the color class of a value: tone-0 (worst) to tone-3 (best), tone-plain without scale, tone-none for None."""
    good = _good(metric, value)
    if good is None:
        return "tone-none" if value is None else "tone-plain"
    return f"tone-{min(3, max(0, round(good / 100 * 3)))}"


def finding_tone(finding: Finding, metrics: Mapping[str, Metric]) -> str:
    """Return the color class of an answer, like `tone`; tone-plain for an answer that is no number."""
    found = tone(metrics.get(finding.metric), finding.value)
    return "tone-plain" if found == "tone-none" and finding.answer is not None else found


def short_answer(finding: Finding) -> str:
    """Return a finding's answer on one short line, or its status in brackets."""
    answer = finding.answer
    data = answer.data if isinstance(answer, Record) and isinstance(answer.data, Mapping) else {}
    lists = {k: v for k, v in data.items() if isinstance(v, list) and k != DROPPED}
    if len(lists) == 1:
        return "".join(f"{name}: {len(items)}" for name, items in lists.items())
    words = f"({finding.status})" if answer is None else " ".join(str(answer).split())
    return words if len(words) <= _ANSWER else f"{words[: _ANSWER - 1]}…"


def thumbs(sample: RunSample, pictures: Pictures) -> Iterator[str]:
    """Yield the names of a sample's small pictures: the source, the edited image if there is one, and those beside it.

    They show the targets, else the whole. A name is "" where the run did not keep the bytes.
    """
    edit = sample.sample
    if edit is None:
        return
    region = around([t.boxes["source"] for t in edit.targets if "source" in t.boxes], edit.source)
    yield pictures.thumb_name(edit.source, region) or ""
    # Of a chain the last output that is there.
    edited = next((turn.edited for turn in reversed(edit.turns) if turn.edited is not None), None)
    for image in filter(None, (edited, *(other.edited for other in sample.partners[:1]))):
        yield pictures.thumb_name(image, same_region(region, edit.source, image)) or ""


def _scored(finding: Finding, metrics: Mapping[str, Metric]) -> bool:
    """Whether a metric's answer is no number of its own, but a record from which its score is made."""
    return finding.metric in metrics and isinstance(finding.answer, Record)


def _normalized(metric: Metric | None, value: float | None) -> float | None:
    return None if metric is None or value is None else metric.normalize(value)


def _good(metric: Metric | None, value: float | None) -> float | None:
    """A value on 0 (worst) to 100 (best); None without a scale or a direction."""
    share = _normalized(metric, value)
    if metric is None or share is None or metric.better is None:
        return None
    return share if metric.better == "higher" else 100 - share


def _chip(words: str, tone: str, status: str, value: float | None, judge: int | None, **more: str) -> dict[str, Any]:
    """judge: its number in the list of judges; None for what is nobody's in particular."""
    optional: dict[str, Any] = {name: safe(text) for name, text in more.items() if text}
    by = {} if judge is None else {"by": judge}
    return {"name": safe(words), "tone": tone, "status": status, "value": value, **by, **optional}


def _copied(score: Score, findings: Iterable[Finding]) -> bool:
    """Whether the answers to the score's own question all say what it says."""
    own = {
        "missing" if f.answer is None else f.value
        for f in findings
        if (f.metric, f.about.turn) == (score.metric, score.turn) and score.part in ("", f.about.part)
    }
    return own == {"missing" if score.value is None else score.value}


def _instruction(sample: Sample) -> str:
    """The instructions of all turns, numbered if there are several."""
    turns = [turn.instruction for turn in sample.turns]
    return turns[0] if len(turns) == 1 else " ".join(f"{number}. {text}" for number, text in enumerate(turns, start=1))
