"""Write JUnit XML, for the pages on which continuous integration shows tests.

A finding is a test case. Without an answer it is an error, whatever the reason. An answer is a pass, unless it is worth
less than was asked for. A requirement of `gate` is a test case as well: an error where there is no figure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.write import whole
from editloupe.findings import Finding
from editloupe.runs.judges import names_of

if TYPE_CHECKING:
    from editloupe.figures.gate import Checked

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What was written."""

    tests: int
    failures: int
    errors: int
    limitless: tuple[str, ...] = ()
    """Questions for which the limit says nothing, so that nothing fails there."""


def write_junit(source: Source, path: Path, *, fail_below: str | None = None) -> Counted:
    """Write the findings of a run, a suite for each judge and question.

    fail_below: a number in the metric's unit, or a label; an answer that is worth less is a failure. It holds where
    more is better.

    Raises ConfigError for a label that no metric of the run has, and StorageError.
    """
    limits = {} if fail_below is None else _limits(source, fail_below)
    names = names_of(source.store.info.get("judges"))
    suites: dict[tuple[str, str], list[Finding]] = {}
    for finding in source.findings:
        suites.setdefault((finding.judge_id, finding.metric), []).append(finding)
    root = ET.Element("testsuites", name=_xml(f"editloupe {source.folder.resolve().name}"))
    for (judge, metric), findings in suites.items():
        suite = ET.SubElement(root, "testsuite", name=_xml(f"{names[judge]} {metric}"))
        _add_properties(suite, judge_id=judge, metric=metric)
        for finding in findings:
            _add_finding(suite, finding, f"{source.store.protocol}.{metric}", limits.get(metric))
        _count(suite, findings)
    _count(root, source.findings)
    _write(path, root)
    asked = dict.fromkeys(metric for _, metric in suites if fail_below is not None)
    tests, failures, errors = (int(root.get(name, 0)) for name in ("tests", "failures", "errors"))
    limitless = tuple(metric for metric in asked if metric not in limits)
    return Counted(tests=tests, failures=failures, errors=errors, limitless=limitless)


def write_gate_junit(checked: Iterable[Checked], path: Path) -> None:
    """Write the outcome of a gate, a case for each requirement and judge. Raises ConfigError and StorageError."""
    outcomes = {"failed": ("failure", "gate"), "undefined": ("error", "undefined")}
    root = ET.Element("testsuites", name="editloupe gate")
    suite = ET.SubElement(root, "testsuite", name="editloupe gate")
    for one in checked:
        case = _add_case(suite, one.judge, one.name, 0.0)
        outcome, kind = outcomes.get(one.verdict, ("system-out", ""))
        text = one.summary if one.verdict == "passed" else f"failed by {', '.join(one.worst)}" if one.worst else ""
        _add_outcome(case, outcome, kind, one.summary, "\n".join(filter(None, (text, one.remark))))
    _count(suite, ())
    _count(root, ())
    _write(path, root)


def _write(path: Path, root: ET.Element) -> None:
    ET.indent(root)
    with whole(path) as file:
        file.write(ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")


def _count(element: ET.Element, findings: Sequence[Finding]) -> None:
    """Put the numbers of what is below an element into its attributes."""
    cases = list(element.iter("testcase"))
    element.set("tests", str(len(cases)))
    element.set("failures", str(sum(case.find("failure") is not None for case in cases)))
    element.set("errors", str(sum(case.find("error") is not None for case in cases)))
    element.set("skipped", "0")
    element.set("time", f"{sum(finding.seconds for finding in findings):.3f}")


def _add_properties(element: ET.Element, **properties: str) -> None:
    parent = ET.SubElement(element, "properties")
    for name, value in properties.items():
        ET.SubElement(parent, "property", name=name, value=_xml(value))


def _add_case(suite: ET.Element, classname: str, name: str, seconds: float) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_xml(classname), name=_xml(name), time=f"{seconds:.3f}")


def _add_outcome(case: ET.Element, outcome: str, kind: str, message: str, text: str) -> None:
    """outcome: "failure", "error", or "system-out" for a pass.   kind: what sort of failure or error."""
    attributes = {} if outcome == "system-out" else {"type": kind, "message": _xml(message)}
    ET.SubElement(case, outcome, attributes).text = _xml(text)


def _add_finding(suite: ET.Element, finding: Finding, classname: str, limit: float | None) -> None:
    scope = f" [{finding.about.scope}]" if finding.about.scope else ""
    again = f" [repeat {finding.repeat + 1}]" if finding.repeat else ""
    case = _add_case(suite, classname, f"{finding.about.key}{scope}{again}", finding.seconds)
    if finding.trace is not None:
        _add_properties(case, trace=finding.trace)
    worth = "" if finding.value is None or finding.label is None else f" ({finding.value:g})"
    if finding.status != "ok":
        _add_outcome(case, "error", finding.status, _line(finding.reason), finding.reason)
    elif limit is not None and finding.value is not None and finding.value < limit:
        _add_outcome(case, "failure", "below_limit", f"{finding.answer}{worth} is below {limit:g}", finding.reason)
    else:
        _add_outcome(case, "system-out", "", "", f"{finding.answer}{worth}\n{finding.reason}".strip())


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
