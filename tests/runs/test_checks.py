"""Findings that were changed after they were recorded are named when a run is opened, and are not counted."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe import Run
from editloupe.backends.scripted import ScriptedLMM
from editloupe.errors import ConfigError, Unavailable
from editloupe.findings import PENDING, Finding
from editloupe.runs import checks
from editloupe.runs.merge import merge
from editloupe.runs.outcome import Outcome
from editloupe.runs.rescore import protocol_with, rescore, write_rescored
from editloupe.runs.store import RunStore
from editloupe.runs.verify import verify
from editloupe.traces.read import read_trace
from editloupe.traces.record import TraceWriter
from editloupe.viewer.reader import RunReader
from tests.conftest import LOOK, draw_edits, final
from tests.setups import open_with, run_over

Edits = Callable[..., Path]
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
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def change(run: Path, **fields: Any) -> None:
    """Change the first finding of a run; the answer's fields by their own names, as a hand would change them."""
    lines = rows(run / "findings.jsonl")
    answer = None if lines[0]["answer"] is None else {**lines[0]["answer"]}
    answer = fields.pop("answer", answer)
    if answer is not None:
        answer |= {own: fields[name] for name, own in (("label", "name"), ("value", "value")) if name in fields}
    write(run / "findings.jsonl", [{**lines[0], "answer": answer, **fields}, *lines[1:]])


def column(run: Path, **fields: Any) -> None:
    """Change columns of the first finding, and not the answer."""
    lines = rows(run / "findings.jsonl")
    write(run / "findings.jsonl", [{**lines[0], **fields}, *lines[1:]])


def traces(run: Path) -> list[Path]:
    """The traces of the first findings."""
    return [run / row["trace"] for row in rows(run / "findings.jsonl")]


def swap(run: Path) -> None:
    """Put the traces of two samples in each other's place."""
    first, second = traces(run)[:2]
    ours = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(ours)


def end(run: Path, *last: Row) -> None:
    """Put other lines in the place of the first trace's end."""
    write(traces(run)[0], [*rows(traces(run)[0])[:-1], *last])


CHANGES: dict[str, tuple[Callable[[Path], object], str, int]] = {
    "another label": (
        lambda run: change(run, label="Flawless Execution", value=4.0),
        "it is not what its trace ends in",
        1,
    ),
    "a foreign label": (lambda run: change(run, label="Superb"), "label 'Superb' is none of the rubric's", 1),
    "a value of 400": (lambda run: change(run, value=400.0), "has the value 400, and in the rubric 3", 1),
    "the label's column": (lambda run: column(run, label="Superb"), "its column 'label' is 'Superb'", 1),
    "the value's column": (lambda run: column(run, value=4), "its column 'value' is 4, and its answer 3.0", 1),
    "a value that is no number": (lambda run: change(run, value=float("nan")), "a number that is not finite", 1),
    "endless seconds": (lambda run: change(run, seconds=float("inf")), "a number that is not finite", 1),
    "the reason": (lambda run: change(run, reason="I see it all."), "it is not what its trace ends in", 1),
    "another sample": (lambda run: change(run, sample_id="s09"), "it is not what its trace ends in", 1),
    "a better label that says that its trace broke off": (
        lambda run: change(run, label="Flawless Execution", value=4.0, ending="fault"),
        "it is not what its trace ends in",
        1,
    ),
    "no verdict": (
        lambda run: change(run, status="refused", answer=None, label=None, value=None, kind=None),
        "it is not what its trace ends in",
        1,
    ),
    "another label that names no trace": (
        lambda run: change(run, label="Flawless Execution", value=4.0, trace=None),
        "it is not what was recorded, and there is no trace of it",
        1,
    ),
    "another label whose trace was deleted": (
        lambda run: (traces(run)[0].unlink(), change(run, label="Flawless Execution", value=4.0)),
        "it is not what was recorded, and its trace is not there",
        1,
    ),
    "a verdict taken away with its trace": (
        lambda run: change(run, status="refused", answer=None, label=None, value=None, kind=None, trace=None),
        "it is not what was recorded, and there is no trace of it",
        1,
    ),
    "a label with neither a trace nor a digest": (
        lambda run: change(run, label="Flawless Execution", value=4.0, trace=None, digest=None),
        "it has no digest, and there is no trace of it",
        1,
    ),
    "a label whose trace and digest were deleted": (
        lambda run: (traces(run)[0].unlink(), change(run, digest=None)),
        "it has no digest, and its trace is not there",
        1,
    ),
    "swapped traces": (swap, "it is not what its trace ends in", 2),
    "no end": (end, "its trace has no end", 1),
    "an end without digests": (lambda run: end(run, {"kind": "end", "time": "x"}), "it is not what its trace ends in", 1),
}
"""What is done → (how, what is said, how many findings it costs)."""


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_finding_is_named_and_not_counted(name: str, run: Path):
    spoil, said, lost = CHANGES[name]
    spoil(run)
    store = RunStore.read(run)
    (problem,) = store.problems
    assert problem.startswith("findings.jsonl: s0") and said in problem and problem.endswith("; not counted")
    assert sorted(f.status for f in store.current()) == ["invalid"] * lost + ["ok"] * (4 - lost)
    (bad, *_) = [f for f in store.current() if f.status == "invalid"]
    assert (bad.answer, bad.seconds, bad.usage.total) == (None, 0.0, 0) and said.split(", and")[0] in bad.reason


