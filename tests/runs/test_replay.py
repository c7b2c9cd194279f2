"""Replay: bit for bit from a recording, live tools beside recorded ones, misses that name the nearest, children."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.baseline.backend import PixelBaseline
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError
from editloupe.findings import Observation
from editloupe.runs.drift import compare
from editloupe.runs.lineage import Parent, read_whole
from editloupe.runs.recording import Live, read_recording
from editloupe.runs.rerun import Replay, Replayed, exit_code
from editloupe.runs.store import RunStore
from editloupe.tasks import task_from_json
from editloupe.tools.base import open_toolbox
from editloupe.tools.tolerance import EXACT, Tolerance
from editloupe.traces import GALLERY
from editloupe.traces.events import MessageEvent, ModelCall, ToolResult, ToolStarted
from editloupe.traces.read import read_trace
from editloupe.values import Box, View
from tests.conftest import final

ZOOM = (
    '<tool_call>{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [0, 0, 500, 500]}}</tool_call>'
)


def replayed(folder: Path, **how: object) -> list[Replayed]:
    """Every finding of a run, by id and criterion, or only those of `sample`."""
    store = RunStore.read(folder)
    wanted = how.pop("judge", "")
    live = how.pop("live", Live())
    replay = Replay(folder=folder, live=live, run=store.identity, **how)  # type: ignore[arg-type]
    uris = store.judges()
    return list(replay.tasks([f for f in store.current() if str(wanted) in uris[f.judge_id]]))


def test_the_gallery_replays_bit_for_bit():
    found = replayed(GALLERY)
    assert len(found) == 7
    assert {(one.verdict, one.message) for one in found} == {("same", "")}
    assert exit_code(found, live_model=False) == 0


def test_a_replay_asks_no_server_and_imports_no_torch():
    code = f"""
import sys
def watch(event, args):
    heavy = event == "import" and args[0].split(".")[0] in ("torch", "transformers")
    if heavy or event in ("socket.connect", "socket.sendto", "socket.getaddrinfo"):
        raise SystemExit(f"{{event}} {{args[:1]}}")
sys.addaudithook(watch)
sys.argv = ["editloupe", "replay", {str(GALLERY)!r}]
from editloupe.cli import main
main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "7 as recorded" in done.stdout


def picture(store: ImageStore, level: int, *, box: Box | None = None, text: str = "Crop 1", size: int = 40) -> Observation:
    image = store.add_array(np.full((size, size, 3), level, dtype=np.uint8))
    whole = Box.whole(width=size, height=size)
    view = View(image=image, origin=image, region=box or whole, window=whole, op="crop")
    # The origin stays the same, whatever is shown.
    origin = store.add_array(np.zeros((100, 100, 3), dtype=np.uint8))
    return Observation(text=text, views=(View(image=image, origin=origin, region=view.region, window=whole, op="crop"),))


def test_a_tolerance_bounds_pixels_boxes_and_text(store: ImageStore):
    was = picture(store, 100)
    how = {"step": 1, "tool": "t", "images": store}
    assert compare(was, was, tolerance=EXACT, **how).verdict == "identical"  # type: ignore[arg-type]
    # All pixels two levels off: PSNR = 10 log10(255² / 2²) = 42.11 dB.
    now = compare(was, picture(store, 102), tolerance=Tolerance(max_abs=2, psnr_db=42), **how)  # type: ignore[arg-type]
    assert (now.verdict, now.max_abs) == ("within", 2)
    assert now.psnr_db == round(10 * math.log10(255**2 / 4), 2)
    for tolerance in (Tolerance(max_abs=1, psnr_db=42), Tolerance(max_abs=2, psnr_db=43), EXACT):
        assert compare(was, picture(store, 102), tolerance=tolerance, **how).verdict == "drift"  # type: ignore[arg-type]
    # 20×20 moved by 2 px: 18·20 shared of 2·400 − 360 = 440, IoU 0.818. Its pictures show other places.
    before, after = picture(store, 100, box=Box(0, 0, 20, 20)), picture(store, 250, box=Box(2, 0, 22, 20))
    assert compare(before, after, tolerance=Tolerance(iou=0.8), **how).verdict == "within"  # type: ignore[arg-type]
    moved = compare(before, after, tolerance=Tolerance(iou=0.9), **how)  # type: ignore[arg-type]
    assert (moved.verdict, moved.told) == (
        "drift",
        ("box: IoU 0.818 of 0.9: recorded (0.0, 0.0, 20.0, 20.0), now (2.0, 0.0, 22.0, 20.0)",),
    )
    # Four of twenty letters are others.
    texts = [picture(store, 100, text=f"aaaa bbbb cccc dddd {end}") for end in ("eeee", "ffff")]
    assert compare(*texts, tolerance=Tolerance(text=0.2), **how).verdict == "within"  # type: ignore[arg-type]
    drifted = compare(*texts, tolerance=Tolerance(text=0.1), **how)  # type: ignore[arg-type]
    assert "20.0% differs, 10% may" in drifted.told[0]
    fewer = Observation(text="Crop 1")
    assert compare(was, fewer, tolerance=Tolerance(text=1), **how).told == ('pictures: recorded 1, now 0; it says "Crop 1"',)  # type: ignore[arg-type]


