"""What was changed in a run: findings without a number are left out, changed traces not gone on from, `verify` names it."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from functools import partial, reduce
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.errors import Unavailable
from editloupe.findings import PENDING
from editloupe.rubrics import rubric_path
from editloupe.runs.merge import merge
from editloupe.runs.outcome import Outcome
from editloupe.runs.rescore import protocol_with, rescore, write_rescored
from editloupe.runs.store import RunStore
from editloupe.runs.verify import verify
from editloupe.traces.read import read_trace
from editloupe.traces.record import TraceWriter
from tests.conftest import LOOK, Cli, draw_edits, final
from tests.setups import open_with, run_over

Row = dict[str, Any]


def judge(data: Path, out: Path, *lines: Any, **options: Any) -> tuple[Outcome, ScriptedLMM]:
    """A run on instruction following."""
    lmm = ScriptedLMM(list(lines) or [LOOK, final("Over Modification")])
    redo = options.pop("redo", PENDING)
    outcome = run_over(open_with(backend=lmm, criteria=("if",), **options), data, out, concurrency=1, redo=redo)
    return outcome, lmm


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Data, and a run over it: four edits with the label Over Modification, 3 of 1 to 4."""
    home = tmp_path_factory.mktemp("good")
    judge(draw_edits(home / "data", 4), home / "run")
    return home


@pytest.fixture
def run(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good / "run", tmp_path / "run"))


def rows(path: Path) -> list[Row]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write(path: Path, lines: list[Row]) -> None:
    text = "".join(json.dumps(line, separators=(",", ":"), ensure_ascii=False) + "\n" for line in lines)
    path.write_text(text, encoding="utf-8")


def change(run: Path, answer: Row | None = None, **fields: Any) -> None:
    """Change the first finding of a run."""
    lines = rows(run / "findings.jsonl")
    write(run / "findings.jsonl", [{**lines[0], **fields, "answer": {**lines[0]["answer"], **(answer or {})}}, *lines[1:]])


def trace(run: Path, number: int = 0) -> Path:
    """The trace of one of the findings."""
    return run / str(rows(run / "findings.jsonl")[number]["trace"])


def wrong(folder: Path) -> list[tuple[str, str]]:
    return [one for part in verify(folder) for one in part.wrong]


LEFT_OUT: dict[str, tuple[Row, str]] = {
    "a foreign label": (
        {"answer": {"name": "Superb"}, "label": "Superb"},
        "s00 (instruction_following): label 'Superb' is none of the rubric's",
    ),
    "a value of 400": ({"answer": {"value": 400.0}, "value": 400.0}, "has the value 400, and in the rubric 3"),
    "the label's column": ({"label": "Superb"}, "its column 'label' is 'Superb', and its answer 'Over Modification'"),
    "the value's column": ({"value": 4}, "its column 'value' is 4, and its answer 3.0"),
    "a value that is no number": ({"answer": {"value": float("nan")}}, "holds NaN, which is no finite number"),
    "endless seconds": ({"seconds": float("inf")}, "holds Infinity, which is no finite number"),
    "a turn that no program can add up": ({"turn": 2**63}, "turn: Input should be less than 9007199254740992"),
}
"""What is changed in a finding, and what is said."""


def test_a_finding_without_a_number_of_its_metric_is_named_and_left_out(good: Path, tmp_path: Path):
    for name, (fields, said) in LEFT_OUT.items():
        run = Path(shutil.copytree(good / "run", tmp_path / name))
        change(run, **fields)
        store = RunStore.read(run)
        (problem,) = store.problems
        assert problem.startswith("findings.jsonl, line 1: not of the expected shape (") and said in problem, name
        assert problem.endswith("), left out")
        assert [(f.sample_id, f.value) for f in store.current()] == [("s01", 3.0), ("s02", 3.0), ("s03", 3.0)]
        assert ("line 1", problem.partition(": ")[2]) in wrong(run)
    # Many of a kind are cut short.
    line = rows(run / "findings.jsonl")[1]
    write(run / "findings.jsonl", [{**line, "task_id": f"{n:064x}", "value": n + 10} for n in range(9)])
    problems = RunStore.read(run).problems
    assert len(problems) == 6 and problems[-1] == "findings.jsonl: 4 more lines are not of the expected shape, left out"