def test_no_command_counts_what_was_changed(run: Path, tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]):
    # Three of four are 3 of 1 to 4: (3 - 1) / 3 of 100.
    change(run, value=400.0)
    people = tmp_path / "people.csv"
    people.write_text("id,if_ann\n" + "".join(f"s0{n},Over Modification\n" for n in range(4)), encoding="utf-8")
    commands = {
        "show": ["show", run],
        "report": ["report", run, "--json"],
        "gate": ["gate", run, "--require", "mean(if)<=66.7", "--require", "status(invalid)>=0.25"],
        "compare": ["compare", run, run.with_name("other"), "--resamples", "100"],
        "align": ["align", run, "--human", people, "--resamples", "100"],
        "rescore": ["rescore", run, "--rubric", "dlebench"],
        "export": ["export", run, "--findings", tmp_path / "findings.jsonl"],
    }
    shutil.copytree(run, run.with_name("other"))
    shown = {}
    for name, words in commands.items():
        code, shown[name], err = editloupe(*words)
        assert code == (1 if name == "export" else 0), (name, err)
        told = "s00 (instruction_following): label 'Over Modification' has the value 400"
        assert told in shown[name] + err, name
    assert "3 of 4 findings judged" in shown["show"] and "(invalid)" in shown["show"]
    assert '"judged": 3, "asked": 4' in shown["report"] and "400" not in shown["align"] + shown["compare"]
    assert [row["status"] for row in rows(tmp_path / "findings.jsonl")] == ["invalid", "ok", "ok", "ok"]
    # The viewer and Python read the same store.
    seen = [f.status for one in RunReader(run).samples() for f in one.findings]
    assert seen == [f.status for f in Run(run).findings] == ["invalid", "ok", "ok", "ok"]


def test_one_sample_is_checked_like_the_whole(run: Path, editloupe: Callable[..., tuple[int, str, str]]):
    change(run, value=400.0)
    code, out, err = editloupe("show", run, "s00")
    assert code == 0 and "Not judged: invalid: label 'Over Modification' has the value 400" in out and "not counted" in err
    code, out, err = editloupe("show", run, "s01")
    assert code == 0 and "Verdict: Over Modification" in out


def test_many_of_one_kind_are_one_line_and_many_kinds_are_cut_short(run: Path):
    lines = rows(run / "findings.jsonl")
    write(run / "findings.jsonl", [{**row, "reason": "changed"} for row in lines])
    (problem,) = RunStore.read(run).problems
    names = "s00 (instruction_following); s01 (instruction_following) and 2 more"
    assert problem == f"findings.jsonl: {names}: it is not what its trace ends in; not counted"
    more = [{**lines[0], "task_id": f"{n:064x}", "value": n, "trace": None} for n in range(9)]
    write(run / "findings.jsonl", more)
    problems = RunStore.read(run).problems
    assert len(problems) == 6 and "editloupe verify names them all" in problems[-1]


def test_a_scale_has_its_bounds(toys: None, good: Path, tmp_path: Path):
    lmm = ScriptedLMM([final("8")])
    outcome = run_over(open_with(backend=lmm, protocol="stars"), good / "data", tmp_path / "run", concurrency=1)
    assert outcome.failed == 0
    change(tmp_path / "run", value=400.0)
    assert "its value 400 is outside 0 to 10" in RunStore.read(tmp_path / "run").problems[0]
    # Without a trace, as a person's answer is: its scale and its digest are all there is to hold it against.
    change(tmp_path / "run", value=-1.0, trace=None)
    assert "its value -1 is outside 0 to 10" in RunStore.read(tmp_path / "run").problems[0]


def test_an_unchanged_finding_counts_without_its_trace(run: Path):
    for path in traces(run)[:2]:
        path.unlink()
    (given, *_) = RunStore.read(run).current()
    store = RunStore.read(run)
    assert store.problems == [] and {f.status for f in store.current()} == {"ok"}
    # What a person says has no trace, and a digest like any other.
    write(run / "findings.jsonl", [checks.to_line(replace(given, trace=None))])
    assert [(f.status, f.trace) for f in RunStore.read(run).current()] == [("ok", None)]


