"""The outcome of a gate for others: JUnit XML for a CI server, Markdown for a job's summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from xml.etree import ElementTree

from editloupe.reports.gate import Checked
from editloupe.reports.grid import Grid, Row, markdown
from editloupe.reports.plain import safe

# What XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(checked: Sequence[Checked]) -> str:
    """One test case a requirement and judge: a failure where it does not hold, an error where there is no figure."""
    counts = {
        "tests": len(checked),
        "failures": sum(c.verdict == "failed" for c in checked),
        "errors": sum(c.verdict == "undefined" for c in checked),
        "skipped": 0,
    }
    numbers = {name: str(n) for name, n in counts.items()}
    root = ElementTree.Element("testsuites", numbers)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "editloupe gate", **numbers})
    for one in checked:
        case = ElementTree.SubElement(
            suite, "testcase", {"name": _xml(one.name), "classname": _xml(one.judge), "time": "0"}
        )
        if one.verdict == "failed":
            ElementTree.SubElement(case, "failure", {"message": _xml(one.told), "type": "gate"})
        elif one.verdict == "undefined":
            ElementTree.SubElement(case, "error", {"message": _xml(one.told), "type": "undefined"})
        else:
            ElementTree.SubElement(case, "system-out").text = _xml(one.told)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def grid(checked: Sequence[Checked], title: str) -> Grid:
    """As a table; the judge is named where there are several."""
    several = len({one.judge for one in checked}) > 1
    head = (*(["Judge"] if several else []), "Requirement", "Found", "Result", "Rests on")
    rows = [
        Row(
            cells=(
                *([one.judge] if several else []),
                one.name,
                "–" if one.verdict == "undefined" else one.found,
                one.verdict if one.verdict == "passed" else one.verdict.upper(),
                one.figure.rests if one.figure.value is not None else one.figure.why,
            )
        )
        for one in checked
    ]
    return Grid(name="gate", title=title, head=head, rows=tuple(rows), fixed=len(head))


def summary(checked: Sequence[Checked], title: str) -> str:
    """Markdown for a job's summary."""
    return markdown(grid(checked, safe(title)))


def _xml(text: str) -> str:
    return _NOT_XML.sub("\ufffd", text)
