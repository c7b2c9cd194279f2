"""JUnit XML: a test case a finding, for the pages on which continuous integration shows tests.

Without an answer a case is an error, whatever the reason; a label is a pass, unless it is worth less than was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree as ET

from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.write import whole
from editloupe.records import Finding
from editloupe.values import sample_key

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, kw_only=True)
class Counted:
    """What was written. limitless: criteria that do not have the label that was asked for, so that nothing fails there."""

    tests: int
    failures: int
    errors: int
    limitless: tuple[str, ...] = ()


def write_junit(source: Source, path: Path, *, fail_below: str | None = None) -> Counted:
    """Write a suite a judge and criterion.

    fail_below: a number on the rubric's scale, or a label; an answer that is worth less is a failure. Raises ConfigError
    for a label that no criterion of the run has, and StorageError.
    """
    limits, limitless = _limits(source, fail_below)
    suites: dict[tuple[str, str], ET.Element] = {}
    totals = {"tests": 0, "failures": 0, "errors": 0}
    root = ET.Element("testsuites", name=_xml(f"editloupe {source.folder.resolve().name}"))
    seconds: dict[tuple[str, str], float] = {}
    for finding in source.findings:
        key = (finding.judge_id, finding.criterion)
        if key not in suites:
            name = f"{source.judges[finding.judge_id]} {finding.criterion}"
            suites[key] = ET.SubElement(root, "testsuite", name=_xml(name), tests="0", failures="0", errors="0", time="0")
            properties = ET.SubElement(suites[key], "properties")
            for told, value in (("judge_id", finding.judge_id), ("criterion", finding.criterion)):
                ET.SubElement(properties, "property", name=told, value=_xml(value))
        outcome = _case(suites[key], source, finding, limits(finding.criterion))
        seconds[key] = seconds.get(key, 0.0) + finding.seconds
        for counter in ("tests", *outcome):
            totals[counter] += 1
            suites[key].set(counter, str(int(suites[key].get(counter, "0")) + 1))
        suites[key].set("time", f"{seconds[key]:.3f}")
    for counter, count in totals.items():
        root.set(counter, str(count))
    root.set("time", f"{sum(seconds.values()):.3f}")
    ET.indent(root)
    with whole(path) as file:
        file.write(ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")
    return Counted(**totals, limitless=limitless)


def _case(suite: ET.Element, source: Source, finding: Finding, limit: float | None) -> tuple[str, ...]:
    """One case; which counter of its suite it raises besides `tests`."""
    name = sample_key(finding.editor, finding.sample_id)
    name += "" if finding.target is None else f" [target {finding.target}]"
    name += "" if finding.repeat == 0 else f" [repeat {finding.repeat}]"
    protocol = source.store.info.get("identity")
    named = protocol.get("protocol") if isinstance(protocol, dict) else None
    case = ET.SubElement(
        suite,
        "testcase",
        classname=_xml(f"{named or 'editloupe'}.{finding.criterion}"),
        name=_xml(name),
        time=f"{finding.seconds:.3f}",
    )
    if finding.trace is not None:
        properties = ET.SubElement(case, "properties")
        ET.SubElement(properties, "property", name="trace", value=_xml(finding.trace))
    if finding.status != "ok":
        element = ET.SubElement(case, "error", type=finding.status, message=_xml(_line(finding.reason)))
        element.text = _xml(finding.reason)
        return ("errors",)
    told = finding.label or ("" if finding.value is None else f"{finding.value:g}")
    worth = "" if finding.value is None or finding.label is None else f" ({finding.value:g})"
    if limit is not None and finding.value is not None and finding.value < limit:
        message = f"{told}{worth} is below {limit:g}"
        element = ET.SubElement(case, "failure", type="below_limit", message=_xml(message))
        element.text = _xml(finding.reason)
        return ("failures",)
    ET.SubElement(case, "system-out").text = _xml(f"{told}{worth}\n{finding.reason}".strip())
    return ()


def _limits(source: Source, fail_below: str | None) -> tuple[Callable[[str], float | None], tuple[str, ...]]:
    """A criterion's limit on its own scale, and the criteria that have none although one was asked for."""
    if fail_below is None:
        return (lambda criterion: None), ()
    try:
        number = float(fail_below)
    except ValueError:
        values = {c: levels[folded] for c, levels in _levels(source).items() if (folded := _fold(fail_below)) in levels}
        if not values:
            known = "; ".join(f"{c}: {', '.join(levels)}" for c, levels in _levels(source).items()) or "none"
            raise ConfigError(
                f"--junit-fail-below {fail_below!r} is neither a number nor a label of this run; labels: {known}"
            ) from None
        asked = dict.fromkeys(f.criterion for f in source.findings)
        return values.get, tuple(c for c in asked if c not in values)
    if number != number:
        raise ConfigError("--junit-fail-below nan: nothing is below it; expected a number or a label")
    return (lambda criterion: number), ()


def _levels(source: Source) -> dict[str, dict[str, float]]:
    """Criterion → label, folded → value: of the run's own rubric."""
    record = source.store.info.get("record")
    rubric = record.get("rubric") if isinstance(record, dict) else None
    criteria = rubric.get("criteria", []) if isinstance(rubric, dict) else []
    return {str(c["id"]): {_fold(str(v["name"])): float(v["value"]) for v in c["levels"]} for c in criteria}


def _fold(label: str) -> str:
    return " ".join(label.casefold().split())


def _line(text: str) -> str:
    told = " ".join(text.split())
    return told if len(told) <= 200 else told[:199] + "…"


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold, not even escaped."""
    return _NOT_XML.sub("\ufffd", text)
