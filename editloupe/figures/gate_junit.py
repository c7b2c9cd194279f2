"""Write what a gate requires as JUnit XML, for the pages on which continuous integration shows tests."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree as ET

from editloupe import files
from editloupe.errors import StorageError
from editloupe.figures.gate import Checked

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OUTCOMES = {"passed": "system-out", "failed": "failure", "undefined": "error"}


def write_gate_junit(checked: Iterable[Checked], path: Path) -> None:
    """Write a test case for each requirement and judge: a failure, or an error where there is no figure.

    Raises StorageError.
    """
    found = list(checked)
    verdicts = [one.verdict for one in found]
    counts = {
        "tests": len(found),
        "failures": verdicts.count("failed"),
        "errors": verdicts.count("undefined"),
        "skipped": 0,
    }
    told = {"name": "editloupe gate", **{name: str(count) for name, count in counts.items()}, "time": "0.000"}
    root = ET.Element("testsuites", told)
    suite = ET.SubElement(root, "testsuite", told)
    for one in found:
        case = ET.SubElement(suite, "testcase", classname=_xml(one.judge), name=_xml(one.name), time="0.000")
        outcome = ET.SubElement(case, _OUTCOMES[one.verdict])
        if one.verdict == "passed":
            outcome.text = _xml(one.summary)
        else:
            outcome.attrib |= {"type": "gate" if one.verdict == "failed" else "undefined", "message": _xml(one.summary)}
    ET.indent(root)
    try:
        files.write_whole(path, ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold, not even escaped."""
    return _NOT_XML.sub("\ufffd", text)
