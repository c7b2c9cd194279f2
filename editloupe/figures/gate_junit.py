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


def write_gate_junit(checked: Iterable[Checked], path: Path) -> None:
    """Write a test case for each requirement and judge: a failure, or an error where there is no figure.

    Raises StorageError.
    """
    found = list(checked)
    root = ET.Element("testsuites", name="editloupe gate")
    suite = ET.SubElement(root, "testsuite", name="editloupe gate")
    for one in found:
        case = ET.SubElement(suite, "testcase", classname=_xml(one.judge), name=_xml(one.name), time="0.000")
        _add_outcome(case, one)
    verdicts = [one.verdict for one in found]
    for element in (root, suite):
        element.set("tests", str(len(found)))
        element.set("failures", str(verdicts.count("failed")))
        element.set("errors", str(verdicts.count("undefined")))
        element.set("skipped", "0")
        element.set("time", "0.000")
    ET.indent(root)
    try:
        files.write_whole(path, ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def _add_outcome(case: ET.Element, one: Checked) -> None:
    if one.verdict == "passed":
        ET.SubElement(case, "system-out").text = _xml(one.summary)
    else:
        tag, kind = ("failure", "gate") if one.verdict == "failed" else ("error", "undefined")
        ET.SubElement(case, tag, type=kind, message=_xml(one.summary))


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold, not even escaped."""
    return _NOT_XML.sub("\ufffd", text)
