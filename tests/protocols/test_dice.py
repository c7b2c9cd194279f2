"""DICE: wave 1 lists differences, wave 2 asks about each; scores, options, runs that were killed, wrong data."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import RateLimited, Rejected
from editloupe.runs.outcome import Outcome
from editloupe.scores import Score
from editloupe.values import ImageRef, Json, Sample, Turn
from tests.conftest import final
from tests.setups import open_with, run_over

STORE = ImageStore()
FOLDER = Path(tempfile.mkdtemp())


def picture(array: np.ndarray) -> ImageRef:
    ref = STORE.add_array(array)
    path = FOLDER / f"{ref.sha256}.png"
    path.write_bytes(STORE.data(ref))
    return replace(ref, path=path)


SOURCE, EDITED = (picture(np.full((500, 1000, 3), level, np.uint8)) for level in (3, 4))
OF_SAMPLES = ("correct", "unwanted", "no_change")


def edit(id: str = "7", *, edited: ImageRef | None = EDITED, ask: str = "Paint the vase blue.", **more: Any) -> Sample:
    return Sample(id=id, source=SOURCE, turns=(Turn(instruction=ask, edited=edited),), **more)


def entry(op: str, object_: str, *box: float, **more: Json) -> dict[str, Json]:
    return {"op": op, "object": object_, "box": list(box), **more}


VASE = entry("EDIT", "vase", 100, 200, 300, 400)
CAT = entry("REMOVE", "cat", 500, 0, 700, 500)
"""Of the width 0.2, of the height 0.5."""


def listed(*entries: Mapping[str, Json]) -> str:
    return final(json.dumps({"differences": list(entries)}))


def truth(*items: dict[str, Json]) -> dict[str, Json]:
    return {"differences": list(items)}


def script(differences: str | Exception, said: Mapping[str, Any]) -> ScriptedLMM:
    """A model that lists differences and says yes or no by the object that it is asked about."""

    def answer(request: Request) -> Any:
        asked = request.messages[0].text
        if "Editing instruction" not in asked:
            return differences
        named = re.search(r'named "(.*)"', asked)
        found = said.get(named[1] if named else "", "no")
        return found if isinstance(found, Exception) else final(found)

    return ScriptedLMM(answer)


def run(
    tmp_path: Path, backend: ScriptedLMM, sample: Sample | None = None, *, name: str = "run", **options: Any
) -> tuple[Outcome, dict[tuple[str, str], Score]]:
    """Judge a sample; return the outcome and the scores by (metric, part)."""
    outcome = run_over(
        open_with(protocol="dice", backend=backend, options=options),
        Loaded(format="python", samples=(sample or edit(),), rejected=()),
        tmp_path / name,
        concurrency=1,
    )
    return outcome, {(s.metric, s.part): s for s in outcome.scores}


def of_sample(scores: Mapping[tuple[str, str], Score]) -> list[Any]:
    """Value, or why it is missing, of the three figures of Table 3."""
    return [scores[name, ""].missing or scores[name, ""].value for name in OF_SAMPLES]


def test_each_difference_is_asked_about_by_itself_and_the_detector_never_sees_the_instruction(tmp_path: Path) -> None:
    backend = script(listed(VASE, CAT), {"vase": "yes", "cat": "no"})
    outcome, scores = run(tmp_path, backend)
    found = sorted((f.metric, f.part, f.status) for f in outcome.findings)
    assert found == [*(("coherence", f"difference {n}", "ok") for n in (1, 2)), ("differences", "", "ok")]
    assert of_sample(scores) == [1, pytest.approx(0.2 * 0.5), 0]
    assert [scores["coherence", f"difference {n}"].value for n in (1, 2)] == [1, 0]
    assert scores["detected", "difference 1"].value == pytest.approx(0.2 * 0.2)
    box = {"x0": 0.5, "y0": 0, "x1": 0.7, "y1": 0.5, "width": 1000, "height": 500}
    assert {"op": "REMOVE", "object": "cat", **box}.items() <= scores["detected", "difference 2"].dims.items()
    assert scores["correct", ""].parts == ("coherent", "incoherent")
    first, *others = (request.messages[0] for request in backend.requests)
    assert "Paint the vase blue." not in first.text and all("Paint the vase blue." in other.text for other in others)
    assert [part.alias for part in first.images] == ["Original Image", "Edited Image"]


def test_no_change_is_an_answer_and_what_failed_or_is_missing_is_no_number(tmp_path: Path) -> None:
    outcome, scores = run(tmp_path, script(listed(), {}))
    assert len(outcome.findings) == 1 and of_sample(scores) == [0, 0, 1]
    unread, broken = final("I cannot tell what changed."), Rejected("no such model")
    for reply, edited, status in (
        (unread, EDITED, "unparsed"), (broken, EDITED, "backend_failed"), (listed(VASE), None, "missing_output"),
    ):  # fmt: skip
        outcome, scores = run(tmp_path, script(reply, {"vase": "yes"}), edit(edited=edited), name=status)
        assert [f.metric for f in outcome.findings] == ["differences"] and of_sample(scores) == [status] * 3


def test_a_run_killed_between_the_waves_resumes_with_the_coherence_tasks_only(tmp_path: Path) -> None:
    _, scores = run(tmp_path, script(listed(VASE, CAT), {"vase": RateLimited("busy"), "cat": RateLimited("busy")}))
    assert of_sample(scores) == ["backend_failed", "backend_failed", 0]
    up = script(RuntimeError("asked again"), {"vase": "yes", "cat": "no"})  # type: ignore[arg-type]
    _, scores = run(tmp_path, up)
    assert ["Editing instruction" in request.messages[0].text for request in up.requests] == [True, True]
    assert of_sample(scores) == [1, pytest.approx(0.1), 0]


def test_given_areas_are_judged_and_held_against_what_people_say(tmp_path: Path) -> None:
    items = truth(
        {"op": "edit", "object": "vase", "box": [0.1, 0.2, 0.3, 0.4], "coherent": True},
        {"op": "REMOVE", "object": "cat", "box": [0.5, 0, 0.7, 0.5], "coherent": True},
        {"op": "ADD", "object": "dog", "box": [0.5, 0.5, 0.7, 0.6]},
    )
    backend = script(RuntimeError("nobody asks for differences"), {"vase": "yes"})  # type: ignore[arg-type]
    _, scores = run(tmp_path, backend, edit(extra=items), detector="given")
    assert len(backend.requests) == 3
    right = {part: (s.value, s.dims["given_kind"]) for (metric, part), s in scores.items() if metric == "coherence_right"}
    assert right == {"difference 1": (1, "coherent"), "difference 2": (0, "coherent")}
    given = {part: s for (metric, part), s in scores.items() if metric == "given"}
    assert [s.dims["coherent"] for s in given.values()] == [1, 1, None]
    assert given["area 3"].value == pytest.approx(0.2 * 0.1)
    # Beside a detector they are truth alone.
    _, scores = run(tmp_path, script(listed(CAT), {"cat": "no"}), edit(extra=items), name="beside")
    assert scores["given", "area 1"].dims["op"] == "EDIT" and "coherence_right" not in {metric for metric, _ in scores}
    # People who listed nothing say so also where the detector fails; what a detector listed says nothing of them.
    sure: dict[str, Json] = {"op": "EDIT", "object": "vase", "box": [0.1, 0.2, 0.3, 0.4], "confidence": 0.5}
    unsure = {name: value for name, value in sure.items() if name != "confidence"}
    for name, extra, count in (("none", truth(), 0), ("sure", truth(sure), None), ("both", truth(sure, unsure), 1)):
        _, scores = run(tmp_path, script(final("I cannot tell."), {}), edit(extra=extra), name=name)
        assert scores["no_change", ""].value is None and scores["no_change", ""].dims["areas_given"] == count
        assert (("given", "area 1") in scores) == bool(count)
