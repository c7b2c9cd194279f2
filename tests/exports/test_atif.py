"""Trajectories: the rules of ATIF v1.7 written out, and the `atif` package's own check where it is installed."""

from __future__ import annotations

import json
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from editloupe.errors import ConfigError
from editloupe.exports.atif import write_atif
from editloupe.exports.episodes import Source
from editloupe.runs.store import RunStore
from tests.exports.runs import add_fork, baseline_run

AGENT_ONLY = {"model_name", "reasoning_content", "tool_calls", "metrics"}
TYPES = {"image/jpeg", "image/png", "image/gif", "image/webp"}


def exported(run: Path, out: Path, **options: Any) -> dict[str, dict[str, Any]]:
    """Trace → trajectory, each held to the rules."""
    source = Source(folder=run, **options)
    count = write_atif(source, out)
    assert source.problems == []
    found = {p: json.loads(p.read_text(encoding="utf-8")) for p in sorted(out.rglob("*.json"))}
    assert len(found) == count
    for path, trajectory in found.items():
        keeps_the_rules(trajectory, path)
    return {trajectory["trajectory_id"]: trajectory for trajectory in found.values()}


def keeps_the_rules(trajectory: dict[str, Any], path: Path) -> None:
    assert trajectory["schema_version"] == "ATIF-v1.7"
    assert trajectory["agent"]["name"] and trajectory["agent"]["version"]
    for number, step in enumerate(trajectory["steps"], start=1):
        assert step["step_id"] == number
        assert step["source"] in ("system", "user", "agent")
        assert step["source"] == "agent" or not AGENT_ONLY & set(step)
        datetime.fromisoformat(step["timestamp"])
        calls = {call["tool_call_id"] for call in step.get("tool_calls", [])}
        assert len(calls) == len(step.get("tool_calls", []))
        results = step.get("observation", {"results": []})["results"]
        assert {r["source_call_id"] for r in results if "source_call_id" in r} <= calls
        if step.get("llm_call_count") == 0:
            assert "metrics" not in step and "reasoning_content" not in step
        for content in (step["message"], *(r["content"] for r in results)):
            for part in () if isinstance(content, str) else content:
                assert set(part) == ({"type", "text"} if part["type"] == "text" else {"type", "source"})
                if part["type"] == "image":
                    assert part["source"]["media_type"] in TYPES
                    where = part["source"]["path"]
                    assert where.startswith("https://") or (path.parent / where).is_file()


def of_sample(trajectories: dict[str, dict[str, Any]], sample: str) -> dict[str, Any]:
    return next(
        t
        for t in trajectories.values()
        if t["extra"]["task"]["about"]["sample_id"] == sample
        and t["extra"]["task"]["metric"] == "instruction_following"
        and "parent" not in t["extra"]
    )


def test_a_trajectory_has_the_question_the_calls_the_observations_and_the_label(native: Path, tmp_path: Path):
    trajectory = of_sample(exported(native, tmp_path / "out"), "s00")
    question, look, verdict = trajectory["steps"]
    assert question["source"] == "user"
    assert [p["type"] for p in question["message"]].count("image") == 2
    assert [c["function_name"] for c in look["tool_calls"]] == ["zoom_in"]
    assert look["reasoning_content"] == "I should look."
    assert look["metrics"]["prompt_tokens"] == 1200 and look["metrics"]["cached_tokens"] == 200
    observed, going_on = look["observation"]["results"]
    assert observed["source_call_id"] == "a" and [p["type"] for p in observed["content"]] == ["text", "text", "image"]
    assert "source_call_id" not in going_on and "Observation of" not in going_on["content"]
    assert "Flawless Execution" in verdict["message"] and "observation" not in verdict
    # 1,200 + 1,500 tokens in, 34 + 20 out.
    metrics = trajectory["final_metrics"]
    assert (metrics["total_prompt_tokens"], metrics["total_completion_tokens"], metrics["total_steps"]) == (2700, 54, 3)
    assert trajectory["extra"]["finding"]["label"] == "Flawless Execution"
    assert trajectory["agent"]["tool_definitions"][0]["function"]["name"] == "zoom_in"


def test_a_failure_of_the_endpoint_and_an_unusable_label_are_told(native: Path, tmp_path: Path):
    trajectories = exported(native, tmp_path / "out")
    failed = of_sample(trajectories, "s02")
    assert [s["source"] for s in failed["steps"]] == ["user", "system"]
    assert "HTTP 503" in failed["steps"][1]["message"]
    assert failed["extra"]["finding"]["status"] == "backend_failed"
    assert of_sample(trajectories, "s01")["extra"]["finding"]["label"] is None


def test_a_fork_copies_its_parents_steps_and_marks_them(native: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(native, run)
    name = add_fork(run)
    fork = exported(run, tmp_path / "out")[name]
    assert [s.get("is_copied_context", False) for s in fork["steps"]] == [True, True, False, False]
    assert fork["steps"][2]["message"] == "Look again.", "what the fork itself put there"
    assert fork["steps"][1]["observation"]["results"][0]["source_call_id"] == "a"
    assert fork["agent"]["model_name"] == "other"
    # Its own request only: what was copied was paid for by the parent.
    assert fork["final_metrics"]["total_prompt_tokens"] == 7


def test_images_lie_beside_or_are_addresses(native: Path, tmp_path: Path):
    exported(native, tmp_path / "beside")
    assert list((tmp_path / "beside" / "images").rglob("*.png"))
    addressed = exported(native, tmp_path / "web", blob_base_url="https://x.test/blobs")
    assert not (tmp_path / "web" / "images").exists()
    assert "https://x.test/blobs/" in json.dumps(addressed)


def test_a_lost_image_is_said_to_be_lost(native: Path, tmp_path: Path):
    run = tmp_path / "run"
    shutil.copytree(native, run)
    shutil.rmtree(run / "blobs")
    steps = of_sample(exported(run, tmp_path / "out"), "s00")["steps"]
    assert "is not in the run folder" in json.dumps(steps)


def test_trajectories_do_not_land_among_other_files_but_may_be_written_again(native: Path, tmp_path: Path):
    exported(native, tmp_path / "out")
    exported(native, tmp_path / "out")
    with pytest.raises(ConfigError, match="holds other files"):
        write_atif(Source(folder=native), native)


def test_one_sample_alone(native: Path, tmp_path: Path):
    found = exported(native, tmp_path / "out", samples=("painter/s03",))
    assert {t["extra"]["task"]["about"]["sample_id"] for t in found.values()} == {"s03"}


def test_the_atif_package_takes_every_trajectory(native: Path, oracle: Path, tmp_path: Path):
    atif = pytest.importorskip("atif", reason="the package atif is not here")
    run = tmp_path / "run"
    shutil.copytree(native, run)
    add_fork(run)
    for number, folder in enumerate((run, oracle, baseline_run(tmp_path / "baseline"))):
        out = tmp_path / f"out{number}"
        assert exported(folder, out)
        for path in out.rglob("*.json"):
            atif.Trajectory.model_validate_json(path.read_text(encoding="utf-8"))
    assert RunStore.read(run).current()
