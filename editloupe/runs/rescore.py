"""Re-score: recorded answers read by other options of the protocol, such as another rubric. No model is asked."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, cast

from editloupe.answers import AnswerSpec, Number, OneOf, Scale, reason_in
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, ProtocolError, ReplyError, TraceError, UnknownPlugin
from editloupe.findings import Finding
from editloupe.protocols.base import EvalProtocol, QuestionKey, make_protocol
from editloupe.protocols.repeats import Repeats
from editloupe.replies import parse_bare, parse_reply
from editloupe.runs.folders import bring
from editloupe.runs.judges import JudgeEntry
from editloupe.runs.lineage import read_whole
from editloupe.runs.recording import MALFORMED, outcome
from editloupe.runs.schedule import Schedule
from editloupe.runs.setup import identity_options, spec_of
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.tasks import Status, Task, task_from_json
from editloupe.traces.events import ModelCall, Note
from editloupe.traces.read import Trace, last_finding, read_trace
from editloupe.traces.record import TraceWriter
from editloupe.values import Json, digest

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
        return self.now is not None and _says(self.before) != _says(self.now)

    def to_json(self) -> dict[str, Json]:
        """Return both outcomes as JSON."""
        return {
            **self.before.about.to_json(),
            "metric": self.before.metric,
            "judge_id": self.before.judge_id,
            "changed": self.changed,
            "before": outcome(self.before),
            "now": None if self.now is None else outcome(self.now),
            "reason": self.reason,
        }


def protocol_with(store: RunStore, changes: Mapping[str, Any]) -> EvalProtocol:
    """Return the run's protocol with some options changed. Raises ConfigError."""
    try:
        return make_protocol(store.protocol, {**store.options(), **changes}, recorded=True)
    except UnknownPlugin as error:
        raise ConfigError(f"{store.folder} was judged by a protocol that is not installed here: {error}") from error


def rescore(store: RunStore, protocol: EvalProtocol) -> Iterator[Rescored]:
    """Return every current finding of a run as the protocol reads it."""
    judges, (specs, measured) = judges_with(store, protocol), _asked_now(store, protocol)
    gone = store.metrics().keys() - {metric.id for metric in protocol.metrics}
    for finding in store.current():
        try:
            if finding.role == "measure":
                if finding.task_id not in measured:
                    raise TraceError("it is not measured now, or with other arguments")
                yield Rescored(before=finding, now=finding)
                continue
            if finding.metric in gone:
                raise TraceError(f"the protocol has no metric {finding.metric!r} now")
            spec = specs.get((finding.judge_id, *finding.question))
            if spec is None and finding.trace is not None:
                raise TraceError("it is not asked now")
            now = replace(finding, judge_id=judges[finding.judge_id].judge.id)
            yield Rescored(before=finding, now=now if spec is None else _read(store.folder, now, spec))
        except (TraceError, *MALFORMED) as error:
            yield Rescored(before=finding, now=None, reason=str(error))


def judges_with(store: RunStore, protocol: EvalProtocol) -> dict[str, JudgeEntry]:
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
    identity = store.spec.identity
    record = {
        **{name: value for name, value in store.spec.record.items() if name != "rubric"},
        "rescored_from": {"run": store.identity, "options": identity.get("options")},
    }
    spec = spec_of(store.protocol, protocol, identity, record)
    samples = Loaded(format="rescored", samples=tuple(store.samples.values()), rejected=())
    with closing(RunStore.begin(out, spec, judges_with(store, protocol).values(), samples)) as target:
        target.add_findings([one.now for one in rescored if one.now is not None])
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
    return metric.normalize(found) if metric.levels else found


def _asked_now(store: RunStore, protocol: EvalProtocol) -> tuple[dict[tuple[str, *QuestionKey], AnswerSpec], set[str]]:
    """Return (judge id, *question) → what the protocol as it is now accepts as an answer, and the ids of its measures.

    Each judge's later tasks are planned from its own answers, as in the run, and from those of the other roles.
    """
    others = [id_ for id_, role in store.roles().items() if role != "judge"]
    specs: dict[tuple[str, *QuestionKey], AnswerSpec] = {}
    measured: set[str] = set()
    # A protocol in which nobody has the role "judge" is planned once.
    for judge_id in store.judges() or [None]:
        for task in _planned(store, protocol, store.current(judge_id)):
            if task.kind == "measure":
                measured.add(task.id)
                continue
            # What another role was asked may rest on the answers of any judge.
            for id_ in filter(None, (judge_id, *others)):
                specs[id_, *task.question] = task.answer
    return specs, measured


