"""Probes: questions beside their truth, verdicts that are right, wrong or neither, and probes that are not as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.protocols.base import Known, make_protocol
from editloupe.runs.outcome import Outcome
from editloupe.runs.store import RunStore
from editloupe.tasks import Ask, Measure
from editloupe.values import Sample
from tests.conftest import final
from tests.protocols.probe_files import IF, VC, draw_probes
from tests.setups import open_with, run_over

RIGHT_IF, RIGHT_VC = f"right_{IF}", f"right_{VC}"


def samples_of(folder: Path) -> tuple[Sample, ...]:
    return load(folder, store=ImageStore()).samples


def question_of(request: Request) -> str:
    return " ".join(part.text for message in request.messages for part in message.parts if hasattr(part, "text"))


def always(instruction_following: str, visual_consistency: str) -> ScriptedLMM:
    """Gives one label for each criterion, whatever it sees."""

    def answer(request: Request) -> str:
        return final(visual_consistency if "Perfect Consistency" in question_of(request) else instruction_following)

    return ScriptedLMM(answer)


FLATTERS = ("Flawless Execution", "Perfect Consistency")


def judged(folder: Path, out: Path, backend: ScriptedLMM, **given: Any) -> Outcome:
    setup = open_with(protocol="probes", backend=backend, **{"mode": "plain", **given})
    return run_over(setup, folder, out)


def values(scores: Any, metric: str) -> dict[str, float | str | None]:
    """Sample id → value, or the status for want of one."""
    return {s.sample_id: s.missing if s.value is None else s.value for s in scores if s.metric == metric}


def test_each_question_stands_beside_its_truth(tmp_path: Path) -> None:
    flawless, restyled = samples_of(draw_probes(tmp_path, ["flawless", "restyled"]))
    protocol = make_protocol("probes", {"mode": "plain"})
    tasks = {task.metric: task for task in protocol.plan([flawless], Known())}
    assert list(tasks) == [IF, f"key_{IF}", VC, f"key_{VC}"]
    key, asked = tasks[f"key_{IF}"], tasks[IF]
    assert isinstance(key, Measure) and isinstance(asked, Ask)
    assert (key.measure, key.views) == ("key", ())
    assert key.args == {"answer": {"kind": "choice", "name": "Flawless Execution"}}
    # What is asked is what the protocol asks that is named, in its words.
    theirs = next(t for t in make_protocol("dlebench", {"mode": "plain"}).plan([flawless], Known()) if t.metric == IF)
    assert isinstance(theirs, Ask) and (asked.prompt, asked.views, asked.answer) == (
        theirs.prompt,
        theirs.views,
        theirs.answer,
    )
    # A restyled scene has no truth of Instruction Following: it is asked, and nobody is right or wrong about it.
    assert [task.metric for task in protocol.plan([restyled], Known())] == [IF, VC, f"key_{VC}"]


def test_a_truth_is_a_finding_of_kind_key_and_a_verdict_is_right_or_wrong(tmp_path: Path) -> None:
    folder = draw_probes(tmp_path / "p", ["flawless", "wrong_colour", "one_collateral", "restyled"])
    outcome = judged(folder, tmp_path / "run", always(*FLATTERS))
    # It calls everything flawless: IF is right for p00 and p02, VC for p00 and p01, and p03 has no truth of IF.
    assert values(outcome.scores, RIGHT_IF) == {"p00": 1.0, "p01": 0.0, "p02": 1.0, "p03": "not_defined"}
    assert values(outcome.scores, RIGHT_VC) == {"p00": 1.0, "p01": 1.0, "p02": 0.0, "p03": 0.0}
    assert values(outcome.scores, IF) == dict.fromkeys(["p00", "p01", "p02", "p03"], 4.0)
    store = RunStore.read(tmp_path / "run")
    keys = [f for f in store.findings.values() if f.metric.startswith("key_")]
    # Two of each probe, one of the restyled.
    assert len(keys) == 7 and {f.role for f in keys} == {"measure"}
    assert {store.info["judges"][f.judge_id]["kind"] for f in keys} == {"key"}  # type: ignore[index, call-overload]
    (score,) = (s for s in outcome.scores if s.metric == RIGHT_IF and s.sample_id == "p01")
    assert dict(score.dims) == {
        "edit_type": "Change Color", "target_area": 0.0625, "target_width": 0.25, "target_height": 0.25,
        "failure": "wrong_colour", "area": 0.1, "nuisance": None, "trap": None, "twin": None, "scene": "scene 1",
    }  # fmt: skip
    assert len(score.findings) == 2
