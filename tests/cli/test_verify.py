"""`editloupe verify`: what was changed in a run is named, what cannot be checked is said, exit 0 or 1."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends.scripted import ScriptedLMM
from tests.conftest import LOOK, draw_edits, final
from tests.setups import open_with, run_over

Program = Callable[..., tuple[int, str, str]]
Row = dict[str, Any]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run over three edits, one look with a tool each."""
    home = tmp_path_factory.mktemp("good")
    lmm = ScriptedLMM([LOOK, final("Over Modification")])
    run_over(open_with(backend=lmm, criteria=("if",)), draw_edits(home / "data", 3), home / "run", concurrency=1)
    return home / "run"


@pytest.fixture
def run(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "run"))


def test_a_run_as_it_was_recorded_is_all_equal(run: Path, editloupe: Program):
    code, out, err = editloupe("verify", run)
    assert (code, err) == (0, "") and "Nothing was changed." in out
    code, out, _ = editloupe("verify", run, "--json")
    found = json.loads(out)
    assert (code, found["exit"], found["wrong"]) == (0, 0, 0)
    # Three sources and edited images, of which two are equal where no spot was drawn, and what the tool has shown.
    parts = {part["part"]: part for part in found["parts"]}
    assert [parts[name]["checked"] for name in ("samples.jsonl", "findings.jsonl", "traces")] == [3, 3, 3]
    assert parts["pictures"]["checked"] == len(list(run.glob("blobs/*/*"))) > 5
    assert all(part["equal"] == part["checked"] and not part["unchecked"] for part in parts.values())


def lines(path: Path, change: Callable[[list[Row]], list[Row] | None]) -> None:
    found = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    found = change(found) or found
    text = "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in found)
    path.write_text(text, encoding="utf-8")


def trace(run: Path) -> Path:
    """The trace of the second finding, whose edit has a spot that the tool shows."""
    return run / str(json.loads((run / "findings.jsonl").read_text(encoding="utf-8").splitlines()[1])["trace"])


def event(kind: str, **fields: Any) -> Callable[[Path], object]:
    """Change the first event of a kind in the trace; a field of a field by `__`."""

    def change(rows: list[Row]) -> None:
        found = next(row for row in rows if row["kind"] == kind)
        for name, value in fields.items():
            outer, _, inner = name.partition("__")
            found.update({outer: {**found[outer], inner: value} if inner else value})

    return lambda run: lines(trace(run), change)


def picture_of_the_tool(run: Path) -> None:
    def change(rows: list[Row]) -> None:
        views = next(row for row in rows if row["kind"] == "tool_call")["observation"]["views"]
        views[0]["image"] = views[0]["origin"]

    lines(trace(run), change)


def swapped_pictures(run: Path) -> None:
    first, second = sorted(run.glob("blobs/*/*"))[:2]
    first.write_bytes(second.read_bytes())


def swapped_traces(run: Path) -> None:
    first, second = sorted(run.glob("traces/*/*/*.jsonl"))[:2]
    ours = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(ours)


def identity(run: Path) -> None:
    data = json.loads((run / "run.json").read_bytes())
    data["identity"]["mode"] = "x"
    (run / "run.json").write_text(json.dumps(data), encoding="utf-8")


def finding(run: Path) -> None:
    lines(run / "findings.jsonl", lambda rows: rows[0].update(reason="It is right."))


CHANGES: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a finding": (finding, "findings.jsonl", "it is not what its trace ends in"),
    "a tool's result": (
        event("tool_call", observation__text="There is none."),
        "traces",
        "lines before its end was changed",
    ),
    "the question": (
        event("header", task__prompt="Say yes."),
        "traces",
        "its question was changed",
    ),
    "a tool's picture": (picture_of_the_tool, "traces", "lines before its end was changed"),
    "a call's time": (event("model_call", seconds=0.5), "traces", "lines before its end was changed"),
    "the tools on offer": (event("header", tools=[]), "traces", "lines before its end was changed"),
    "the judge": (event("header", judge={"backend": "x"}), "traces", "its judge was changed after it was recorded"),
    "the end's finding": (event("end", finding_digest="0" * 64), "traces", "its end is that of another finding"),
    "the end": (lambda run: lines(trace(run), lambda rows: rows[:-1]), "findings.jsonl", "its trace has no end"),
    "an end without digests": (
        lambda run: lines(trace(run), lambda rows: [*rows[:-1], {"time": "x", "kind": "end"}]),
        "traces",
        "the digests of its end were taken away",
    ),
    "swapped traces": (swapped_traces, "findings.jsonl", "it is not what its trace ends in"),
    "a picture's content": (swapped_pictures, "pictures", "its content is not that of its name"),
    "the identity": (identity, "traces", "it comes from another run"),
}
"""What is changed → (how, in which part it is noticed, what is said)."""


def test_what_was_changed_is_named(good: Path, tmp_path: Path, editloupe: Program):
    for name, (spoil, part, said) in CHANGES.items():
        run = Path(shutil.copytree(good, tmp_path / name))
        spoil(run)
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        code, out, err = editloupe("verify", run)
        assert code == 1, (name, out + err)
        assert any(line.startswith(f"wrong: {part}: ") and said in line for line in out.splitlines()), (name, out)
        assert "not as recorded." in out
        code, out, _ = editloupe("verify", run, "--json")
        (found,) = [one for one in json.loads(out)["parts"] if one["part"] == part]
        assert code == 1 and any(said in one["reason"] for one in found["wrong"]), name
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


def test_what_is_gone_cannot_be_checked_and_is_no_fault(run: Path, editloupe: Program):
    (trace(run).parent / f"{'a' * 64}.0.jsonl").write_text('{"kind": "hea')
    trace(run).unlink()
    code, out, _ = editloupe("verify", run)
    assert code == 0 and "Nothing that can be checked was changed." in out
    assert "not checkable: findings.jsonl: s01 (instruction_following): its trace is not there" in out
    assert "it has not begun" in out


def test_lines_that_cannot_be_read_are_wrong_and_a_torn_one_is_not(run: Path, editloupe: Program):
    path = run / "findings.jsonl"
    with path.open("a", encoding="utf-8") as file:
        file.write('{"task_id": "ha')
    code, out, _ = editloupe("verify", run)
    assert code == 0 and "not checkable: findings.jsonl: line 4: the last line is cut off" in out
    path.write_text("no finding\n" + path.read_text(encoding="utf-8"), encoding="utf-8")
    code, out, _ = editloupe("verify", run)
    assert code == 1 and "wrong: findings.jsonl: line 1: not JSON" in out


def test_a_fork_is_verified_too(run: Path, editloupe: Program):
    assert editloupe("fork", run, "s01", "--at", "1", "--backend", "baseline")[0] == 0
    assert editloupe("verify", run)[0] == 0
    (fork,) = run.glob("forks/*/*.jsonl")
    fork.write_text(fork.read_text(encoding="utf-8").replace('"choices":null', '"choices":[]'), encoding="utf-8")
    code, out, _ = editloupe("verify", run)
    assert code == 1 and "wrong: traces: forks/" in out
