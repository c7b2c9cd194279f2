"""A run folder over its life: resume, retry, other settings, other data, torn files, two writers."""

from __future__ import annotations

import json
import shutil
import threading
from pathlib import Path

import pytest
from PIL import Image

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.errors import DataError, RunMismatch, StorageError, Unavailable
from editloupe.findings import PENDING
from editloupe.runs.outcome import Outcome
from editloupe.runs.store import RunStore
from editloupe.tasks import Budget
from editloupe.traces.read import read_trace
from tests.conftest import LOOK, Cli, Edits, final, pixels, scripted
from tests.setups import means_of, open_with, run_over


def talker(answer: str = "Wrong Action") -> ScriptedLMM:
    return ScriptedLMM([LOOK, final(answer)])


def run(lmm: ScriptedLMM, folder: Path, out: Path, **options: object) -> Outcome:
    keys = ("redo", "stop", "listener")
    how = {k: options.pop(k) for k in keys if k in options}
    data = {{"only": "sample"}.get(k, k): options.pop(k) for k in ("limit", "only", "edited") if k in options}
    setup = open_with(backend=lmm, criteria=("if",), **options)  # type: ignore[arg-type]
    return run_over(setup, folder, out, config={"path": str(folder)}, concurrency=2, **data, **how)  # type: ignore[arg-type]


def test_a_repeat_of_a_finished_run_asks_nothing_and_says_the_same(edits: Edits, editloupe: Cli, tmp_path: Path):
    data = edits(3)
    (data / "edited" / "s01.png").write_bytes(b"")
    uri = scripted(tmp_path / "script.jsonl", final("Superb"), final("Wrong Action"))
    words = ("judge", data, "--backend", uri, "--criteria", "if", "--out", "run")

    def kept() -> dict[str, bytes]:
        paths = (path for path in (tmp_path / "run").rglob("*") if path.is_file())
        return {str(path.relative_to(tmp_path)): path.read_bytes() for path in paths}

    def means(out: str) -> list[str]:
        lines = out.partition("Means of all samples")[2].splitlines()
        return lines[: next(number for number, line in enumerate(lines) if "findings judged" in line)]

    code, out, _ = editloupe(*words)
    assert code == 3 and "2 of 3 findings judged, in" in out
    files = kept()
    again, told, _ = editloupe(*words)
    assert (again, means(told)) == (code, means(out)) and len(means(out)) > 3
    assert "2 of 3 findings judged, 2 of them from before, in" in told
    *_, done = map(json.loads, editloupe(*words, "--format", "json")[1].splitlines())
    assert (done["judged"], done["asked"], done["spent"]["calls"]) == (2, 3, 0)
    assert kept() == files


def test_what_this_run_did_not_judge_is_refused_by_name_and_the_run_stays_as_it_was(edits: Edits, tmp_path: Path):
    folder, out, other = edits(2), tmp_path / "run", edits(2, name="other")
    run(talker(), folder, out)
    Image.fromarray(pixels(9, spots=9)[1]).save(other / "edited" / "s01.png")
    before = {p.name: p.read_bytes() for p in out.iterdir() if p.suffix in (".json", ".yaml", ".jsonl")}
    for data, settings, told in (
        (folder, {"budget": Budget(max_turns=3)}, r"--max-turns: was 6, is 3"),
        (other, {}, r"'s01' is not what this run judged: an edited image changed"),
    ):
        with pytest.raises(RunMismatch, match=told):
            run(talker(), data, out, **settings)
        assert {p.name: p.read_bytes() for p in out.iterdir() if p.suffix in (".json", ".yaml", ".jsonl")} == before
    with pytest.raises(DataError, match="no sample nope; the first ones are s00"):
        run(talker(), folder, out, only=("nope",))


@pytest.mark.parametrize("broken", [b"", b"cut", None], ids=["empty", "cut", "missing"])
def test_a_broken_file_costs_only_its_own_sample_and_is_judged_once_it_is_mended(
    edits: Edits, tmp_path: Path, broken: bytes | None
):
    folder, out = edits(3), tmp_path / "run"
    file = folder / "edited" / "s01.png"
    whole = file.read_bytes()

    def spoil() -> None:
        file.unlink() if broken is None else file.write_bytes(broken and whole[:2000])

    spoil()
    outcome = run(talker(), folder, out)
    (failed,) = [f for f in outcome.findings if f.status != "ok"]
    assert (failed.sample_id, failed.status, "s01.png" in failed.reason) == ("s01", "input_error", True)
    mean = means_of(outcome)["instruction_following"]
    assert (mean.judged, mean.asked) == (2, 3)
    file.write_bytes(whole)
    lmm = talker()
    assert {f.status for f in run(lmm, folder, out).findings} == {"ok"} and len(lmm.requests) == 2
    assert {f.sample_id: f.status for f in RunStore.read(out).current()} == {f"s0{n}": "ok" for n in range(3)}
    spoil()
    if broken == b"cut":  # its head tells that it is another picture
        with pytest.raises(RunMismatch, match="'s01' is not what this run judged: an edited image changed"):
            run(talker(), folder, out)
    else:
        run(talker(), folder, out)
        assert {f.sample_id: f.status for f in RunStore.read(out).current()}["s01"] == "input_error"


