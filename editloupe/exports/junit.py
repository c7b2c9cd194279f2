"""Write JUnit XML, for the pages on which continuous integration shows tests.

A finding is a test case. Without an answer it is an error, whatever the reason. An answer is a pass, unless it is worth
less than was asked for. A requirement of `gate` is a test case as well: an error where there is no figure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias
from xml.etree import ElementTree as ET

from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.write import whole
from editloupe.findings import Finding
from editloupe.runs.judges import names_of

if TYPE_CHECKING:
    from editloupe.reports.gate import Checked

_Outcome: TypeAlias = Literal["system-out", "failure", "error"]
"""How a case ended, as the element is named; "system-out" is a pass."""

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What was written."""

    tests: int
    failures: int
    errors: int
    limitless: tuple[str, ...] = ()
    """Questions for which the limit says nothing, so that nothing fails there."""


@dataclass(frozen=True, kw_only=True)
class _Case:
    name: str
    classname: str
    outcome: _Outcome
    kind: str = ""
    """What sort of failure or error."""
    message: str = ""
    """One line, for a failure or an error."""
    text: str
    seconds: float = 0.0
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class _Suite:
    name: str
    cases: list[_Case]
    properties: Mapping[str, str] = field(default_factory=dict)


def write_junit(source: Source, path: Path, *, fail_below: str | None = None) -> Counted:
    """Write the findings of a run, a suite for each judge and question.

    fail_below: a number in the metric's unit, or a label; an answer that is worth less is a failure. It holds where
    more is better.

    Raises ConfigError for a label that no metric of the run has, and StorageError.
    """
    limits = {} if fail_below is None else _limits(source, fail_below)
    names = names_of(source.store.info.get("judges"))
    suites: dict[tuple[str, str], _Suite] = {}
    for finding in source.findings:
        judge, metric = finding.judge_id, finding.metric
        properties = {"judge_id": judge, "metric": metric}
        suite = suites.setdefault((judge, metric), _Suite(name=f"{names[judge]} {metric}", cases=[], properties=properties))
        suite.cases.append(_case(source, finding, limits.get(metric)))
    _write(path, f"editloupe {source.folder.resolve().name}", list(suites.values()))
    outcomes = [case.outcome for suite in suites.values() for case in suite.cases]
    asked = dict.fromkeys(f.metric for f in source.findings if fail_below is not None)
    return Counted(
        tests=len(outcomes),
        failures=outcomes.count("failure"),
        errors=outcomes.count("error"),
        limitless=tuple(metric for metric in asked if metric not in limits),
    )


def write_gate_junit(checked: Iterable[Checked], path: Path) -> None:
    """Write the outcome of a gate, a case for each requirement and judge. Raises ConfigError and StorageError."""
    outcomes: Mapping[str, tuple[_Outcome, str]] = {"failed": ("failure", "gate"), "undefined": ("error", "undefined")}
    cases = []
    for one in checked:
        outcome, kind = outcomes.get(one.verdict, ("system-out", ""))
        text = one.told if one.verdict == "passed" else ""
        cases.append(_Case(name=one.name, classname=one.judge, outcome=outcome, kind=kind, message=one.told, text=text))
    _write(path, "editloupe gate", [_Suite(name="editloupe gate", cases=cases)])


def _write(path: Path, name: str, suites: Sequence[_Suite]) -> None:
    root = ET.Element("testsuites", {"name": _xml(name), **_counts([case for suite in suites for case in suite.cases])})
    for suite in suites:
        element = ET.SubElement(root, "testsuite", {"name": _xml(suite.name), **_counts(suite.cases)})
        _add_properties(element, suite.properties)
        for case in suite.cases:
            test = ET.SubElement(
                element, "testcase", classname=_xml(case.classname), name=_xml(case.name), time=f"{case.seconds:.3f}"
            )
            _add_properties(test, case.properties)
            failed = {} if case.outcome == "system-out" else {"type": case.kind, "message": _xml(case.message)}
            ET.SubElement(test, case.outcome, failed).text = _xml(case.text)
    ET.indent(root)
    with whole(path) as file:
        file.write(ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _counts(cases: Sequence[_Case]) -> dict[str, str]:
    return {
        "tests": str(len(cases)),
        "failures": str(sum(case.outcome == "failure" for case in cases)),
        "errors": str(sum(case.outcome == "error" for case in cases)),
        "skipped": "0",
        "time": f"{sum(case.seconds for case in cases):.3f}",
    }


def _add_properties(element: ET.Element, properties: Mapping[str, str]) -> None:
    if properties:
        parent = ET.SubElement(element, "properties")
        for name, value in properties.items():
            ET.SubElement(parent, "property", name=name, value=_xml(value))


def _case(source: Source, finding: Finding, limit: float | None) -> _Case:
    scope = f" [{finding.about.scope}]" if finding.about.scope else ""
    again = f" [repeat {finding.repeat + 1}]" if finding.repeat else ""
    worth = "" if finding.value is None or finding.label is None else f" ({finding.value:g})"
    outcome: _Outcome = "system-out"
    kind, message, text = "", "", f"{finding.answer}{worth}\n{finding.reason}".strip()
    if finding.status != "ok":
        outcome, kind, message, text = "error", finding.status, _line(finding.reason), finding.reason
    elif limit is not None and finding.value is not None and finding.value < limit:
        outcome, kind, text = "failure", "below_limit", finding.reason
        message = f"{finding.answer}{worth} is below {limit:g}"
    return _Case(
        name=f"{finding.about.key}{scope}{again}",
        classname=f"{source.store.protocol}.{finding.metric}",
        outcome=outcome,
        kind=kind,
        message=message,
        text=text,
        seconds=finding.seconds,
        properties={} if finding.trace is None else {"trace": finding.trace},
    )


def _limits(source: Source, fail_below: str) -> dict[str, float]:
    """The limit of each metric in its unit; metrics without a limit are left out."""
    metrics = {id_: m for id_, m in source.store.metrics().items() if m.better == "higher"}
    labels = {id_: {_fold(level.name): level.value for level in m.levels} for id_, m in metrics.items()}
    try:
        limit = float(fail_below)
    except ValueError:
        limits = {id_: levels[folded] for id_, levels in labels.items() if (folded := _fold(fail_below)) in levels}
        if limits:
            return limits
        known = "; ".join(f"{id_}: {', '.join(levels)}" for id_, levels in labels.items() if levels) or "none"
        raise ConfigError(
            f"--junit-fail-below {fail_below!r} is neither a number nor a label of this run; labels: {known}"
        ) from None
    if math.isnan(limit):
        raise ConfigError("--junit-fail-below nan: nothing is below it; expected a number or a label")
    return dict.fromkeys(metrics, limit)


def _fold(label: str) -> str:
    return " ".join(label.casefold().split())


def _line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 200 else line[:199] + "…"


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold, not even escaped."""
    return _NOT_XML.sub("\ufffd", text)
