"""Check the findings of a run when it is opened: against the ends of their traces, and against the run's metrics.

A finding that fails is not counted: it becomes `invalid`. Digests show what was changed by accident or by hand. They are no
signature: who makes a whole run anew can make its digests too.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from pydantic import ValidationError

from editloupe import files
from editloupe.answers import Answer, AnswerSpec, Choice, Label, Labels, Number, OneOf, Scale
from editloupe.errors import EditLoupeError, TraceError
from editloupe.findings import Finding
from editloupe.scores import Metric
from editloupe.tasks import task_from_json
from editloupe.traces.events import End, FindingEvent
from editloupe.traces.read import Trace, complete_lines, finding_digest, read_trace
from editloupe.values import Json, digest

Key: TypeAlias = tuple[str, str, int]
"""`Finding.key`."""

Verdict: TypeAlias = Literal["equal", "unchecked", "absent", "wrong"]
"""Of a trace on its finding; absent: there is no trace to ask."""

_SHOWN: Final = 2
_LINES: Final = 5
_TAIL: Final = 4096
"""Bytes at the end of a trace in which its end stands."""

NO_END: Final = frozenset({"recording", "fault"})
"""Endings of a task whose trace could not be written to its end."""


@dataclass(frozen=True, kw_only=True)
class Seal:
    """By what a line of findings.jsonl can be checked."""

    found: str | None
    """Digest of the finding that it holds; None if that is `invalid`."""
    recorded: str | None
    """Digest that it was written with; None for a line without one."""


def to_line(finding: Finding) -> dict[str, Json]:
    """Return a finding as it is written into findings.jsonl: with its digest, which ends its trace too."""
    data = finding.to_json()
    return {**data, "digest": finding_digest(data)}


def info_digest(info: Mapping[str, Json]) -> str:
    """Return the digest that run.json is written with: of all that it holds."""
    return digest({name: value for name, value in info.items() if name != "digest"})


def parse_finding(line: Mapping[str, Json]) -> tuple[Finding, Seal]:
    """Return the finding of a line of findings.jsonl, and by what it can be checked.

    It is `invalid` if it holds a number that is not finite, or columns that differ from its answer. Raises ValueError for
    data of another shape.
    """
    data = dict(line)
    recorded = data.pop("digest", None)
    seal = Seal(found=finding_digest(data), recorded=None if recorded is None else str(recorded))
    if seal.found is not None:
        finding = Finding.from_json(data)
        for name, own in (("label", finding.label), ("value", finding.value)):
            if data.get(name, own) != own:
                why = f"its column {name!r} is {data[name]!r}, and its answer {own!r}"
                return invalid(finding, why), replace(seal, found=None)
        return finding, seal
    said = ("answer", "evidence", "usage", "turns", "counts", "seconds", "ending")
    rest = {name: value for name, value in data.items() if name not in said}
    return invalid(Finding.from_json({**rest, "status": "invalid"}), "it holds a number that is not finite"), seal


def invalid(finding: Finding, why: str) -> Finding:
    """Return what stands in the place of a finding that must not be counted. Nothing that it says is kept."""
    names = ("task_id", "judge_id", "repeat", "sample_id", "editor", "turn", "part", "metric", "role", "trace")
    return Finding(**{name: getattr(finding, name) for name in names}, status="invalid", reason=why)


def checked(
    folder: Path, findings: Mapping[Key, Finding], seals: Mapping[Key, Seal], metrics: Mapping[str, Metric]
) -> dict[Key, Finding]:
    """Return those findings that must not be counted, as `invalid` ones.

    seals: of the lines of findings.jsonl; those that were read from traces have none.
    """
    wrong = {}
    for key, finding in findings.items():
        if why := wrong_with(folder, finding, seals.get(key), metrics):
            wrong[key] = invalid(finding, why)
    return wrong


def wrong_with(folder: Path, finding: Finding, seal: Seal | None, metrics: Mapping[str, Metric]) -> str:
    """Return why a finding must not be counted; "" if nothing speaks against it.

    seal: of its line in findings.jsonl; None for a finding that was read from its trace.
    """
    if finding.status == "invalid":
        return finding.reason
    verdict, why = against_end(folder, finding, None if seal is None else seal.found)
    if seal is not None and verdict in ("unchecked", "absent"):
        if seal.recorded not in (None, seal.found):
            verdict, why = "wrong", f"it is not what was recorded, and {why}"
        elif seal.recorded is None and verdict == "absent" and finding.status == "ok":
            verdict, why = "wrong", f"it has no digest, and {why}"
    off = off_metric(finding, metrics.get(finding.metric))
    if off and verdict == "equal" and accepted(folder, finding):
        return ""  # the question has a scale of its own, and the protocol makes the metric's value of it
    return off or (why if verdict == "wrong" else "")


def problems(wrong: Iterable[Finding]) -> list[str]:
    """Return one line for each reason, with the findings that it costs."""
    by_reason: dict[str, list[str]] = {}
    for finding in wrong:
        by_reason.setdefault(finding.reason, []).append(named(finding))
    found = [f"findings.jsonl: {some(names)}: {why}; not counted" for why, names in by_reason.items()]
    if len(found) > _LINES:
        more = sum(len(names) for names in list(by_reason.values())[_LINES:])
        found[_LINES:] = [f"findings.jsonl: {more} more findings are not counted; editloupe verify names them all"]
    return found


def named(finding: Finding) -> str:
    """Return how messages call a finding: "painter/s01, turn 2 (instruction_following), repeat 3"."""
    return f"{finding.about} ({finding.metric})" + (f", repeat {finding.repeat + 1}" if finding.repeat else "")


def some(names: Sequence[str]) -> str:
    """Return the first names, and how many there are beyond them."""
    more = len(names) - _SHOWN
    return "; ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")


def off_metric(finding: Finding, metric: Metric | None) -> str:
    """Return why an answer is not on its metric; "" if it is, or if the question is no metric."""
    answer = finding.answer
    if metric is None or answer is None or answer.value is None:
        return ""
    value, bounds = answer.value, metric.domain.bounds
    if isinstance(answer, Label) and metric.levels:
        values = metric.values
        if answer.name not in values:
            return f"label {answer.name!r} is none of the rubric's ({', '.join(values)})"
        if value != values[answer.name]:
            return f"label {answer.name!r} has the value {value:g}, and in the rubric {values[answer.name]:g}"
    if not math.isfinite(value):
        return f"its value is {value}"
    if bounds is not None and not bounds[0] <= value <= bounds[1]:
        return f"its value {value:g} is outside {bounds[0]:g} to {bounds[1]:g}"
    return ""


def off_menu(answer: Answer, spec: AnswerSpec) -> str:
    """Return why an answer is none that a question takes; "" if it is one. Of texts, boxes and records the kind counts."""
    kinds = {"labels": "label", "scale": "number", "one_of": "choice", "free_text": "text", "box_list": "boxes"}
    if answer.kind != kinds.get(spec.kind, "record"):
        return f"a {answer.kind} answers a question for {spec.ask}"
    match answer, spec:
        case Label(), Labels() if (answer.name, answer.value) not in [(rule.name, rule.value) for rule in spec.labels]:
            return f"label {answer.name!r} with the value {answer.value:g} is none that was asked for"
        case Number(), Scale() if not spec.low <= answer.value <= spec.high or (spec.whole and answer.value % 1):
            return f"{answer.value:g} is not {spec.ask}"
        case Choice(), OneOf() if answer.name not in spec.options or answer.name == spec.abstain:
            return f"option {answer.name!r} is none that was offered"
        case _:
            return ""


def accepted(folder: Path, finding: Finding) -> bool:
    """Return whether the question in a finding's trace takes its answer. A measure has no menu."""
    try:
        task = task_from_json(read_trace(folder / str(finding.trace)).header.task)
    except (TraceError, EditLoupeError, ValueError):
        return False
    return finding.answer is not None and (task.kind == "measure" or not off_menu(finding.answer, task.answer))