def test_an_answer_on_a_scale_of_its_questions_own_counts_while_its_trace_ends_in_it(
    toys: None, good: Path, tmp_path: Path
):
    out = tmp_path / "run"
    run_over(open_with(backend=ScriptedLMM([final("8")]), protocol="stars"), good / "data", out, concurrency=1)
    info = json.loads((out / "run.json").read_text())
    info["record"]["metrics"][0]["domain"]["high"] = 1.0
    (out / "run.json").write_text(json.dumps(info))
    assert {f.value for f in RunStore.read(out).current()} == {8.0}
    change(out, answer={"value": 400.0}, value=400.0)
    assert "its value 400 is outside 0 to 1" in RunStore.read(out).problems[0]


def test_a_trace_whose_lines_were_changed_is_not_gone_on_from(good: Path, tmp_path: Path):
    out = tmp_path / "run"
    judge(good / "data", out, LOOK, Unavailable("gone"), limit=1)
    (path,) = out.glob("traces/*/*/*.jsonl")
    path.write_text(path.read_text().replace("differ", "dither"))
    assert any("was changed after it was recorded" in problem for problem in read_trace(path).tampering)
    outcome, lmm = judge(good / "data", out, limit=1)
    assert (outcome.failed, len(lmm.requests), len(list(out.glob("traces/*/*/*.aside-1.jsonl")))) == (0, 2, 1)


def test_findings_are_not_rebuilt_from_traces_that_were_changed_or_have_no_end(good: Path, run: Path):
    changed, unended = trace(run), trace(run, 1)
    (run / "findings.jsonl").unlink()
    changed.write_text(changed.read_text().replace("Over Modification", "Flawless Execution"))
    write(unended, rows(unended)[:-1])
    store = RunStore.read(run)
    assert [(f.sample_id, f.value) for f in store.current()] == [("s02", 3.0), ("s03", 3.0)]
    assert "was changed after it was recorded (hash mismatch); its finding is left out" in store.problems[0]
    outcome, lmm = judge(good / "data", run)
    # Without its end a trace still holds every reply.
    assert outcome.failed == 0 and len(lmm.requests) == 2 and wrong(run) == []


def test_merged_and_re_scored_findings_can_be_verified(good: Path, run: Path, tmp_path: Path):
    merge(tmp_path / "whole", [run])
    assert wrong(tmp_path / "whole") == []
    rubric = rubric_path("dlebench")
    own = tmp_path / "own.toml"
    own.write_text(rubric.read_text(encoding="utf-8").replace("value = 3", "value = 3.5"), encoding="utf-8")
    store = RunStore.read(run)
    protocol = protocol_with(store, {"rubric": str(own)})
    new = write_rescored(store, protocol, list(rescore(store, protocol)), tmp_path / "new")
    assert {f.value for f in new.current()} == {3.5}
    assert wrong(tmp_path / "new") == [] and wrong(run) == []
    change(tmp_path / "new", reason="It is right.")
    assert wrong(tmp_path / "new") == [("s00 (instruction_following)", "it is not what its trace ends in")]


def test_findings_that_were_retried_or_wait_can_be_verified(good: Path, tmp_path: Path):
    out = tmp_path / "run"
    judge(good / "data", out, final("Superb"), limit=1)
    assert wrong(out) == []
    judge(good / "data", out, Unavailable("gone"), limit=1, redo=PENDING | {"off_menu"})
    assert wrong(out) == []
    # Killed before the next end: the finding is that of the session before.
    with TraceWriter(out / str(RunStore.read(out).current()[0].trace)) as writer:
        writer.append(writer.events[-3])
    assert RunStore.read(out).problems == [] and wrong(out) == []
    judge(good / "data", out, limit=1)
    assert RunStore.read(out).current()[0].status == "ok" and wrong(out) == []


# editloupe verify


def event(kind: str, at: str, value: object) -> Callable[[Path], object]:
    """Set a field of the first event of a kind, in the trace of the second finding, whose edit has a spot."""

    def spoil(run: Path) -> None:
        events = rows(trace(run, 1))
        *outer, name = at.split(".")
        held = next(one for one in events if one["kind"] == kind)
        reduce(lambda part, key: part[int(key) if key.isdigit() else key], outer, held)[name] = value
        write(trace(run, 1), events)

    return spoil


def end(*instead: Row) -> Callable[[Path], object]:
    """Put other events in the place of the trace's last."""
    return lambda run: write(trace(run, 1), [*rows(trace(run, 1))[:-1], *instead])


def swapped(files: str) -> Callable[[Path], object]:
    """Swap the first two of some files."""

    def spoil(run: Path) -> None:
        first, second = sorted(run.glob(files))[:2]
        ours, theirs = first.read_bytes(), second.read_bytes()
        first.write_bytes(theirs)
        second.write_bytes(ours)

    return spoil


