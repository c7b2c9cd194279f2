"""Test cases for continuous integration: what is an error, a failure, a pass."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.junit import Counted, write_junit
from tests.viewer.runs import make_run


def exported(run: Path, out: Path, fail_below: str | None = None) -> tuple[Counted, ET.Element]:
    done = write_junit(Source(folder=run), out / "j.xml", fail_below=fail_below)
    return done, ET.parse(out / "j.xml").getroot()


def test_every_status_but_ok_is_an_error_and_a_label_passes(native: Path, tmp_path: Path):
    done, root = exported(native, tmp_path)
    # Five samples, two criteria: unparsed, backend_failed and a missing image twice each.
    assert (done.tests, done.failures, done.errors) == (10, 0, 6)
    assert [(s.get("tests"), s.get("errors")) for s in root] == [("5", "3")] * 2
    assert len(root.findall(".//testcase")) == 10
    types = {e.get("type") for e in root.findall(".//error")}
    assert {"unparsed", "backend_failed"} < types
    case = next(c for c in root.findall(".//testcase") if c.get("name") == "painter/s00")
    assert case.get("classname") == "dlebench.instruction_following"
    assert (case.findtext("system-out") or "").startswith("Flawless Execution (4)")


def test_what_is_worth_less_than_asked_for_fails(oracle: Path, tmp_path: Path):
    # IF: target 1 Wrong Action (2), target 2 Flawless Execution (4); VC: Perfect Consistency (4); s01 has no image.
    for limit, failures in (("2", 0), ("2.5", 1), ("Over Modification", 1), ("flawless  execution", 1), ("9", 3)):
        done, root = exported(oracle, tmp_path, limit)
        assert (limit, done.failures) == (limit, failures)
        assert len(root.findall(".//failure")) == failures
    done, _ = exported(oracle, tmp_path, "Over Modification")
    assert done.limitless == ("visual_consistency",)
    names = [c.get("name") for c in exported(oracle, tmp_path)[1].findall(".//testcase")]
    assert {"painter/s00 [target 1]", "painter/s00 [target 2]"} < set(names)


def test_an_unknown_label_names_those_that_there_are(native: Path, tmp_path: Path):
    with pytest.raises(ConfigError, match=r"neither a number nor a label.*flawless execution"):
        exported(native, tmp_path, "Superb")
    with pytest.raises(ConfigError, match="nan"):
        exported(native, tmp_path, "nan")


def test_hostile_names_and_texts_stay_text(tmp_path: Path):
    done, root = exported(make_run(tmp_path, count=2), tmp_path)
    assert done.tests == len(root.findall(".//testcase")) == 4
    assert any("<script>" in (c.get("name") or "") for c in root.iter("testcase"))