def against_end(folder: Path, finding: Finding, found: str | None) -> tuple[Verdict, str]:
    """Compare a finding with the end of its trace. Return the verdict, and why it is not "equal".

    found: the digest of its line; None for a finding that was read from its trace.
    """
    if finding.trace is None:
        return "absent", "there is no trace of it"
    path = folder / finding.trace
    try:
        end = _read_end(path)
    except OSError:
        return "absent", "its trace is not there"
    if (
        end is not None
        and end.finding_digest is not None
        and end.finding_digest == (found or finding_digest(finding.to_json()))
    ):
        return "equal", ""
    if finding.status != "ok" and recorded_in(path, finding):
        return "equal", ""  # the task goes on, or was begun anew
    if finding.status != "ok" and finding.ending in NO_END:
        return "unchecked", "its trace could not be written to its end"
    return "wrong", "its trace has no end" if end is None else "it is not what its trace ends in"


def recorded_in(path: Path, finding: Finding) -> bool:
    """Return whether a trace, or one of the same task that was set aside, has held this finding."""
    asides = path.parent.glob(f"{path.name.removesuffix('.jsonl')}.aside-*.jsonl")
    return any(finding in findings_of(trace) for trace in map(_read, (path, *asides)) if trace is not None)


def findings_of(trace: Trace) -> list[Finding]:
    """Return every finding of a trace, the last one last."""
    return [event.content for event in trace.events if isinstance(event, FindingEvent)]


def _read(path: Path) -> Trace | None:
    try:
        return read_trace(path)
    except TraceError:
        return None


def _read_end(path: Path) -> End | None:
    """Return the last event of a trace if it is an end, without reading the rest. Raises OSError."""
    lines, _ = complete_lines(files.read_tail(path, _TAIL))
    try:
        return End.model_validate_json(lines[-1]) if lines else None
    except ValidationError:
        return None
