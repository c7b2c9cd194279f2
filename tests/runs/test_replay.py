"""Replay: bit for bit from a recording, live tools beside recorded ones, misses that name the nearest, children."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from editloupe.agent import nodes
from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.images import ImageStore
from editloupe.findings import Observation
from editloupe.runs.drift import compare
from editloupe.runs.lineage import Parent, read_whole
from editloupe.runs.recording import Live, read_recording
from editloupe.runs.replay import Replay, Replayed, exit_code
from editloupe.runs.store import RunStore
from editloupe.tools.base import open_toolbox
from editloupe.tools.tolerance import EXACT, Tolerance
from editloupe.traces import GALLERY
from editloupe.traces.events import ModelCall
from editloupe.traces.read import read_trace
from editloupe.values import Box, View
from tests.conftest import final

CALL = '{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [0, 0, 500, 500]}}'
ZOOM = f"<tool_call>{CALL}</tool_call>"


def replayed(folder: Path, **how: object) -> list[Replayed]:
    """Every finding of a run, or only those of `judge`."""
    store, wanted = RunStore.read(folder), str(how.pop("judge", ""))
    replay = Replay(folder=folder, run=store.identity, **{"live": Live(), **how})  # type: ignore[arg-type]
    return list(replay.tasks([f for f in store.current() if wanted in store.judges()[f.judge_id]]))


def test_a_tolerance_bounds_pixels_boxes_and_text(store: ImageStore):
    origin = store.add_array(np.zeros((100, 100, 3), dtype=np.uint8))

    def seen(level: int = 100, left: float = 0, text: str = "Crop 1") -> Observation:
        """A crop of one gray level, cut from 20×20 px of the origin."""
        image = store.add_array(np.full((40, 40, 3), level, dtype=np.uint8))
        window, region = Box.whole(width=40, height=40), Box(left, 0, left + 20, 20)
        return Observation(text=text, views=(View(image=image, origin=origin, region=region, window=window, op="crop"),))

    moved = "box: IoU 0.818 of 0.9: recorded (0.0, 0.0, 20.0, 20.0), now (2.0, 0.0, 22.0, 20.0)"
    letters = seen(text="aaaa bbbb cccc dddd eeee"), seen(text="aaaa bbbb cccc dddd ffff")
    levels = "picture 1: differs by up to 2 of 255, PSNR 42.1"
    for before, after, tolerance, verdict, told in (
        (seen(), seen(), EXACT, "identical", ""),
        # All pixels two levels off: PSNR = 10 log10(255² / 2²) = 42.11 dB.
        (seen(), seen(102), Tolerance(max_abs=2, psnr_db=42), "within", ""),
        (seen(), seen(102), Tolerance(max_abs=1, psnr_db=42), "drift", levels),
        (seen(), seen(102), Tolerance(max_abs=2, psnr_db=43), "drift", "(at most 2, at least 43 dB)"),
        # 20×20 moved by 2 px: 18·20 shared of 2·400 − 360 = 440, IoU 0.818. Its pictures show other places.
        (seen(), seen(250, left=2), Tolerance(iou=0.8), "within", ""),
        (seen(), seen(250, left=2), Tolerance(iou=0.9), "drift", moved),
        # Four of twenty letters are others.
        (*letters, Tolerance(text=0.2), "within", ""),
        (*letters, Tolerance(text=0.1), "drift", "text: 20.0% differs, 10% may: from character 21: recorded"),
        (seen(), Observation(text="Crop 1"), Tolerance(text=1), "drift", "pictures: recorded 1, now 0"),
        (seen(), Observation(text="No crop", error=True), EXACT, "drift", "an error: recorded false, now true"),
    ):
        found = compare(before, after, step=1, tool="t", tolerance=tolerance, images=store)
        assert (found.verdict, told in " ".join(found.told)) == (verdict, True), found
    found = compare(seen(), seen(102), step=1, tool="t", tolerance=Tolerance(max_abs=2, psnr_db=42), images=store)
    assert (found.max_abs, found.psnr_db) == (2, round(10 * math.log10(255**2 / 4), 2))


# Misses


def test_a_loop_that_asks_otherwise_today_is_a_miss_that_names_the_first_difference(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(nodes, "render", lambda name, **values: "Carry on.")
    (one,) = replayed(GALLERY, judge="closer-look")
    told = "model call 2: this request is not the recorded one; it differs in message 3, parts 4, text, from character 1: "
    assert one.verdict == "miss" and one.message.startswith(told) and one.message.endswith("now 'Carry on.'")
    assert exit_code([one], live_model=False) == 4


def test_a_live_model_that_calls_otherwise_misses_what_is_recorded(gallery: Path):
    lmm = ScriptedLMM([ZOOM, final("Wrong Action")])
    (one,) = replayed(gallery, judge="closer-look", live=Live(backend=lmm))
    assert one.verdict == "miss" and "is not recorded here; recorded is, in step 1: " in one.message
    # What was paid for is kept, and says why it ends.
    child = read_whole(gallery, gallery / str(one.trace))
    assert [e.ordinal for e in child.events if isinstance(e, ModelCall)] == [0]
    assert "the replay ends here" in child.events[-1].model_dump()["text"]


def test_a_live_model_with_live_tools_answers_anew_and_writes_a_child(gallery: Path):
    lmm = ScriptedLMM([ZOOM, final("Wrong Action")])
    live = Live(backend=lmm, toolbox=open_toolbox(("zoom_in",)))
    (one,) = replayed(gallery, judge="stumbling", live=live)
    assert (one.verdict, one.message) == ("differs", "recorded 'Flawless Execution', now 'Wrong Action'")
    assert (exit_code([one], live_model=True), exit_code([one], live_model=False)) == (0, 4)
    trace = read_trace(gallery / str(one.trace))
    assert [step.calls[0].name for step in trace.steps() if step.calls] == ["zoom_in"]
    parent = Parent.of(trace.header)
    assert parent and (parent.trace, parent.step, parent.why) == (one.name, 0, "replay") and trace.problems == ()


# Bad input


def trace_of(folder: Path, judge: str) -> Path:
    store = RunStore.read(folder)
    return next(folder / str(f.trace) for f in store.current() if judge in store.judges()[f.judge_id])


def test_damage_is_named_and_not_replayed(gallery: Path):
    path, run = trace_of(gallery, "closer-look"), RunStore.read(gallery).identity.encode()
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    call = next(line for line in lines if b'"kind":"tool_call"' in line)
    for content, told in (
        (whole.replace(b"Is the handle", b"Is a handle"), "hash mismatch"),
        (whole.replace(call, b""), "a tool call is missing from the trace"),
        (whole.replace(b'"version":3', b'"version":99', 1), "update editloupe"),
        (whole.replace(b'"kind":"ask"', b'"kind":"walk"', 1), "its content is not of the expected shape"),
        (trace_of(gallery, "stumbling").read_bytes(), "the trace of another task or judge"),
        (whole.replace(run, b"0123456789abcdef"), "comes from another run (0123456789abcdef"),
        (b"".join(lines[:1]), "cannot be replayed: it holds no question"),
        (None, "cannot be read"),
    ):
        path.unlink() if content is None else path.write_bytes(content)
        (one,) = replayed(gallery, judge="closer-look")
        assert (one.verdict, told in one.message) == ("damaged", True), (told, one.message)
        assert exit_code([one], live_model=False) == 1


def test_a_missing_blob_is_not_compared_by_a_drift_check(gallery: Path):
    (one,) = replayed(gallery, judge="native-calls")
    source = read_recording(gallery, one.name).views["Edited Image"].image.sha256
    next((gallery / "blobs").glob(f"*/{source}.*")).unlink()
    live = Live(toolbox=open_toolbox(("zoom_in", "localize_differences")))
    (one,) = replayed(gallery, judge="native-calls", live=live)
    assert {c.verdict for c in one.compared} == {"not compared"} and source[:12] in one.compared[0].told[0]
    # What could not be looked at is no success.
    assert exit_code([one], live_model=False) == 1
