"""Re-score a run: read its recorded answers with another rubric or a newer parser. No model is called."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

import editloupe
from editloupe.agent.answer import parse_reply
from editloupe.chat import Reply
from editloupe.data.samples import Loaded
from editloupe.errors import ReplyError, TraceError
from editloupe.records import Answer, Finding, RunSpec, Status
from editloupe.rubrics.model import Criterion, Rubric
from editloupe.rubrics.parse import parse_label
from editloupe.runs.folders import bring
from editloupe.runs.judges import Entry
from editloupe.runs.store import RunStore
from editloupe.traces.events import ModelCall
from editloupe.traces.lineage import read_whole
from editloupe.traces.read import tampering
from editloupe.values import Json

_FROM_REPLY: Final = frozenset({"ok", "unparsed", "off_menu", "contradictory", "abstained"})
"""Statuses that depend on how the last reply is read. The others stay, whatever the rubric."""


@dataclass(frozen=True, kw_only=True)
class Rescored:
    """One finding, read again."""

    before: Finding

    now: Finding | None
    """The new finding; None if it cannot be read again."""

    reason: str = ""
    """Why `now` is None."""

    @property
    def changed(self) -> bool:
        """Whether status, label or value differs."""
        old, new = self.before, self.now
        return new is not None and (old.status, old.label, old.value) != (new.status, new.label, new.value)

    def to_json(self) -> dict[str, Json]:
        return {
            "sample_id": self.before.sample_id,
            "editor": self.before.editor,
            "criterion": self.before.criterion,
            "judge_id": self.before.judge_id,
            "changed": self.changed,
            "before": _outcome(self.before),
            "now": None if self.now is None else _outcome(self.now),
            "why": self.reason,
        }


def rescore(store: RunStore, rubric: Rubric) -> Iterator[Rescored]:
    """Read every current finding of a run with `rubric`. Criteria are matched by id, then by short name."""
    judges = judges_by(store, rubric)
    for finding in store.current():
        criterion = _criterion(rubric, store, finding.criterion)
        if criterion is None:
            yield Rescored(before=finding, now=None, reason=f"the rubric has no criterion {finding.criterion!r}")
            continue
        now = replace(finding, judge_id=judges[finding.judge_id].judge.id, criterion=criterion.id)
        if finding.trace is None or finding.status not in _FROM_REPLY:
            yield Rescored(before=finding, now=now)
            continue
        try:
            status, answer, reason = _read(store.folder, finding, criterion)
        except (TraceError, KeyError, TypeError, ValueError, AssertionError) as error:
            yield Rescored(before=finding, now=None, reason=f"its trace cannot be re-scored: {error}")
            continue
        if status == "ok":
            yield Rescored(before=finding, now=replace(now, status=status, answer=answer, reason=reason))
        else:
            yield Rescored(before=finding, now=replace(now, status=status, answer=None, reason=reason, evidence=()))


def judges_by(store: RunStore, rubric: Rubric) -> dict[str, Entry]:
    """Return judge id in the run → that judge with this rubric, under its name."""
    judges = store.info["judges"]
    assert isinstance(judges, Mapping)
    found: dict[str, Entry] = {}
    for id_, judge in judges.items():
        assert isinstance(judge, Mapping)
        entry = Entry.from_json(judge)
        found[id_] = replace(entry, judge=replace(entry.judge, rubric=rubric.digest))
    return found


def write_rescored(store: RunStore, rubric: Rubric, rescored: Sequence[Rescored], out: Path) -> RunStore:
    """Write the findings of a re-score as a new run folder. Images are linked if possible; traces are copied.

    Raises ConfigError, RunMismatch and StorageError as a run does.
    """
    identity, record = store.info["identity"], store.info.get("record")
    assert isinstance(identity, Mapping)
    old = record if isinstance(record, Mapping) else {}
    spec = RunSpec(
        identity={**identity, "rubric": rubric.digest},
        record={
            **old,
            "editloupe": editloupe.__version__,
            "rubric": rubric.to_json(),
            "rescored_from": {"run": store.identity, "rubric": identity.get("rubric")},
        },
    )
    samples = Loaded(format="rescored", samples=tuple(store.samples.values()), rejected=())
    for judge_id, entry in judges_by(store, rubric).items():
        target = RunStore.write(out, spec)
        try:
            target.begin(spec, entry.judge, samples, config={}, narrowed=False, entries=[entry])
            for one in rescored:
                if one.now is not None and one.before.judge_id == judge_id:
                    target.add_finding(one.now)
        finally:
            target.close()
    for name in ("traces", "blobs", "forks"):
        # A trace may be continued later; an image never changes.
        bring(store.folder / name, out / name, link=name == "blobs")
    return RunStore.read(out)


def mean(findings: Sequence[Finding], rubric: Mapping[str, Json], criterion: str) -> float | None:
    """Return the mean value on the scale 0 to 100 of the rubric (given as JSON); None if no finding has a value."""
    criteria = rubric.get("criteria")
    for one in criteria if isinstance(criteria, list) else ():
        if isinstance(one, Mapping) and one.get("id") == criterion:
            levels = one["levels"]
            assert isinstance(levels, list)
            scale = [float(level["value"]) for level in levels if isinstance(level, Mapping)]
            values = [f.value for f in findings if f.value is not None]
            if not values:
                return None
            return (sum(values) / len(values) - min(scale)) / (max(scale) - min(scale)) * 100
    return None


def _read(folder: Path, finding: Finding, criterion: Criterion) -> tuple[Status, Answer | None, str]:
    """Return (status, answer, reason) of the trace's last reply."""
    trace = read_whole(folder, folder / str(finding.trace))
    found = tampering(trace.problems)
    if found:
        raise TraceError(found[0])
    calls = [event for event in trace.events if isinstance(event, ModelCall)]
    if not calls:
        raise TraceError(f"{finding.trace} holds no reply")
    last = max(calls, key=lambda call: call.ordinal)
    native = trace.header.judge.get("tool_protocol") == "native" and bool(trace.header.task.get("tools"))
    choices = None if last.choices is None else tuple(last.choices)
    parsed = parse_reply(Reply.from_json(last.reply), turn=1, native=native, choices=choices)
    if parsed.answer is None:
        return "unparsed", None, "the last reply holds no answer between the tags"
    try:
        label = parse_label(parsed.answer, criterion.grammar())
    except ReplyError as error:
        reason = f"{error}: {parsed.thought}" if parsed.thought else str(error)
        return cast(Status, error.status), None, reason
    return "ok", label, parsed.thought or finding.reason


def _criterion(rubric: Rubric, store: RunStore, wanted: str) -> Criterion | None:
    short = store.criteria().get(wanted, "").casefold()
    by_id = next((c for c in rubric.criteria if c.id == wanted), None)
    return by_id or next((c for c in rubric.criteria if short and c.short.casefold() == short), None)


def _outcome(finding: Finding) -> dict[str, Json]:
    return {"status": finding.status, "label": finding.label, "value": finding.value}