def test_a_task_comes_back_from_its_json():
    for finding in RunStore.read(GALLERY).current():
        header = read_trace(GALLERY / str(finding.trace)).header
        task = task_from_json(header.task)
        assert task_from_json(task.to_json()) == task


def test_twenty_turns_with_twenty_crops_cost_little_more_than_their_pictures_and_text(tmp_path: Path):
    from benchmarks.replay import long_trace

    assert long_trace(tmp_path / "run").ratio <= 1.1


# Misses


def test_a_loop_that_asks_otherwise_today_is_a_miss_that_names_the_first_difference(monkeypatch: pytest.MonkeyPatch):
    from editloupe.agent import nodes

    monkeypatch.setattr(nodes, "render", lambda name, **values: "Carry on.")
    (one,) = replayed(GALLERY, judge="closer-look")
    assert one.verdict == "miss"
    assert (
        "model call 2: this request is not the recorded one; it differs in message 3, parts 4, text, from character" in one.message
    )
    assert "Carry on." in one.message
    assert exit_code([one], live_model=False) == 4


def test_a_live_model_that_calls_otherwise_misses_the_nearest_recorded_call(gallery: Path):
    lmm = ScriptedLMM([ZOOM, final("Wrong Action")])
    (one,) = replayed(gallery, judge="closer-look", live=Live(backend=lmm), model="live")
    assert one.verdict == "miss"
    nearest = '{"target_image": "Edited Image", "bbox": [300, 350, 520, 620]}'
    assert f"is not recorded here; the nearest is call 3 (step 2): zoom_in {nearest}" in one.message
    # What was paid for is kept, and says why it ends.
    child = read_whole(gallery, gallery / str(one.trace))
    assert [e.ordinal for e in child.events if isinstance(e, ModelCall)] == [0]
    assert "the replay ends here" in child.events[-1].model_dump()["text"]


def test_a_live_model_that_calls_the_same_is_answered_from_the_recording(gallery: Path):
    store = RunStore.read(gallery)
    before = {path: path.read_bytes() for path in gallery.rglob("*.jsonl")}
    found = replayed(gallery, judge="baseline", live=Live(backend=PixelBaseline()), model="live")
    assert {one.verdict for one in found} == {"same"}
    for one in found:
        parent = next(f for f in store.current() if f.trace == one.name)
        child = read_whole(gallery, gallery / str(one.trace))
        own = [e.hash for e in child.events if isinstance(e, MessageEvent)]
        assert own == [e.hash for e in read_trace(gallery / str(parent.trace)).events if isinstance(e, MessageEvent)]
    assert {path: path.read_bytes() for path in before} == before


def test_a_live_model_with_live_tools_runs_the_calls_that_are_recorded_too(gallery: Path):
    live = Live(backend=PixelBaseline(), toolbox=open_toolbox(("localize_differences", "zoom_in")))
    found = replayed(gallery, judge="baseline", live=live, model="live", tools="live")
    children = [read_trace(gallery / str(one.trace)).events for one in found]
    calls = [sum(isinstance(e, ToolResult) for e in events) for events in children]
    assert sum(calls) > 0 and {one.compared for one in found} == {()}
    assert calls == [sum(isinstance(e, ToolStarted) for e in events) for events in children]


def test_new_episodes_runs_what_is_not_recorded_and_writes_a_child(gallery: Path):
    lmm = ScriptedLMM([ZOOM, final("Wrong Action")])
    live = Live(backend=lmm, toolbox=open_toolbox(("zoom_in",)))
    (one,) = replayed(gallery, judge="stumbling", live=live, model="live", record_mode="new_episodes")
    assert one.verdict == "differs"
    assert one.message == "recorded 'Flawless Execution', now 'Wrong Action'"
    trace = read_trace(gallery / str(one.trace))
    parent = Parent.of(trace.header)
    assert parent is not None
    assert (parent.trace, parent.step, parent.why) == (one.name, 0, "replay")
    assert [step.calls[0].name for step in trace.steps() if step.calls] == ["zoom_in"]
    assert trace.problems == ()


