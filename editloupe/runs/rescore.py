"""Re-score: recorded answers read by other options of the protocol, such as another rubric. No model is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Final, cast

from editloupe.answers import AnswerSpec, Number, OneOf, Scale, reason_in
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, ReplyError, TraceError, UnknownPlugin
from editloupe.findings import Finding
from editloupe.protocols.base import EvalProtocol, Group, QuestionKey, groups, known_of, make_protocol, planned, scored
from editloupe.protocols.repeats import Repeats
from editloupe.replies import parse_bare, parse_reply
from editloupe.runs.differences import RunSpec
from editloupe.runs.folders import bring
from editloupe.runs.judges import Entry
from editloupe.runs.lineage import read_whole
from editloupe.runs.setup import identity_options, options_of
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.tasks import Status, Task, task_from_json
from editloupe.traces.events import ModelCall, Note
from editloupe.traces.read import last_finding, read_trace
from editloupe.traces.record import TraceWriter
from editloupe.values import Json, digest
from editloupe.version import VERSION

_OF_WORDS: Final = frozenset({"ok", "unparsed", "off_menu", "contradictory", "abstained"})
"""Statuses that come of reading the last reply; the others stand, whatever the options."""


@dataclass(frozen=True, kw_only=True)
class Rescored:
    """One finding read again."""

    before: Finding
    now: Finding | None
    """None if it cannot be read again; `reason` says why."""
    reason: str = ""

    @property
    def changed(self) -> bool:
        """Whether status, label or value differs, or the answer where it has neither, such as a list of boxes."""
        old, new = self.before, self.now
        return new is not None and (_outcome(old) != _outcome(new) or _without_number(old) != _without_number(new))

    def to_json(self) -> dict[str, Json]:
        """Return both outcomes as JSON."""
        return {
            "sample_id": self.before.sample_id,
            "editor": self.before.editor,
            "turn": self.before.turn,
            "part": self.before.part,
            "metric": self.before.metric,
            "judge_id": self.before.judge_id,
            "changed": self.changed,
            "before": _outcome(self.before),
            "now": None if self.now is None else _outcome(self.now),
            "reason": self.reason,
        }


def protocol_with(store: RunStore, changes: Mapping[str, Any]) -> EvalProtocol:
    """Return the run's protocol with some options changed. Raises ConfigError."""
    try:
        return make_protocol(store.protocol, {**store.options(), **changes})
    except UnknownPlugin as error:
        raise ConfigError(f"{store.folder} was judged by a protocol that is not installed here: {error}") from error


def rescore(store: RunStore, protocol: EvalProtocol) -> Iterator[Rescored]:
    """Return every current finding of a run as the protocol reads it. Metrics are found by id, then by short name."""
    judges, (specs, measured) = judges_with(store, protocol), _specs(store, protocol)
    for finding in store.current():
        metric = _metric(protocol, store, finding.metric)
        if finding.role == "measure":
            if finding.task_id in measured:
                yield Rescored(before=finding, now=finding)
            else:
                yield Rescored(before=finding, now=None, reason="it is not measured now, or with other arguments")
            continue
        spec = specs.get((finding.judge_id, metric, *finding.question[1:])) if metric else None
        if metric is None or (spec is None and finding.trace is not None):
            what = f"the protocol has no metric {finding.metric!r} now" if metric is None else "it is not asked now"
            yield Rescored(before=finding, now=None, reason=what)
            continue
        now = replace(finding, judge_id=judges[finding.judge_id].judge.id, metric=metric)
        if spec is None or finding.trace is None or finding.status not in _OF_WORDS:
            yield Rescored(before=finding, now=_on_scale(now, spec))
            continue
        try:
            yield Rescored(before=finding, now=_read(store.folder, now, spec))
        except (TraceError, KeyError, TypeError, ValueError, AssertionError) as error:
            yield Rescored(before=finding, now=None, reason=f"its trace cannot be re-scored: {error}")