def test_a_changed_finding_is_read_from_its_trace_again_by_the_same_command(good: Path, run: Path):
    change(run, value=400.0)
    outcome, lmm = judge(good / "data", run)
    assert lmm.requests == [] and outcome.failed == 0
    assert any("has the value 400" in note for note in outcome.notes)
    assert RunStore.read(run).problems == []


@pytest.mark.parametrize("spoil", [swap, end], ids=["swapped", "no end"])
def test_a_changed_trace_is_set_aside_and_its_question_asked_anew(spoil: Callable[[Path], object], good: Path, run: Path):
    spoil(run)
    outcome, lmm = judge(good / "data", run)
    assert outcome.failed == 0
    # Without its end a trace still holds every reply; swapped ones are of other questions.
    assert len(lmm.requests) == (4 if spoil is swap else 0)
    assert [part.wrong for part in verify(run)] == [[]] * 5


def test_a_trace_whose_lines_were_changed_is_not_gone_on_from(good: Path, tmp_path: Path):
    out = tmp_path / "run"
    judge(good / "data", out, LOOK, Unavailable("gone"), limit=1)
    (path,) = out.glob("traces/*/*/*.jsonl")
    path.write_text(path.read_text().replace("differ", "dither"))
    assert any("was changed after it was recorded" in problem for problem in read_trace(path).tampering)
    outcome, lmm = judge(good / "data", out, limit=1)
    assert (outcome.failed, len(lmm.requests), len(list(out.glob("traces/*/*/*.aside-1.jsonl")))) == (0, 2, 1)


def test_a_run_without_findings_is_not_rebuilt_from_changed_traces(run: Path):
    (run / "findings.jsonl").unlink()
    path = traces_of(run)[0]
    path.write_text(path.read_text().replace("Over Modification", "Flawless Execution"))
    found = RunStore.read(run)
    assert sorted(f.status for f in found.findings.values()) == ["invalid", "ok", "ok", "ok"]
    assert "its trace was changed after it was recorded; not counted" in found.problems[0]


def traces_of(run: Path) -> list[Path]:
    return sorted(run.glob("traces/*/*/*.jsonl"))


def test_a_changed_finding_is_not_merged(run: Path, tmp_path: Path):
    change(run, value=400.0)
    with pytest.raises(ConfigError, match=r"cannot be merged: .* has the value 400"):
        merge(tmp_path / "whole", [run])


def wrong(folder: Path) -> list[tuple[str, str]]:
    return [one for part in verify(folder) for one in part.wrong]


def test_merged_and_re_scored_findings_can_be_verified(good: Path, run: Path, tmp_path: Path):
    merge(tmp_path / "whole", [run])
    assert wrong(tmp_path / "whole") == []
    rubric = Path(__file__).parents[2] / "editloupe" / "protocols" / "dlebench" / "rubric.toml"
    own = tmp_path / "own.toml"
    own.write_text(rubric.read_text(encoding="utf-8").replace("value = 3", "value = 3.5"), encoding="utf-8")
    store = RunStore.read(run)
    protocol = protocol_with(store, {"rubric": str(own)})
    new = write_rescored(store, protocol, list(rescore(store, protocol)), tmp_path / "new")
    assert {f.value for f in new.current()} == {3.5}
    assert wrong(tmp_path / "new") == [] and wrong(run) == []
    # The copy ends in both findings, and a changed one is seen like any other.
    change(tmp_path / "new", label="Flawless Execution", value=4.0)
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


@pytest.mark.parametrize("field", ["turns", "repeat", "turn"])
@pytest.mark.parametrize("number", [-1, 2**63, 10**300])
def test_a_count_that_no_program_can_add_up_is_no_finding(field: str, number: int, run: Path):
    change(run, **{field: number})
    store = RunStore.read(run)
    (problem,) = store.problems
    assert "not of the expected shape" in problem and field in problem and len(store.current()) == 3


def test_a_trace_that_ends_in_another_repeat_is_not_taken_for_the_answer(good: Path, run: Path):
    (path, *_), data = traces(run), good / "data"
    events = rows(path)
    write(path, events[:-2])
    finding = {**next(e for e in events if e["kind"] == "finding")["finding"], "repeat": 7}
    with TraceWriter(path) as writer:
        writer.finish(Finding.from_json(finding))
    (run / "findings.jsonl").unlink()
    outcome, lmm = judge(data, run)
    assert [f.repeat for f in outcome.findings] == [0] * 4 and lmm.requests


def test_a_gate_over_no_judge_does_not_hold(run: Path, editloupe: Callable[..., tuple[int, str, str]]):
    info = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**info, "judges": {"a": {}}}))
    code, _, err = editloupe("gate", run, "--require", "mean(if)>=1")
    assert code == 2 and err.strip()