def test_a_limit_can_be_lifted_torn_lines_go_and_the_same_command_writes_nothing_new(edits: Edits, tmp_path: Path):
    folder, out = edits(4), tmp_path / "run"
    out.mkdir()
    # A run that was killed at its very start.
    (out / "run.lock").write_text("")
    (out / ".run.json.part").write_text("{")
    assert run(talker(), folder, out, limit=1).asked == 1
    more = talker()
    assert (run(more, folder, out).asked, len(more.requests)) == (4, 6)
    lines = {name: (out / name).read_bytes() for name in ("findings.jsonl", "samples.jsonl")}
    for name in lines:
        with (out / name).open("ab") as file:
            file.write(b'{"task_id": "half')
    trace = next(out.glob("traces/*/*/*.jsonl"))
    with trace.open("ab") as file:
        file.write(b'{"kind": "no')
    assert any("cut off" in p for p in read_trace(trace).problems)
    silent = talker()
    again = run(silent, folder, out)
    assert (len(silent.requests), again.reused, again.asked, again.failed) == (0, 4, 4, 0)
    assert {name: (out / name).read_bytes() for name in lines} == lines


@pytest.mark.parametrize("damage", ["header", "conversation", "crops"])
def test_a_trace_that_cannot_be_gone_on_from_is_set_aside_and_the_task_begun_anew(
    edits: Edits, tmp_path: Path, damage: str
):
    folder, out = edits(2), tmp_path / "run"
    run(ScriptedLMM([LOOK, Unavailable("gone")]), folder, out, only=("s01",))
    trace = next(out.glob("traces/*/*/*.jsonl"))
    lines = trace.read_text().splitlines()
    if damage == "header":
        trace.write_text("\n".join(["garbage", *lines[1:]]) + "\n")
    elif damage == "conversation":
        lines = [line.replace('"request_key":"', '"request_key":"0') if "model_call" in line else line for line in lines]
        trace.write_text("\n".join(lines) + "\n")
    else:
        shutil.rmtree(out / "blobs")
    zoom = '<tool_call>{"name": "zoom_in", "parameters": {"target_image": "Crop 1", "bbox": [0, 0, 500, 500]}}</tool_call>'
    (finding,) = run(ScriptedLMM([LOOK, zoom, final("Wrong Action")]), folder, out, only=("s01",)).findings
    assert finding.status == "ok" and read_trace(out / str(finding.trace)).problems == ()
    assert len(list(out.glob("traces/*/*/*.aside-1.jsonl"))) == 1 and "begun anew" in trace.read_text()


def test_an_interrupted_task_goes_on_from_its_last_event(edits: Edits, tmp_path: Path):
    folder, out, stop = edits(1), tmp_path / "run", threading.Event()

    def stopping(request: Request) -> str:
        stop.set()
        return LOOK

    outcome = run(ScriptedLMM(stopping, name="test"), folder, out, stop=stop)
    assert outcome.interrupted
    assert outcome.findings == ()
    lmm = talker()
    assert run(lmm, folder, out).failed == 0
    assert len(lmm.requests) == 1, "the first call was recorded and is not made again"
    assert len(lmm.requests[0].messages) == 3


def test_what_the_model_caused_stands_until_a_retry_names_it(edits: Edits, tmp_path: Path):
    folder, out = edits(1), tmp_path / "run"
    run(ScriptedLMM([final("Superb"), final("Grand"), final("Fine")]), folder, out)
    silent = talker()
    assert run(silent, folder, out).findings[0].status == "off_menu"
    assert silent.requests == []
    outcome = run(talker(), folder, out, redo=PENDING | {"off_menu"})
    assert outcome.findings[0].label == "Wrong Action"
    assert len(list(out.glob("traces/*/*/*.aside-1.jsonl"))) == 1, "the first trace is kept"


def test_a_full_disk_stops_the_run_with_a_message_and_loses_nothing(
    edits: Edits, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    from editloupe.data.images import ImageStore

    folder, out = edits(2), tmp_path / "run"

    def full(self: ImageStore, ref: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(ImageStore, "keep", full)
        with pytest.raises(StorageError, match="No space left on device"):
            run(talker(), folder, out)
    assert run(talker(), folder, out).failed == 0