def changed_scores(store: RunStore, protocol: EvalProtocol, rescored: Sequence[Rescored]) -> Counter[str]:
    """Return how many scores of each metric get another value or status: also where no finding changes."""
    now_of = {(one.before.task_id, one.before.judge_id, one.before.repeat): one.now for one in rescored}
    samples = [sample for key, sample in store.samples.items() if key not in store.rejected]
    known = {metric.id for metric in protocol.metrics}
    changed: Counter[str] = Counter()
    # Without a judge, measures are one reading of the samples.
    for judge_id in store.judges() or [None]:
        findings = store.current(judge_id)
        rule = Repeats.of_run(store.info, findings)
        now = [new for f in findings if (new := now_of.get((f.task_id, f.judge_id, f.repeat))) is not None]
        before, after = (
            {
                (score.metric, score.key, score.turn, score.part): (score.value, score.missing)
                for score in scored(one, samples, given, rule)
            }
            for one, given in ((protocol_with(store, {}), findings), (protocol, now))
        )
        changed.update(key[0] for key in before if key[0] in known and before[key] != after.get(key))
    return changed


def judges_with(store: RunStore, protocol: EvalProtocol) -> dict[str, Entry]:
    """Return the run's judges as they would be with these options, under their names, by the id that they have there."""
    questions = digest({"protocol": protocol.name, "options": identity_options(protocol)})
    return {
        id_: entry if entry.role == "measure" else replace(entry, judge=replace(entry.judge, questions=questions))
        for id_, entry in store.entries().items()
    }


def write_rescored(store: RunStore, protocol: EvalProtocol, rescored: Sequence[Rescored], out: Path) -> RunStore:
    """Write a run folder with the findings as they are read now. Pictures are linked, else copied.

    Traces are copied; each goes on with the finding as it is read now, behind the recorded one.

    Raises ConfigError, RunMismatch and StorageError as a run does.
    """
    identity, record = store.spec.identity, store.spec.record
    spec = RunSpec(
        identity={**identity, "options": identity_options(protocol)},
        record={
            **{name: value for name, value in record.items() if name not in ("metrics", "rubric")},
            "editloupe": VERSION,
            "options": options_of(protocol),
            "metrics": [metric.to_json() for metric in protocol.metrics],
            "rescored_from": {"run": store.identity, "options": identity.get("options")},
        },
    )
    samples = Loaded(format="rescored", samples=tuple(store.samples.values()), rejected=())
    with closing(RunStore.begin(out, spec, judges_with(store, protocol).values(), samples)) as target:
        for one in rescored:
            if one.now is not None:
                target.add_finding(one.now)
    for name in ("traces", "blobs", "forks"):
        # A trace may be continued later; an image never changes.
        bring(store.folder / name, out / name, link=name == "blobs")
    for one in rescored:
        if one.now is not None and one.now.trace is not None:
            _end_again(out, out / one.now.trace, one.now)
    return RunStore.read(out)


def mean(findings: Sequence[Finding], metric: Metric | None) -> float | None:
    """Return the mean of the values: of labels on 0 to 100, of numbers as they were given; None if nothing has a value."""
    values = [f.value for f in findings if f.value is not None]
    if metric is None or not values:
        return None
    found = sum(values) / len(values)
    return metric.normalise(found) if metric.levels else found


def _specs(
    store: RunStore, protocol: EvalProtocol
) -> tuple[dict[tuple[str, str, str, str, int, str], AnswerSpec], set[str]]:
    """Return (judge id, *question) → what the protocol as it is now accepts as an answer, and the ids of its measures.

    Each judge's later tasks are planned from its own answers, as in the run, and from those of the other roles.
    """
    others = [id_ for id_, role in store.roles().items() if role != "judge"]
    samples = [sample for key, sample in store.samples.items() if key not in store.rejected]
    found: dict[tuple[str, str, str, str, int, str], AnswerSpec] = {}
    measured: set[str] = set()
    # A protocol in which nobody has the role "judge" is planned once.
    for judge_id in store.judges() or [None]:
        findings = store.current(judge_id)
        rule = Repeats.of_run(store.info, findings)
        by_sample: dict[str, list[Finding]] = {}
        for finding in findings:
            metric = _metric(protocol, store, finding.metric)
            if metric is not None:
                by_sample.setdefault(finding.about.key, []).append(replace(finding, metric=metric))
        for group in groups(samples):
            own = [finding for sample in group for finding in by_sample.get(sample.key, ())]
            for task in _grown(protocol, group, own, rule):
                if task.kind == "measure":
                    measured.add(task.id)
                else:
                    # What another role was asked may rest on the answers of any judge.
                    for id_ in filter(None, (judge_id, *others)):
                        found[id_, *task.question] = task.answer
    return found, measured