def identity(run: Path) -> None:
    data = json.loads((run / "run.json").read_bytes())
    data["identity"]["mode"] = "x"
    (run / "run.json").write_text(json.dumps(data), encoding="utf-8")


LINES = "lines before its end was changed"
CHANGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a finding": (partial(change, reason="It is right."), "findings.jsonl", "it is not what its trace ends in"),
    "a tool's result": (event("tool_call", "observation.text", "There is none."), "traces", LINES),
    "the question": (event("header", "task.prompt", "Say yes."), "traces", "its question was changed"),
    "a tool's picture": (event("tool_call", "observation.views.0.image.sha256", "0" * 64), "traces", LINES),
    "a call's time": (event("model_call", "seconds", 0.5), "traces", LINES),
    "the tools on offer": (event("header", "tools", []), "traces", LINES),
    "the judge": (event("header", "judge", {"backend": "x"}), "traces", "its judge was changed"),
    "the end's finding": (event("end", "finding_digest", "0" * 64), "traces", "its end is that of another finding"),
    "the end": (end(), "findings.jsonl", "its trace has no end"),
    "an end without digests": (end({"time": "x", "kind": "end"}), "traces", "the digests of its end were taken away"),
    "swapped traces": (swapped("traces/*/*/*.jsonl"), "findings.jsonl", "it is not what its trace ends in"),
    "a picture's content": (swapped("blobs/*/*"), "pictures", "its content is not that of its name"),
    "the identity": (identity, "traces", "it comes from another run"),
}
"""What is changed → (how, in which part it is noticed, what is said)."""


def test_a_run_as_it_was_recorded_is_all_equal(run: Path, editloupe: Cli):
    code, out, err = editloupe("verify", run)
    assert (code, err) == (0, "") and "All is as recorded." in out
    code, out, _ = editloupe("verify", run, "--format", "json")
    found = json.loads(out)
    assert (code, found["exit"], found["wrong"]) == (0, 0, 0)
    # Sources, edited images, and what the tool has shown.
    parts = {part["part"]: part for part in found["parts"]}
    assert [parts[name]["checked"] for name in ("samples.jsonl", "findings.jsonl", "traces")] == [4, 4, 4]
    assert parts["pictures"]["checked"] == len(list(run.glob("blobs/*/*"))) > 5
    assert all(part["equal"] == part["checked"] and not part["unchecked"] for part in parts.values())


def test_what_was_changed_is_named(good: Path, tmp_path: Path, editloupe: Cli):
    for name, (spoil, part, said) in CHANGES.items():
        run = Path(shutil.copytree(good / "run", tmp_path / name))
        spoil(run)
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        code, out, err = editloupe("verify", run)
        assert code == 1, (name, out + err)
        assert any(line.startswith(f"wrong: {part}: ") and said in line for line in out.splitlines()), (name, out)
        assert "not as recorded." in out
        code, out, _ = editloupe("verify", run, "--format", "json")
        (found,) = [one for one in json.loads(out)["parts"] if one["part"] == part]
        assert code == 1 and any(said in one["reason"] for one in found["wrong"]), name
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_what_is_gone_cannot_be_checked_and_is_no_fault(run: Path, editloupe: Cli):
    (trace(run, 1).parent / f"{'a' * 64}.0.jsonl").write_text('{"kind": "hea')
    trace(run, 1).unlink()
    code, out, _ = editloupe("verify", run)
    assert code == 0 and "All that can be checked is as recorded." in out
    assert "not checkable: findings.jsonl: s01 (instruction_following): its trace is not there" in out
    assert "it has not begun" in out


def test_a_picture_that_nothing_names_is_listed_and_prune_deletes_it_alone(run: Path, editloupe: Cli):
    name = hashlib.sha256(b"1234").hexdigest()
    lost, foreign = run / "blobs" / name[:2] / f"{name}.png", run / "blobs" / name[:2] / "readme.txt"
    before = sorted(run.glob("blobs/*/*"))
    lost.parent.mkdir(exist_ok=True)
    lost.write_bytes(b"1234")
    code, out, _ = editloupe("verify", run)
    assert (
        code == 0 and "1 picture that nothing names, 4 bytes; --prune deletes what nothing names." in out and lost.exists()
    )
    foreign.write_bytes(b"1234")
    code, out, _ = editloupe("verify", run, "--prune")
    assert code == 1 and "kept while something is wrong" in out and lost.exists()
    foreign.unlink()
    code, out, _ = editloupe("verify", run, "--prune")
    assert code == 0 and "Deleted 1 picture that nothing names, 4 bytes." in out
    assert sorted(run.glob("blobs/*/*")) == before