def test_all_asks_everything_anew_and_once_only_what_was_never_answered(gallery: Path):
    lmm = ScriptedLMM([final("Over Modification")])
    live = Live(backend=lmm, toolbox=open_toolbox(("zoom_in",)))
    (anew,) = replayed(gallery, judge="closer-look", live=live, record_mode="all")
    assert anew.finding is not None
    assert anew.finding.label == "Over Modification"
    asked = len(lmm.requests)
    (known,) = replayed(gallery, judge="closer-look", live=live, record_mode="once")
    assert (known.verdict, len(lmm.requests)) == ("same", asked)
    # A recording that ends before the first answer.
    path = gallery / anew.name
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:2]))
    (ended,) = replayed(gallery, judge="closer-look")
    assert (ended.verdict, "the recording ends after 0 model calls" in ended.message) == ("miss", True)
    (done,) = replayed(gallery, judge="closer-look", live=live, record_mode="once")
    assert done.finding is not None
    assert done.finding.label == "Over Modification"


def test_a_live_model_may_not_go_on_natively_where_it_cannot(gallery: Path):
    live = Live(backend=ScriptedLMM([final("Wrong Action")]))
    with pytest.raises(ConfigError, match="calls tools natively and scripted/test cannot"):
        live.check(read_recording(gallery, str(replayed(gallery, judge="native-calls")[0].name)).judge)


# Bad input


def trace_of(folder: Path, judge: str) -> Path:
    store = RunStore.read(folder)
    return next(folder / str(f.trace) for f in store.current() if judge in store.judges()[f.judge_id])


def test_a_tampered_message_is_named_and_not_replayed(gallery: Path):
    path = trace_of(gallery, "closer-look")
    path.write_text(path.read_text(encoding="utf-8").replace("Is the handle", "Is a handle"), encoding="utf-8")
    (one,) = replayed(gallery, judge="closer-look")
    assert (one.verdict, "hash mismatch" in one.message) == ("damaged", True)
    assert exit_code([one], live_model=False) == 1


def test_a_torn_line_and_an_unknown_event_are_told_and_the_rest_replays(gallery: Path):
    path = trace_of(gallery, "closer-look")
    with path.open("ab") as file:
        file.write(b'{"kind": "dream"}\n{"kind": "note", "te')
    (one,) = replayed(gallery, judge="closer-look")
    assert one.verdict == "same"
    assert ["unknown event 'dream'" in p or "the last line is cut off" in p for p in one.problems] == [True, True]


def test_a_lost_call_a_newer_schema_and_a_lost_file_are_damage_that_is_named(gallery: Path):
    path = trace_of(gallery, "closer-look")
    whole = path.read_bytes()
    lines = whole.splitlines(keepends=True)
    lost = next(i for i, line in enumerate(lines) if b'"kind":"tool_call"' in line)
    path.write_bytes(b"".join(lines[:lost] + lines[lost + 1 :]))
    (one,) = replayed(gallery, judge="closer-look")
    assert (one.verdict, "a tool call is missing from the trace" in one.message) == ("damaged", True)
    path.write_bytes(whole.replace(b'"version":3', b'"version":99', 1))
    assert "update editloupe" in replayed(gallery, judge="closer-look")[0].message
    path.unlink()
    assert "cannot be read" in replayed(gallery, judge="closer-look")[0].message


def test_a_trace_of_another_judge_or_run_is_named(gallery: Path):
    path, other = trace_of(gallery, "closer-look"), trace_of(gallery, "stumbling")
    whole = path.read_bytes()
    path.write_bytes(other.read_bytes())
    assert "the trace of another task or judge" in replayed(gallery, judge="closer-look")[0].message
    run = RunStore.read(gallery).identity.encode()
    path.write_bytes(whole.replace(run, b"0123456789abcdef"))
    assert "comes from another run (0123456789abcdef" in replayed(gallery, judge="closer-look")[0].message


def test_a_missing_blob_is_not_compared_by_a_drift_check(gallery: Path):
    (one,) = replayed(gallery, judge="native-calls")
    source = read_recording(gallery, one.name).views["Edited Image"].image.sha256
    next((gallery / "blobs").glob(f"*/{source}.*")).unlink()
    live = Live(toolbox=open_toolbox(("zoom_in", "localize_differences")))
    (one,) = replayed(gallery, judge="native-calls", live=live, tools="live")
    assert {c.verdict for c in one.compared} == {"not compared"}
    assert source[:12] in one.compared[0].told[0]
    # What could not be looked at is no success.
    assert exit_code([one], live_model=False) == 1