def _grown(protocol: EvalProtocol, group: Group, findings: Sequence[Finding], rule: Repeats) -> list[Task]:
    """Return all that a protocol plans for a group as it learns these findings: a plan may leave out what is known."""
    waiting: dict[QuestionKey, list[Finding]] = {}
    for finding in findings:
        waiting.setdefault(finding.question, []).append(finding)
    tasks: dict[str, Task] = {}
    known: list[Finding] = []
    while True:
        new = [task for task in planned(protocol, group, known_of(known, rule)) if task.id not in tasks]
        if not new and not waiting:
            return list(tasks.values())
        # What nobody plans to ask, such as a verdict from a result file, is learned at the end.
        for question in [task.question for task in new] or list(waiting):
            known += waiting.pop(question, ())
        tasks |= {task.id: task for task in new}


def _end_again(run: Path, path: Path, finding: Finding) -> None:
    """Let the copy of a trace end in the finding as it is read now, so that the run can be verified."""
    try:
        if last_finding(read_trace(path).events) == finding:
            return
    except TraceError:
        return  # not there, or damaged: the finding cannot be checked here either
    with TraceWriter(path, below=run) as writer:
        writer.append(Note(text="the recorded answer, read again by other options of the protocol (editloupe rescore)"))
        writer.finish(finding)


def _read(folder: Path, finding: Finding, spec: AnswerSpec) -> Finding:
    """Return a finding with what the trace's last reply says now."""
    trace = read_whole(folder, folder / str(finding.trace))
    if trace.tampering:
        raise TraceError(trace.tampering[0])
    asked = task_from_json(trace.header.task)
    if isinstance(spec, OneOf) and asked.kind == "ask" and _letters(asked.answer) != _letters(spec):
        raise TraceError("its options were shown under other letters")
    calls = [event for event in trace.events if isinstance(event, ModelCall)]
    if not calls:
        raise TraceError(f"{finding.trace} holds no reply")
    last = max(calls, key=lambda call: call.ordinal)
    native = trace.header.judge.get("tool_protocol") == "native" and bool(trace.header.task.get("tools"))
    reply = last.content
    if trace.header.judge.get("bare_replies"):
        parsed = parse_bare(reply, last_line=spec.choices() is not None)
    else:
        parsed = parse_reply(reply, turn=1, native=native)
    without = partial(replace, finding, answer=None, evidence=())
    if parsed.answer is None:
        return without(status="unparsed", reason="the last reply holds no answer")
    if parsed.contradictory:
        return without(status="contradictory", reason="two pairs of answer tags hold different answers")
    try:
        answer = spec.parse(parsed.answer, finding.metric, confidences=spec.shares(parsed.answer, reply.tokens))
    except ReplyError as error:
        return without(status=cast(Status, error.status), reason=": ".join(filter(None, (str(error), parsed.thought))))
    reason = reason_in(spec, parsed.answer) or parsed.thought or finding.reason
    return replace(finding, status="ok", answer=answer, reason=reason)


def _on_scale(finding: Finding, spec: AnswerSpec | None) -> Finding:
    """Return a finding without a trace; its number, such as an imported one, must be one of the scale."""
    if not isinstance(finding.answer, Number) or not isinstance(spec, Scale):
        return finding
    try:
        spec.parse(f"{Decimal(repr(finding.answer.value)):f}")
    except ReplyError as error:
        reason = ": ".join(filter(None, (str(error), finding.reason)))
        return replace(finding, status=cast(Status, error.status), answer=None, evidence=(), reason=reason)
    return finding


def _letters(spec: AnswerSpec) -> dict[str, str]:
    """Return letter → option; {} for options without letters."""
    return dict(zip(spec.marks, spec.options, strict=True)) if isinstance(spec, OneOf) and spec.marks else {}


def _metric(protocol: EvalProtocol, store: RunStore, wanted: str) -> str | None:
    """Return the protocol's id of a metric of the run. A question that is no metric keeps its name."""
    metrics = {metric.id: metric for metric in protocol.metrics}
    before = store.metrics().get(wanted)
    if wanted in metrics or before is None:
        return wanted
    short = before.short.casefold()
    return next((metric.id for metric in metrics.values() if metric.short.casefold() == short), None)


def _without_number(finding: Finding) -> Json:
    """Return an answer that has neither label nor value, as JSON; None for others."""
    answer = finding.answer
    return None if answer is None or finding.label is not None or finding.value is not None else answer.to_json()


def _outcome(finding: Finding) -> dict[str, Json]:
    return {"status": finding.status, "label": finding.label, "value": finding.value}