def _planned(store: RunStore, protocol: EvalProtocol, findings: Sequence[Finding]) -> list[Task]:
    """Return the tasks that the protocol plans as these findings arrive. Raises ProtocolError if it cannot."""
    known = {(finding.question, finding.repeat): finding for finding in findings}
    samples = [sample for key, sample in store.samples.items() if key not in store.rejected]
    rule = Repeats.of_run(store.info, findings)
    schedule = Schedule(protocol, samples, rule, lambda task, repeat: known.get((task.question, repeat)))
    if problems := schedule.problems():
        raise ProtocolError(problems[0].reason)
    return [place.task for place in schedule.places.values()]


def _end_again(run: Path, path: Path, finding: Finding) -> None:
    """Let the copy of a trace end in the finding as it is read now, so that the run can be verified."""
    try:
        if last_finding(read_trace(path).events) == finding:
            return
    except TraceError:
        return  # not there, or damaged: the finding cannot be checked here either
    with TraceWriter(path, below=run) as writer:
        writer.append(
            Note(text="the recorded answer, read again by other options of the protocol (editloupe replay --rubric)")
        )
        writer.finish(finding)


def _read(folder: Path, finding: Finding, spec: AnswerSpec) -> Finding:
    """Return a finding with what its last words say now: those of its trace, else its number, such as an imported one."""
    if finding.trace is not None and finding.status in _OF_WORDS:
        return _read_trace(read_whole(folder, folder / finding.trace), finding, spec)
    if isinstance(finding.answer, Number) and isinstance(spec, Scale):
        try:
            spec.parse(f"{Decimal(repr(finding.answer.value)):f}")
        except ReplyError as error:
            return _unusable(finding, error.status, str(error), finding.reason)
    return finding


def _read_trace(trace: Trace, finding: Finding, spec: AnswerSpec) -> Finding:
    """Return a finding with what the last reply says now."""
    calls = [event for event in trace.events if isinstance(event, ModelCall)]
    if trace.tampering or not calls:
        raise TraceError(next(iter(trace.tampering), f"{finding.trace} holds no reply"))
    asked, judge = task_from_json(trace.header.task), trace.header.judge
    if isinstance(spec, OneOf) and asked.kind == "ask" and asked.answer != spec:
        raise TraceError("its options were others")
    reply = max(calls, key=lambda call: call.ordinal).content
    if judge.get("bare_replies"):
        parsed = parse_bare(reply, last_line=spec.choices() is not None)
    else:
        native = judge.get("tool_protocol") == "native" and bool(trace.header.task.get("tools"))
        parsed = parse_reply(reply, turn=1, native=native)
    if parsed.answer is None:
        return _unusable(finding, "unparsed", "the last reply holds no answer")
    if parsed.contradictory:
        return _unusable(finding, "contradictory", "two pairs of answer tags hold different answers")
    try:
        answer = spec.parse(parsed.answer, finding.metric, confidences=spec.shares(parsed.answer, reply.tokens))
    except ReplyError as error:
        return _unusable(finding, error.status, str(error), parsed.thought)
    reason = reason_in(spec, parsed.answer) or parsed.thought or finding.reason
    return replace(finding, status="ok", answer=answer, reason=reason)


def _unusable(finding: Finding, status: str, *reasons: str) -> Finding:
    return replace(finding, status=cast(Status, status), answer=None, evidence=(), reason=": ".join(filter(None, reasons)))


def _says(finding: Finding) -> list[Json]:
    """Return what a change is looked for in. An answer with a label or a value is these, however it was put."""
    bare = finding.answer is not None and finding.label is None and finding.value is None
    return [outcome(finding), finding.answer.to_json() if finding.answer is not None and bare else None]
