"""Protocols of another package over HTTP: waves, roles, measures, metrics of several kinds, and what becomes the reward."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.runs.store import RunStore
from tests.conftest import final
from tests.service.loopback_judge import edit, serving

pytestmark = pytest.mark.usefixtures("toys")


def parser(*objects: str) -> ScriptedLMM:
    """Who names the objects of an instruction."""
    listed = ", ".join(f'"{name}"' for name in objects)
    return ScriptedLMM(lambda _: final(f'{{"objects": [{listed}]}}'), name="parser")


def keeps_mugs(request: Request) -> Any:
    return final("yes" if "Is the mug there?" in request.messages[0].text else "no")


def test_what_a_finding_makes_ready_is_judged_too(tmp_path: Path):
    reader = parser("mug", "table")
    with serving(tmp_path / "run", keeps_mugs, protocol="objects", options={}, roles={"parser": reader}) as client:
        status, _, said = client.ask("/v1/judge", edit(1))
        assert status == 200, said
        again = client.ask("/v1/judge", edit(1, criteria=["kept"]))[2]
        other = client.ask("/v1/judge", edit(1, repeat=1))[2]
    found = [(f["metric"], f["part"], f["role"], f["status"], f["label"], f["reused"]) for f in said["findings"]]
    assert found == [
        ("objects", "", "parser", "ok", None, False),
        ("kept", "mug", "judge", "ok", "yes", False),
        ("kept", "table", "judge", "ok", "no", False),
    ]
    assert said["findings"][0]["answer"]["data"] == {"objects": ["mug", "table"]}
    # One of two objects is kept.
    assert [(s["metric"], s["turn"], s["part"], s["value"]) for s in said["scores"]] == [("kept", 0, "", 0.5)]
    assert said["reward"] == again["reward"] == {"value": 50.0, "why": None, "scores": {"kept": 50.0}}
    assert [f["reused"] for f in again["findings"]] == [True, True, True]
    # Another repeat asks the judge again, and the parser once.
    assert [f["reused"] for f in other["findings"]] == [True, False, False]
    assert len(reader.requests) == 1
    store = RunStore.read(tmp_path / "run")
    assert not store.problems and len(store.findings) == 5
    assert sorted(store.roles().values()) == ["judge", "parser"]


def test_a_measure_is_computed_once_and_needs_no_model(tmp_path: Path):
    with serving(tmp_path / "run", None, protocol="pixels", options={}) as client:
        first = client.ask("/v1/judge", edit(1))[2]
        share = client.ask("/v1/judge", edit(1, criteria=["share"]))[2]
    assert [(f["metric"], f["role"], f["value"], f["reused"]) for f in first["findings"]] == [
        ("share", "measure", 1.0, False),
        ("red", "measure", 120.0, False),
    ]
    # A mean of the red channel has no bounds, and hence no place on 0 to 100.
    assert first["reward"]["value"] is None and first["reward"]["why"].startswith("red: a metric without bounds")
    # Every pixel has changed, and the less the better.
    assert share["reward"] == {"value": 0.0, "why": None, "scores": {"share": 0.0}}
    assert [(f["metric"], f["reused"]) for f in share["findings"]] == [("share", True)]
    store = RunStore.read(tmp_path / "run")
    assert not store.problems and len(store.findings) == 2
    assert list(store.roles().values()).count("measure") == 2
    assert len(list((tmp_path / "run" / "traces").rglob("*.jsonl"))) == 2


def test_metrics_that_are_not_asked_for_are_not_judged(tmp_path: Path):
    with serving(tmp_path / "run", lambda _: final("8"), protocol="stars", options={}) as client:
        one = client.ask("/v1/judge", edit(1, criteria=["follows"]))[2]
        assert [f["metric"] for f in one["findings"]] == ["follows"]
        assert one["reward"]["scores"] == {"follows": 80.0} and len(client.lmm.requests) == 1
        # A metric that rests on others has a score if they are asked for too.
        assert client.ask("/v1/judge", edit(1, criteria=["O"]))[2]["reward"]["why"] == "overall: not judged yet"
        whole = client.ask("/v1/judge", edit(1))[2]
        assert whole["reward"]["scores"] == pytest.approx({"follows": 80.0, "keeps": 80.0, "overall": 80.0})
        status, _, said = client.ask("/v1/judge", edit(1, criteria=["beauty"]))
        assert status == 422 and "no metric 'beauty'; there are: follows, keeps, overall (O)" in said["error"]
